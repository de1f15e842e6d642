//! Estimates of each codec's cost and ratio on the data of one stream.

use crate::estimate::smoothed;

use super::bound::CodecPoint;
use super::hull::TriedAside;

/// The weight of a measurement in an estimate.
const GAIN: f64 = 0.3;
/// The weight of a measured cost above the estimate, and the multiple of the estimate that it
/// counts as at most: a thread that was interrupted seems to be slow for a while, but codecs are
/// not.
const GAIN_UP: f64 = 0.1;
const OUTLIER: f64 = 3.0;
/// The weight, on a logarithmic scale, of a measurement in the savings of the other codecs: data
/// that are harder for one are more or less harder for all.
const SHARED: f64 = 0.6;
/// A saving is never taken to be less, so that it can rise again.
const SAVING_MIN: f64 = 0.005;
const SAVING_MAX: f64 = 0.995;

/// The cost and the ratio of referring to earlier blocks, relative to compressing a block on its
/// own; before it was measured.
const REFERRING_COST: f64 = 1.4;
const REFERRING_RATIO: f64 = 0.92;
/// The same of going on with a running context.
const CONTINUING_COST: f64 = 1.2;
const CONTINUING_RATIO: f64 = 0.88;
/// The weight of a measurement in what a context brings on these data, and what it brings at most and at least.
const CONTINUING_GAIN: f64 = 0.1;
const CONTINUING_RATIOS: (f64, f64) = (0.3, 1.05);

/// The cost of each byte that a block may refer to, relative to that of its own bytes; and the length
/// of a full history, relative to that of a full block.
const HISTORY_COST: f64 = 0.25;
const HISTORY_BLOCKS: f64 = 2.0;

/// Returns the bytes that compressing a block costs as much as, in terms of full blocks with a full
/// history: what is referred to has to be read, however short the block is.
fn work_len(rereads: bool, len: usize, history_len: usize) -> f64 {
    match rereads {
        false => len as f64,
        true => {
            (len as f64 + HISTORY_COST * history_len as f64) / (1.0 + HISTORY_COST * HISTORY_BLOCKS)
        }
    }
}

/// The codec with which a block is compressed. `C` is the world's name for a codec and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<C> {
    /// The codec.
    pub codec: C,
    /// True if it refers to earlier blocks, if there are any that it can refer to; or goes on with the running
    /// context.
    pub refers: bool,
}

impl<C> Choice<C> {
    /// Makes the choice of a codec without references.
    pub const fn alone(codec: C) -> Self {
        Self { codec, refers: false }
    }
}

/// What is assumed of a codec before anything was measured. Only the order and rough distances of
/// such assumptions matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior<C> {
    /// The codec.
    pub codec: C,
    /// Processor time for each byte of the original, in nanoseconds; above 0.
    pub cost_ns: f64,
    /// 1 − ratio, from 0.005 to 0.995.
    pub saving: f64,
    /// What blocks compressed with it may refer to.
    pub refers: Referring,
}

/// What blocks compressed with a codec may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Referring {
    /// To nothing: each stands alone.
    #[default]
    Never,
    /// To what came just before, which has to be read for each block; or each stands alone.
    Rereads,
    /// To all that went through a running context, which is of one codec at a time; or each stands alone.
    Continues,
    /// As before, but it is too slow for blocks that stand alone.
    OnlyContinues,
    /// As before, and what it makes takes as long to restore as to compress.
    Predicts,
    /// As before, and so long that a link that is not the thinnest would wait for either end.
    PredictsSlowly,
}

impl Referring {
    /// Returns true if blocks may stand alone.
    const fn stands_alone(self) -> bool {
        !matches!(self, Self::OnlyContinues | Self::Predicts | Self::PredictsSlowly)
    }

    /// Returns true if it is a running context that blocks refer to.
    pub const fn continues(self) -> bool {
        matches!(self, Self::Continues | Self::OnlyContinues) || self.takes_receiver()
    }

    /// Returns true if it takes as long to restore as to compress.
    const fn takes_receiver(self) -> bool {
        matches!(self, Self::Predicts | Self::PredictsSlowly)
    }
}

/// The result of compressing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured<C> {
    /// The codec with which it was done.
    pub choice: Choice<C>,
    /// The length before, in bytes; not zero.
    pub original_len: usize,
    /// The length of what it could refer to, in bytes.
    pub history_len: usize,
    /// The length of what is sent of it, in bytes: `original_len` if the result is of no use.
    pub used_len: usize,
    /// The time that compressing took, in nanoseconds.
    pub took_ns: u64,
    /// The time until the result was there, if others did it and that is more: waiting for them, and they for the processor.
    pub away_ns: u64,
    /// True if the codec was made for it: tables that were never touched take several times as long, once, so that these times say
    /// nothing.
    pub is_first: bool,
}

/// The estimates for a list of codecs.
#[derive(Clone, Debug)]
pub(super) struct CodecEstimates<C> {
    codecs: Vec<CodecEstimate<C>>,
    /// What a running context leaves of blocks, relative to what the same codec leaves of each on its own: on dumps and logs much
    /// less than on most data, and with all codecs alike.
    continuing_ratio: f64,
}

/// The estimate for one codec.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodecEstimate<C> {
    pub(super) choice: Choice<C>,
    pub(super) cost_ns: f64,
    /// 1 − ratio.
    saving: f64,
    /// Blocks since it was last measured; none if never.
    pub(super) age: Option<u32>,
    /// True if it was measured what it costs, and not only what it leaves.
    has_cost: bool,
    /// True if it goes on with a running context.
    pub(super) continues: bool,
    /// True if what it makes takes as long to restore, ...
    pub(super) takes_receiver: bool,
    /// ... and long.
    pub(super) is_slow: bool,
}

impl<C: Copy> CodecEstimate<C> {
    /// The estimate before the codec was used.
    fn prior(prior: &Prior<C>) -> Self {
        let &Prior { codec, cost_ns, saving, .. } = prior;
        let takes_receiver = prior.refers.takes_receiver();
        let choice = Choice::alone(codec);
        Self {
            choice,
            cost_ns,
            saving,
            age: None,
            has_cost: false,
            continues: false,
            takes_receiver,
            is_slow: prior.refers == Referring::PredictsSlowly,
        }
    }

    /// The same for blocks that refer to earlier ones.
    fn prior_of_referring(prior: &Prior<C>) -> Self {
        let alone = Self::prior(prior);
        let choice = Choice { codec: prior.codec, refers: true };
        let mut estimate = Self { choice, continues: prior.refers.continues(), ..alone };
        // There is no model that stands alone, from which it could differ.
        if !alone.takes_receiver {
            estimate.follow(&alone, CONTINUING_RATIO);
        }
        estimate
    }

    pub(super) fn point(&self) -> CodecPoint {
        CodecPoint::new(self.cost_ns, 1.0 - self.saving)
    }

    /// Returns the time that compressing a block of this length takes, in nanoseconds.
    pub(super) fn work_ns(&self, len: usize, history_len: usize) -> f64 {
        self.cost_ns * work_len(self.rereads(), len, history_len)
    }

    const fn rereads(&self) -> bool {
        self.choice.refers && !self.continues
    }

    /// Follows a measurement of the same codec with the opposite use of references.
    fn follow(&mut self, sibling: &Self, continuing_ratio: f64) {
        let (cost, ratio) = match self.continues || sibling.continues {
            true => (CONTINUING_COST, continuing_ratio),
            false => (REFERRING_COST, REFERRING_RATIO),
        };
        let (cost, ratio) = match self.choice.refers {
            true => (cost, ratio),
            false => (1.0 / cost, 1.0 / ratio),
        };
        self.cost_ns = cost * sibling.cost_ns;
        self.saving = (1.0 - ratio * (1.0 - sibling.saving)).clamp(SAVING_MIN, SAVING_MAX);
    }
}

impl<C: Copy + PartialEq> CodecEstimates<C> {
    /// Makes the estimates before anything was measured; the cheapest codec first.
    pub(super) fn new(priors: &[Prior<C>]) -> Self {
        let alone = priors.iter().filter(|prior| prior.refers.stands_alone());
        let mut codecs: Vec<_> = alone.map(CodecEstimate::prior).collect();
        let referring = priors.iter().filter(|prior| prior.refers != Referring::Never);
        codecs.extend(referring.map(CodecEstimate::prior_of_referring));
        codecs.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns));
        codecs.dedup_by_key(|estimate| estimate.choice);
        Self { codecs, continuing_ratio: CONTINUING_RATIO }
    }

    /// Returns true if both are for the same list of codecs.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.codecs.iter().map(|one| one.choice).eq(other.codecs.iter().map(|one| one.choice))
    }

    /// Learns what another list for the same data knows of codecs whose blocks stand alone, as if it had been measured here; and of
    /// those that refer to what came just before, which to go on with a context leaves no less of.
    pub(super) fn know(&mut self, other: &Self) {
        const LEN: f64 = 65_536.0;
        let measured = other.codecs.iter().filter(|known| known.age.is_some());
        for known in measured.clone().filter(|known| !known.choice.refers) {
            let CodecPoint { cost_ns, ratio, .. } = known.point();
            let result = Measured {
                choice: known.choice,
                original_len: LEN as usize,
                history_len: 0,
                used_len: (ratio * LEN) as usize,
                took_ns: (cost_ns * LEN) as u64,
                away_ns: 0,
                is_first: !known.has_cost,
            };
            self.measured(&result, false);
        }
        for known in measured.filter(|known| known.rereads()) {
            let is_same = |estimate: &&mut CodecEstimate<C>| {
                estimate.continues && estimate.choice.codec == known.choice.codec
            };
            if let Some(estimate) = self.codecs.iter_mut().find(is_same) {
                estimate.saving = estimate.saving.max(known.saving);
                estimate.cost_ns = known.cost_ns * CONTINUING_COST / REFERRING_COST;
            }
        }
    }

    /// Returns true if any of it was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.codecs.iter().any(|codec| codec.age.is_some())
    }

    pub(super) fn all(&self) -> &[CodecEstimate<C>] {
        &self.codecs
    }

    /// Learns from a result. The first one of a codec shows how far off assumptions are, but nothing of codecs that were measured
    /// before. With that of a `message` it is all that shows it, as there may be few others soon.
    pub(super) fn measured(&mut self, result: &Measured<C>, message: bool) {
        let Some(at) = self.codecs.iter().position(|e| e.choice == result.choice) else { return };
        let len = result.original_len as f64;
        let ratio = result.used_len as f64 / len;
        let rereads = self.codecs[at].rereads();
        let work_len = work_len(rereads, result.original_len, result.history_len);
        let cost_ns = result.took_ns as f64 / work_len;
        let first = self.codecs[at].age.is_none();
        let gain = if first { 1.0 } else { GAIN };
        let here = &mut self.codecs[at];
        let (cost_before, saving_before) = (here.cost_ns, here.saving);
        let is_first_cost = !here.has_cost && !result.is_first;
        let cost_gain = match cost_ns < here.cost_ns {
            _ if result.is_first => 0.0,
            _ if is_first_cost => 1.0,
            true => GAIN,
            false => GAIN_UP,
        };
        // Also the first: it may have been interrupted. A codec that is believed to be slow is
        // hardly used, and so not measured again.
        let believed_ns = cost_ns.min(OUTLIER * here.cost_ns);
        here.cost_ns = smoothed(here.cost_ns, believed_ns, cost_gain);
        here.has_cost |= !result.is_first;
        let saving = smoothed(here.saving, 1.0 - ratio, gain);
        here.saving = saving.clamp(SAVING_MIN, SAVING_MAX);
        let harder = (here.saving / saving_before).powf(SHARED);
        let shorter = (1.0 - here.saving) / (1.0 - saving_before);
        // A machine that is slower than that of the priors is slower with all codecs.
        let slower = if is_first_cost { here.cost_ns / cost_before } else { 1.0 };
        let measured = self.codecs[at];
        for (other, estimate) in self.codecs.iter_mut().enumerate() {
            if other == at {
                estimate.age = Some(0);
                continue;
            }
            if estimate.age.is_none() && estimate.choice.codec == result.choice.codec {
                estimate.follow(&measured, self.continuing_ratio);
                continue;
            }
            // What was assumed of it is as far off as that of the one that was measured.
            if !estimate.has_cost {
                estimate.cost_ns *= slower.clamp(0.2, 5.0);
            }
            match &mut estimate.age {
                // What was assumed of a codec is no measure of the data.
                Some(age) => {
                    *age = age.saturating_add(1);
                    estimate.saving *= if first { 1.0 } else { harder };
                }
                None => {
                    estimate.saving = match first && message && shorter < 1.0 {
                        true => 1.0 - shorter * (1.0 - estimate.saving),
                        false => estimate.saving * harder,
                    };
                }
            }
            estimate.saving = estimate.saving.clamp(SAVING_MIN, SAVING_MAX);
        }
        if measured.continues {
            self.learn_continuing(&measured);
        }
    }

    /// Learns from a trial beside what was sent: the codec leaves as much less, or more, than the other one where both go on.
    pub(super) fn tried_aside(&mut self, tried: &TriedAside<C>) {
        let place = |codec: C| self.codecs.iter().position(|it| it.choice.codec == codec);
        let (Some(at), Some(with)) = (place(tried.codecs.0), place(tried.codecs.1)) else { return };
        let ratio = tried.lens.0 as f64 / tried.lens.1.max(1) as f64;
        let saving = 1.0 - ratio * (1.0 - self.codecs[with].saving);
        let codec = &mut self.codecs[at];
        codec.saving = saving.clamp(SAVING_MIN, SAVING_MAX);
        (codec.cost_ns, codec.has_cost, codec.age) = (tried.cost_ns, true, Some(0));
    }

    /// Learns from a codec what the context brings, and by that what others would leave with it that were not tried.
    fn learn_continuing(&mut self, measured: &CodecEstimate<C>) {
        let alone = |codec: C, codecs: &[CodecEstimate<C>]| {
            let is_it = |it: &&CodecEstimate<C>| it.choice == Choice::alone(codec);
            codecs.iter().find(is_it).filter(|it| it.age.is_some()).copied()
        };
        let Some(sibling) = alone(measured.choice.codec, &self.codecs) else { return };
        let (most, least) = CONTINUING_RATIOS;
        let ratio = ((1.0 - measured.saving) / (1.0 - sibling.saving)).clamp(most, least);
        self.continuing_ratio = smoothed(self.continuing_ratio, ratio, CONTINUING_GAIN);
        for at in 0..self.codecs.len() {
            let CodecEstimate { choice, continues, age, .. } = self.codecs[at];
            if let (true, None, Some(sibling)) = (continues, age, alone(choice.codec, &self.codecs))
            {
                let saving = 1.0 - self.continuing_ratio * (1.0 - sibling.saving);
                self.codecs[at].saving = saving.clamp(SAVING_MIN, SAVING_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Codec = &'static str;

    fn result(codec: Codec, compressed_len: Option<usize>, took_ns: u64) -> Measured<Codec> {
        let used_len = compressed_len.unwrap_or(1000);
        Measured {
            choice: Choice::alone(codec),
            original_len: 1000,
            history_len: 2000,
            used_len,
            took_ns,
            away_ns: 0,
            is_first: false,
        }
    }

    fn prior(codec: Codec, cost_ns: f64, saving: f64, may_refer: bool) -> Prior<Codec> {
        let refers = if may_refer { Referring::Rereads } else { Referring::Never };
        Prior { codec, cost_ns, saving, refers }
    }

    fn estimates() -> CodecEstimates<Codec> {
        CodecEstimates::new(&[
            prior("zstd:9", 45.0, 0.63, false),
            prior("lz4", 2.3, 0.40, false),
            prior("zstd:1", 5.5, 0.56, false),
        ])
    }

    #[test]
    fn what_a_context_brings_one_codec_it_brings_others() {
        let prior = |codec, cost_ns, saving| Prior {
            refers: Referring::Continues,
            ..prior(codec, cost_ns, saving, false)
        };
        let mut estimates = CodecEstimates::new(&[
            prior("zstd:1", 5.5, 0.56),
            prior("zstd:3", 9.5, 0.59),
            prior("zstd:9", 45.0, 0.63),
        ]);
        // A dump: each block by itself becomes half, and with those before it a quarter.
        let running = Choice { codec: "zstd:1", refers: true };
        for _ in 0..40 {
            estimates.measured(&result("zstd:1", Some(500), 5_500), false);
            estimates.measured(&result("zstd:3", Some(480), 9_500), false);
            let result = Measured { choice: running, ..result("zstd:1", Some(250), 6_000) };
            estimates.measured(&result, false);
        }
        let ratio = |codec| {
            let choice = Choice { codec, refers: true };
            estimates.codecs.iter().find(|it| it.choice == choice).unwrap().point().ratio
        };
        assert!((ratio("zstd:3") - 0.24).abs() < 0.01, "{}", ratio("zstd:3"));
        assert!(ratio("zstd:9") < 0.3, "nothing is known of it: {}", ratio("zstd:9"));
    }

    #[test]
    fn what_is_known_of_the_data_is_known_to_other_lists() {
        let context = |codec, cost_ns, saving, refers| Prior { codec, cost_ns, saving, refers };
        let mut before = CodecEstimates::new(&[
            prior("lz4", 2.3, 0.40, false),
            prior("zstd:1", 5.5, 0.56, true),
            prior("zstd:9", 45.0, 0.63, true),
        ]);
        before.measured(&result("zstd:1", Some(200), 2_000), false);
        let choice = Choice { codec: "zstd:9", refers: true };
        let nine = Measured { choice, ..result("zstd:9", Some(150), 15_000) };
        before.measured(&nine, false);
        let mut after = CodecEstimates::new(&[
            prior("lz4", 2.3, 0.40, false),
            context("zstd:1", 5.5, 0.56, Referring::Continues),
            context("zstd:9", 45.0, 0.63, Referring::Continues),
            context("ppm", 95.0, 0.75, Referring::Predicts),
        ]);
        after.know(&before);
        let of = |codec, refers| {
            let choice = Choice { codec, refers };
            *after.codecs.iter().find(|estimate| estimate.choice == choice).unwrap()
        };
        let alone = of("zstd:1", false);
        assert!((alone.point().ratio - 0.2).abs() < 1e-3 && alone.age == Some(0));
        assert!((alone.cost_ns - 2.0).abs() < 1e-3);
        assert!(of("zstd:1", true).point().ratio < 0.2, "as a context is taken to gain something");
        assert!(of("zstd:9", true).point().ratio < 0.151, "no less than the history");
        assert_eq!(of("zstd:9", true).age, None);
        let ppm = of("ppm", true);
        assert!(ppm.saving > 0.85 && ppm.cost_ns < 95.0, "easy data, and a fast machine: {ppm:?}");
    }

    #[test]
    fn what_refers_is_known_apart_from_what_does_not() {
        let mut estimates = CodecEstimates::new(&[
            prior("lz4", 2.3, 0.40, false),
            prior("zstd:-5", 2.8, 0.42, false),
            prior("zstd:1", 5.5, 0.56, true),
        ]);
        let choices: Vec<_> = estimates.all().iter().map(|e| e.choice).collect();
        let zstd = |refers| Choice { codec: "zstd:1", refers };
        assert_eq!(choices[2..], [zstd(false), zstd(true)], "{choices:?}");
        estimates.measured(&result("zstd:1", Some(500), 6000), false);
        let derived = estimates.all()[3].point();
        assert!((derived.ratio - 0.46).abs() < 1e-9 && (derived.cost_ns - 8.4).abs() < 1e-9);
        let refers = Measured { choice: zstd(true), ..result("zstd:1", Some(400), 8000) };
        estimates.measured(&refers, false);
        let [alone, after] = [2, 3].map(|at| estimates.all()[at].point());
        assert!((after.cost_ns - 8.0).abs() < 1e-9 && (after.ratio - 0.4).abs() < 1e-9);
        assert!((alone.cost_ns - 6.0).abs() < 1e-9 && alone.ratio > 0.41, "{alone:?}");
    }

    #[test]
    fn a_codec_that_was_made_for_it_shows_what_it_leaves_and_not_what_it_costs() {
        let mut estimates = estimates();
        let is_first = Measured { is_first: true, ..result("zstd:1", Some(400), 900_000) };
        estimates.measured(&is_first, true);
        let [cost_ns, ratio] = [estimates.all()[1].cost_ns, estimates.all()[1].point().ratio];
        assert!((cost_ns - 5.5).abs() < 1e-9 && (ratio - 0.4).abs() < 1e-9, "{cost_ns} {ratio}");
        assert!((estimates.all()[2].cost_ns - 45.0).abs() < 1e-9, "nor are others any slower");
        estimates.measured(&result("zstd:1", Some(400), 11_000), true);
        assert!((estimates.all()[1].cost_ns - 11.0).abs() < 1e-9, "the first that counts");
        assert!((estimates.all()[2].cost_ns - 90.0).abs() < 1e-9, "and so are others slower");
    }

    /// Fails unless the codec at this place costs this, and saves that.
    #[track_caller]
    fn assert_is(estimates: &CodecEstimates<Codec>, at: usize, cost_ns: f64, saving: f64) {
        let found = estimates.all()[at];
        let is = (found.cost_ns - cost_ns).abs() < 1e-9 && (found.saving - saving).abs() < 1e-9;
        assert!(is, "{found:?}");
    }

    #[test]
    fn what_does_not_refer_is_derived_from_what_does() {
        let mut estimates = CodecEstimates::new(&[prior("zstd:1", 5.5, 0.56, true)]);
        assert_is(&estimates, 1, 1.4 * 5.5, 1.0 - 0.92 * 0.44);
        let choice = Choice { codec: "zstd:1", refers: true };
        estimates.measured(&Measured { choice, ..result("zstd:1", Some(460), 8400) }, false);
        assert_is(&estimates, 1, 8.4, 0.54);
        assert_is(&estimates, 0, 6.0, 0.5);
    }

    #[test]
    fn a_higher_cost_counts_for_a_tenth_and_a_lower_one_for_three() {
        let mut estimates = estimates();
        estimates.measured(&result("lz4", Some(600), 4_000), false);
        assert_is(&estimates, 0, 4.0, 0.4);
        estimates.measured(&result("lz4", Some(500), 5_000), false);
        assert_is(&estimates, 0, 4.1, 0.43);
        estimates.measured(&result("lz4", Some(570), 3_100), false);
        assert_is(&estimates, 0, 3.8, 0.43);
        // At most for three times what was estimated.
        estimates.measured(&result("lz4", Some(570), 1_000_000), false);
        assert_is(&estimates, 0, 3.8 + 0.76, 0.43);
    }

    #[test]
    fn the_first_measurement_shows_how_slow_the_machine_is() {
        let mut estimates = estimates();
        // Half as fast as assumed.
        estimates.measured(&result("lz4", Some(600), 4_600), false);
        assert_is(&estimates, 1, 11.0, 0.56);
        assert_is(&estimates, 2, 90.0, 0.63);
        // 46 times as fast: believed to be five times.
        estimates.measured(&result("zstd:9", Some(370), 2_000), false);
        assert_is(&estimates, 2, 2.0, 0.63);
        assert_is(&estimates, 1, 2.2, 0.56);
        // What was measured itself stays, as do all others once it was not the first.
        assert_is(&estimates, 0, 4.6, 0.4);
        estimates.measured(&result("zstd:9", Some(370), 1_000), false);
        assert_is(&estimates, 1, 2.2, 0.56);
    }

    #[test]
    fn a_first_measurement_counts_for_three_times_the_prior_at_most() {
        let mut estimates = estimates();
        estimates.measured(&result("lz4", Some(600), 1_000_000), false);
        assert_is(&estimates, 0, 6.9, 0.4);
        assert_is(&estimates, 1, 16.5, 0.56);
    }

    #[test]
    fn measurements_replace_priors_and_move_the_others() {
        let mut estimates = estimates();
        assert_eq!(estimates.all()[0].choice.codec, "lz4");
        let before = estimates.all()[2].point();
        estimates.measured(&result("lz4", Some(950), 5000), false);
        let lz4 = estimates.all()[0].point();
        assert!((lz4.cost_ns - 5.0).abs() < 1e-9 && (lz4.ratio - 0.95).abs() < 1e-9, "{lz4:?}");
        let after = estimates.all()[2].point();
        assert!(after.ratio > before.ratio && after.cost_ns > before.cost_ns, "{after:?}");
    }

    /// JSON that the assumptions are off for: they say nothing of a codec that was measured.
    #[test]
    fn a_first_measurement_moves_what_is_assumed_and_nothing_else() {
        let mut estimates = estimates();
        estimates.measured(&result("zstd:9", Some(185), 45_000), true);
        let lz4 = estimates.all()[0].point();
        assert!((lz4.ratio - 0.5 * 0.6).abs() < 1e-9, "half of what was assumed: {lz4:?}");
        estimates.measured(&result("lz4", Some(200), 2_300), false);
        assert_is(&estimates, 2, 45.0, 0.815);
        estimates.measured(&result("lz4", Some(300), 2_300), false);
        assert!(estimates.all()[2].saving < 0.8, "later ones do");
    }

    #[test]
    fn an_interruption_is_not_taken_for_the_codecs_speed() {
        let mut estimates = estimates();
        (0..10).for_each(|_| estimates.measured(&result("lz4", Some(600), 2500), false));
        estimates.measured(&result("lz4", Some(600), 10_000_000), false);
        assert!(estimates.all()[0].cost_ns < 3.5, "{:?}", estimates.all()[0]);
        (0..40).for_each(|_| estimates.measured(&result("lz4", Some(600), 10_000), false));
        assert!(estimates.all()[0].cost_ns > 9.0, "{:?}", estimates.all()[0]);
    }

    #[test]
    fn what_was_incompressible_can_become_compressible() {
        let mut estimates = estimates();
        for _ in 0..100 {
            estimates.measured(&result("lz4", None, 100), false);
        }
        assert!(estimates.all()[2].point().ratio > 0.9);
        for _ in 0..4 {
            estimates.measured(&result("lz4", Some(500), 2000), false);
        }
        assert!(estimates.all()[2].point().ratio < 0.85, "{:?}", estimates.all());
    }
}
