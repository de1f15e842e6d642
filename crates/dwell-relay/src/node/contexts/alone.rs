//! The codec of batches that refer to nothing before them, where none is configured.
//!
//! Such batches have no history by which a codec would be bound to what went before, so that each could have another one. What they
//! are, though, is much alike: which of the codecs carries most is found out by trials on what was sent, as for
//! contexts ([`CodecPick`]).

use dwell_base::time::SECOND_NS;
use dwell_base::{Instant, Rate};
use dwell_codec::{CodecId, CodecSpec};
use dwell_policy::method::{Assumed, CodecPick, Processor, Tried};

use super::codec::bytes_a_second;
use super::trial::{CodecTrial, TRIAL_LEN_MAX};

/// The codecs to choose from, with the time that each takes for a byte, in nanoseconds, before it was tried.
const CANDIDATES: [(CodecSpec, f64); 6] = [
    (CodecSpec { id: CodecId::Lz4, level: 1 }, 2.5),
    (CodecSpec { id: CodecId::Zstd, level: 1 }, 10.0),
    (CodecSpec { id: CodecId::Zstd, level: 3 }, 18.0),
    (CodecSpec { id: CodecId::Zstd, level: 6 }, 40.0),
    (CodecSpec { id: CodecId::Zstd, level: 9 }, 70.0),
    (CodecSpec { id: CodecId::Zstd, level: 12 }, 250.0),
];

/// Returns the time for a byte that is assumed of a codec before it was tried.
pub(super) fn assumed_ns(codec: CodecSpec) -> f64 {
    CANDIDATES.iter().find(|it| it.0 == codec).map_or(0.0, |it| it.1)
}

/// A trial has so many bytes, or so many if they took this long to come.
const SAMPLE_LEN_MIN: usize = 24 << 10;
const SAMPLE_NS: u64 = SECOND_NS / 2;

/// Batches that codecs are to be tried on, as they come.
#[derive(Debug)]
struct Sample {
    since: Instant,
    codecs: Vec<CodecSpec>,
    bytes: Vec<u8>,
    /// The length of each.
    lens: Vec<usize>,
}

impl Sample {
    fn add(&mut self, batch: &[u8]) {
        let room = TRIAL_LEN_MAX.saturating_sub(self.bytes.len());
        if room > 0 {
            let batch = &batch[..batch.len().min(room)];
            self.bytes.extend_from_slice(batch);
            self.lens.push(batch.len());
        }
    }

    fn is_enough(&self, now: Instant) -> bool {
        let is_long = now.since_ns(self.since) >= SAMPLE_NS;
        self.bytes.len() >= if is_long { SAMPLE_LEN_MIN } else { TRIAL_LEN_MAX }
    }
}

/// The choice of the codec.
#[derive(Debug)]
pub(in crate::node) struct AloneCodec {
    pick: CodecPick<CodecSpec>,
    sample: Option<Sample>,
}

impl AloneCodec {
    /// Begins with this codec.
    pub(super) fn new(first: CodecSpec) -> Self {
        let assumed = |(codec, cost_ns)| Assumed { codec, cost_ns, receiver_bytes: 0.0 };
        Self { pick: CodecPick::new(&CANDIDATES.map(assumed), first), sample: None }
    }

    pub(super) fn codec(&self) -> Option<CodecSpec> {
        self.pick.present()
    }

    /// A batch is about to be compressed.
    pub(super) fn saw(&mut self, batch: &[u8]) {
        if let Some(sample) = &mut self.sample {
            sample.add(batch);
        }
    }

    /// A batch was compressed with this codec: lengths in bytes.
    pub(in crate::node) fn compressed(&mut self, codec: CodecSpec, lens: (u64, u64), took_ns: u64) {
        if self.codec() == Some(codec) {
            self.pick.compressed(lens.0, lens.1, took_ns);
        }
    }

    /// Looks which codec is best on a link of this rate with so much of a processor, and returns a trial if there is to be
    /// one and there is time for it.
    pub(super) fn review(
        &mut self,
        now: Instant,
        (rate, processor): (Option<Rate>, Processor),
        decodes: impl Fn(CodecId) -> bool,
        may_try: bool,
    ) -> Option<CodecTrial> {
        let link = bytes_a_second(rate);
        let is_possible = |codec: CodecSpec| decodes(codec.id);
        self.pick.set_processor(processor);
        self.pick.review(now, link, is_possible);
        if self.sample.is_none() && may_try {
            let codecs = self.pick.due_trial(now, link, is_possible);
            self.sample = (!codecs.is_empty()).then(|| Sample {
                since: now,
                codecs,
                bytes: Vec::new(),
                lens: Vec::new(),
            });
        }
        let Sample { codecs, bytes, lens, .. } =
            self.sample.take_if(|sample| may_try && sample.is_enough(now))?;
        Some(CodecTrial::alone((bytes, lens), codecs))
    }

    /// Codecs were tried, and that took so long.
    pub(super) fn tried(&mut self, now: Instant, results: &[Tried<CodecSpec>], took_ns: u64) {
        self.pick.tried(now, results, took_ns);
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;
    use dwell_base::time::MILLI_NS;

    use super::*;

    const TEXT: &[u8] = include_bytes!("../../../../../data/text/alice29.txt");
    const FIRST: CodecSpec = CANDIDATES[1].0;

    /// Sends batches over a link of this rate for some seconds, by costs that are assumed.
    fn run(mbps: u64, batch_len: usize, content: impl Fn(usize) -> Vec<u8>) -> AloneCodec {
        let rate = (Some(Rate::from_mbps(mbps)), Processor::default());
        let mut alone = AloneCodec::new(FIRST);
        for turn in 0..100 {
            let now = Instant::from_ns(turn * 50 * MILLI_NS);
            for at in 0..8 {
                let batch = content((turn as usize * 8 + at) * batch_len);
                let codec = alone.codec().unwrap();
                alone.saw(&batch);
                let mut compressor = dwell_codec::Compressor::new(codec, None).unwrap();
                let mut out = vec![0; batch.len()];
                let len = compressor.compress(&batch, &mut out).unwrap().unwrap_or(batch.len());
                let took_ns = assumed_ns(codec) * batch.len() as f64;
                alone.compressed(codec, (batch.len() as u64, len as u64), took_ns as u64);
            }
            if let Some(mut trial) = alone.review(now, rate, |_| true, true) {
                trial.run_in_no_time();
                let super::super::trial::Done::Alone(results) = trial.done() else {
                    panic!("it is of no context")
                };
                alone.tried(now, results, trial.took_ns());
            }
        }
        alone
    }

    fn prose(at: usize, len: usize) -> Vec<u8> {
        let at = at % (TEXT.len() - len);
        TEXT[at..at + len].to_vec()
    }

    #[test]
    fn a_thin_link_gets_a_strong_codec_and_a_fast_one_a_quick_one() {
        let level = |mbps| run(mbps, 16_384, |at| prose(at, 16_384)).codec().unwrap();
        let (thin, fast) = (level(2), level(1_000));
        assert!(thin.id == CodecId::Zstd && thin.level >= 6, "{thin}");
        assert!(fast.id == CodecId::Lz4 || fast.level == 1, "{fast}");
    }

    #[test]
    fn what_can_t_be_compressed_changes_nothing() {
        let noise = |at: usize| {
            let mut rng = Rng::from_seed(at as u64);
            (0..16_384).map(|_| rng.below(256) as u8).collect()
        };
        let codec = run(10, 16_384, noise).codec().unwrap();
        assert!(codec == FIRST || codec.id == CodecId::Lz4, "{codec}");
    }

    #[test]
    fn what_the_peer_can_t_decode_is_not_used() {
        let rate = (Some(Rate::from_mbps(2)), Processor::default());
        let mut alone = AloneCodec::new(FIRST);
        for turn in 0..40 {
            alone.saw(&prose(turn * 30_000, 30_000));
            alone.compressed(alone.codec().unwrap(), (30_000, 13_000), 300_000);
            let now = Instant::from_ns(turn as u64 * 50 * MILLI_NS);
            let lz4_only = |id| id == CodecId::Lz4;
            if let Some(mut trial) = alone.review(now, rate, lz4_only, true) {
                trial.run_in_no_time();
                let super::super::trial::Done::Alone(results) = trial.done() else { panic!() };
                alone.tried(now, results, trial.took_ns());
            }
        }
        assert_eq!(alone.codec().map(|codec| codec.id), Some(CodecId::Lz4));
    }

    #[test]
    fn a_sample_is_never_longer_than_what_is_tried() {
        let mut alone = AloneCodec::new(FIRST);
        let (since, codecs) = (Instant::ZERO, vec![FIRST]);
        alone.sample = Some(Sample { since, codecs, bytes: Vec::new(), lens: Vec::new() });
        (0..40).for_each(|at| alone.saw(&prose(at * 1_000, 60_000)));
        let sample = alone.sample.as_ref().unwrap();
        assert_eq!((sample.bytes.len(), sample.lens.len()), (TRIAL_LEN_MAX, 4));
        assert_eq!(sample.lens.iter().sum::<usize>(), TRIAL_LEN_MAX);
    }

    /// Many short packets beside a few long batches: codecs are tried on each as it was.
    #[test]
    fn short_packets_do_not_cut_long_batches() {
        let content =
            |at: usize| prose(at, if (at / 16_384).is_multiple_of(2) { 60 } else { 16_384 });
        let codec = run(2, 16_384, content).codec().unwrap();
        assert!(codec.id == CodecId::Zstd && codec.level >= 6, "{codec}");
    }
}
