//! Packets and compressors for the tests.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use dwell_codec::{CodecId, CodecSpec, Compressor, Dictionary};
use proptest::prelude::*;

/// Bytes behind a buffer that must not be overrun.
pub(crate) const CANARY: [u8; 32] = [0xc9; 32];

/// Returns a buffer of `len` bytes with the canary behind it.
pub(crate) fn with_canaries(len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    buffer.extend(CANARY);
    buffer
}

const WORDS: [&str; 16] = [
    "packet ",
    "queue ",
    "link ",
    "the ",
    "of ",
    "HTTP/1.1 200 OK\r\n",
    "0",
    "1",
    "17.2",
    ",",
    "\n",
    "{\"t\":",
    "}",
    "delay ",
    "Content-Length: ",
    "and ",
];

/// Returns text-like bytes, always the same.
pub(crate) fn text(len: usize) -> Vec<u8> {
    let mut rng = dwell_base::Rng::from_seed(5);
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(WORDS[rng.below(16) as usize].as_bytes());
    }
    text.truncate(len);
    text
}

/// The dictionary of the tests: text.
pub(crate) fn dictionary(len: usize) -> Dictionary {
    Dictionary::new(1, text(len)).expect("a valid length")
}

fn shared_dictionary() -> Arc<Dictionary> {
    static SHARED: OnceLock<Arc<Dictionary>> = OnceLock::new();
    Arc::clone(SHARED.get_or_init(|| Arc::new(dictionary(16_384))))
}

/// A codec with its level, and true if it uses the dictionary.
pub(crate) type Setup = (CodecSpec, bool);

pub(crate) fn compressor((spec, with_dictionary): Setup) -> Compressor {
    Compressor::new(spec, with_dictionary.then(shared_dictionary)).expect("a valid setup")
}

fn levels(id: CodecId) -> Vec<i32> {
    match id {
        CodecId::Lz4 => vec![1, 8, 64],
        CodecId::Zstd => [-50, -3, -1].into_iter().chain(1..=19).collect(),
        CodecId::Deflate => (1..=12).collect(),
        CodecId::Lzo | CodecId::Bzip2 | CodecId::Ppm | CodecId::Mix => vec![1],
    }
}

/// Returns every codec of this build with every level, with and without dictionary.
pub(crate) fn all_setups() -> Vec<Setup> {
    let built_in = CodecId::ALL.into_iter().filter(|id| id.is_built_in());
    let specs =
        built_in.flat_map(|id| levels(id).into_iter().map(move |level| CodecSpec { id, level }));
    specs
        .flat_map(|spec| [(spec, false), (spec, true)])
        .filter(|(spec, with_dictionary)| !with_dictionary || spec.id.takes_dictionary())
        .collect()
}

pub(crate) fn setups() -> impl Strategy<Value = Setup> {
    // First the codec: otherwise zstd with its many levels would crowd out the others.
    let by_codec: Vec<Vec<Setup>> = CodecId::ALL
        .into_iter()
        .map(|id| all_setups().into_iter().filter(|(spec, _)| spec.id == id).collect())
        .filter(|setups: &Vec<_>| !setups.is_empty())
        .collect();
    proptest::sample::select(by_codec).prop_flat_map(proptest::sample::select)
}

/// Up to 9000 bytes of random, repeated and text-like pieces.
pub(crate) fn packet() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        proptest::collection::vec(any::<u8>(), 0..2000),
        (any::<u8>(), lengths(0..3000)).prop_map(|(byte, len)| vec![byte; len]),
        (proptest::collection::vec(any::<u8>(), 1..9), 0usize..200)
            .prop_map(|(unit, count)| unit.repeat(count)),
        (0usize..5000, lengths(0..4000)).prop_map(|(from, len)| text(9000)[from..][..len].to_vec()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| {
        let mut packet = pieces.concat();
        packet.truncate(9000);
        packet
    })
}

/// Lengths of which half are short.
fn lengths(range: Range<usize>) -> impl Strategy<Value = usize> {
    prop_oneof![range.start..range.end.min(100), range]
}
