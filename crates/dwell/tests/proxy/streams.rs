//! Streams through a pair: whole, half-closed, reset, many, slow, cut off.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_testkit::skips::skipped;
use rustix::process::Signal;

use crate::pair::{
    Directory, PATIENCE, Pair, assert_same, dwell, echo, exchange, free_port, has, mixture, reset,
    serve, wait_until, wait_until_noticed,
};

#[test]
fn bytes_come_through_unchanged() {
    let bytes = mixture(6_000_000, 1);
    for arguments in [
        &[][..],
        &["--pool", "0"],
        &["--strategy", "all", "--codec", "zstd:3"],
        &["--strategy", "mix", "--codec", "lz4"],
        &["--strategy", "switch"],
        &["--strategy", "mix-2out"],
        &["--strategy", "raw"],
    ] {
        let pair = Pair::new(echo(), arguments_of_egress(arguments), arguments);
        for _ in 0..2 {
            assert_same(&exchange(pair.connect(), &bytes).unwrap(), &bytes);
        }
        wait_until("the streams are over", || {
            pair.statuses().iter().all(|status| status.streams.finished == 2)
        });
        let [ingress, egress] = pair.statuses();
        for status in [&ingress, &egress] {
            assert_eq!((status.tx.bytes, status.rx.bytes), (12_000_000, 12_000_000));
            assert_eq!(status.security, "psk");
        }
        assert_eq!(ingress.tx.link_bytes, egress.rx.link_bytes);
        assert_eq!(egress.tx.link_bytes, ingress.rx.link_bytes);
        let pooled = !arguments.contains(&"--pool");
        assert_eq!(ingress.connections.reused > 0, pooled, "{ingress:#?}");
        if arguments.contains(&"all") {
            assert!(ingress.tx.link_bytes < 10_000_000, "{ingress:#?}");
        }
    }
}

/// The egress has no pool.
fn arguments_of_egress<'a>(arguments: &'a [&'a str]) -> &'a [&'a str] {
    if arguments.contains(&"--pool") { &[] } else { arguments }
}

#[test]
fn a_wish_is_granted() {
    let pair = Pair::new(echo(), &[], &["--wish", "all"]);
    let text = dwell_lab::corpus::text(3_000_000, 1);
    assert_same(&exchange(pair.connect(), &text).unwrap(), &text);
    let [_, egress] = pair.statuses();
    assert!(egress.tx.link_bytes < 2_000_000, "{egress:#?}");
}

#[test]
fn either_side_may_end_first() {
    // The server answers after the client's end.
    let answering = serve(|mut stream| {
        let mut question = Vec::new();
        stream.read_to_end(&mut question).unwrap();
        assert_eq!(question, b"question");
        stream.write_all(&mixture(1_000_000, 2)).unwrap();
    });
    let pair = Pair::new(answering, &[], &[]);
    assert_same(&exchange(pair.connect(), b"question").unwrap(), &mixture(1_000_000, 2));

    // The client goes on after the server's end.
    let (heard, hears) = std::sync::mpsc::channel();
    let listening = serve(move |mut stream| {
        stream.write_all(b"go on").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        heard.send(got).unwrap();
    });
    let pair = Pair::new(listening, &[], &[]);
    let mut client = pair.connect();
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "go on");
    let bytes = mixture(1_000_000, 3);
    client.write_all(&bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_same(&hears.recv_timeout(PATIENCE).unwrap(), &bytes);
    wait_until("both ends know", || pair.statuses().iter().all(|s| s.streams.finished == 1));
}

fn is_reset(result: io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn resets_are_passed_on() {
    let server = serve(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        reset(stream);
    });
    let pair = Pair::new(server, &[], &[]);
    let mut client = pair.connect();
    client.write_all(b"x").unwrap();
    assert!(is_reset(client.read(&mut [0])));

    let (heard, hears) = std::sync::mpsc::channel();
    let server = serve(move |mut stream| {
        let mut byte = [0];
        heard.send(stream.read(&mut byte)).unwrap();
        heard.send(stream.read(&mut byte)).unwrap();
    });
    let other = Pair::new(server, &[], &[]);
    let mut client = other.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap().unwrap(), 1);
    reset(client);
    let heard = hears.recv_timeout(2 * PATIENCE).unwrap();
    assert!(
        matches!(&heard, Err(error) if error.kind() == ErrorKind::ConnectionReset),
        "{heard:?}"
    );
    for pair in [pair, other] {
        wait_until("it is counted", || pair.statuses().iter().all(|s| s.streams.reset == 1));
    }
}

/// Whenever it comes: before the stream is open, while it opens, after.
#[test]
fn a_reset_is_no_end_at_any_time() {
    const CLIENTS: u64 = 200;
    let (heard, hears) = std::sync::mpsc::channel();
    let server = serve(move |mut stream| {
        let mut got = Vec::new();
        heard.send(stream.read_to_end(&mut got).map(|_| got)).unwrap();
    });
    let pair = Pair::new(server, &[], &[]);
    for client in 0..CLIENTS {
        // Whoever waits for one that is being made leaves it in the middle of its handshake.
        wait_until("a connection is warm", || pair.statuses()[0].connections.warm > 0);
        let mut stream = pair.connect();
        stream.write_all(b"x").unwrap();
        thread::sleep(Duration::from_micros(20 * (client % 50)));
        reset(stream);
    }
    wait_until("all are over", || {
        let [ingress, egress] = pair.statuses();
        ingress.streams.reset == CLIENTS && egress.streams.open == 0
    });
    let [ingress, egress] = pair.statuses();
    assert_eq!(ingress.streams.opened, CLIENTS);
    assert_eq!(egress.connections.unknown_peers, 0);
    for end in hears.try_iter() {
        assert!(end.is_err(), "a reset was taken for the end of {end:?}");
    }
}

/// A program that goes before its stream is open has its ingress leave the egress in the middle of a handshake.
#[test]
fn who_leaves_in_a_handshake_is_no_unknown_peer() {
    let pair = Pair::new(echo(), &[], &["--pool", "0"]);
    assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
    let made = pair.statuses()[1].connections.made;
    for client in 0..200 {
        let mut stream = pair.connect();
        stream.write_all(b"x").unwrap();
        thread::sleep(Duration::from_micros(40 * (client % 100)));
        reset(stream);
    }
    wait_until("all have gone", || {
        let [ingress, egress] = pair.statuses();
        (ingress.streams.open, egress.streams.open, egress.connections.handshakes) == (0, 0, 0)
            && ingress.streams.reset == 200
    });
    let [_, egress] = pair.statuses();
    assert!(egress.connections.made < made + 200, "some left before: {egress:#?}");
    assert_eq!(egress.connections.unknown_peers, 0, "{}", pair.log("egress"));
    // Who has never shown it is one.
    let other = Pair::new(echo(), &[], &["--pool", "0"]);
    let mut stream = crate::pair::patient(std::net::TcpStream::connect(other.egress_at).unwrap());
    stream.write_all(b"\x16\x03\x01").unwrap();
    drop(stream);
    wait_until("it is counted", || other.statuses()[1].connections.unknown_peers == 1);
}

/// A client that goes away while nothing is read from it, as the server does not read, either.
#[test]
fn who_goes_away_unread_is_noticed() {
    let server = serve(|_stream| thread::sleep(Duration::from_secs(3600)));
    let pair = Pair::new(server, &[], &[]);
    let client = pair.connect();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let block = mixture(1 << 20, 1);
    let mut sent = 0;
    while let Ok(len) = (&client).write(&block) {
        sent += len;
        assert!(sent < 100 << 20, "there is no back-pressure");
    }
    reset(client);
    wait_until_noticed(|| pair.statuses().iter().all(|s| s.streams.open == 0));
}

/// A client that says its end and then goes away, while the server neither answers nor ends.
#[test]
fn who_goes_away_after_its_end_is_noticed() {
    let server = serve(|_stream| thread::sleep(Duration::from_secs(3600)));
    let pair = Pair::new(server, &[], &[]);
    let mut client = pair.connect();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    wait_until("it is open", || pair.statuses().iter().all(|s| s.streams.open == 1));
    thread::sleep(Duration::from_millis(200));
    reset(client);
    wait_until_noticed(|| pair.statuses().iter().all(|s| s.streams.open == 0));
}

#[test]
fn a_cut_is_never_taken_for_an_end() {
    let server = serve(|mut stream| {
        stream.write_all(b"half of").unwrap();
        thread::sleep(Duration::from_secs(3600));
    });
    for victim in ["ingress", "egress"] {
        for signal in [Signal::KILL, Signal::TERM] {
            let mut pair = Pair::new(server, &[], &[]);
            let mut client = pair.connect();
            client.read_exact(&mut [0; 7]).unwrap();
            let process = if victim == "ingress" { &mut pair.ingress } else { &mut pair.egress };
            process.signal(signal);
            assert!(is_reset(client.read(&mut [0])), "{victim} {signal:?}");
            let code = process.wait();
            assert_eq!(code, if signal == Signal::TERM { 0 } else { -1 });
        }
    }
}

#[test]
fn ten_thousand_short_connections_leave_nothing() {
    const CONNECTIONS: u32 = 10_000;
    const WORKERS: u32 = 8;
    let pair = Pair::new(echo(), &[], &[]);
    let memory = || pair.ingress.resident_bytes() + pair.egress.resident_bytes();
    let round = |connections: u32| {
        let left = AtomicU32::new(connections);
        let one_by_one = || {
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
            {
                let mut client = pair.connect();
                client.write_all(b"short and sweet").unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                assert_eq!(got, b"short and sweet");
            }
        };
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(one_by_one);
            }
        });
    };
    round(CONNECTIONS / 5);
    let before = memory();
    round(CONNECTIONS - CONNECTIONS / 5);
    let after = memory();
    wait_until("all are over", || {
        pair.statuses()
            .iter()
            .all(|s| s.streams.open == 0 && s.streams.finished == u64::from(CONNECTIONS))
    });
    assert!(after < before + (16 << 20), "from {before} to {after} bytes");
    let [ingress, _] = pair.statuses();
    assert!(ingress.connections.open <= ingress.connections.warm + 1, "{ingress:#?}");
}

/// Readers that do not read hold up nobody else, and the memory that they take is bounded.
#[test]
fn slow_readers_harm_nobody() {
    const SLOW: usize = 20;
    let flood = serve(|mut stream| {
        let block = mixture(1 << 20, 1);
        while stream.write_all(&block).is_ok() {}
    });
    let echo = echo();
    let allowed = [flood.to_string(), echo.to_string()];
    let egress = ["--allow", &allowed[0], "--allow", &allowed[1]];
    let pair = Pair::new(flood, &egress, &[]);
    let slow: Vec<_> = (0..SLOW).map(|_| pair.connect()).collect();
    wait_until("all wait", || pair.statuses().iter().all(|s| s.streams.open == SLOW as u64));
    let bytes = mixture(1_000_000, 2);
    let through = || {
        let client = crate::socks::connect(pair.socks, &echo.to_string()).unwrap();
        assert_same(&exchange(client, &bytes).unwrap(), &bytes);
    };
    through();
    // As long as they wait, nothing is done for them.
    let ticks = || pair.ingress.cpu_ticks() + pair.egress.cpu_ticks();
    let settled = || {
        let before = ticks();
        thread::sleep(Duration::from_millis(500));
        ticks() - before <= 5
    };
    wait_until("the proxies rest", settled);
    let memory = pair.ingress.resident_bytes() + pair.egress.resident_bytes();
    assert!(memory < (120 << 20) + ((SLOW as u64 * 2) << 20), "{memory} bytes");
    through();
    drop(slow);
    wait_until("all are gone", || pair.statuses().iter().all(|s| s.streams.open == 0));
}

#[test]
fn idle_streams_are_given_up_if_that_is_wanted() {
    let silent = serve(|mut stream| {
        let _ = stream.read(&mut [0]);
    });
    let pair = Pair::new(silent, &[], &["--idle", "1s"]);
    let mut client = pair.connect();
    let start = Instant::now();
    assert!(is_reset(client.read(&mut [0])));
    assert!(start.elapsed() >= Duration::from_secs(1));
    wait_until("it is counted", || pair.statuses().iter().all(|s| s.streams.idle == 1));
}

#[test]
fn a_full_egress_says_so() {
    let silent = serve(|mut stream| {
        let _ = stream.read(&mut [0]);
    });
    let pair = Pair::new(silent, &["--streams-max", "2"], &[]);
    let held = [pair.connect(), pair.connect()];
    wait_until("both are open", || pair.statuses()[1].streams.open == 2);
    let mut third = pair.connect();
    assert!(is_reset(third.read(&mut [0])));
    assert_eq!(pair.statuses()[0].streams.refused["full"], 1);
    drop(held);
    wait_until("there is room again", || pair.statuses()[1].streams.open == 0);
    let mut fourth = pair.connect();
    fourth.write_all(b"x").unwrap();
    assert_eq!(fourth.read(&mut [0]).unwrap(), 0);
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let said = |arguments: &[&str]| {
        let output = dwell().args(["proxy"]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = said(&["ingress", "--egress", "hub.example", "--socks", "1080"]);
    assert!(code == Some(1) && text.contains("--psk") && text.contains("--insecure"), "{text}");
    let (code, text) = said(&["egress", "--allow", "db:5432"]);
    assert!(code == Some(1) && text.contains("dwell genpsk"), "{text}");
    let (code, text) = said(&["ingress", "--egress", "127.0.0.1"]);
    assert!(code == Some(1) && text.contains("--forward"), "{text}");
    let (code, text) = said(&["egress", "--listen", "127.0.0.1"]);
    assert!(code == Some(2) && text.contains("--allow"), "{text}");
    let (code, text) = said(&["ingress", "--egress", "127.0.0.1", "--forward", "5432:db:5432"]);
    assert!(code == Some(2) && text.contains("5432=db:5432"), "{text}");
    let taken = echo().to_string();
    let (code, text) = said(&["egress", "--listen", &taken, "--allow", "*:*", "--no-status"]);
    assert!(code == Some(1) && text.contains(&taken), "{text}");
}

#[test]
fn a_status_is_reported() {
    let pair = Pair::new(echo(), &[], &[]);
    let bytes = mixture(100_000, 1);
    assert_same(&exchange(pair.connect(), &bytes).unwrap(), &bytes);
    for name in ["ingress", "egress"] {
        let socket = pair.directory.path(&format!("{name}.sock"));
        let output = dwell().args(["status", "--socket"]).arg(&socket).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.starts_with(&format!("{name}: dwell ")) && text.contains("100.0 kB"),
            "{text}"
        );
        let output = dwell().args(["status", "--json", "--socket"]).arg(&socket).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["kind"], &json["tx"]["bytes"]), (&"proxy".into(), &100_000.into()));
    }
}

#[test]
fn an_egress_that_comes_back_is_found_again() {
    let target = echo();
    let mut pair = Pair::new(target, &[], &[]);
    assert_eq!(exchange(pair.connect(), b"one").unwrap(), b"one");
    pair.egress.signal(Signal::TERM);
    assert_eq!(pair.egress.wait(), 0);
    assert!(exchange(pair.connect(), b"lost").is_err());
    let mut command = dwell();
    command.args(["proxy", "egress", "--no-status", "--psk"]).arg(pair.directory.path("psk"));
    command.args(["--listen", &pair.egress_at.to_string(), "--allow", &target.to_string()]);
    pair.egress = crate::pair::Process(command.spawn().unwrap());
    wait_until("it is found", || exchange(pair.connect(), b"two").is_ok_and(|got| got == b"two"));
}

#[test]
fn certificates_let_in() {
    if !has("openssl") {
        skipped("openssl is not installed");
        return;
    }
    let directory = Directory::new();
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(&directory.0).args(arguments.split(' '));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        openssl(&format!("req -x509 {new} -keyout {ca}.key -out {ca}.pem -subj /CN={ca} -days 9"));
    }
    std::fs::write(directory.path("san"), "subjectAltName=DNS:egress.example,IP:127.0.0.1\n")
        .unwrap();
    for (name, ca) in [("egress", "ca"), ("ingress", "ca"), ("unknown_peer", "other")] {
        openssl(&format!("req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -out {name}.pem \
             -days 9 -extfile san"
        ));
    }
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let [ca, other] = ["ca.pem", "other.pem"].map(path);
    let identity = |name: &str| [path(&format!("{name}.pem")), path(&format!("{name}.key"))];
    let [cert, key] = identity("egress");
    let egress = ["--cert", &cert, "--cert-key", &key, "--ca", &ca];
    for (name, trusted, egress_name, gets_in) in [
        ("ingress", &ca, "egress.example", true),
        ("ingress", &ca, "else.example", false),
        ("ingress", &other, "egress.example", false),
        ("unknown_peer", &ca, "egress.example", false),
    ] {
        let [cert, key] = identity(name);
        let ingress =
            ["--cert", &cert, "--cert-key", &key, "--ca", trusted, "--egress-name", egress_name];
        let pair = Pair::in_directory(Directory::new(), echo(), &egress, &ingress);
        let got = exchange(pair.connect(), b"hello");
        assert_eq!(got.is_ok_and(|got| got == b"hello"), gets_in, "{name} {}", pair.log("ingress"));
        if !gets_in {
            assert!(pair.log("ingress").contains("no connection to the egress"));
        }
    }
}

#[test]
fn an_ingress_without_an_egress_says_why() {
    let nobody = free_port();
    let directory = Directory::new();
    let mut command = dwell();
    let listener = free_port();
    command.args(["proxy", "ingress", "--egress", &nobody.to_string(), "--no-status"]);
    command.args(["--forward", &format!("{listener}=db:1")]);
    let log = directory.path("log");
    let process = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let _process = crate::pair::Process(process);
    wait_until("it says it", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.contains(&format!("no connection to the egress {nobody}: Connection refused"))
    });
}
