//! One of several codecs for what refers to its own past.
//!
//! A running context has one codec until it begins again, so its codecs can't be mixed batch by batch as
//! those of a stream's blocks are: one is used, and what it lacks the time for goes raw. Which of them
//! carries most is the linear programme of [`Processor::carried`], with raw and that codec. What the others
//! would bring is not guessed: now and then they are *tried* on what went through the context, beside the
//! traffic, and what is measured of the one in use says how much of that comes true.

#[cfg(test)]
mod tests;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::bound::CodecPoint;
use super::{Carried, Processor, TrialBudget};

/// Another codec has to carry so many times more: what codecs cost varies.
const GAIN_MIN: f64 = 1.03;
/// Where there is time enough with both, only what they leave counts, and that of the same bytes does not vary. It is
/// enough where they take this part of it.
const GAIN_MIN_IN_TIME: f64 = 1.01;
const ENOUGH_PART: f64 = 0.5;
/// That has to be so for this long: what is measured varies.
const BETTER_NS_MIN: u64 = SECOND_NS / 4;
/// Where another carries so many times more, it need not wait for as long.
const LARGE_GAIN: f64 = 1.1;
const MUCH_BETTER_NS_MIN: u64 = SECOND_NS / 10;
/// A codec is used for so long at least, and half of that before one that carries so much more, ...
const USED_NS_MIN: u64 = SECOND_NS;
/// ... and twice as long each time that one comes back which was used before: where several are about as good, what is
/// measured would have them take turns. Half as long each time that none was better for so long, and a minute at least.
const USED_NS_MAX: u64 = 300 * SECOND_NS;
const CALM_NS_MIN: u64 = 60 * SECOND_NS;
/// If the ratio has changed by so many times since, ...
const STEP: f64 = 2.0;
/// ... the link's rate, ...
const LINK_STEP: f64 = 1.25;
/// ... or the processor time that may be had, what was learned of changes is of no use any more. (Two contexts that wait
/// for each other by turns have half of it or all.)
const CPU_STEP: f64 = 3.0;
/// What changes of the processor so soon after a codec was changed comes of that: jobs wait for longer ones, and how long
/// they did is forgotten as slowly as [`super::Slowdown`] fades.
const SETTLE_NS: u64 = 6 * SECOND_NS;
/// The bytes that have to be there for a trial, which is as many as are worth trying on; or so many if they take
/// this long to come.
const TRIAL_BYTES: u64 = 192 << 10;
const TRIAL_BYTES_MIN: u64 = 24 << 10;
const TRIAL_BYTES_NS_MAX: u64 = SECOND_NS / 2;
/// Trials take at most one part in so many of the time, ...
const TRIAL_PART: u64 = 32;
/// ... which is saved up to so much: a few trials, so that those for a first change come at once.
const TRIAL_SAVED_NS_MAX: u64 = SECOND_NS;
/// Where nothing seems to have changed they take one part in so many of that, and come this rarely.
const TRIAL_CALM_PART: u64 = 16;
const TRIAL_CALM_NS_MIN: u64 = 2 * SECOND_NS;
/// They come no more rarely than this, while there is traffic.
const TRIAL_NS_MAX: u64 = 30 * SECOND_NS;
/// A trial of which nothing is heard for so long will not be heard of.
const RESULT_NS_MAX: u64 = 60 * SECOND_NS;
/// They come at once, if there is time for them, if what is compressed has so many times another ratio than when
/// they were made, ...
const DRIFT: f64 = 1.15;
/// ... or the link so many times another rate: others may be worth a trial then.
const LINK_DRIFT: f64 = 1.5;
/// Of another ratio there have to be so many bytes: as many as a trial counts. Or it was so long ago.
const DRIFT_BYTES_MIN: u64 = TRIAL_BYTES / 3;
const DRIFT_NS_MAX: u64 = 3 * SECOND_NS / 10;
/// The weight of a batch of this length in what is measured of the codec in use.
const MEASURED_BYTES: f64 = 262_144.0;
/// From so much on it says something.
const MEASURED_BYTES_MIN: f64 = 16_384.0;
/// What is measured of one codec says no more of others than this factor.
const TRUE_MAX: f64 = 4.0;
/// What was measured of a codec in use is remembered for so long: then it may have changed.
const TRUE_NS: u64 = 30 * SECOND_NS;
/// Codecs are not tried that could not carry more than the present one if they left so much of the bytes that
/// it leaves.
const LEFT_MIN: f64 = 0.65;

/// What is assumed of a codec before it was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed<C> {
    /// The codec.
    pub codec: C,
    /// Processor time for each byte of the original, in nanoseconds.
    pub cost_ns: f64,
}

/// The result of trying a codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried<C> {
    /// The codec.
    pub codec: C,
    /// Its cost and its ratio.
    pub point: CodecPoint,
}

#[derive(Clone, Copy, Debug)]
struct Candidate<C> {
    codec: C,
    cost_ns: f64,
    /// None before it was tried.
    ratio: Option<f64>,
    /// How many times its cost really was what it was when it was tried, where nothing else is in the processor's caches,
    /// and when.
    truth: Option<(Instant, f64)>,
}

/// Returns by what factor something in use differs from what it was in trials.
fn truth(is: f64, was: f64) -> f64 {
    let times = is / was;
    if times.is_finite() { times.clamp(1.0 / TRUE_MAX, TRUE_MAX) } else { 1.0 }
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

impl<C> Candidate<C> {
    fn point(&self) -> Option<CodecPoint> {
        self.ratio.map(|ratio| CodecPoint::new(self.cost_ns, ratio))
    }
}

/// Picks the codec of one context.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::method::{Assumed, CodecPick, CodecPoint, Tried};
///
/// let assumed = |codec, cost_ns| Assumed { codec, cost_ns };
/// let mut pick = CodecPick::new(&[assumed("fast", 5.0), assumed("strong", 30.0)], "fast");
/// let (at, link) = (Instant::from_ns, Some(10e6));
/// pick.compressed(200_000, 80_000, 1_000_000);
/// assert_eq!(pick.due_trial(at(1), link, |_| true), ["fast", "strong"]);
///
/// // A link of 10 MB/s has time for the strong one, which leaves less; one of 100 MB/s has not.
/// let tried = |codec, cost_ns, ratio| Tried { codec, point: CodecPoint::new(cost_ns, ratio) };
/// pick.tried(at(2), &[tried("fast", 5.0, 0.4), tried("strong", 30.0, 0.3)], 20_000_000);
/// assert_eq!(pick.review(at(3), link, |_| true), Some("strong"));
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
    step_at: Option<Instant>,
    /// The bytes that had been compressed at the latest look at them.
    step_bytes: u64,
    /// Since when none was better.
    calm_since: Instant,
    /// Those that were used since then, bit by bit.
    used: u64,
    /// One that carries enough more, and since when.
    better: Option<(usize, Instant)>,
    /// Of the codec in use, what was measured of late: bytes before and after, and nanoseconds.
    original: f64,
    left: f64,
    took_ns: f64,
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
    processor: Processor,
}

impl<C: Copy + PartialEq> CodecPick<C> {
    /// Makes a choice among these codecs, of which those that are alike are next to each other. It begins with `first`, one of
    /// them.
    pub fn new(assumed: &[Assumed<C>], first: C) -> Self {
        let of = |&Assumed { codec, cost_ns }: &Assumed<C>| Candidate {
            codec,
            cost_ns,
            ratio: None,
            truth: None,
        };
        let candidates: Vec<_> = assumed.iter().map(of).collect();
        Self {
            present: candidates.iter().position(|it| it.codec == first).unwrap_or(0),
            candidates,
            since: Instant::ZERO,
            used_ns_min: USED_NS_MIN,
            step_from: None,
            step_at: None,
            step_bytes: 0,
            calm_since: Instant::ZERO,
            used: 0,
            better: None,
            original: 0.0,
            left: 0.0,
            took_ns: 0.0,
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
            processor: Processor::default(),
        }
    }

    /// Returns the same for another context with the same codecs, of which nothing was measured yet: what was tried
    /// for this one is the best guess for that.
    pub fn for_another(&self) -> Self {
        let (original, left, took_ns, bytes) = (0.0, 0.0, 0.0, 0);
        let (tried_at, began_at, is_trying, ratio_then) = (None, None, false, None);
        let (since, better) = (Instant::ZERO, None);
        let (used_ns_min, step_from, step_at, used) = (USED_NS_MIN, None, None, 0);
        Self {
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
            step_at,
            calm_since: Instant::ZERO,
            used,
            ..self.clone()
        }
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
        self.bytes = self.bytes.saturating_add(original_len);
        self.all_bytes = self.all_bytes.saturating_add(original_len);
    }

    /// Compressing has so much of a processor from now on.
    pub fn set_processor(&mut self, processor: Processor) {
        self.processor = processor;
    }

    /// What is measured of the codec in use.
    fn measured(&self) -> Option<CodecPoint> {
        let is_known = self.original >= MEASURED_BYTES_MIN;
        is_known.then(|| CodecPoint::new(self.took_ns / self.original, self.left / self.original))
    }

    /// Returns the codecs that are to be tried now, which [`tried`](Self::tried) is to be called for, on a link
    /// of so many bytes a second; none if it is not time for it.
    pub fn due_trial(
        &mut self,
        now: Instant,
        link: Option<f64>,
        is_possible: impl Fn(C) -> bool,
    ) -> Vec<C> {
        let Some(link) = link.filter(|&link| self.is_time(now, link)) else { return Vec::new() };
        let measured = self.measured();
        let ratio = measured.map_or(1.0, |it| it.ratio);
        let carried = |point: CodecPoint| self.processor.carried(link, point).rate;
        let least = measured.map_or(link, carried);
        let may_be_better = |(at, it): &(usize, &Candidate<C>)| {
            let point = CodecPoint::new(it.cost_ns, LEFT_MIN * ratio);
            *at == self.present || is_possible(it.codec) && carried(point) > least
        };
        let all = self.candidates.iter().enumerate();
        let list: Vec<_> = all.filter(may_be_better).map(|(_, it)| it.codec).collect();
        self.is_trying = !list.is_empty();
        (self.bytes, self.ratio_then) = (0, measured.map(|it| it.ratio));
        (self.tried_at, self.link_then, self.drift) = (Some(now), link, None);
        list
    }

    fn is_time(&mut self, now: Instant, link: f64) -> bool {
        let began_at = *self.began_at.get_or_insert(now);
        let enough =
            if now.since_ns(began_at) < TRIAL_BYTES_NS_MAX { TRIAL_BYTES } else { TRIAL_BYTES_MIN };
        let waits = |since: Instant| now.since_ns(since) < RESULT_NS_MAX;
        if self.is_trying && self.tried_at.is_some_and(waits) || self.bytes < enough {
            return false;
        }
        let Some(before) = self.tried_at else { return true };
        let drifts = self.drifts(now);
        let needed_ns = (self.trial_ns as f64 * self.processor.slowdown()) as u64;
        let pause_ns = (TRIAL_CALM_PART * TRIAL_PART).saturating_mul(self.trial_ns);
        let pause_ns = pause_ns.clamp(TRIAL_CALM_NS_MIN, TRIAL_NS_MAX);
        let is_other = drifts || differs(link / self.link_then, LINK_DRIFT);
        now.since_ns(before) >= pause_ns || is_other && self.budget.allows(now, needed_ns)
    }

    /// Returns true if the content is other than when codecs were tried, as far as a trial would notice.
    fn drifts(&mut self, now: Instant) -> bool {
        let ratios = self.measured().zip(self.ratio_then);
        if !ratios.is_some_and(|(is, was)| differs(is.ratio / was, DRIFT)) {
            self.drift = None;
            return false;
        }
        let (since, bytes) = *self.drift.get_or_insert((now, self.all_bytes));
        self.all_bytes - bytes >= DRIFT_BYTES_MIN || now.since_ns(since) >= DRIFT_NS_MAX
    }

    /// Codecs were tried, one after another with the same bytes, which took so long in all.
    pub fn tried(&mut self, now: Instant, results: &[Tried<C>], took_ns: u64) {
        (self.is_trying, self.trial_ns, self.tried_at) = (false, took_ns, Some(now));
        // A processor of which little may be had is busy with it for longer.
        self.budget.spend(now, (took_ns as f64 * self.processor.slowdown()) as u64);
        for result in results {
            let found = self.candidates.iter_mut().find(|it| it.codec == result.codec);
            if let Some(candidate) = found {
                candidate.cost_ns = result.point.cost_ns;
                candidate.ratio = Some(result.point.ratio);
            }
        }
    }

    /// Returns how the cost of a codec comes true; as that of the nearest one of which it is known, if of itself it is not.
    fn cost_truth(&self, at: usize) -> f64 {
        let all = self.candidates.iter().enumerate();
        let known = all.filter_map(|(other, it)| Some((other, it.truth?.1)));
        known.min_by_key(|it| it.0.abs_diff(at)).map_or(1.0, |it| it.1)
    }

    /// Returns how many times more is left in use than in trials. That is most of all because something else comes now
    /// than what was tried, and so the same for all codecs: what one left of other bytes says nothing of the others.
    fn ratio_truth(&self) -> f64 {
        let tried = self.candidates.get(self.present).and_then(|it| it.ratio);
        self.measured().zip(tried).map_or(1.0, |(is, was)| truth(is.ratio, was))
    }

    /// Returns what a codec is believed to cost and to leave now, if it was tried.
    fn believed(&self, at: usize) -> Option<CodecPoint> {
        let tried = self.candidates[at].point()?;
        let ratio = (tried.ratio * self.ratio_truth()).min(1.0);
        Some(CodecPoint::new(tried.cost_ns * self.cost_truth(at), ratio))
    }

    /// Returns what a codec carries over the link, if it was tried.
    fn carried(&self, link: f64, at: usize) -> Option<Carried> {
        Some(self.processor.carried(link, self.believed(at)?))
    }

    /// Returns how many times more the one of two codecs has to carry, which carry so much.
    fn gain_min(&self, codecs: [usize; 2], carried: [Carried; 2]) -> f64 {
        let processors = ENOUGH_PART * self.processor.processors();
        let is_in_time = |(&at, it): (&usize, &Carried)| {
            let cost = self.believed(at).map_or(f64::INFINITY, |it| it.cost_ns / 1e9);
            it.compressed >= it.rate * (1.0 - 1e-6) && it.compressed * cost <= processors
        };
        let are_in_time = codecs.iter().zip(&carried).all(is_in_time);
        if are_in_time { GAIN_MIN_IN_TIME } else { GAIN_MIN }
    }

    /// Notes how the cost that was tried comes true of the codec in use, and forgets what was so of others long ago.
    fn learn_truth(&mut self, now: Instant) {
        for candidate in &mut self.candidates {
            candidate.truth = candidate.truth.filter(|it| now.since_ns(it.0) < TRUE_NS);
        }
        let measured = self.measured();
        if let Some(candidate) = self.candidates.get_mut(self.present)
            && let (Some(is), Some(was)) = (measured, candidate.point())
        {
            candidate.truth = Some((now, truth(is.cost_ns, was.cost_ns)));
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
        let all = possible.filter_map(|at| Some((self.carried(link, at)?, at)));
        let best = all.max_by(|a, b| a.0.rate.total_cmp(&b.0.rate));
        let needed = self.carried(link, self.present).filter(|_| can_stay);
        match (best, needed) {
            (Some((most, at)), Some(needed))
                if at != self.present
                    && most.rate
                        > self.gain_min([at, self.present], [most, needed]) * needed.rate =>
            {
                let before = self.better.filter(|it| it.0 == at);
                let (_, since) = *self.better.insert(before.unwrap_or((at, now)));
                let is_first = self.since == Instant::ZERO;
                let (better_ns, used_ns) = match most.rate > LARGE_GAIN * needed.rate {
                    true => (MUCH_BETTER_NS_MIN, self.used_ns_min / 2),
                    false => (BETTER_NS_MIN, self.used_ns_min),
                };
                let is_better = now.since_ns(since) >= better_ns;
                self.calm_since = now;
                if is_first || is_better && now.since_ns(self.since) >= used_ns {
                    self.use_(now, at);
                }
            }
            (Some((_, at)), None) => self.use_(now, at),
            _ => self.calm(now),
        }
        self.present()
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
        } else if now.since_ns(*self.step_at.get_or_insert(now)) >= BETTER_NS_MIN {
            (self.step_from, self.step_at) = (Some(present), None);
            (self.used_ns_min, self.used) = (USED_NS_MIN, 0);
        }
    }

    fn use_(&mut self, now: Instant, at: usize) {
        let (is, was) = (self.believed(at), self.believed(self.present));
        // What is measured goes on as if it had been this one.
        if let (Some(is), Some(was)) = (is, was) {
            self.took_ns *= is.cost_ns / was.cost_ns.max(0.01);
            self.left *= is.ratio / was.ratio;
        }
        let bit = |at: usize| 1_u64.checked_shl(at as u32).unwrap_or(0);
        if self.used & bit(at) != 0 {
            self.used_ns_min = (2 * self.used_ns_min).min(USED_NS_MAX);
        }
        self.used |= bit(self.present) | bit(at);
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
