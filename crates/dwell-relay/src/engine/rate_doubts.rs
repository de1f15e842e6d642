//! Configured rates that look like more than their links carry.
//!
//! Nothing waits in front of such a link, so that nothing is compressed, and what is too much is lost on the path:
//! somebody has to be asked.

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::rate_doubt;
use dwell_report::status::{PeerStatus, Problem, RateSource};

use super::Engine;
use crate::node::Finding;

/// A doubt is over when nothing has confirmed it for this long. Traffic that pauses proves nothing.
const CONFIRMED_NS: u64 = 60 * SECOND_NS;

/// The peers whose rate is in doubt.
#[derive(Debug, Default)]
pub(super) struct RateDoubts(BTreeMap<String, Doubted>);

#[derive(Debug)]
struct Doubted {
    /// When that was last seen, and of which rate.
    at: Instant,
    rate_bps: Option<u64>,
}

/// What a look at a peer brings.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Its rate is in doubt, for these reasons.
    Doubted(Finding),
    /// It was, and is not any more.
    Over,
    /// Nothing that was not known.
    Nothing,
}

impl RateDoubts {
    fn look(&mut self, peer: &PeerStatus, now: Instant) -> Change {
        let rate_bps = peer.rate_bps.filter(|_| peer.rate_source == RateSource::Configured);
        if let Some(doubt) = rate_doubt(peer) {
            self.0.insert(peer.name.clone(), Doubted { at: now, rate_bps });
            let (problem, why, remedy) = (Problem::RateTooHigh, doubt.why, doubt.remedy);
            return Change::Doubted(Finding { problem, why, remedy });
        }
        let is_over =
            |doubted: &Doubted| doubted.rate_bps != rate_bps || now >= doubted.at + CONFIRMED_NS;
        if self.0.get(&peer.name).is_some_and(is_over) {
            self.0.remove(&peer.name);
            return Change::Over;
        }
        Change::Nothing
    }
}

impl Engine {
    /// Looks whether the peers' links carry what is written of them.
    pub(super) fn look_at_rates(&mut self, now: Instant) {
        let mut status = self.node.status(now);
        self.account.fill(&mut status, &self.config.savings, now);
        self.rate_doubts.0.retain(|name, _| status.peers.iter().any(|peer| peer.name == *name));
        let numbers = (0..self.node.peer_count()).filter(|it| self.node.peer_config(*it).is_some());
        for (number, peer) in numbers.collect::<Vec<_>>().into_iter().zip(&status.peers) {
            match self.rate_doubts.look(peer, now) {
                Change::Doubted(finding) => {
                    self.node.note_problem(&mut self.env, Some(number), finding);
                }
                Change::Over => {
                    self.node.clear_problem(&mut self.env, Some(number), Problem::RateTooHigh);
                }
                Change::Nothing => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_report::status::{RecentLoss, RecentTraffic};

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * SECOND_NS)
    }

    /// A peer with so many of 1,000 datagrams lost, on a link that is a tenth busy.
    fn peer(lost: u64, rate_bps: u64) -> PeerStatus {
        let recent = RecentTraffic { utilisation_ppm: Some(100_000), ..RecentTraffic::default() };
        let mut peer = PeerStatus {
            name: "hub".to_owned(),
            rate_bps: Some(rate_bps),
            rate_source: RateSource::Configured,
            recent: Some(recent),
            ..PeerStatus::default()
        };
        peer.tx.loss = RecentLoss::of(1_000, lost);
        peer
    }

    #[test]
    fn a_doubt_stays_until_traffic_had_time_to_confirm_it() {
        let mut doubts = RateDoubts::default();
        assert_eq!(doubts.look(&peer(0, 8_000), at(0)), Change::Nothing);
        let Change::Doubted(finding) = doubts.look(&peer(40, 8_000), at(10)) else {
            panic!("silent")
        };
        assert_eq!(finding.problem, Problem::RateTooHigh);
        assert!(finding.why.contains("4.0 %") && finding.remedy.contains("rate = \"auto\""));
        assert_eq!(doubts.look(&peer(0, 8_000), at(69)), Change::Nothing, "it may be a pause");
        assert_eq!(doubts.look(&peer(0, 8_000), at(70)), Change::Over);
        assert_eq!(doubts.look(&peer(0, 8_000), at(80)), Change::Nothing, "that was said");
    }

    #[test]
    fn another_rate_is_another_question() {
        let mut doubts = RateDoubts::default();
        assert!(matches!(doubts.look(&peer(40, 8_000), at(10)), Change::Doubted(_)));
        assert_eq!(doubts.look(&peer(0, 800), at(11)), Change::Over);
        assert!(matches!(doubts.look(&peer(40, 8_000), at(20)), Change::Doubted(_)));
        let measured = PeerStatus { rate_source: RateSource::Measured, ..peer(40, 8_000) };
        assert_eq!(doubts.look(&measured, at(21)), Change::Over);
    }
}
