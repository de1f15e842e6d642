//! When codecs are tried, which of them, and what is learned of it.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::candidate::{Candidate, truth};
use super::own::CHECK_BYTES;
use super::{CodecPick, CodecPoint, LARGE_GAIN, Tried, differs};

/// The bytes that have to be there for a trial, which is as many as are worth trying on; or so many if they take
/// this long to come.
pub(super) const TRIAL_BYTES: u64 = 192 << 10;
const TRIAL_BYTES_MIN: u64 = 24 << 10;
const TRIAL_BYTES_NS_MAX: u64 = SECOND_NS / 2;
/// Trials take at most one part in so many of the time, ...
pub(super) const TRIAL_PART: u64 = 32;
/// ... which is saved up to so much: a few trials, so that those for a first change come at once.
pub(super) const TRIAL_SAVED_NS_MAX: u64 = SECOND_NS;
/// Where nothing seems to have changed they take one part in so many of that, and come this rarely.
const TRIAL_CALM_PART: u64 = 16;
const TRIAL_CALM_NS_MIN: u64 = 2 * SECOND_NS;
/// They come no more rarely than this, while there is traffic.
const TRIAL_NS_MAX: u64 = 30 * SECOND_NS;
/// A trial of which nothing is heard for so long will not be heard of.
const RESULT_NS_MAX: u64 = 60 * SECOND_NS;
/// They come at once, if there is time for them, if what is compressed has so many times another ratio than when
/// they were made, ...
pub(super) const DRIFT: f64 = 1.15;
/// ... or the link so many times another rate: others may be worth a trial then.
const LINK_DRIFT: f64 = 1.5;
/// They are apart by so many times what the latest one took, at most this long: where contents take turns, each of them would
/// have one else.
const TRIAL_APART_PART: u64 = 16;
const TRIAL_APART_NS_MAX: u64 = SECOND_NS / 4;
/// Of another ratio there have to be so many bytes: as many as a trial counts. Or it was so long ago.
const DRIFT_BYTES_MIN: u64 = TRIAL_BYTES / 3;
const DRIFT_NS_MAX: u64 = 3 * SECOND_NS / 10;
/// Codecs are not tried that could not carry more than the present one if they left so much of the bytes that
/// it leaves.
const LEFT_MIN: f64 = 0.65;

/// What is forgotten when a trial is asked for, in case it is not made.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeforeTrial {
    bytes: u64,
    tried_at: Option<Instant>,
    ratio_then: Option<f64>,
    link_then: f64,
}

impl<C: Copy + PartialEq> CodecPick<C> {
    /// Returns the codecs that are to be tried now, which [`tried`](Self::tried) is to be called for, or
    /// [`refused`](Self::refused), on a link of so many bytes a second; none if it is not time for it.
    pub fn due_trial(
        &mut self,
        now: Instant,
        link: Option<f64>,
        is_possible: impl Fn(C) -> bool,
    ) -> Vec<C> {
        let Some(link) = link else { return Vec::new() };
        let list = if self.is_time(now, link, &is_possible) {
            if self.is_brief && self.all_bytes >= TRIAL_BYTES {
                self.candidates.iter_mut().for_each(Candidate::forget_trial);
            }
            // What other content took says nothing of this one.
            self.contents = self.contents.wrapping_add(u32::from(self.drift.is_some()));
            self.expect_costs();
            self.worth_trying(link, is_possible)
        } else if self.own.bytes >= CHECK_BYTES && !self.own.is_checked {
            self.worth_checking(now, link, is_possible)
        } else {
            return Vec::new();
        };
        if !list.is_empty() {
            self.is_trying = true;
            for candidate in &mut self.candidates {
                candidate.was_asked |= list.contains(&candidate.codec);
            }
            let Self { bytes, tried_at, ratio_then, link_then, .. } = *self;
            self.before_trial = Some(BeforeTrial { bytes, tried_at, ratio_then, link_then });
            let ratio = self.measured().map(|it| it.ratio);
            self.own.compare(ratio);
            (self.bytes, self.ratio_then) = (0, ratio);
            (self.tried_at, self.link_then, self.drift) = (Some(now), link, None);
            self.trial_bytes = self.all_bytes;
        }
        list
    }

    /// Guesses what those cost that were never tried: by the nearest one that was, or by the one in use.
    fn expect_costs(&mut self) {
        let scale = |(at, it): (usize, &Candidate<C>)| Some((at, it.scale(it.point()?.cost_ns)));
        let mut known: Vec<_> = self.candidates.iter().enumerate().filter_map(scale).collect();
        if let Some(point) = self.measured().filter(|_| known.is_empty()) {
            known.push((self.present, self.candidates[self.present].scale(point.cost_ns)));
        }
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            if let Some(&(_, scale)) = known.iter().min_by_key(|it| it.0.abs_diff(at)) {
                candidate.expect(scale);
            }
        }
    }

    /// Returns the present one and all that may carry more.
    fn worth_trying(&self, link: f64, is_possible: impl Fn(C) -> bool) -> Vec<C> {
        let may_be_better = self.may_be_better(link);
        let all = self.candidates.iter().enumerate();
        all.filter(|&(at, it)| at == self.present || is_possible(it.codec) && may_be_better(it))
            .map(|(_, it)| it.codec)
            .collect()
    }

    /// Tells those that may carry more than the present one.
    fn may_be_better(&self, link: f64) -> impl Fn(&Candidate<C>) -> bool {
        let measured = self.measured();
        let ratio = measured.map_or(1.0, |it| it.ratio);
        let carried = move |it: &Candidate<C>, point| self.carried_at(link, it, point).rate;
        let present = measured.zip(self.candidates.get(self.present));
        let least = present.map_or(link, |(point, it)| carried(it, point));
        let scale = present.map_or(1.0, |(point, it)| it.scale(point.cost_ns));
        let contents = self.contents;
        move |it| {
            let cost_ns = it.cost_if_tried_in(contents, scale);
            carried(it, CodecPoint::new(cost_ns, LEFT_MIN * ratio)) > least
        }
    }

    /// Returns true if one was never tried that may carry more, now that it is known what others cost.
    fn is_one_untried(&mut self, link: f64, is_possible: impl Fn(C) -> bool) -> bool {
        self.expect_costs();
        let may_be_better = self.may_be_better(link);
        let mut untried = self.candidates.iter().filter(|it| !it.was_asked);
        untried.any(|it| is_possible(it.codec) && may_be_better(it))
    }

    /// Returns the present one, and those that carry nearly as much, to see what of trials comes true; none if there is no
    /// time for it.
    fn worth_checking(
        &mut self,
        now: Instant,
        link: f64,
        is_possible: impl Fn(C) -> bool,
    ) -> Vec<C> {
        let waits = |since: Instant| now.since_ns(since) < RESULT_NS_MAX;
        let is_trying = self.is_trying && self.tried_at.is_some_and(waits);
        let Some(least) = self.carried(now, link, self.present) else { return Vec::new() };
        if is_trying || self.bytes < TRIAL_BYTES {
            return Vec::new();
        }
        let is_near = |&at: &usize| {
            let carried = self.carried(now, link, at);
            let is_near = carried.is_some_and(|it| it.rate * LARGE_GAIN > least.rate);
            at == self.present || is_near && is_possible(self.candidates[at].codec)
        };
        let near: Vec<_> = (0..self.candidates.len()).filter(is_near).collect();
        let cost_ns: f64 = near.iter().map(|&at| self.candidates[at].cost_ns).sum();
        let needed_ns = cost_ns * TRIAL_BYTES as f64 * self.processor.slowdown();
        if !self.budget.allows(now, needed_ns as u64) {
            return Vec::new();
        }
        near.into_iter().map(|at| self.candidates[at].codec).collect()
    }

    fn is_time(&mut self, now: Instant, link: f64, is_possible: impl Fn(C) -> bool) -> bool {
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
        let apart_ns = TRIAL_APART_PART.saturating_mul(self.trial_ns).min(TRIAL_APART_NS_MAX);
        if now.since_ns(before) < apart_ns {
            return false;
        }
        let is_other = drifts
            || differs(link / self.link_then, LINK_DRIFT)
            || self.is_one_untried(link, is_possible)
            || self.is_brief && self.all_bytes >= TRIAL_BYTES;
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

    /// There was no time for the trial that was asked for: it says nothing, and is due as it was.
    pub fn refused(&mut self) {
        let Some(before) = self.before_trial.take().filter(|_| self.is_trying) else { return };
        (self.is_trying, self.own.ratio_then) = (false, None);
        self.candidates.iter_mut().for_each(|it| it.was_asked = it.ratio.is_some());
        (self.bytes, self.tried_at) = (self.bytes.saturating_add(before.bytes), before.tried_at);
        (self.ratio_then, self.link_then) = (before.ratio_then, before.link_then);
    }

    /// Codecs were tried, one after another with the same bytes, which took so long in all; no time if nobody could try them.
    pub fn tried(&mut self, now: Instant, results: &[Tried<C>], took_ns: u64) {
        (self.is_trying, self.tried_at, self.before_trial) = (false, Some(now), None);
        self.is_brief = self.trial_bytes < TRIAL_BYTES;
        if took_ns > 0 {
            self.trial_ns = took_ns;
        }
        // A processor of which little may be had is busy with it for longer.
        self.budget.spend(now, (took_ns as f64 * self.processor.slowdown()) as u64);
        // Of those that were not tried with these bytes, what they leave is guessed by the one in use.
        let codec = self.present();
        let of_present = results.iter().find(|it| Some(it.codec) == codec).map(|it| it.point.ratio);
        let before = self.candidates.get(self.present).and_then(|it| it.ratio);
        let times = of_present.zip(before).map_or(1.0, |(is, was)| truth(is, was));
        let contents = self.contents;
        for candidate in &mut self.candidates {
            match results.iter().find(|it| it.codec == candidate.codec) {
                Some(Tried { point, .. }) => {
                    (candidate.cost_ns, candidate.ratio) = (point.cost_ns, Some(point.ratio));
                    candidate.tried_in = contents;
                }
                None => candidate.ratio = candidate.ratio.map(|ratio| (times * ratio).min(1.0)),
            }
        }
        let Some((is, tried)) = self.own.ratio_then.take().zip(of_present) else { return };
        let content = self.content();
        if let Some(present) = self.candidates.get_mut(self.present) {
            present.learn_bias(now, content, is / tried);
            self.own.is_checked = true;
        }
    }
}
