//! SOCKS5 clients.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::pair::{Pair, echo, exchange, free_port, patient};

/// A connection by SOCKS to `HOST:PORT`; an error has the code of the reply in it.
pub(crate) fn connect(proxy: SocketAddr, target: &str) -> io::Result<TcpStream> {
    let mut stream = patient(TcpStream::connect(proxy)?);
    stream.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    assert_eq!(method, [5, 0]);
    request(stream, target)
}

pub(crate) fn request(mut stream: TcpStream, target: &str) -> io::Result<TcpStream> {
    let mut bytes = vec![5, 1, 0];
    let target: dwell_proxy::target::Target = target.parse().unwrap();
    target.encode(&mut bytes);
    stream.write_all(&bytes)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply)?;
    assert_eq!((reply[0], reply[2]), (5, 0));
    let address = if reply[3] == 4 { 18 } else { 6 };
    stream.read_exact(&mut vec![0; address])?;
    match reply[1] {
        0 => Ok(stream),
        code => Err(io::Error::other(format!("reply {code}"))),
    }
}

fn refused(proxy: SocketAddr, target: &str) -> String {
    connect(proxy, target).unwrap_err().to_string()
}

#[test]
fn names_and_addresses_lead_on() {
    let target = echo();
    let port = target.port();
    let pair = Pair::new(target, &["--allow", "127.0.0.0/8:*", "--allow", "[::1]:*"], &[]);
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let stream = connect(pair.socks, &format!("{host}:{port}")).unwrap();
        assert_eq!(exchange(stream, b"hello").unwrap(), b"hello", "{host}");
    }
}

#[test]
fn refusals_have_reasons() {
    let target = echo();
    let closed = free_port();
    let (allowed, closed_rule) = (target.to_string(), closed.to_string());
    let names = ["--allow", "nowhere.invalid:80"];
    let egress: Vec<&str> =
        ["--allow", &allowed, "--allow", &closed_rule].into_iter().chain(names).collect();
    let pair = Pair::new(target, &egress, &[]);
    assert_eq!(refused(pair.socks, "127.0.0.2:80"), "reply 2");
    assert_eq!(refused(pair.socks, "elsewhere.example:80"), "reply 2");
    assert_eq!(refused(pair.socks, &closed.to_string()), "reply 5");
    assert_eq!(refused(pair.socks, "nowhere.invalid:80"), "reply 4");
    let [ingress, egress] = pair.statuses();
    for status in [ingress, egress] {
        let count = |reason: &str| status.streams.refused[reason];
        let counts = ["not_allowed", "refused", "no_such_host"].map(count);
        assert_eq!(counts, [2, 1, 1], "{status:#?}");
    }
    assert!(pair.log("ingress").contains("not among the targets that the egress allows"));
}

#[test]
fn passwords_are_asked_for() {
    let target = echo();
    let users = crate::pair::Directory::new();
    let file = users.path("users");
    std::fs::write(&file, "ann:secret\n").unwrap();
    let mut mode = std::fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    let pair = Pair::new(target, &[], &["--socks-users", file.to_str().unwrap()]);
    let with = |password: &[u8]| -> io::Result<TcpStream> {
        let mut stream = patient(TcpStream::connect(pair.socks)?);
        stream.write_all(&[5, 2, 0, 2])?;
        let mut method = [0; 2];
        stream.read_exact(&mut method)?;
        assert_eq!(method, [5, 2]);
        stream.write_all(b"\x01\x03ann")?;
        stream.write_all(&[password.len() as u8])?;
        stream.write_all(password)?;
        stream.read_exact(&mut method)?;
        if method[1] != 0 {
            assert_eq!(stream.read(&mut [0])?, 0, "it is closed");
            return Err(io::Error::other("denied"));
        }
        request(stream, &target.to_string())
    };
    assert_eq!(exchange(with(b"secret").unwrap(), b"hello").unwrap(), b"hello");
    assert_eq!(with(b"guess").unwrap_err().to_string(), "denied");
    assert_eq!(pair.statuses()[0].streams.client_errors, 1);
}

#[test]
fn other_protocols_are_turned_away() {
    let pair = Pair::new(echo(), &[], &[]);
    for bytes in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x04\x01\0\x50\x7f\0\0\x01\0", b"\xff"]
    {
        let mut stream = patient(TcpStream::connect(pair.socks).unwrap());
        stream.write_all(bytes).unwrap();
        let mut got = Vec::new();
        // Closed one way or the other, and without a word.
        let _ = stream.read_to_end(&mut got);
        assert!(got.is_empty(), "{got:?}");
    }
    assert_eq!(pair.statuses()[0].streams.client_errors, 3);
    assert!(pair.log("ingress").contains("another protocol than SOCKS version 5"));
}

/// Listeners have the room for a single stream in turn.
#[test]
fn no_door_keeps_room_from_another() {
    let target = echo();
    let pair = Pair::new(target, &[], &["--streams-max", "1"]);
    for _ in 0..3 {
        assert_eq!(exchange(pair.connect(), b"by the forward").unwrap(), b"by the forward");
        let stream = connect(pair.socks, &target.to_string()).unwrap();
        assert_eq!(exchange(stream, b"by SOCKS").unwrap(), b"by SOCKS");
    }
}
