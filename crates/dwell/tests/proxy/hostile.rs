//! Clients that write to the egress' port without being an ingress.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use dwell_lab::corpus;
use dwell_proxy::hello::{Hello, Purpose};
use dwell_proxy::message::{Message, Opening};

use crate::pair::{Directory, Pair, dwell, echo, exchange, patient, wait_until};

/// Returns what comes back before the egress closes the connection.
fn answer(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = patient(TcpStream::connect(to).unwrap());
    // It may close before all is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    got
}

fn hello() -> Vec<u8> {
    Hello::new(Purpose::Streams, 1 << 16, "").encode()
}

fn open(target: SocketAddr) -> Vec<u8> {
    Message::Open(target.to_string().parse().unwrap()).encode()
}

#[test]
fn without_the_key_nobody_gets_anywhere() {
    let target = echo();
    let pair = Pair::new(target, &[], &[]);
    let before = pair.egress.resident_bytes();
    let noise = corpus::incompressible(1 << 20, 1);
    let tls = [&[0x16, 3, 1, 0xff, 0xff][..], &noise].concat();
    let plain = [hello(), open(target), b"dws\x01".to_vec()].concat();
    for bytes in [&noise[..], b"GET / HTTP/1.1\r\n\r\n", &tls, &plain, b"\0"] {
        for _ in 0..20 {
            let got = answer(pair.egress_at, bytes);
            // At most an alert of TLS.
            assert!(got.len() < 32, "{got:?}");
        }
    }
    wait_until("all are counted", || pair.statuses()[1].connections.unknown_peers >= 80);
    assert!(pair.log("egress").contains("is rejected"));
    assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
    let after = pair.egress.resident_bytes();
    assert!(after < before + (32 << 20), "from {before} to {after} bytes");
    assert_eq!(pair.statuses()[1].streams.opened, 1);
}

/// The same where nothing protects the connection: the parsers are all that there is.
#[test]
fn without_protection_the_parsers_hold() {
    let target = echo();
    let pair = Pair::in_directory(Directory::new(), target, &[], &[]);
    let before = pair.egress.resident_bytes();
    let noise = corpus::incompressible(1 << 20, 1);
    let start = [hello(), open(target)].concat();
    // A preamble for blocks of 64 KiB, and a block that claims much, and lies about its content.
    let preamble = b"dws\x01\x01\x10\x00\x06";
    let lie = b"\x02\xff\xff\x00\x10\0\0\0\0aaaaaaaaaaaaaaaaaaaaaaaa";
    for bytes in [
        noise.clone(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [b"dwPX".to_vec(), vec![0xff; 100]].concat(),
        [hello(), vec![0; 1000]].concat(),
        [hello(), vec![1, 0xff, 0xff]].concat(),
        [start.clone(), noise.clone()].concat(),
        [start.clone(), preamble.to_vec(), lie.to_vec()].concat(),
        [start.clone(), preamble.to_vec(), noise.clone()].concat(),
        [start, preamble.to_vec()].concat(),
    ] {
        for _ in 0..20 {
            answer(pair.egress_at, &bytes);
        }
    }
    let log = pair.log("egress");
    assert!(log.contains("is not a dwell proxy"), "{log}");
    let counted = || {
        let status = &pair.statuses()[1];
        (status.streams.open, status.streams.damaged, status.streams.cut)
    };
    wait_until("all are over", || counted() == (0, 60, 20));
    let after = pair.egress.resident_bytes();
    assert!(after < before + (32 << 20), "from {before} to {after} bytes");
    assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
}

/// A stream that goes on needs one before it that was to be kept, and came to its end.
#[test]
fn what_was_not_kept_is_not_gone_on_with() {
    let target = echo();
    // The ingress has no connections of its own there.
    let pair = Pair::in_directory(Directory::new(), target, &[], &["--pool", "0"]);
    let hello = Hello::new(Purpose::Streams, 1 << 16, "").with_keeping().encode();
    let opening = |goes_on, is_kept| {
        let target = target.to_string().parse().unwrap();
        let opening = Opening { goes_on, is_kept, is_held: true, ..Opening::new(target) };
        Message::Opening(opening).encode()
    };
    // "dwell compresses packets ", raw, to be kept.
    let first = [
        &b"dws\x02\x01\x0c\0\x02\x40\0\x18\x50\x9b\xea\x24dwell compresses packets "[..],
        b"\xf0\0\0\0\0\0\0\0\x19\x50\x9b\xea\x24",
    ]
    .concat();
    let next = [
        &b"dws\x05\x01\x0c\0\x02\x21\0\x18\0\x09\x50\x9b\xea\x24\x0f\x19\0\x01\x50kets "[..],
        b"\xf0\0\0\0\0\0\0\0\x19\x50\x9b\xea\x24",
    ]
    .concat();
    let finished = || pair.statuses()[1].streams.finished;
    let cases: [(&[&[u8]], u64); 5] = [
        (&[&opening(false, true), &first, &opening(true, false), &next], 2),
        // Nothing before it; nothing that was to be kept; what was kept for one is gone after another.
        (&[&opening(true, true), &next], 0),
        (&[&opening(false, false), &first, &opening(true, false), &next], 1),
        (&[&opening(false, true), &first, &opening(false, true), &next], 1),
        (&[&opening(false, true), &first, &opening(true, false), &next, &opening(true, false)], 2),
    ];
    for (parts, expected) in cases {
        let before = finished();
        answer(pair.egress_at, &[&hello[..], &parts.concat()].concat());
        wait_until("it is closed", || pair.statuses()[1].connections.open == 0);
        assert_eq!(finished() - before, expected, "{parts:?}");
    }
    assert_eq!(pair.statuses()[1].streams.damaged, 1);
}

#[test]
fn who_says_nothing_is_sent_away() {
    let pair = Pair::new(echo(), &["--handshake-time", "1s"], &[]);
    let mut stream = patient(TcpStream::connect(pair.egress_at).unwrap());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait_until("it is counted", || pair.statuses()[1].connections.unknown_peers == 1);
    assert!(pair.log("egress").contains("did not answer in time"));
}

#[test]
fn another_version_is_reported_why() {
    let pair = Pair::in_directory(Directory::new(), echo(), &[], &[]);
    let later = Hello { versions: (9, 9), ..Hello::new(Purpose::Streams, 1 << 16, "") };
    let (hello, _) = Hello::decode(&answer(pair.egress_at, &later.encode())).unwrap().unwrap();
    assert_eq!(hello.versions, (0, 0));
    assert!(hello.text.contains("use the same dwell"), "{}", hello.text);
}

#[test]
fn another_key_is_named_at_both_ends() {
    let directory = Directory::new();
    let keys = ["one", "other"].map(|name| directory.path(name));
    for key in &keys {
        assert!(dwell().args(["genpsk", "--out"]).arg(key).status().unwrap().success());
    }
    let [one, other] = keys.each_ref().map(|key| key.to_str().unwrap());
    let pair = Pair::in_directory(Directory::new(), echo(), &["--psk", one], &["--psk", other]);
    assert!(exchange(pair.connect(), b"hello").is_err());
    for name in ["ingress", "egress"] {
        wait_until("it is said", || pair.log(name).contains("the keys of the two ends differ"));
        let log = pair.log(name);
        assert!(log.contains("--psk") && !log.contains("certificate"), "{log}");
    }
    // What can't succeed is not tried again; it is counted at both ends.
    let [ingress, egress] = pair.statuses();
    assert_eq!(ingress.connections.retried, 0);
    assert_eq!(ingress.streams.refused["wrong_key"], 1, "{ingress:#?}");
    assert_eq!(ingress.streams.refused["no_connection"], 0);
    // The stream's, and those for streams to come.
    assert!(ingress.connections.wrong_keys >= 1 && egress.connections.wrong_keys >= 1);
    assert_eq!(egress.streams.refused["wrong_key"], 0, "it heard of no stream");
}

#[test]
fn who_has_no_key_where_one_is_wanted_is_named() {
    let directory = Directory::new();
    let key = directory.path("psk");
    assert!(dwell().args(["genpsk", "--out"]).arg(&key).status().unwrap().success());
    let key = key.to_str().unwrap();
    let pair = Pair::in_directory(Directory::new(), echo(), &["--psk", key], &[]);
    wait_until("it is said", || pair.log("egress").contains("does not speak TLS"));
}

#[test]
fn proxies_say_where_they_listen() {
    let target = echo();
    let pair = Pair::new(target, &[], &[]);
    let (ingress, egress) = (pair.log("ingress"), pair.log("egress"));
    let (listener, socks, at) = (pair.listener, pair.socks, pair.egress_at);
    assert!(ingress.contains(&format!("listening at {listener} to {target}\n")), "{ingress}");
    assert!(ingress.contains(&format!("listening at {socks} SOCKS5\n")), "{ingress}");
    assert_eq!(egress, format!("listening at {at}\n"));
}
