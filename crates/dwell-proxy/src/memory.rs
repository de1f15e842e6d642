//! The memory that streams share.
//!
//! A stream that has nothing to move holds next to nothing, so there may be ten thousands of these. What moves
//! needs buffers, and takes room for them before it reads anything: for each direction by itself, and until it
//! holds nothing any more. Who finds no room waits, and so does whoever writes to it.
//!
//! Whoever has had room for a second while others wait leaves it as soon as what it holds has gone, and has its next
//! turn after them. Streams to one target don't have all of it ([`crate::rooms`]): a target that has stopped
//! reading holds up its own clients only. "Others" are those of the same target, or, if nothing is left, all.
//!
//! **No circle of streams waits for each other.** Room to send waits for the other end to receive; room to
//! receive there waits only for a program that reads, and one that does not makes way after a while
//! ([`crate::stalls`]).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::{CONTEXT_UNIT_BYTES, Limits};
use crate::rooms::{self, Rooms, Shortage};

/// The longest that a stream keeps its room while others wait.
const TURN: Duration = Duration::from_secs(1);

/// Room for those that move something, in either direction, for what idle streams refer to, and for running contexts of
/// long ones.
#[derive(Debug)]
pub(crate) struct Memory {
    sending: Rooms,
    receiving: Rooms,
    histories: Arc<Semaphore>,
    histories_max: usize,
    contexts: Arc<Semaphore>,
}

impl Memory {
    /// As much as the limits say.
    pub(crate) fn new(limits: &Limits) -> Self {
        let busy = limits.busy_streams();
        Self {
            sending: Rooms::new(busy),
            receiving: Rooms::new(busy),
            histories: Arc::new(Semaphore::new(limits.histories())),
            histories_max: limits.histories(),
            contexts: Arc::new(Semaphore::new(limits.context_units())),
        }
    }

    /// Room to send for a stream of this party, which is not taken yet.
    pub(crate) const fn sending(&self, party: u64) -> Room<'_> {
        Room { of: &self.sending, party, state: State::None }
    }

    /// Room to receive, which is not taken yet.
    pub(crate) const fn receiving(&self, party: u64) -> Room<'_> {
        Room { of: &self.receiving, party, state: State::None }
    }

    /// Room for what an idle stream refers to, at both ends, if there is any left.
    pub(crate) fn history(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.histories).try_acquire_owned().ok()
    }

    /// Room for a running context of at most so many bytes, if there is any left.
    pub(crate) fn context(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(CONTEXT_UNIT_BYTES)).ok()?;
        Arc::clone(&self.contexts).try_acquire_many_owned(units).ok()
    }

    /// Returns true if half of that is left, so that connections without a stream may hold some: those that have one come first.
    pub(crate) fn has_spare_histories(&self) -> bool {
        2 * self.histories.available_permits() >= self.histories_max
    }

    /// Returns which streams wait for room, in each direction.
    pub(crate) fn shortages(&self) -> [Shortage; 2] {
        [&self.sending, &self.receiving].map(Rooms::shortage)
    }
}

/// One stream's room in one direction.
pub(crate) struct Room<'a> {
    of: &'a Rooms,
    party: u64,
    state: State,
}

enum State {
    None,
    Waiting(rooms::Waiting),
    Has { _room: rooms::Room, since: Instant },
}

fn has(room: rooms::Room) -> State {
    State::Has { _room: room, since: Instant::now() }
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("is_taken", &self.is_taken()).finish_non_exhaustive()
    }
}

impl Room<'_> {
    /// Returns true if it is taken.
    pub(crate) const fn is_taken(&self) -> bool {
        matches!(self.state, State::Has { .. })
    }

    /// Returns true if it is waited for.
    pub(crate) const fn is_awaited(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Returns true if it was had for long enough, and others wait.
    pub(crate) fn is_over(&self) -> bool {
        match &self.state {
            // Nobody waits, nearly always.
            State::Has { since, .. } if self.of.is_awaited() => {
                since.elapsed() >= TURN && self.of.is_wanted_of(self.party)
            }
            _ => false,
        }
    }

    /// Takes it; pending until there is some.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::None = self.state {
            self.state = match self.of.ask(self.party) {
                Ok(room) => has(room),
                Err(asked) => State::Waiting(asked),
            };
        }
        if let State::Waiting(asked) = &mut self.state {
            let Poll::Ready(room) = Pin::new(asked).poll(cx) else { return Poll::Pending };
            self.state = has(room);
        }
        Poll::Ready(())
    }

    /// Leaves it to others.
    pub(crate) fn leave(&mut self) {
        self.state = State::None;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::config::STREAM_BYTES_MAX;

    #[test]
    fn who_finds_no_room_waits_for_it() {
        let limits = Limits { memory_bytes_max: 3 * STREAM_BYTES_MAX, ..Limits::default() };
        let memory = Memory::new(&limits);
        let most = limits.busy_streams();
        let mut cx = Context::from_waker(Waker::noop());
        let mut rooms: Vec<Room<'_>> = (0..most).map(|at| memory.sending(at as u64)).collect();
        for room in &mut rooms {
            assert!(room.poll_take(&mut cx).is_ready() && room.is_taken());
        }
        let mut next = memory.sending(99);
        assert!(next.poll_take(&mut cx).is_pending() && next.is_awaited());
        assert_eq!(memory.shortages(), [Shortage::OfAll, Shortage::None]);
        // The other direction has its own.
        let mut other = memory.receiving(0);
        assert!(other.poll_take(&mut cx).is_ready());
        rooms[0].leave();
        assert!(rooms[0].poll_take(&mut cx).is_pending(), "its turn is over");
        assert!(next.poll_take(&mut cx).is_ready());
        assert_eq!(memory.shortages()[0], Shortage::OfAll);
        drop(rooms);
        assert_eq!(memory.shortages(), [Shortage::None, Shortage::None]);
    }
}
