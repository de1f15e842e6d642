//! The longest datagram that the path to a peer takes, where nobody says so.
//!
//! The kernel knows the first interface's MTU, and what routers on the path complained about. A path
//! that drops what is too long without an ICMP message is found by padded probes, as RFC 8899
//! (DPLPMTUD) does: a short probe, and one that is as long as the longest datagram. If
//! short ones are answered and long ones are not, what is sent becomes shorter, until a search has
//! found what passes.
//!
//! Paths lose by chance, too. Under the assumption that long ones are lost as often as short ones,
//! that none of *n* long ones and *m* of *n* short ones are answered has the probability
//! C(n, m) / C(2n, m), whatever the loss. Only if that is small is length the reason.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

/// The length that every path is assumed to take: BASE_PLPMTU of RFC 8899, section 5.1.2.
const BASE: u16 = 1_200;
/// The shortest limit; what is tried if not even the base passes.
const FLOOR: u16 = 576;
/// A search ends when it is known this closely.
const PRECISION: u16 = 4;
/// While long datagrams are sent, it is verified this often that they may arrive.
const VERIFY_NS: u64 = 30 * SECOND_NS;
/// A narrow path is tried for what the kernel says this often.
const RAISE_NS: u64 = 60 * SECOND_NS;
/// Two probes are apart by this at least.
const ROUND_NS_MIN: u64 = 500 * MILLI_NS;
/// A path is called narrow, and within a search, if chance is at most this probable.
const CHANCE_OF_DOUBT: f64 = 1.0 / 2_000.0;
const CHANCE_OF_STEP: f64 = 1.0 / 60.0;
/// A trial that decides nothing in this many rounds is given up.
const ROUNDS_MAX: u32 = 48;

/// Names of probes that belong here have this bit. The lowest distinguishes long ones from short ones.
const MARK: u32 = 1 << 31;

/// Two probes that are to be sent: a short one, then a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// The length of the long one: UDP payload.
    pub(crate) long_bytes: u16,
    pub(crate) long_id: u32,
    pub(crate) short_id: u32,
}

/// The least duration of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) rtt_ns: u64,
    /// The time that the long probe takes on the link.
    pub(crate) transmission_ns: u64,
}

/// Probes of one length.
#[derive(Clone, Copy, Debug)]
struct Trial {
    bytes: u16,
    /// The number of its first round.
    first: u32,
    rounds: u32,
    /// Bit *i* is for the short probe of round *i*.
    answered: u64,
    next_at: Instant,
}

/// Why there is a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Does what is in use pass?
    Verify,
    /// Does the base pass? Then the search goes on above it.
    Base,
    /// The limit is between these: the first length passes, the second does not.
    Search(u16, u16),
    /// Does all pass again?
    Raise,
}

/// The state of the path.
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    /// The longest datagram that the kernel and the peer allow.
    ceiling: u16,
    /// The longest datagram that passes, if that is less.
    limit: Option<u16>,
    trial: Option<(Aim, Trial)>,
    round: u32,
    confirmed_at: Option<Instant>,
    raise_at: Instant,
    /// The latest long datagram.
    long_at: Option<Instant>,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self {
            ceiling: 0,
            limit: None,
            trial: None,
            round: 0,
            confirmed_at: None,
            raise_at: Instant::FAR_FUTURE,
            long_at: None,
        }
    }
}

impl PathMtu {
    /// Sets the longest datagram that the kernel and the peer allow. Nothing is known of another
    /// path.
    pub(crate) fn set_ceiling(&mut self, ceiling: u16) {
        if ceiling != self.ceiling {
            *self = Self { ceiling, round: self.round, ..Self::default() };
        }
    }

    /// The path may be another one.
    pub(crate) fn forget(&mut self) {
        *self = Self { ceiling: self.ceiling, round: self.round, ..Self::default() };
    }

    /// Returns the longest datagram that passes, if it is less than the kernel and the peer allow.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.limit
    }

    /// Returns the longest datagram that would be sent if all passed.
    pub(crate) fn ceiling(&self) -> u16 {
        self.ceiling
    }

    /// True while the limit is not the last word.
    pub(crate) fn is_searching(&self) -> bool {
        matches!(self.trial, Some((Aim::Base | Aim::Search(..), _)))
    }

    /// A datagram of this length was sent.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        if bytes > usize::from(BASE) {
            self.long_at = Some(now);
        }
    }

    /// When [`PathMtu::poll`] has something to do.
    pub(crate) fn deadline(&self) -> Instant {
        if self.ceiling <= FLOOR {
            return Instant::FAR_FUTURE;
        }
        match (&self.trial, self.confirmed_at, self.long_at) {
            (Some((_, trial)), ..) => trial.next_at,
            (None, None, _) => Instant::ZERO,
            (None, Some(at), Some(long_at)) if long_at > at => {
                (at + VERIFY_NS).max(long_at).min(self.raise_at)
            }
            _ => self.raise_at,
        }
    }

    /// The probes that are due. `pace` is asked for the length of the long one.
    pub(crate) fn poll(&mut self, now: Instant, pace: impl Fn(u16) -> Pace) -> Option<Round> {
        if now < self.deadline() {
            return None;
        }
        if self.trial.is_none() {
            let in_use = self.limit.unwrap_or(self.ceiling);
            let (aim, bytes) = match self.limit {
                Some(_) if now >= self.raise_at => (Aim::Raise, self.ceiling),
                _ => (Aim::Verify, in_use),
            };
            self.begin(now, aim, bytes);
        }
        self.give_up_if_hopeless(now);
        let (_, trial) = self.trial.as_mut()?;
        let Pace { rtt_ns, transmission_ns } = pace(trial.bytes);
        // The probes take a tenth of the link at most.
        let round_ns = ROUND_NS_MIN.max(4 * rtt_ns).max(10 * transmission_ns);
        (trial.rounds, trial.next_at) = (trial.rounds + 1, now + round_ns);
        let id = MARK | self.round << 1;
        self.round = (self.round + 1) & (MARK - 1) >> 1;
        Some(Round { long_bytes: trial.bytes, long_id: id | 1, short_id: id })
    }

    /// A probe of this name was answered. True if the limit is another one now.
    pub(crate) fn answered(&mut self, now: Instant, id: u32) -> bool {
        let Some((aim, trial)) = self.trial.as_mut() else { return false };
        let round = ((id & !MARK) >> 1).wrapping_sub(trial.first);
        if !Self::is_own(id) || round >= trial.rounds {
            return false;
        }
        if id & 1 == 0 {
            trial.answered |= 1 << round;
            return false;
        }
        let (aim, bytes) = (*aim, trial.bytes);
        self.passes(now, aim, bytes)
    }

    /// True if a probe of this name is one of these.
    pub(crate) fn is_own(id: u32) -> bool {
        id & MARK != 0
    }

    fn begin(&mut self, now: Instant, aim: Aim, bytes: u16) {
        let first = self.round;
        self.trial = Some((aim, Trial { bytes, first, rounds: 0, answered: 0, next_at: now }));
    }

    /// Datagrams of this length arrive. True if the limit is another one now.
    fn passes(&mut self, now: Instant, aim: Aim, bytes: u16) -> bool {
        let before = self.limit;
        self.trial = None;
        match aim {
            Aim::Verify => self.confirmed_at = Some(now),
            Aim::Raise => self.settle(now, None),
            Aim::Base => self.search(now, bytes, self.ceiling),
            Aim::Search(_, above) => self.search(now, bytes, above),
        }
        self.limit != before
    }

    /// It goes on between what passes and what does not.
    fn search(&mut self, now: Instant, passes: u16, above: u16) {
        if above.saturating_sub(passes) <= PRECISION {
            self.settle(now, Some(passes));
        } else {
            self.begin(now, Aim::Search(passes, above), passes.midpoint(above));
        }
    }

    fn settle(&mut self, now: Instant, limit: Option<u16>) {
        (self.trial, self.limit, self.confirmed_at) = (None, limit, Some(now));
        self.raise_at = limit.map_or(Instant::FAR_FUTURE, |_| now + RAISE_NS);
    }

    /// Ends a trial whose long probes are not lost by chance.
    fn give_up_if_hopeless(&mut self, now: Instant) {
        let Some((aim, trial)) = self.trial else { return };
        let limit = if aim == Aim::Verify { CHANCE_OF_DOUBT } else { CHANCE_OF_STEP };
        let is_lost = chance(trial.rounds, trial.answered.count_ones()) < limit;
        if !is_lost && trial.rounds < ROUNDS_MAX {
            return;
        }
        match aim {
            // Nothing is answered, or too little to decide.
            Aim::Verify if !is_lost => self.begin(now, aim, trial.bytes),
            Aim::Verify => {
                self.limit = Some(BASE.min(trial.bytes - 1).max(FLOOR));
                self.begin(now, Aim::Base, self.limit.unwrap_or(BASE));
            }
            Aim::Base => self.settle(now, Some(FLOOR)),
            Aim::Search(passes, _) => self.search(now, passes, trial.bytes),
            Aim::Raise => {
                self.raise_at = now + RAISE_NS;
                self.begin(now, Aim::Verify, self.limit.unwrap_or(self.ceiling));
            }
        }
    }
}

/// Returns the probability that, of `rounds` long and as many short probes that are lost alike,
/// exactly the short ones of `answered` rounds are answered.
fn chance(rounds: u32, answered: u32) -> f64 {
    let n = f64::from(rounds);
    (0..answered.min(rounds)).map(|i| (n - f64::from(i)) / (2.0 * n - f64::from(i))).product()
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    const CEILING: u16 = 1_472;

    /// A path that takes this much, and loses this part of both probes and answers.
    struct Path {
        takes: u16,
        loss: f64,
        rng: Rng,
    }

    impl Path {
        fn new(takes: u16, loss: f64, seed: u64) -> Self {
            Self { takes, loss, rng: Rng::from_seed(seed) }
        }

        fn arrives(&mut self, bytes: u16) -> bool {
            bytes <= self.takes && !self.rng.chance(self.loss) && !self.rng.chance(self.loss)
        }

        /// Sends long datagrams for this long; returns the bytes of probes.
        fn run(&mut self, mtu: &mut PathMtu, from_ms: u64, to_ms: u64) -> u64 {
            let mut bytes = 0;
            for ms in (from_ms..to_ms).step_by(10) {
                let now = Instant::from_ns((ms + 1_000) * MILLI_NS);
                mtu.sent(now, 1_300);
                let pace = |_| Pace { rtt_ns: 20 * MILLI_NS, transmission_ns: 0 };
                let Some(round) = mtu.poll(now, pace) else { continue };
                bytes += u64::from(round.long_bytes) + 60;
                let later = now + 20 * MILLI_NS;
                if self.arrives(round.long_bytes) {
                    mtu.answered(later, round.long_id);
                }
                if self.arrives(60) {
                    mtu.answered(later, round.short_id);
                }
            }
            bytes
        }
    }

    fn mtu() -> PathMtu {
        let mut mtu = PathMtu::default();
        mtu.set_ceiling(CEILING);
        mtu
    }

    #[test]
    fn a_path_that_takes_all_is_verified_with_few_bytes() {
        let mut mtu = mtu();
        let bytes = Path::new(CEILING, 0.0, 1).run(&mut mtu, 0, 600_000);
        assert_eq!(mtu.limit(), None);
        assert!(bytes <= 22 * 1_600, "{bytes} in ten minutes");
        let mut idle = PathMtu { confirmed_at: Some(Instant::ZERO), ..PathMtu::default() };
        idle.ceiling = CEILING;
        assert_eq!(idle.deadline(), Instant::FAR_FUTURE, "nothing long is sent");
    }

    #[test]
    fn what_passes_is_found_within_seconds() {
        for takes in [1_450, 1_412, 1_300, 1_204, 1_200] {
            let mut mtu = mtu();
            let mut path = Path::new(takes, 0.0, 2);
            path.run(&mut mtu, 0, 4_000);
            assert_eq!(mtu.limit(), Some(BASE), "at first what is sure");
            path.run(&mut mtu, 4_000, 30_000);
            let limit = mtu.limit().expect("a limit");
            assert!(limit <= takes && limit + PRECISION >= takes, "{limit} of {takes}");
            assert!(!mtu.is_searching());
        }
        let mut mtu = mtu();
        Path::new(1_000, 0.0, 2).run(&mut mtu, 0, 30_000);
        assert_eq!(mtu.limit(), Some(FLOOR), "not even the base passes");
    }

    #[test]
    fn a_path_that_changes_is_followed() {
        let mut mtu = mtu();
        Path::new(CEILING, 0.0, 3).run(&mut mtu, 0, 10_000);
        assert_eq!(mtu.limit(), None);
        let mut narrow = Path::new(1_400, 0.0, 3);
        narrow.run(&mut mtu, 10_000, 80_000);
        assert!(mtu.limit().is_some_and(|limit| (1_396..=1_400).contains(&limit)), "{mtu:?}");
        Path::new(1_300, 0.0, 3).run(&mut mtu, 80_000, 240_000);
        assert!(mtu.limit().is_some_and(|limit| limit <= 1_300), "{mtu:?}");
        Path::new(CEILING, 0.0, 3).run(&mut mtu, 240_000, 320_000);
        assert_eq!(mtu.limit(), None, "it is wide again");
    }

    #[test]
    fn losses_alone_are_not_taken_for_a_narrow_path() {
        let mut mistaken = 0;
        for seed in 0..200 {
            let mut mtu = mtu();
            let mut path = Path::new(CEILING, [0.0, 0.02, 0.1, 0.3][seed as usize % 4], seed);
            for minute in 0..10 {
                path.run(&mut mtu, minute * 60_000, (minute + 1) * 60_000);
                mistaken += u32::from(mtu.limit().is_some());
            }
        }
        assert!(mistaken <= 10, "{mistaken} of 2,000 minutes");
        // And nothing at all is not a narrow path either.
        let mut mtu = mtu();
        Path::new(0, 0.0, 1).run(&mut mtu, 0, 120_000);
        assert_eq!(mtu.limit(), None);
    }

    #[test]
    fn a_narrow_path_that_loses_is_found_too() {
        for (loss, seed) in [(0.02, 1), (0.1, 2), (0.3, 3)] {
            let mut mtu = mtu();
            Path::new(1_400, loss, seed).run(&mut mtu, 0, 60_000);
            assert!(mtu.limit().is_some_and(|limit| limit <= 1_400), "{loss}: {mtu:?}");
        }
    }

    #[test]
    fn answers_to_others_and_of_long_ago_change_nothing() {
        let mut mtu = mtu();
        let now = Instant::from_ns(SECOND_NS);
        let round = mtu.poll(now, |_| Pace::default()).expect("it is not known yet");
        assert!(!mtu.answered(now, 3) && !mtu.answered(now, MARK | 77 << 1 | 1));
        assert_eq!(mtu.confirmed_at, None);
        mtu.answered(now, round.long_id);
        assert_eq!(mtu.confirmed_at, Some(now));
        assert!(!mtu.answered(now, round.long_id), "it is answered");
    }
}
