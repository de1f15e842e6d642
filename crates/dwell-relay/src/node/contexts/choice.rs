//! The choice between batches that refer to all before them and batches that stand alone.
//!
//! A missing datagram holds up what refers to it until it was sent again: for a round trip and a little.
//! With so many datagrams a second of which such a share is lost, the losses that are waited for at a time
//! are `rate * loss * wait` on average. While that is far below one, hardly anything waits, and running
//! generations are the smaller ones. From one on, there is always a gap.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::RecentLoss;

/// How batches refer to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each to all before it.
    #[default]
    Running,
    /// Each to what the peer has confirmed.
    Acknowledged,
}

impl Mode {
    /// Returns the name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Acknowledged => "acknowledged",
        }
    }
}

/// Gaps at a time, in thousandths, from which on batches stand alone, ...
const GAPS_TO_ACKNOWLEDGED: u64 = 400;
/// ... and below which they refer to those before again.
const GAPS_TO_RUNNING: u64 = 100;
/// The path is looked at this often, ...
const REVIEW_NS: u64 = 500 * MILLI_NS;
/// ... must be so for so many looks, ...
const LOOKS: u32 = 3;
/// ... unless so many gaps at a time leave no doubt, since batches that refer to those before then wait for
/// most of the time, ...
const GAPS_NO_DOUBT: u64 = 4 * GAPS_TO_ACKNOWLEDGED;
/// ... and nothing is changed sooner than so after the last change: twice as long each time, if it goes
/// back and forth.
const STAY_NS_MIN: u64 = 5 * SECOND_NS;
const STAY_NS_MAX: u64 = 80 * SECOND_NS;
/// Fewer datagrams say nothing about the loss.
const DATAGRAMS_MIN: u64 = 100;
/// A missing datagram is asked for, and comes, after a round trip and a quarter, and this.
const MARGIN_NS: u64 = 10 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 100 * MILLI_NS;

/// Chooses the mode for one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    mode: Mode,
    changed_at: Instant,
    stay_ns: u64,
    looked_at: Instant,
    /// Looks in a row after which another mode would be better.
    looks: u32,
}

impl Default for Choice {
    fn default() -> Self {
        let (changed_at, looked_at) = (Instant::ZERO, Instant::ZERO);
        Self { mode: Mode::default(), changed_at, stay_ns: STAY_NS_MIN, looked_at, looks: 0 }
    }
}

impl Choice {
    /// Returns the mode for a path that has lost so much of late, with this round trip.
    pub(crate) fn review(
        &mut self,
        now: Instant,
        recent: Option<RecentLoss>,
        (rtt_ns, window_ns): (Option<u64>, u64),
    ) -> Mode {
        if now < self.looked_at + REVIEW_NS {
            return self.mode;
        }
        self.looked_at = now;
        let Some(recent) = recent.filter(|recent| recent.datagrams >= DATAGRAMS_MIN) else {
            return self.mode;
        };
        let gaps = gaps_at_a_time(recent.lost, rtt_ns, window_ns);
        let other = match self.mode {
            Mode::Running if gaps >= GAPS_TO_ACKNOWLEDGED => Mode::Acknowledged,
            Mode::Acknowledged if gaps <= GAPS_TO_RUNNING => Mode::Running,
            _ => {
                self.looks = 0;
                return self.mode;
            }
        };
        self.looks = self.looks.saturating_add(if gaps >= GAPS_NO_DOUBT { LOOKS } else { 1 });
        let is_first = self.changed_at == Instant::ZERO;
        if self.looks < LOOKS || (!is_first && now < self.changed_at + self.stay_ns) {
            return self.mode;
        }
        let was_short = !is_first && now < self.changed_at + 2 * self.stay_ns;
        self.stay_ns = if was_short { (2 * self.stay_ns).min(STAY_NS_MAX) } else { STAY_NS_MIN };
        (self.mode, self.changed_at, self.looks) = (other, now, 0);
        self.mode
    }
}

/// The number of losses that are waited for at a time, in thousandths.
fn gaps_at_a_time(lost: u64, rtt_ns: Option<u64>, window_ns: u64) -> u64 {
    let rtt_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT);
    let wait_ns = u128::from(rtt_ns + rtt_ns / 4 + MARGIN_NS);
    let lost_ns = u128::from(lost).saturating_mul(1_000 * wait_ns);
    let gaps = lost_ns / u128::from(window_ns.max(1));
    u64::try_from(gaps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 40 * MILLI_NS;
    const WINDOW_NS: u64 = 5 * SECOND_NS;

    /// The modes after each half second in which so many of 5,000 datagrams were lost.
    fn modes(choice: &mut Choice, from_ms: u64, lost: &[u64]) -> Vec<Mode> {
        let of = |(at, &lost): (usize, &u64)| {
            let now = Instant::from_ns((from_ms + 500 * (1 + at as u64)) * MILLI_NS);
            choice.review(now, RecentLoss::of(5_000, lost), (Some(RTT_NS), WINDOW_NS))
        };
        lost.iter().enumerate().map(of).collect()
    }

    #[test]
    fn what_is_lost_at_a_time_counts() {
        // A thousand datagrams a second, 60 ms each: 0.6 at 1 %.
        assert_eq!(gaps_at_a_time(50, Some(RTT_NS), WINDOW_NS), 600);
        assert_eq!(gaps_at_a_time(50, Some(400 * MILLI_NS), WINDOW_NS), 5_100);
        assert_eq!(gaps_at_a_time(u64::MAX, Some(u64::MAX / 4), 0), u64::MAX);
    }

    #[test]
    fn a_loss_that_lasts_changes_the_mode_and_a_moment_does_not() {
        let mut choice = Choice::default();
        // 1.2 gaps at a time.
        let modes = modes(&mut choice, 0, &[0, 100, 0, 100, 100, 0, 20, 100, 100, 100, 100]);
        assert_eq!(modes.iter().filter(|&&mode| mode == Mode::Acknowledged).count(), 2);
        assert_eq!(modes.last(), Some(&Mode::Acknowledged));
    }

    #[test]
    fn a_loss_that_leaves_no_doubt_changes_the_mode_at_once() {
        let mut choice = Choice::default();
        // Six gaps at a time: a tenth of what is sent.
        assert_eq!(modes(&mut choice, 0, &[0, 500]), [Mode::Running, Mode::Acknowledged]);
        assert_eq!(modes(&mut choice, 1_000, &[0; 4]), [Mode::Acknowledged; 4]);
    }

    #[test]
    fn between_the_thresholds_it_stays_and_below_it_goes_back_in_time() {
        let mut choice = Choice::default();
        modes(&mut choice, 0, &[100; 4]);
        assert_eq!(modes(&mut choice, 2_000, &[20; 40]), [Mode::Acknowledged; 40]);
        let back = modes(&mut choice, 30_000, &[0; 4]);
        assert_eq!(back.last(), Some(&Mode::Running));
        // Nothing is changed for some seconds, and for more if it goes back and forth.
        let again = modes(&mut choice, 32_000, &[100; 12]);
        assert!((7..11).contains(&again.iter().filter(|&&mode| mode == Mode::Running).count()));
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let mut choice = Choice::default();
        for second in 1..100 {
            let now = Instant::from_ns(second * SECOND_NS);
            let few = RecentLoss::of(50, 50);
            assert_eq!(choice.review(now, None, (None, WINDOW_NS)), Mode::Running);
            assert_eq!(choice.review(now + REVIEW_NS, few, (None, WINDOW_NS)), Mode::Running);
        }
    }
}
