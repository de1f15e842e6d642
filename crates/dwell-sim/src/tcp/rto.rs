//! The retransmission timeout of RFC 6298, and Linux's, which adds its least to the smoothed round trip.

use super::config::{Like, TcpConfig};

/// Estimates the retransmission timeout in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    granularity_ns: u64,
    min_ns: u64,
    max_ns: u64,
    adds_least: bool,
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    timeout_ns: u64,
}

impl Rto {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            granularity_ns: config.tick_ns,
            min_ns: config.rto_min_ns,
            max_ns: config.rto_max_ns,
            adds_least: config.like == Like::Linux,
            smoothed_ns: None,
            deviation_ns: 0,
            timeout_ns: config.rto_initial_ns.min(config.rto_max_ns),
        }
    }

    /// Takes in a round trip; ends the back-off.
    pub(super) fn measure(&mut self, round_ns: u64) {
        let smoothed_ns = match self.smoothed_ns {
            None => {
                self.deviation_ns = round_ns / 2;
                round_ns
            }
            Some(smoothed_ns) => {
                let error_ns = smoothed_ns.abs_diff(round_ns);
                self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + error_ns / 4;
                smoothed_ns - smoothed_ns / 8 + round_ns / 8
            }
        };
        self.smoothed_ns = Some(smoothed_ns);
        let least_ns = if self.adds_least { self.min_ns } else { self.granularity_ns };
        let margin_ns = self.deviation_ns.saturating_mul(4).max(least_ns);
        self.timeout_ns = smoothed_ns.saturating_add(margin_ns).clamp(self.min_ns, self.max_ns);
    }

    /// The timer expired: the next timeout is twice as long.
    pub(super) fn back_off(&mut self) {
        self.timeout_ns = self.timeout_ns.saturating_mul(2).min(self.max_ns);
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }

    /// The smoothed round trip, once there was one.
    pub(super) fn round_ns(&self) -> Option<u64> {
        self.smoothed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rto(min_ms: u64) -> Rto {
        Rto::new(&TcpConfig { rto_min_ns: min_ms * MS, ..TcpConfig::new_reno() })
    }

    #[test]
    fn one_second_until_something_is_measured_then_three_round_trips() {
        let mut rto = rto(0);
        assert_eq!(rto.timeout_ns(), 1_000 * MS);
        rto.measure(80 * MS);
        assert_eq!(rto.timeout_ns(), 240 * MS);
    }

    #[test]
    fn the_worked_example_of_the_formulas() {
        let mut rto = rto(0);
        rto.measure(80 * MS);
        rto.measure(160 * MS);
        // Deviation 3/4 × 40 + 1/4 × 80 = 50; smoothed 7/8 × 80 + 1/8 × 160 = 90.
        assert_eq!(rto.round_ns(), Some(90 * MS));
        assert_eq!(rto.timeout_ns(), 290 * MS);
    }

    #[test]
    fn like_linux_the_least_comes_upon_the_round_trip() {
        let config = TcpConfig { like: Like::Linux, ..TcpConfig::new_reno() };
        let mut rto = Rto::new(&TcpConfig { rto_min_ns: 200 * MS, ..config });
        (0..200).for_each(|_| rto.measure(120 * MS));
        assert_eq!(rto.timeout_ns(), 320 * MS);
    }

    #[test]
    fn it_has_a_floor_a_ceiling_and_a_granularity() {
        let mut rto = rto(200);
        (0..200).for_each(|_| rto.measure(8 * MS));
        assert_eq!(rto.timeout_ns(), 200 * MS);
        (0..20).for_each(|_| rto.back_off());
        assert_eq!(rto.timeout_ns(), 60_000 * MS);
        let mut steady = self::rto(0);
        (0..200).for_each(|_| steady.measure(8 * MS));
        assert_eq!(steady.timeout_ns(), 9 * MS);
    }
}
