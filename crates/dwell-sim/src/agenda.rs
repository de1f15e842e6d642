//! The next event: one pending time for each actor of a fixed set.
//!
//! Links, compressors and sources each have at most one pending event, so there is no heap of
//! events but a tournament in pairs: the actors play first, then the winners, until one is left. An
//! actor whose time changes replays its matches, and no others.
//!
//! Ties are frequent: connections that share a link send in step with its transmissions, to the
//! nanosecond. Of equal times, the first actors of the agenda go in their order. The others go in
//! an order that a hash of seed, time and actor decides each time: with a fixed order the same
//! connection would win every tie and take far more than its share. (In ns-2 the rounding of its
//! clock decides, in reality chance does.)

/// Later than anything: nothing is pending.
pub const NEVER_NS: u64 = u64::MAX;

/// The pending times of all actors.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The tournament: 1 is the winner of all, those who met in match `n` are `2n` and `2n + 1`,
    /// and the actors themselves are the last half.
    tree: Box<[Entry]>,
    /// Actors from this one on have no fixed order among each other.
    shuffled_from: u32,
    seed: u64,
}

/// A pending event as one number: from the top, 64 bits of time, 32 that decide ties, 32 that name
/// the actor. The lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u128);

impl Entry {
    #[inline]
    fn new(at_ns: u64, order: u32, actor: u32) -> Self {
        Self(u128::from(at_ns) << 64 | u128::from(u64::from(order) << 32 | u64::from(actor)))
    }

    #[inline]
    fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn actor(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn earlier(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }
}

impl Agenda {
    /// An agenda for actors `0..actors`, with nothing pending. Ties among those from
    /// `shuffled_from` on are decided by chance, which `seed` determines; all others go before
    /// them, in their order.
    pub fn new(actors: usize, shuffled_from: usize, seed: u64) -> Self {
        let nobody = Entry::new(NEVER_NS, u32::MAX, 0);
        let places = actors.next_power_of_two().max(2);
        let tree = vec![nobody; 2 * places].into();
        Self { tree, shuffled_from: shuffled_from as u32, seed }
    }

    #[inline]
    fn order(&self, actor: u32, at_ns: u64) -> u32 {
        if actor < self.shuffled_from {
            return actor;
        }
        // The actor goes in before both multiplications: after one alone, the orders of two actors
        // would always be the same distance apart, and some would win more often.
        let mixed = at_ns ^ self.seed ^ u64::from(actor);
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 33) as u32 | 1 << 31
    }

    /// The earliest actor and its time; [`NEVER_NS`] if nothing is pending.
    #[inline]
    pub fn next(&self) -> (u64, u32) {
        (self.tree[1].at_ns(), self.tree[1].actor())
    }

    /// Returns the time at which `actor` is due.
    #[inline]
    pub fn time_ns(&self, actor: u32) -> u64 {
        self.tree[self.tree.len() / 2 + actor as usize].at_ns()
    }

    /// Sets the time at which `actor` is due, or [`NEVER_NS`].
    #[inline]
    pub fn set(&mut self, actor: u32, at_ns: u64) {
        let mut winner = Entry::new(at_ns, self.order(actor, at_ns), actor);
        let tree = &mut self.tree;
        let mut place = tree.len() / 2 + actor as usize;
        while place > 1 && tree[place] != winner {
            tree[place] = winner;
            winner = winner.earlier(tree[place ^ 1]);
            place /= 2;
        }
        if place == 1 {
            tree[1] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    #[test]
    fn the_first_actors_go_in_their_order() {
        let mut agenda = Agenda::new(5, 4, 1);
        for actor in [4, 2, 3] {
            agenda.set(actor, 10);
        }
        assert_eq!(agenda.next(), (10, 2));
        agenda.set(2, NEVER_NS);
        assert_eq!(agenda.next(), (10, 3));
        agenda.set(0, 10);
        assert_eq!(agenda.next(), (10, 0));
    }

    #[test]
    fn the_others_win_ties_equally_often() {
        for others in [2, 3, 9, 50] {
            let mut agenda = Agenda::new(2 + others, 2, 7);
            let mut wins = vec![0; 2 + others];
            let rounds = 2_500 * others;
            for at_ns in (0..rounds as u64).map(|n| n * 120_000) {
                (2..2 + others).for_each(|actor| agenda.set(actor as u32, at_ns));
                wins[agenda.next().1 as usize] += 1;
            }
            // 2500 wins each, with a standard deviation below 50.
            let is_fair = |wins: &i32| (2_300..2_700).contains(wins);
            assert!(wins[2..].iter().all(is_fair), "{wins:?}");
        }
    }

    #[test]
    fn agrees_with_a_scan() {
        let mut rng = Rng::from_seed(1);
        for actors in [1, 2, 3, 7, 8, 100] {
            let mut agenda = Agenda::new(actors, actors / 2, 3);
            let mut times = vec![NEVER_NS; actors];
            for _ in 0..3000 {
                let actor = rng.below(actors as u64) as usize;
                times[actor] = if rng.chance(0.2) { NEVER_NS } else { rng.below(50) };
                agenda.set(actor as u32, times[actor]);
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
