//! Many at once: honest clients, and those that want to keep them out.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dwell_testkit::skips::skipped;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::pair::{Directory, Pair, Process, dwell, echo, exchange, free_port, serve, wait_until};

/// The descriptors of this process that its tests may open between them.
#[must_use]
pub(crate) struct Descriptors(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

/// Raises this process' limit of descriptors; nothing if so many are not allowed. Tests run beside
/// each other in one process, so those that need many take turns.
#[track_caller]
pub(crate) fn may_open(descriptors: u64) -> Option<Descriptors> {
    static TURN: Mutex<()> = Mutex::new(());
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    if hard.is_some_and(|hard| hard < descriptors) {
        skipped(format_args!("the hard limit of descriptors is below {descriptors}"));
        return None;
    }
    // A test that failed has let go of its descriptors, too.
    Some(Descriptors(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A connection from one of many addresses of loopback.
pub(crate) fn connect_from(source: usize, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let host = Ipv4Addr::new(127, 1, (source / 250) as u8, (source % 250 + 1) as u8);
    socket.bind(&SocketAddr::from((host, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Connects to the egress again and again, from so many addresses (none: from that of the ingress),
/// says `word` and nothing else, and keeps the latest 2,000 connections, while `act` is done.
fn beset(egress: SocketAddr, sources: usize, word: &[u8], act: impl FnOnce()) {
    const KEPT: usize = 2000;
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = VecDeque::new();
            for number in 0.. {
                if over.load(Relaxed) {
                    return;
                }
                let connected = match sources {
                    0 => TcpStream::connect(egress),
                    _ => connect_from(number % sources, egress),
                };
                if let Ok(mut stream) = connected {
                    // It may have been closed already.
                    let _ = stream.write_all(word);
                    kept.push_back(stream);
                    made.fetch_add(1, Relaxed);
                }
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
        });
        let _over = Over(&over);
        wait_until("all places are taken", || made.load(Relaxed) > 1000);
        act();
    });
}

/// Ends it, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn who_shows_no_key_locks_nobody_out() {
    let Some(_turn) = may_open(8192) else { return };
    // The beginning of a record of TLS.
    let half = b"\x16\x03\x01\x02\x00\x01";
    for (sources, word) in [(0, &b""[..]), (1, b""), (1000, b""), (1, half), (1000, half)] {
        let pair = Pair::new(echo(), &[], &["--pool", "0"]);
        let before = pair.egress.resident_bytes();
        beset(pair.egress_at, sources, word, || {
            // Who attacks from the ingress' own address can't be distinguished from it, and holds it up.
            let streams: u64 = if sources == 0 { 5 } else { 20 };
            for _ in 0..streams {
                assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
            }
            let [ingress, egress] = pair.statuses();
            assert_eq!(ingress.streams.finished, streams);
            assert!(egress.connections.handshakes <= 512, "{egress:#?}");
        });
        let [_, egress] = pair.statuses();
        assert!(egress.connections.evicted > 100, "{egress:#?}");
        let after = pair.egress.resident_bytes();
        assert!(after < before + (48 << 20), "from {before} to {after} bytes");
    }
}

/// All connect before any has been served, say a word, and want it back.
fn burst(connections: usize) {
    const THREADS: usize = 50;
    const TIME_MAX: Duration = Duration::from_secs(200);
    let queue = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    if queue.trim().parse().unwrap_or(0) < 4096 {
        skipped("the kernel lets fewer than 4,096 clients wait (net.core.somaxconn)");
        return;
    }
    // Both ends of a stream are here.
    let Some(_turn) = may_open(2 * connections as u64 + 4096) else { return };
    // On a busy machine the last ones wait for longer than other tests do.
    let target = serve(|stream| {
        stream.set_read_timeout(Some(TIME_MAX)).unwrap();
        let _ = io::copy(&mut &stream, &mut &stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let pair = Pair::new(target, &[], &[]);
    let some = |share: usize| {
        let mut streams: Vec<_> = (0..share).map(|_| pair.connect()).collect();
        for stream in &mut streams {
            stream.set_read_timeout(Some(TIME_MAX)).unwrap();
            stream.write_all(b"hello").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let served = streams.into_iter().filter_map(|mut stream| {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).is_ok_and(|_| got == b"hello").then_some(())
        });
        served.count()
    };
    let served: usize = thread::scope(|scope| {
        let all: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| some(connections / THREADS))).collect();
        all.into_iter().map(|some| some.join().unwrap()).sum()
    });
    assert_eq!(served, connections, "{:#?}", pair.statuses());
    wait_until("all are over", || {
        pair.statuses()
            .iter()
            .all(|s| s.streams.open == 0 && s.streams.finished == connections as u64)
    });
}

#[test]
fn a_thousand_at_once_are_served() {
    burst(1000);
}

#[test]
fn five_thousand_at_once_are_served() {
    burst(5000);
}

/// An egress that cuts off the first attempts, as one does that is overloaded or starts again.
#[test]
fn an_egress_that_cuts_off_is_asked_again() {
    let pair = Pair::new(echo(), &[], &["--pool", "0"]);
    let (behind, seen) = (pair.egress_at, AtomicUsize::new(0));
    let front = serve(move |stream| {
        if seen.fetch_add(1, Relaxed) < 3 {
            return;
        }
        let onward = TcpStream::connect(behind).unwrap();
        let (mut up, mut down) = (stream.try_clone().unwrap(), onward.try_clone().unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut up, &mut down);
            let _ = down.shutdown(Shutdown::Write);
        });
        let (mut up, mut down) = (onward, stream);
        let _ = io::copy(&mut up, &mut down);
        let _ = down.shutdown(Shutdown::Write);
    });
    let listener = free_port();
    let mut command = dwell();
    command.args(["proxy", "ingress", "--pool", "0", "--egress", &front.to_string(), "--psk"]);
    command.arg(pair.directory.path("psk"));
    // The egress allows this target only.
    let status = pair.statuses();
    let target = status[0].listens[0].split(" to ").nth(1).unwrap().to_owned();
    command.args(["--forward", &format!("{listener}={target}")]);
    let socket = pair.directory.path("again.sock");
    command.arg("--status").arg(&socket);
    let _ingress = Process(command.spawn().unwrap());
    wait_until("it listens", || socket.exists());
    let stream = crate::pair::patient(TcpStream::connect(listener).unwrap());
    assert_eq!(exchange(stream, b"hello").unwrap(), b"hello");
    let output = dwell().args(["status", "--json", "--socket"]).arg(&socket).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["connections"]["retried"], 3, "{json:#}");
    assert_eq!(json["connections"]["failed"], 0, "{json:#}");
}

/// A program whose connection is reset while it waits for its egress is not waited for.
#[test]
fn who_goes_away_before_the_stream_is_open_leaves_its_room() {
    // It never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (directory, listener) = (Directory::new(), free_port());
    let mut command = dwell();
    let egress = silent.local_addr().unwrap().to_string();
    command.args(["proxy", "ingress", "--pool", "0", "--streams-max", "1", "--egress", &egress]);
    command.args(["--forward", &format!("{listener}=db:1"), "--handshake-time", "1h", "--status"]);
    let socket = directory.path("status.sock");
    let _ingress = Process(command.arg(&socket).spawn().unwrap());
    wait_until("it listens", || socket.exists());
    let (reached, reaches) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let carriers = silent.incoming().inspect(|_| {
            let _ = reached.send(());
        });
        // They are kept, so that nothing ends by them.
        drop(carriers.take(5).collect::<Vec<_>>());
    });
    for _ in 0..5 {
        let client = TcpStream::connect(listener).unwrap();
        // There is room for one stream only: it reaches the egress when the one before has gone.
        reaches.recv_timeout(crate::pair::PATIENCE).unwrap();
        crate::pair::reset(client);
    }
}

#[test]
fn descriptors_bound_streams_and_it_is_said() {
    let Some(_turn) = may_open(20_000) else { return };
    for (limits, streams, said) in [
        // The soft limit that is usual is raised.
        ("ulimit -Hn 20000 && ulimit -Sn 1024", 9200, None),
        ("ulimit -n 1024", 352, Some("at most 352 streams at once: this process may have 1024")),
    ] {
        let directory = Directory::new();
        let (socket, log) = (directory.path("status.sock"), directory.path("log"));
        let listen = free_port().to_string();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("{limits} && exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_dwell"),
        ]);
        command.args(["proxy", "egress", "--allow", "*:*", "--listen", &listen, "--status"]);
        command.arg(&socket).stderr(fs::File::create(&log).unwrap());
        let _egress = Process(command.spawn().unwrap());
        wait_until("it listens", || socket.exists());
        let output = dwell().args(["status", "--json", "--socket"]).arg(&socket).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let log = fs::read_to_string(&log).unwrap();
        assert_eq!(json["streams"]["max"], streams, "{log}");
        assert_eq!(log.contains("file descriptors"), said.is_some(), "{log}");
        assert!(said.is_none_or(|said| log.contains(said)), "{log}");
    }
}

/// Streams to a target that does not read hold their room only as long as nobody else wants it.
#[test]
fn who_does_not_read_makes_room() {
    const STREAMS: u64 = 4;
    // The kernel takes connections, and some of what comes for them.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = echo();
    let allow = ["--allow", "127.0.0.1:*", "--streams-max", "4", "--stall-time", "1s"];
    let pair = Pair::new(dead.local_addr().unwrap(), &allow, &[]);
    let hoard: Vec<_> = (0..STREAMS)
        .map(|_| {
            let stream = pair.connect();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let zeros = vec![0; 1 << 20];
    let fill = |hoard: &[TcpStream]| {
        for mut stream in hoard {
            let _ = stream.write(&zeros);
        }
    };
    let mut before = 0;
    wait_until("nothing moves any more", || {
        fill(&hoard);
        thread::sleep(Duration::from_millis(300));
        let (last, [_, egress]) = (before, pair.statuses());
        before = egress.rx.bytes;
        egress.streams.open == STREAMS && before == last && before > 1 << 20
    });
    // As long as nobody wants their room they stay.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(pair.statuses()[1].streams.open, STREAMS);
    let mut negotiated = TcpStream::connect(pair.socks).unwrap();
    negotiated.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    negotiated.read_exact(&mut answer).unwrap();
    let SocketAddr::V4(alive) = alive else { panic!("it is IPv4") };
    let mut request = vec![5, 1, 0, 1];
    request.extend(alive.ip().octets());
    request.extend(alive.port().to_be_bytes());
    negotiated.write_all(&request).unwrap();
    let mut reply = [0; 10];
    negotiated.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 0, "{}", pair.log("egress"));
    let stream = crate::pair::patient(negotiated);
    assert_eq!(exchange(stream, b"hello").unwrap(), b"hello");
    let [ingress, egress] = pair.statuses();
    assert_eq!((egress.streams.stalled, egress.streams.refused["full"]), (1, 0), "{egress:#?}");
    // Why it ended may not get through: its connection is full.
    assert_eq!(ingress.streams.idle + ingress.streams.cut, 1, "{ingress:#?}");
    assert!(pair.log("egress").contains("its program has not read for 1s"));
}

/// More streams than there is room for go to a target that does not read: another target is served at once, and nobody is reset.
#[test]
fn a_target_that_does_not_read_holds_up_its_own_streams_only() {
    const STREAMS: u64 = 40;
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(alive) = echo() else { panic!("it is IPv4") };
    let small = ["--memory-max", "32MiB"];
    let allow = ["--allow", "127.0.0.1:*", "--memory-max", "32MiB"];
    let pair = Pair::new(dead.local_addr().unwrap(), &allow, &small);
    let hoard: Vec<_> = (0..STREAMS).map(|_| pair.connect()).collect();
    hoard.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let zeros = vec![0; 1 << 20];
    let mut before = 0;
    wait_until("nothing moves any more", || {
        for mut stream in &hoard {
            let _ = stream.write(&zeros);
        }
        thread::sleep(Duration::from_millis(300));
        let (last, [_, egress]) = (before, pair.statuses());
        before = egress.rx.bytes;
        egress.streams.open == STREAMS && before == last && before > 1 << 20
    });
    let mut negotiated = TcpStream::connect(pair.socks).unwrap();
    negotiated.write_all(&[5, 1, 0]).unwrap();
    negotiated.read_exact(&mut [0; 2]).unwrap();
    let mut request = vec![5, 1, 0, 1];
    request.extend(alive.ip().octets());
    request.extend(alive.port().to_be_bytes());
    negotiated.write_all(&request).unwrap();
    let mut reply = [0; 10];
    negotiated.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 0, "{}", pair.log("egress"));
    let stream = crate::pair::patient(negotiated);
    assert_eq!(exchange(stream, b"hello").unwrap(), b"hello");
    for end in pair.statuses() {
        assert_eq!((end.streams.stalled, end.streams.cut), (0, 0), "{end:#?}");
    }
}

/// Hundreds of streams end at once: each of them is passed on, to the last one.
#[test]
fn ends_that_come_at_once_all_arrive() {
    const STREAMS: usize = 400;
    let pair = Pair::new(echo(), &[], &[]);
    let mut streams: Vec<_> = (0..STREAMS).map(|_| pair.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    // One half says its end, the other one resets.
    let resets = streams.split_off(STREAMS / 2);
    for stream in &streams {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    resets.into_iter().for_each(crate::pair::reset);
    for mut stream in streams {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let half = STREAMS as u64 / 2;
    wait_until("all are over", || {
        let counts =
            |s: &dwell_report::ProxyStatus| (s.streams.open, s.streams.finished, s.streams.reset);
        pair.statuses().iter().all(|status| counts(status) == (0, half, half))
    });
}

fn limit_descriptors(process: &Process, most: u64) {
    let pid = Some(Pid::from_child(&process.0));
    let hard = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(most), maximum: hard }).unwrap();
}

/// Out of descriptors clients wait, and nothing is done in vain.
#[test]
fn out_of_descriptors_clients_wait() {
    // Limits of another user's process may not be changed.
    let as_it_is = ["--user", "none"];
    let pair = Pair::new(echo(), &as_it_is, &as_it_is);
    assert_eq!(exchange(pair.connect(), b"before").unwrap(), b"before");
    for (name, process) in [("ingress", &pair.ingress), ("egress", &pair.egress)] {
        // Fewer than it has.
        limit_descriptors(process, 3);
        let mut stream = match name {
            "ingress" => pair.connect(),
            _ => TcpStream::connect(pair.egress_at).unwrap(),
        };
        wait_until("it says so", || pair.log(name).contains("until one ends"));
        let ticks = process.cpu_ticks();
        thread::sleep(Duration::from_secs(2));
        assert!(process.cpu_ticks() - ticks <= 10, "it spins");
        limit_descriptors(process, 1024);
        if name == "ingress" {
            assert_eq!(exchange(stream, b"after").unwrap(), b"after");
        } else {
            // Accepted, and rejected when it says nothing for too long.
            stream.set_read_timeout(Some(crate::pair::PATIENCE)).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
        let log = pair.log(name);
        assert_eq!(log.matches("until one ends").count(), 1, "{log}");
    }
    assert!(pair.statuses().iter().all(|status| status.connections.no_descriptors > 0));
    assert_eq!(exchange(pair.connect(), b"after").unwrap(), b"after");
}
