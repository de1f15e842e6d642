//! A port and the loop that does what it asks for.

use std::ops::Deref;

use dwell_base::Instant;
use dwell_policy::{
    Action, ConfigError, DropReason, Event, Job, Outcome, PacketId, Port, PortConfig,
};

use crate::journal::{Input, Journal, Output};

/// A port that can keep a journal.
#[derive(Clone, Debug)]
pub struct Driven {
    port: Port,
    journal: Option<Box<Journal>>,
}

impl Driven {
    /// Returns an empty port whose link is idle.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: PortConfig) -> Result<Self, ConfigError> {
        Ok(Self { port: Port::new(config)?, journal: None })
    }

    /// Keeps a journal from now on. The port must be as new: what it learned before is not in it.
    pub fn keep_journal(&mut self) {
        let config = self.port.config().clone();
        self.journal = Some(Box::new(Journal::new(config)));
    }

    /// Keeps no journal any more, and forgets what was not taken.
    pub fn end_journal(&mut self) {
        self.journal = None;
    }

    /// Returns the journal, if one is kept.
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_deref_mut()
    }

    #[cold]
    fn note(&mut self, now: Instant, input: impl FnOnce() -> Input) {
        if let Some(journal) = &mut self.journal {
            journal.input(now, input());
        }
    }

    #[cold]
    fn note_output(&mut self, now: Instant, action: Option<Action>) {
        if let Some(journal) = &mut self.journal {
            journal.output(now, Output::of(&self.port, action));
        }
    }

    /// [`Port::configure`].
    ///
    /// # Errors
    /// As [`Port::configure`].
    pub fn configure(&mut self, config: PortConfig) -> Result<(), ConfigError> {
        self.note(Instant::ZERO, || Input::Configure(Box::new(config.clone())));
        self.port.configure(config)
    }

    /// [`Port::forget_estimates`].
    pub fn forget_estimates(&mut self) {
        self.note(Instant::ZERO, || Input::ForgetEstimates);
        self.port.forget_estimates();
    }

    /// [`Port::handle`].
    #[inline]
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
        if self.journal.is_some() {
            self.note(now, || Input::from(&event));
        }
        self.port.handle(now, event);
    }

    /// [`Port::poll`].
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        let action = self.port.poll(now);
        if self.journal.is_some() {
            self.note_output(now, action);
        }
        action
    }

    /// [`Port::clear`].
    pub fn clear(&mut self, free: impl FnMut(PacketId, DropReason)) {
        self.note(Instant::ZERO, || Input::Clear);
        self.port.clear(free);
    }
}

impl Deref for Driven {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.port
    }
}

/// The environment that does what a port asks for.
pub trait World {
    /// Compresses the packets of [`Port::batch`] together. Returns the result and the time that it
    /// took in nanoseconds, or nothing if [`Event::Compressed`] will say so later.
    fn compress(&mut self, port: &Driven, job: Job) -> Option<(Outcome, u64)>;

    /// Puts [`Port::frame`] on the link.
    fn send(&mut self, port: &Driven);

    /// Forgets a packet.
    fn dropped(&mut self, id: PacketId, reason: DropReason);

    /// Marks a packet that waits (RFC 3168). Only packets whose senders take marks
    /// ([`Packet::takes_mark`](dwell_policy::Packet::takes_mark)) are marked.
    fn marked(&mut self, _id: PacketId) {}
}

/// Does what the port asks for, until it asks for nothing more. Returns true if it has sent.
pub fn drain(port: &mut Driven, now: Instant, world: &mut impl World) -> bool {
    let mut has_sent = false;
    while let Some(action) = port.poll(now) {
        match action {
            Action::Compress(job) => {
                if let Some((outcome, took_ns)) = world.compress(port, job) {
                    port.handle(now, Event::Compressed { job: job.id, outcome, took_ns });
                }
            }
            Action::Send => {
                world.send(port);
                has_sent = true;
            }
            Action::Drop(id, reason) => world.dropped(id, reason),
            Action::Mark(id) => world.marked(id),
        }
    }
    has_sent
}
