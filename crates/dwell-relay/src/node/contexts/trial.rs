//! Codecs that are tried on what was sent.

use dwell_codec::{CodecError, CodecSpec, Compressor, ContextEncoder, MODEL_RECORD_LEN_MAX};
use dwell_policy::method::{CodecPoint, Tried};

use super::alone::assumed_ns;
use super::codec::BatchCodec;

/// The most bytes of what was sent that codecs are tried on.
pub(super) const TRIAL_LEN_MAX: usize = 192 << 10;
/// A codec of a context learns from all but the last part in so many, and that is what counts.
const COUNTED_PART: usize = 3;
/// Batches are as long as these at least, in a trial.
const BATCH_LEN_MIN: usize = 64;
/// A codec that takes no time at all would always be best.
const COST_NS_MIN: f64 = 0.1;

/// Codecs to be tried, by whoever has time for it.
#[derive(Debug)]
pub struct CodecTrial {
    pub(in crate::node) peer: usize,
    /// Which of the peers that had this index.
    pub(in crate::node) generation: u64,
    bytes: Vec<u8>,
    subject: Subject,
    took_ns: u64,
}

/// What is tried, and what came of it.
#[derive(Debug)]
enum Subject {
    /// For the context of this group of packets.
    Context {
        group: u64,
        batch_len: usize,
        codecs: Vec<BatchCodec>,
        results: Vec<Tried<BatchCodec>>,
    },
    /// For batches of these lengths, which refer to nothing.
    Alone { lens: Vec<usize>, codecs: Vec<CodecSpec>, results: Vec<Tried<CodecSpec>> },
}

/// The results of a trial.
#[derive(Debug)]
pub(super) enum Done<'a> {
    /// Of codecs for the context of this group.
    Context(u64, &'a [Tried<BatchCodec>]),
    /// Of codecs for batches that refer to nothing.
    Alone(&'a [Tried<CodecSpec>]),
}

impl CodecTrial {
    /// Tries codecs on the latest bytes of a context, in batches like its own.
    pub(super) fn of_context(
        group: u64,
        encoder: &ContextEncoder,
        batch_len: usize,
        codecs: Vec<BatchCodec>,
    ) -> Self {
        let mut bytes = Vec::new();
        encoder.latest(TRIAL_LEN_MAX, &mut bytes);
        Self::of_sample(group, bytes, batch_len, codecs)
    }

    /// The same on these bytes, of a group that is compressed outside of its context.
    pub(super) fn of_sample(
        group: u64,
        bytes: Vec<u8>,
        batch_len: usize,
        codecs: Vec<BatchCodec>,
    ) -> Self {
        let batch_len = batch_len.clamp(BATCH_LEN_MIN, MODEL_RECORD_LEN_MAX);
        Self::new(bytes, Subject::Context { group, batch_len, codecs, results: Vec::new() })
    }

    /// Tries codecs on batches of these lengths, one behind the other, which refer to nothing.
    pub(super) fn alone((bytes, lens): (Vec<u8>, Vec<usize>), codecs: Vec<CodecSpec>) -> Self {
        debug_assert_eq!(bytes.len(), lens.iter().sum::<usize>());
        Self::new(bytes, Subject::Alone { lens, codecs, results: Vec::new() })
    }

    fn new(bytes: Vec<u8>, subject: Subject) -> Self {
        Self { peer: 0, generation: 0, bytes, subject, took_ns: 0 }
    }

    /// It is of this peer, and of that one of those that had its index.
    pub(in crate::node) fn of_peer(self, peer: usize, generation: u64) -> Self {
        Self { peer, generation, ..self }
    }

    /// The context that it is for, by the group of its packets, if it is for one.
    pub(super) fn group(&self) -> Option<u64> {
        match self.subject {
            Subject::Context { group, .. } => Some(group),
            Subject::Alone { .. } => None,
        }
    }

    /// Returns what came of it.
    pub(super) fn done(&self) -> Done<'_> {
        match &self.subject {
            Subject::Context { group, results, .. } => Done::Context(*group, results),
            Subject::Alone { results, .. } => Done::Alone(results),
        }
    }

    /// Returns the time that it took, in nanoseconds of the processor.
    pub fn took_ns(&self) -> u64 {
        self.took_ns
    }

    /// Tries them; `cpu_ns` is the processor time of the calling thread, in nanoseconds. That takes tens of
    /// milliseconds, or a few hundred.
    pub fn run(&mut self, cpu_ns: impl Fn() -> u64) {
        let began_ns = cpu_ns();
        let bytes = &self.bytes[..];
        // A codec that fails is not used.
        match &mut self.subject {
            Subject::Context { batch_len, codecs, results, .. } => {
                let point = |codec| in_context(codec, (bytes, *batch_len), &cpu_ns);
                results.extend(try_all(codecs, point));
            }
            Subject::Alone { lens, codecs, results } => {
                let point = |codec| alone(codec, (bytes, lens), &cpu_ns);
                results.extend(try_all(codecs, point));
            }
        }
        self.took_ns = cpu_ns().saturating_sub(began_ns);
    }

    /// The same in virtual time: what each takes is assumed.
    pub fn run_in_no_time(&mut self) {
        self.run(|| 0);
        let sum_ns = match &mut self.subject {
            Subject::Context { results, .. } => assume(results, BatchCodec::assumed_ns),
            Subject::Alone { results, .. } => assume(results, assumed_ns),
        };
        self.took_ns = (sum_ns * self.bytes.len() as f64) as u64;
    }
}

fn try_all<C: Copy>(
    codecs: &[C],
    point: impl Fn(C) -> Result<CodecPoint, CodecError>,
) -> impl Iterator<Item = Tried<C>> {
    codecs.iter().filter_map(move |&codec| Some(Tried { codec, point: point(codec).ok()? }))
}

/// Returns what all take together for a byte.
fn assume<C: Copy>(results: &mut [Tried<C>], assumed_ns: impl Fn(C) -> f64) -> f64 {
    results.iter_mut().for_each(|it| it.point.cost_ns = assumed_ns(it.codec));
    results.iter().map(|it| it.point.cost_ns).sum()
}

fn in_context(
    codec: BatchCodec,
    (bytes, batch_len): (&[u8], usize),
    cpu_ns: &impl Fn() -> u64,
) -> Result<CodecPoint, CodecError> {
    let (before, counted) = bytes.split_at(bytes.len() - bytes.len() / COUNTED_PART);
    if let Some(codec) = codec.outside() {
        let lens: Vec<_> = counted.chunks(batch_len).map(<[u8]>::len).collect();
        return alone(codec, (counted, &lens), cpu_ns);
    }
    let mut encoder = codec.encoder()?;
    let mut out = Vec::new();
    for batch in before.chunks(batch_len) {
        out.clear();
        encoder.compress(batch, &mut out)?;
    }
    let (mut left, began_ns) = (0, cpu_ns());
    for batch in counted.chunks(batch_len) {
        out.clear();
        encoder.compress(batch, &mut out)?;
        left += out.len().min(batch.len());
    }
    Ok(point((left, counted.len()), cpu_ns().saturating_sub(began_ns)))
}

fn alone(
    codec: CodecSpec,
    (bytes, lens): (&[u8], &[usize]),
    cpu_ns: &impl Fn() -> u64,
) -> Result<CodecPoint, CodecError> {
    let mut compressor = Compressor::new(codec, None)?;
    let mut out = vec![0; lens.iter().copied().max().unwrap_or_default()];
    let (mut left, mut rest, began_ns) = (0, bytes, cpu_ns());
    for &len in lens {
        let (batch, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        // What does not become smaller goes as it is.
        let room = &mut out[..batch.len().saturating_sub(1)];
        left += compressor.compress(batch, room)?.unwrap_or(batch.len());
    }
    Ok(point((left, bytes.len()), cpu_ns().saturating_sub(began_ns)))
}

fn point((left, len): (usize, usize), took_ns: u64) -> CodecPoint {
    let len = len.max(1) as f64;
    CodecPoint::new((took_ns as f64 / len).max(COST_NS_MIN), left.max(1) as f64 / len)
}
