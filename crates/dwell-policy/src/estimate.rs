//! Estimates of what compressing a packet would bring and cost.
//!
//! The paper takes ratio and time as constants ([`Estimates::Fixed`]); real traffic has
//! neither, so the relay learns both, per flow, with the packet's class as the first guess
//! ([`Estimates::Learned`]). The tables have a fixed size: a flow that falls on an occupied
//! place takes it over.

use serde::{Deserialize, Serialize};

use crate::backoff::{BackOff, BackOffConfig};
use crate::job_time::JobTime;
use crate::packet::ClassKey;

/// A ratio of one, in parts per million.
pub(crate) const RATIO_ONE_PPM: u32 = 1_000_000;

/// A compression ratio, compressed / original, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ratio(u32);

impl Ratio {
    /// Nothing is gained.
    pub const ONE: Self = Self(RATIO_ONE_PPM);

    /// A ratio of `ppm` parts per million.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// The ratio of two sizes; one if `original` is zero.
    pub fn of(compressed: u32, original: u32) -> Self {
        if original == 0 {
            return Self::ONE;
        }
        let ppm = u64::from(compressed) * u64::from(RATIO_ONE_PPM) / u64::from(original);
        Self(u32::try_from(ppm).unwrap_or(u32::MAX))
    }

    /// Parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// As a floating-point number, for reports.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(RATIO_ONE_PPM)
    }
}

/// The expected gain and cost of compressing one packet: R and C of Eq. (2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Expected ratio R.
    pub ratio: Ratio,
    /// Expected time C for this packet, in nanoseconds.
    pub cost_ns: u64,
}

/// The source of estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Estimates {
    /// The same for every packet, as in the paper's section 5.1.
    Fixed(Estimate),
    /// Learned online per flow and class.
    Learned(LearnedConfig),
}

/// The parameters of learned estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedConfig {
    /// The ratio that is assumed of a class never seen before.
    pub first_ratio: Ratio,
    /// The time per byte assumed before anything was measured, in picoseconds.
    pub first_cost_ps_per_byte: u32,
    /// A result at or above this ratio is poor: not worth its CPU time.
    pub poor_ratio: Ratio,
    /// The share of the time that may go to compressing what the rules advise against, in parts
    /// per million: so that what is unknown becomes known, and what changed is noticed.
    pub explore_ppm: u32,
}

impl Default for LearnedConfig {
    fn default() -> Self {
        Self {
            first_ratio: Ratio::from_ppm(900_000),
            first_cost_ps_per_byte: 5_000,
            poor_ratio: Ratio::from_ppm(980_000),
            explore_ppm: 8_000,
        }
    }
}

/// The smallest table that keeps the flows of a busy site apart; 96 kB.
const FLOW_SLOTS: usize = 4096;
const CLASS_BITS: u32 = 9;
const CLASS_SLOTS: usize = 1 << CLASS_BITS;
/// New results count for 1/8, old ones fade: about the last 20 packets matter.
const EWMA_SHIFT: u32 = 3;
/// After this many results an estimate says more about the traffic than about the first guess.
const KNOWN_RESULTS: u8 = 8;

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    ratio_ppm: u32,
    cost_ps_per_byte: u32,
    /// The number of results; does not grow beyond [`KNOWN_RESULTS`].
    results: u8,
    back_off: BackOff,
}

impl Slot {
    fn absorb(&mut self, ratio: Ratio, cost_ps_per_byte: u32) {
        self.results = KNOWN_RESULTS.min(self.results + 1);
        self.ratio_ppm = ewma(self.ratio_ppm, ratio.ppm());
        // A compression that the scheduler interrupted says nothing about the codec: one sample
        // may at most quadruple what is believed, before it is weighted.
        let believed = self.cost_ps_per_byte.max(100);
        let sample = cost_ps_per_byte.min(believed.saturating_mul(4));
        self.cost_ps_per_byte = ewma(self.cost_ps_per_byte, sample);
    }
}

/// In whole numbers: the same to the bit wherever it runs.
fn ewma(old: u32, sample: u32) -> u32 {
    let (old, sample) = (i64::from(old), i64::from(sample));
    // Rounded away from the old value, so that a steady sample is reached exactly.
    let step = sample - old;
    let step = (step + step.signum() * ((1 << EWMA_SHIFT) - 1)) / (1 << EWMA_SHIFT);
    u32::try_from(old + step).unwrap_or(u32::MAX)
}

/// The same in floating point, with the weight of the sample: for rates and shares, which have no
/// smallest step.
pub(crate) fn smoothed(old: f64, sample: f64, weight: f64) -> f64 {
    old + weight * (sample - old)
}

/// Learned estimates per flow and per class.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    config: LearnedConfig,
    flows: Vec<Slot>,
    classes: Vec<Slot>,
    /// What each job takes beside its bytes, as far as anybody says so.
    job_time: JobTime,
}

impl Learned {
    pub(crate) fn new(config: LearnedConfig) -> Self {
        let empty = Slot {
            tag: u32::MAX,
            ratio_ppm: config.first_ratio.ppm(),
            cost_ps_per_byte: config.first_cost_ps_per_byte,
            results: 0,
            back_off: BackOff::default(),
        };
        let (flows, classes) = (vec![empty; FLOW_SLOTS], vec![empty; CLASS_SLOTS]);
        Self { config, flows, classes, job_time: JobTime::default() }
    }

    pub(crate) fn set_config(&mut self, config: LearnedConfig) {
        self.config = config;
    }

    /// Takes in the time of a whole job. Returns the part of it that is its bytes', for
    /// [`Self::record`].
    pub(crate) fn note_job(&mut self, bytes: u32, took_ns: u64) -> u64 {
        self.job_time.note(bytes, took_ns)
    }

    /// The time that each job takes beside its bytes, in nanoseconds.
    pub(crate) fn fixed_ns(&self) -> u64 {
        self.job_time.fixed_ns()
    }

    pub(crate) fn forget_job_time(&mut self) {
        self.job_time = JobTime::default();
    }

    /// The estimate for a job of `bytes` that are like those of a flow.
    pub(crate) fn estimate(
        &mut self,
        flow: u64,
        class: ClassKey,
        bytes: u32,
        back_off: &BackOffConfig,
    ) -> Estimate {
        let fixed_ns = self.job_time.fixed_ns();
        let slot = self.flow(flow, class, back_off);
        let cost_ps = u64::from(slot.cost_ps_per_byte) * u64::from(bytes);
        let ratio = Ratio(slot.ratio_ppm.min(RATIO_ONE_PPM));
        Estimate { ratio, cost_ns: cost_ps / 1000 + fixed_ns }
    }

    /// Returns true if enough was compressed of the flow, or of its class before it, for the
    /// estimate to mean something.
    pub(crate) fn is_known(&mut self, key: (u64, ClassKey), back_off: &BackOffConfig) -> bool {
        self.flow(key.0, key.1, back_off).results >= KNOWN_RESULTS
    }

    /// Asks the flow's back-off whether this packet may be tried.
    pub(crate) fn may_try(&mut self, flow: u64, class: ClassKey, config: &BackOffConfig) -> bool {
        self.flow(flow, class, config).back_off.may_try()
    }

    /// Takes in a result; `to_bytes` at or above `bytes` means that nothing was gained.
    pub(crate) fn record(
        &mut self,
        (flow, class): (u64, ClassKey),
        (bytes, to_bytes): (u32, u32),
        took_ns: u64,
        back_off: &BackOffConfig,
    ) {
        let ratio = Ratio::of(to_bytes, bytes);
        let poor = ratio >= self.config.poor_ratio;
        let cost_ps = took_ns.saturating_mul(1000) / u64::from(bytes.max(1));
        let cost_ps = u32::try_from(cost_ps).unwrap_or(u32::MAX);
        let slot = self.flow(flow, class, back_off);
        slot.absorb(ratio, cost_ps);
        slot.back_off.record(poor, back_off);
        let slot = self.class(class);
        slot.absorb(ratio, cost_ps);
        slot.back_off.record(poor, back_off);
    }

    /// Returns the estimates of each class: ratio, picoseconds per byte, and true if it backs off.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (ClassKey, Ratio, u32, bool)> {
        self.classes.iter().filter(|slot| slot.tag != u32::MAX).map(|slot| {
            let class = ClassKey::from_bits(slot.tag);
            let backing_off = slot.back_off.is_backing_off();
            (class, Ratio(slot.ratio_ppm), slot.cost_ps_per_byte, backing_off)
        })
    }

    /// The place of a class: by the highest bits of the product, since every bit of the class, the
    /// highest too, changes those.
    fn place(class: ClassKey) -> usize {
        (class.bits().wrapping_mul(0x9e37_79b1) >> (u32::BITS - CLASS_BITS)) as usize
    }

    fn class(&mut self, class: ClassKey) -> &mut Slot {
        let at = Self::place(class);
        let slot = &mut self.classes[at];
        if slot.tag != class.bits() {
            *slot = Slot {
                tag: class.bits(),
                ratio_ppm: self.config.first_ratio.ppm(),
                results: 0,
                back_off: BackOff::default(),
                // The time per byte belongs to the codec more than to the class.
                cost_ps_per_byte: slot.cost_ps_per_byte,
            };
        }
        slot
    }

    fn flow(&mut self, flow: u64, class: ClassKey, back_off: &BackOffConfig) -> &mut Slot {
        let at = (flow % FLOW_SLOTS as u64) as usize;
        let tag = (flow >> 32) as u32 & !(1 << 31); // never the tag of an empty slot
        if self.flows[at].tag != tag {
            let class = *self.class(class);
            // A new flow of a class that is being left alone has to earn its first try.
            let state = if class.back_off.is_backing_off() {
                BackOff::suspicious(back_off)
            } else {
                BackOff::default()
            };
            self.flows[at] = Slot { tag, back_off: state, ..class };
        }
        &mut self.flows[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: ClassKey = ClassKey::new(6, 443);

    fn learned() -> (Learned, BackOffConfig) {
        (Learned::new(LearnedConfig::default()), BackOffConfig::default())
    }

    #[test]
    fn a_flow_converges_to_what_it_shows() {
        let (mut learned, config) = learned();
        for _ in 0..100 {
            learned.record((1 << 40, WEB), (1000, 400), 3_000, &config);
        }
        let estimate = learned.estimate(1 << 40, WEB, 1000, &config);
        assert_eq!(estimate.ratio.ppm(), 400_000);
        assert_eq!(estimate.cost_ns, 3_000);
        // Another flow of the class begins with that belief.
        assert_eq!(learned.estimate(2 << 40, WEB, 500, &config).ratio.ppm(), 400_000);
    }

    #[test]
    fn one_interrupted_compress_does_not_spoil_the_belief() {
        let (mut learned, config) = learned();
        for _ in 0..100 {
            learned.record((7, WEB), (1000, 400), 3_000, &config);
        }
        learned.record((7, WEB), (1000, 400), 40_000_000, &config);
        assert!(learned.estimate(7, WEB, 1000, &config).cost_ns < 5_000);
    }

    #[test]
    fn a_new_flow_of_a_poor_class_must_earn_its_first_try() {
        let (mut learned, config) = learned();
        for _ in 0..5 {
            assert!(learned.may_try(1 << 33, WEB, &config));
            learned.record((1 << 33, WEB), (1400, 1400), 5_000, &config);
        }
        assert!(!learned.may_try(1 << 33, WEB, &config));
        let tries = (0..5).filter(|_| learned.may_try(9 << 33, WEB, &config)).count();
        assert_eq!(tries, 0);
        assert!(learned.may_try(9 << 33, WEB, &config));
        // Other classes are not suspected.
        assert!(learned.may_try(5 << 33, ClassKey::new(6, 80), &config));
    }

    #[test]
    fn a_class_in_another_s_place_begins_with_the_codec_s_time() {
        let (mut learned, config) = learned();
        let place = Learned::place;
        let other = (1..u16::MAX).map(|port| ClassKey::new(17, port));
        let other = other.into_iter().find(|&class| place(class) == place(WEB)).unwrap();
        for _ in 0..100 {
            learned.record((1 << 40, WEB), (1000, 400), 9_000, &config);
        }
        let estimate = learned.estimate(2 << 40, other, 1000, &config);
        assert_eq!(estimate.cost_ns, 9_000, "the time belongs to the codec");
        assert_eq!(estimate.ratio, LearnedConfig::default().first_ratio);
        assert!(!learned.is_known((2 << 40, other), &config));
    }

    #[test]
    fn the_random_part_of_a_class_has_a_place_of_its_own() {
        let (mut learned, config) = learned();
        let (_, random) = crate::packet::learned_as(0, WEB, true);
        for _ in 0..100 {
            learned.record((1 << 40, WEB), (1000, 400), 3_000, &config);
            learned.record((2 << 40, random), (1000, 1000), 3_000, &config);
        }
        assert!(learned.is_known((3 << 40, WEB), &config));
        assert!(learned.is_known((4 << 40, random), &config));
        assert_eq!(learned.estimate(5 << 40, WEB, 1000, &config).ratio.ppm(), 400_000);
        assert_eq!(learned.classes().count(), 2);
    }

    #[test]
    fn ratios_do_not_overflow() {
        assert_eq!(Ratio::of(u32::MAX, 1).ppm(), u32::MAX);
        assert_eq!(Ratio::of(5, 0), Ratio::ONE);
        assert_eq!(ewma(0, u32::MAX), u32::MAX / 8 + 1);
        assert_eq!(ewma(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn estimates_move_by_their_weight() {
        assert_eq!((ewma(0, 8), ewma(8, 0), ewma(0, 9), ewma(7, 7)), (1, 7, 2, 7));
        assert_eq!(smoothed(1.0, 3.0, 0.25), 1.5);
        assert_eq!(Ratio::from_ppm(250_000).as_f64(), 0.25);
    }

    #[test]
    fn no_flow_is_taken_for_one_that_was_never_seen() {
        let (mut learned, config) = learned();
        for _ in 0..100 {
            learned.record((1 << 40, WEB), (1000, 400), 3_000, &config);
        }
        for (slot, tag) in [(1, u64::from(u32::MAX)), (2, 1 << 31), (3, 0)] {
            let estimate = learned.estimate(tag << 32 | slot, WEB, 1000, &config);
            assert_eq!(estimate.ratio.ppm(), 400_000, "{tag:x}");
        }
    }

    #[test]
    fn a_new_flow_of_a_class_that_was_poor_for_long_waits_no_longer_for_it() {
        let (mut learned, config) = learned();
        (0..8).for_each(|_| learned.record((1 << 33, WEB), (1400, 1400), 5_000, &config));
        assert_eq!((0..100).take_while(|_| !learned.may_try(9 << 33, WEB, &config)).count(), 5);
    }

    #[test]
    fn another_first_guess_holds_for_classes_that_come_later() {
        let (mut learned, config) = learned();
        let first_ratio = Ratio::from_ppm(500_000);
        learned.set_config(LearnedConfig { first_ratio, ..LearnedConfig::default() });
        assert_eq!(learned.estimate(1 << 40, WEB, 1000, &config).ratio, first_ratio);
    }
}
