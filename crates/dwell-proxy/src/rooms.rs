//! A number of equal rooms that parties share, so that one of them does not have all.
//!
//! A party that holds many while few are free gets no more: at most [`SHARE`] times as many as are free ("dynamic
//! thresholds", Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). A single party
//! has three of four rooms, two of them three of seven each, and of n parties 1 in 3 n + 1 is left; whoever has none may take
//! the last one. Of those that wait the party that holds least is next. Each step is a few searches in ordered tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// A party may hold so many times as many rooms as are free.
const SHARE: usize = 3;
/// So many parties that wait are named at a time.
const NAMED_MAX: usize = 16;

/// Who waits for a room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Nobody.
    None,
    /// Somebody, and there is none left.
    OfAll,
    /// These, who have too many of them already.
    Of(Vec<u64>),
}

/// Hands out rooms. Clones hand out the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Rooms(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// True if somebody waits: written under the lock, and read without it by all that move something.
    is_awaited: AtomicBool,
}

#[derive(Debug)]
struct State {
    free: usize,
    next: u64,
    parties: HashMap<u64, Party>,
    /// Parties of which somebody waits, by what they hold and the number of who waits longest.
    order: BTreeSet<(usize, u64, u64)>,
}

#[derive(Debug, Default)]
struct Party {
    held: usize,
    waiting: BTreeMap<u64, oneshot::Sender<Room>>,
}

/// A room; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Room(Option<(Rooms, u64)>);

/// Somebody who waits for a room. Dropping it gives that up.
#[derive(Debug)]
pub(crate) struct Waiting {
    rooms: Rooms,
    party: u64,
    number: u64,
    granted: oneshot::Receiver<Room>,
}

impl State {
    /// Changes a party, and where it stands among those of which somebody waits.
    fn change<T>(&mut self, party: u64, change: impl FnOnce(&mut Party) -> T) -> T {
        let place = |of: &Party| Some((of.held, *of.waiting.first_key_value()?.0, party));
        let of = self.parties.entry(party).or_default();
        let before = place(of);
        let result = change(of);
        let after = place(of);
        if of.held == 0 && of.waiting.is_empty() {
            self.parties.remove(&party);
        }
        if before != after {
            before.map(|place| self.order.remove(&place));
            after.map(|place| self.order.insert(place));
        }
        result
    }

    const fn may_have(&self, held: usize) -> bool {
        self.free > 0 && held < SHARE.saturating_mul(self.free)
    }

    fn take(&mut self, party: u64) {
        self.free -= 1;
        self.change(party, |of| of.held += 1);
    }

    fn give_back(&mut self, party: u64) {
        self.free += 1;
        self.change(party, |of| of.held = of.held.saturating_sub(1));
    }

    /// Returns whose turn it is, who has the room already.
    fn grant(&mut self) -> Option<(u64, oneshot::Sender<Room>)> {
        let &(held, _, party) = self.order.first()?;
        if !self.may_have(held) {
            return None;
        }
        let (_, sender) = self.change(party, |of| of.waiting.pop_first())?;
        self.take(party);
        Some((party, sender))
    }
}

impl Rooms {
    /// So many.
    pub(crate) fn new(count: usize) -> Self {
        let (parties, order) = (HashMap::new(), BTreeSet::new());
        let state = Mutex::new(State { free: count, next: 0, parties, order });
        Self(Arc::new(Shared { state, is_awaited: AtomicBool::new(false) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether anybody waits, for who does not take the lock.
    fn note_awaited(&self, state: &MutexGuard<'_, State>) {
        self.0.is_awaited.store(!state.order.is_empty(), Relaxed);
    }

    /// Returns true if somebody waits; without a lock, so that it may be known a little later.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Relaxed)
    }

    /// Takes a room for a party, or waits for one.
    pub(crate) fn ask(&self, party: u64) -> Result<Room, Waiting> {
        let mut state = self.lock();
        let (held, is_first) =
            state.parties.get(&party).map_or((0, true), |of| (of.held, of.waiting.is_empty()));
        if is_first && state.may_have(held) {
            state.take(party);
            return Ok(Room(Some((self.clone(), party))));
        }
        let (sender, granted) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.change(party, |of| of.waiting.insert(number, sender));
        self.note_awaited(&state);
        drop(state);
        Err(Waiting { rooms: self.clone(), party, number, granted })
    }

    /// Returns true if somebody would have the room that this party leaves: one of its own, or, if nothing is free, of
    /// any party.
    pub(crate) fn is_wanted_of(&self, party: u64) -> bool {
        let state = self.lock();
        let is_wanted = state.parties.get(&party).is_some_and(|of| !of.waiting.is_empty());
        is_wanted || (state.free == 0 && !state.order.is_empty())
    }

    /// Returns who waits.
    pub(crate) fn shortage(&self) -> Shortage {
        let state = self.lock();
        match state.free {
            _ if state.order.is_empty() => Shortage::None,
            0 => Shortage::OfAll,
            _ => Shortage::Of(
                state.order.iter().take(NAMED_MAX).map(|&(_, _, party)| party).collect(),
            ),
        }
    }

    fn give_back(&self, party: u64) {
        let mut returned = Some(party);
        loop {
            let granted = {
                let mut state = self.lock();
                if let Some(party) = returned.take() {
                    state.give_back(party);
                }
                let granted = state.grant();
                if granted.is_some() {
                    self.note_awaited(&state);
                }
                granted
            };
            // Not under the lock: who waits for it is woken.
            let Some((party, sender)) = granted else { return };
            if let Err(mut room) = sender.send(Room(Some((self.clone(), party)))) {
                // Nobody waits there any more; it must not give itself back as well.
                room.0 = None;
                returned = Some(party);
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((rooms, party)) = self.0.take() {
            rooms.give_back(party);
        }
    }
}

impl Future for Waiting {
    type Output = Room;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Room> {
        // Senders are only dropped when they have been sent something, or nobody waits for that.
        Pin::new(&mut self.granted).poll(cx).map(|room| room.unwrap_or(Room(None)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (party, number) = (self.party, self.number);
        let mut state = self.rooms.lock();
        state.change(party, |of| of.waiting.remove(&number));
        self.rooms.note_awaited(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    fn granted(waiting: &mut Waiting) -> Option<Room> {
        match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_party_never_has_all_rooms() {
        let rooms = Rooms::new(44);
        let mut held: Vec<_> = (0..100).filter_map(|_| rooms.ask(1).ok()).collect();
        assert_eq!(held.len(), 33);
        let other: Vec<_> = (0..100).filter_map(|_| rooms.ask(2).ok()).collect();
        assert_eq!(other.len(), 9, "and leaves some for a third");
        assert!(rooms.ask(3).is_ok());
        held.clear();
        drop(other);
        assert_eq!(rooms.lock().free, 44);
        assert!(rooms.lock().parties.is_empty() && rooms.lock().order.is_empty());
    }

    #[test]
    fn who_waits_for_its_own_party_only_is_distinguished() {
        let rooms = Rooms::new(4);
        let mut held: Vec<_> = (0..3).map(|_| rooms.ask(1).unwrap()).collect();
        assert_eq!(rooms.shortage(), Shortage::None);
        let greedy = rooms.ask(1).unwrap_err();
        assert_eq!(rooms.shortage(), Shortage::Of(vec![1]));
        assert!(rooms.is_wanted_of(1) && !rooms.is_wanted_of(2));
        held.push(rooms.ask(2).unwrap());
        assert_eq!(rooms.shortage(), Shortage::OfAll);
        assert!(rooms.is_wanted_of(2));
        drop(greedy);
        assert_eq!(rooms.shortage(), Shortage::None);
    }

    #[test]
    fn a_single_room_can_be_had() {
        let rooms = Rooms::new(1);
        let room = rooms.ask(1).unwrap();
        let mut next = rooms.ask(1).unwrap_err();
        assert!(granted(&mut next).is_none());
        drop(room);
        assert!(granted(&mut next).is_some());
    }

    #[test]
    fn who_holds_least_is_next_and_who_gives_up_is_forgotten() {
        let rooms = Rooms::new(4);
        let mut held: Vec<_> = (0..3).map(|_| rooms.ask(1).unwrap()).collect();
        let mut greedy = rooms.ask(1).unwrap_err();
        let last = rooms.ask(2).unwrap();
        let mut small = rooms.ask(3).unwrap_err();
        drop(rooms.ask(4).unwrap_err());
        held.pop();
        assert!(granted(&mut greedy).is_none());
        let room = granted(&mut small).unwrap();
        drop((room, last));
        assert!(granted(&mut greedy).is_some());
    }

    proptest! {
        /// Whatever is asked for and given back, rooms are neither lost nor made, and nobody waits who may have one.
        #[test]
        fn rooms_are_kept(count in 1usize..9, steps in prop::collection::vec((0u64..4, 0u8..6, 0usize..8), 0..80)) {
            let rooms = Rooms::new(count);
            let (mut held, mut waiting): (Vec<Room>, Vec<Waiting>) = Default::default();
            for (party, step, which) in steps {
                match step {
                    0 | 1 => match rooms.ask(party) {
                        Ok(room) => held.push(room),
                        Err(wait) => waiting.push(wait),
                    },
                    2 if !held.is_empty() => drop(held.swap_remove(which % held.len())),
                    3 if !waiting.is_empty() => drop(waiting.swap_remove(which % waiting.len())),
                    _ => (),
                }
                // What was granted is in its channel until who waits looks there; it may give up before.
                let mut at = 0;
                while step != 4 && at < waiting.len() {
                    match granted(&mut waiting[at]) {
                        Some(room) => {
                            held.push(room);
                            waiting.swap_remove(at);
                        }
                        None => at += 1,
                    }
                }
                let state = rooms.lock();
                let taken = state.parties.values().map(|of| of.held).sum::<usize>();
                let wait = state.parties.values().map(|of| of.waiting.len()).sum::<usize>();
                prop_assert_eq!(state.free + taken, count);
                prop_assert_eq!(taken + wait, held.len() + waiting.len());
                prop_assert_eq!(rooms.is_awaited(), !state.order.is_empty());
                let least = state.order.first().map(|&(held, _, _)| held);
                prop_assert!(least.is_none_or(|held| !state.may_have(held)), "{:?}", state);
                drop(state);
            }
            drop((held, waiting));
            let state = rooms.lock();
            prop_assert_eq!(state.free, count);
            prop_assert!(state.parties.is_empty() && state.order.is_empty());
        }
    }
}
