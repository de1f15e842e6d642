//! Streams that turn out to be long, and get running contexts.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::pair::{Pair, assert_same, patient, serve, wait_until};

/// Compresses although nothing is slow here.
const BYTES: &[&str] = &["--objective", "bytes"];
const LEN: usize = 3 << 20;

/// Answers each byte with the same text.
fn pair(more: &[&str]) -> (Pair, Vec<u8>) {
    let text = dwell_lab::corpus::text(LEN, 1);
    let answer = text.clone();
    let server = serve(move |mut stream| {
        while stream.read_exact(&mut [0]).is_ok() {
            stream.write_all(&answer).unwrap();
        }
    });
    let args = [BYTES, more].concat();
    (Pair::new(server, &args, &args), text)
}

/// Asks once, and takes the answer.
fn asks(client: &mut TcpStream, text: &[u8]) {
    let mut got = vec![0; LEN];
    client.write_all(b"?").unwrap();
    client.read_exact(&mut got).unwrap();
    assert_same(&got, text);
}

fn contexts(pair: &Pair) -> [u64; 2] {
    pair.statuses().map(|status| status.streams.contexts)
}

#[test]
fn a_long_stream_has_a_context_until_it_is_idle() {
    let (pair, text) = pair(&[]);
    let mut client = patient(pair.connect());
    for _ in 0..2 {
        asks(&mut client, &text);
        // Who receives has granted it, and who sends has got it.
        assert_eq!(contexts(&pair), [1, 1]);
        wait_until("both are rid of it", || contexts(&pair) == [0, 0]);
    }
    // One answer after the other by the same context.
    for _ in 0..3 {
        asks(&mut client, &text);
        assert_eq!(contexts(&pair), [1, 1]);
    }
    drop(client);
    wait_until("nothing is held", || contexts(&pair) == [0, 0]);
}

#[test]
fn without_memory_a_long_stream_goes_on_as_it_is() {
    let (pair, text) = pair(&["--memory-max", "24MiB"]);
    let mut client = patient(pair.connect());
    for _ in 0..2 {
        asks(&mut client, &text);
        assert_eq!(contexts(&pair), [0, 0]);
    }
}
