//! Acknowledgements beyond a gap that wait for each other, as Linux's do (`tcp_comp_sack_delay_ns`, `tcp_comp_sack_nr`): the first three
//! show the loss, the others are one each millisecond at most.

/// So many beyond the same gap are sent at once.
const AT_ONCE: u32 = 3;
/// The longest wait, and how much later Linux's timer may come (`tcp_comp_sack_slack_ns`).
const WAIT_NS_MAX: u64 = 1_000_000;
const SLACK_NS: u64 = 100_000;
/// The part of a round trip that it may be.
const ROUND_TRIP_PART: u64 = 20;
/// No more than so many wait.
const WAITING_MAX: u32 = 44;

/// The acknowledgements beyond the present gap.
#[derive(Clone, Debug, Default)]
pub(super) struct SackDelay {
    /// The packet that is missing.
    missing: u64,
    sent_at_once: u32,
    waiting: u32,
    /// The shortest one-way delay until now.
    least_ns: Option<u64>,
}

impl SackDelay {
    /// Notes how long a packet was on its way.
    pub(super) fn measure(&mut self, one_way_ns: u64) {
        self.least_ns = Some(self.least_ns.map_or(one_way_ns, |least_ns| least_ns.min(one_way_ns)));
    }

    /// Returns how long the answer to a packet beyond the gap at `missing` may wait; `None`: it goes at once, with those that wait.
    ///
    /// Linux takes the round trip that it has measured; what a receiver knows here is the way to it.
    pub(super) fn wait_ns(&mut self, missing: u64) -> Option<u64> {
        if self.missing != missing {
            (self.missing, self.sent_at_once, self.waiting) = (missing, 0, 0);
        }
        if self.waiting >= WAITING_MAX {
            self.waiting = 0;
            return None;
        }
        if self.sent_at_once < AT_ONCE {
            self.sent_at_once += 1;
            return None;
        }
        self.waiting += 1;
        let round_ns = self.least_ns.unwrap_or(0).saturating_mul(2);
        Some((round_ns / ROUND_TRIP_PART).min(WAIT_NS_MAX) + SLACK_NS)
    }

    /// What waited has been sent.
    pub(super) fn on_sent(&mut self) {
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_go_at_once_then_they_wait_for_a_part_of_the_round_trip() {
        let mut delay = SackDelay::default();
        delay.measure(5_000_000);
        delay.measure(9_000_000);
        let waits: Vec<_> = (0..5).map(|_| delay.wait_ns(7)).collect();
        assert_eq!(waits, [None, None, None, Some(600_000), Some(600_000)]);
        // Another gap begins again; a long way is a millisecond.
        let mut far = SackDelay::default();
        far.measure(80_000_000);
        (0..3).for_each(|_| assert_eq!(far.wait_ns(7), None));
        assert_eq!(far.wait_ns(7), Some(1_100_000));
        assert_eq!(far.wait_ns(8), None);
    }

    #[test]
    fn no_more_than_forty_four_wait() {
        let mut delay = SackDelay::default();
        (0..3).for_each(|_| assert_eq!(delay.wait_ns(7), None));
        (0..44).for_each(|_| assert!(delay.wait_ns(7).is_some()));
        assert_eq!(delay.wait_ns(7), None);
        assert!(delay.wait_ns(7).is_some());
        delay.on_sent();
        (0..44).for_each(|_| assert!(delay.wait_ns(7).is_some()));
        assert_eq!(delay.wait_ns(7), None);
    }
}
