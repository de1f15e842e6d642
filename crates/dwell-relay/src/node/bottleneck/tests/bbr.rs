//! A connection that measures the link rather than fill its queue, as BBR does (Cardwell et al.,
//! draft-ietf-ccwg-bbr): it sends at the highest rate of delivery that it saw of late, in cycles of
//! a quarter more, a quarter less, and six rounds of as much.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

const STARTUP_GAIN: f64 = 2.89;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rates are remembered for this many round trips.
const ROUNDS: u64 = 10;
/// Packets leave in bursts of at least two.
const BURST: f64 = 2.0;
const WINDOW_MIN: f64 = 4.0;

#[derive(Clone, Copy)]
struct Sent {
    serial: u64,
    at: Instant,
    /// What had been delivered then, and when the latest of it was.
    delivered: u64,
    delivered_at: Instant,
}

#[derive(Clone, Default)]
pub(super) struct Bbr {
    sent: VecDeque<Sent>,
    delivered: u64,
    delivered_at: Instant,
    round: u64,
    round_ends: u64,
    /// Rates of delivery, in packets per nanosecond, by round.
    rates: VecDeque<(u64, f64)>,
    rtt_ns: u64,
    rtt_at: Instant,
    next_at: Instant,
    /// Startup is over since then; the rate that it ended at, and rounds without growth.
    full_at: Option<Instant>,
    full: f64,
    full_rounds: u32,
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
    }

    fn gain(&self, now: Instant) -> f64 {
        let Some(full_at) = self.full_at else { return STARTUP_GAIN };
        // The queue that startup has made goes first.
        match now.since_ns(full_at) / self.rtt_ns.max(1) {
            0..2 => 1.0 / STARTUP_GAIN,
            rounds => CYCLE[(rounds % 8) as usize],
        }
    }

    pub(super) fn is_time(&self, now: Instant) -> bool {
        now >= self.next_at
    }

    pub(super) fn sent(&mut self, now: Instant, serial: u64, in_flight: usize) {
        if in_flight == 1 {
            self.delivered_at = now;
        }
        let Self { delivered, delivered_at, .. } = *self;
        self.sent.push_back(Sent { serial, at: now, delivered, delivered_at });
        if serial.is_multiple_of(BURST as u64) && self.rate() > 0.0 {
            let pause_ns = BURST / (self.rate() * self.gain(now));
            self.next_at = self.next_at.max(now.before_ns(MILLI_NS)) + pause_ns as u64;
        }
    }

    /// Returns the window, in packets.
    pub(super) fn acknowledged(&mut self, now: Instant, serial: u64) -> f64 {
        self.delivered += 1;
        self.delivered_at = now;
        while self.sent.front().is_some_and(|first| first.serial < serial) {
            self.sent.pop_front();
        }
        if let Some(sent) = self.sent.pop_front_if(|first| first.serial == serial) {
            let rtt_ns = now.since_ns(sent.at).max(1);
            if self.rtt_ns == 0
                || rtt_ns <= self.rtt_ns
                || now.since_ns(self.rtt_at) > 10 * SECOND_NS
            {
                (self.rtt_ns, self.rtt_at) = (rtt_ns, now);
            }
            if sent.delivered >= self.round_ends {
                self.round += 1;
                self.round_ends = self.delivered;
                self.grew(now);
            }
            let took_ns = now.since_ns(sent.delivered_at).max(self.rtt_ns);
            let rate = (self.delivered - sent.delivered) as f64 / took_ns as f64;
            self.rates.retain(|&(round, other)| round + ROUNDS > self.round && other > rate);
            self.rates.push_back((self.round, rate));
        }
        (2.0 * self.rate() * self.rtt_ns as f64).max(WINDOW_MIN) + BURST
    }

    /// A round is over: has the rate grown?
    fn grew(&mut self, now: Instant) {
        let rate = self.rate();
        if self.full_at.is_some() {
            return;
        }
        if rate > self.full * 1.25 {
            (self.full, self.full_rounds) = (rate, 0);
            return;
        }
        self.full_rounds += 1;
        if self.full_rounds >= 3 {
            self.full_at = Some(now);
        }
    }
}
