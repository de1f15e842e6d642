//! Estimates of each codec's cost and ratio on the stream's own data.

use dwell_codec::{CodecId, CodecSpec};

use crate::bound::CodecPoint;
use crate::compress::Compression;
use crate::config::Config;

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

/// The codec with which a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) spec: CodecSpec,
    /// True if it refers to earlier blocks, if there are any that it can refer to.
    pub(crate) refers: bool,
}

impl Choice {
    pub(crate) fn alone(spec: CodecSpec) -> Self {
        Self { spec, refers: false }
    }
}

/// The estimates for a list of codecs.
#[derive(Clone, Debug)]
pub(crate) struct Estimates {
    codecs: Vec<Estimate>,
}

/// The estimate for one codec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) choice: Choice,
    pub(crate) cost_ns: f64,
    /// 1 − ratio.
    saving: f64,
    /// Blocks since it was last measured; none if never.
    pub(crate) age: Option<u32>,
}

impl Estimate {
    pub(crate) fn point(&self) -> CodecPoint {
        CodecPoint::new(self.cost_ns, 1.0 - self.saving)
    }
}

impl Estimate {
    /// Follows a measurement of the same codec with the opposite use of references.
    fn follow(&mut self, sibling: &Self) {
        let (cost, ratio) = match self.choice.refers {
            true => (REFERRING_COST, REFERRING_RATIO),
            false => (1.0 / REFERRING_COST, 1.0 / REFERRING_RATIO),
        };
        self.cost_ns = cost * sibling.cost_ns;
        self.saving = (1.0 - ratio * (1.0 - sibling.saving)).clamp(SAVING_MIN, SAVING_MAX);
    }
}

impl Estimates {
    /// Makes the estimates for the codecs of hull mixing, before anything was measured; the
    /// cheapest first.
    pub(crate) fn new(config: &Config) -> Self {
        let specs = &config.codecs;
        let mut codecs: Vec<_> = specs.iter().map(|&spec| prior(spec)).collect();
        let referring = specs.iter().filter(|&&spec| config.may_refer(spec));
        codecs.extend(referring.map(|&spec| prior_of_referring(spec)));
        codecs.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns));
        codecs.dedup_by_key(|estimate| estimate.choice);
        Self { codecs }
    }

    pub(crate) fn all(&self) -> &[Estimate] {
        &self.codecs
    }

    pub(crate) fn measured(&mut self, compression: &Compression) {
        let choice = Choice { spec: compression.codec, refers: compression.refers };
        let Some(at) = self.codecs.iter().position(|e| e.choice == choice) else { return };
        let len = compression.original_len as f64;
        let ratio = compression.compressed_len.map_or(1.0, |compressed| compressed as f64 / len);
        let cost_ns = compression.took_ns as f64 / len;
        let first = self.codecs[at].age.is_none();
        let gain = if first { 1.0 } else { GAIN };
        let here = &mut self.codecs[at];
        let (cost_before, saving_before) = (here.cost_ns, here.saving);
        let cost_gain = if first || cost_ns < here.cost_ns { gain } else { GAIN_UP };
        // Also the first: it may have been interrupted. A codec that is believed to be slow is
        // hardly used, and so not measured again.
        here.cost_ns += cost_gain * (cost_ns.min(OUTLIER * here.cost_ns) - here.cost_ns);
        let saving = here.saving + gain * (1.0 - ratio - here.saving);
        here.saving = saving.clamp(SAVING_MIN, SAVING_MAX);
        let harder = (here.saving / saving_before).powf(SHARED);
        // A machine that is slower than that of the priors is slower with all codecs.
        let slower = if first { here.cost_ns / cost_before } else { 1.0 };
        let measured = self.codecs[at];
        for (other, estimate) in self.codecs.iter_mut().enumerate() {
            if other == at {
                estimate.age = Some(0);
                continue;
            }
            if estimate.age.is_none() && estimate.choice.spec == compression.codec {
                estimate.follow(&measured);
                continue;
            }
            estimate.saving = (estimate.saving * harder).clamp(SAVING_MIN, SAVING_MAX);
            match &mut estimate.age {
                Some(age) => *age = age.saturating_add(1),
                None => estimate.cost_ns *= slower.clamp(0.2, 5.0),
            }
        }
    }
}

/// Returns the estimate of a codec before it was used: for blocks of 64 KiB of English text on a
/// processor of 2023. Only the order and rough distances matter.
fn prior(spec: CodecSpec) -> Estimate {
    let table: &[(i32, f64, f64)] = match spec.id {
        CodecId::Lz4 => &[(1, 2.3, 0.40), (8, 1.5, 0.25), (64, 0.8, 0.08)],
        CodecId::Lzo => &[(1, 4.0, 0.42)],
        CodecId::Bzip2 => &[(1, 80.0, 0.66)],
        CodecId::Zstd => &[
            (-50, 1.5, 0.05),
            (-5, 2.8, 0.42),
            (-1, 4.2, 0.48),
            (1, 5.5, 0.56),
            (3, 9.5, 0.59),
            (6, 25.0, 0.62),
            (9, 45.0, 0.63),
            (19, 400.0, 0.65),
        ],
        CodecId::Deflate => &[(1, 9.0, 0.52), (6, 24.0, 0.60), (9, 60.0, 0.61), (12, 250.0, 0.62)],
    };
    let (cost_ns, saving) = interpolate(table, spec.level);
    Estimate { choice: Choice::alone(spec), cost_ns, saving, age: None }
}

/// Returns the same for blocks that refer to earlier ones.
fn prior_of_referring(spec: CodecSpec) -> Estimate {
    let alone = prior(spec);
    let mut estimate = Estimate { choice: Choice { spec, refers: true }, ..alone };
    estimate.follow(&alone);
    estimate
}

/// Interpolates between the two nearest levels of a table that is sorted by level.
fn interpolate(table: &[(i32, f64, f64)], level: i32) -> (f64, f64) {
    let after = table.iter().position(|&(known, _, _)| known >= level).unwrap_or(table.len() - 1);
    let (b_level, b_cost, b_saving) = table[after];
    let (a_level, a_cost, a_saving) = table[after.saturating_sub(1)];
    if a_level == b_level {
        return (b_cost, b_saving);
    }
    let x = (f64::from(level - a_level) / f64::from(b_level - a_level)).clamp(0.0, 1.0);
    (a_cost + x * (b_cost - a_cost), a_saving + x * (b_saving - a_saving))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;

    fn compression(text: &str, compressed_len: Option<usize>, took_ns: u64) -> Compression {
        let codec = text.parse().unwrap();
        Compression { codec, refers: false, original_len: 1000, compressed_len, took_ns }
    }

    fn of(codecs: &[&str], history: bool) -> Estimates {
        let mut config = Config::new(Strategy::Hull);
        config.codecs = codecs.iter().map(|text| text.parse().unwrap()).collect();
        config.history = history;
        Estimates::new(&config)
    }

    fn estimates() -> Estimates {
        of(&["zstd:9", "lz4", "zstd:1"], false)
    }

    #[test]
    fn what_refers_is_known_apart_from_what_does_not() {
        let mut estimates = of(&["lz4", "zstd:-5", "zstd:1"], true);
        let named = |e: &Estimate| (e.choice.spec.to_string(), e.choice.refers);
        let names: Vec<_> = estimates.all().iter().map(named).collect();
        let zstd = |refers| ("zstd".to_owned(), refers);
        assert_eq!(names[2..], [zstd(false), zstd(true)], "{names:?}");
        estimates.measured(&compression("zstd:1", Some(500), 6000));
        let derived = estimates.all()[3].point();
        assert!((derived.ratio - 0.46).abs() < 1e-9 && (derived.cost_ns - 8.4).abs() < 1e-9);
        let refers = Compression { refers: true, ..compression("zstd:1", Some(400), 8000) };
        estimates.measured(&refers);
        let [alone, after] = [2, 3].map(|at| estimates.all()[at].point());
        assert!((after.cost_ns - 8.0).abs() < 1e-9 && (after.ratio - 0.4).abs() < 1e-9);
        assert!((alone.cost_ns - 6.0).abs() < 1e-9 && alone.ratio > 0.41, "{alone:?}");
    }

    #[test]
    fn measurements_replace_priors_and_move_the_others() {
        let mut estimates = estimates();
        assert_eq!(estimates.all()[0].choice.spec.to_string(), "lz4");
        let before = estimates.all()[2].point();
        estimates.measured(&compression("lz4", Some(950), 5000));
        let lz4 = estimates.all()[0].point();
        assert!((lz4.cost_ns - 5.0).abs() < 1e-9 && (lz4.ratio - 0.95).abs() < 1e-9, "{lz4:?}");
        let after = estimates.all()[2].point();
        assert!(after.ratio > before.ratio && after.cost_ns > before.cost_ns, "{after:?}");
    }

    #[test]
    fn an_interruption_is_not_taken_for_the_codecs_speed() {
        let mut estimates = estimates();
        (0..10).for_each(|_| estimates.measured(&compression("lz4", Some(600), 2500)));
        estimates.measured(&compression("lz4", Some(600), 10_000_000));
        assert!(estimates.all()[0].cost_ns < 3.5, "{:?}", estimates.all()[0]);
        (0..40).for_each(|_| estimates.measured(&compression("lz4", Some(600), 10_000)));
        assert!(estimates.all()[0].cost_ns > 9.0, "{:?}", estimates.all()[0]);
    }

    #[test]
    fn what_was_incompressible_can_become_compressible() {
        let mut estimates = estimates();
        for _ in 0..100 {
            estimates.measured(&compression("lz4", None, 100));
        }
        assert!(estimates.all()[2].point().ratio > 0.9);
        for _ in 0..4 {
            estimates.measured(&compression("lz4", Some(500), 2000));
        }
        assert!(estimates.all()[2].point().ratio < 0.85, "{:?}", estimates.all());
    }

    #[test]
    fn priors_are_known_for_every_level() {
        for id in CodecId::ALL {
            for level in -60..70 {
                let estimate = prior(CodecSpec { id, level });
                assert!(estimate.cost_ns > 0.0 && estimate.saving > 0.0, "{id}:{level}");
            }
        }
    }
}
