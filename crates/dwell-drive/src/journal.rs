//! A journal of a port: its events and its actions.
//!
//! Decisions depend on nothing else, so that another port with the same input must have the same output.
//! A journal holds lengths, classes, hashes of flows and times; no contents and no addresses. As
//! text it is one JSON object a line.

use dwell_base::Instant;
use dwell_policy::{
    Action, ConfigError, DropReason, Event, Frame, FramePacket, JobId, LinkState, LostBatch,
    Outcome, Packet, PacketId, Port, PortConfig,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Something that went into a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Its configuration. First in every journal.
    Configure(Box<PortConfig>),
    /// Another codec compresses from now on.
    ForgetEstimates,
    /// Waiting packets are dropped.
    Clear,
    /// [`Event::Arrive`].
    Arrive(Packet),
    /// [`Event::Compressed`].
    Compressed {
        /// The job.
        job: JobId,
        /// Its result.
        outcome: Outcome,
        /// The time that it took, in nanoseconds.
        took_ns: u64,
    },
    /// [`Event::Lost`].
    Lost {
        /// The packets of the batch.
        packets: Vec<FramePacket>,
        /// Its bytes.
        bytes: u32,
    },
    /// [`Event::LinkReady`].
    LinkReady,
    /// [`Event::LinkBusy`].
    LinkBusy,
    /// [`Event::Link`].
    Link(LinkState),
}

impl From<&Event<'_>> for Input {
    fn from(event: &Event<'_>) -> Self {
        match *event {
            Event::Arrive(packet) => Self::Arrive(packet),
            Event::Compressed { job, outcome, took_ns } => {
                Self::Compressed { job, outcome, took_ns }
            }
            Event::Lost(LostBatch { packets, bytes }) => {
                Self::Lost { packets: packets.to_vec(), bytes }
            }
            Event::LinkReady => Self::LinkReady,
            Event::LinkBusy => Self::LinkBusy,
            Event::Link(link) => Self::Link(link),
        }
    }
}

/// The actions of a port when it is polled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Nothing is to be done.
    Nothing,
    /// [`Action::Compress`].
    Compress {
        /// The job.
        job: JobId,
        /// Its packets.
        batch: Vec<PacketId>,
    },
    /// [`Action::Send`].
    Send(Box<Frame>),
    /// [`Action::Drop`].
    Drop(PacketId, DropReason),
    /// [`Action::Mark`].
    Mark(PacketId),
}

impl Output {
    /// The output of `port` with this action, with all that belongs to it.
    pub(crate) fn of(port: &Port, action: Option<Action>) -> Self {
        match action {
            None => Self::Nothing,
            Some(Action::Compress(job)) => {
                Self::Compress { job: job.id, batch: port.batch(job.id).to_vec() }
            }
            Some(Action::Send) => Self::Send(Box::new(port.frame().clone())),
            Some(Action::Drop(id, reason)) => Self::Drop(id, reason),
            Some(Action::Mark(id)) => Self::Mark(id),
        }
    }
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The input at this time in nanoseconds.
    Input(u64, Input),
    /// The output of a poll at this time in nanoseconds.
    Output(u64, Output),
}

/// Input and output of one port, in order.
#[derive(Clone, Debug)]
pub struct Journal {
    entries: Vec<Entry>,
}

impl Journal {
    pub(crate) fn new(config: PortConfig) -> Self {
        Self { entries: vec![Entry::Input(0, Input::Configure(Box::new(config)))] }
    }

    pub(crate) fn input(&mut self, now: Instant, input: Input) {
        self.entries.push(Entry::Input(now.as_ns(), input));
    }

    pub(crate) fn output(&mut self, now: Instant, output: Output) {
        // Polling twice for nothing at the same time changes nothing.
        let entry = Entry::Output(now.as_ns(), output);
        if self.entries.last() != Some(&entry)
            || !matches!(entry, Entry::Output(_, Output::Nothing))
        {
            self.entries.push(entry);
        }
    }

    /// Takes out what was noted since the last time.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}

/// Why a journal can't be repeated.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It does not begin with a configuration.
    #[error("a journal begins with the configuration of its port")]
    NoConfiguration,
    /// A configuration that makes no sense.
    #[error("entry {entry}: {error}")]
    Configuration {
        /// The number of the entry, from 1.
        entry: usize,
        /// The reason.
        error: ConfigError,
    },
    /// A line that is no entry.
    #[error("entry {entry}: {error}")]
    Syntax {
        /// The number of the entry, from 1.
        entry: usize,
        /// The reason.
        error: serde_json::Error,
    },
    /// Another port has another output.
    #[error("entry {entry}: the output was {expected:?}, and is {found:?}")]
    Differs {
        /// The number of the entry, from 1.
        entry: usize,
        /// The output in the journal.
        expected: Box<Output>,
        /// The output of this run.
        found: Box<Output>,
    },
}

impl Entry {
    /// Returns the entry as a line of text.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the line of entry number `entry`.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_line(line: &str, entry: usize) -> Result<Self, JournalError> {
        serde_json::from_str(line).map_err(|error| JournalError::Syntax { entry, error })
    }
}

/// Gives the input of a journal to a new port, and compares the output. Returns the port and the number
/// of actions, all of which were the same.
///
/// # Errors
/// The first difference, or what is wrong with the journal.
pub fn repeat(
    entries: impl IntoIterator<Item = Result<Entry, JournalError>>,
) -> Result<(Port, u64), JournalError> {
    let mut entries = entries.into_iter().enumerate();
    let first = entries.next().map(|(_, entry)| entry).transpose()?;
    let Some(Entry::Input(_, Input::Configure(config))) = first else {
        return Err(JournalError::NoConfiguration);
    };
    let refused = |error| JournalError::Configuration { entry: 1, error };
    let mut port = Port::new(*config).map_err(refused)?;
    let mut actions = 0;
    for (n, entry) in entries {
        match entry? {
            // What is refused here was refused before, too, and the port went on as it was.
            Entry::Input(_, Input::Configure(config)) => drop(port.configure(*config)),
            Entry::Input(at_ns, input) => give(&mut port, Instant::from_ns(at_ns), &input),
            Entry::Output(at_ns, expected) => {
                let action = port.poll(Instant::from_ns(at_ns));
                let found = Output::of(&port, action);
                actions += u64::from(found != Output::Nothing);
                if found != expected {
                    let (expected, found) = (Box::new(expected), Box::new(found));
                    return Err(JournalError::Differs { entry: n + 1, expected, found });
                }
            }
        }
    }
    Ok((port, actions))
}

fn give(port: &mut Port, now: Instant, input: &Input) {
    match input {
        Input::Configure(_) => (),
        Input::ForgetEstimates => port.forget_estimates(),
        Input::Clear => port.clear(|_, _| ()),
        Input::Arrive(packet) => port.handle(now, Event::Arrive(*packet)),
        &Input::Compressed { job, outcome, took_ns } => {
            port.handle(now, Event::Compressed { job, outcome, took_ns });
        }
        Input::Lost { packets, bytes } => {
            port.handle(now, Event::Lost(LostBatch { packets, bytes: *bytes }));
        }
        Input::LinkReady => port.handle(now, Event::LinkReady),
        Input::LinkBusy => port.handle(now, Event::LinkBusy),
        Input::Link(link) => port.handle(now, Event::Link(*link)),
    }
}
