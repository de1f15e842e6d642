//! The choice between batches that refer to all before them, batches that stand alone, and blocks without contexts.
//!
//! A missing datagram holds up what refers to it until it was sent again: for a round trip and a little.
//! With so many datagrams a second that are lost, the number that is waited for at a time is `lost * wait` on
//! average. While that is below one, hardly anything waits. From one on, there is always a gap; but transfers,
//! which are what waits, have more of smaller batches than of a shorter wait, and what sends little is not in
//! batches at all. At 10 Mbit/s and 40 ms, text had 18 % more of running batches at 3 % loss (two gaps), and a
//! fifth more at 10 % (six). Beyond that the wait is a multiple of the round trip, since what is sent again
//! is lost again. With 600 ms, 3 % loss (ten gaps) left running batches 27 % less than others.
//!
//! Where senders mend losses sooner than the relay could ([`repair`](crate::node::repair)), what is sent again does harm,
//! and without that a context has holes: two gaps are enough there for blocks that refer to nothing and are not sent again,
//! and it begins with them, until enough has come.
//!
//! If all were lost together that is one gap. So it counts, too, when the peer asked for something. What it
//! asks for and is only late does not count: that is soon there.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::RecentLoss;

use crate::node::loss::WINDOW_NS;

/// How batches refer to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each to all before it.
    #[default]
    Running,
    /// Each to what the peer has confirmed.
    Acknowledged,
    /// To nothing: blocks without contexts, which are not sent again where senders do that.
    Stateless,
}

impl Mode {
    /// Returns the name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Acknowledged => "acknowledged",
            Self::Stateless => "stateless",
        }
    }
}

/// The path to a peer, and those that send over it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    /// What it has lost of late, if that is known.
    pub(crate) recent: Option<RecentLoss>,
    /// Datagrams that have come since.
    pub(crate) clean: u64,
    pub(crate) rtt_ns: Option<u64>,
    /// Most senders mend losses themselves, and sooner than the relay could.
    pub(crate) is_mended: bool,
}

/// Gaps at a time, in thousandths, from which on batches stand alone, and below which they refer to those
/// before again.
const GAPS_TO_ACKNOWLEDGED: u64 = 8_000;
const GAPS_TO_RUNNING: u64 = 3_000;
/// The same where a round trip takes long: senders slow down when another is waited for.
const GAPS_TO_ACKNOWLEDGED_FAR: u64 = 3_000;
const GAPS_TO_RUNNING_FAR: u64 = 1_000;
const FAR_NS: u64 = 200 * MILLI_NS;
/// The same where losses are mended by senders: few gaps are enough, ...
const GAPS_TO_STATELESS: u64 = 2_000;
const GAPS_FROM_STATELESS: u64 = 500;
const GAPS_NO_DOUBT_MENDED: u64 = 3_000;
/// ... or few of few datagrams: who waits for gaps most of the time sends so little that there are hardly any gaps.
const LOST_MIN: u64 = 3;
const LOST_PPM_MIN: u64 = 20_000;
const LOST_PPM_MAX: u64 = 10_000;
/// Of fewer datagrams it is not known how many are lost.
const KNOWN_DATAGRAMS_MIN: u64 = 200;
/// Where there are so many in each of the latest parts of time, batches that refer to those before wait for
/// most of it: then these parts are enough.
const GAPS_NO_DOUBT: u64 = 2 * GAPS_TO_ACKNOWLEDGED;
const PARTS_NO_DOUBT: usize = 3;
/// A part of time, ...
const PART_NS: u64 = 500 * MILLI_NS;
/// ... so many of which are as long as losses are reported of, ...
const PARTS: usize = (WINDOW_NS / PART_NS) as usize;
/// ... and with gaps in so many of them it was no outage.
const PARTS_WITH_GAPS_MIN: usize = PARTS / 2;
/// Nothing is changed sooner than so after the last change: twice as long each time, if it goes back and
/// forth.
const STAY_NS_MIN: u64 = 5 * SECOND_NS;
const STAY_NS_MAX: u64 = 80 * SECOND_NS;
/// Batches that stand alone do so in vain if for so many parts, ...
const VAIN_PARTS: u32 = 8;
/// ... in which they had so many bytes, what they refer to did not move on. (That of 16 contexts would after as
/// many.)
const BYTES_MIN: u64 = 512 << 10;
/// A missing datagram is asked for, and comes, after a round trip and a quarter, and this.
const MARGIN_NS: u64 = 10 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 100 * MILLI_NS;

/// Chooses the mode for one peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    mode: Mode,
    changed_at: Option<Instant>,
    stay_ns: u64,
    /// Datagrams that the peer asked for in the part that began at this time, ...
    asked: u64,
    began_at: Instant,
    /// ... and in those before, the latest last.
    parts: VecDeque<u64>,
    /// The bytes and moves when they were last looked at; parts since it moved on.
    alone: (u64, u64),
    vain_parts: u32,
    /// It has begun on a path where senders mend losses.
    has_begun: bool,
}

impl Default for Choice {
    fn default() -> Self {
        let (mode, stay_ns, began_at) = (Mode::default(), STAY_NS_MIN, Instant::ZERO);
        let parts = VecDeque::from([0; PARTS]);
        let (alone, vain_parts) = ((0, 0), 0);
        let (changed_at, asked, has_begun) = (None, 0, false);
        Self { mode, changed_at, stay_ns, asked, began_at, parts, alone, vain_parts, has_begun }
    }
}

impl Choice {
    /// The peer asks for a datagram.
    pub(crate) fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// The path to the peer may be another one.
    pub(crate) fn moved(&mut self) {
        self.has_begun = false;
    }

    /// Returns the mode for this path. `alone` are the bytes of batches until now, and how often what those that stand
    /// alone refer to has moved on.
    pub(crate) fn review(&mut self, now: Instant, path: Path, alone: (u64, u64)) -> Mode {
        let since_ns = now.since_ns(self.began_at);
        if since_ns < PART_NS {
            return self.mode;
        }
        self.count(alone);
        self.parts.pop_front();
        self.parts.push_back(std::mem::take(&mut self.asked));
        // Nobody looked for so long because nothing came.
        for _ in 1..(since_ns / PART_NS).min(PARTS as u64) {
            self.parts.pop_front();
            self.parts.push_back(0);
        }
        self.began_at = now;
        // The first doublings of a sender are worth more than what a history would gain, and gaps end them.
        if path.is_mended && !std::mem::replace(&mut self.has_begun, true) && !is_known(path.recent)
        {
            (self.mode, self.changed_at) = (Mode::Stateless, Some(now));
            return self.mode;
        }
        let with_gaps = if path.is_mended { Mode::Stateless } else { Mode::Acknowledged };
        let better = match self.mode {
            Mode::Running if self.has_gaps(path) => with_gaps,
            Mode::Running => Mode::Running,
            Mode::Acknowledged if self.is_vain() && !path.is_mended => Mode::Running,
            _ if self.has_none(path) => Mode::Running,
            _ => with_gaps,
        };
        if better != self.mode {
            self.change(now, better);
        }
        self.mode
    }

    /// Counts the parts in which batches had nothing new to refer to.
    fn count(&mut self, alone: (u64, u64)) {
        let (bytes, advanced) = (alone.0 - self.alone.0, alone.1 - self.alone.1);
        self.alone = alone;
        let is_telling = self.mode == Mode::Acknowledged && bytes >= BYTES_MIN;
        self.vain_parts = match (is_telling, advanced) {
            (_, 1..) => 0,
            (true, 0) => self.vain_parts + 1,
            (false, 0) => self.vain_parts,
        };
    }

    /// More is sent in a round trip than the ring holds: the peer never confirms anything that is still in it.
    fn is_vain(&self) -> bool {
        self.vain_parts >= VAIN_PARTS
    }

    fn has_gaps(&self, Path { recent, rtt_ns, is_mended, .. }: Path) -> bool {
        let no_doubt = if is_mended { GAPS_NO_DOUBT_MENDED } else { GAPS_NO_DOUBT };
        let mut latest = self.parts.range(PARTS - PARTS_NO_DOUBT..);
        let is_no_doubt = latest.all(|&asked| gaps(asked, rtt_ns, PART_NS) >= no_doubt);
        let with_gaps = self.parts.iter().filter(|&&asked| asked > 0).count();
        let gaps = recent.map_or(0, |recent| gaps(recent.lost, rtt_ns, WINDOW_NS));
        let least = match is_mended {
            true => GAPS_TO_STATELESS,
            false if is_far(rtt_ns) => GAPS_TO_ACKNOWLEDGED_FAR,
            false => GAPS_TO_ACKNOWLEDGED,
        };
        let is_much = |it: RecentLoss| it.ppm >= LOST_PPM_MIN && it.lost >= LOST_MIN;
        gaps >= least && (is_no_doubt || with_gaps >= PARTS_WITH_GAPS_MIN)
            || is_mended && recent.is_some_and(is_much) && with_gaps >= PARTS_NO_DOUBT
    }

    fn has_none(&self, Path { recent, clean, rtt_ns, is_mended }: Path) -> bool {
        let lost = recent.map_or_else(|| self.parts.iter().sum(), |recent| recent.lost);
        let most = match is_mended {
            true => GAPS_FROM_STATELESS,
            false if is_far(rtt_ns) => GAPS_TO_RUNNING_FAR,
            false => GAPS_TO_RUNNING,
        };
        // That few came, all of them, says nothing, and less do those who send nothing.
        let is_clean = lost == 0 && clean >= KNOWN_DATAGRAMS_MIN;
        let is_little =
            is_clean || is_known(recent) && recent.is_some_and(|it| it.ppm <= LOST_PPM_MAX);
        gaps(lost, rtt_ns, WINDOW_NS) <= most && (is_little || !is_mended)
    }

    /// Changes the mode, unless it was changed a moment ago.
    fn change(&mut self, now: Instant, mode: Mode) {
        let stayed_ns = self.changed_at.map_or(u64::MAX, |at| now.since_ns(at));
        if stayed_ns < self.stay_ns && !self.is_vain() {
            return;
        }
        let was_short = stayed_ns < 2 * self.stay_ns;
        self.stay_ns = match was_short {
            _ if self.is_vain() => STAY_NS_MAX,
            true => (2 * self.stay_ns).min(STAY_NS_MAX),
            false => STAY_NS_MIN,
        };
        (self.mode, self.changed_at, self.vain_parts) = (mode, Some(now), 0);
    }
}

fn is_known(recent: Option<RecentLoss>) -> bool {
    recent.is_some_and(|it| it.datagrams >= KNOWN_DATAGRAMS_MIN)
}

fn is_far(rtt_ns: Option<u64>) -> bool {
    rtt_ns.is_some_and(|rtt_ns| rtt_ns >= FAR_NS)
}

/// The number of gaps that are waited for at a time, in thousandths, with so many datagrams lost in a time.
fn gaps(lost: u64, rtt_ns: Option<u64>, time_ns: u64) -> u64 {
    let rtt_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT);
    let wait_ns = u128::from(rtt_ns.saturating_add(rtt_ns / 4).saturating_add(MARGIN_NS));
    let lost_ns = u128::from(lost).saturating_mul(1_000 * wait_ns);
    let gaps = lost_ns / u128::from(time_ns);
    u64::try_from(gaps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 40 * MILLI_NS;

    /// A link that loses what the peer asks for.
    struct Link {
        choice: Choice,
        lost: Vec<u64>,
        /// As much is only late.
        is_late: bool,
        /// What batches refer to moves on.
        advances: bool,
        alone: (u64, u64),
    }

    impl Link {
        fn new() -> Self {
            let choice = Choice::default();
            Self { choice, lost: Vec::new(), is_late: false, advances: true, alone: (0, 0) }
        }

        /// The modes after each half second in which the peer asked for so many times twenty datagrams.
        fn modes(&mut self, scores: &[u64]) -> Vec<Mode> {
            let of = |&scores: &u64| {
                let asked = 20 * scores;
                (0..asked).for_each(|_| self.choice.asked());
                self.lost.push(if self.is_late { 0 } else { asked });
                let now = Instant::from_ns(self.lost.len() as u64 * PART_NS);
                let lost = self.lost.iter().rev().take(PARTS).sum();
                let recent = RecentLoss::of(100_000, lost);
                let is_alone = self.choice.mode == Mode::Acknowledged;
                self.alone.0 += 1 << 20;
                self.alone.1 += u64::from(is_alone && self.advances);
                let path = Path { recent, rtt_ns: Some(RTT_NS), ..Path::default() };
                self.choice.review(now, path, self.alone)
            };
            scores.iter().map(of).collect()
        }
    }

    fn acknowledged(modes: &[Mode]) -> usize {
        modes.iter().filter(|&&mode| mode == Mode::Acknowledged).count()
    }

    #[test]
    fn what_is_waited_for_at_a_time_counts() {
        // Ten of a thousand datagrams a second, 60 ms each.
        assert_eq!(gaps(5, Some(RTT_NS), PART_NS), 600);
        assert_eq!(gaps(50, Some(RTT_NS), WINDOW_NS), 600);
        assert_eq!(gaps(5, Some(400 * MILLI_NS), PART_NS), 5_100);
        assert_eq!(gaps(u64::MAX, Some(u64::MAX), 1), u64::MAX);
    }

    #[test]
    fn a_loss_that_lasts_changes_the_mode() {
        let modes = Link::new().modes(&[0, 8, 3, 5, 4, 7, 2, 6, 5]);
        assert_eq!((acknowledged(&modes), modes.last()), (2, Some(&Mode::Acknowledged)));
    }

    #[test]
    fn an_outage_does_not_however_much_was_lost() {
        let mut link = Link::new();
        let outage = [0, 0, 200, 3_000, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(acknowledged(&link.modes(&outage)), 0);
    }

    #[test]
    fn what_is_only_late_does_not() {
        let mut link = Link { is_late: true, ..Link::new() };
        assert_eq!(acknowledged(&link.modes(&[50; 20])), 0);
    }

    #[test]
    fn a_loss_that_leaves_no_doubt_changes_it_sooner() {
        let modes = Link::new().modes(&[0, 50, 50, 50]);
        assert_eq!((acknowledged(&modes), modes.last()), (1, Some(&Mode::Acknowledged)));
    }

    #[test]
    fn between_the_thresholds_it_stays_and_below_it_goes_back_in_time() {
        let mut link = Link::new();
        link.modes(&[50; 4]);
        assert_eq!(link.modes(&[2; 40]), [Mode::Acknowledged; 40]);
        // With little traffic, too, of which little is lost.
        let back = link.modes(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(back.last(), Some(&Mode::Running));
        // Nothing is changed for some seconds, and for more if it goes back and forth.
        let again = link.modes(&[50; 12]);
        assert!((4..12).contains(&(12 - acknowledged(&again))), "{again:?}");
        let back = link.modes(&[0; 24]);
        assert!(acknowledged(&back) > 10, "{back:?}");
    }

    #[test]
    fn where_a_round_trip_takes_long_fewer_gaps_are_enough() {
        // Four gaps at a time.
        let near = modes(100, (10_000, 150), false);
        let far = modes(300, (10_000, 52), false);
        assert_eq!(acknowledged(&near), 0);
        assert_eq!(far.last(), Some(&Mode::Acknowledged));
    }

    /// The modes after half seconds with this round trip, and so many datagrams lost of those in each five seconds.
    fn modes(rtt_ms: u64, (datagrams, lost): (u64, u64), is_mended: bool) -> Vec<Mode> {
        let (mut choice, mut asked) = (Choice::default(), 0);
        let rtt_ns = Some(rtt_ms * MILLI_NS);
        let mut look = |part: u64| {
            while asked < part * lost / PARTS as u64 {
                choice.asked();
                asked += 1;
            }
            let recent = RecentLoss::of(datagrams, lost);
            let clean = if lost == 0 { part * datagrams / PARTS as u64 } else { 0 };
            let path = Path { recent, clean, rtt_ns, is_mended };
            choice.review(Instant::from_ns(part * PART_NS), path, (0, 0))
        };
        (1..30).map(&mut look).collect()
    }

    #[test]
    fn where_senders_mend_losses_sooner_batches_have_no_contexts() {
        let stateless = Some(&Mode::Stateless);
        // One of a hundred, over 600 ms, on a link of 10 Mbit/s; at once, as there are three in each part.
        assert_eq!(modes(600, (4_000, 40), true)[3..], [Mode::Stateless; 26]);
        assert_eq!(modes(600, (4_000, 0), true).last(), Some(&Mode::Running));
        assert_eq!(modes(600, (4_000, 4), true).last(), Some(&Mode::Running));
        // One of ten, where hardly anything is sent for that.
        assert_eq!(modes(600, (60, 6), true).last(), stateless);
        assert_eq!(modes(600, (60, 6), false).last(), Some(&Mode::Running));
        // A link of 256 kbit/s, on which nothing is lost: not before that is known.
        let thin = modes(600, (115, 0), true);
        assert_eq!(thin[..17], [Mode::Stateless; 17]);
        assert_eq!(thin[17..], [Mode::Running; 12]);
    }

    #[test]
    fn a_pause_or_a_peer_that_reports_nothing_does_not_end_history() {
        let mut choice = Choice::default();
        let (mut at, mut clean) = (0, 0);
        let mut look = |parts: u64, recent: Option<RecentLoss>| {
            clean += recent.map_or(0, |it| it.datagrams);
            let path = Path { recent, clean, rtt_ns: Some(600 * MILLI_NS), is_mended: true };
            let modes = (0..parts).map(|_| {
                at += PART_NS;
                choice.review(Instant::from_ns(at), path, (0, 0))
            });
            modes.collect::<Vec<_>>()
        };
        // Nor does it begin then: nothing is known.
        assert_eq!(look(30, None), [Mode::Stateless; 30]);
        assert_eq!(look(30, RecentLoss::of(199, 0)), [Mode::Stateless; 30]);
        assert_eq!(look(2, RecentLoss::of(1, 0)), [Mode::Running; 2]);
        assert_eq!(look(20, RecentLoss::of(10, 0)), [Mode::Running; 20]);
        assert_eq!(look(20, None), [Mode::Running; 20]);
        assert_eq!(look(20, RecentLoss::of(4_000, 2)), [Mode::Running; 20]);
    }

    #[test]
    fn another_path_or_other_traffic_has_its_own_mode() {
        let mut choice = Choice::default();
        let mut at = 0;
        let mut look = |parts: u64, lost: u64, is_mended: bool| {
            let recent = RecentLoss::of(4_000, lost);
            let path = Path { recent, rtt_ns: Some(600 * MILLI_NS), is_mended, ..Path::default() };
            for _ in 0..parts {
                (0..lost / PARTS as u64).for_each(|_| choice.asked());
                at += PART_NS;
                choice.review(Instant::from_ns(at), path, (0, 0));
            }
            choice.mode
        };
        assert_eq!(look(10, 100, true), Mode::Stateless);
        assert_eq!(look(40, 100, false), Mode::Acknowledged);
        assert_eq!(look(80, 100, true), Mode::Stateless);
        // Not half a gap at a time.
        assert_eq!(look(400, 4, true), Mode::Stateless);
        assert_eq!(look(400, 3, true), Mode::Running);
    }

    #[test]
    fn where_batches_have_nothing_new_to_refer_to_they_do_not_stand_alone() {
        let mut link = Link { advances: false, ..Link::new() };
        let modes = link.modes(&[50; 200]);
        // That is tried again, but not often.
        assert!((16..=24).contains(&acknowledged(&modes)), "{modes:?}");
        assert_eq!(modes[50..150], [Mode::Running; 100]);
    }

    #[test]
    fn a_pause_is_a_time_without_gaps() {
        let mut link = Link::new();
        assert_eq!(link.modes(&[50; 6]).last(), Some(&Mode::Acknowledged));
        let long_after = Instant::from_ns(100 * SECOND_NS);
        let mode = link.choice.review(long_after, Path::default(), link.alone);
        assert_eq!(mode, Mode::Running);
    }
}
