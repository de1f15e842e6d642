//! Replays the corpora of earlier fuzzer runs under `fuzz/corpus`.

use std::path::Path;

use crate::fuzz_wire;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus in {}", directory.display());
    for file in files {
        #[expect(clippy::disallowed_methods, reason = "a test may read its own inputs")]
        let bytes = std::fs::read(&file).unwrap();
        // The harness shows this only if the run below panics.
        let case = Shown(&file);
        run(&bytes);
        std::mem::forget(case);
    }
}

/// Names the file that was being replayed, if a panic unwinds past it.
struct Shown<'a>(&'a Path);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_macros, reason = "a failing test says with what")]
        {
            eprintln!("while replaying {}", self.0.display());
        }
    }
}

#[test]
fn wire_datagram() {
    replay("wire_datagram", fuzz_wire::datagram);
}

#[test]
fn wire_block() {
    replay("wire_block", fuzz_wire::block);
}

#[test]
fn wire_packet() {
    replay("wire_packet", fuzz_wire::packet);
}

#[test]
fn wire_roundtrip() {
    replay("wire_roundtrip", fuzz_wire::roundtrip);
}

#[test]
fn wire_columnar() {
    replay("wire_columnar", fuzz_wire::columnar);
}

#[test]
fn wire_predicted() {
    replay("wire_predicted", fuzz_wire::predicted);
}
