//! What is known of one of the codecs: from trials, and from use.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::{Assumed, CodecPoint};

/// What is measured of one codec says no more of others than this factor.
const TRUE_MAX: f64 = 4.0;
/// What was measured of a codec in use is remembered for so long: then it may have changed.
const TRUE_NS: u64 = 30 * SECOND_NS;
/// A codec that was not tried is believed to cost what is assumed of it as far as this: what is known of one kind of content
/// says little of another.
const SCALE_MAX: f64 = 4.0;
/// Use may leave so many times more than trials do, or less; beyond that something else is wrong.
const BIAS_MAX: f64 = 1.5;
/// Of so many trials the bias is the mean; then each further one moves it by one part in so many.
const BIAS_SAMPLES: u32 = 6;
/// A third of it is left after so long: contents change, and what was learned of others.
const BIAS_FADE_NS: f64 = 1_200.0 * SECOND_NS as f64;
/// After so long it is not known any more, and the codec is worth another try.
const KNOWN_NS: u64 = 3_600 * SECOND_NS;
/// Contents of which what is tried leaves half as much as of others have biases of their own.
pub(super) const CONTENTS: usize = 4;

/// How many times more is left in use than in trials of the same bytes, as a logarithm.
#[derive(Clone, Copy, Debug)]
struct Bias {
    log: f64,
    samples: u32,
    at: Instant,
}

/// One codec.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<C> {
    pub(super) codec: C,
    /// As it was tried, or else as it is assumed.
    pub(super) cost_ns: f64,
    assumed_ns: f64,
    /// The content that it was tried with, by its number.
    pub(super) tried_in: u32,
    pub(super) receiver_bytes: f64,
    /// None before it was tried.
    pub(super) ratio: Option<f64>,
    /// It is tried, or was; or that has failed.
    pub(super) was_asked: bool,
    /// How many times its cost really was what it was when it was tried, where nothing else is in the processor's
    /// caches, and when.
    pub(super) truth: Option<(Instant, f64)>,
    /// How many times as long the same bytes take with it as with the one in use, in the mean of late.
    pub(super) times: f64,
    /// By content.
    biases: [Option<Bias>; CONTENTS],
}

/// Returns by what factor something in use differs from what it was in trials.
pub(super) fn truth(is: f64, was: f64) -> f64 {
    let times = is / was;
    if times.is_finite() { times.clamp(1.0 / TRUE_MAX, TRUE_MAX) } else { 1.0 }
}

/// Returns the kind of a content of which a codec leaves so much.
pub(super) fn content_of(ratio: f64) -> usize {
    let halves = -ratio.clamp(1e-3, 1.0).log2();
    (halves as usize).min(CONTENTS - 1)
}

impl<C> Candidate<C> {
    /// Returns true if the receiver takes as long for it as the sender.
    pub(super) fn takes_receiver(&self) -> bool {
        self.receiver_bytes > 0.0
    }

    pub(super) fn new(Assumed { codec, cost_ns, receiver_bytes }: Assumed<C>) -> Self {
        let (assumed_ns, times, was_asked) = (cost_ns, 1.0, false);
        let (ratio, truth, biases) = (None, None, [None; CONTENTS]);
        Self {
            codec,
            cost_ns,
            assumed_ns,
            tried_in: 0,
            receiver_bytes,
            ratio,
            was_asked,
            truth,
            times,
            biases,
        }
    }

    pub(super) fn point(&self) -> Option<CodecPoint> {
        self.ratio.map(|ratio| CodecPoint::new(self.cost_ns, ratio))
    }

    /// Returns how many times what is assumed of it this cost is.
    pub(super) fn scale(&self, cost_ns: f64) -> f64 {
        let times = cost_ns / self.assumed_ns;
        if times.is_finite() { times.clamp(1.0 / SCALE_MAX, SCALE_MAX) } else { 1.0 }
    }

    /// Others cost so many times what is assumed of them. Contents and machines make all codecs slower or faster, and much
    /// alike, so that this one is believed to do the same if it was never tried.
    pub(super) fn expect(&mut self, scale: f64) {
        if self.ratio.is_none() {
            self.cost_ns = scale * self.assumed_ns;
        }
    }

    /// Returns what it may cost with this content. If it was tried with another, it may be as little as is assumed where others
    /// cost so many times what is assumed of them.
    pub(super) fn cost_if_tried_in(&self, content: u32, scale: f64) -> f64 {
        let may_be_less = self.ratio.is_some() && self.tried_in != content;
        if may_be_less { self.cost_ns.min(scale * self.assumed_ns) } else { self.cost_ns }
    }

    /// What was tried of it says nothing.
    pub(super) fn forget_trial(&mut self) {
        (self.cost_ns, self.ratio, self.was_asked) = (self.assumed_ns, None, false);
    }

    /// Notes how its cost comes true, if it is in use and that is known; else what was so long ago is forgotten.
    pub(super) fn learn_truth(&mut self, now: Instant, is: Option<CodecPoint>) {
        self.truth = self.truth.filter(|it| now.since_ns(it.0) < TRUE_NS);
        if let (Some(is), Some(was)) = (is, self.point()) {
            self.truth = Some((now, truth(is.cost_ns, was.cost_ns)));
        }
    }

    /// In use it left so many times what it left in a trial of the same bytes.
    pub(super) fn learn_bias(&mut self, now: Instant, content: usize, times: f64) {
        if !times.is_finite() || times <= 0.0 {
            return;
        }
        let log = times.ln().clamp(-BIAS_MAX.ln(), BIAS_MAX.ln());
        let before = self.biases[content].filter(|it| now.since_ns(it.at) < KNOWN_NS);
        let samples = before.map_or(1, |it| (it.samples + 1).min(BIAS_SAMPLES));
        let mean = before.map_or(0.0, |it| it.log);
        let log = mean + (log - mean) / f64::from(samples);
        self.biases[content] = Some(Bias { log, samples, at: now });
    }

    /// Returns true if use has shown, not too long ago, what trials do not see.
    pub(super) fn is_known(&self, now: Instant, content: usize) -> bool {
        self.biases[content].is_some_and(|it| now.since_ns(it.at) < KNOWN_NS)
    }

    /// Returns how many times more it leaves in use than in trials, as a logarithm; none if that is not known.
    pub(super) fn bias_log(&self, content: usize) -> Option<f64> {
        self.biases[content].map(|it| it.log)
    }

    /// Returns the same where others' is `mean`: that is assumed if it is not known, and more and more with time.
    pub(super) fn bias_beside(&self, now: Instant, content: usize, mean: f64) -> f64 {
        self.biases[content].map_or(mean, |it| {
            let fade = (-(now.since_ns(it.at) as f64) / BIAS_FADE_NS).exp();
            mean + fade * (it.log - mean)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(codec: u8) -> Candidate<u8> {
        Candidate::new(Assumed { codec, cost_ns: 1.0, receiver_bytes: 0.0 })
    }

    fn at(s: u64) -> Instant {
        Instant::from_ns(s * SECOND_NS)
    }

    #[test]
    fn a_bias_is_a_mean_that_fades_and_is_of_one_content() {
        let mut one = candidate(1);
        assert!(!one.is_known(at(1), 0));
        assert_eq!((one.bias_log(0), one.bias_beside(at(1), 0, 0.1)), (None, 0.1));
        for times in [1.2, 1.25, 1.3] {
            one.learn_bias(at(1), 0, times);
        }
        let bias = one.bias_beside(at(1), 0, 0.0).exp();
        assert!((bias - 1.25).abs() < 0.01, "{bias}");
        assert!((1.07..1.09).contains(&one.bias_beside(at(1_201), 0, 0.0).exp()));
        assert_eq!(one.bias_beside(at(1), 1, 0.0), 0.0);
        assert!(one.is_known(at(3_000), 0) && !one.is_known(at(4_000), 0));
    }

    #[test]
    fn a_bias_is_bounded_and_no_number_spoils_it() {
        let mut one = candidate(1);
        for times in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            one.learn_bias(at(1), 3, times);
        }
        assert!(!one.is_known(at(1), 3));
        for _ in 0..100 {
            one.learn_bias(at(1), 3, 1e9);
        }
        let bias = one.bias_beside(at(1), 3, 0.0).exp();
        assert!((bias - BIAS_MAX).abs() < 1e-9, "{bias}");
    }

    #[test]
    fn contents_differ_by_what_is_left_of_them() {
        assert_eq!([1.2, 0.9, 0.4, 0.2, 0.01, f64::NAN].map(content_of), [0, 0, 1, 2, 3, 0]);
    }
}
