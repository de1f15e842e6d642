//! Which flows have a history of their own, where the others of their group share one.
//!
//! Small exchanges between two hosts resemble each other, so that one history for all of them serves
//! best. Long transfers beside each other push each other out of it: each is better off alone, unless
//! they carry the same. So some of them try, and what their batches shrink to decides for the others.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// Places for flows; a flow has one of [`WAYS`] in a set.
const SETS: usize = 256;
const WAYS: usize = 4;
/// A flow that brought so much without a pause is a long transfer.
const LONG_BYTES: u64 = 256 << 10;
/// A pause.
const PAUSE_NS: u64 = 2 * SECOND_NS;
/// Whether a flow should have a history of its own is asked at most this often.
const ASK_NS: u64 = 50 * MILLI_NS;
/// Transfers that brought something in this time are beside each other.
const BESIDE_NS: u64 = SECOND_NS;
/// A new history has too little to refer to until so much went through it; what the next as much shrinks
/// to is compared. (What fills half of the usual window: text shrank by 2 % less after half of that.)
const FILLED_BYTES: u64 = 512 << 10;
const COMPARED_BYTES: u64 = 512 << 10;
/// Of so many transfers beside each other one tries, ...
const FLOWS_PER_TRIAL: usize = 3;
/// ... and at most so many: what one of them carries shrinks more now and less then, which says nothing of its
/// history. Their sum does so less.
const TRIALS_MAX: usize = 3;
/// It must take off at least this share of what the shared one leaves.
const GAIN_PERCENT: u64 = 3;
/// The first that has compared waits so long for the others.
const TRIAL_NS_MAX: u64 = 10 * SECOND_NS;
/// How long one result holds for the others of the group.
const HOLDS_NS: u64 = 60 * SECOND_NS;
/// The time until the next try after one that was in vain: this, and double of it each time.
const RETRY_NS_MIN: u64 = 10 * SECOND_NS;
const RETRY_NS_MAX: u64 = 600 * SECOND_NS;
/// After a group found no context for all the histories of flows, none is begun for so long.
const CROWDED_NS: u64 = 10 * SECOND_NS;
/// Groups that are remembered.
const GROUPS_MAX: usize = 32;
/// Sums of what went through a shared history are halved from here on, so that the latest count most.
const REMEMBERED_BYTES: u64 = 1 << 20;
/// The most memory that the histories of single flows take.
const MEMORY_BYTES_MAX: usize = 96 << 20;

/// Bytes before and after compression.
#[derive(Clone, Copy, Debug, Default)]
struct Shrunk {
    from: u64,
    to: u64,
}

impl Shrunk {
    fn add(&mut self, (from, to): (u64, u64)) {
        (self.from, self.to) = (self.from.saturating_add(from), self.to.saturating_add(to));
    }

    /// The same, and the latest count most.
    fn add_lately(&mut self, bytes: (u64, u64)) {
        self.add(bytes);
        if self.from > REMEMBERED_BYTES {
            (self.from, self.to) = (self.from / 2, self.to / 2);
        }
    }

    /// True if it shrank further than the other.
    fn is_smaller_than(self, other: Self) -> bool {
        self.takes_off(other, 0)
    }

    /// True if it shrank further than the other by more than the least gain.
    fn is_better_than(self, other: Self) -> bool {
        self.takes_off(other, GAIN_PERCENT)
    }

    /// True if it takes off at least so much of what the other leaves.
    fn takes_off(self, other: Self, percent: u64) -> bool {
        let of = |one: Self, of: Self| u128::from(one.to) * u128::from(of.from.max(1));
        of(self, other) * 100 <= of(other, self) * u128::from(100 - percent)
    }
}

/// The history of a flow's own.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// What the shared one did before.
    before: Shrunk,
    filled_bytes: u64,
    shrunk: Shrunk,
    /// The comparison is over.
    is_kept: bool,
}

impl Own {
    /// The shared one did better.
    fn has_lost(&self) -> bool {
        self.before.is_smaller_than(self.shrunk)
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    flow: u64,
    /// The group that it is of, if it has no history of its own.
    shared: u64,
    bytes: u64,
    /// What its batches shrank to in the shared history.
    shrunk: Shrunk,
    at: Instant,
    ask_at: Instant,
    /// After it went back, it asks no sooner than this: double of it each time.
    retry_ns: u64,
    own: Option<Own>,
}

/// Flows that try at the same time.
#[derive(Clone, Debug, Default)]
struct Trial {
    running: Vec<u64>,
    /// Those that have compared, with whether they lost by it.
    done: Vec<(u64, bool)>,
    /// What came out of those, and what would have in the shared history.
    own: Shrunk,
    shared: Shrunk,
    /// The others are not waited for longer.
    due_at: Instant,
}

impl Trial {
    /// True if another flow may try, of so many that share a history yet.
    fn admits(&self, beside: usize) -> bool {
        let running = self.running.len();
        self.done.is_empty()
            && running < ((beside + running) / FLOWS_PER_TRIAL).clamp(1, TRIALS_MAX)
    }

    /// A flow has compared.
    fn end(&mut self, now: Instant, flow: u64, own: &Own) {
        if self.done.is_empty() {
            self.due_at = now + TRIAL_NS_MAX;
        }
        self.running.retain(|it| *it != flow);
        self.done.push((flow, own.has_lost()));
        let Own { before, shrunk, .. } = own;
        self.own.add((shrunk.from, shrunk.to));
        let to = u128::from(shrunk.from) * u128::from(before.to) / u128::from(before.from.max(1));
        self.shared.add((shrunk.from, u64::try_from(to).unwrap_or(u64::MAX)));
    }

    /// A flow is gone, or has no history of its own any more.
    fn forget(&mut self, flow: u64) {
        self.running.retain(|it| *it != flow);
        self.done.retain(|(it, _)| *it != flow);
        if self.running.is_empty() && self.done.is_empty() {
            *self = Self::default();
        }
    }

    /// True if all have compared that are waited for.
    fn is_over(&self, now: Instant) -> bool {
        !self.done.is_empty() && (self.running.is_empty() || now >= self.due_at)
    }
}

/// What is known of a group.
#[derive(Clone, Debug)]
struct Group {
    group: u64,
    shrunk: Shrunk,
    trial: Trial,
    /// Flows of their own are known to be better until then.
    better_until: Instant,
    /// None tries before.
    retry_at: Instant,
    retry_ns: u64,
    used_at: Instant,
}

impl Group {
    fn new(group: u64) -> Self {
        Self {
            group,
            shrunk: Shrunk::default(),
            trial: Trial::default(),
            better_until: Instant::ZERO,
            retry_at: Instant::ZERO,
            retry_ns: RETRY_NS_MIN,
            used_at: Instant::ZERO,
        }
    }

    /// Ends a trial. Returns the flows that go back to the shared history.
    fn judge(&mut self, now: Instant) -> Vec<u64> {
        let trial = std::mem::take(&mut self.trial);
        let is_better = trial.own.is_better_than(trial.shared);
        if is_better {
            (self.better_until, self.retry_ns) = (now + HOLDS_NS, RETRY_NS_MIN);
        } else {
            self.better_until = Instant::ZERO;
            self.retry_at = now + self.retry_ns;
            self.retry_ns = (2 * self.retry_ns).min(RETRY_NS_MAX);
        }
        let back = trial.done.into_iter().filter(|(_, has_lost)| *has_lost || !is_better);
        back.map(|(flow, _)| flow).collect()
    }
}

/// Decides which flows have a history of their own.
///
/// Bounded: 1,024 flows and 32 groups are remembered.
#[derive(Clone, Debug)]
pub struct FlowHistories {
    /// The most flows with one of their own at a time.
    own_max: usize,
    /// Empty until the first packet comes.
    sets: Vec<[Option<Flow>; WAYS]>,
    groups: Vec<Group>,
    /// The flows that have one, and the keys of their groups.
    own: Vec<(u64, u64)>,
    /// The memory that the latest one took.
    memory_bytes: usize,
    /// None is begun before.
    crowded_until: Instant,
}

impl FlowHistories {
    /// With so many contexts in all; with zero no flow ever has a history of its own.
    pub fn new(contexts: usize) -> Self {
        let mut this = Self {
            own_max: 0,
            sets: Vec::new(),
            groups: Vec::new(),
            own: Vec::new(),
            memory_bytes: 1,
            crowded_until: Instant::ZERO,
        };
        this.set_contexts(contexts);
        this
    }

    /// Changes the number of contexts. With some, flows that have one of their own keep it.
    pub fn set_contexts(&mut self, contexts: usize) {
        // Some are left for what shares one.
        self.own_max = contexts - contexts.div_ceil(4);
    }

    /// Returns the number of flows that have one.
    pub fn own(&self) -> usize {
        self.own.len()
    }

    /// A packet of so many bytes came, which may be compressed. Returns the key of the group whose
    /// history it belongs to: `shared`, or one that only its flow has.
    pub fn group_of(&mut self, now: Instant, shared: u64, flow: u64, bytes: u32) -> u64 {
        if self.own_max == 0 {
            return shared;
        }
        let known = self.flow(now, shared, flow);
        known.bytes += u64::from(bytes);
        let (is_long, has_own) = (known.bytes >= LONG_BYTES, known.own.is_some());
        let asks = is_long && !has_own && now >= known.ask_at;
        if asks {
            known.ask_at = now + ASK_NS;
            self.remember(now, shared);
        }
        if has_own || (asks && self.moves(now, shared, flow)) { own_key(flow) } else { shared }
    }

    /// The place of a flow: its own, one that is free, or that of the one that was idle longest.
    fn flow(&mut self, now: Instant, shared: u64, flow: u64) -> &mut Flow {
        if self.sets.is_empty() {
            self.sets.resize(SETS, [None; WAYS]);
        }
        let set = &mut self.sets[flow as usize % SETS];
        let is_same = |it: &Flow| it.flow == flow && it.shared == shared;
        let same = set.iter().position(|it| it.as_ref().is_some_and(is_same));
        let oldest = || {
            let ages = set.iter().enumerate().map(|(at, it)| (it.map(|it| it.at), at));
            ages.min().map_or(0, |(_, at)| at)
        };
        let at = same.unwrap_or_else(oldest);
        let shrunk = Shrunk::default();
        let (ask_at, retry_ns) = (now, RETRY_NS_MIN);
        let new = Flow { flow, shared, bytes: 0, shrunk, at: now, ask_at, retry_ns, own: None };
        let place = &mut set[at];
        let goes_on = same.is_some() && place.is_some_and(|it| now.since_ns(it.at) < PAUSE_NS);
        if !goes_on && let Some(gone) = place.replace(new) {
            release(&mut self.own, &mut self.groups, &gone);
        }
        let known = place.get_or_insert(new);
        known.at = now;
        known
    }

    /// True if the flow has a history of its own from now on.
    fn moves(&mut self, now: Instant, shared: u64, flow: u64) -> bool {
        self.forget_idle(now);
        self.judge_trials(now);
        let own_max = self.own_max.min(MEMORY_BYTES_MAX / self.memory_bytes.max(1));
        let beside = self.sets.iter().flatten().flatten().filter(|it| {
            let is_long = it.bytes >= LONG_BYTES && it.own.is_none();
            is_long && it.shared == shared && now.since_ns(it.at) < BESIDE_NS
        });
        let beside = beside.count();
        if self.own.len() >= own_max || now < self.crowded_until || beside < 2 {
            return false;
        }
        let Some(group) = self.groups.iter_mut().find(|it| it.group == shared) else {
            return false;
        };
        let is_better = now < group.better_until;
        let may_try = group.trial.admits(beside) && now >= group.retry_at;
        if group.shrunk.from < COMPARED_BYTES || !(is_better || may_try) {
            return false;
        }
        if !is_better {
            group.trial.running.push(flow);
        }
        let group_before = group.shrunk;
        let known = self.flow(now, shared, flow);
        // Its own bytes tell more than those of all.
        let before =
            if known.shrunk.from >= COMPARED_BYTES / 4 { known.shrunk } else { group_before };
        let own = Own { before, filled_bytes: 0, shrunk: Shrunk::default(), is_kept: false };
        known.own = Some(own);
        self.own.push((own_key(flow), flow));
        true
    }

    /// Takes back what flows have that send nothing any more.
    fn forget_idle(&mut self, now: Instant) {
        for place in self.sets.iter_mut().flatten() {
            let is_idle = |it: &Flow| it.own.is_some() && now.since_ns(it.at) >= PAUSE_NS;
            if let Some(gone) = place.filter(is_idle) {
                release(&mut self.own, &mut self.groups, &gone);
                *place = None;
            }
        }
    }

    /// A batch of the group, which begins with a packet of the flow, was compressed in its context, from so
    /// many bytes to so many; the context takes `memory_bytes`.
    pub fn compressed(
        &mut self,
        now: Instant,
        (group, flow): (u64, u64),
        bytes: (u64, u64),
        memory_bytes: usize,
    ) {
        if self.own_max == 0 {
            return;
        }
        match self.own.iter().position(|(key, _)| *key == group) {
            Some(at) => {
                self.memory_bytes = memory_bytes;
                self.compressed_alone(now, at, bytes);
            }
            None => self.compressed_shared(now, (group, flow), bytes),
        }
    }

    /// A packet of the flow, of so many bytes, went raw for want of time. The more histories there are the smaller are
    /// the batches of each, and the more often the link takes packets of others meanwhile: that is a part of what
    /// they cost.
    pub fn passed_raw(&mut self, flow: u64, bytes: u64) {
        let Some(set) = self.sets.get_mut(flow as usize % SETS) else { return };
        let Some(known) = set.iter_mut().flatten().find(|it| it.flow == flow) else { return };
        if let Some(own) = &mut known.own {
            // It is judged by what went through its history, and what went beside that meanwhile.
            if !own.is_kept && own.filled_bytes >= FILLED_BYTES {
                own.shrunk.add((bytes, bytes));
            }
            return;
        }
        known.shrunk.add_lately((bytes, bytes));
        let shared = known.shared;
        if let Some(group) = self.groups.iter_mut().find(|it| it.group == shared) {
            group.shrunk.add_lately((bytes, bytes));
        }
    }

    /// There was no context for a batch of this group. If it is that of a single flow, the flow goes back; if
    /// many share it, some other flow does.
    pub fn crowded_out(&mut self, now: Instant, group: u64) {
        let own = self.own.iter().position(|(key, _)| *key == group);
        let Some(at) = own.or(self.own.len().checked_sub(1)) else { return };
        self.crowded_until = now + CROWDED_NS;
        let (_, flow) = self.own.swap_remove(at);
        let set = &mut self.sets[flow as usize % SETS];
        for it in set.iter_mut().flatten().filter(|it| it.flow == flow) {
            it.own = None;
        }
        self.groups.iter_mut().for_each(|group| group.trial.forget(flow));
    }

    /// Remembers a group with a long transfer.
    fn remember(&mut self, now: Instant, group: u64) {
        if let Some(known) = self.groups.iter_mut().find(|it| it.group == group) {
            known.used_at = now;
            return;
        }
        if self.groups.len() >= GROUPS_MAX {
            let idle = self.groups.iter().enumerate().min_by_key(|(_, it)| it.used_at);
            let at = idle.map_or(0, |(at, _)| at);
            self.groups.swap_remove(at);
        }
        self.groups.push(Group { used_at: now, ..Group::new(group) });
    }

    fn compressed_shared(&mut self, now: Instant, (group, flow): (u64, u64), bytes: (u64, u64)) {
        if let Some(set) = self.sets.get_mut(flow as usize % SETS) {
            let known = set.iter_mut().flatten().find(|it| it.flow == flow && it.shared == group);
            if let Some(known) = known {
                known.shrunk.add_lately(bytes);
            }
        }
        if let Some(known) = self.groups.iter_mut().find(|it| it.group == group) {
            known.used_at = now;
            known.shrunk.add_lately(bytes);
        }
    }

    fn compressed_alone(&mut self, now: Instant, at: usize, bytes: (u64, u64)) {
        let (_, flow) = self.own[at];
        let set = &mut self.sets[flow as usize % SETS];
        let mine = set.iter_mut().flatten().find(|it| it.flow == flow && it.own.is_some());
        let Some(Flow { shared, own: place, .. }) = mine else { return };
        let Some(own) = place.as_mut().filter(|own| !own.is_kept) else { return };
        if own.filled_bytes < FILLED_BYTES {
            own.filled_bytes += bytes.0;
            return;
        }
        own.shrunk.add(bytes);
        if own.shrunk.from < COMPARED_BYTES {
            return;
        }
        own.is_kept = true;
        let (shared, own) = (*shared, *own);
        self.remember(now, shared);
        let Some(group) = self.groups.iter_mut().find(|it| it.group == shared) else { return };
        if !group.trial.running.contains(&flow) {
            // It followed others. What is not so for it alone may be so for them.
            if own.has_lost() {
                self.go_back(now, flow);
            }
            return;
        }
        group.trial.end(now, flow, &own);
        self.judge_trials(now);
    }

    /// Ends the trials that are over, perhaps because a flow is gone that was waited for.
    fn judge_trials(&mut self, now: Instant) {
        let over = self.groups.iter_mut().filter(|group| group.trial.is_over(now));
        let back: Vec<u64> = over.flat_map(|group| group.judge(now)).collect();
        for flow in back {
            self.go_back(now, flow);
        }
    }

    /// A flow shares the history of its group again, and asks for none of its own for a while.
    fn go_back(&mut self, now: Instant, flow: u64) {
        self.own.retain(|(_, it)| *it != flow);
        let set = &mut self.sets[flow as usize % SETS];
        for it in set.iter_mut().flatten().filter(|it| it.flow == flow) {
            (it.own, it.ask_at) = (None, now + it.retry_ns);
            it.retry_ns = (2 * it.retry_ns).min(RETRY_NS_MAX);
        }
    }
}

/// A flow has gone, or made way for another.
fn release(own: &mut Vec<(u64, u64)>, groups: &mut [Group], gone: &Flow) {
    if gone.own.is_none() {
        return;
    }
    own.retain(|(_, flow)| *flow != gone.flow);
    groups.iter_mut().for_each(|group| group.trial.forget(gone.flow));
}

/// The key of the group that only this flow is in.
fn own_key(flow: u64) -> u64 {
    (flow ^ 0x6f77_6e20_6869_7374).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: u64 = 7;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    /// Sends packets of each flow in turn for so many milliseconds, one each a millisecond, and compresses
    /// them; `ratio` says to how many percent, of a flow with its own history or without. Returns the
    /// flows that had their own at the end.
    fn run(
        histories: &mut FlowHistories,
        (from_ms, ms): (u64, u64),
        flows: &[u64],
        percent: impl Fn(bool) -> u64,
    ) -> Vec<u64> {
        let mut own = Vec::new();
        for now in from_ms..from_ms + ms {
            own.clear();
            for &flow in flows {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                let is_own = group != SHARED;
                let bytes = (1_400, 14 * percent(is_own));
                histories.compressed(at(now), (group, flow), bytes, 1 << 20);
                if is_own {
                    own.push(flow);
                }
            }
        }
        own
    }

    #[test]
    fn one_transfer_alone_stays_where_it_is() {
        let mut histories = FlowHistories::new(11);
        assert_eq!(run(&mut histories, (0, 2_000), &[1], |_| 40), [0; 0]);
        // Short ones beside it change nothing.
        for flow in 100..200 {
            let flows = [1, flow];
            assert_eq!(run(&mut histories, (2_000 + flow * 10, 10), &flows, |_| 40), [0; 0]);
        }
    }

    #[test]
    fn one_tries_and_the_others_follow_if_it_gains() {
        let mut histories = FlowHistories::new(11);
        let flows = [1, 2, 3, 4];
        let gains = |is_own| if is_own { 30 } else { 40 };
        let trying = run(&mut histories, (0, 300), &flows, gains);
        assert_eq!(trying.len(), 1, "{trying:?}");
        let all = run(&mut histories, (300, 1_000), &flows, gains);
        // The last one has nobody beside it.
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(histories.own(), 3);
    }

    /// Of ten, three try: one of them carries what shrinks less just then.
    #[test]
    fn what_one_flow_happens_to_carry_does_not_decide_for_all() {
        for unlucky in 1..=10 {
            let mut histories = FlowHistories::new(16);
            let mut trying = 0;
            for now in 0..3_000 {
                for flow in 1..=10 {
                    let group = histories.group_of(at(now), SHARED, flow, 1_400);
                    let to = match (group == SHARED, flow == unlucky) {
                        (true, _) => 400,
                        (false, true) => 401,
                        (false, false) => 340,
                    };
                    histories.compressed(at(now), (group, flow), (1_400, to), 1 << 20);
                }
                trying = if now < 700 { histories.own() } else { trying };
            }
            assert_eq!(trying, 3, "with {unlucky}");
            // One alone has nobody beside it; the unlucky one may have gone back.
            assert!(histories.own() >= 8, "with {unlucky}: {}", histories.own());
        }
    }

    #[test]
    fn who_ends_or_lags_in_a_trial_does_not_hold_up_the_others() {
        let gains = |is_own| if is_own { 30 } else { 40 };
        let flows = [1, 2, 3, 4, 5, 6];
        for lags in [false, true] {
            let mut histories = FlowHistories::new(16);
            let trying = run(&mut histories, (0, 400), &flows, gains);
            assert_eq!(trying.len(), 2, "{trying:?}");
            // The second one sends nothing more, or next to nothing.
            let rest: Vec<u64> = flows.into_iter().filter(|it| *it != trying[1]).collect();
            let mut own = Vec::new();
            for second in 0..16 {
                let from_ms = 400 + 1_000 * second;
                own = run(&mut histories, (from_ms, 999), &rest, gains);
                if lags {
                    run(&mut histories, (from_ms + 999, 1), &[trying[1]], gains);
                }
            }
            assert!(own.len() >= 4, "{own:?}");
        }
    }

    #[test]
    fn who_does_not_gain_goes_back_and_the_next_try_comes_later() {
        let mut histories = FlowHistories::new(11);
        let flows = [1, 2, 3, 4];
        let loses = |is_own| if is_own { 39 } else { 40 };
        assert_eq!(run(&mut histories, (0, 300), &flows, loses).len(), 1);
        assert_eq!(run(&mut histories, (300, 9_000), &flows, loses), [0; 0]);
        // Ten seconds later one tries again, and then twenty.
        assert_eq!(run(&mut histories, (9_300, 1_800), &flows, loses).len(), 1);
        assert_eq!(run(&mut histories, (11_100, 18_000), &flows, loses), [0; 0]);
    }

    /// Batches shrink by a tenth more alone, but of one packet in so many there is no time for any: with histories of
    /// their own, or with any.
    fn own_after_raw(raw_every: impl Fn(bool) -> u64) -> usize {
        let mut histories = FlowHistories::new(16);
        for now in 0..4_000 {
            for flow in 1..=6 {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                let is_own = group != SHARED;
                if now % raw_every(is_own) == 0 {
                    histories.passed_raw(flow, 1_400);
                } else {
                    let to = if is_own { 450 } else { 500 };
                    histories.compressed(at(now), (group, flow), (1_400, to), 1 << 20);
                }
            }
        }
        histories.own()
    }

    #[test]
    fn what_goes_raw_meanwhile_counts() {
        assert_eq!(own_after_raw(|is_own| if is_own { 8 } else { 1_000 }), 0);
        assert_eq!(own_after_raw(|_| 8), 5, "it does without them, too");
        assert_eq!(own_after_raw(|_| 1_000), 5);
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let mut histories = FlowHistories::new(3);
        let flows = [1, 2, 3, 4, 5, 6];
        let gains = |is_own| if is_own { 30 } else { 40 };
        assert_eq!(run(&mut histories, (0, 3_000), &flows, gains).len(), 2);
        // Those that end make room.
        assert_eq!(run(&mut histories, (3_000, 3_000), &flows[..1], gains).len(), 1);
        let rest = run(&mut histories, (6_000, 3_000), &flows[2..], gains);
        assert_eq!(rest.len(), 2, "{rest:?}");
        let mut none = FlowHistories::new(0);
        assert_eq!(run(&mut none, (0, 3_000), &flows, gains), [0; 0]);
    }

    /// One of prose and one of something that shrinks less: each is compared with itself.
    #[test]
    fn a_flow_is_compared_with_itself() {
        let mut histories = FlowHistories::new(11);
        for now in 0..3_000 {
            for (flow, percent) in [(1, 30), (2, 80)] {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                histories.compressed(at(now), (group, flow), (1_400, 14 * percent), 1 << 20);
            }
        }
        assert_eq!(histories.own(), 0);
    }

    #[test]
    fn where_contexts_are_scarce_a_flow_goes_back_and_none_follows_for_a_while() {
        let gains = |is_own| if is_own { 30 } else { 40 };
        let flows = [1, 2, 3, 4];
        for others in [false, true] {
            let mut histories = FlowHistories::new(11);
            assert_eq!(run(&mut histories, (0, 1_300), &flows, gains).len(), 3);
            let (key, _) = histories.own[0];
            histories.crowded_out(at(1_300), if others { 99 } else { key });
            assert_eq!(run(&mut histories, (1_300, 9_900), &flows, gains).len(), 2);
            assert_eq!(run(&mut histories, (11_300, 2_000), &flows, gains).len(), 3);
        }
        FlowHistories::new(11).crowded_out(at(0), 7);
    }

    #[test]
    fn memory_bounds_them_too() {
        let mut histories = FlowHistories::new(11);
        let flows = [1, 2, 3, 4, 5, 6];
        for now in 0..3_000 {
            for flow in flows {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                let to = if group == SHARED { 700 } else { 400 };
                histories.compressed(at(now), (group, flow), (1_400, to), MEMORY_BYTES_MAX / 3);
            }
        }
        assert_eq!(histories.own(), 3);
    }

    #[test]
    fn ten_thousand_flows_and_groups_are_not_remembered() {
        let mut histories = FlowHistories::new(11);
        for flow in 0..10_000 {
            let now = at(flow / 10);
            let group = histories.group_of(now, flow, flow, 1_400);
            histories.compressed(now, (group, flow), (1_400, 500), 1);
        }
        assert_eq!((histories.sets.len(), histories.groups.len()), (SETS, 0));
        for group in 0..100 {
            for _ in 0..200 {
                histories.group_of(at(2_000), group, group, 1_400);
            }
        }
        assert_eq!(histories.groups.len(), GROUPS_MAX);
        assert_eq!(histories.own(), 0);
    }

    #[test]
    fn a_flow_whose_trial_ends_early_leaves_the_trial_to_another() {
        let mut histories = FlowHistories::new(11);
        let gains = |is_own| if is_own { 30 } else { 40 };
        let trying = run(&mut histories, (0, 300), &[1, 2, 3, 4], gains);
        assert_eq!(trying.len(), 1, "{trying:?}");
        let others: Vec<u64> = [1, 2, 3, 4].into_iter().filter(|it| *it != trying[0]).collect();
        let later = run(&mut histories, (300, 4_000), &others, gains);
        assert_eq!(later.len(), 2, "{later:?}");
    }
}
