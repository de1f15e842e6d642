//! The rule of a strategy in blocks, and what it assumes of codecs before they were measured.

use dwell_codec::{CodecId, CodecSpec};
use dwell_policy::method::{Prior, Rule, Steering};

use crate::config::{Config, Objective};
use crate::strategy::Strategy;

/// Returns the decisions of the core for this configuration.
pub(crate) fn steering(config: &Config) -> Steering<CodecSpec> {
    let mut steering = Steering::new(rule(config), config.not_sent_len());
    if config.objective == Objective::Bytes {
        steering.save_bytes();
    }
    steering
}

/// Returns the rule by which the core decides for this configuration.
fn rule(config: &Config) -> Rule<CodecSpec> {
    match config.strategy {
        Strategy::All => Rule::All(config.codec),
        Strategy::Switch => Rule::Switch(config.codec),
        Strategy::Mix | Strategy::MixInOrder | Strategy::MixOutOfOrder => Rule::Mix(config.codec),
        Strategy::Hull => Rule::Hull(priors(config)),
        _ => Rule::Raw,
    }
}

/// Returns what is assumed of its codecs.
pub(crate) fn priors(config: &Config) -> Vec<Prior<CodecSpec>> {
    let prior = |&codec: &CodecSpec| {
        let (cost_ns, saving) = prior(codec);
        Prior { codec, cost_ns, saving, refers: config.referring(codec) }
    };
    config.codecs.iter().map(prior).collect()
}

/// Returns the cost of a codec in nanoseconds a byte, and its saving, for blocks of 64 KiB of
/// English text on a processor of 2023.
fn prior(spec: CodecSpec) -> (f64, f64) {
    let table: &[(i32, f64, f64)] = match spec.id {
        CodecId::Lz4 => &[(1, 2.3, 0.40), (8, 1.5, 0.25), (64, 0.8, 0.08)],
        CodecId::Lzo => &[(1, 4.0, 0.42)],
        CodecId::Bzip2 => &[(1, 80.0, 0.66)],
        // These two in a context, as nowhere else.
        CodecId::Mix => &[(1, 800.0, 0.775)],
        CodecId::Ppm => &[(2, 50.0, 0.62), (4, 70.0, 0.735), (6, 95.0, 0.75), (12, 140.0, 0.75)],
        CodecId::Zstd => &[
            (-50, 1.5, 0.05),
            (-5, 2.8, 0.42),
            (-1, 4.2, 0.48),
            (1, 5.5, 0.56),
            (3, 9.5, 0.59),
            (6, 25.0, 0.62),
            (9, 45.0, 0.63),
            (12, 100.0, 0.635),
            (15, 300.0, 0.64),
            (19, 800.0, 0.655),
        ],
        CodecId::Deflate => &[(1, 9.0, 0.52), (6, 24.0, 0.60), (9, 60.0, 0.61), (12, 250.0, 0.62)],
    };
    interpolate(table, spec.level)
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

    #[test]
    fn priors_are_known_for_every_level() {
        for id in CodecId::ALL {
            for level in -60..70 {
                let (cost_ns, saving) = prior(CodecSpec { id, level });
                assert!(cost_ns > 0.0 && saving > 0.0, "{id}:{level}");
            }
        }
    }
}
