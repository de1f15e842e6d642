//! One of several codecs for what refers to its own past.
//!
//! A running context has one codec until it begins again, so its codecs can't be mixed batch by batch as
//! those of a stream's blocks are: one is used, and what it lacks the time for goes raw. Which of them
//! carries most is the linear programme of [`Processor::carried`], with raw and that codec. What the others
//! would bring is not guessed: now and then they are *tried* on what went through the context, beside the
//! traffic, and what is measured of the one in use says how much of that comes true.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::bound::CodecPoint;
use super::{Processor, TrialBudget};

/// Another codec has to carry so many times more.
const GAIN_MIN: f64 = 1.03;
/// That has to be so for this long: what is measured varies.
const BETTER_NS_MIN: u64 = SECOND_NS / 4;
/// A codec is used for so long at least, ...
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
    /// How many times its cost and its ratio really were what they were when it was tried, and when.
    truth: Option<(Instant, Truth)>,
}

/// By what factors cost and ratio in use differ from those in trials, where nothing else is in the processor's
/// caches, and less can be referred to.
#[derive(Clone, Copy, Debug)]
struct Truth {
    cost: f64,
    ratio: f64,
}

impl Truth {
    fn of(is: CodecPoint, was: CodecPoint) -> Self {
        let within = |times: f64| times.clamp(1.0 / TRUE_MAX, TRUE_MAX);
        let cost = if was.cost_ns > 0.0 { is.cost_ns / was.cost_ns } else { 1.0 };
        Self { cost: within(cost), ratio: within(is.ratio / was.ratio) }
    }
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
    /// Makes a choice among these codecs, which begins with `first`, one of them.
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
        (self.bytes, self.ratio_then) = (0, self.measured().map(|it| it.ratio));
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

    /// Returns the bytes a second that a codec carries over the link, if it was tried; by what is measured of the
    /// one in use, what was tried comes true more or less.
    fn carried(&self, link: f64, at: usize) -> Option<f64> {
        let tried = self.candidates[at].point()?;
        let is_known = at == self.present || self.candidates[at].truth.is_some();
        let of = self.candidates.get(if is_known { at } else { self.present })?;
        let truth = of.truth.map_or(Truth { cost: 1.0, ratio: 1.0 }, |it| it.1);
        let ratio = (tried.ratio * truth.ratio).min(1.0);
        Some(self.processor.carried(link, CodecPoint::new(tried.cost_ns * truth.cost, ratio)).rate)
    }

    /// Notes how what was tried comes true of the codec in use, and forgets what was so of others long ago.
    fn learn_truth(&mut self, now: Instant) {
        for candidate in &mut self.candidates {
            candidate.truth = candidate.truth.filter(|it| now.since_ns(it.0) < TRUE_NS);
        }
        let measured = self.measured();
        if let Some(candidate) = self.candidates.get_mut(self.present)
            && let (Some(is), Some(was)) = (measured, candidate.point())
        {
            candidate.truth = Some((now, Truth::of(is, was)));
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
        let best = all.max_by(|a, b| a.0.total_cmp(&b.0));
        let needed = self.carried(link, self.present).filter(|_| can_stay);
        match (best, needed) {
            (Some((most, at)), Some(needed)) if at != self.present && most > GAIN_MIN * needed => {
                let before = self.better.filter(|it| it.0 == at);
                let (_, since) = *self.better.insert(before.unwrap_or((at, now)));
                let is_first = self.since == Instant::ZERO;
                let is_better = now.since_ns(since) >= BETTER_NS_MIN;
                self.calm_since = now;
                if is_first || is_better && now.since_ns(self.since) >= self.used_ns_min {
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
        let (is, was) = (self.candidates[at].point(), self.candidates[self.present].point());
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn carried(link: f64, point: CodecPoint) -> f64 {
        Processor::default().carried(link, point).rate
    }

    /// Levels of growing cost and falling ratio: 0 to 4.
    const COSTS: [f64; 5] = [4.0, 12.0, 25.0, 80.0, 250.0];
    const RATIOS: [f64; 5] = [0.45, 0.38, 0.36, 0.34, 0.28];
    const MBIT: f64 = 125_000.0;

    fn pick() -> CodecPick<usize> {
        let assumed: Vec<_> =
            COSTS.iter().enumerate().map(|(codec, &cost_ns)| Assumed { codec, cost_ns }).collect();
        CodecPick::new(&assumed, 0)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Traffic, trials and reviews for so long; a codec takes `slow` times longer than in trials, and leaves
    /// `hard` times more. Returns the codecs in use, each time that there was another.
    fn run(
        pick: &mut CodecPick<usize>,
        (from_ms, to_ms): (u64, u64),
        link: f64,
        (slow, hard): (f64, f64),
    ) -> Vec<(u64, usize)> {
        let mut used = vec![(from_ms, pick.present().unwrap())];
        for ms in (from_ms..to_ms).step_by(10) {
            let codec = pick.present().unwrap();
            let left = 10_000.0 * (hard * RATIOS[codec]).min(1.0);
            pick.compressed(10_000, left as u64, (slow * COSTS[codec] * 10_000.0) as u64);
            let list = pick.due_trial(at(ms), Some(link), |_| true);
            let results: Vec<_> = list
                .iter()
                .map(|&codec| Tried { codec, point: CodecPoint::new(COSTS[codec], RATIOS[codec]) })
                .collect();
            if !results.is_empty() {
                pick.tried(at(ms), &results, 30_000_000);
            }
            let now = pick.review(at(ms), Some(link), |_| true).unwrap();
            if now != used.last().unwrap().1 {
                used.push((ms, now));
            }
        }
        used
    }

    /// The codec that the linear programme has beside raw.
    fn best(link: f64, slow: f64) -> usize {
        let of = |&at: &usize| carried(link, CodecPoint::new(slow * COSTS[at], RATIOS[at]));
        (0..5).max_by(|a, b| of(a).total_cmp(&of(b))).unwrap()
    }

    #[test]
    fn each_rate_has_its_codec_within_a_second() {
        let mut found = Vec::new();
        for mbit in [1.0, 10.0, 50.0, 200.0, 1_000.0, 10_000.0] {
            let used = run(&mut pick(), (1, 20_000), mbit * MBIT, (1.0, 1.0));
            assert!(used.len() <= 2 && used.iter().all(|it| it.0 < 1_000), "{mbit}: {used:?}");
            let last = used.last().unwrap().1;
            let is = carried(mbit * MBIT, CodecPoint::new(COSTS[last], RATIOS[last]));
            let bound = best(mbit * MBIT, 1.0);
            let most = carried(mbit * MBIT, CodecPoint::new(COSTS[bound], RATIOS[bound]));
            assert!(GAIN_MIN * is >= most, "{mbit}: {last} {bound}");
            found.push(last);
        }
        assert!(found.is_sorted_by(|a, b| a >= b) && found[0] == 4 && found[5] == 0, "{found:?}");
    }

    #[test]
    fn it_follows_the_rate_and_what_compressing_really_takes() {
        let mut pick = pick();
        run(&mut pick, (1, 5_000), 5.0 * MBIT, (1.0, 1.0));
        assert_eq!(pick.present(), Some(4));
        let used = run(&mut pick, (5_000, 10_000), 500.0 * MBIT, (1.0, 1.0));
        assert!(used.len() == 2 && used[1].0 < 6_000, "{used:?}");
        assert_eq!(pick.present(), Some(best(500.0 * MBIT, 1.0)));
        run(&mut pick, (10_000, 15_000), 5.0 * MBIT, (1.0, 1.0));
        assert_eq!(pick.present(), Some(4));
        // A processor that is three times as slow as in trials.
        run(&mut pick, (15_000, 20_000), 5.0 * MBIT, (3.0, 1.0));
        assert_eq!(pick.present(), Some(best(5.0 * MBIT, 3.0)));
        // A quota: the same processor time, ten times the time.
        pick.set_processor(Processor::slowed(10.0));
        run(&mut pick, (20_000, 25_000), 5.0 * MBIT, (1.0, 1.0));
        assert_eq!(pick.present(), Some(best(5.0 * MBIT, 10.0)));
    }

    /// What may be had of the processor, or the link's rate, alternates each half minute. Returns the least that is carried
    /// of what the best codec would, in a turn after the first few.
    fn least_of_turns(turns: [(f64, f64); 2]) -> f64 {
        let (mut pick, mut least) = (pick(), f64::INFINITY);
        for turn in 0..24_u64 {
            let (mbit, slowdown) = turns[turn as usize % 2];
            pick.set_processor(Processor::slowed(slowdown));
            let of = |codec: usize| {
                carried(mbit * MBIT, CodecPoint::new(slowdown * COSTS[codec], RATIOS[codec]))
            };
            let (mut sum, from_ms) = (0.0, 30_000 * turn);
            for ms in (from_ms..from_ms + 30_000).step_by(50) {
                run(&mut pick, (ms + 1, ms + 51), mbit * MBIT, (1.0, 1.0));
                sum += of(pick.present().unwrap());
            }
            if turn >= 4 {
                least = least.min(sum / 600.0 / of(best(mbit * MBIT, slowdown)));
            }
        }
        least
    }

    #[test]
    fn what_alternates_is_followed_each_time() {
        let least = [
            [(5.0, 1.0), (5.0, 20.0)],
            [(40.0, 1.0), (40.0, 8.0)],
            [(20.0, 1.0), (30.0, 1.0)],
            [(60.0, 1.0), (100.0, 1.0)],
        ]
        .map(least_of_turns);
        assert!(least.iter().all(|&least| least > 0.93), "{least:?}");
    }

    /// Two codecs that are better by turns in what is measured, every second, for ten minutes; then one of them for longer.
    #[test]
    fn holds_grow_where_codecs_take_turns_and_shrink_where_it_is_calm() {
        let mut pick = pick();
        let mut changes = Vec::new();
        for turn in 0..600 {
            let slow = if turn % 2 == 0 { 1.0 } else { 1.9 };
            let from_ms = 1_000 * turn + 1;
            let used = run(&mut pick, (from_ms, from_ms + 1_000), 60.0 * MBIT, (slow, 1.0));
            changes.extend(used.into_iter().skip(1));
        }
        assert!((2..20).contains(&changes.len()), "{changes:?}");
        let grown = pick.used_ns_min;
        assert!(grown > 16 * USED_NS_MIN, "{grown}");
        run(&mut pick, (600_001, 1_800_000), 60.0 * MBIT, (1.0, 1.0));
        assert!(pick.used_ns_min < 2 * USED_NS_MIN);
    }

    #[test]
    fn trials_take_a_small_part_of_the_time_and_come_again_for_other_content() {
        let mut pick = pick();
        let trials = |pick: &mut CodecPick<usize>, from: u64, to: u64, hard: f64| {
            let mut trials = Vec::new();
            for ms in (from..to).step_by(10) {
                let codec = pick.present().unwrap();
                let left = 10_000.0 * (hard * RATIOS[codec]).min(1.0);
                pick.compressed(10_000, left as u64, (COSTS[codec] * 10_000.0) as u64);
                if !pick.due_trial(at(ms), Some(10.0 * MBIT), |_| true).is_empty() {
                    pick.tried(at(ms), &[], 40_000_000);
                    trials.push(ms);
                }
            }
            trials
        };
        let first = trials(&mut pick, 1, 120_000, 1.0);
        assert!((6..12).contains(&first.len()), "{first:?}");
        let last = *first.last().unwrap();
        let next = trials(&mut pick, last + 10_000, last + 13_000, 2.0);
        // As long as the ratio goes on moving, by what was saved up; each is of more that is new.
        assert!((1..=4).contains(&next.len()), "{next:?}");
        // Where it goes up and down all the time, trials have their part of it and no more.
        let (mut at_ms, mut restless) = (last + 13_000, 0);
        for turn in 0..200 {
            restless += trials(&mut pick, at_ms, at_ms + 500, 1.0 + f64::from(turn % 2)).len();
            at_ms += 500;
        }
        let most = (100_000 / TRIAL_PART + TRIAL_SAVED_NS_MAX / 1_000_000) / 40 + 1;
        assert!(restless as u64 <= most, "{restless} of {most}");
    }

    #[test]
    fn what_can_not_be_better_is_not_tried_nor_what_is_impossible_used() {
        let mut pick = pick();
        pick.compressed(200_000, 90_000, 800_000);
        let list = pick.due_trial(at(1), Some(200.0 * MBIT), |_| true);
        assert_eq!(list, [0, 1], "there is no time for the others");
        pick.tried(at(2), &[], 1);
        pick.compressed(200_000, 90_000, 800_000);
        assert_eq!(pick.due_trial(at(9_000), None, |_| true), [], "no rate is known");
        assert_eq!(pick.due_trial(at(9_000), Some(MBIT), |codec| codec < 2), [0, 1]);
        let results = [0, 1, 4]
            .map(|codec| Tried { codec, point: CodecPoint::new(COSTS[codec], RATIOS[codec]) });
        pick.tried(at(9_001), &results, 1);
        assert_eq!(pick.review(at(9_002), Some(MBIT), |codec| codec < 4), Some(1));
        // What is in use is not possible any more.
        assert_eq!(pick.review(at(9_003), Some(MBIT), |codec| codec == 0), Some(0));
        assert_eq!(CodecPick::<usize>::new(&[], 0).review(at(1), Some(1.0), |_| true), None);
    }

    proptest! {
        /// Whatever is measured, it neither panics nor leaves the list, nor changes more than once a second.
        #[test]
        fn nothing_measured_does_harm(
            events in prop::collection::vec((0..5_u8, 0..200_000_u64, 0..200_000_u64, any::<u32>(), 0.0..1e9), 0..300),
        ) {
            let mut pick = pick();
            let (mut now, mut changed_at) = (at(1), None);
            for (kind, a, b, took_ns, x) in events {
                now = now + u64::from(took_ns) / 8;
                let before = pick.present();
                match kind {
                    0 | 1 => pick.compressed(a, b, took_ns.into()),
                    2 => {
                        let list = pick.due_trial(now, Some(x), |codec| codec != 3);
                        let point = CodecPoint::new(x / 1e6, a as f64 / 1e5);
                        let results: Vec<_> =
                            list.into_iter().map(|codec| Tried { codec, point }).collect();
                        pick.tried(now, &results, took_ns.into());
                    }
                    3 => pick.set_processor(Processor::slowed(x / 1e8)),
                    _ => {
                        pick.review(now, Some(x), |codec| codec != 3);
                    }
                }
                let present = pick.present();
                prop_assert!(present.is_some() && present != Some(3));
                if present != before {
                    let was = changed_at.replace(now);
                    prop_assert!(was.is_none_or(|was| now.since_ns(was) >= USED_NS_MIN));
                }
            }
        }
    }
}
