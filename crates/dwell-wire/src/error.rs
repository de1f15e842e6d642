//! Errors in bytes from the network.

use thiserror::Error;

/// The reason why a datagram, a record or a hello is refused. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before a field that must be there.
    #[error("ends before a field that must be there")]
    Truncated,
    /// Another version of the format than [`crate::header::VERSION`].
    #[error("version {0} of the format is not supported")]
    Version(u8),
    /// A kind of datagram that this version does not have.
    #[error("there is no datagram of kind {0}")]
    Kind(u8),
    /// The record type 0, which is never sent.
    #[error("a record has the invalid type 0")]
    RecordType,
    /// A record claims more bytes than the datagram has left.
    #[error("a record is longer than its datagram")]
    RecordLength,
    /// A record without a single byte after its header.
    #[error("a record is empty")]
    RecordEmpty,
    /// A compressed packet or block that is empty, or not smaller than the original that it
    /// declares.
    #[error("a compressed packet or block is empty or not smaller than its original")]
    CompressedLength,
    /// A fragment that is empty, of a record in too many parts, or beyond the last of them.
    #[error("a fragment is empty or none of its record's")]
    Fragment,
    /// A carried record without a hop limit, without a valid label, or with other content than a
    /// compressed packet or block.
    #[error("a carried record has no hop limit, no valid label, or no packet or block")]
    Carried,
    /// A context record without data, of no original length, or with a raw packet and flags that
    /// are for batches.
    #[error("a context record is empty, or has a raw packet and flags of a batch")]
    Context,
    /// A control message of a known subtype is shorter than its fields.
    #[error("a control message is shorter than its fields")]
    ControlLength,
}

/// A record does not go into a body: no room is left, or the body is closed by a record that
/// reaches to its end, or no such record can exist (an empty packet, a compressed packet or block
/// that is not smaller than its original).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record does not fit into the body")]
pub struct Full;

/// The reason why bytes are not an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Fewer bytes than the fixed header, or than the length that the header declares.
    #[error("the packet ends before its declared length")]
    Truncated,
    /// Neither 4 nor 6.
    #[error("IP version {0} is neither 4 nor 6")]
    Version(u8),
    /// The IPv4 header length is below the fixed header's 20 bytes.
    #[error("the IPv4 header length is below 20 bytes")]
    HeaderLength,
    /// The IPv4 total length does not cover the header.
    #[error("the IPv4 total length does not cover the header")]
    TotalLength,
}
