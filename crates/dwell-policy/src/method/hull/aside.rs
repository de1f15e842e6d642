//! The codec of the running context, and trials of one that is too slow to be tried on what is sent.
//!
//! Other codecs are tried by using them. Of a model that takes ten times as long that would be expensive where it brings nothing: a megabyte
//! goes through it before it may be left, and all that the model before it had learned is lost. So it is tried beside: a block that a
//! faster model has compressed for the stream is compressed by two more that know nothing, one of either kind, and what one of them leaves beside
//! the other says how it would do. (64 KiB of prose, program sources, SQL, JSON and logs show that within a thirtieth.)

use super::Hull;
use crate::method::bound::{Bound, CodecPoint};
use crate::method::codecs::CodecEstimate;
use crate::method::running::BETTER;

/// A model is left at any time for what is expected to carry so many times more: the link has changed, or was taken for
/// another one.
const MUCH_BETTER: f64 = 1.2;
/// A slow one sooner: an end that does not follow falls back the further.
const BETTER_THAN_SLOW: f64 = 1.1;
/// A slow model is tried if it would be better where it leaves so much of what the present one does; on most data it leaves more.
const HOPED_RATIO: f64 = 0.87;
/// So many bytes are compressed before the next trial, and twice as many each time, up to these: content may change.
const PAUSE_BYTES: u64 = 4 << 20;
const PAUSE_BYTES_MAX: u64 = 64 << 20;

/// A trial of a codec beside what is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriedAside<C> {
    /// The codec, and the one that is used.
    pub codecs: (C, C),
    /// What each of them leaves of the same bytes, if neither knows anything before.
    pub lens: (usize, usize),
    /// What a byte takes with the first one, in nanoseconds.
    pub cost_ns: f64,
}

/// When to try a slow codec, and which.
#[derive(Clone, Debug)]
pub(super) struct Aside<C> {
    /// It is to be tried, and the one that is used.
    wanted: Option<(C, C)>,
    /// The bytes that were compressed since the latest trial, and those before the next.
    bytes: u64,
    pause_bytes: u64,
}

impl<C> Default for Aside<C> {
    fn default() -> Self {
        Self { wanted: None, bytes: 0, pause_bytes: 0 }
    }
}

impl<C> Aside<C> {
    pub(super) const fn went(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len as u64);
    }
}

impl<C: Copy + PartialEq> Hull<C> {
    /// Looks which codec the running context should have, for a link of this rate.
    pub(super) fn choose_running(&mut self, rate: f64, points: &[CodecPoint]) {
        // To save bytes a link need not be full.
        let is_sure = self.saves_bytes || self.filled.is_full();
        let present = self.running.at().and_then(|at| self.estimates.all().get(at));
        let much_better = match present {
            Some(codec) if codec.is_slow => BETTER_THAN_SLOW,
            Some(codec) if codec.takes_receiver => MUCH_BETTER,
            _ => f64::INFINITY,
        };
        let all = self.estimates.all().iter().enumerate();
        let mut faster = self.estimates.all().iter();
        let has_faster = faster.any(|codec| codec.takes_receiver && !codec.is_slow);
        // A link that seems to be thin may be one that is not full yet.
        let may_have = |at: usize, codec: &CodecEstimate<C>| {
            let is_known = !codec.is_slow || codec.age.is_some() || !has_faster;
            let may_predict = is_known && (is_sure || self.running.at() == Some(at));
            codec.continues && (!codec.takes_receiver || may_predict)
        };
        let candidates: Vec<usize> =
            all.filter(|(at, codec)| may_have(*at, codec)).map(|(at, _)| at).collect();
        let mut running = std::mem::take(&mut self.running);
        running.choose(candidates.into_iter(), (is_sure, much_better), |at| {
            Bound::of(rate, &self.with_running(points, at)).rate
        });
        self.running = running;
        self.aside.wanted = if is_sure { self.worth_trying(rate, points) } else { None };
    }

    /// Returns the points of raw blocks and of all codecs, with impossible numbers for those that go on with a running
    /// context and are not this one.
    pub(super) fn with_running(&self, points: &[CodecPoint], at: Option<usize>) -> Vec<CodecPoint> {
        let is_possible =
            |place: usize, codec: &CodecEstimate<C>| !codec.continues || at == Some(place);
        let mut points = points.to_vec();
        for ((place, codec), point) in self.estimates.all().iter().enumerate().zip(&mut points[1..])
        {
            if !is_possible(place, codec) {
                *point = CodecPoint::IMPOSSIBLE;
            }
        }
        points
    }

    /// Returns the slow codec that would be better than the one that is used, if it left as little as may be hoped, and that one.
    fn worth_trying(&self, rate: f64, points: &[CodecPoint]) -> Option<(C, C)> {
        if self.aside.bytes < self.aside.pause_bytes {
            return None;
        }
        let all = self.estimates.all();
        let at = self.running.at()?;
        let present = all.get(at)?;
        let is_tried_by_use = present.age.is_some() && present.takes_receiver && !present.is_slow;
        let slow = all.iter().position(|codec| codec.is_slow).filter(|_| is_tried_by_use)?;
        let mut hoped = points.to_vec();
        hoped[1 + slow].ratio = HOPED_RATIO * present.point().ratio;
        let rate_with = |at| Bound::of(rate, &self.with_running(&hoped, Some(at))).rate;
        let is_better = rate_with(slow) > BETTER * rate_with(at);
        is_better.then(|| (all[slow].choice.codec, present.choice.codec))
    }

    /// Takes what is to be tried beside, and what that is to be compared with.
    pub(in crate::method) fn take_trial(&mut self) -> Option<(C, C)> {
        let wanted = self.aside.wanted.take();
        if wanted.is_some() {
            let pause_bytes = (2 * self.aside.pause_bytes).clamp(PAUSE_BYTES, PAUSE_BYTES_MAX);
            (self.aside.bytes, self.aside.pause_bytes) = (0, pause_bytes);
        }
        wanted
    }

    /// Learns from a trial.
    pub(in crate::method) fn tried_aside(&mut self, tried: &TriedAside<C>) {
        self.estimates.tried_aside(tried);
        let mut all = self.estimates.all().iter();
        self.running.found(all.position(|codec| codec.choice.codec == tried.codecs.0));
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Instant;

    use super::*;
    use crate::method::{Choice, Measured, Prior, Referring, WriteCost};
    use crate::rate::{LinkRate, LinkReport};

    /// A stream with two models, that saves bytes or time over a link of this rate.
    fn hull(saves_bytes: bool, rate: f64) -> (Hull<&'static str>, LinkRate) {
        let prior = |codec, cost_ns, saving, refers| Prior { codec, cost_ns, saving, refers };
        let mut hull = Hull::new(&[
            prior("zstd", 10.0, 0.6, Referring::Continues),
            prior("ppm", 90.0, 0.75, Referring::Predicts),
            prior("mix", 800.0, 0.99, Referring::PredictsSlowly),
        ]);
        if saves_bytes {
            hull.save_bytes();
        }
        let mut link = LinkRate::new(1 << 16);
        link.expect(Instant::ZERO, rate);
        (hull, link)
    }

    /// Plans as often as it takes to compare all, and compresses a block by what is used.
    fn used(hull: &mut Hull<&'static str>, link: &LinkRate) -> &'static str {
        (0..20).for_each(|_| hull.plan(link, WriteCost::new()));
        let at = hull.running.at().unwrap();
        let choice = hull.estimates.all()[at].choice;
        let (took_ns, used_len) = match choice.codec {
            "zstd" => (655_360, 26_000),
            "ppm" => (5_900_000, 16_384),
            _ => (52_000_000, 14_500),
        };
        hull.compressed(&Measured {
            choice: Choice { refers: true, ..choice },
            original_len: 1 << 16,
            history_len: 0,
            used_len,
            took_ns,
            away_ns: took_ns,
            is_first: false,
        });
        choice.codec
    }

    fn tried(lens: (usize, usize)) -> TriedAside<&'static str> {
        TriedAside { codecs: ("mix", "ppm"), lens, cost_ns: 800.0 }
    }

    #[test]
    fn a_slow_model_is_used_once_a_trial_has_shown_that_it_leaves_less() {
        // Whatever is assumed of it.
        let (mut hull, link) = hull(true, 250e3);
        assert!((0..9).all(|_| used(&mut hull, &link) == "ppm"));
        hull.plan(&link, WriteCost::new());
        assert_eq!((hull.take_trial(), hull.take_trial()), (Some(("mix", "ppm")), None));
        hull.tried_aside(&tried((990, 1000)));
        assert!((0..60).all(|_| used(&mut hull, &link) == "ppm"), "a hundredth is too little");
        hull.plan(&link, WriteCost::new());
        assert_eq!(hull.take_trial(), None, "4 MiB later");
        assert!((0..9).all(|_| used(&mut hull, &link) == "ppm"));
        hull.plan(&link, WriteCost::new());
        assert_eq!(hull.take_trial(), Some(("mix", "ppm")), "the content may be another one");
        hull.tried_aside(&tried((880, 1000)));
        assert!((0..20).any(|_| used(&mut hull, &link) == "mix"));
        assert!((0..100).all(|_| used(&mut hull, &link) == "mix"));
        assert_eq!(hull.take_trial(), None, "it is used");
    }

    /// A receiver that does not follow is waited for, which makes the link look thin.
    #[test]
    fn a_slow_model_is_left_when_the_receiver_is_waited_for() {
        let (mut hull, link) = hull(false, 62e3);
        let report = |hull: &mut Hull<_>, ms: u64, receiver_wait_ns| {
            let (now, queue_ns) = (Instant::from_ns(1_000_000 * ms), 100_000_000);
            let report = LinkReport { queue_ns, receiver_wait_ns, ..LinkReport::default() };
            hull.reported(now, &report);
            hull.filled.at(now, false);
        };
        (0..40).for_each(|at| report(&mut hull, 10 * at, 0));
        used(&mut hull, &link);
        hull.plan(&link, WriteCost::new());
        assert!(hull.take_trial().is_some());
        hull.tried_aside(&tried((880, 1000)));
        assert!((0..9).all(|_| used(&mut hull, &link) == "mix"));
        let mut left = None;
        for ms in (400..9_000).step_by(10) {
            report(&mut hull, ms, 700_000 * ms);
            hull.plan(&link, WriteCost::new());
            let at = hull.running.at().unwrap();
            if hull.estimates.all()[at].choice.codec == "ppm" {
                left.get_or_insert(ms);
            }
        }
        assert!(left.is_some_and(|ms| ms < 4_000), "{left:?}");
    }

    /// What a byte takes with it is too long there, however little it leaves.
    #[test]
    fn where_it_would_be_waited_for_a_slow_model_is_not_even_tried() {
        for (saves_bytes, rate, is_tried) in
            [(true, 2e6, false), (true, 500e3, true), (false, 250e3, false), (false, 125e3, true)]
        {
            let (mut hull, link) = hull(saves_bytes, rate);
            // It is known to be full.
            let queue_ns = 100_000_000;
            for at in [0, 300_000_000].map(Instant::from_ns) {
                hull.filled.reported(at, &LinkReport { queue_ns, ..LinkReport::default() });
                hull.filled.at(at, false);
            }
            assert!((0..30).all(|_| used(&mut hull, &link) == "ppm"), "{rate}");
            hull.plan(&link, WriteCost::new());
            assert_eq!(hull.take_trial().is_some(), is_tried, "{saves_bytes} {rate}");
        }
    }
}
