//! What must hold of `dwell-proxy`'s parsers for any bytes.

use dwell_base::Secret;
use dwell_proxy::datagrams::{self, Datagrams};
use dwell_proxy::hello::{HELLO_BYTES_MAX, Hello, HelloError};
use dwell_proxy::message::{MESSAGE_BYTES_MAX, Message};
use dwell_proxy::proxy_header::{self, HEADER_BYTES_MAX};
use dwell_proxy::socks::{CLIENT_BYTES_MAX, Negotiation, SocksStep, Users};
use dwell_proxy::split_early;
use dwell_proxy::transfer::{Code, read_again};

/// A byte that says where to cut, and whether passwords are asked for, and what a SOCKS client
/// sends: however it is cut, it comes to the same, and no more is waited for than the longest
/// request has.
pub fn socks(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let users = match choice & 1 {
        0 => Users::default(),
        _ => Users::parse("ann:secret").expect("a user"),
    };
    header(bytes);
    let _ = datagrams::from_client(bytes);
    let (whole, left) = negotiate(&users, &[bytes]);
    let cut = usize::from(choice >> 1).min(bytes.len());
    let (pieces, left_of_pieces) = negotiate(&users, &[&bytes[..cut], &bytes[cut..]]);
    assert_eq!(whole, pieces);
    match whole.last() {
        // What follows belongs to the stream.
        Some(SocksStep::Connect(_)) => assert_eq!(left, left_of_pieces),
        Some(SocksStep::Refuse(..)) => {}
        _ => assert!(left.len() < CLIENT_BYTES_MAX),
    }
}

fn negotiate(users: &Users, pieces: &[&[u8]]) -> (Vec<SocksStep>, Vec<u8>) {
    let mut negotiation = Negotiation::new(users);
    let (mut steps, mut input) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match negotiation.step(&mut input) {
                SocksStep::More => break,
                step => steps.push(step),
            }
        }
    }
    (steps, input)
}

/// A byte that says how it is cut, and what comes while a handshake is under way: however it is cut, the same is left for TLS, in its
/// order, and what can't be opened with the key is not kept.
pub fn early(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let key = Secret::new([7; Secret::BYTES]);
    let (tls, early) = split_early(&key, bytes, bytes.len());
    assert_eq!(split_early(&key, bytes, usize::from(piece)), (tls.clone(), early));
    assert!(tls.len() + early <= bytes.len());
    let mut rest = bytes.iter();
    assert!(tls.iter().all(|byte| rest.any(|other| other == byte)), "it is TLS's bytes, in order");
}

/// What one proxy says to the other: a hello and messages. What is read can be written, and then
/// reads the same.
pub fn negotiation(bytes: &[u8]) {
    datagrams(bytes);
    match Hello::decode(bytes) {
        Ok(Some((hello, used))) => {
            assert!(used <= bytes.len().min(HELLO_BYTES_MAX));
            let again = hello.encode();
            assert_eq!(Hello::decode(&again), Ok(Some((hello.clone(), again.len()))));
            assert_eq!(
                hello.agree(&hello).is_ok(),
                (hello.versions.0..=hello.versions.1).contains(&hello.purpose.version())
            );
            messages(&bytes[used..]);
        }
        Ok(None) => assert!(bytes.len() < HELLO_BYTES_MAX),
        Err(HelloError::Magic | HelloError::Malformed) => messages(bytes),
        Err(other) => panic!("{other}"),
    }
}

/// A header of the PROXY protocol: what is read can be written, and then reads the same.
fn header(bytes: &[u8]) {
    match proxy_header::decode(bytes) {
        Ok(Some((ends, used))) => {
            assert!(used <= bytes.len().min(HEADER_BYTES_MAX));
            if let Some(ends) = ends {
                let again = proxy_header::encode(ends);
                assert_eq!(proxy_header::decode(&again), Ok(Some((Some(ends), again.len()))));
            }
        }
        Ok(None) => assert!(bytes.len() < HEADER_BYTES_MAX),
        Err(_) => {}
    }
}

/// A stream of datagrams takes whatever comes, and gives out what can be written again.
fn datagrams(mut bytes: &[u8]) {
    let mut coming = Datagrams::default();
    while !bytes.is_empty() {
        let taken = coming.feed(bytes);
        assert!(taken > 0);
        bytes = &bytes[taken..];
        match coming.complete() {
            Ok(Some((address, payload))) => {
                let mut again = Vec::new();
                assert!(datagrams::encode(&address, payload, &mut again));
                coming.advance();
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn messages(mut bytes: &[u8]) {
    while let Ok(Some((message, used))) = Message::decode(bytes) {
        let again = message.encode();
        assert!(again.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(Message::decode(&again), Ok(Some((message, again.len()))));
        bytes = &bytes[used..];
    }
    if matches!(Message::decode(bytes), Ok(None)) {
        assert!(bytes.len() < MESSAGE_BYTES_MAX);
    }
}

/// A byte that says in which pieces they come, and what a sender says of its files: read or refused, the same in
/// whatever pieces; and what is read can be written, and then reads the same.
pub fn records(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let whole = read_again(bytes, bytes.len());
    assert_eq!(whole, read_again(bytes, usize::from(piece) + 1), "the pieces made a difference");
    let Some((records, data)) = whole else { return };
    assert!(records.len() + data.len() <= bytes.len());
    assert_eq!(read_again(&records, 7), Some((records.clone(), Vec::new())));
}

/// A text that should be a code: what is read can be shown, and then reads the same.
pub fn code(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(code) = text.parse::<Code>() else { return };
    let shown = code.reveal();
    let again: Code = shown.parse().expect("a code that was shown");
    assert_eq!((again.at, again.reveal()), (code.at, shown));
}
