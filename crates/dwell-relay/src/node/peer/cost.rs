//! The lengths of datagrams to a peer, and their cost on the link.

use std::net::SocketAddr;

use dwell_policy::FrameCost;
use dwell_wire::block::{BLOCK_HEADER_LEN, FRAGMENTS_MAX};
use dwell_wire::context::{CONTEXT_BATCH_HEADER_LEN, CONTEXT_RAW_HEADER_LEN};
use dwell_wire::header::{COMPRESSED_HEADER_LEN, RECORD_HEADER_LEN};
use dwell_wire::record::{RECORD_BODY_NAMED_MAX, RESENT_RECORD_LEN, fragment_record_len};

use super::Peer;
use crate::node::pacer::Pacing;
use crate::trust::Session;

/// Bytes of UDP and IP headers: IPv4.
const UDP_V4_BYTES: u32 = 28;
/// The same for IPv6.
const UDP_V6_BYTES: u32 = 48;
/// Packets in one datagram; more if it is filled with small ones on purpose.
const UNITS_MAX: u32 = 64;
const CHUNK_UNITS_MAX: u32 = 1024;

impl Peer {
    /// Returns the cost of a datagram of this length on the link, in bytes.
    pub(crate) fn link_bytes(&self, datagram_len: usize) -> u64 {
        u64::from(self.frame_bytes() - self.session_bytes()) + datagram_len as u64
    }

    /// Returns the bytes that a datagram of this length takes of the link's rate: of one that is written all that
    /// the link makes of it; of one that is found only what was counted when it was.
    pub(crate) fn paced_bytes(&self, datagram_len: usize) -> u64 {
        match self.pacer.pacing() {
            Pacing::Fixed(_) => {
                let ip_bytes = u64::from(self.udp_bytes()) + datagram_len as u64;
                self.config.link_overhead.link_bytes(ip_bytes)
            }
            Pacing::Auto | Pacing::Unlimited => self.link_bytes(datagram_len),
        }
    }

    /// Returns the most bytes of records that a frame may have.
    pub(crate) fn units_bytes_max(&self) -> usize {
        usize::from(self.datagram_max()) - self.session_bytes() as usize
    }

    /// Returns the most bytes of a cut record that go into a datagram: room is left for the mark of
    /// a retransmission.
    pub(crate) fn part_bytes_max(&self) -> usize {
        let taken = fragment_record_len(0) + RESENT_RECORD_LEN;
        self.units_bytes_max().saturating_sub(taken).max(1)
    }

    /// Returns the most bytes that a compressed block may have: the parts of a record are limited.
    pub(crate) fn cut_bytes_max(&self) -> usize {
        FRAGMENTS_MAX * self.part_bytes_max() - RECORD_HEADER_LEN - BLOCK_HEADER_LEN
    }

    pub(super) fn frame_cost(&self) -> FrameCost {
        let record = RECORD_HEADER_LEN as u32;
        let header = match self.has_contexts() {
            true => CONTEXT_BATCH_HEADER_LEN,
            false => COMPRESSED_HEADER_LEN,
        };
        FrameCost {
            frame_bytes: self.frame_bytes(),
            raw_unit_bytes: record,
            compressed_unit_bytes: record + header as u32,
            units_bytes_max: (self.units_bytes_max() - self.spare_bytes()) as u32,
            fragment_bytes: fragment_record_len(0) as u32,
            fragment_spare_bytes: RESENT_RECORD_LEN as u32,
            unit_bytes_named: record + RECORD_BODY_NAMED_MAX as u32,
            units_max: if self.is_to_chunk() { CHUNK_UNITS_MAX } else { UNITS_MAX },
        }
    }

    pub(in crate::node) fn session_bytes(&self) -> u32 {
        Session::overhead_of(self.handshake.is_sealed()) as u32
    }

    /// Returns the cost of a datagram on the link beside its records, in bytes.
    pub(crate) fn frame_bytes(&self) -> u32 {
        self.config.link_overhead.bytes + self.udp_bytes() + self.session_bytes()
    }

    pub(crate) fn udp_bytes(&self) -> u32 {
        match self.endpoint {
            Some(SocketAddr::V4(_)) => UDP_V4_BYTES,
            Some(SocketAddr::V6(_)) | None => UDP_V6_BYTES,
        }
    }

    /// The longest datagram to send.
    pub(crate) fn datagram_max(&self) -> u16 {
        let allowed = self.datagram_max_allowed();
        self.path_mtu.limit().map_or(allowed, |passes| passes.min(allowed))
    }

    /// The longest datagram that the kernel and the peer allow.
    pub(super) fn datagram_max_allowed(&self) -> u16 {
        self.path_datagram_max.min(self.peer_datagram_max)
    }

    /// The longest packet that fits into a datagram, raw.
    pub(crate) fn packet_max(&self) -> u16 {
        let taken = self.session_bytes() as usize + RECORD_HEADER_LEN + self.spare_bytes();
        self.datagram_max() - taken as u16
    }

    /// Returns the bytes of each datagram that are kept free for what contexts may add to a record,
    /// and to a datagram that is retransmitted.
    fn spare_bytes(&self) -> usize {
        if self.has_contexts() { CONTEXT_RAW_HEADER_LEN + RESENT_RECORD_LEN } else { 0 }
    }
}
