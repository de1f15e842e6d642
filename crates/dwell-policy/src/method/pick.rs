//! One of several codecs for what refers to its own past.
//!
//! A running context has one codec until it begins again, so its codecs can't be mixed batch by batch as
//! those of a stream's blocks are: one is used, and what it lacks the time for goes raw. Which of them
//! carries most is the linear programme of [`Processor::carried`], with raw and that codec. What the others
//! would bring is not guessed: now and then they are *tried* on what went through the context, beside the
//! traffic, and what is measured of the one in use says how much of that comes true. What trials can't see, as a
//! model that has learned for longer, is learned of each from use, slowly, and those that seem nearly as good and were
//! not used yet are used for once.

mod candidate;
#[cfg(test)]
mod convergence;
mod own;
#[cfg(test)]
mod tests;
mod trials;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::bound::CodecPoint;
use super::{Carried, Processor, TrialBudget};
use candidate::{Candidate, content_of, truth};
use own::Own;
use trials::{BeforeTrial, DRIFT, TRIAL_PART, TRIAL_SAVED_NS_MAX};

/// Another codec has to carry so many times more: what codecs cost varies.
const GAIN_MIN: f64 = 1.03;
/// Where there is time enough with both, only what they leave counts, and that of the same bytes does not vary. It is
/// enough where they take this part of it.
const GAIN_MIN_IN_TIME: f64 = 1.01;
const ENOUGH_PART: f64 = 0.5;
/// That has to be so for this long, and in the mean of as long as the codec in use is used at least: what is measured varies,
/// and contents take turns.
const BETTER_NS_MIN: u64 = SECOND_NS / 10;
/// A look says nothing of a longer time than this, ...
const LOOK_NS_MAX: u64 = SECOND_NS / 10;
/// ... and no more than this factor of what others carry.
const TIMES_MAX: f64 = 16.0;
/// Before one that carries so many times more it need not be used for as long.
const LARGE_GAIN: f64 = 1.1;
/// A codec is used for so long at least, and half of that before one that carries so much more, ...
const USED_NS_MIN: u64 = SECOND_NS / 4;
/// ... and for so many bytes, or so long: a generation that begins costs a part of what went before, ...
const USED_BYTES_MIN: u64 = 512 << 10;
const USED_FEW_NS_MIN: u64 = SECOND_NS;
/// ... and for so many bytes however long that takes: what few bytes would gain is less than what beginning again costs,
/// and what is believed of codecs comes of other bytes. (Unless most should go raw with it: then few do.)
const CHANGED_BYTES_MIN: u64 = 64 << 10;
/// ... and twice as long each time that one comes back which was used before: where several are about as good, what is
/// measured would have them take turns. Half as long each time that none was better for so long, and a minute at least.
const USED_NS_MAX: u64 = 300 * SECOND_NS;
const CALM_NS_MIN: u64 = 60 * SECOND_NS;
/// If the ratio has changed by so many times since, and is none that was left less than so long ago, ...
const RECENT_NS: u64 = 10 * SECOND_NS;
const STEP: f64 = 2.0;
/// ... the link's rate, ...
const LINK_STEP: f64 = 1.25;
/// ... or the processor time that may be had, what was learned of changes is of no use any more. (Two contexts that wait
/// for each other by turns have half of it or all.)
const CPU_STEP: f64 = 3.0;
/// That has to be so for this long.
const STEP_NS_MIN: u64 = SECOND_NS / 4;
/// What changes of the processor so soon after a codec was changed comes of that: jobs wait for longer ones, and how long
/// they did is forgotten as slowly as [`super::Slowdown`] fades.
const SETTLE_NS: u64 = 6 * SECOND_NS;
/// The weight of a batch of this length in what is measured of the codec in use.
const MEASURED_BYTES: f64 = 262_144.0;
/// From so much on it says something.
const MEASURED_BYTES_MIN: f64 = 16_384.0;
/// One that was never used for this content is used for once if it seems to carry so little less, ...
const UNKNOWN_PART: f64 = 1.04;
/// ... there was time enough to look at the present one, and the latest such try was so long ago.
const EXPLORE_AFTER_NS: u64 = SECOND_NS / 2;
const EXPLORE_APART_NS: u64 = 10 * SECOND_NS;
/// It is given so long to show what it leaves.
const EXPLORED_NS_MAX: u64 = 30 * SECOND_NS;

/// What is assumed of a codec before it was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed<C> {
    /// The codec.
    pub codec: C,
    /// Processor time for each byte of the original, in nanoseconds.
    pub cost_ns: f64,
    /// How many of the bytes that a receiver says it has time for one of these stands for: zero if it takes the receiver
    /// next to no time, and otherwise it takes as long as the sender.
    pub receiver_bytes: f64,
}

/// The result of trying a codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried<C> {
    /// The codec.
    pub codec: C,
    /// Its cost and its ratio.
    pub point: CodecPoint,
}

/// That under which the choice was made: bytes a second, the ratio of what was tried, and processors.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    link: f64,
    ratio: f64,
    processors: f64,
}

impl Conditions {
    fn differs(self, before: Self) -> bool {
        differs(self.link / before.link, LINK_STEP)
            || differs(self.ratio / before.ratio, STEP)
            || differs(self.processors / before.processors, CPU_STEP)
    }
}

/// Picks the codec of one context.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::method::{Assumed, CodecPick, CodecPoint, Tried};
///
/// let assumed = |codec, cost_ns| Assumed { codec, cost_ns, receiver_bytes: 0.0 };
/// let mut pick = CodecPick::new(&[assumed("fast", 5.0), assumed("strong", 30.0)], "fast");
/// let (at, link) = (Instant::from_ns, Some(10e6));
/// pick.compressed(200_000, 80_000, 1_000_000);
/// assert_eq!(pick.due_trial(at(1), link, |_| true), ["fast", "strong"]);
///
/// // A link of 10 MB/s has time for the strong one, which leaves less; one of 100 MB/s has not.
/// let tried = |codec, cost_ns, ratio| Tried { codec, point: CodecPoint::new(cost_ns, ratio) };
/// pick.tried(at(2), &[tried("fast", 5.0, 0.4), tried("strong", 30.0, 0.3)], 20_000_000);
/// assert_eq!(pick.review(at(3), link, |_| true), Some("strong"));
/// pick.compressed(100_000, 30_000, 3_000_000);
/// assert_eq!(pick.review(at(2_000_000_000), Some(100e6), |_| true), Some("strong"));
/// assert_eq!(pick.review(at(2_300_000_000), Some(100e6), |_| true), Some("fast"));
/// ```
#[derive(Clone, Debug)]
pub struct CodecPick<C> {
    candidates: Vec<Candidate<C>>,
    present: usize,
    since: Instant,
    /// How long it is used at least, and by what that began to grow.
    used_ns_min: u64,
    step_from: Option<Conditions>,
    /// What was before that, and until when.
    step_before: Option<(Conditions, Instant)>,
    step_at: Option<Instant>,
    /// The bytes that had been compressed at the latest look at them.
    step_bytes: u64,
    /// Since when none was better.
    calm_since: Instant,
    /// Those that were used since then, bit by bit.
    used: u64,
    /// Since when another carries enough more.
    better: Option<Instant>,
    /// When it was looked at them last, and over what link.
    reviewed_at: Instant,
    looked_link: f64,
    /// Of the codec in use, what was measured of late: bytes before and after, and nanoseconds.
    original: f64,
    left: f64,
    took_ns: f64,
    own: Own,
    /// The one that was left for once to see what the present one leaves in use, and when that was done last.
    explored_from: Option<usize>,
    explored_at: Option<Instant>,
    /// Bytes since the latest trial, when it was, what it took, and the ratio at that time.
    bytes: u64,
    tried_at: Option<Instant>,
    began_at: Option<Instant>,
    trial_ns: u64,
    ratio_then: Option<f64>,
    link_then: f64,
    /// Since when the ratio is another, and all bytes until then.
    drift: Option<(Instant, u64)>,
    all_bytes: u64,
    budget: TrialBudget,
    is_trying: bool,
    /// The number of contents, one after another, that codecs were tried with.
    contents: u32,
    /// All bytes until the latest trial began.
    trial_bytes: u64,
    /// It was made with few bytes, of which a model has learned nothing.
    is_brief: bool,
    /// What was known of trials before the one that is due or under way.
    before_trial: Option<BeforeTrial>,
    processor: Processor,
    /// The bytes a second that the receiver has time for, of codecs that take it as long as the sender, if it says so.
    receiver: Option<f64>,
}

impl<C: Copy + PartialEq> CodecPick<C> {
    /// Makes a choice among these codecs, of which those that are alike are next to each other. It begins with `first`, one of
    /// them.
    pub fn new(assumed: &[Assumed<C>], first: C) -> Self {
        let of = |&assumed: &Assumed<C>| Candidate::new(assumed);
        let candidates: Vec<_> = assumed.iter().map(of).collect();
        Self {
            present: candidates.iter().position(|it| it.codec == first).unwrap_or(0),
            candidates,
            since: Instant::ZERO,
            used_ns_min: USED_NS_MIN,
            step_from: None,
            step_before: None,
            step_at: None,
            step_bytes: 0,
            calm_since: Instant::ZERO,
            used: 0,
            better: None,
            reviewed_at: Instant::ZERO,
            looked_link: 0.0,
            original: 0.0,
            left: 0.0,
            took_ns: 0.0,
            own: Own::default(),
            explored_from: None,
            explored_at: None,
            bytes: 0,
            tried_at: None,
            began_at: None,
            trial_ns: 0,
            ratio_then: None,
            link_then: 0.0,
            drift: None,
            all_bytes: 0,
            budget: TrialBudget::new(TRIAL_PART, TRIAL_SAVED_NS_MAX),
            is_trying: false,
            contents: 0,
            trial_bytes: 0,
            is_brief: false,
            before_trial: None,
            processor: Processor::default(),
            receiver: None,
        }
    }

    /// Returns the same for another context with the same codecs, of which nothing was measured yet: what was tried
    /// for this one is the best guess for that.
    pub fn for_another(&self) -> Self {
        let (original, left, took_ns, bytes) = (0.0, 0.0, 0.0, 0);
        let (tried_at, began_at, is_trying, ratio_then) = (None, None, false, None);
        let (since, better) = (Instant::ZERO, None);
        let (used_ns_min, used) = (USED_NS_MIN, 0);
        let (step_from, step_before, step_at, drift) = (None, None, None, None);
        let (all_bytes, step_bytes, trial_bytes, is_brief) = (0, 0, 0, false);
        let (own, explored_from) = (Own::default(), None);
        Self {
            own,
            explored_from,
            before_trial: None,
            better,
            original,
            left,
            took_ns,
            bytes,
            tried_at,
            began_at,
            is_trying,
            ratio_then,
            since,
            used_ns_min,
            step_from,
            step_before,
            step_at,
            drift,
            all_bytes,
            step_bytes,
            trial_bytes,
            is_brief,
            calm_since: Instant::ZERO,
            used,
            ..self.clone()
        }
    }

    /// Returns true as long as nothing was ever tried.
    pub fn knows_nothing(&self) -> bool {
        self.candidates.iter().all(|it| it.ratio.is_none())
    }

    /// Returns the codec in use; none if there are no codecs.
    pub fn present(&self) -> Option<C> {
        self.candidates.get(self.present).map(|it| it.codec)
    }

    /// A batch was compressed with the codec in use. Lengths in bytes.
    pub fn compressed(&mut self, original_len: u64, left_len: u64, took_ns: u64) {
        let fade = (-(original_len as f64) / MEASURED_BYTES).exp();
        self.original = fade * self.original + original_len as f64;
        self.left = fade * self.left + left_len as f64;
        self.took_ns = fade * self.took_ns + took_ns as f64;
        self.own.compressed(original_len, left_len);
        self.bytes = self.bytes.saturating_add(original_len);
        self.all_bytes = self.all_bytes.saturating_add(original_len);
    }

    /// Compressing has so much of a processor from now on.
    pub fn set_processor(&mut self, processor: Processor) {
        self.processor = processor;
    }

    /// The receiver has time for so many bytes a second of what takes it as long as the sender, if that is known.
    pub fn set_receiver(&mut self, bytes_a_second: Option<f64>) {
        self.receiver = bytes_a_second;
    }

    /// Returns what a codec carries over the link at this cost and ratio, with the processors of both ends.
    fn carried_at(&self, link: f64, codec: &Candidate<C>, point: CodecPoint) -> Carried {
        let mut processor = self.processor;
        if let Some(bytes) = self.receiver.filter(|_| codec.takes_receiver()) {
            let bytes = bytes / codec.receiver_bytes;
            processor.share = processor.share.min(bytes * point.cost_ns / 1e9);
        }
        processor.carried(link, point)
    }

    /// Returns true if the content is still what codecs were tried on last, as far as the one in use shows.
    fn is_as_tried(&self) -> bool {
        let ratios = self.measured().zip(self.ratio_then);
        ratios.is_some_and(|(is, was)| !differs(is.ratio / was, DRIFT))
    }

    /// What is measured of the codec in use.
    fn measured(&self) -> Option<CodecPoint> {
        let is_known = self.original >= MEASURED_BYTES_MIN;
        is_known.then(|| CodecPoint::new(self.took_ns / self.original, self.left / self.original))
    }

    /// Returns the kind of the content, by what the first of the codecs leaves of it.
    fn content(&self) -> usize {
        let first = self.candidates.iter().find_map(|it| it.ratio);
        content_of(first.unwrap_or(1.0))
    }

    /// Returns how the cost of a codec comes true; as that of the nearest one of its kind of which it is known, if of itself
    /// it is not. What takes zstd longer, whose tables others push out of the caches, says nothing of models, which are
    /// never in them.
    fn cost_truth(&self, at: usize) -> f64 {
        let is_model = self.candidates[at].takes_receiver();
        let alike =
            self.candidates.iter().enumerate().filter(|it| it.1.takes_receiver() == is_model);
        let known = alike.filter_map(|(other, it)| Some((other, it.truth?.1)));
        known.min_by_key(|it| it.0.abs_diff(at)).map_or(1.0, |it| it.1)
    }

    /// Returns how many times more the codec in use costs than is believed of the content that was tried: others do, too.
    fn cost_drift(&self) -> f64 {
        let present = self.candidates.get(self.present).and_then(Candidate::point);
        let both = self.measured().zip(present);
        both.map_or(1.0, |(is, was)| truth(is.cost_ns, was.cost_ns * self.cost_truth(self.present)))
    }

    /// Returns how many times more is left in use than in trials. That is most of all because something else comes now
    /// than what was tried, and so the same for all codecs: what one left of other bytes says nothing of the others.
    fn ratio_truth(&self) -> f64 {
        let tried = self.candidates.get(self.present).and_then(|it| it.ratio);
        self.measured().zip(tried).map_or(1.0, |(is, was)| truth(is.ratio, was))
    }

    /// Returns how many times more those of which it is known leave in use than in trials, as a logarithm.
    fn mean_bias(&self) -> f64 {
        let content = self.content();
        let known = || self.candidates.iter().filter_map(|it| it.bias_log(content));
        known().sum::<f64>() / known().count().max(1) as f64
    }

    /// Returns what a codec is believed to cost and to leave now, if it was tried.
    fn believed(&self, now: Instant, at: usize) -> Option<CodecPoint> {
        let (own, present) = (&self.candidates[at], &self.candidates[self.present]);
        let tried = own.point()?;
        let (content, mean) = (self.content(), self.mean_bias());
        let bias = [own, present].map(|it| it.bias_beside(now, content, mean));
        let ratio = (tried.ratio * self.ratio_truth() * (bias[0] - bias[1]).exp()).min(1.0);
        // Before it is known how the present one's cost comes true, that says nothing of another kind.
        let is_alike = own.takes_receiver() == present.takes_receiver() || present.truth.is_some();
        let drift = if is_alike { self.cost_drift() } else { 1.0 };
        Some(CodecPoint::new(tried.cost_ns * self.cost_truth(at) * drift, ratio))
    }

    /// Returns what a codec carries over the link, if it was tried.
    fn carried(&self, now: Instant, link: f64, at: usize) -> Option<Carried> {
        Some(self.carried_at(link, &self.candidates[at], self.believed(now, at)?))
    }

    /// Returns true if there is time enough for either of two codecs, which carry so much.
    fn are_in_time(&self, now: Instant, codecs: [usize; 2], carried: [Carried; 2]) -> bool {
        let processors = ENOUGH_PART * self.processor.processors();
        let is_in_time = |(&at, it): (&usize, &Carried)| {
            let cost = self.believed(now, at).map_or(f64::INFINITY, |it| it.cost_ns / 1e9);
            it.compressed >= it.rate * (1.0 - 1e-6) && it.compressed * cost <= processors
        };
        codecs.iter().zip(&carried).all(is_in_time)
    }

    /// Returns how many times more the one of two codecs has to carry, which carry so much.
    fn gain_min(&self, now: Instant, codecs: [usize; 2], carried: [Carried; 2]) -> f64 {
        // What use has shown of each varies, too.
        let content = self.content();
        let is_of_use = codecs.iter().all(|&at| self.candidates[at].is_known(now, content));
        let is_exact = !is_of_use && self.are_in_time(now, codecs, carried);
        if is_exact { GAIN_MIN_IN_TIME } else { GAIN_MIN }
    }

    /// Notes how the cost that was tried comes true of the codec in use, and forgets what was so of others long ago.
    fn learn_truth(&mut self, now: Instant) {
        let measured = self.measured().filter(|_| self.is_as_tried());
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            candidate.learn_truth(now, measured.filter(|_| at == self.present));
        }
    }

    /// Looks which of the codecs carries most over a link of so many bytes a second, and returns the one to be
    /// used from now on. Without a rate it stays as it is.
    pub fn review(
        &mut self,
        now: Instant,
        link: Option<f64>,
        is_possible: impl Fn(C) -> bool,
    ) -> Option<C> {
        self.learn_truth(now);
        let present = self.present()?;
        let can_stay = is_possible(present);
        let Some(link) = link else { return Some(present) };
        self.notice_step(now, link);
        let possible =
            (0..self.candidates.len()).filter(|&at| is_possible(self.candidates[at].codec));
        let all: Vec<_> =
            possible.filter_map(|at| Some((self.carried(now, link, at)?, at))).collect();
        let needed = self.carried(now, link, self.present).filter(|_| can_stay);
        self.look(now, link, &all, needed);
        let rate = |it: &(Carried, usize)| it.0.rate;
        let best = match needed {
            // Of those that are better now, the one that is best in the mean.
            Some(needed) => {
                let is_better = |it: &&(Carried, usize)| self.is_better(now, **it, needed);
                let times = |it: &(Carried, usize)| self.candidates[it.1].times;
                all.iter().filter(is_better).min_by(|a, b| times(a).total_cmp(&times(b)))
            }
            None => all.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))),
        };
        let best = best.copied();
        match (best, needed) {
            (Some((most, at)), Some(needed)) => self.better(now, (most, at), needed),
            (Some((_, at)), None) => {
                // What can't go on says nothing of codecs that take turns.
                let (held_ns, used) = (self.used_ns_min, self.used);
                self.use_(now, at);
                (self.used_ns_min, self.used) = (held_ns, used);
            }
            (_, Some(needed)) => {
                self.calm(now);
                if let Some(at) = self.worth_using(now, link, needed, is_possible) {
                    self.explore(now, at);
                }
            }
            _ => self.calm(now),
        }
        self.present()
    }

    /// Learns how many times as long the same bytes take with each codec as with the one in use.
    fn look(&mut self, now: Instant, link: f64, all: &[(Carried, usize)], needed: Option<Carried>) {
        let since_ns = now.since_ns(std::mem::replace(&mut self.reviewed_at, now));
        let Some(needed) = needed else { return };
        // Contents take turns, links hardly do: what was carried over another one says nothing.
        if differs(link / self.looked_link, LINK_STEP) {
            self.looked_link = link;
            self.candidates.iter_mut().for_each(|it| it.times = 1.0);
        }
        let fade = (-(since_ns.min(LOOK_NS_MAX) as f64) / self.used_ns_min as f64).exp();
        for (carried, at) in all {
            let times = needed.rate / carried.rate;
            let times = if times.is_finite() { times } else { 1.0 };
            let times = times.clamp(1.0 / TIMES_MAX, TIMES_MAX);
            let before = &mut self.candidates[*at].times;
            *before = times + fade * (*before - times);
        }
    }

    /// Returns how many times more another has to carry. One that is used for once is given time to show what it leaves.
    fn needed_gain(&self, now: Instant, (most, at): (Carried, usize), needed: Carried) -> f64 {
        let is_unseen = self.explored_from.is_some()
            && !self.own.is_checked
            && now.since_ns(self.since) < EXPLORED_NS_MAX;
        match is_unseen {
            true => LARGE_GAIN,
            false => self.gain_min(now, [at, self.present], [most, needed]),
        }
    }

    /// Returns true if another carries enough more now.
    fn is_better(&self, now: Instant, (most, at): (Carried, usize), needed: Carried) -> bool {
        at != self.present && most.rate > self.needed_gain(now, (most, at), needed) * needed.rate
    }

    /// Another is better: it is used if that was so for long enough.
    fn better(&mut self, now: Instant, (most, at): (Carried, usize), needed: Carried) {
        // Which one it is may change as long as it is one.
        let since = *self.better.get_or_insert(now);
        let mean = 1.0 / self.candidates[at].times;
        let is_better = mean > self.needed_gain(now, (most, at), needed)
            && now.since_ns(since) >= BETTER_NS_MIN;
        self.calm_since = now;
        let is_first = self.since == Instant::ZERO;
        let held_ns = self.hold_ns(at, mean > LARGE_GAIN);
        let is_of_use = 2.0 * needed.compressed >= needed.rate;
        let is_short = is_of_use && self.own.bytes < CHANGED_BYTES_MIN;
        let is_held = is_short || now.since_ns(self.since) < held_ns;
        if is_first || is_better && !is_held {
            self.use_(now, at);
        }
    }

    /// Returns how long the codec in use is used at least before this one, which carries much more or only more.
    fn hold_ns(&self, at: usize, is_much: bool) -> u64 {
        // Back to what was left for once.
        let returns = self.explored_from == Some(at);
        let is_short = self.own.bytes < USED_BYTES_MIN;
        let held_ns = if returns { USED_NS_MIN } else { self.used_ns_min };
        let held_ns = held_ns.max(if is_short { USED_FEW_NS_MIN } else { 0 });
        if is_much && !returns { held_ns / 2 } else { held_ns }
    }

    /// Returns a codec that is worth being used for once: it carries nearly as much as the present one by what trials say,
    /// and what it leaves in use is not known.
    fn worth_using(
        &self,
        now: Instant,
        link: f64,
        needed: Carried,
        is_possible: impl Fn(C) -> bool,
    ) -> Option<usize> {
        let is_soon = self.explored_at.is_some_and(|at| now.since_ns(at) < EXPLORE_APART_NS);
        if is_soon || !self.own.is_checked || now.since_ns(self.since) < EXPLORE_AFTER_NS {
            return None;
        }
        let content = self.content();
        let carried = |at: usize| {
            let carried = self.carried(now, link, at)?;
            // One that there is too little time for is worth no less than it seems to be.
            let is_in_time = carried.compressed >= carried.rate * (1.0 - 1e-6);
            let is_worth_it = carried.rate * UNKNOWN_PART > GAIN_MIN_IN_TIME * needed.rate;
            (is_in_time && is_worth_it).then_some((carried.rate, at))
        };
        let is_unknown = |&at: &usize| {
            let it = &self.candidates[at];
            // It is what takes longer that has more of what it has learned.
            let is_stronger = it.cost_ns >= self.candidates[self.present].cost_ns;
            is_stronger && at != self.present && is_possible(it.codec) && !it.is_known(now, content)
        };
        let unknown = (0..self.candidates.len()).filter(is_unknown).filter_map(carried);
        unknown.max_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1)
    }

    /// Uses a codec for once, to see what it leaves.
    fn explore(&mut self, now: Instant, at: usize) {
        let (from, held_ns, used) = (self.present, self.used_ns_min, self.used);
        self.use_(now, at);
        // That says nothing of codecs that take turns.
        (self.used_ns_min, self.used) = (held_ns, used);
        (self.explored_from, self.explored_at) = (Some(from), Some(now));
    }

    /// None is better.
    fn calm(&mut self, now: Instant) {
        self.better = None;
        if now.since_ns(self.calm_since) >= self.used_ns_min.max(CALM_NS_MIN) {
            self.used_ns_min = (self.used_ns_min / 2).max(USED_NS_MIN);
            self.calm_since = now;
        }
    }

    /// If the link, the processor or the content is another than before, what was learned of changes is of no use any
    /// more.
    fn notice_step(&mut self, now: Instant, link: f64) {
        let Some(measured) = self.measured() else { return };
        // While nothing is compressed nothing is learned of what that takes.
        if std::mem::replace(&mut self.step_bytes, self.all_bytes) == self.all_bytes {
            return;
        }
        let (ratio, processors) = (measured.ratio, self.processor.processors());
        let present = Conditions { link, ratio, processors };
        let before = self.step_from.get_or_insert(present);
        if now.since_ns(self.since) < SETTLE_NS {
            before.processors = processors;
        }
        let before = *before;
        if !present.differs(before) {
            self.step_at = None;
        } else if now.since_ns(*self.step_at.get_or_insert(now)) >= STEP_NS_MIN {
            let left = self.step_before.replace((before, now));
            // What takes turns is nothing new.
            let is_recent = left.is_some_and(|(left, until)| {
                !present.differs(left) && now.since_ns(until) < RECENT_NS
            });
            (self.step_from, self.step_at) = (Some(present), None);
            if !is_recent {
                (self.used_ns_min, self.used) = (USED_NS_MIN, 0);
            }
        }
    }

    fn use_(&mut self, now: Instant, at: usize) {
        let (is, was) = (self.believed(now, at), self.believed(now, self.present));
        // What is measured goes on as if it had been this one.
        if let (Some(is), Some(was)) = (is, was) {
            self.took_ns *= is.cost_ns / was.cost_ns.max(0.01);
            self.left *= is.ratio / was.ratio;
        }
        let bit = |at: usize| 1_u64.checked_shl(at as u32).unwrap_or(0);
        let returns = self.explored_from.take() == Some(at);
        if self.used & bit(at) != 0 && !returns {
            self.used_ns_min = (2 * self.used_ns_min).min(USED_NS_MAX);
        }
        self.used |= bit(self.present) | bit(at);
        self.own = Own::default();
        let times = self.candidates[at].times;
        for candidate in &mut self.candidates {
            candidate.times = (candidate.times / times).clamp(1.0 / TIMES_MAX, TIMES_MAX);
        }
        (self.present, self.since, self.better) = (at, now, None);
        self.calm_since = now;
        self.ratio_then = self.measured().map(|it| it.ratio);
        // A codec that leaves less is no other content.
        if let (Some(from), Some(is), Some(was)) = (&mut self.step_from, is, was) {
            from.ratio *= is.ratio / was.ratio;
        }
    }
}

/// Returns true if something is more than so many times larger or smaller than it was.
fn differs(times: f64, most: f64) -> bool {
    !(1.0 / most..=most).contains(&times)
}
