//! Replays the corpora that the fuzzer's runs left under `fuzz/corpus`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::panic::catch_unwind;
use std::path::Path;

/// The same bodies that the fuzzer runs, so that what it found stays found.
#[allow(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../../fuzz/src/proxy.rs"]
mod fuzz_proxy;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&directory).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{} fails", file.display());
        // Cut short anywhere, it is no worse.
        for len in 0..bytes.len() {
            let cut = &bytes[..len];
            assert!(catch_unwind(|| run(cut)).is_ok(), "{len} bytes of {}", file.display());
        }
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", directory.display());
}

#[test]
fn proxy_negotiation() {
    replay("proxy_negotiation", fuzz_proxy::negotiation);
}

#[test]
fn proxy_early() {
    replay("proxy_early", fuzz_proxy::early);
}

#[test]
fn proxy_socks() {
    replay("proxy_socks", fuzz_proxy::socks);
}

#[test]
fn proxy_records() {
    replay("proxy_records", fuzz_proxy::records);
}

#[test]
fn proxy_code() {
    replay("proxy_code", fuzz_proxy::code);
}
