//! Which flows have a history of their own, where the others of their group share one.
//!
//! Small exchanges between two hosts resemble each other, so that one history for all of them serves
//! best. Long transfers beside each other push each other out of it: each is better off alone, unless
//! they carry the same. So some of them try, and what their batches shrink to decides for the others.
//!
//! Ten histories' tables are not in a processor's cache at a time, as one history's are: at level 3 of zstd a byte takes
//! two to three times as long in ten histories of 1 MiB. On a fast link there may not be time for that: so it is compared what
//! the link would carry with either, where its rate is known.

mod shrunk;
#[cfg(test)]
mod tests;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_policy::method::Processor;

use shrunk::{ByCodec, Link, Shrunk};

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
/// So often it is waited for the codec of the one history to be used in the other.
const WAITS_MAX: u32 = 3;
/// Of so many transfers beside each other one tries, ...
const FLOWS_PER_TRIAL: usize = 3;
/// ... and at most so many: what one of them carries shrinks more now and less then, which says nothing of its
/// history. Their sum does so less.
const TRIALS_MAX: usize = 3;
/// The first that has compared waits so long for the others.
const TRIAL_NS_MAX: u64 = 10 * SECOND_NS;
/// How long one result holds for the others of the group.
const HOLDS_NS: u64 = 60 * SECOND_NS;
/// The time until the next try after one that was in vain: this, and double of it each time.
const RETRY_NS_MIN: u64 = 10 * SECOND_NS;
const RETRY_NS_MAX: u64 = 600 * SECOND_NS;
/// A trial that was over soon costs little, and on a fast link it falls into the first half second, in which TCP looks
/// for its rate and more goes raw than later: after the first in vain the next comes when so many times as long have gone, ...
const RETRY_PER_TRIAL: u64 = 4;
/// ... and at least this.
const RETRY_NS_LEAST: u64 = SECOND_NS;
/// After a group found no context for all the histories of flows, none is begun for so long.
const CROWDED_NS: u64 = 10 * SECOND_NS;
/// Groups that are remembered.
const GROUPS_MAX: usize = 32;
/// The most memory that the histories of single flows take.
const MEMORY_BYTES_MAX: usize = 96 << 20;

/// The history of a flow's own.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// What the shared one did before with what the flow sent, or else with all.
    before: ByCodec,
    filled_bytes: u64,
    /// What this one does, with the codec that it has now.
    codec: u64,
    shrunk: Shrunk,
    /// How often nothing was known that it could be compared with.
    waited: u32,
    /// The comparison is over.
    is_kept: bool,
}

impl Own {
    /// In a flow whose batches shrank so much in the shared history.
    fn new(before: ByCodec) -> Self {
        let shrunk = Shrunk::default();
        Self { before, filled_bytes: 0, codec: 0, shrunk, waited: 0, is_kept: false }
    }

    /// A batch of the flow went through it. Returns true if there were enough to compare.
    fn add(&mut self, codec: u64, batch: Shrunk) -> bool {
        if self.filled_bytes < FILLED_BYTES {
            self.filled_bytes += batch.from;
            return false;
        }
        if self.codec != codec {
            // What another codec left is not to be compared with what this one does.
            (self.codec, self.shrunk) = (codec, Shrunk::default());
        }
        self.shrunk.add(batch);
        self.shrunk.from >= COMPARED_BYTES
    }

    /// Compares it with the shared one, of which the latest is this. None if the shared one has not had the same codec for
    /// long enough, and may yet have it.
    fn compare(&mut self, shared: &ByCodec) -> Option<Compared> {
        let of = |it: &ByCodec| it.of(self.codec, COMPARED_BYTES / 4);
        let same = of(&self.before).or_else(|| of(shared));
        if same.is_none() && self.waited < WAITS_MAX {
            (self.waited, self.shrunk) = (self.waited + 1, Shrunk::default());
            return None;
        }
        self.is_kept = true;
        // Where each has found a codec of its own, that is a part of what they are worth.
        Some(Compared { own: self.shrunk, shared: same.unwrap_or(shared.latest()) })
    }
}

/// What a flow's own history has made of its bytes, and what the shared one makes of as many or others.
#[derive(Clone, Copy, Debug)]
struct Compared {
    own: Shrunk,
    shared: Shrunk,
}

impl Compared {
    /// The shared one did better.
    fn has_lost(&self, link: Option<Link>) -> bool {
        self.shared.is_as_good_as(self.own, link)
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    flow: u64,
    /// The group that it is of, if it has no history of its own.
    shared: u64,
    bytes: u64,
    /// What its batches shrank to in the shared history.
    shrunk: ByCodec,
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
    began_at: Instant,
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

    /// A flow tries.
    fn begin(&mut self, now: Instant, flow: u64) {
        if self.running.is_empty() && self.done.is_empty() {
            self.began_at = now;
        }
        self.running.push(flow);
    }

    /// A flow has compared.
    fn end(&mut self, now: Instant, flow: u64, compared: &Compared, link: Option<Link>) {
        if self.done.is_empty() {
            self.due_at = now + TRIAL_NS_MAX;
        }
        self.running.retain(|it| *it != flow);
        self.done.push((flow, compared.has_lost(link)));
        let Compared { own, shared } = compared;
        self.own.add(*own);
        self.shared.add(shared.scaled(own.from));
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
    shrunk: ByCodec,
    trial: Trial,
    /// Flows of their own are known to be better until then.
    better_until: Instant,
    /// None tries before, ...
    retry_at: Instant,
    /// ... which is so long after the latest that was in vain; zero if none was.
    retry_ns: u64,
    used_at: Instant,
}

impl Group {
    fn new(group: u64) -> Self {
        Self {
            group,
            shrunk: ByCodec::default(),
            trial: Trial::default(),
            better_until: Instant::ZERO,
            retry_at: Instant::ZERO,
            retry_ns: 0,
            used_at: Instant::ZERO,
        }
    }

    /// Ends a trial. Returns the flows that go back to the shared history, with the time until they may ask again if all do.
    fn judge(&mut self, now: Instant, link: Option<Link>) -> (Vec<u64>, Option<u64>) {
        let trial = std::mem::take(&mut self.trial);
        let is_better = trial.own.is_better_than(trial.shared, link);
        if is_better {
            (self.better_until, self.retry_ns) = (now + HOLDS_NS, 0);
        } else {
            let took_ns = now.since_ns(trial.began_at);
            let first_ns = took_ns.saturating_mul(RETRY_PER_TRIAL);
            let first_ns = first_ns.clamp(RETRY_NS_LEAST, RETRY_NS_MIN);
            self.better_until = Instant::ZERO;
            self.retry_ns = (2 * self.retry_ns).clamp(first_ns, RETRY_NS_MAX);
            self.retry_at = now + self.retry_ns;
        }
        let back = trial.done.into_iter().filter(|(_, has_lost)| *has_lost || !is_better);
        (back.map(|(flow, _)| flow).collect(), (!is_better).then_some(self.retry_ns))
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
    link: Option<Link>,
}

/// A batch that was compressed in a history.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// What it was compressed with, which any number names.
    pub codec: u64,
    /// Its bytes before, ...
    pub from_bytes: u64,
    /// ... and after.
    pub to_bytes: u64,
    /// The processor time that it took.
    pub took_ns: u64,
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
            link: None,
        };
        this.set_contexts(contexts);
        this
    }

    /// Changes the number of contexts. With some, flows that have one of their own keep it.
    pub fn set_contexts(&mut self, contexts: usize) {
        // Some are left for what shares one.
        self.own_max = contexts - contexts.div_ceil(4);
    }

    /// Says how many bytes a second the link behind takes, if that is known, and what compressing for it may take. Until then
    /// histories are compared by what they leave, whatever they cost.
    pub fn set_link(&mut self, link: Option<(f64, Processor)>) {
        self.link = link.filter(|(bytes_per_s, _)| *bytes_per_s > 0.0);
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
        let shrunk = ByCodec::default();
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
        if group.shrunk.latest().from < COMPARED_BYTES || !(is_better || may_try) {
            return false;
        }
        if !is_better {
            group.trial.begin(now, flow);
        }
        let group_before = group.shrunk;
        let known = self.flow(now, shared, flow);
        // Its own bytes tell more than those of all.
        let is_known = known.shrunk.latest().from >= COMPARED_BYTES / 4;
        known.own = Some(Own::new(if is_known { known.shrunk } else { group_before }));
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

    /// A batch of the group, which begins with a packet of the flow, was compressed in its context, which takes
    /// `memory_bytes`.
    pub fn compressed(
        &mut self,
        now: Instant,
        (group, flow): (u64, u64),
        passed: Passed,
        memory_bytes: usize,
    ) {
        if self.own_max == 0 {
            return;
        }
        let Passed { codec, from_bytes, to_bytes, took_ns } = passed;
        let batch = Shrunk::of(from_bytes, to_bytes, took_ns);
        match self.own.iter().position(|(key, _)| *key == group) {
            Some(at) => {
                self.memory_bytes = memory_bytes;
                self.compressed_alone(now, at, (codec, batch));
            }
            None => self.compressed_shared((now, codec), (group, flow), batch),
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
                own.shrunk.add(Shrunk::of(bytes, bytes, 0));
            }
            return;
        }
        known.shrunk.add_raw(bytes);
        let shared = known.shared;
        if let Some(group) = self.groups.iter_mut().find(|it| it.group == shared) {
            group.shrunk.add_raw(bytes);
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

    fn compressed_shared(
        &mut self,
        (now, codec): (Instant, u64),
        (group, flow): (u64, u64),
        batch: Shrunk,
    ) {
        if let Some(set) = self.sets.get_mut(flow as usize % SETS) {
            let known = set.iter_mut().flatten().find(|it| it.flow == flow && it.shared == group);
            if let Some(known) = known {
                known.shrunk.add(codec, batch);
            }
        }
        if let Some(known) = self.groups.iter_mut().find(|it| it.group == group) {
            known.used_at = now;
            known.shrunk.add(codec, batch);
        }
    }

    fn compressed_alone(&mut self, now: Instant, at: usize, (codec, batch): (u64, Shrunk)) {
        let (_, flow) = self.own[at];
        let set = &mut self.sets[flow as usize % SETS];
        let mine = set.iter_mut().flatten().find(|it| it.flow == flow && it.own.is_some());
        let Some(Flow { shared, own: place, .. }) = mine else { return };
        let Some(own) = place.as_mut().filter(|own| !own.is_kept) else { return };
        if !own.add(codec, batch) {
            return;
        }
        let shared = *shared;
        let known = self.groups.iter().find(|it| it.group == shared).map(|it| it.shrunk);
        let Some(compared) = own.compare(&known.unwrap_or_default()) else { return };
        self.remember(now, shared);
        let Some(group) = self.groups.iter_mut().find(|it| it.group == shared) else { return };
        if !group.trial.running.contains(&flow) {
            // It followed others. What is not so for it alone may be so for them.
            if compared.has_lost(self.link) {
                self.go_back(now, flow, None);
            }
            return;
        }
        group.trial.end(now, flow, &compared, self.link);
        self.judge_trials(now);
    }

    /// Ends the trials that are over, perhaps because a flow is gone that was waited for.
    fn judge_trials(&mut self, now: Instant) {
        let link = self.link;
        let over = self.groups.iter_mut().filter(|group| group.trial.is_over(now));
        let judged: Vec<_> = over.map(|group| group.judge(now, link)).collect();
        for (back, all_ns) in judged {
            for flow in back {
                self.go_back(now, flow, all_ns);
            }
        }
    }

    /// A flow shares the history of its group again, and asks for none of its own for a while: as long as its whole group if
    /// that does so, too.
    fn go_back(&mut self, now: Instant, flow: u64, all_ns: Option<u64>) {
        self.own.retain(|(_, it)| *it != flow);
        let set = &mut self.sets[flow as usize % SETS];
        for it in set.iter_mut().flatten().filter(|it| it.flow == flow) {
            (it.own, it.ask_at) = (None, now + all_ns.unwrap_or(it.retry_ns));
            if all_ns.is_none() {
                it.retry_ns = (2 * it.retry_ns).min(RETRY_NS_MAX);
            }
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
