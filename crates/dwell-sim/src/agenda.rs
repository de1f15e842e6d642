//! The next event: one pending time for each actor of a fixed set.
//!
//! Links, compressors and sources each have at most one pending event, so there is no heap of
//! events but a tournament in pairs: the actors play first, then the winners, until one is left. An
//! actor whose time changes replays its matches, and no others.
//!
//! Ties are frequent: connections that share a link send in step with its transmissions, to the
//! nanosecond. Of equal times, the first actors of the agenda go in their order. The others go in
//! an order that a hash of seed, time and actor decides each time: with a fixed order the same
//! connection would win every tie and take far more than its share. In ns-2 the rounding of its
//! clock decides; with [`Ties::Ns2`] it does so here too, among all actors.

use crate::moment::Moment;
use crate::plan::Ties;

/// Later than anything: nothing is pending.
pub const NEVER_NS: u64 = u64::MAX;

/// The pending times of all actors.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The tournament: 1 is the winner of all, those who met in match `n` are `2n` and `2n + 1`, which is
    /// pair `n`, and the actors themselves are the last half. (Their number need not be a power of two:
    /// whoever is paired with whom, the earliest wins.)
    ///
    /// Each is one number, whose last `actor_bits` are the actor, and the others the time. Actors for whom
    /// nothing is pending have times of their own at the end of all time, so that they don't tie.
    pairs: Box<[[u64; 2]]>,
    actor_bits: u32,
    /// No time on the agenda reaches this one.
    end_ns: u64,
    /// The number of each actor, by which ties are decided.
    numbers: Box<[u32]>,
    /// Actors from this number on have no fixed order among each other.
    shuffled_from: u32,
    seed: u64,
    /// The time of each actor as ns-2 would compute it.
    moments: Box<[Moment]>,
    /// The number of times that anything was put on the agenda; by ns-2's order only.
    placings: u64,
    by_seconds: bool,
}

impl Agenda {
    /// An agenda for as many actors as there are `numbers`, which ascend, with nothing pending. Ties
    /// among those whose numbers are from `shuffled_from` on are decided by chance, which `seed` and
    /// the numbers determine; all others go before them, in their order.
    pub fn new(numbers: Vec<u32>, shuffled_from: u32, ties: Ties, seed: u64) -> Self {
        let places = numbers.len().max(2);
        let actor_bits = places.next_power_of_two().trailing_zeros();
        let end_ns = (NEVER_NS >> actor_bits) - places as u64;
        let pairs = vec![[NEVER_NS; 2]; places].into();
        let mut agenda = Self {
            pairs,
            actor_bits,
            end_ns,
            moments: vec![Moment::NEVER; numbers.len()].into(),
            placings: 0,
            numbers: numbers.into(),
            shuffled_from,
            seed,
            by_seconds: ties == Ties::Ns2,
        };
        (0..agenda.numbers.len() as u32).for_each(|actor| agenda.set(actor, Moment::NEVER));
        agenda
    }

    /// Returns the first time that is as good as never: 52 days with 4,096 actors, and half of that with
    /// twice as many.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns what decides a tie: the lesser goes first.
    fn order(&self, entry: u64) -> (u32, u32) {
        let (at_ns, actor) = self.parts(entry);
        let number = self.numbers[actor as usize];
        if number < self.shuffled_from {
            return (number, number);
        }
        // The actor goes in before both multiplications: after one alone, the orders of two actors
        // would always be the same distance apart, and some would win more often.
        let mixed = at_ns ^ self.seed ^ u64::from(number);
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 33) as u32 | 1 << 31, number)
    }

    #[inline(never)]
    fn winner_of_tie(&self, a: u64, b: u64) -> u64 {
        if self.by_seconds {
            let moment = |entry| self.moments[self.parts(entry).1 as usize];
            return if moment(b).precedes_in_ns2(moment(a)) { b } else { a };
        }
        if self.order(b) < self.order(a) { b } else { a }
    }

    #[inline]
    fn parts(&self, entry: u64) -> (u64, u32) {
        let at_ns = entry >> self.actor_bits;
        let actor = entry & ((1 << self.actor_bits) - 1);
        (if at_ns < self.end_ns { at_ns } else { NEVER_NS }, actor as u32)
    }

    /// The earliest actor and its time; [`NEVER_NS`] if nothing is pending.
    #[inline]
    pub fn next(&self) -> (u64, u32) {
        self.parts(self.pairs[0][1])
    }

    /// Returns the time at which `actor` is due.
    #[inline]
    pub fn time_ns(&self, actor: u32) -> u64 {
        let place = self.pairs.len() + actor as usize;
        self.parts(self.pairs[place / 2][place % 2]).0
    }

    /// Returns the instant at which `actor` is due.
    #[inline]
    pub fn moment(&self, actor: u32) -> Moment {
        match self.by_seconds {
            true => self.moments[actor as usize],
            false => Moment::at(self.time_ns(actor)),
        }
    }

    /// Returns true if `actor` is due at another instant than this one.
    #[inline]
    pub fn differs(&self, actor: u32, at: Moment) -> bool {
        self.time_ns(actor) != at.ns
            || (self.by_seconds && self.moments[actor as usize].order != at.order)
    }

    /// Gives an instant its place among equal ones, as of now: what happens then has been put on ns-2's agenda,
    /// though it may have to wait for a place on this one.
    #[inline]
    pub fn stamp(&mut self, at: Moment) -> Moment {
        if !self.by_seconds {
            return at;
        }
        self.placings += 1;
        Moment { order: self.placings, ..at }
    }

    /// Sets the time at which `actor` is due, or [`Moment::NEVER`].
    #[inline]
    pub fn set(&mut self, actor: u32, at: Moment) {
        if self.by_seconds {
            let stamped = if at.order == 0 { self.stamp(at) } else { at };
            self.moments[actor as usize] = stamped;
        }
        let at_ns = at.ns;
        let never_ns = self.end_ns + u64::from(actor);
        let at_ns = if at_ns < self.end_ns { at_ns } else { never_ns };
        let mut winner = at_ns << self.actor_bits | u64::from(actor);
        let mut place = self.pairs.len() + actor as usize;
        while place > 1 {
            let pair = &mut self.pairs[place / 2];
            // Of equal nanoseconds another may win now.
            if pair[place % 2] == winner && !self.by_seconds {
                return;
            }
            pair[place % 2] = winner;
            let rival = pair[(place ^ 1) % 2];
            winner = match (winner ^ rival) >> self.actor_bits {
                0 => self.winner_of_tie(winner, rival),
                _ => winner.min(rival),
            };
            place /= 2;
        }
        self.pairs[0][1] = winner;
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    #[test]
    fn the_first_actors_go_in_their_order() {
        let mut agenda = Agenda::new((0..5).collect(), 4, Ties::Random, 1);
        for actor in [4, 2, 3] {
            agenda.set(actor, Moment::at(10));
        }
        assert_eq!(agenda.next(), (10, 2));
        agenda.set(2, Moment::NEVER);
        assert_eq!(agenda.next(), (10, 3));
        agenda.set(0, Moment::at(10));
        assert_eq!(agenda.next(), (10, 0));
    }

    #[test]
    fn the_others_win_ties_equally_often() {
        for others in [2, 3, 9, 50] {
            let mut agenda = Agenda::new((0..2 + others as u32).collect(), 2, Ties::Random, 7);
            let mut wins = vec![0; 2 + others];
            let rounds = 2_500 * others;
            for at_ns in (0..rounds as u64).map(|n| n * 120_000) {
                (2..2 + others).for_each(|actor| agenda.set(actor as u32, Moment::at(at_ns)));
                wins[agenda.next().1 as usize] += 1;
            }
            // 2500 wins each, with a standard deviation below 50.
            let is_fair = |wins: &i32| (2_300..2_700).contains(wins);
            assert!(wins[2..].iter().all(is_fair), "{wins:?}");
        }
    }

    #[test]
    fn ns2_decides_ties_by_its_clock_then_by_what_was_scheduled_first() {
        let mut agenda = Agenda::new((0..3).collect(), 1, Ties::Ns2, 1);
        let at = Moment::at_seconds;
        agenda.set(0, at(1e-8));
        agenda.set(1, at(0.99e-8));
        assert_eq!(agenda.next(), (10, 1));
        // The nanosecond stays the same, and another wins.
        agenda.set(1, at(1e-8));
        assert_eq!(agenda.next(), (10, 0));
        // What waits for its place here keeps that of the time when ns-2 put it onto its agenda.
        let early = agenda.stamp(at(1e-8));
        agenda.set(0, at(1e-8));
        assert_eq!(agenda.next(), (10, 1));
        agenda.set(1, early);
        assert_eq!(agenda.next(), (10, 1));
        agenda.set(2, at(0.98e-8));
        assert_eq!(agenda.next(), (10, 2));
        agenda.set(2, Moment::NEVER);
        agenda.set(1, Moment::NEVER);
        assert_eq!(agenda.next(), (10, 0));
    }

    #[test]
    fn what_is_later_than_the_end_is_never() {
        let mut agenda = Agenda::new((0..4096).collect(), 0, Ties::Random, 1);
        assert!(agenda.end_ns() > 52 * 86_400 * 1_000_000_000);
        assert_eq!((agenda.next().0, agenda.time_ns(4095)), (NEVER_NS, NEVER_NS));
        agenda.set(7, Moment::at(agenda.end_ns()));
        assert_eq!(agenda.next().0, NEVER_NS);
        agenda.set(4095, Moment::at(agenda.end_ns() - 1));
        assert_eq!(agenda.next(), (agenda.end_ns() - 1, 4095));
        agenda.set(4095, Moment::NEVER);
        assert_eq!((agenda.next().0, agenda.time_ns(4095)), (NEVER_NS, NEVER_NS));
    }

    #[test]
    fn agrees_with_a_scan() {
        let mut rng = Rng::from_seed(1);
        for actors in [1, 2, 3, 7, 8, 100] {
            let mut agenda =
                Agenda::new((0..actors as u32).collect(), actors as u32 / 2, Ties::Random, 3);
            let mut times = vec![NEVER_NS; actors];
            for _ in 0..3000 {
                let actor = rng.below(actors as u64) as usize;
                times[actor] = if rng.chance(0.2) { NEVER_NS } else { rng.below(50) };
                agenda.set(actor as u32, Moment::at(times[actor]));
                let first = times.iter().min().copied().unwrap();
                let (at_ns, actor) = agenda.next();
                assert_eq!(at_ns, first);
                assert_eq!(times[actor as usize], first);
                let fixed = times[..actors / 2].iter().position(|&t| t == first);
                if first != NEVER_NS
                    && let Some(fixed) = fixed
                {
                    assert_eq!(actor as usize, fixed);
                }
            }
        }
    }
}
