//! The world of a node: clock, codecs, sockets and the TUN.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::{CodecSpec, Compressor};

use super::outbox::Outbox;
use super::trials::Trials;
use super::workers::{Job, Workers};
use crate::io::clock::Clock;
use crate::io::tun::{Tun, TunError, TunWriteBatch};
use crate::io::udp::{SendOutcome, UdpPort};
use crate::node::{
    CodecTrial, CompressJob, Compression, ContextJob, DecodeJob, Destination, Env, NodeEvent,
};

/// A packet that is expected to take longer than this is compressed by the worker, so that the
/// link and the other peers are served meanwhile. Below it the handover to the worker and back
/// costs more than it saves.
const INLINE_NS_MAX: u64 = 150_000;
/// Compressors for each peer: of what is in no context some has the codec of others that pass theirs by.
const COMPRESSORS_MAX: usize = 2;

/// The socket of one peer, and its state.
#[derive(Debug)]
pub(super) struct PeerSocket {
    pub(super) socket: Option<UdpPort>,
    pub(super) outbox: Outbox,
    /// Those that were asked for last.
    pub(super) compressors: Vec<Compressor>,
    pub(super) blocked: bool,
    /// As it was asked for; zero if it is the system's.
    pub(super) send_buffer_bytes: usize,
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// Datagrams are cut on the path to this socket's peer.
    pub(super) fragments: bool,
    /// The path proved to be this narrow.
    pub(super) narrowed: Option<usize>,
    /// The socket is of no use any more, perhaps because our address has changed.
    pub(super) is_broken: bool,
    /// The latest error that the system returned instead of sending.
    pub(super) unsent: Option<io::Error>,
    /// That was logged, and need not be again until it works.
    pub(super) was_reported: bool,
    /// Of where the peer is.
    pub(super) move_log: LogLimit,
}

/// Lets a line into the log once a second, and counts those that it leaves out.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    next_at: Instant,
    left_out: u64,
}

impl LogLimit {
    /// If a line may be written now: how many were left out before it.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        if now < self.next_at {
            self.left_out += 1;
            return None;
        }
        self.next_at = now + SECOND_NS;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl PeerSocket {
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            outbox: Outbox::new(),
            compressors: Vec::new(),
            blocked: false,
            send_buffer_bytes: 0,
            errors: BTreeMap::new(),
            fragments: false,
            narrowed: None,
            is_broken: false,
            unsent: None,
            was_reported: false,
            move_log: LogLimit::default(),
        }
    }

    fn count(&mut self, error: &'static str, datagrams: u64) {
        if datagrams > 0 {
            *self.errors.entry(error).or_default() += datagrams;
        }
    }

    /// Drops what waits for the socket.
    pub(super) fn forget(&mut self) {
        let datagrams = self.outbox.datagrams();
        self.count("failed", datagrams);
        self.outbox.clear();
    }

    /// Gives the kernel what it takes. False if it refuses more for now.
    pub(super) fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            self.forget();
            return true;
        };
        match self.outbox.flush(socket) {
            Ok(flushed) => {
                self.count("refused", flushed.refused);
                self.count("too_big_for_path", flushed.too_big);
                if flushed.too_big > 0 {
                    self.narrowed = flushed.mtu;
                }
                self.was_reported &= flushed.blocked || flushed.refused > 0;
                // No route there, or no address any more to send from: another socket will show it.
                let unreachable =
                    |error: &io::Error| error.kind() == io::ErrorKind::NetworkUnreachable;
                self.is_broken |= flushed.error.as_ref().is_some_and(unreachable);
                self.unsent = flushed.error.or(self.unsent.take());
                self.blocked = flushed.blocked;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.was_reported, true) {
                    tracing::warn!("sending failed: {error}: trying with another socket");
                }
                self.is_broken = true;
                self.forget();
                self.blocked = false;
            }
        }
        !self.blocked
    }
}

/// Packets written to the TUN, and what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TunCount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
}

pub(super) struct OsEnv {
    pub(super) peer_sockets: Vec<PeerSocket>,
    pub(super) listener: UdpPort,
    pub(super) tun: Option<Tun>,
    pub(super) to_tun: TunWriteBatch,
    pub(super) written: TunCount,
    pub(super) workers: Workers,
    pub(super) trials: Trials,
    pub(super) events: Vec<NodeEvent>,
    pub(super) tun_gone: bool,
    /// When the datagram came that is handed to the node, by the kernel.
    pub(super) came_at: Option<Instant>,
}

impl OsEnv {
    /// Writes the collected packets to the TUN.
    pub(super) fn flush_tun(&mut self) {
        if self.to_tun.is_empty() {
            return;
        }
        let Some(tun) = &self.tun else {
            self.written.refused += self.to_tun.len() as u64;
            self.to_tun.clear();
            return;
        };
        let packets = self.to_tun.len() as u64;
        match self.to_tun.flush(tun) {
            Ok(flushed) => {
                self.written.packets += flushed.written as u64;
                self.written.refused += flushed.refused as u64;
            }
            Err(TunError::Gone { .. }) => {
                self.written.refused += packets;
                self.tun_gone = true;
            }
            Err(error) => {
                self.written.refused += packets;
                tracing::debug!("{error}");
            }
        }
    }

    fn compress_elsewhere(&mut self, job: &CompressJob<'_>) -> bool {
        let mut copy = self.workers.packet_job(job.ticket, job.codec, job.cost_ns);
        copy.packet.clear();
        copy.packet.extend_from_slice(job.packet);
        copy.out.resize(job.out.len(), 0);
        self.workers.submit(Job::Packet(copy)).is_none()
    }
}

/// The compressor for a codec: one of these, or another in the place of the oldest.
fn compressor(all: &mut Vec<Compressor>, codec: CodecSpec) -> Option<&mut Compressor> {
    let at = match all.iter().position(|it| it.spec() == codec) {
        Some(at) => at,
        None => {
            let new = Compressor::new(codec, None).ok()?;
            all.truncate(COMPRESSORS_MAX - 1);
            all.insert(0, new);
            0
        }
    };
    all.get_mut(at)
}

impl Env for OsEnv {
    fn now(&self) -> Instant {
        Clock::now()
    }

    fn came_at(&self) -> Option<Instant> {
        self.came_at
    }

    fn unix_ns(&self) -> u64 {
        Clock::unix_ns()
    }

    fn compress(&mut self, job: CompressJob<'_>) -> Compression {
        if job.cost_ns > INLINE_NS_MAX && self.compress_elsewhere(&job) {
            return Compression::Pending;
        }
        let compressors = &mut self.peer_sockets[job.ticket.peer].compressors;
        let Some(compressor) = compressor(compressors, job.codec) else {
            return Compression::Failed;
        };
        let start = Clock::now();
        let result = compressor.compress(job.packet, job.out);
        let took_ns = Clock::now().since_ns(start);
        match result {
            Ok(len) => Compression::Done { len, took_ns },
            Err(_) => Compression::Failed,
        }
    }

    fn compress_in_context(&mut self, mut job: ContextJob) -> Option<ContextJob> {
        if job.cost_ns > INLINE_NS_MAX || job.may_take_long() {
            let Job::Batch(refused) = self.workers.submit(Job::Batch(Box::new(job)))? else {
                return None;
            };
            job = *refused;
        }
        let (start, began) = (Clock::thread_cpu_ns(), Clock::now());
        job.run();
        job.took_ns = Clock::thread_cpu_ns().saturating_sub(start);
        job.elapsed_ns = Some(Clock::now().since_ns(began));
        Some(job)
    }

    fn decode_in_context(&mut self, job: Box<DecodeJob>) -> Option<Box<DecodeJob>> {
        let Job::Decode(mut refused) = self.workers.submit(Job::Decode(job))? else {
            return None;
        };
        let start = Clock::thread_cpu_ns();
        refused.run();
        refused.took_ns = Clock::thread_cpu_ns().saturating_sub(start);
        Some(refused)
    }

    fn try_codecs(&mut self, trial: CodecTrial) -> Option<CodecTrial> {
        self.trials.submit(trial)
    }

    fn datagram(&mut self, peer: usize) -> &mut [u8] {
        self.peer_sockets[peer].outbox.room()
    }

    fn commit(&mut self, peer: usize, len: usize, burst_bytes: u64) -> bool {
        let peer_socket = &mut self.peer_sockets[peer];
        peer_socket.outbox.commit(len);
        // Without a socket it waits for the one that an event brings.
        let is_ready = !peer_socket.blocked && peer_socket.socket.is_some();
        if is_ready && peer_socket.outbox.bytes() as u64 >= burst_bytes {
            peer_socket.flush();
        }
        !peer_socket.blocked
    }

    fn hello(&mut self, to: Destination, datagram: &[u8]) {
        let (port, address): (&UdpPort, Option<SocketAddr>) = match to {
            Destination::Peer(peer) => match &self.peer_sockets[peer].socket {
                Some(socket) => (socket, None),
                None => return,
            },
            Destination::Address(address) => (&self.listener, Some(address)),
        };
        let outcome = match address {
            Some(address) => port.send_to(datagram, None, address),
            None => port.send(datagram, None),
        };
        if outcome.is_sent() {
            return;
        }
        tracing::debug!("a hello was not sent: {outcome:?}");
        if let (Destination::Peer(peer), SendOutcome::Refused(error)) = (to, outcome) {
            self.peer_sockets[peer].unsent = Some(error);
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.written.bytes += packet.len() as u64;
        if !self.to_tun.push(packet) {
            self.flush_tun();
            // An empty batch has room for any packet.
            let taken = self.to_tun.push(packet);
            debug_assert!(taken);
        }
    }

    fn event(&mut self, event: NodeEvent) {
        self.events.push(event);
    }
}
