//! The speeds and ratios of codecs on this machine, from which the bounds are calculated.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dwell_base::time::duration_ns;
use dwell_codec::{CodecSpec, Compressor, HISTORY_LEN_MAX};
use dwell_stream::{CodecPoint, Config, Strategy};
use serde::{Deserialize, Serialize};

use super::contender::Contender;

/// A codec on some data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed {
    pub(super) codec: String,
    #[serde(flatten)]
    pub(super) point: CodecPoint,
}

/// The largest part of the data that is compressed.
const SAMPLE_BYTES: usize = 4 << 20;
/// It is made of pieces that no block is longer than.
const PIECE_BYTES: usize = 64 << 10;
/// The least time for which a codec is measured; the best of several passes counts.
const WATCH: Duration = Duration::from_millis(300);

/// Measures the codecs of these contenders, and those of hull mixing, each once; not those that are
/// known.
pub(super) fn measure_missing(
    known: &mut Vec<Speed>,
    contenders: &[Contender],
    block_len: usize,
    body: &[u8],
) {
    let hull = Config::new(Strategy::Hull);
    let mut specs = hull.codecs.clone();
    for contender in contenders {
        if let Contender::Stream(config) = contender
            && contender.codec().is_some()
        {
            specs.push(config.codec);
        }
    }
    specs.sort();
    specs.dedup();
    let ways = specs.into_iter().flat_map(|spec| {
        let referring = hull.may_refer(spec).then_some(Way { spec, refers: true });
        [Some(Way { spec, refers: false }), referring].into_iter().flatten()
    });
    let missing: Vec<Way> =
        ways.filter(|way| known.iter().all(|speed| speed.codec != way.name())).collect();
    if missing.is_empty() {
        return;
    }
    let blocks = sample(body, SAMPLE_BYTES, block_len);
    known.extend(missing.into_iter().filter_map(|way| {
        let point = way.measure(block_len, &blocks)?;
        Some(Speed { codec: way.name(), point })
    }));
}

/// A block, and what comes before it.
struct Sample<'a> {
    history: &'a [u8],
    block: &'a [u8],
}

/// Blocks from everywhere in the data, as they may change on the way.
fn sample(body: &[u8], bytes_max: usize, block_len: usize) -> Vec<Sample<'_>> {
    let count = body.len().div_ceil(PIECE_BYTES);
    let wanted = count.min((bytes_max / PIECE_BYTES).max(1));
    let begins = (0..wanted).map(|at| at * count / wanted * PIECE_BYTES);
    let piece = |begin| (begin..body.len().min(begin + PIECE_BYTES)).step_by(block_len);
    let block = |at: usize| {
        let end = (at + block_len).min(at / PIECE_BYTES * PIECE_BYTES + PIECE_BYTES);
        let history = &body[at.saturating_sub(HISTORY_LEN_MAX)..at];
        Sample { history, block: &body[at..end.min(body.len())] }
    };
    begins.flat_map(piece).map(block).collect()
}

/// A codec, for blocks that refer to what comes before them, or for each on its own.
#[derive(Clone, Copy)]
struct Way {
    spec: CodecSpec,
    refers: bool,
}

impl Way {
    fn name(self) -> String {
        let Self { spec, refers } = self;
        if refers { format!("{spec}, referring") } else { spec.to_string() }
    }

    fn measure(self, block_len: usize, blocks: &[Sample<'_>]) -> Option<CodecPoint> {
        let mut compressor = match self.refers {
            true => Compressor::with_history(self.spec).ok()?,
            false => Compressor::new(self.spec, None).ok()?,
        };
        let mut dst = vec![0; block_len];
        measure_one(blocks, |Sample { history, block }| {
            let room = block.len().saturating_sub(3);
            let (block, dst) = (black_box(*block), &mut dst[..room]);
            let made = match self.refers {
                true => compressor.compress_after(history, block, dst),
                false => compressor.compress(block, dst),
            };
            Some(made.ok()?.unwrap_or(block.len()))
        })
    }
}

/// The best of some passes over all blocks.
fn measure_one(
    blocks: &[Sample<'_>],
    mut compress: impl FnMut(&Sample<'_>) -> Option<usize>,
) -> Option<CodecPoint> {
    let (mut best_ns, mut compressed) = (u64::MAX, 0);
    let begin = Instant::now();
    while begin.elapsed() < WATCH {
        let pass = Instant::now();
        compressed = 0;
        for block in blocks {
            compressed += compress(block)?;
        }
        best_ns = best_ns.min(duration_ns(pass.elapsed()));
    }
    let len = blocks.iter().map(|sample| sample.block.len()).sum::<usize>() as f64;
    Some(CodecPoint::new(best_ns as f64 / len, compressed as f64 / len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_from_everywhere() {
        let body: Vec<u8> = (0..16).flat_map(|piece| vec![piece; PIECE_BYTES]).collect();
        let pieces = |len| -> Vec<u8> {
            let blocks = sample(&body, len * PIECE_BYTES, PIECE_BYTES);
            blocks.iter().map(|sample| sample.block[0]).collect()
        };
        assert_eq!(pieces(4), [0, 4, 8, 12]);
        assert_eq!(pieces(100).len(), 16);
        let short = sample(&body[..100], 1 << 20, 4096);
        assert!(short.len() == 1 && short[0].block == &body[..100] && short[0].history.is_empty());
        assert!(sample(&[], 1 << 20, 4096).is_empty());
    }

    #[test]
    fn what_comes_before_a_block_is_its_history() {
        let body: Vec<u8> = (0..5 * PIECE_BYTES + 9_999).map(|at| (at / 999) as u8).collect();
        for block_len in [4096, PIECE_BYTES] {
            let mut at = 0;
            for Sample { history, block } in sample(&body, 1 << 20, block_len) {
                assert_eq!(block, &body[at..at + block.len()]);
                assert_eq!(history, &body[at.saturating_sub(HISTORY_LEN_MAX)..at]);
                at += block.len();
            }
            assert_eq!(at, body.len());
        }
    }
}
