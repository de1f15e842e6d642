//! What codecs take and give on this machine: what the bounds are made of.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dwell_codec::{CodecSpec, Compressor};
use dwell_stream::{CodecPoint, Config, Strategy};
use serde::{Deserialize, Serialize};

use super::contender::Contender;

/// A codec on some data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Speed {
    pub(super) codec: String,
    #[serde(flatten)]
    pub(super) point: CodecPoint,
}

/// How much of the data is compressed at most.
const SAMPLE_BYTES: usize = 4 << 20;
/// It is made of pieces that no block is longer than.
const PIECE_BYTES: usize = 64 << 10;
/// How long a codec is watched at least; the best of several passes counts.
const WATCH: Duration = Duration::from_millis(300);

/// Measures the codecs of these contenders, and those of hull mixing, each once; not those that are
/// known.
pub(super) fn measure_missing(
    known: &mut Vec<Speed>,
    contenders: &[Contender],
    block_len: usize,
    body: &[u8],
) {
    let mut specs = Config::new(Strategy::Hull).codecs;
    for contender in contenders {
        if let Contender::Stream(config) = contender
            && contender.codec().is_some()
        {
            specs.push(config.codec);
        }
    }
    specs.sort();
    specs.dedup();
    specs.retain(|spec| known.iter().all(|speed| speed.codec != spec.to_string()));
    if specs.is_empty() {
        return;
    }
    let sample = sample(body, SAMPLE_BYTES);
    known.extend(specs.into_iter().filter_map(|spec| {
        let point = measure_one(spec, block_len, &sample)?;
        Some(Speed { codec: spec.to_string(), point })
    }));
}

/// Pieces from everywhere in the data, as they may change on the way.
fn sample(body: &[u8], bytes_max: usize) -> Vec<u8> {
    let pieces: Vec<&[u8]> = body.chunks(PIECE_BYTES).collect();
    let wanted = pieces.len().min((bytes_max / PIECE_BYTES).max(1));
    (0..wanted).flat_map(|at| pieces[at * pieces.len() / wanted]).copied().collect()
}

fn measure_one(spec: CodecSpec, block_len: usize, sample: &[u8]) -> Option<CodecPoint> {
    let mut compressor = Compressor::new(spec, None).ok()?;
    let mut dst = vec![0; block_len];
    let (mut best_ns, mut compressed) = (u64::MAX, 0);
    let begin = Instant::now();
    while begin.elapsed() < WATCH {
        let pass = Instant::now();
        compressed = 0;
        for block in sample.chunks(block_len) {
            let room = block.len().saturating_sub(3);
            let len = compressor.compress(black_box(block), &mut dst[..room]).ok()?;
            compressed += len.unwrap_or(block.len());
        }
        best_ns = best_ns.min(pass.elapsed().as_nanos() as u64);
    }
    let len = sample.len() as f64;
    Some(CodecPoint::new(best_ns as f64 / len, compressed as f64 / len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_from_everywhere() {
        let body: Vec<u8> = (0..16).flat_map(|piece| vec![piece; PIECE_BYTES]).collect();
        let pieces = |len| -> Vec<u8> {
            sample(&body, len * PIECE_BYTES).chunks(PIECE_BYTES).map(|piece| piece[0]).collect()
        };
        assert_eq!(pieces(4), [0, 4, 8, 12]);
        assert_eq!(pieces(100).len(), 16);
        assert_eq!(sample(&body[..100], 1 << 20), body[..100]);
        assert!(sample(&[], 1 << 20).is_empty());
    }
}
