//! `docs/stream-wire.md` against the code: its worked examples, and streams that must be refused. And the
//! crate's own examples, which must run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use dwell_stream::{AbortReason, Decompressors, Limits, Receiver, StreamError};

#[path = "../examples/blocking_tcp.rs"]
mod blocking_tcp;
#[path = "../examples/nonblocking_tcp.rs"]
mod nonblocking_tcp;
#[path = "../examples/over_futures.rs"]
mod over_futures;
#[path = "../examples/over_tokio.rs"]
mod over_tokio;

const DOCUMENT: &str = include_str!("../../../docs/stream-wire.md");

/// The bytes of the fenced blocks, by the name after "hex"; comments removed.
fn examples() -> BTreeMap<&'static str, Vec<u8>> {
    let mut examples = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(title) = line.strip_prefix("```hex ") else { continue };
        let bytes = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .flat_map(|line| line.split('#').next().unwrap().split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        assert!(examples.insert(title, bytes).is_none(), "two blocks \"{title}\"");
    }
    examples
}

/// Returns the restored data, fed at once or in pieces of this length.
fn receive(wire: &[u8], piece: usize) -> (Vec<u8>, Result<(), StreamError>) {
    let mut limits = Limits::default();
    (limits.window_log, limits.model_log, limits.mixed_models) = (23, 26, true);
    let mut receiver = Receiver::new(limits);
    let mut decompressors = Decompressors::new();
    for bytes in wire.chunks(piece) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Bytes after the end are left, and refused if they are fed nevertheless.
            match receiver.feed(rest, &mut decompressors) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) => return (receiver.data().to_vec(), Err(error)),
            }
        }
    }
    (receiver.data().to_vec(), receiver.end())
}

#[test]
fn the_examples_are_what_they_are_said_to_be() {
    let dwell = b"dwell ".repeat(8);
    let twice = b"dwell compresses packets ".repeat(2);
    let packets = b"dwell compresses packets while they wait ".repeat(4);
    let given_up = Err(StreamError::Aborted(AbortReason::Reset));
    let expected: BTreeMap<&str, (&[u8], _)> = BTreeMap::from([
        ("raw-block", (&b"hello"[..], Ok(()))),
        ("compressed-block", (&dwell, Ok(()))),
        ("history", (&twice, Ok(()))),
        ("running-context", (&packets, Ok(()))),
        ("running-model", (&packets, Ok(()))),
        ("running-mix", (&packets, Ok(()))),
        ("out-of-order", (b"firstsecond", Ok(()))),
        ("given-up", (b"hello", given_up)),
        ("unit", (&dwell, Ok(()))),
        ("long-unit", (&dwell, Ok(()))),
    ]);
    let mut examples = examples();
    // One is several streams, one has a context that must be granted, and one has messages around them, which are
    // dwell-proxy's.
    examples.retain(|title, _| {
        !title.starts_with("refused ") && !["going-on", "granted-context", "head"].contains(title)
    });
    assert!(examples.keys().eq(expected.keys()), "{:?}", examples.keys());
    for (title, wire) in examples {
        let (data, result) = &expected[title];
        for piece in [1, 3, wire.len()] {
            assert_eq!(receive(&wire, piece), (data.to_vec(), result.clone()), "{title}");
        }
    }
}

#[test]
fn a_stream_goes_on_with_the_one_before() {
    let wire = &examples()["going-on"];
    for piece in [1, 3, wire.len()] {
        let mut receiver = Receiver::new(Limits::in_order());
        let (mut decompressors, mut data) = (Decompressors::new(), Vec::new());
        for mut rest in wire.chunks(piece) {
            while !rest.is_empty() {
                if receiver.is_finished() {
                    receiver = receiver.into_next().unwrap();
                }
                rest = &rest[receiver.feed(rest, &mut decompressors).unwrap()..];
                data.extend_from_slice(receiver.data());
                receiver.consume(receiver.data().len());
            }
        }
        assert_eq!(receiver.end(), Ok(()));
        assert_eq!(data, b"dwell compresses packets ".repeat(2));
    }
}

#[test]
fn a_stream_gets_a_context_on_the_way() {
    let wire = &examples()["granted-context"];
    for piece in [1, 3, wire.len()] {
        let mut receiver = Receiver::new(Limits::in_order());
        receiver.grant(15, 0).unwrap();
        let mut decompressors = Decompressors::new();
        for mut rest in wire.chunks(piece) {
            while !rest.is_empty() {
                rest = &rest[receiver.feed(rest, &mut decompressors).unwrap()..];
            }
        }
        assert_eq!((receiver.end(), receiver.take_offer()), (Ok(()), Some((20, 0))));
        assert!(!receiver.has_granted());
        let packets = b"dwell compresses packets while they wait ".repeat(2);
        assert_eq!(receiver.data(), [b"hello", &packets[..], b"hello"].concat());
    }
}

#[test]
fn what_must_be_refused_is() {
    let mut examples = examples();
    examples.retain(|title, _| title.starts_with("refused "));
    assert_eq!(examples.len(), 40);
    for (title, wire) in examples {
        for piece in [1, wire.len()] {
            let (data, result) = receive(&wire, piece);
            let before: &[u8] = if title.ends_with("too-soon") { b"h" } else { b"" };
            assert_eq!(data, before, "{title}");
            let error = result.expect_err(title);
            assert_ne!(error, StreamError::Truncated, "{title}");
        }
    }
}

#[test]
fn examples_run() {
    blocking_tcp::main().unwrap();
    nonblocking_tcp::main().unwrap();
    over_futures::main().unwrap();
    over_tokio::main().unwrap();
}
