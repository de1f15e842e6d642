//! What streams refer to of earlier ones on the same connection between the proxies.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use dwell_base::Rng;

use crate::load::connect_from;
use crate::pair::{Directory, Pair, assert_same, echo, exchange, free_port, patient, wait_until};
use crate::socks;

/// Digits of which only those that came before make less than half.
fn digits() -> Vec<u8> {
    let mut rng = Rng::from_seed(1);
    (0..10_000).map(|_| b"0123456789abcdef"[rng.below(16) as usize]).collect()
}

/// A pair with two connections between the proxies, of which a stream has the one that was used last.
fn pair(target: SocketAddr, egress: &[&str], ingress: &[&str]) -> Pair {
    let codec = ["--codec", "zstd:3"];
    let ingress = [&codec[..], &["--pool", "2"], ingress].concat();
    Pair::new(target, &[&codec[..], egress].concat(), &ingress)
}

/// Exchanges the digits, and returns what they take on the link on their way to the target. From there they may go as they are, as
/// the link is loopback.
fn spent(pair: &Pair, connect: impl FnOnce() -> io::Result<TcpStream>) -> u64 {
    let bytes = || pair.statuses()[0].tx.link_bytes;
    // With a connection that another stream has left, not with one that is made meanwhile.
    let is_ready = || pair.statuses()[0].connections.warm == 2;
    wait_until("it is ready", is_ready);
    let before = bytes();
    assert_same(&exchange(patient(connect().unwrap()), &digits()).unwrap(), &digits());
    wait_until("it is over", is_ready);
    bytes() - before
}

/// Those that refer to none take more than this, and those that refer to one of the same digits less.
const ALONE: u64 = 4_000;

/// Repeats it until it takes next to nothing: it takes one stream to have something left, and may take some to find out that it
/// pays to refer to that.
#[track_caller]
fn becomes_short(mut spent: impl FnMut() -> u64) {
    assert!(spent() > ALONE, "there is nothing before it");
    assert!((0..50).any(|_| spent() < ALONE));
}

/// One of a few is short: now and then a message goes as it is, to see if that is as soon.
#[track_caller]
fn is_short(mut spent: impl FnMut() -> u64) {
    let all: Vec<_> = (0..30).map(|_| spent()).take_while(|&spent| spent > ALONE).collect();
    assert!(all.len() < 30, "{all:?}");
}

#[test]
fn a_stream_refers_to_an_earlier_one_of_the_same_client() {
    let pair = pair(echo(), &[], &[]);
    becomes_short(|| spent(&pair, || Ok(pair.connect())));
    let [ingress, egress] = pair.statuses();
    assert_eq!(ingress.streams.opened, ingress.streams.finished);
    assert_eq!(egress.streams.opened, egress.streams.finished);
    assert_eq!(ingress.connections.reused, ingress.streams.opened);
}

#[test]
fn either_end_may_have_each_stream_stand_alone() {
    let alone = &["--refer-to", "stream"][..];
    for [egress, ingress] in [[alone, &[]], [&[], alone]] {
        let pair = pair(echo(), egress, ingress);
        for _ in 0..20 {
            let spent = spent(&pair, || Ok(pair.connect()));
            assert!(spent > ALONE, "{spent}");
        }
    }
}

#[test]
fn clients_have_nothing_in_common_unless_that_is_wanted() {
    for (arguments, is_common) in [(&[][..], false), (&["--refer-to", "all"], true)] {
        let pair = pair(echo(), &[], arguments);
        let from = |source| spent(&pair, || connect_from(source, pair.listener));
        becomes_short(|| from(1));
        // It has the other connection, if it may not have that.
        if is_common {
            is_short(|| from(2));
        } else {
            let other = from(2);
            assert!(other > ALONE, "{other}");
        }
        is_short(|| from(1));
    }
}

#[test]
fn targets_have_nothing_in_common() {
    let (one, other, listener) = (echo(), echo(), free_port());
    let forward = format!("{listener}={other}");
    let allow = [one, other].map(|target| target.to_string());
    let egress = ["--allow", &allow[0], "--allow", &allow[1]];
    let pair = pair(one, &egress, &["--forward", &forward]);
    becomes_short(|| spent(&pair, || Ok(pair.connect())));
    let other = spent(&pair, || TcpStream::connect(listener));
    assert!(other > ALONE, "{other}");
    // It is the same target by whatever listener.
    is_short(|| spent(&pair, || socks::connect(pair.socks, &allow[0])));
}

#[test]
fn users_of_socks_have_nothing_in_common() {
    let target = echo();
    let directory = Directory::new();
    let file = directory.path("users");
    std::fs::write(&file, "ann:secret\nbob:secret\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    let pair = pair(target, &[], &["--socks-users", file.to_str().unwrap()]);
    let by = |name: &[u8; 3]| {
        spent(&pair, || {
            let mut stream = patient(TcpStream::connect(pair.socks)?);
            stream.write_all(&[5, 1, 2])?;
            stream.read_exact(&mut [0; 2])?;
            stream.write_all(&[&b"\x01\x03"[..], name, b"\x06secret"].concat())?;
            stream.read_exact(&mut [0; 2])?;
            socks::request(stream, &target.to_string())
        })
    };
    becomes_short(|| by(b"ann"));
    let bob = by(b"bob");
    assert!(bob > ALONE, "{bob}");
}
