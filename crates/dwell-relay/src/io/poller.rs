//! Waiting for file descriptors and for a deadline, whichever comes first.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// One [`Poller::wait`] reports at most this many events; the others come with the next.
const EVENTS_MAX: usize = 64;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Names a registered descriptor. Small numbers please: they index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u16);

/// The events that a descriptor is watched for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing but errors.
    Idle,
    /// Something can be read.
    Read,
    /// Something can be written.
    Write,
    /// Something can be read or written.
    ReadWrite,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Idle => epoll::EventFlags::empty(),
            Self::Read => epoll::EventFlags::IN,
            Self::Write => epoll::EventFlags::OUT,
            Self::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        }
    }
}

/// The events on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The descriptor, as it was registered.
    pub token: Token,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// An error or hang-up is pending: read or write to learn which.
    pub failed: bool,
}

/// A level-triggered epoll instance that remembers what it watches, so that asking for the
/// same again costs nothing.
pub struct Poller {
    epoll: OwnedFd,
    interests: Vec<Option<Interest>>,
    ready: Vec<epoll::Event>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("interests", &self.interests).finish_non_exhaustive()
    }
}

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            interests: Vec::new(),
            ready: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Watches `fd` under the name of `token`.
    ///
    /// Deregister it before it is closed. (The kernel forgets a closed descriptor by
    /// itself, but this table does not.)
    ///
    /// # Errors
    /// `EEXIST` if the token or the descriptor is taken, `EPERM` if this kind of
    /// descriptor cannot be watched.
    pub fn register(&mut self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        let index = usize::from(token.0);
        if self.interests.len() <= index {
            self.interests.resize(index + 1, None);
        }
        if self.interests[index].is_some() {
            return Err(Errno::EXIST.into());
        }
        epoll::add(&self.epoll, fd, data(token), interest.flags())?;
        self.interests[index] = Some(interest);
        Ok(())
    }

    /// Changes what a registered descriptor is watched for. No system call if it is
    /// already watched for just this.
    ///
    /// # Errors
    /// `ENOENT` if nothing is registered under `token`.
    #[inline]
    pub fn set_interest(
        &mut self,
        fd: impl AsFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        match self.interests.get_mut(usize::from(token.0)) {
            Some(Some(present)) if *present == interest => Ok(()),
            Some(Some(present)) => {
                epoll::modify(&self.epoll, fd, data(token), interest.flags())?;
                *present = interest;
                Ok(())
            }
            _ => Err(Errno::NOENT.into()),
        }
    }

    /// Stops watching a descriptor and frees its token.
    ///
    /// # Errors
    /// `ENOENT` if it was not registered.
    pub fn deregister(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let entry = self.interests.get_mut(usize::from(token.0)).and_then(Option::take);
        entry.ok_or(Errno::NOENT)?;
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something happens or `deadline` is there, and writes into `events` what
    /// happened (nothing, at the deadline or when a signal interrupted). No deadline, or
    /// [`Instant::FAR_FUTURE`], waits as long as it takes; one that has passed by `now`
    /// just looks. Returns false if it only looked, because something had happened already.
    ///
    /// The deadline is as exact as the kernel's timers: to the nanosecond (see
    /// [`Clock::sharpen_timers`](super::clock::Clock::sharpen_timers)).
    ///
    /// # Errors
    /// None is expected; a bug, if one comes.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        now: Instant,
        events: &mut Vec<Readiness>,
    ) -> io::Result<bool> {
        events.clear();
        let timeout =
            deadline.filter(|at| *at != Instant::FAR_FUTURE).map(|at| timespec(at.since_ns(now)));
        let has_waited = match self.wait_raw(timeout) {
            Ok(has_waited) => has_waited,
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        events.extend(self.ready.iter().map(readiness));
        Ok(has_waited)
    }

    fn wait_raw(&mut self, timeout: Option<Timespec>) -> Result<bool, Errno> {
        if timeout.is_some() {
            self.look(Some(&NO_TIME))?;
            if !self.ready.is_empty() || timeout == Some(NO_TIME) {
                return Ok(false);
            }
        }
        self.look(timeout.as_ref())?;
        Ok(true)
    }

    /// Fetches what has happened, at the latest after this time, which is counted in nanoseconds:
    /// `epoll_pwait2`, of Linux 5.11.
    fn look(&mut self, timeout: Option<&Timespec>) -> Result<(), Errno> {
        self.ready.clear();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.ready), timeout)?;
        Ok(())
    }
}

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(token.0))
}

fn readiness(event: &epoll::Event) -> Readiness {
    // The event is packed: fields are copied out, never borrowed.
    let (flags, data) = (event.flags, event.data);
    Readiness {
        // The low bits are the token that `data` put there.
        token: Token(data.u64() as u16),
        readable: flags.contains(epoll::EventFlags::IN),
        writable: flags.contains(epoll::EventFlags::OUT),
        failed: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as _ }
}

/// Wakes a [`Poller`] from another thread. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker, to be registered with [`Interest::Read`].
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// Makes the descriptor readable until [`drain`](Self::drain). Many calls count as one.
    pub fn wake(&self) {
        // It fails only if the counter is at its maximum, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the calls so far.
    pub fn drain(&self) {
        // It fails only if there were none.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Clock;
    use super::*;

    #[test]
    fn a_deadline_is_never_early_and_a_waker_wakes() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let mut events = Vec::new();
        poller.register(&waker, Token(3), Interest::Read).unwrap();
        for _ in 0..2 {
            let now = Clock::now();
            poller.wait(Some(now + 300_000), now, &mut events).unwrap();
            assert!(events.is_empty());
            assert!(Clock::now() >= now + 300_000);
            waker.wake();
            waker.wake();
            poller.wait(Some(now + 60 * SECOND_NS), now, &mut events).unwrap();
            assert_eq!(events.len(), 1);
            assert!(events[0].token == Token(3) && events[0].readable && !events[0].writable);
            waker.drain();
            poller.wait(Some(now), now, &mut events).unwrap();
            assert!(events.is_empty());
        }
    }

    #[test]
    fn a_waker_ends_a_wait_that_has_begun() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let mut events = Vec::new();
        poller.register(&waker, Token(1), Interest::Read).unwrap();
        for has_deadline in [true, false] {
            let (now, other) = (Clock::now(), waker.clone());
            let waking = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(2));
                other.wake();
            });
            let deadline = has_deadline.then_some(now + 600 * SECOND_NS);
            poller.wait(deadline, now, &mut events).unwrap();
            assert_eq!(events.len(), 1, "{has_deadline}");
            waking.join().unwrap();
            waker.drain();
        }
    }

    #[test]
    fn interest_is_toggled_and_tokens_are_checked() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let mut events = Vec::new();
        let now = Clock::now();
        assert!(poller.set_interest(&waker, Token(0), Interest::Read).is_err());
        poller.register(&waker, Token(0), Interest::Read).unwrap();
        assert!(poller.register(&waker, Token(0), Interest::Read).is_err());
        poller.set_interest(&waker, Token(0), Interest::ReadWrite).unwrap();
        poller.wait(None, now, &mut events).unwrap();
        assert!(events[0].writable && !events[0].readable);
        poller.set_interest(&waker, Token(0), Interest::Idle).unwrap();
        poller.wait(Some(now), now, &mut events).unwrap();
        assert!(events.is_empty());
        poller.deregister(&waker, Token(0)).unwrap();
        assert!(poller.deregister(&waker, Token(0)).is_err());
    }
}
