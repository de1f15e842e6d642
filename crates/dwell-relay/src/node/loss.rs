//! The share of a peer's datagrams that is lost on the path: recently, and in total.
//!
//! The numbers of datagrams say how many were sent. Every half second what had been sent and had come by
//! then is noted; what was lost of late is the difference of two notes. A datagram that comes late is
//! entered in the notes that it belongs to, so that a link which only reorders loses nothing.

use std::collections::VecDeque;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::RecentLoss;

/// Recent loss is that of this long.
pub(super) const WINDOW_NS: u64 = 5 * SECOND_NS;
/// The counts are noted this often.
const NOTE_NS: u64 = 500 * MILLI_NS;
/// A datagram may be late by this much before it counts as recently lost...
pub(super) const LATE_NS: u64 = 500 * MILLI_NS;
/// ... and by this much, being asked for and retransmitted, before it is lost for good.
const LOST_NS: u64 = 4 * SECOND_NS;
/// A gap of this many numbers is no loss: no link loses a million datagrams in a row and lives. Its
/// sender jumped over them.
pub(super) const JUMP_MIN: u64 = 1 << 20;

/// The numbers of datagrams sent and received until some time.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    /// Since when it was so: when the datagram with the highest number came.
    at: Instant,
    /// The highest number until then, ...
    highest: u64,
    /// ... without those that were jumped over.
    sent: u64,
    /// The number of them received until now.
    came: u64,
    /// The number of others that arrived as retransmissions.
    recovered: u64,
}

impl Note {
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.came + self.recovered)
    }
}

/// The losses of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loss {
    last: Note,
    /// The oldest first.
    notes: VecDeque<Note>,
    noted_at: Instant,
    /// The number known to be lost for good; it never falls.
    lost: u64,
    /// The number of jumps in the sequence.
    jumps: u64,
}

impl Loss {
    /// A session begins now.
    pub(super) fn begin(&mut self, now: Instant) {
        let first = Note { at: now, ..Note::default() };
        let notes = VecDeque::from([first]);
        *self = Self { last: first, notes, noted_at: now, lost: 0, jumps: 0 };
    }

    /// The datagram with this number came.
    #[inline]
    pub(super) fn came(&mut self, now: Instant, number: u64) {
        self.take_note(now);
        let last = &mut self.last;
        if number > last.highest {
            let gap = number - last.highest - 1;
            let jumped = if gap < JUMP_MIN { 0 } else { gap };
            self.jumps += u64::from(jumped > 0);
            last.sent += number - last.highest - jumped;
            (last.highest, last.at) = (number, now);
        } else {
            let later = self.notes.iter_mut().rev().take_while(|note| note.highest >= number);
            later.for_each(|note| note.came += 1);
        }
        last.came += 1;
    }

    /// The datagram with this number, which was missing, came in another one.
    pub(super) fn on_retransmission(&mut self, number: u64) {
        let later = self.notes.iter_mut().rev().take_while(|note| note.highest >= number);
        later.for_each(|note| note.recovered += 1);
        self.last.recovered += 1;
    }

    /// The highest number that came, and when.
    pub(super) fn highest(&self) -> (u64, Instant) {
        (self.last.highest, self.last.at)
    }

    fn take_note(&mut self, now: Instant) {
        if now < self.noted_at + NOTE_NS {
            return;
        }
        self.noted_at = now;
        self.lost = self.lost(now);
        self.notes.push_back(self.last);
        // The oldest that is needed is the youngest of those that are old enough.
        let is_old = |note: &Note| note.at + (WINDOW_NS + LATE_NS) <= now;
        while self.notes.get(1).is_some_and(is_old) {
            self.notes.pop_front();
        }
    }

    /// Returns the counts at a time, some seconds ago at most.
    fn note_at(&self, at: Instant) -> Note {
        if self.last.at <= at {
            return self.last;
        }
        let before = self.notes.iter().rev().find(|note| note.at <= at);
        before.or(self.notes.front()).copied().unwrap_or_default()
    }

    /// Returns the recent loss; none if nothing was sent.
    pub(super) fn recent(&self, now: Instant) -> Option<RecentLoss> {
        let until = self.note_at(earlier(now, LATE_NS));
        let from = self.note_at(earlier(now, LATE_NS + WINDOW_NS));
        let sent = until.sent.saturating_sub(from.sent);
        let came = until.came.saturating_sub(from.came);
        RecentLoss::of(sent, sent.saturating_sub(came))
    }

    /// Datagrams that did not come, and are not going to.
    pub(super) fn lost(&self, now: Instant) -> u64 {
        self.lost.max(self.note_at(earlier(now, LOST_NS)).lost())
    }

    /// Those that have not come, and yet may.
    pub(super) fn missing(&self, now: Instant) -> u64 {
        self.last.lost().saturating_sub(self.lost(now))
    }

    /// All that have not come.
    pub(super) fn unfound(&self) -> u64 {
        self.lost.max(self.last.lost())
    }

    /// Returns how often the numbers jumped ahead by more than a link can lose.
    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }
}

fn earlier(now: Instant, ns: u64) -> Instant {
    Instant::from_ns(now.as_ns().saturating_sub(ns))
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    fn begun() -> Loss {
        let mut loss = Loss::default();
        loss.begin(at_ms(0));
        loss
    }

    fn recent(loss: &Loss, ms: u64) -> (u64, u64) {
        loss.recent(at_ms(ms)).map_or((0, 0), |recent| (recent.datagrams, recent.lost))
    }

    #[test]
    fn loss_shows_within_seconds_and_goes_with_it() {
        for spacing_ms in [5, 50, 400] {
            let (mut loss, mut rng) = (begun(), Rng::from_seed(spacing_ms));
            let mut number = 0;
            let mut run = |loss: &mut Loss, from_ms: u64, to_ms: u64, chance: f64| {
                for ms in (from_ms..to_ms).step_by(spacing_ms as usize) {
                    number += 1;
                    if !rng.chance(chance) {
                        loss.came(at_ms(ms), number);
                    }
                }
            };
            run(&mut loss, 0, 20_000, 0.0);
            assert_eq!(recent(&loss, 20_000).1, 0);
            run(&mut loss, 20_000, 27_000, 0.39);
            let (sent, lost) = recent(&loss, 27_000);
            assert!(sent >= 4_000 / spacing_ms && sent <= 6_500 / spacing_ms, "{sent}");
            let (share, spread) = (lost as f64 / sent as f64, 2.0 / (sent as f64).sqrt());
            assert!((share - 0.39).abs() < spread.max(0.05), "{lost} of {sent}");
            assert!(loss.lost(at_ms(27_000)) > 0, "in all as well");
            run(&mut loss, 27_000, 40_000, 0.0);
            assert_eq!(recent(&loss, 40_000).1, 0, "it is over");
            let of_all = loss.lost(at_ms(40_000)) + loss.missing(at_ms(40_000));
            assert_eq!(of_all, loss.last.lost());
            assert_eq!(loss.recent(at_ms(60_000)), None, "nothing was sent");
        }
    }

    #[test]
    fn what_is_only_late_is_not_lost() {
        let mut loss = begun();
        for number in 1..20_000 {
            // Each tenth comes 300 ms later than it should, behind 300 others.
            let late = number > 300 && (number - 300) % 10 == 0;
            if number % 10 != 0 {
                loss.came(at_ms(number), number);
            }
            if late {
                loss.came(at_ms(number), number - 300);
            }
            if number > 2_000 {
                assert_eq!(recent(&loss, number).1, 0, "at {number}");
                assert_eq!(loss.lost(at_ms(number)), 0);
            }
        }
    }

    #[test]
    fn what_comes_again_was_lost_on_the_way_and_is_not_lost_for_good() {
        let mut loss = begun();
        for number in 1..=10_000 {
            if number % 4 != 0 {
                loss.came(at_ms(number), number);
            } else if number > 100 {
                loss.on_retransmission(number - 100);
            }
        }
        let (sent, lost) = recent(&loss, 10_000);
        assert!((24..=25).contains(&(lost * 100 / sent)), "{lost} of {sent}");
        assert!(loss.lost(at_ms(10_000)) == 0, "{}", loss.lost(at_ms(10_000)));
        assert!(loss.missing(at_ms(10_000)) <= 25);
    }

    #[test]
    fn a_jump_of_the_numbers_is_no_loss() {
        let mut loss = begun();
        for (ms, number) in [(1, 1), (2, 2), (3, 1 << 31), (4, (1 << 31) + 2), (5, 3)] {
            loss.came(at_ms(ms), number);
        }
        assert_eq!((loss.jumps(), loss.lost(at_ms(9_000)), loss.missing(at_ms(9))), (1, 0, 0));
        loss.came(at_ms(9_001), (1 << 31) + JUMP_MIN);
        assert_eq!(loss.jumps(), 1, "so much may be lost");
        assert!(loss.missing(at_ms(9_001)) > JUMP_MIN - 9);
    }

    #[test]
    fn notes_are_few() {
        let mut loss = begun();
        for number in 1..100_000 {
            loss.came(at_ms(number * 3), number);
            assert!(loss.notes.len() <= 14, "{}", loss.notes.len());
        }
    }
}
