//! Streams made block by block, in whatever mixture the format has: raw blocks, blocks that stand alone, generations
//! of zstd and of models, and contexts that are dropped.

use crc32fast::Hasher;
use dwell_codec::{CodecId, CodecSpec};
use proptest::prelude::*;

use super::{text, with_context};
use crate::context::{Position, SenderContext};
use crate::error::StreamError;
use crate::frame::{BlockHeader, Generation, Header, Layout, Preamble, ROOM};
use crate::{Compressors, Decompressors, Receiver};

const WINDOW_LOG: u8 = 15;
const MODEL_LOG: u8 = 20;
/// What a block gets that can't go through the context.
const ALONE: CodecSpec = CodecSpec { id: CodecId::Zstd, level: 3 };
/// Another model comes so much after the one before, at least.
const CHANGE_LEN_MIN: usize = 65_536;
/// What the receiver may hold of the context.
const HELD_MAX: usize = (3 << WINDOW_LOG) + (1 << 19) + (1 << MODEL_LOG) + (192 << 10);

/// What becomes of a block.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Raw,
    Alone(CodecSpec),
    Running(CodecSpec),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    kind: Kind,
    len: usize,
    /// The context is dropped after it.
    is_last: bool,
}

fn codec(id: CodecId, level: i32) -> CodecSpec {
    CodecSpec { id, level }
}

fn kinds() -> impl Strategy<Value = Kind> {
    let alone = prop_oneof![Just(codec(CodecId::Zstd, 3)), Just(codec(CodecId::Lz4, 1))];
    let running = prop_oneof![
        (1..13i32).prop_map(|level| codec(CodecId::Zstd, level)),
        (2..13i32).prop_map(|order| codec(CodecId::Ppm, order)),
        Just(codec(CodecId::Ppm, 6)),
        Just(codec(CodecId::Mix, 1)),
    ];
    prop_oneof![
        1 => Just(Kind::Raw),
        1 => alone.prop_map(Kind::Alone),
        4 => running.prop_map(Kind::Running),
    ]
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let len = prop_oneof![1usize..100, 1usize..20_000, Just(1 << 16)];
    let block = (kinds(), len, prop::bool::weighted(0.1));
    let block = block.prop_map(|(kind, len, is_last)| Block { kind, len, is_last });
    prop::collection::vec(block, 1..16)
}

/// Writes a stream.
struct Writer {
    /// It asks the context before it gives it a block.
    is_good: bool,
    wire: Vec<u8>,
    hasher: Hasher,
    context: SenderContext,
    compressors: Compressors,
    scratch: Vec<u8>,
    total: u64,
}

impl Writer {
    fn new(is_good: bool) -> Self {
        let preamble = Preamble {
            layout: Layout::Blocks,
            block_len_log2: 16,
            reorder: 0,
            // lz4, zstd, and models of both kinds.
            codecs: 0b1100_0110,
            history: false,
            goes_on: false,
            window_log: WINDOW_LOG,
            model_log: MODEL_LOG,
            may_get_context: false,
        };
        Self {
            is_good,
            wire: preamble.to_bytes().to_vec(),
            hasher: Hasher::new(),
            context: SenderContext::new(WINDOW_LOG, MODEL_LOG),
            compressors: Compressors::new(),
            scratch: Vec::new(),
            total: 0,
        }
    }

    fn write(&mut self, index: u64, block: Block, data: &[u8]) {
        let position = Position { index, start: self.total };
        self.hasher.update(data);
        self.total += data.len() as u64;
        let kind = match block.kind {
            Kind::Running(codec) if self.is_good && !self.context.takes(position, codec) => {
                Kind::Alone(ALONE)
            }
            kind => kind,
        };
        match kind {
            Kind::Raw => self.frame(block, None, None, data),
            Kind::Alone(codec) => {
                let most = data.len().saturating_sub(3);
                match self.compressors.compress(codec, &[], data, most) {
                    Some(payload) => self.frame(block, Some(codec), None, &payload[ROOM..]),
                    None => self.frame(block, None, None, data),
                }
            }
            Kind::Running(codec) => {
                let mut lent = self.context.lend(position, codec);
                let payload = lent.compress(data, &mut self.scratch).unwrap();
                let begins = lent.begins();
                self.context.returned(lent, data.len());
                self.frame(block, Some(codec), Some(begins), &payload[ROOM..]);
            }
        }
        if block.is_last {
            self.context.forget();
        }
    }

    /// `running`, if it goes on with the context: the generation that it begins, if it does.
    fn frame(
        &mut self,
        block: Block,
        codec: Option<CodecSpec>,
        running: Option<Option<Generation>>,
        payload: &[u8],
    ) {
        let header = BlockHeader {
            codec: codec.map(|codec| codec.id),
            refers: false,
            running: running.is_some(),
            begins: running.flatten(),
            kept: !block.is_last,
            index: None,
            original_len: block.len,
            payload_len: payload.len(),
            check: self.hasher.clone().finalize(),
        };
        self.wire.extend_from_slice(Header::Block(header).to_bytes().as_slice());
        self.wire.extend_from_slice(payload);
    }

    fn end(mut self) -> Vec<u8> {
        let end = Header::End { total: self.total, check: self.hasher.finalize() };
        self.wire.extend_from_slice(end.to_bytes().as_slice());
        self.wire
    }
}

/// Words, the same words again, or noise, as the seed has it.
fn data_of(blocks: &[Block], seed: u64) -> Vec<Vec<u8>> {
    let words = text(1 << 17);
    let mut rng = dwell_base::Rng::from_seed(seed);
    let mut data = |block: &Block| match rng.below(4) {
        0 => {
            let mut noise = vec![0; block.len];
            rng.fill(&mut noise);
            noise
        }
        _ => {
            let at = rng.below((words.len() - block.len) as u64) as usize;
            words[at..at + block.len].to_vec()
        }
    };
    blocks.iter().map(&mut data).collect()
}

/// Returns the data before the first block that begins another model too soon, if one does.
fn before_the_first_too_soon(blocks: &[Block]) -> Option<usize> {
    let (mut at, mut present, mut changed) = (0, None, None);
    for block in blocks {
        if let Kind::Running(codec) = block.kind {
            let next = (codec.id != CodecId::Zstd).then_some(codec);
            if next.is_some() && next != present {
                if changed.is_some_and(|changed| at < changed + CHANGE_LEN_MIN) {
                    return Some(at);
                }
                changed = Some(at);
            }
            present = next;
        }
        present = present.filter(|_| !block.is_last);
        at += block.len;
    }
    None
}

fn written(blocks: &[Block], data: &[Vec<u8>], is_good: bool) -> Vec<u8> {
    let mut writer = Writer::new(is_good);
    for (index, (block, data)) in blocks.iter().zip(data).enumerate() {
        writer.write(index as u64, *block, data);
    }
    writer.end()
}

/// Returns what is given out of a stream.
fn received(wire: &[u8]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut receiver = Receiver::new(with_context());
    let (mut decompressors, mut got, mut rest) = (Decompressors::new(), Vec::new(), wire);
    let result = loop {
        let result = receiver.feed(rest, &mut decompressors);
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
        match result {
            Ok(_) if rest.is_empty() => break receiver.end(),
            Ok(taken) => rest = &rest[taken..],
            Err(error) => break Err(error),
        }
    };
    (got, result)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Who begins models as often as it likes is refused where it is too often, and only there; what came before is given
    /// out.
    #[test]
    fn another_model_too_soon_is_refused(blocks in blocks(), seed: u64) {
        let data = data_of(&blocks, seed);
        let (got, result) = received(&written(&blocks, &data, false));
        match before_the_first_too_soon(&blocks) {
            None => prop_assert_eq!(result, Ok(())),
            Some(len) => {
                prop_assert!(matches!(result, Err(StreamError::Header(_))), "{result:?}");
                prop_assert_eq!(got.len(), len);
            }
        }
        prop_assert!(data.concat().starts_with(&got));
    }

    #[test]
    fn any_mixture_comes_out_again(
        blocks in blocks(), seed: u64, piece in prop_oneof![Just(7usize), 1000usize..100_000],
    ) {
        let data = data_of(&blocks, seed);
        let wire = written(&blocks, &data, true);
        let mut receiver = Receiver::new(with_context());
        let (mut decompressors, mut got) = (Decompressors::new(), Vec::new());
        for mut bytes in wire.chunks(piece) {
            while !bytes.is_empty() {
                let taken = receiver.feed(bytes, &mut decompressors).unwrap();
                bytes = &bytes[taken..];
                prop_assert!(receiver.context_bytes() <= HELD_MAX);
                got.extend_from_slice(receiver.data());
                receiver.consume(receiver.data().len());
            }
        }
        prop_assert_eq!(receiver.end(), Ok(()));
        prop_assert!(got == data.concat());
    }

    /// Whatever is changed, or cut off: what is given out before it is noticed is right.
    #[test]
    fn any_damage_is_noticed(blocks in blocks(), seed: u64, at: u32, flip in 1u8..) {
        let data = data_of(&blocks, seed);
        let mut wire = written(&blocks, &data, true);
        let at = at as usize % wire.len();
        wire[at] ^= flip;
        let (got, result) = received(&wire);
        prop_assert!(data.concat().starts_with(&got), "what was given out is right");
        // A bit of no consequence: what a context holds longer, or a codec that does not occur.
        prop_assert!(result.is_err() || got == data.concat());
    }
}
