//! Events on the link and around it that two relays must survive.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Rate, Rng};
use dwell_testkit::LinkSpec;

/// The events at the nodes when the weather changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    /// Nothing.
    Quiet,
    /// A node ends without a word and begins again.
    Killed { side: usize },
    /// A node takes another configuration under load.
    Reloaded { side: usize },
    /// The node of side 0 has another address from now on, which nobody is notified of.
    Moved,
}

/// One stretch of weather.
#[derive(Debug)]
pub(crate) struct Spell {
    pub(crate) lasts_ns: u64,
    pub(crate) link: LinkSpec,
    /// Its rate, in bits per second.
    pub(crate) link_bps: f64,
    /// The part of its processor that each node has.
    pub(crate) cpu_share: f64,
    pub(crate) incident: Incident,
    /// Nothing is lost, damaged or cut: what is sent has to arrive.
    pub(crate) is_fair: bool,
    /// Neither does what is sent change.
    pub(crate) is_steady: bool,
}

impl Spell {
    /// The next spell; deterministic.
    pub(crate) fn next(rng: &mut Rng) -> Self {
        let rate = [64, 300, 1_000, 2_000, 10_000][rng.below(5) as usize];
        let fair = LinkSpec::new()
            .with_rate(Rate::clamped_bps(rate * 1_000))
            .with_delay_ns((1 + rng.below(300)) * MILLI_NS)
            .with_seed(rng.below(1 << 60));
        let kind = rng.below(10);
        let link = match kind {
            0..4 => fair,
            4 => fair.with_loss(1.0),
            5 => fair.with_loss(0.3),
            6 => fair.with_reorder(0.2).with_jitter_ns(20 * MILLI_NS),
            7 => fair.with_duplicate(0.2).with_loss(0.01),
            8 => fair.with_corrupt(0.1),
            _ => fair
                .with_loss(0.03)
                .with_reorder(0.05)
                .with_duplicate(0.05)
                .with_corrupt(0.03)
                .with_jitter_ns(5 * MILLI_NS),
        };
        let side = rng.below(2) as usize;
        let incident = match rng.below(12) {
            0 => Incident::Killed { side },
            1 => Incident::Reloaded { side },
            2 => Incident::Moved,
            _ => Incident::Quiet,
        };
        let lasts_ns = (20 + rng.below(600)) * SECOND_NS;
        let is_fair = kind < 4;
        let cpu_share = [1.0, 1.0, 0.25, 0.02][rng.below(4) as usize];
        let link_bps = rate as f64 * 1e3;
        Self {
            lasts_ns,
            link,
            link_bps,
            cpu_share,
            incident,
            is_fair,
            is_steady: is_fair && rng.chance(0.5),
        }
    }
}
