//! BBR, version 1, as Linux has it (`net/ipv4/tcp_bbr.c` with the delivery rates of `tcp_rate.c`), after Cardwell,
//! Cheng, Gunn, Yeganeh and Jacobson, "BBR: Congestion-Based Congestion Control".
//!
//! Left out: the detection of policers (`lt_bw`).

use super::config::{Like, TcpConfig};
use super::delivery::{Rates, Sample};
use super::maximum::Maximum;

const SECOND: f64 = 1e9;
const HIGH_GAIN: f64 = 2.885;
const WINDOW_GAIN: f64 = 2.0;
/// The gains of a cycle: a probe for more, what it has queued drains, and then on a level.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The rounds for which the greatest rate counts.
const RATE_ROUNDS: u64 = 10;
const ROUND_TRIP_WINDOW_NS: u64 = 10_000_000_000;
const PROBE_ROUND_TRIP_NS: u64 = 200_000_000;
const WINDOW_MIN: f64 = 4.0;
const INITIAL_WINDOW: f64 = 10.0;
/// The pipe is full if the rate has not grown by this factor for so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Sent is a little less than was measured.
const MARGIN: f64 = 0.99;
/// The rounds for which the largest aggregate of acknowledgements counts, and the longest that it may take.
const AGGREGATE_ROUNDS: u32 = 5;
const AGGREGATE_S: f64 = 0.1;
/// Linux sends bursts of this many seconds at most, of two segments above this rate.
const BURST_S: f64 = 1.0 / 1_024.0;
const BURST_RATE: f64 = 150_000.0;
/// What 64 KiB hold.
const BURST_MAX: f64 = 43.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRoundTrip,
}

/// The recovery of losses, as it is seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repair {
    None,
    Recovery,
    Timeout,
}

/// The facts of one acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) now_ns: u64,
    /// The round trip that it measures.
    pub(super) round_ns: u64,
    /// Packets in flight before it, and after it.
    pub(super) in_flight: (u64, u64),
    /// Packets that it shows to be lost.
    pub(super) lost: u64,
    pub(super) repair: Repair,
}

/// The state of a sender.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    pub(super) rates: Rates,
    segment_bytes: f64,
    /// What is sent of what was measured.
    margin: f64,
    like: Like,
    /// The smoothed round trip, for what is like ns-3's.
    smoothed_ns: Option<u64>,
    mode: Mode,
    /// Packets per second, by round.
    greatest: Maximum,
    least_round_ns: u64,
    least_round_at_ns: u64,
    rounds: u64,
    round_starts: bool,
    next_round_delivered: u64,
    /// Packets per second; none before a round trip was measured.
    pacing: Option<f64>,
    release_ns: u64,
    /// Packets that may be sent at once before the next pause.
    burst_left: u32,
    window: f64,
    window_before: f64,
    gains: (f64, f64),
    cycle: usize,
    cycle_at_ns: u64,
    full_rate: f64,
    full_rounds: u32,
    is_full: bool,
    probe_ends_ns: Option<u64>,
    probe_round_done: bool,
    repair: Repair,
    conserves: bool,
    aggregates: Aggregates,
    /// Draws the phase in which a cycle begins.
    draws: u64,
}

/// How many packets more than expected acknowledgements come at once for.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregates {
    most: [f64; 2],
    slot: usize,
    rounds: u32,
    since_ns: u64,
    acked: f64,
}

impl Bbr {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            rates: Rates::default(),
            segment_bytes: f64::from(config.segment_bytes),
            margin: if config.like == Like::Ns3 { 1.0 } else { MARGIN },
            like: config.like,
            smoothed_ns: None,
            mode: Mode::Startup,
            greatest: Maximum::default(),
            least_round_ns: u64::MAX,
            least_round_at_ns: 0,
            rounds: 0,
            round_starts: false,
            next_round_delivered: 0,
            pacing: None,
            release_ns: 0,
            burst_left: 0,
            window: INITIAL_WINDOW,
            window_before: 0.0,
            gains: (HIGH_GAIN, HIGH_GAIN),
            cycle: 0,
            cycle_at_ns: 0,
            full_rate: 0.0,
            full_rounds: 0,
            is_full: false,
            probe_ends_ns: None,
            probe_round_done: false,
            repair: Repair::None,
            conserves: false,
            aggregates: Aggregates::default(),
            draws: config.seed,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Returns the time at which the next packet may be sent.
    pub(super) fn release_ns(&self) -> u64 {
        if self.burst_left > 0 { 0 } else { self.release_ns }
    }

    /// Notes that a packet is sent, with `in_flight` before it.
    pub(super) fn on_sent(&mut self, now_ns: u64, seq: u64, in_flight: u64) {
        self.rates.on_sent(now_ns, seq, in_flight);
        let Some(pacing) = self.pacing else { return };
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return;
        }
        let burst = self.burst();
        let pause_ns = (SECOND * burst / pacing.max(1e-3)) as u64;
        self.release_ns = self.release_ns.max(now_ns).saturating_add(pause_ns);
        self.burst_left = burst as u32 - 1;
    }

    /// Notes that losses are going to be repaired.
    fn save_window(&mut self) {
        let is_first = self.repair < Repair::Recovery && self.mode != Mode::ProbeRoundTrip;
        self.window_before =
            if is_first { self.window } else { self.window_before.max(self.window) };
    }

    pub(super) fn on_timeout(&mut self) {
        self.save_window();
        self.repair = Repair::Timeout;
        self.full_rate = 0.0;
        self.round_starts = true;
        self.conserves = false;
        self.window = 1.0;
    }

    pub(super) fn on_acked(&mut self, mut facts: Acked) {
        if self.like == Like::Ns3 {
            facts.round_ns = self.smoothed(facts.round_ns);
        }
        let sample = self.rates.sample(facts.now_ns, self.least_round_ns);
        self.update_rate(sample);
        self.update_aggregates(facts, sample);
        self.update_cycle(facts);
        self.update_full();
        self.update_drain(facts);
        self.update_round_trip(facts);
        self.gains = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle], WINDOW_GAIN),
            Mode::ProbeRoundTrip => (1.0, 1.0),
        };
        self.update_pacing(facts.round_ns);
        self.update_window(facts, sample);
    }

    /// RFC 6298's mean of round trips, which ns-3.37 calls the last one.
    fn smoothed(&mut self, round_ns: u64) -> u64 {
        let before_ns = self.smoothed_ns.unwrap_or(round_ns);
        let smoothed_ns = before_ns - before_ns / 8 + round_ns / 8;
        self.smoothed_ns = Some(smoothed_ns);
        smoothed_ns
    }

    fn update_rate(&mut self, sample: Sample) {
        self.round_starts = false;
        let Some(rate) = sample.rate else { return };
        if sample.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = self.rates.delivered();
            self.rounds += 1;
            self.round_starts = true;
            self.conserves = false;
        }
        self.greatest.update(self.rounds, RATE_ROUNDS, rate);
    }

    fn update_aggregates(&mut self, facts: Acked, sample: Sample) {
        let rate = self.greatest.get();
        let of = &mut self.aggregates;
        if sample.acked == 0 || sample.rate.is_none() {
            return;
        }
        if self.round_starts {
            of.rounds += 1;
            if of.rounds >= AGGREGATE_ROUNDS {
                of.rounds = 0;
                of.slot = 1 - of.slot;
                of.most[of.slot] = 0.0;
            }
        }
        let seconds = facts.now_ns.saturating_sub(of.since_ns) as f64 / SECOND;
        let mut expected = rate * seconds;
        if of.acked <= expected {
            of.acked = 0.0;
            of.since_ns = facts.now_ns;
            expected = 0.0;
        }
        of.acked += sample.acked as f64;
        let extra = (of.acked - expected).min(self.window);
        of.most[of.slot] = of.most[of.slot].max(extra);
    }

    fn update_cycle(&mut self, facts: Acked) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let lasted_ns = facts.now_ns.saturating_sub(self.cycle_at_ns);
        let is_long = lasted_ns > self.least_round_ns;
        let gain = CYCLE[self.cycle];
        let in_flight = self.in_flight_at_release(facts.now_ns, facts.in_flight.0);
        let is_over = if gain > 1.0 {
            is_long && (facts.lost > 0 || in_flight >= self.in_flight_for(gain))
        } else if gain < 1.0 {
            is_long || in_flight <= self.in_flight_for(1.0)
        } else {
            is_long
        };
        if is_over {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at_ns = facts.now_ns;
        }
    }

    fn update_full(&mut self) {
        if self.is_full || !self.round_starts {
            return;
        }
        let rate = self.greatest.get();
        if rate >= self.full_rate * FULL_GROWTH {
            self.full_rate = rate;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn update_drain(&mut self, facts: Acked) {
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        let in_flight = self.in_flight_at_release(facts.now_ns, facts.in_flight.1);
        if self.mode == Mode::Drain && in_flight <= self.in_flight_for(1.0) {
            self.probe_bandwidth(facts.now_ns);
        }
    }

    fn probe_bandwidth(&mut self, now_ns: u64) {
        self.mode = Mode::ProbeBandwidth;
        // Any phase but the one that drains, by chance, so that flows don't probe together.
        self.draws =
            self.draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let phase = CYCLE.len() - 1 - (self.draws >> 33) as usize % (CYCLE.len() - 1);
        self.cycle = (phase + 1) % CYCLE.len();
        self.cycle_at_ns = now_ns;
    }

    fn update_round_trip(&mut self, facts: Acked) {
        let now_ns = facts.now_ns;
        let is_old = now_ns > self.least_round_at_ns.saturating_add(ROUND_TRIP_WINDOW_NS);
        if facts.round_ns < self.least_round_ns || is_old {
            self.least_round_ns = facts.round_ns;
            self.least_round_at_ns = now_ns;
        }
        if is_old && self.mode != Mode::ProbeRoundTrip {
            self.mode = Mode::ProbeRoundTrip;
            self.save_window();
            self.probe_ends_ns = None;
        }
        if self.mode != Mode::ProbeRoundTrip {
            return;
        }
        match self.probe_ends_ns {
            None if facts.in_flight.1 as f64 <= WINDOW_MIN => {
                self.probe_ends_ns = Some(now_ns + PROBE_ROUND_TRIP_NS);
                self.probe_round_done = false;
                self.next_round_delivered = self.rates.delivered();
            }
            None => {}
            Some(ends_ns) => {
                self.probe_round_done |= self.round_starts;
                if self.probe_round_done && now_ns > ends_ns {
                    self.least_round_at_ns = now_ns;
                    self.window = self.window.max(self.window_before);
                    match self.is_full {
                        true => self.probe_bandwidth(now_ns),
                        false => self.mode = Mode::Startup,
                    }
                }
            }
        }
    }

    fn update_pacing(&mut self, round_ns: u64) {
        let first = || HIGH_GAIN * self.window / (round_ns.max(1) as f64 / SECOND);
        let pacing = self.pacing.unwrap_or_else(first);
        let rate = self.greatest.get() * self.gains.0 * self.margin;
        self.pacing = Some(if self.is_full || rate > pacing { rate } else { pacing });
    }

    fn update_window(&mut self, facts: Acked, sample: Sample) {
        let acked = sample.acked as f64;
        if acked > 0.0 && !self.repairs(facts, acked) {
            let aggregate = match self.is_full {
                true => {
                    let most = self.aggregates.most[0].max(self.aggregates.most[1]);
                    most.min(self.greatest.get() * AGGREGATE_S)
                }
                false => 0.0,
            };
            let target = self.with_bursts(self.product(self.gains.1) + aggregate);
            if self.is_full {
                self.window = (self.window + acked).min(target);
            } else if self.window < target || (self.rates.delivered() as f64) < INITIAL_WINDOW {
                self.window += acked;
            }
            self.window = self.window.max(WINDOW_MIN);
        }
        if self.mode == Mode::ProbeRoundTrip {
            self.window = self.window.min(WINDOW_MIN);
        }
    }

    /// Sets the window while losses are repaired, and restores it after that; returns true if that is all.
    fn repairs(&mut self, facts: Acked, acked: f64) -> bool {
        let before = self.repair;
        if facts.repair >= Repair::Recovery && before < Repair::Recovery {
            self.save_window();
        }
        if facts.lost > 0 {
            self.window = (self.window - facts.lost as f64).max(1.0);
        }
        let in_flight = facts.in_flight.1 as f64;
        if facts.repair == Repair::Recovery && before != Repair::Recovery {
            self.conserves = true;
            self.next_round_delivered = self.rates.delivered();
            self.window = in_flight + acked;
        } else if before >= Repair::Recovery && facts.repair < Repair::Recovery {
            self.window = self.window.max(self.window_before);
            self.conserves = false;
        }
        self.repair = facts.repair;
        if self.conserves {
            self.window = self.window.max(in_flight + acked);
        }
        self.conserves
    }

    /// The product of rate and least round trip, times a gain.
    fn product(&self, gain: f64) -> f64 {
        match self.least_round_ns {
            u64::MAX => INITIAL_WINDOW,
            round_ns => (self.greatest.get() * round_ns as f64 / SECOND * gain).ceil(),
        }
    }

    /// The number of packets that are sent at once: segments that leave the host as one (TSO).
    fn burst(&self) -> f64 {
        if self.like == Like::Ns3 {
            return 1.0;
        }
        let bytes = self.pacing.unwrap_or(0.0) * self.segment_bytes;
        let least = if bytes < BURST_RATE { 1.0 } else { 2.0 };
        (bytes * BURST_S / self.segment_bytes).floor().clamp(least, BURST_MAX)
    }

    /// A window with room for three bursts.
    fn with_bursts(&self, packets: f64) -> f64 {
        let even = ((packets + 3.0 * self.burst() + 1.0) as u64 & !1) as f64;
        let probes = self.mode == Mode::ProbeBandwidth && self.cycle == 0;
        if probes { even + 2.0 } else { even }
    }

    /// What will be in flight when the next packets may go: by then some of it has arrived, and with a gain above one they count along.
    /// That is Linux's; ns-3 has what is in flight.
    fn in_flight_at_release(&self, now_ns: u64, in_flight: u64) -> f64 {
        if self.like == Like::Ns3 {
            return in_flight as f64;
        }
        let wait_s = self.release_ns.saturating_sub(now_ns) as f64 / SECOND;
        let arrives = (self.greatest.get() * wait_s).floor();
        let joins = if self.gains.0 > 1.0 { self.burst() } else { 0.0 };
        (in_flight as f64 + joins - arrives).max(0.0)
    }

    fn in_flight_for(&self, gain: f64) -> f64 {
        self.with_bursts(self.product(gain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_reckoned_until_the_next_packets_go() {
        let mut bbr = Bbr::new(&TcpConfig::bbr());
        bbr.greatest.update(0, RATE_ROUNDS, 1_000.0);
        bbr.pacing = Some(1_000.0);
        bbr.release_ns = 105_000_000;
        // In 5 ms five of 20 arrive, and where more is sent than arrives, the next two count along.
        bbr.gains = (1.0, WINDOW_GAIN);
        assert_eq!(bbr.in_flight_at_release(100_000_000, 20), 15.0);
        bbr.gains = (1.25, WINDOW_GAIN);
        assert_eq!(bbr.in_flight_at_release(100_000_000, 20), 17.0);
        assert_eq!(bbr.in_flight_at_release(200_000_000, 20), 22.0);
    }
}
