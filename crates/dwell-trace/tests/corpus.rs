//! Replays the fuzzer's corpus, and reads the captures in the repository.

#![allow(missing_docs, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // A test may read its own inputs.

use std::path::Path;

use dwell_trace::Capture;

#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../fuzz/src/trace.rs"]
mod fuzz_trace;

fn files(directory: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn trace_capture() {
    for (name, bytes) in files("fuzz/corpus/trace_capture") {
        println!("{name}");
        fuzz_trace::capture(&bytes);
    }
}

/// Reads captures whole, cut at many places, and with a byte changed here and there.
#[test]
fn real_captures_and_broken_ones() {
    let captures = files("data/captures").into_iter().filter(|(name, _)| name.contains(".pcap"));
    for (name, bytes) in captures {
        println!("{name}");
        let mut capture = Capture::open(&bytes[..]).unwrap();
        while capture.next_packet().is_some() {}
        assert_eq!(capture.trouble(), None);
        fuzz_trace::capture(&bytes);
        for at in (0..bytes.len()).step_by(97) {
            fuzz_trace::capture(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            fuzz_trace::capture(&changed);
        }
    }
}
