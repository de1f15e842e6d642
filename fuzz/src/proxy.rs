//! What must hold of `dwell-proxy`'s parsers for any bytes.

use dwell_proxy::hello::{HELLO_BYTES_MAX, Hello, HelloError, VERSION};
use dwell_proxy::message::{MESSAGE_BYTES_MAX, Message};
use dwell_proxy::socks::{CLIENT_BYTES_MAX, Negotiation, SocksStep, Users};

/// A byte that says where to cut, and whether passwords are asked for, and what a SOCKS client
/// sends: however it is cut, it comes to the same, and no more is waited for than the longest
/// request has.
pub fn socks(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let users = match choice & 1 {
        0 => Users::default(),
        _ => Users::parse("ann:secret").expect("a user"),
    };
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

/// What one proxy says to the other: a hello and messages. What is read can be written, and then
/// reads the same.
pub fn negotiation(bytes: &[u8]) {
    match Hello::decode(bytes) {
        Ok(Some((hello, used))) => {
            assert!(used <= bytes.len().min(HELLO_BYTES_MAX));
            let again = hello.encode();
            assert_eq!(Hello::decode(&again), Ok(Some((hello.clone(), again.len()))));
            assert_eq!(
                hello.agree(&hello).is_ok(),
                (hello.versions.0..=hello.versions.1).contains(&VERSION)
            );
            messages(&bytes[used..]);
        }
        Ok(None) => assert!(bytes.len() < HELLO_BYTES_MAX),
        Err(HelloError::Magic | HelloError::Malformed) => messages(bytes),
        Err(other) => panic!("{other}"),
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
