//! The retransmission timeout of ns-2: integers that count ticks, as in BSD.

use super::config::TcpConfig;

/// The smoothed round-trip time has 3 bits after the point, its deviation 2.
const SRTT_BITS: u32 = 3;
const VAR_BITS: u32 = 2;
/// Four deviations are added to the round-trip time.
const VAR_EXPONENT: u32 = 2;
/// The deviation before anything was measured: 12 s.
const VAR_INITIAL_NS: u64 = 12_000_000_000;
/// The back-off from which on the round-trip time counts as unknown.
const BACKOFF_FORGET: u64 = 8;
/// The back-off doubles up to at least this, even past the greatest timeout.
const BACKOFF_MIN: u64 = 64;

/// Estimates the retransmission timeout in ticks.
#[derive(Clone, Debug)]
pub(super) struct TickRto {
    tick_ns: u64,
    phase_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// Ticks, times 8; zero before the first measurement.
    srtt: i64,
    /// Ticks, times 4.
    var: i64,
    /// The timeout without back-off.
    base_ns: u64,
    backoff: u64,
}

impl TickRto {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            tick_ns: config.tick_ns,
            phase_ns: config.tick_phase_ns,
            min_ns: config.rto_min_ns,
            max_ns: config.rto_max_ns,
            srtt: 0,
            var: ((VAR_INITIAL_NS / config.tick_ns) << VAR_BITS) as i64,
            base_ns: config.rto_initial_ns,
            backoff: 1,
        }
    }

    /// Takes in the round trip of a packet that was sent at `sent_ns`: the ticks between,
    /// one at least.
    pub(super) fn measure(&mut self, now_ns: u64, sent_ns: u64) {
        let into_tick_ns = (sent_ns + self.phase_ns) % self.tick_ns;
        let ticks = ((now_ns.saturating_sub(sent_ns) + into_tick_ns) / self.tick_ns) as i64;
        let ticks = ticks.max(1);
        if self.srtt == 0 {
            self.srtt = ticks << SRTT_BITS;
            self.var = ticks << (VAR_BITS - 1);
        } else {
            let error = ticks - (self.srtt >> SRTT_BITS);
            self.srtt = (self.srtt + error).max(1);
            self.var = (self.var + error.abs() - (self.var >> VAR_BITS)).max(1);
        }
        let ticks = ((self.var << (VAR_EXPONENT + SRTT_BITS - VAR_BITS)) + self.srtt) >> SRTT_BITS;
        self.base_ns = ticks as u64 * self.tick_ns;
    }

    /// A packet came back that was sent only once: the back-off ends.
    pub(super) fn end_backoff(&mut self) {
        self.backoff = 1;
    }

    /// The timer expired: the next timeout is twice as long.
    pub(super) fn back_off(&mut self) {
        if self.backoff < BACKOFF_MIN || self.timeout_ns() < self.max_ns {
            self.backoff = self.backoff.saturating_mul(2);
        }
        if self.backoff > BACKOFF_FORGET {
            self.var += self.srtt >> SRTT_BITS;
            self.srtt = 0;
        }
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        let timeout_ns = self.base_ns.max(self.min_ns).saturating_mul(self.backoff);
        timeout_ns.min(self.max_ns).max(2 * self.tick_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rto(phase_ns: u64) -> TickRto {
        TickRto::new(&TcpConfig { tick_phase_ns: phase_ns, ..TcpConfig::sack1() })
    }

    #[test]
    fn three_seconds_before_anything_is_measured() {
        assert_eq!(rto(0).timeout_ns(), 3_000 * MS);
    }

    #[test]
    fn round_trips_are_counted_in_ticks_of_the_senders_clock() {
        let mut aligned = rto(0);
        aligned.measure(129 * MS, 0);
        // 12 ticks, and 4 × 6 ticks of deviation.
        assert_eq!(aligned.timeout_ns(), 360 * MS);
        let mut late_in_its_tick = rto(3 * MS);
        late_in_its_tick.measure(129 * MS, 0);
        assert_eq!(late_in_its_tick.timeout_ns(), 390 * MS);
    }

    #[test]
    fn the_estimate_settles_and_has_a_floor() {
        let mut rto = rto(0);
        (0..100).for_each(|_| rto.measure(55 * MS, 0));
        assert_eq!(rto.timeout_ns(), 200 * MS);
    }

    #[test]
    fn back_off_doubles_up_to_the_greatest_and_ends() {
        let mut rto = rto(0);
        rto.measure(55 * MS, 0);
        assert_eq!(rto.timeout_ns(), 200 * MS);
        for expected in [400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000] {
            rto.back_off();
            assert_eq!(rto.timeout_ns(), expected * MS);
        }
        rto.end_backoff();
        assert_eq!(rto.timeout_ns(), 200 * MS);
        // After such a silence the next measurement counts alone.
        rto.measure(305 * MS, 0);
        assert_eq!(rto.timeout_ns(), 900 * MS);
    }
}
