//! The codec of a context, where none is configured: tried on what went through it, and picked.

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_base::Rate;
use dwell_base::time::SECOND_NS;
use dwell_codec::{
    Base, CodecError, CodecId, CodecSpec, ContextEncoder, ContextSpec, MixSpec, ModelSpec,
    PPM_MEMORY_LOG_MIN, PpmSpec,
};
use dwell_policy::method::{Assumed, CodecPick, Processor, Tried};
use dwell_wire::ModelOffer;

use super::begin::Coder;
use super::incoming::model_bytes;
use crate::config::PICKED_LEVEL_MAX;

/// What batches can be compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchCodec {
    /// lz4, outside of the context: as fast as anything is, and what refers to nothing need not be kept.
    Lz4,
    /// zstd with this level.
    Zstd(i32),
    /// A model of this order.
    Ppm(u8),
    /// A model that mixes contexts.
    Mix,
}

/// The codecs to choose from, with the time that each takes for a byte, in nanoseconds, before it was tried;
/// that of a model is also what the receiver takes.
const CANDIDATES: [(BatchCodec, f64); 12] = [
    (BatchCodec::Lz4, 2.5),
    (BatchCodec::Zstd(-3), 4.0),
    (BatchCodec::Zstd(1), 7.0),
    (BatchCodec::Zstd(3), 11.0),
    (BatchCodec::Zstd(6), 20.0),
    (BatchCodec::Zstd(9), 30.0),
    (BatchCodec::Zstd(12), 60.0),
    (BatchCodec::Zstd(PICKED_LEVEL_MAX), 110.0),
    (BatchCodec::Ppm(4), 100.0),
    (BatchCodec::Ppm(6), 180.0),
    // Of lines that are much alike, as telemetry and logs, it leaves a tenth less than order 6.
    (BatchCodec::Ppm(12), 240.0),
    // Of such lines it leaves a fourth less again.
    (BatchCodec::Mix, 800.0),
];
/// Nothing is compressed outside of contexts on links slower than this, in bits a second: there is time enough for what leaves
/// less.
pub(super) const OUTSIDE_RATE_BPS_MIN: u64 = 300_000_000;
/// What is compressed outside of contexts stays so down to this rate.
const OUTSIDE_KEPT_RATE_BPS_MIN: u64 = 240_000_000;
/// Contexts are not mixed on links faster than this, in bits a second: a megabyte or two a second is what a processor mixes, and
/// lines that become a twentieth would need five of them. To try it takes a fifth of a second, which would be for
/// nothing there.
const MIX_RATE_BPS_MAX: u64 = 2_000_000;
/// One that is mixed stays so up to this rate: those that are found, and shares of a link, go up and down a little.
const MIX_KEPT_RATE_BPS_MAX: u64 = 2_500_000;
/// Before anything was tried, by the link's rate in bits a second.
const FIRST: [(u64, BatchCodec); 3] = [
    (20_000_000, BatchCodec::Zstd(6)),
    (100_000_000, BatchCodec::Zstd(3)),
    (400_000_000, BatchCodec::Zstd(1)),
];
const LZ4: CodecSpec = CodecSpec { id: CodecId::Lz4, level: 1 };
const FIRST_OF_FAST: BatchCodec = BatchCodec::Zstd(1);
/// Of a quota the first codec is assumed to take no more than this part, of bytes of which it leaves so much.
const FIRST_PART: f64 = 0.25;
const FIRST_RATIO: f64 = 0.4;
/// Batches that enter a context of which others are compressed outside are compressed with this level.
const LEVEL_BESIDE_LZ4: i32 = -3;
/// Batches that can't have the model that was picked are compressed with this level.
const LEVEL_WITHOUT_MODEL: i32 = 6;

/// A sample of what is compressed outside of contexts that was given up is tried again after so long.
const SAMPLE_APART_NS: u64 = 10 * SECOND_NS;

const TRIAL_LOG: u8 = 18;
/// A model is tried with less memory than it has in use: there is less that it could learn.
const TRIAL_MODEL_LOG: u8 = PPM_MEMORY_LOG_MIN + 2;

impl BatchCodec {
    /// Returns the codec to begin with, where so many processors may be had in all, if that is limited.
    pub(super) fn first(rate: Option<Rate>, quota: Option<f64>) -> Self {
        let takes = |codec: Self, bps: u64| codec.assumed_ns() * bps as f64 / 8e9 / FIRST_RATIO;
        let is_for = |&&(most, codec): &&(u64, Self)| {
            let is_enough = |bps| quota.is_none_or(|quota| takes(codec, bps) <= FIRST_PART * quota);
            rate.map(Rate::as_bps).is_some_and(|bps| bps <= most && is_enough(bps))
        };
        let is_fast = rate.is_some_and(|rate| rate.as_bps() >= OUTSIDE_RATE_BPS_MIN);
        let else_ = if is_fast { Self::Lz4 } else { FIRST_OF_FAST };
        FIRST.iter().find(is_for).map_or(else_, |&(_, codec)| codec)
    }

    pub(super) fn pick(first: Self) -> CodecPick<Self> {
        let assumed = |(codec, cost_ns)| {
            let receiver_bytes = match codec {
                Self::Lz4 | Self::Zstd(_) => 0.0,
                Self::Ppm(_) => 1.0,
                Self::Mix => model_bytes(Some(CodecId::Mix)) as f64,
            };
            Assumed { codec, cost_ns, receiver_bytes }
        };
        CodecPick::new(&CANDIDATES.map(assumed), first)
    }

    /// Returns what batches are compressed with, by the configured coder that allows for any codec.
    pub(super) fn coder(self, configured: Coder, memory_log: u8) -> Coder {
        let (level, model) = match self {
            Self::Lz4 => (LEVEL_BESIDE_LZ4, None),
            Self::Zstd(level) => (level, None),
            model => (LEVEL_WITHOUT_MODEL, model.model(memory_log)),
        };
        Coder { zstd: ContextSpec { level, ..configured.zstd }, model }
    }

    /// Returns its model with this memory, if it has one.
    fn model(self, memory_log: u8) -> Option<ModelSpec> {
        match self {
            Self::Lz4 | Self::Zstd(_) => None,
            Self::Ppm(order) => Some(PpmSpec { order, memory_log }.into()),
            Self::Mix => Some(MixSpec { memory_log }.into()),
        }
    }

    /// Returns the codec of what is compressed outside of contexts.
    pub(super) fn outside(self) -> Option<CodecSpec> {
        (self == Self::Lz4).then_some(LZ4)
    }

    /// Returns true if it is a model.
    pub(super) fn is_model(self) -> bool {
        matches!(self, Self::Ppm(_) | Self::Mix)
    }

    /// Makes an encoder to try it.
    pub(super) fn encoder(self) -> Result<ContextEncoder, CodecError> {
        let level = match self {
            Self::Zstd(level) => level,
            _ => LEVEL_WITHOUT_MODEL,
        };
        let mut encoder =
            ContextEncoder::new(ContextSpec { level, window_log: TRIAL_LOG }, TRIAL_LOG)?;
        if let Some(model) = self.model(TRIAL_MODEL_LOG) {
            encoder.begin_model(model, Base::default())?;
        }
        Ok(encoder)
    }

    /// Returns the codec of this coder.
    fn of(coder: Coder) -> Self {
        match coder.model {
            Some(ModelSpec::Ppm(model)) => Self::Ppm(model.order),
            Some(ModelSpec::Mix(_)) => Self::Mix,
            None => Self::Zstd(coder.zstd.level),
        }
    }

    /// Returns true if this codec takes at least as long as another of its kind.
    fn is_as_strong(self, other: Self) -> bool {
        match (self, other) {
            (Self::Zstd(own), Self::Zstd(other)) => own >= other,
            (Self::Ppm(own), Self::Ppm(other)) => own >= other,
            (Self::Mix, Self::Mix) | (Self::Lz4, Self::Lz4) => true,
            _ => false,
        }
    }

    /// Returns the time for a byte that is assumed of this codec, or of the one of its kind that is next.
    pub(super) fn assumed_ns(self) -> f64 {
        let stronger = CANDIDATES.iter().find(|it| it.0.is_as_strong(self));
        let weaker = CANDIDATES.iter().rfind(|it| self.is_as_strong(it.0));
        stronger.or(weaker).map_or(0.0, |it| it.1)
    }
}

/// Returns the time for a byte that is assumed of what batches are compressed with.
pub(super) fn assumed_ns(coder: Coder) -> f64 {
    BatchCodec::of(coder).assumed_ns()
}

/// Where a context stands with the choice of its codec.
#[derive(Debug)]
pub(super) struct Picking {
    /// No sample is taken before: what was to come for one did not.
    sample_from: Instant,
    pick: CodecPick<BatchCodec>,
    batches: u64,
    bytes: u64,
}

impl Picking {
    /// Begins with what was found for another context of the peer, if there is one.
    pub(super) fn new(
        (rate, quota): (Option<Rate>, Option<f64>),
        other: Option<&CodecPick<BatchCodec>>,
    ) -> Self {
        let first = || BatchCodec::pick(BatchCodec::first(rate, quota));
        let pick = other.map_or_else(first, CodecPick::for_another);
        Self { sample_from: Instant::ZERO, pick, batches: 0, bytes: 0 }
    }

    pub(super) fn codec(&self) -> BatchCodec {
        self.pick.present().unwrap_or(FIRST_OF_FAST)
    }

    /// A batch was compressed outside of the context.
    pub(super) fn compressed_outside(&mut self, lens: (u64, u64), took_ns: u64) {
        if self.codec().outside().is_some() {
            self.pick.compressed(lens.0, lens.1, took_ns);
            (self.batches, self.bytes) = (self.batches + 1, self.bytes + lens.0);
        }
    }

    /// A batch was compressed with this codec: lengths in bytes.
    pub(super) fn compressed(&mut self, coder: Coder, lens: (u64, u64), took_ns: u64) {
        if BatchCodec::of(coder) == self.codec() {
            self.pick.compressed(lens.0, lens.1, took_ns);
            (self.batches, self.bytes) = (self.batches + 1, self.bytes + lens.0);
        }
    }

    /// Returns the codecs that are to be tried now, and the length of a batch.
    pub(super) fn due_trial(
        &mut self,
        now: Instant,
        rate: Option<Rate>,
        decodes: Decodes,
    ) -> Option<(Vec<BatchCodec>, usize)> {
        let list =
            self.pick.due_trial(now, bytes_a_second(rate), possible(self.codec(), decodes, rate));
        let batch_len = self.bytes / self.batches.max(1);
        (self.batches, self.bytes) = (0, 0);
        (!list.is_empty()).then_some((list, batch_len as usize))
    }

    /// Codecs were tried, and that took so long. Returns what is known now.
    pub(super) fn tried(
        &mut self,
        now: Instant,
        (results, took_ns): (&[Tried<BatchCodec>], u64),
    ) -> &CodecPick<BatchCodec> {
        self.pick.tried(now, results, took_ns);
        &self.pick
    }

    /// Too little came for the sample that codecs were to be tried on: none is taken for a while.
    pub(super) fn came_too_little(&mut self, now: Instant) {
        self.sample_from = now + SAMPLE_APART_NS;
        self.refused();
    }

    /// Returns true if a sample may be taken now.
    pub(super) fn may_take_sample(&self, now: Instant) -> bool {
        now >= self.sample_from && self.codec().outside().is_some()
    }

    /// There was no time for the trial that was due.
    pub(super) fn refused(&mut self) {
        self.pick.refused();
    }

    /// Looks which codec is best now, over a link of this rate to a receiver that has time for so much from models.
    pub(super) fn review(
        &mut self,
        now: Instant,
        (rate, receiver): (Option<Rate>, Option<Rate>),
        decodes: Decodes,
        processor: Processor,
    ) {
        let is_possible = possible(self.codec(), decodes, rate);
        if !is_possible(self.codec()) && self.pick.knows_nothing() {
            let first = BatchCodec::first(rate, None);
            let is_lz4 = first == BatchCodec::Lz4;
            self.pick = BatchCodec::pick(if is_lz4 { FIRST_OF_FAST } else { first });
        }
        self.pick.set_processor(processor);
        self.pick.set_receiver(bytes_a_second(receiver));
        self.pick.review(now, bytes_a_second(rate), possible(self.codec(), decodes, rate));
    }
}

pub(super) fn bytes_a_second(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.as_bps() as f64 / 8.0)
}

/// What the peer decodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decodes {
    /// lz4, outside of contexts.
    pub(super) lz4: bool,
    /// Models in the context.
    pub(super) models: Option<ModelOffer>,
}

/// Returns which codecs a context may have that has this one, over a link of this rate to such a peer.
fn possible(
    present: BatchCodec,
    Decodes { lz4, models }: Decodes,
    rate: Option<Rate>,
) -> impl Fn(BatchCodec) -> bool {
    let is_outside = present == BatchCodec::Lz4;
    let least_bps = if is_outside { OUTSIDE_KEPT_RATE_BPS_MIN } else { OUTSIDE_RATE_BPS_MIN };
    let is_fast = rate.is_some_and(|rate| rate.as_bps() >= least_bps);
    let is_mixed = present == BatchCodec::Mix;
    let most_bps = if is_mixed { MIX_KEPT_RATE_BPS_MAX } else { MIX_RATE_BPS_MAX };
    let is_thin = rate.is_some_and(|rate| rate.as_bps() <= most_bps);
    move |codec| match codec {
        BatchCodec::Lz4 => is_fast && lz4,
        BatchCodec::Zstd(_) => true,
        BatchCodec::Ppm(_) => models.is_some(),
        BatchCodec::Mix => is_thin && models.is_some_and(|it| it.takes_mixed),
    }
}

/// Counts coders by the names that users write, or codecs of what is compressed outside.
pub(super) fn count(
    coders: impl Iterator<Item = (Coder, Option<CodecSpec>)>,
) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (coder, outside) in coders {
        let name = match coder.model {
            _ if let Some(outside) = outside => outside.to_string(),
            Some(ModelSpec::Ppm(model)) => format!("ppm:{}", model.order),
            Some(ModelSpec::Mix(_)) => "mix".to_owned(),
            None => format!("zstd:{}", coder.zstd.level),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::trial::{CodecTrial, Done};
    use super::*;

    #[test]
    fn a_small_quota_begins_with_a_cheap_codec() {
        let first = |mbps, quota| BatchCodec::first(Some(Rate::from_mbps(mbps)), quota);
        for quota in [None, Some(0.5), Some(0.25)] {
            assert_eq!([2, 10].map(|mbps| first(mbps, quota)), [BatchCodec::Zstd(6); 2]);
        }
        let small = [2, 10, 50, 200].map(|mbps| first(mbps, Some(0.1)));
        assert_eq!(small[0], BatchCodec::Zstd(6));
        assert_eq!(small[1..], [BatchCodec::Zstd(1); 3]);
        assert_eq!(BatchCodec::first(None, Some(0.1)), FIRST_OF_FAST);
        assert_eq!(first(500, Some(0.1)), BatchCodec::Lz4);
        let fast = [400, 401, 1_000].map(|mbps| first(mbps, None));
        assert_eq!(fast, [BatchCodec::Zstd(1), BatchCodec::Lz4, BatchCodec::Lz4]);
    }

    const NMEA: &[u8] = include_bytes!("../../../../../data/telemetry/zed-f9p.nmea");

    /// What each leaves of what went through a context in batches of one line, in a trial.
    #[test]
    fn a_long_context_pays_for_lines_of_telemetry() {
        let spec = ContextSpec { level: 1, window_log: TRIAL_LOG };
        let mut encoder = ContextEncoder::new(spec, TRIAL_LOG).unwrap();
        let mut out = Vec::new();
        for line in NMEA.split_inclusive(|&byte| byte == b'\n').take(3_000) {
            out.clear();
            encoder.compress(line, &mut out).unwrap();
        }
        let codecs = [BatchCodec::Zstd(6), BatchCodec::Ppm(6), BatchCodec::Ppm(12)].to_vec();
        let mut trial = CodecTrial::of_context(1, &encoder, 94, codecs);
        trial.run_in_no_time();
        let Done::Context(_, results) = trial.done() else { panic!("it is of a context") };
        let ratios: Vec<_> = results.iter().map(|it| it.point.ratio).collect();
        let [zstd, six, twelve] = ratios[..] else { panic!("{ratios:?}") };
        assert!(twelve < 0.97 * six && six < zstd, "{ratios:?}");
    }
}
