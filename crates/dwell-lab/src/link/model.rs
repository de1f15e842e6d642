//! The model: a queue, a transmitter, a medium and a delay line.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use dwell_base::{Instant, Rate, Rng};

use super::{LinkSpec, LinkStats};

/// One direction of a link that carries packets of type `T`.
///
/// Push packets in, ask when the next one may come out, pop it then. Times must not go
/// backwards; a model that was left alone for long catches up exactly, because everything
/// inside happens at its own time and not at the time of the call.
#[derive(Clone, Debug)]
pub struct LinkModel<T> {
    spec: LinkSpec,
    rate: Option<Rate>,
    /// The number of rate steps of the spec that have happened.
    steps_done: usize,
    chances: Chances,
    waiting: VecDeque<Item<T>>,
    waiting_bytes: u64,
    sending: Option<Sending<T>>,
    /// The present busy period: rounding is done once over all its bytes, so that the rate
    /// is exact however long it lasts.
    busy_from: Instant,
    busy_bytes: u64,
    line: BinaryHeap<InFlight<T>>,
    /// The packets that have left the transmitter so far; a packet's number in the delay line.
    departures: u64,
    latest_due: Instant,
    newest_delivered: Option<u64>,
    stats: LinkStats,
}

/// A packet that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// The packet that was pushed.
    pub packet: T,
    /// Its length, as pushed.
    pub len: usize,
    /// The time at which it arrived: not later than the `now` of the pop that returned it.
    pub at: Instant,
    /// Random bits that determine the damage, if the packet is damaged.
    pub corrupt: Option<u64>,
}

impl<T> Delivered<T> {
    /// Flips one bit of `bytes` if this packet is damaged.
    pub fn damage(&self, bytes: &mut [u8]) {
        if let Some(random) = self.corrupt
            && !bytes.is_empty()
        {
            let bit = random % (bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}

/// The most bytes that a link holds, however long its delay: it bounds the memory of an emulator
/// that is flooded.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// The random generators, one per impairment: turning one on or off does not change the others'
/// results.
#[derive(Clone, Debug)]
struct Chances {
    loss: Rng,
    jitter: Rng,
    reorder: Rng,
    duplicate: Rng,
    corrupt: Rng,
}

impl Chances {
    fn new(seed: u64) -> Self {
        let stream = |number| Rng::stream(seed, number);
        Self {
            loss: stream(0),
            jitter: stream(1),
            reorder: stream(2),
            duplicate: stream(3),
            corrupt: stream(4),
        }
    }
}

#[derive(Clone, Debug)]
struct Item<T> {
    packet: T,
    len: usize,
}

#[derive(Clone, Debug)]
struct Sending<T> {
    item: Item<T>,
    end: Instant,
}

#[derive(Clone, Debug)]
struct InFlight<T> {
    due: Instant,
    number: u64,
    corrupt: Option<u64>,
    item: Item<T>,
}

/// Reversed, because `BinaryHeap` yields the greatest: earliest due first, ties in the order of
/// departure.
impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for InFlight<T> {}

impl<T: Clone> LinkModel<T> {
    /// Makes an empty link.
    pub fn new(spec: LinkSpec) -> Self {
        Self {
            rate: spec.rate,
            steps_done: 0,
            chances: Chances::new(spec.seed),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sending: None,
            busy_from: Instant::ZERO,
            busy_bytes: 0,
            line: BinaryHeap::new(),
            departures: 0,
            latest_due: Instant::ZERO,
            newest_delivered: None,
            stats: LinkStats::default(),
            spec,
        }
    }

    /// Returns the properties of the link.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Returns the rate at this moment, rate steps included.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Returns the counters, up to the last push or pop.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Returns the bytes that wait for the transmitter.
    pub fn backlog_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Lets a packet of `len` bytes enter, or drops it if the queue is full.
    pub fn push(&mut self, now: Instant, len: usize, packet: T) {
        self.advance(now);
        let bytes = len as u64;
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes;
        if self.is_full_for(bytes) {
            self.stats.dropped_queue += 1;
            self.stats.dropped_bytes += bytes;
        } else {
            self.stats.held += 1;
            self.stats.held_bytes += bytes;
            let item = Item { packet, len };
            match (self.rate, self.sending.is_some()) {
                (None, _) => self.depart(now, item),
                (Some(rate), false) => {
                    (self.busy_from, self.busy_bytes) = (now, 0);
                    self.start(rate, item);
                }
                (Some(_), true) => {
                    self.waiting_bytes += bytes;
                    self.waiting.push_back(item);
                }
            }
        }
        self.assert_invariants();
    }

    /// Returns the earliest moment at which a packet can come out; `None` while the link is empty.
    /// It may turn out to be too early (the packet was lost): pop, then ask again.
    pub fn next_delivery(&self) -> Option<Instant> {
        let arriving = self.line.peek().map(|packet| packet.due);
        let leaving = self.sending.as_ref().map(|sending| {
            let out = sending.end + self.spec.delay_ns.saturating_sub(self.spec.jitter_ns);
            // A change of rate moves the end of the transmission.
            self.next_step().map_or(out, |step| out.min(step))
        });
        [arriving, leaving].into_iter().flatten().min()
    }

    /// Returns the next packet that has come out by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Delivered<T>> {
        self.advance(now);
        if self.line.peek()?.due > now {
            return None;
        }
        let InFlight { due, number, corrupt, item } = self.line.pop()?;
        self.stats.held -= 1;
        self.stats.held_bytes -= item.len as u64;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += item.len as u64;
        self.stats.corrupted += u64::from(corrupt.is_some());
        if self.newest_delivered.is_some_and(|newest| newest > number) {
            self.stats.reordered += 1;
        } else {
            self.newest_delivered = Some(number);
        }
        self.assert_invariants();
        Some(Delivered { packet: item.packet, len: item.len, at: due, corrupt })
    }

    /// Changes the link. Packets under way arrive as they would have; packets that wait follow the
    /// new rules. The new spec gives the properties of the link at every time: its rate is now that
    /// of its latest step that lies in the past, if there is one.
    pub fn set_spec(&mut self, now: Instant, spec: LinkSpec) {
        self.advance(now);
        if spec.seed != self.spec.seed {
            self.chances = Chances::new(spec.seed);
        }
        self.steps_done = spec.rate_steps.iter().filter(|step| step.at_ns <= now.as_ns()).count();
        let past = &spec.rate_steps[..self.steps_done];
        let rate = past.last().map(|step| step.rate).or(spec.rate);
        self.spec = spec;
        self.change_rate(now, rate);
        self.advance(now);
        self.assert_invariants();
    }

    /// Checks that the counters balance and agree with the packets inside.
    pub fn check(&self) -> Result<(), String> {
        let lens = || {
            let line = self.line.iter().map(|packet| packet.item.len);
            let sending = self.sending.iter().map(|sending| sending.item.len);
            self.waiting.iter().map(|item| item.len).chain(sending).chain(line)
        };
        let (held, held_bytes) = (lens().count() as u64, lens().map(|len| len as u64).sum());
        if !self.stats.balanced() {
            return Err(format!("the accounts do not balance: {:?}", self.stats));
        }
        if (self.stats.held, self.stats.held_bytes) != (held, held_bytes) {
            return Err(format!("{held} packets ({held_bytes} bytes) inside: {:?}", self.stats));
        }
        if self.sending.is_none() && !self.waiting.is_empty() {
            return Err("the transmitter idles while packets wait".into());
        }
        Ok(())
    }

    /// Checks after every event what is cheap to check.
    fn assert_invariants(&self) {
        debug_assert!(self.stats.balanced(), "{:?}", self.stats);
        debug_assert!(self.sending.is_some() || self.waiting.is_empty());
    }

    fn is_full_for(&self, bytes: u64) -> bool {
        let queue_is_full = match self.rate {
            // A packet that finds the transmitter idle does not wait.
            Some(rate) if self.sending.is_some() => {
                self.waiting_bytes + bytes > self.spec.queue.bytes(rate)
            }
            _ => false,
        };
        queue_is_full || self.stats.held_bytes + bytes > HELD_BYTES_MAX
    }

    fn next_step(&self) -> Option<Instant> {
        self.spec.rate_steps.get(self.steps_done).map(|step| Instant::from_ns(step.at_ns))
    }

    /// Processes, in the order of time, all events inside up to `now`.
    fn advance(&mut self, now: Instant) {
        loop {
            let step = self.next_step().unwrap_or(Instant::FAR_FUTURE);
            let end = self.sending.as_ref().map_or(Instant::FAR_FUTURE, |sending| sending.end);
            if step <= now && step <= end {
                let rate = self.spec.rate_steps[self.steps_done].rate;
                self.steps_done += 1;
                self.change_rate(step, Some(rate));
            } else if end <= now
                && let Some(sent) = self.sending.take()
            {
                self.depart(end, sent.item);
                self.start_next();
            } else {
                return;
            }
        }
    }

    fn start_next(&mut self) {
        if let Some(rate) = self.rate
            && let Some(item) = self.waiting.pop_front()
        {
            self.waiting_bytes -= item.len as u64;
            self.start(rate, item);
        }
    }

    fn start(&mut self, rate: Rate, item: Item<T>) {
        self.busy_bytes += item.len as u64;
        let end = self.busy_from + rate.transmission_ns(self.busy_bytes);
        self.sending = Some(Sending { item, end });
    }

    /// Continues the present transmission at the new rate; without a rate all packets that wait
    /// depart.
    fn change_rate(&mut self, at: Instant, rate: Option<Rate>) {
        let old = std::mem::replace(&mut self.rate, rate);
        let (Some(sending), Some(old)) = (self.sending.as_mut(), old) else { return };
        if let Some(rate) = rate {
            let left = u128::from(sending.end.since_ns(at)) * u128::from(old.as_bps());
            let left_ns = left.div_ceil(u128::from(rate.as_bps()));
            sending.end = at + u64::try_from(left_ns).unwrap_or(u64::MAX);
            (self.busy_from, self.busy_bytes) = (sending.end, 0);
        } else {
            let sending = self.sending.take().map(|sending| sending.item);
            self.waiting_bytes = 0;
            for item in sending.into_iter().chain(std::mem::take(&mut self.waiting)) {
                self.depart(at, item);
            }
        }
    }

    /// Sends a packet from the transmitter to the medium, which may lose, double or damage it.
    fn depart(&mut self, at: Instant, item: Item<T>) {
        if self.chances.loss.chance(self.spec.loss) {
            self.stats.held -= 1;
            self.stats.held_bytes -= item.len as u64;
            self.stats.dropped_loss += 1;
            self.stats.dropped_bytes += item.len as u64;
            return;
        }
        let due = self.draw_due(at);
        if self.chances.duplicate.chance(self.spec.duplicate) {
            self.stats.duplicated += 1;
            self.stats.duplicated_bytes += item.len as u64;
            self.stats.held += 1;
            self.stats.held_bytes += item.len as u64;
            self.fly(due, item.clone());
        }
        self.fly(due, item);
    }

    fn fly(&mut self, due: Instant, item: Item<T>) {
        let corrupt = self.chances.corrupt.chance(self.spec.corrupt);
        let corrupt = corrupt.then(|| self.chances.corrupt.next_u64());
        self.line.push(InFlight { due, number: self.departures, corrupt, item });
        self.departures += 1;
    }

    fn draw_due(&mut self, at: Instant) -> Instant {
        let LinkSpec { delay_ns, jitter_ns, .. } = self.spec;
        let jitter = self.chances.jitter.below(jitter_ns.saturating_mul(2).saturating_add(1));
        let in_order =
            (at + delay_ns.saturating_add(jitter).saturating_sub(jitter_ns)).max(self.latest_due);
        if self.chances.reorder.chance(self.spec.reorder) {
            in_order + self.spec.held_back_ns(self.rate)
        } else {
            self.latest_due = in_order;
            in_order
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::{MILLI_NS, SECOND_NS};
    use proptest::prelude::*;

    use super::*;
    use crate::link::QueueLimit;

    fn drain<T: Clone>(model: &mut LinkModel<T>) -> Vec<Delivered<T>> {
        let mut out = Vec::new();
        while let Some(at) = model.next_delivery() {
            out.extend(std::iter::from_fn(|| model.pop(at)));
        }
        out
    }

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn a_packet_takes_its_transmission_and_the_delay() {
        let mut model = LinkModel::new("rate 10mbit delay 20ms".parse().unwrap());
        model.push(at(1000), 1250, 'a');
        model.push(at(1000), 1250, 'b');
        let times: Vec<_> = drain(&mut model).iter().map(|d| (d.packet, d.at.as_ns())).collect();
        assert_eq!(times, [('a', 21_001_000), ('b', 22_001_000)]);
    }

    #[test]
    fn the_queue_drops_what_does_not_fit() {
        let mut model = LinkModel::new("rate 1mbit queue 2000".parse().unwrap());
        for number in 0..4 {
            model.push(Instant::ZERO, 1000, number);
        }
        assert_eq!(model.stats().dropped_queue, 1);
        assert_eq!(model.backlog_bytes(), 2000);
        assert_eq!(drain(&mut model).len(), 3);
    }

    #[test]
    fn a_step_slows_the_packet_that_is_being_sent() {
        // Half of 1250 bytes is through after 0.5 ms; the rest takes ten times as long.
        let mut model = LinkModel::new("rate 10mbit step 500us 1mbit".parse().unwrap());
        model.push(Instant::ZERO, 1250, 'a');
        model.push(Instant::ZERO, 1250, 'b');
        let times: Vec<_> = drain(&mut model).iter().map(|d| d.at.as_ns()).collect();
        assert_eq!(times, [5_500_000, 15_500_000]);
    }

    #[test]
    fn a_link_can_go_down_and_up_and_lose_its_limit() {
        let spec = LinkSpec::new().with_rate(Rate::from_mbps(1));
        let mut model = LinkModel::new(spec.clone());
        for number in 0..3 {
            model.push(Instant::ZERO, 1250, number);
        }
        model.set_spec(at(1), spec.clone().with_loss(1.0));
        assert_eq!(model.pop(at(15 * MILLI_NS)), None);
        model.set_spec(at(15 * MILLI_NS), LinkSpec::new());
        assert_eq!(model.pop(at(15 * MILLI_NS)).map(|d| d.packet), Some(1));
        assert_eq!(model.stats().dropped_loss, 1);
        assert_eq!(drain(&mut model).len(), 1);
        model.check().unwrap();
    }

    #[test]
    fn chances_come_out_near_their_probabilities() {
        let spec = LinkSpec::new()
            .with_loss(0.1)
            .with_duplicate(0.2)
            .with_corrupt(0.05)
            .with_reorder(0.1)
            .with_delay_ns(5 * MILLI_NS);
        let mut model = LinkModel::new(spec);
        for number in 0..20_000u64 {
            model.push(at(number * 100_000), 100, number);
        }
        let delivered = drain(&mut model).len() as f64;
        let stats = model.stats();
        let near = |value: u64, expected: f64| (value as f64 / expected - 1.0).abs() < 0.1;
        assert!(near(stats.dropped_loss, 2000.0), "{stats}");
        assert!(near(stats.duplicated, 3600.0), "{stats}");
        assert!(near(stats.corrupted, delivered * 0.05), "{stats}");
        assert!(near(stats.reordered, delivered * 0.1), "{stats}");
    }

    #[test]
    fn damage_changes_one_bit() {
        let mut model = LinkModel::new(LinkSpec::new().with_corrupt(1.0));
        model.push(Instant::ZERO, 9, ());
        let delivered = model.pop(Instant::ZERO).unwrap();
        let mut bytes = [0u8; 9];
        delivered.damage(&mut bytes);
        assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        delivered.damage(&mut []);
    }

    prop_compose! {
        fn specs()(
            bps in prop::option::of(1_000u64..100_000_000),
            delay_ns in 0u64..50 * MILLI_NS,
            jitter_ns in 0u64..60 * MILLI_NS,
            (loss, reorder) in (0.0..=1.0, 0.0..=1.0),
            (duplicate, corrupt) in (0.0..=1.0, 0.0..=1.0),
            queue in (0u64..20_000).prop_map(QueueLimit::Bytes),
            steps in prop::collection::vec((0u64..SECOND_NS, 1_000u64..100_000_000), 0..4),
            seed: u64,
        ) -> LinkSpec {
            let spec = LinkSpec {
                rate: bps.and_then(Rate::from_bps), reorder_by_ns: None, rate_steps: Vec::new(),
                delay_ns, jitter_ns, loss, reorder, duplicate, corrupt, queue, seed,
            };
            steps.iter().fold(spec, |spec, &(at_ns, bps)| {
                spec.with_rate_step(at_ns, Rate::clamped_bps(bps))
            })
        }
    }

    proptest! {
        #[test]
        fn every_packet_is_accounted_for(
            spec in specs(),
            other in specs(),
            pushes in prop::collection::vec((0u64..20 * MILLI_NS, 0usize..2000, 0u8..8), 1..80),
        ) {
            let mut model = LinkModel::new(spec);
            let mut now = Instant::ZERO;
            for (number, &(gap_ns, len, action)) in pushes.iter().enumerate() {
                now = now + gap_ns;
                match action {
                    0 => model.set_spec(now, other.clone()),
                    1 | 2 => { model.pop(now); }
                    _ => model.push(now, len, number),
                }
                prop_assert_eq!(model.check(), Ok(()));
            }
            drain(&mut model);
            prop_assert_eq!(model.check(), Ok(()));
            prop_assert_eq!(model.stats().held, 0);
        }

        #[test]
        fn order_is_kept_without_reordering(
            spec in specs(),
            gaps in prop::collection::vec(0u64..5 * MILLI_NS, 1..60),
        ) {
            let mut model = LinkModel::new(spec.with_reorder(0.0));
            let mut now = Instant::ZERO;
            for (number, gap_ns) in gaps.iter().enumerate() {
                now = now + *gap_ns;
                model.push(now, 500, number);
            }
            let out = drain(&mut model);
            prop_assert!(out.is_sorted_by_key(|d| d.packet) && out.is_sorted_by_key(|d| d.at));
            prop_assert_eq!(model.stats().reordered, 0);
        }

        #[test]
        fn the_rate_is_exact(bps in 1_000u64..1_000_000_000, lens in prop::collection::vec(1usize..2000, 1..100)) {
            let rate = Rate::clamped_bps(bps);
            let spec = LinkSpec::new().with_rate(rate).with_queue(QueueLimit::Bytes(u64::MAX));
            let mut model = LinkModel::new(spec);
            for &len in &lens {
                model.push(Instant::ZERO, len, ());
            }
            let mut bytes = 0;
            for delivered in drain(&mut model) {
                bytes += delivered.len as u64;
                prop_assert_eq!(delivered.at.as_ns(), rate.transmission_ns(bytes));
            }
        }

        #[test]
        fn it_does_not_matter_how_often_one_looks(
            spec in specs(),
            gaps in prop::collection::vec(0u64..5 * MILLI_NS, 1..40),
        ) {
            let mut lazy = LinkModel::new(spec);
            let mut eager = lazy.clone();
            let mut now = Instant::ZERO;
            let mut early = Vec::new();
            for (number, gap_ns) in gaps.iter().enumerate() {
                now = now + *gap_ns;
                while let Some(next) = eager.next_delivery().filter(|next| *next <= now) {
                    early.extend(std::iter::from_fn(|| eager.pop(next)));
                }
                eager.push(now, 500, number);
                lazy.push(now, 500, number);
            }
            early.extend(drain(&mut eager));
            prop_assert_eq!(early, drain(&mut lazy));
        }
    }
}
