//! What happens next: one pending time for each actor of a fixed set.
//!
//! Links, presses and sources each have at most one thing coming up, so there is no heap of
//! events but a tournament: the leaves are the actors' times, each inner node names the earlier
//! of two, the root the earliest of all. Of equal times the actor with the lower number goes
//! first, so that ties are decided by how actors are numbered and by nothing else.

/// Later than anything: nothing is pending.
pub const NEVER_NS: u64 = u64::MAX;

/// The pending times of all actors.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// `winners[1]` is the root; `winners[n]` names the earlier of `winners[2n]` and
    /// `winners[2n + 1]`; leaves begin at `leaves`.
    winners: Vec<Entry>,
    leaves: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    actor: u32,
}

impl Agenda {
    /// An agenda for actors `0..actors`, with nothing pending.
    pub fn new(actors: usize) -> Self {
        let leaves = actors.next_power_of_two().max(2);
        let mut winners = vec![Entry { at_ns: NEVER_NS, actor: 0 }; 2 * leaves];
        for (actor, leaf) in winners[leaves..].iter_mut().enumerate() {
            leaf.actor = actor as u32;
        }
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Self { winners, leaves }
    }

    /// The earliest actor and its time; [`NEVER_NS`] if nothing is pending.
    #[inline]
    pub fn next(&self) -> (u64, u32) {
        let root = self.winners[1];
        (root.at_ns, root.actor)
    }

    /// When `actor` is due.
    pub fn time_ns(&self, actor: u32) -> u64 {
        self.winners[self.leaves + actor as usize].at_ns
    }

    /// `actor` is due at `at_ns` from now on, or [`NEVER_NS`].
    #[inline]
    pub fn set(&mut self, actor: u32, at_ns: u64) {
        let mut node = self.leaves + actor as usize;
        let mut winner = Entry { at_ns, actor };
        self.winners[node] = winner;
        while node > 1 {
            let other = self.winners[node ^ 1];
            // The left sibling has the lower actors: it wins ties.
            let other_first = if node & 1 == 1 {
                other.at_ns <= winner.at_ns
            } else {
                other.at_ns < winner.at_ns
            };
            if other_first {
                winner = other;
            }
            node >>= 1;
            let before = &mut self.winners[node];
            if before.actor == winner.actor && before.at_ns == winner.at_ns {
                return; // nothing changes from here up
            }
            *before = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    #[test]
    fn ties_go_to_the_lower_number() {
        let mut agenda = Agenda::new(5);
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
    fn agrees_with_a_scan() {
        let mut rng = Rng::from_seed(1);
        for actors in [1, 2, 3, 7, 8, 100] {
            let mut agenda = Agenda::new(actors);
            let mut times = vec![NEVER_NS; actors];
            for _ in 0..3000 {
                let actor = rng.below(actors as u64) as usize;
                times[actor] = if rng.chance(0.2) { NEVER_NS } else { rng.below(50) };
                agenda.set(actor as u32, times[actor]);
                let first = times.iter().enumerate().min_by_key(|&(n, &t)| (t, n)).unwrap();
                assert_eq!(agenda.next().0, *first.1);
                if *first.1 != NEVER_NS {
                    assert_eq!(agenda.next().1 as usize, first.0);
                }
                assert_eq!(agenda.time_ns(actor as u32), times[actor]);
            }
        }
    }
}
