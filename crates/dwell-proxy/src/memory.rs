//! The memory that streams share.
//!
//! A stream that has nothing to move holds next to nothing, so there may be ten thousands of these. What moves
//! needs buffers, and takes room for them before it reads anything: for each direction by itself, and until it
//! holds nothing any more. Who finds no room waits, and so does whoever writes to it.
//!
//! Whoever has had room for a second while others wait leaves it as soon as what it holds has gone, and has its next
//! turn after them.
//!
//! **No circle of streams waits for each other.** Room to send waits for the other end to receive; room to
//! receive there waits only for a program that reads, and one that does not makes way after a while
//! ([`crate::stalls`]).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::config::Limits;
use crate::metrics::{Counter, Present};

/// The longest that a stream keeps its room while others wait.
const TURN: Duration = Duration::from_secs(1);

/// Room for those that move something, in either direction, and for what idle streams refer to.
#[derive(Debug)]
pub(crate) struct Memory {
    sending: Semaphore,
    receiving: Semaphore,
    histories: Semaphore,
    /// Streams that wait for room.
    waiting: Counter,
}

impl Memory {
    /// As much as the limits say.
    pub(crate) fn new(limits: &Limits) -> Self {
        let busy = limits.busy_streams();
        Self {
            sending: Semaphore::new(busy),
            receiving: Semaphore::new(busy),
            histories: Semaphore::new(limits.histories()),
            waiting: Counter::default(),
        }
    }

    /// Room to send, which is not taken yet.
    pub(crate) const fn sending(&self) -> Room<'_> {
        Room { of: &self.sending, waiting: &self.waiting, state: State::None }
    }

    /// Room to receive, which is not taken yet.
    pub(crate) const fn receiving(&self) -> Room<'_> {
        Room { of: &self.receiving, waiting: &self.waiting, state: State::None }
    }

    /// Room for what an idle stream refers to, at both ends, if there is any left.
    pub(crate) fn history(&self) -> Option<SemaphorePermit<'_>> {
        self.histories.try_acquire().ok()
    }

    /// Returns true if a stream waits for room.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.get() > 0
    }
}

/// One stream's room in one direction.
pub(crate) struct Room<'a> {
    of: &'a Semaphore,
    waiting: &'a Counter,
    state: State<'a>,
}

type Acquiring<'a> =
    Pin<Box<dyn Future<Output = Result<SemaphorePermit<'a>, AcquireError>> + Send + 'a>>;

enum State<'a> {
    None,
    Waiting { acquiring: Acquiring<'a>, _present: Present<'a> },
    Has { _permit: SemaphorePermit<'a>, since: Instant },
}

fn has(permit: SemaphorePermit<'_>) -> State<'_> {
    State::Has { _permit: permit, since: Instant::now() }
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
        matches!(self.state, State::Waiting { .. })
    }

    /// Returns true if it was had for long enough, and others wait.
    pub(crate) fn is_over(&self) -> bool {
        match &self.state {
            State::Has { since, .. } => self.waiting.get() > 0 && since.elapsed() >= TURN,
            State::None | State::Waiting { .. } => false,
        }
    }

    /// Takes it; pending until there is some.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::None = self.state {
            self.state = match self.of.try_acquire() {
                Ok(permit) => has(permit),
                Err(_) => State::Waiting {
                    acquiring: Box::pin(self.of.acquire()),
                    _present: Present::new(self.waiting),
                },
            };
        }
        if let State::Waiting { acquiring, .. } = &mut self.state {
            match acquiring.as_mut().poll(cx) {
                Poll::Ready(Ok(permit)) => self.state = has(permit),
                // It is never closed.
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
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
        let mut rooms: Vec<Room<'_>> = (0..most).map(|_| memory.sending()).collect();
        for room in &mut rooms {
            assert!(room.poll_take(&mut cx).is_ready() && room.is_taken());
        }
        let mut next = memory.sending();
        assert!(next.poll_take(&mut cx).is_pending() && next.is_awaited() && memory.is_short());
        // The other direction has its own.
        let mut other = memory.receiving();
        assert!(other.poll_take(&mut cx).is_ready());
        rooms[0].leave();
        assert!(rooms[0].poll_take(&mut cx).is_pending(), "its turn is over");
        assert!(next.poll_take(&mut cx).is_ready() && memory.is_short());
        drop(rooms);
        assert!(!memory.is_short());
    }
}
