//! Proportional integral controller enhanced, by RFC 8033: sections 4 and 5.1 to 5.3, with delays from time
//! stamps. Like Linux's (`net/sched/sch_pie.c`) it has the derandomization of section 5.4, too.

use dwell_base::Rng;
use dwell_base::time::SECOND_NS;

use crate::plan::{Managed, Pie};
use crate::tcp::Like;

use super::{Line, PACKET_BYTES, Waiting};

/// Above this probability packets are dropped even if they take marks.
const MARKED_MAX: f64 = 0.1;
/// Nothing is dropped before the probabilities since the last drop add up to this, and at the other sum in any case.
const SUMS: (f64, f64) = (0.85, 8.5);
/// The probability is scaled down while it is small: below each of these, by that.
const SCALES: [(f64, f64); 6] = [
    (0.000_001, 1.0 / 2_048.0),
    (0.000_01, 1.0 / 512.0),
    (0.000_1, 1.0 / 128.0),
    (0.001, 1.0 / 32.0),
    (0.01, 1.0 / 8.0),
    (0.1, 1.0 / 2.0),
];
/// The most by which a large probability grows at once, and what a very large delay adds.
const STEP_MAX: f64 = 0.02;
const DELAY_MAX_NS: u64 = 250_000_000;
/// The factor by which it falls while nothing waits.
const DECAY: f64 = 0.98;
/// After so many updates without a packet nothing is left of the probability.
const IDLE_UPDATES: u64 = 10_000;

/// A queue whose drops keep its delay at a target.
#[derive(Clone, Debug)]
pub(crate) struct PieQueue {
    plan: Pie,
    ecn: bool,
    packets_max: u32,
    line: Line,
    rng: Rng,
    probability: f64,
    /// The probabilities of what came since the last drop.
    sum: f64,
    delay_ns: u64,
    delay_before_ns: u64,
    burst_left_ns: u64,
    next_update_ns: u64,
}

impl PieQueue {
    pub(super) fn new(plan: Pie, managed: &Managed, rng: Rng) -> Self {
        Self {
            plan,
            ecn: managed.ecn,
            packets_max: managed.packets,
            line: Line::default(),
            rng,
            probability: 0.0,
            sum: 0.0,
            delay_ns: 0,
            delay_before_ns: 0,
            burst_left_ns: plan.burst_ns,
            next_update_ns: plan.update_ns,
        }
    }

    pub(super) fn push(&mut self, now_ns: u64, mut packet: Waiting, dropped: &mut Vec<u32>) {
        self.catch_up(now_ns);
        let is_full = self.line.packets.len() >= self.packets_max as usize;
        let is_early = !is_full && self.drops_early();
        let is_marked = is_early && self.ecn && self.probability <= MARKED_MAX && packet.mark();
        if is_full || (is_early && !is_marked) {
            self.sum = 0.0;
            return dropped.push(packet.id);
        }
        self.line.push(packet);
    }

    fn drops_early(&mut self) -> bool {
        let is_linux = self.plan.like == Like::Linux;
        // Linux takes the latest delay, and two packets for enough.
        let (delay_ns, least) = match is_linux {
            true => (self.delay_ns, 2 * PACKET_BYTES),
            false => (self.delay_before_ns, 2 * PACKET_BYTES + 1),
        };
        let is_low = delay_ns < self.plan.target_ns / 2 && self.probability < 0.2;
        if self.burst_left_ns > 0 || is_low || self.line.bytes < least {
            return false;
        }
        if !is_linux {
            return self.rng.chance(self.probability);
        }
        self.sum = if self.probability == 0.0 { 0.0 } else { self.sum + self.probability };
        self.sum >= SUMS.0 && (self.sum >= SUMS.1 || self.draws())
    }

    /// Draws whether the next packet is dropped, with the probability of now.
    fn draws(&mut self) -> bool {
        let is_drawn = self.rng.chance(self.probability);
        if is_drawn {
            self.sum = 0.0;
        }
        is_drawn
    }

    pub(super) fn pop(&mut self, now_ns: u64) -> Option<Waiting> {
        self.catch_up(now_ns);
        let packet = self.line.pop()?;
        self.delay_ns = now_ns.saturating_sub(packet.since_ns);
        Some(packet)
    }

    pub(super) fn len(&self) -> usize {
        self.line.packets.len()
    }

    /// Does the updates that are due. Between two events their inputs don't change.
    fn catch_up(&mut self, now_ns: u64) {
        let due = now_ns.saturating_sub(self.next_update_ns) / self.plan.update_ns;
        if due > IDLE_UPDATES {
            self.next_update_ns += (due - 1) * self.plan.update_ns;
            (self.probability, self.delay_before_ns) = (0.0, 0);
            self.burst_left_ns = self.plan.burst_ns;
        }
        while self.next_update_ns <= now_ns {
            self.next_update_ns += self.plan.update_ns;
            self.update();
        }
    }

    fn update(&mut self) {
        let delay_ns = if self.line.packets.is_empty() { 0 } else { self.delay_ns };
        let seconds = |ns: u64| ns as f64 / SECOND_NS as f64;
        let (now, before) = (seconds(delay_ns), seconds(self.delay_before_ns));
        let error = now - seconds(self.plan.target_ns);
        let mut step = self.plan.alpha * error + self.plan.beta * (now - before);
        if let Some(&(_, scale)) = SCALES.iter().find(|&&(below, _)| self.probability < below) {
            step *= scale;
        }
        if self.probability >= 0.1 && step > STEP_MAX {
            step = STEP_MAX;
        }
        self.probability += step;
        if delay_ns == 0 && self.delay_before_ns == 0 {
            self.probability *= DECAY;
        }
        if delay_ns > DELAY_MAX_NS {
            self.probability += STEP_MAX;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        let half_ns = self.plan.target_ns / 2;
        let is_calm = delay_ns < half_ns && self.delay_before_ns < half_ns;
        self.burst_left_ns = match self.probability == 0.0 && is_calm {
            true => self.plan.burst_ns,
            false => self.burst_left_ns.saturating_sub(self.plan.update_ns),
        };
        self.delay_before_ns = delay_ns;
    }
}
