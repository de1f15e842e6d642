//! Replays the corpora that the fuzzer's runs left under `fuzz/corpus`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::panic::catch_unwind;
use std::path::Path;

/// The same bodies that the fuzzer runs, so that what it found stays found.
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../fuzz/src/relay.rs"]
mod fuzz_relay;
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../fuzz/src/memory.rs"]
mod memory;

/// The scripts say how much memory they may cost.
#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&directory).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{} fails", file.display());
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", directory.display());
}

#[test]
fn relay_psk() {
    replay("relay_psk", fuzz_relay::psk);
}

#[test]
fn relay_noise() {
    replay("relay_noise", fuzz_relay::noise);
}

#[test]
fn relay_pairing() {
    replay("relay_pairing", fuzz_relay::pairing);
}
