//! Signals as something to be read.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level;

/// A signal that somebody sent to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: stop in good order.
    Stop,
    /// SIGUSR1: report.
    Report,
}

const WATCHED: [(i32, Signal); 4] = [
    (SIGHUP, Signal::Reload),
    (SIGTERM, Signal::Stop),
    (SIGINT, Signal::Stop),
    (SIGUSR1, Signal::Report),
];

/// The signals of this process; readable when one has come.
///
/// Until it is dropped, the watched signals no longer do what they do by default (end the
/// process), in no thread.
#[derive(Debug)]
pub struct Signals {
    pipe: UnixStream,
    seen: [Arc<AtomicBool>; WATCHED.len()],
    handlers: Vec<SigId>,
}

impl Signals {
    /// Begins to watch.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut signals = Self { pipe, seen: Default::default(), handlers: Vec::new() };
        for ((number, _), seen) in WATCHED.iter().zip(&signals.seen) {
            // Handlers run in this order: who is woken by the pipe finds the flag set.
            let flag = signal_hook::flag::register(*number, Arc::clone(seen))?;
            signals.handlers.push(flag);
            let wake = low_level::pipe::register(*number, writer.try_clone()?)?;
            signals.handlers.push(wake);
        }
        Ok(signals)
    }

    /// The signals that came since the last call; several of one kind count as one.
    pub fn drain(&mut self) -> impl Iterator<Item = Signal> {
        let mut sink = [0u8; 64];
        while matches!((&self.pipe).read(&mut sink), Ok(1..)) {}
        WATCHED
            .iter()
            .zip(&self.seen)
            .filter(|(_, seen)| seen.swap(false, Ordering::SeqCst))
            .map(|((_, signal), _)| *signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            low_level::unregister(handler);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Instant;
    use dwell_base::time::SECOND_NS;

    use super::super::poller::{Interest, Poller, Token};
    use super::*;

    #[test]
    fn a_signal_is_an_event() {
        let mut signals = Signals::new().unwrap();
        let mut poller = Poller::new().unwrap();
        let mut events = Vec::new();
        poller.register(&signals, Token(0), Interest::Read).unwrap();
        low_level::raise(SIGUSR1).unwrap();
        low_level::raise(SIGUSR1).unwrap();
        low_level::raise(SIGHUP).unwrap();
        let deadline = Instant::ZERO + 10 * SECOND_NS;
        poller.wait(Some(deadline), Instant::ZERO, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        let seen: Vec<Signal> = signals.drain().collect();
        assert_eq!(seen, [Signal::Reload, Signal::Report]);
        poller.wait(Some(Instant::ZERO), Instant::ZERO, &mut events).unwrap();
        assert!(events.is_empty());
    }
}
