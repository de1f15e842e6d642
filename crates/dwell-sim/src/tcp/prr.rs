//! Proportional rate reduction (RFC 6937 and its successor RFC 9937), as Linux has it (`tcp_cwnd_reduction` in `tcp_input.c`): while losses are
//! repaired, what is sent follows what arrives, so that the window comes down to the threshold within a round trip.

/// A reduction under way, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    before: u64,
    threshold: u64,
    arrived: u64,
    sent: u64,
    window: u64,
}

impl Reduction {
    /// From a window down to a threshold.
    pub(super) fn new(before: u64, threshold: u64) -> Self {
        Self { before: before.max(1), threshold, arrived: 0, sent: 0, window: 0 }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// Handles an acknowledgement that reports so many packets, with so many in flight after it; `repairs` if it moves the cumulative
    /// number and shows no loss.
    pub(super) fn on_acked(&mut self, arrived: u64, in_flight: u64, repairs: bool) {
        if arrived == 0 {
            return;
        }
        self.arrived += arrived;
        let due = match self.threshold.checked_sub(in_flight) {
            None => (self.threshold * self.arrived).div_ceil(self.before).saturating_sub(self.sent),
            Some(room) => {
                let due = self.arrived.saturating_sub(self.sent).max(arrived) + u64::from(repairs);
                due.min(room)
            }
        };
        // The first retransmission goes in any case.
        self.window = in_flight + due.max(u64::from(self.sent == 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_is_sent_until_the_window_is_halved_and_then_each() {
        let mut reduction = Reduction::new(20, 10);
        let mut in_flight = 16_u64;
        let mut sent = Vec::new();
        for _ in 0..16 {
            in_flight -= 1;
            reduction.on_acked(1, in_flight, false);
            let mut now = 0;
            while in_flight < reduction.window() {
                in_flight += 1;
                now += 1;
                reduction.on_sent();
            }
            sent.push(now);
        }
        // 16 arrive: half of them is sent in their place.
        assert_eq!(sent.iter().sum::<u32>(), 8 + 2, "{sent:?}");
        assert_eq!(sent[..6], [1, 0, 1, 0, 1, 0]);
        assert_eq!(in_flight, 10);
    }
}
