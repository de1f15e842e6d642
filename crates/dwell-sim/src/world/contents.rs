//! Packets that have contents: they come from a capture, and are really compressed.

use std::fmt;

use dwell_base::Instant;
use dwell_policy::{ClassKey, FrameCost, Job, Outcome, Packet};

/// A packet of a flow with [`Traffic::Recorded`](crate::plan::Traffic::Recorded), or with
/// [`Traffic::Trace`](crate::plan::Traffic::Trace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The index of the flow.
    pub flow: usize,
    /// The number of the packet in its trace.
    pub number: usize,
}

/// The properties of a packet by which a port decides, as a relay reads them from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its class by source port.
    pub source: ClassKey,
    /// Its class by destination port.
    pub destination: ClassKey,
    /// A hash of its flow.
    pub flow: u64,
    /// The packets that it may be compressed with.
    pub group: u64,
    /// True if its payload looks random.
    pub looks_random: bool,
    /// The longest time that a port may hold it back, in nanoseconds.
    pub max_wait_ns: u64,
}

impl Described {
    /// Puts these properties in place of those of a packet's flow.
    pub(crate) fn apply(self, packet: &mut Packet) {
        let Self { source, destination, flow, group, looks_random, max_wait_ns } = self;
        *packet = Packet { source, destination, flow, group, looks_random, max_wait_ns, ..*packet };
    }
}

/// The contents of a simulation's packets.
///
/// Links are named by their index. What can't be said is as without contents: the flow's own properties, and the model of
/// the compressor.
pub trait Contents {
    /// Describes a packet that arrives at the port of a link.
    fn describe(&mut self, now: Instant, link: usize, packet: Content) -> Option<Described>;

    /// Compresses a batch at the port of a link; returns the outcome and the time taken, in nanoseconds.
    fn compress(
        &mut self,
        now: Instant,
        link: usize,
        batch: &[Content],
        job: (&Job, &FrameCost),
    ) -> Option<(Outcome, u64)>;
}

/// Contents, or none.
#[derive(Default)]
pub(crate) struct Carried(pub(crate) Option<Box<dyn Contents>>);

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "contents" } else { "no contents" })
    }
}
