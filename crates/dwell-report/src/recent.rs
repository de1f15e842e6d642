//! Rates from counters: what passed between two looks at them.

use dwell_base::time::SECOND_NS;

use crate::status::{PeerStatus, RecentTraffic, Saved, TxStatus};

/// A peer's counters at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    offered_bytes: u64,
    link_bytes: u64,
    received_bytes: u64,
    received_link_bytes: u64,
}

impl Totals {
    /// The counters of a peer.
    pub fn of(peer: &PeerStatus) -> Self {
        Self {
            offered_bytes: peer.tx.arrived.bytes,
            link_bytes: taken_bytes(&peer.tx),
            received_bytes: peer.rx.packets.bytes,
            received_link_bytes: peer.rx.bytes,
        }
    }

    /// Returns the traffic since `before`, which was `window_ns` earlier, over a link of this rate. None if
    /// no time has passed, or the counters began again.
    pub fn since(
        &self,
        before: &Self,
        window_ns: u64,
        rate_bps: Option<u64>,
    ) -> Option<RecentTraffic> {
        let bps = |now: u64, before: u64| {
            let bits = u128::from(now.checked_sub(before)?) * 8 * u128::from(SECOND_NS);
            u64::try_from(bits.checked_div(u128::from(window_ns))?).ok()
        };
        let link_bps = bps(self.link_bytes, before.link_bytes)?;
        let ppm = |rate: u64| (u128::from(link_bps) * 1_000_000).checked_div(u128::from(rate));
        Some(RecentTraffic {
            window_ns,
            offered_bps: bps(self.offered_bytes, before.offered_bytes)?,
            link_bps,
            received_bps: bps(self.received_bytes, before.received_bytes)?,
            received_link_bps: bps(self.received_link_bytes, before.received_link_bytes)?,
            utilisation_ppm: rate_bps.and_then(ppm).and_then(|ppm| u64::try_from(ppm).ok()),
        })
    }
}

fn taken_bytes(tx: &TxStatus) -> u64 {
    tx.link_bytes.saturating_add(tx.resent_bytes).saturating_add(tx.control_bytes)
}

/// Returns what a peer's packets would have taken, and what they took.
pub fn saved(tx: &TxStatus) -> Saved {
    Saved { plain_bytes: tx.plain_bytes, taken_bytes: taken_bytes(tx) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let before = Totals { offered_bytes: 1_000, link_bytes: 500, ..Totals::default() };
        let now = Totals {
            offered_bytes: 1_001_000,
            link_bytes: 500_500,
            received_bytes: 250_000,
            received_link_bytes: 125_000,
        };
        let recent = now.since(&before, 2 * SECOND_NS, Some(4_000_000)).unwrap();
        assert_eq!((recent.offered_bps, recent.link_bps), (4_000_000, 2_000_000));
        assert_eq!((recent.received_bps, recent.received_link_bps), (1_000_000, 500_000));
        assert_eq!(recent.utilisation_ppm, Some(500_000));
        assert_eq!(now.since(&before, SECOND_NS, None).unwrap().utilisation_ppm, None);
        assert_eq!(now.since(&before, 0, None), None, "no time has passed");
        assert_eq!(before.since(&now, SECOND_NS, None), None, "another process");
        let full = Totals { link_bytes: u64::MAX, ..Totals::default() };
        assert_eq!(full.since(&Totals::default(), 1, Some(1)), None, "nothing is that fast");
    }
}
