//! How streams are opened: at once, for whom, for datagrams, and after settings were read again; and what is said of
//! them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use dwell_proxy::datagrams;
use dwell_proxy::proxy_header;
use dwell_proxy::target::Target;
use rustix::process::Signal;

use crate::pair::{
    Directory, PATIENCE, Pair, Process, dwell, echo, exchange, free_port, patient, serve,
    wait_until,
};

/// What a program says at once goes with the request for its stream: it arrives before the egress' answer could.
#[test]
fn a_stream_on_a_ready_connection_waits_for_no_answer() {
    let (said, hears) = channel();
    let said = Mutex::new(said);
    let target = serve(move |mut stream| {
        let mut got = [0; 5];
        if stream.read_exact(&mut got).is_ok() {
            let _ = said.lock().unwrap().send(got);
            let _ = stream.write_all(b"answer");
        }
    });
    let pair = Pair::new(target, &[], &["--pool", "0"]);
    // Between the two: nothing comes back while `held` is set.
    let (held, front) = (Arc::new((Mutex::new(false), Condvar::new())), free_port());
    let (hold, behind) = (Arc::clone(&held), pair.egress_at);
    let listener = TcpListener::bind(front).unwrap();
    thread::spawn(move || {
        for near in listener.incoming() {
            let (mut near, mut far) = (near.unwrap(), TcpStream::connect(behind).unwrap());
            let (mut near_too, mut far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut near, &mut far));
            let hold = Arc::clone(&hold);
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(len @ 1..) = far_too.read(&mut piece) {
                    let mut is_held = hold.0.lock().unwrap();
                    while *is_held {
                        is_held = hold.1.wait(is_held).unwrap();
                    }
                    drop(is_held);
                    if near_too.write_all(&piece[..len]).is_err() {
                        break;
                    }
                }
                let _ = near_too.shutdown(Shutdown::Both);
            });
        }
    });
    let (forward, socket) = (free_port(), pair.directory.path("eager.sock"));
    let mut command = dwell();
    command.args(["proxy", "ingress", "--pool", "1", "--egress", &front.to_string()]);
    command.args(["--forward", &format!("{forward}={target}"), "--psk"]);
    command.arg(pair.directory.path("psk")).arg("--status").arg(&socket);
    let _ingress = Process(command.spawn().unwrap());
    wait_until("a connection is ready", || {
        let output = dwell().args(["status", "--json", "--socket"]).arg(&socket).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["connections"]["warm"] == 1
    });
    *held.0.lock().unwrap() = true;
    let mut client = patient(TcpStream::connect(forward).unwrap());
    client.write_all(b"hello").unwrap();
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), *b"hello");
    *held.0.lock().unwrap() = false;
    held.1.notify_all();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
}

/// The program does not speak first, or says a lot, or goes to a target that nobody may reach.
#[test]
fn streams_that_are_opened_at_once_are_like_others() {
    let first = serve(|mut stream| {
        let _ = stream.write_all(b"welcome");
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let pair = Pair::new(first, &[], &[]);
    let mut waits = pair.connect();
    let mut got = [0; 7];
    waits.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"welcome");
    let long = crate::pair::mixture(300_000, 1);
    let got = exchange(pair.connect(), &long).unwrap();
    crate::pair::assert_same(&got[7..], &long);
    drop(waits);
    let refused = Pair::new(first, &["--allow", "127.0.0.1:1"], &[]);
    for _ in 0..3 {
        let error = exchange(refused.connect(), b"hello").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    assert!(refused.log("ingress").contains("is not among the targets"));
    let [_, egress] = refused.statuses();
    assert_eq!(egress.streams.refused["not_allowed"], 3);
    assert_eq!(egress.connections.unknown_peers, 0, "{egress:#?}");
}

#[test]
fn the_target_learns_whom_a_connection_is_for() {
    let (said, hears) = channel();
    let said = Mutex::new(said);
    let target = serve(move |mut stream| {
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        let _ = said.lock().unwrap().send(got);
    });
    let to = target.to_string();
    let egress = ["--send-proxy", &to, "--log-streams=json"];
    let pair = Pair::new(target, &egress, &["--accept-proxy", "--log-streams"]);
    let ends = ("192.0.2.9:4711".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    let header = proxy_header::encode(ends);
    for piece in [header.len(), 3] {
        let mut client = pair.connect();
        for part in [&header[..piece], &header[piece..], b"hello"] {
            client.write_all(part).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let got = hears.recv_timeout(PATIENCE).unwrap();
        let (known, used) = proxy_header::decode(&got).unwrap().unwrap();
        assert_eq!((known, &got[used..]), (Some(ends), &b"hello"[..]));
    }
    // Who says nothing of it is turned away.
    let mut client = pair.connect();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(client.read(&mut [0; 10]), Ok(0) | Err(_)));
    wait_until("it is said why", || {
        pair.log("ingress").contains("begin with a header of the PROXY")
    });

    // What each stream did is on the standard output of those that were asked.
    wait_until("the streams are noted", || {
        ["ingress", "egress"].iter().all(|name| pair.output(name).lines().count() == 2)
    });
    let line = pair.output("ingress");
    assert!(line.starts_with(&format!("192.0.2.9:4711 to {target}: finished after ")), "{line}");
    assert!(line.contains(" 5 bytes sent as "), "{line}");
    let line: serde_json::Value =
        serde_json::from_str(pair.output("egress").lines().next().unwrap()).unwrap();
    assert_eq!((&line["client"], &line["end"]), (&"192.0.2.9:4711".into(), &"finished".into()));
    assert_eq!((&line["received_bytes"], &line["target"]), (&5.into(), &to.into()));
}

/// Asks for an association, and returns the connection and the address for datagrams.
pub(crate) fn associate(socks: SocketAddr) -> (TcpStream, SocketAddr) {
    let mut control = patient(TcpStream::connect(socks).unwrap());
    control.write_all(&[5, 1, 0]).unwrap();
    control.read_exact(&mut [0; 2]).unwrap();
    control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut reply = [0; 10];
    control.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [5, 0, 0, 1]);
    let (address, _) = Target::decode(&reply[3..]).unwrap();
    (control, address.to_string().parse().unwrap())
}

#[test]
fn a_socks_client_exchanges_datagrams() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = vec![0; 65_536];
        while let Ok((len, from)) = server.recv_from(&mut datagram) {
            let _ = server.send_to(&datagram[..len], from);
        }
    });
    let secret = UdpSocket::bind("127.0.0.1:0").unwrap();
    secret.set_nonblocking(true).unwrap();
    let by_name = format!("localhost:{}", at.port());
    let allow = ["--allow", &at.to_string(), "--allow", &by_name];
    let pair = Pair::new(at, &allow, &["--log-streams"]);
    let (control, relay) = associate(pair.socks);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    // Nobody else may use it: the first one that sends is the client.
    let targets: [Target; 2] = [at.to_string().parse().unwrap(), by_name.parse().unwrap()];
    for (number, target) in targets.iter().cycle().take(20).enumerate() {
        let payload = vec![number as u8; 1 + number * 70];
        client.send_to(&datagrams::for_client(target, &payload), relay).unwrap();
        let mut got = vec![0; 65_536];
        let (len, from) = client.recv_from(&mut got).unwrap();
        assert_eq!(from, relay);
        let (sender, answer) = datagrams::from_client(&got[..len]).unwrap();
        assert_eq!((sender.to_string(), answer), (at.to_string(), &payload[..]));
    }
    let forbidden: Target = secret.local_addr().unwrap().to_string().parse().unwrap();
    client.send_to(&datagrams::for_client(&forbidden, b"psst"), relay).unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.send_to(&datagrams::for_client(&targets[0], b"me too"), relay).unwrap();
    // What comes after them has come, and they have not.
    client.send_to(&datagrams::for_client(&targets[0], b"last"), relay).unwrap();
    let mut got = [0; 100];
    let (len, _) = client.recv_from(&mut got).unwrap();
    assert_eq!(datagrams::from_client(&got[..len]).unwrap().1, b"last");
    assert!(secret.recv(&mut [0; 10]).is_err());
    // It ends with its connection.
    drop(control);
    wait_until("it is over", || pair.statuses().iter().all(|s| s.streams.finished == 1));
    assert!(pair.output("ingress").contains(" to datagrams: finished"));
}

#[test]
fn settings_are_read_again() {
    let target = echo();
    let directory = Directory::new();
    let allow = directory.path("allow");
    fs::write(&allow, "127.0.0.1:1\n").unwrap();
    // As root, it becomes somebody who may not read what is in the directory.
    let pair = Pair::new(
        target,
        &["--allow", "127.0.0.1:2", "--allow-file", allow.to_str().unwrap(), "--user", "none"],
        &["--user", "none"],
    );
    assert!(exchange(pair.connect(), b"hello").is_err());
    fs::write(&allow, format!("{target} # now\n")).unwrap();
    pair.egress.signal(Signal::HUP);
    wait_until("it says so", || pair.log("egress").contains("were read again"));
    let mut open = pair.connect();
    open.write_all(b"x").unwrap();
    open.read_exact(&mut [0]).unwrap();
    // A mistake changes nothing, and what is open goes on.
    fs::write(&allow, "127.0.0.1").unwrap();
    pair.egress.signal(Signal::HUP);
    wait_until("it says so", || pair.log("egress").contains("stay as they are"));
    assert!(pair.log("egress").contains("line 1: \"127.0.0.1\" is no target to allow"));
    assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
    open.write_all(b"y").unwrap();
    open.read_exact(&mut [0]).unwrap();

    // Another key at one end: what is open goes on, and what comes learns why it can't.
    let key = pair.directory.path("psk");
    let other = pair.directory.path("other");
    assert!(dwell().args(["genpsk", "--out"]).arg(&other).status().unwrap().success());
    fs::rename(&other, &key).unwrap();
    pair.ingress.signal(Signal::HUP);
    wait_until("it says so", || pair.log("ingress").contains("were read again"));
    assert!(exchange(pair.connect(), b"hello").is_err());
    wait_until("it says why", || pair.log("ingress").contains("the keys of the two ends differ"));
    open.write_all(b"z").unwrap();
    open.read_exact(&mut [0]).unwrap();
    fs::write(&allow, target.to_string()).unwrap();
    pair.egress.signal(Signal::HUP);
    wait_until("both know it", || pair.log("egress").matches("were read again").count() == 2);
    assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
}
