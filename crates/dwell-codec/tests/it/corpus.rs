//! Replays the corpora of earlier fuzzer runs under `fuzz/corpus`.

use std::panic::catch_unwind;
use std::path::Path;

use crate::fuzz_codec;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&directory).expect("the directory of the corpus");
    let mut count = 0;
    for file in files {
        let file = file.expect("an entry of the directory").path();
        #[expect(clippy::disallowed_methods, reason = "a test may read its own inputs")]
        let bytes = std::fs::read(&file).expect("a readable file");
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{} fails", file.display());
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", directory.display());
}

#[test]
fn codec_context() {
    replay("codec_context", fuzz_codec::context);
}

#[test]
fn codec_decode() {
    replay("codec_decode", fuzz_codec::decode);
}

#[test]
fn codec_dictionary() {
    replay("codec_dictionary", fuzz_codec::dictionary);
}

#[test]
fn codec_mix() {
    replay("codec_mix", fuzz_codec::mix);
}

#[test]
fn codec_ppm() {
    replay("codec_ppm", fuzz_codec::ppm);
}

#[test]
fn codec_roundtrip() {
    replay("codec_roundtrip", fuzz_codec::roundtrip);
}

#[test]
fn codec_history() {
    replay("codec_history", fuzz_codec::decode_after);
}

#[test]
fn codec_history_roundtrip() {
    replay("codec_history_roundtrip", fuzz_codec::roundtrip_after);
}
