//! The environment that a node needs.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_codec::CodecSpec;
use dwell_policy::{JobId, PacketId};
use dwell_report::status::Problem;

use super::contexts::{CodecTrial, ContextJob, DecodeJob};
use super::diagnosis::Parting;
use super::problems::Finding;

/// Names a packet being compressed, so that its result can be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The peer that it is for.
    pub peer: usize,
    /// Which of the peers that had this index: a configuration may have put another there.
    pub(super) generation: u64,
    /// Its first packet, and its name in the port of that peer.
    pub(super) id: PacketId,
    pub(super) job: JobId,
    /// With what it is compressed: until it is done, the configuration may name another codec.
    pub(super) codec: CodecSpec,
    /// The group of its packets, if it is compressed outside of their context.
    pub(super) group: Option<u64>,
    /// The length of the block that it is, if its headers are in columns.
    pub(super) columnar_len: Option<u16>,
}

/// A packet to be compressed.
#[derive(Debug)]
pub struct CompressJob<'a> {
    /// Its name.
    pub ticket: Ticket,
    /// With what.
    pub codec: CodecSpec,
    /// The packet.
    pub packet: &'a [u8],
    /// Room for the result; a result that doesn't fit is not smaller.
    pub out: &'a mut [u8],
    /// The expected time of the compression, in nanoseconds.
    pub cost_ns: u64,
}

/// The outcome of a [`CompressJob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is done.
    Done {
        /// The length of the result in `out`, or none if it did not become smaller.
        len: Option<usize>,
        /// The time that it took, in nanoseconds.
        took_ns: u64,
    },
    /// The codec failed.
    Failed,
    /// A worker has a copy; the result comes by [`Node::compressed`](super::Node::compressed).
    Pending,
}

/// Something that the driver should know or do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The peer answers: routes to it may be set.
    Up(usize),
    /// The peer is silent or left: what happens to its routes is configured.
    Down(usize, Parting),
    /// The peer was restarted, or has other memory for histories, and was not missed meanwhile.
    Restarted(usize),
    /// Something is wrong with a peer, or, without one, with the node: it begins.
    Problem(Option<usize>, Finding),
    /// That is over.
    Solved(Option<usize>, Problem),
    /// The peer proved to be at this address.
    Moved(usize, SocketAddr),
    /// The peer can't decode the configured codec; everything is sent raw.
    CodecRefused(usize),
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the peer's endpoint.
    Peer(usize),
    /// To an address that asked, and is not (yet) a peer's endpoint.
    Address(SocketAddr),
}

/// The world around a [`Node`](super::Node): a clock, a compression, a link per peer and a TUN.
///
/// The relay implements it with system calls, tests with vectors and a virtual clock.
pub trait Env {
    /// The present time. Compressing takes time: two calls may differ.
    fn now(&self) -> Instant;

    /// When the datagram that is handed over came, if that is known better than by the time of its reading.
    fn came_at(&self) -> Option<Instant> {
        None
    }

    /// The time in UTC, in nanoseconds since 1970: handshakes carry it. It may jump.
    fn unix_ns(&self) -> u64;

    /// Compresses a packet, or hands a copy to a worker.
    fn compress(&mut self, job: CompressJob<'_>) -> Compression;

    /// Compresses a batch in a context by [`ContextJob::run`] and gives it back; or hands it to a
    /// worker, and it comes back by
    /// [`Node::compressed_in_context`](super::Node::compressed_in_context).
    fn compress_in_context(&mut self, job: ContextJob) -> Option<ContextJob>;

    /// Decodes a batch in a context by [`DecodeJob::run`] and gives it back; or hands it to a worker, and it
    /// comes back by [`Node::decoded_in_context`](super::Node::decoded_in_context).
    ///
    /// The default does it at once.
    fn decode_in_context(&mut self, mut job: Box<DecodeJob>) -> Option<Box<DecodeJob>> {
        job.run();
        Some(job)
    }

    /// Tries codecs by [`CodecTrial::run`] and gives the result back; or hands them to somebody who does it in time
    /// that nobody else wants, and it comes back by [`Node::tried`](super::Node::tried).
    ///
    /// In virtual time, the default, it takes none.
    fn try_codecs(&mut self, mut trial: CodecTrial) -> Option<CodecTrial> {
        trial.run_in_no_time();
        Some(trial)
    }

    /// Room for the next datagram to this peer: at least 65,507 bytes.
    fn datagram(&mut self, peer: usize) -> &mut [u8];

    /// The datagram in that room is complete with `len` bytes. The driver may keep it back
    /// until `burst_bytes` have come together or the node has nothing more to say. False if
    /// the link refuses more for now; the datagram is kept all the same.
    fn commit(&mut self, peer: usize, len: usize, burst_bytes: u64) -> bool;

    /// Sends a hello at once; one that can't be sent may be lost.
    fn hello(&mut self, to: Destination, datagram: &[u8]);

    /// Writes a packet to the TUN.
    fn deliver(&mut self, packet: &[u8]);

    /// Takes note of an event.
    fn event(&mut self, event: NodeEvent);
}
