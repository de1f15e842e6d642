//! Replays the corpora of earlier fuzzer runs under `fuzz/corpus`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

/// The same bodies that the fuzzer runs, so that what it found stays found.
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../fuzz/src/stream.rs"]
mod fuzz_stream;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus in {}", directory.display());
    for file in files {
        #[expect(clippy::disallowed_methods, reason = "a test may read its own inputs")]
        let bytes = std::fs::read(&file).unwrap();
        run(&bytes);
    }
}

#[test]
fn stream_receive() {
    replay("stream_receive", fuzz_stream::receive);
}

#[test]
fn stream_roundtrip() {
    replay("stream_roundtrip", fuzz_stream::round_trip);
}
