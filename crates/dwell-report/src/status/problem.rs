//! Problems of a peer or a node: names for programs, sentences for people.

use serde::{Deserialize, Serialize};

/// A kind of problem. A node has at most one of each kind with each peer, and one of its own.
///
/// A new kind is a variant here, with its name, and its place in [`Problem::OF_PEERS`] or
/// [`Problem::OF_NODE`]; status, metrics and log follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The name of the peer's endpoint does not resolve.
    Unresolved,
    /// No route leads to the peer's endpoint, or a firewall of this machine forbids to send there.
    Unreachable,
    /// The peer's machine reports that nothing listens at the port.
    PortClosed,
    /// Nothing comes back from the peer's endpoint.
    NoAnswer,
    /// The peer has other keys than those in the configuration.
    WrongKey,
    /// The two ends are configured for different kinds of security.
    SecurityMismatch,
    /// The peer's initiations arrive here, but the answers do not arrive there.
    OneWay,
    /// The peer was stopped in an orderly way.
    Stopped,
    /// The peer is connected, but no datagrams sent to it arrive.
    NotDelivered,
    /// Full-sized datagrams disappear on the path without an ICMP message.
    PathMtu,
    /// The configured rate looks like more than the link carries.
    RateTooHigh,
    /// The peer sends packets from addresses that are not in its prefixes.
    NotAllowed,
    /// The peer has another dictionary than this node, or none.
    DictionaryMismatch,
    /// More comes in models than the processors of this machine decode.
    DecodesSlowly,
    /// The peer's clock differs much from this machine's.
    ClockDiffers,
    /// Other routes of this machine lead packets for the peer past the tunnel.
    Bypassed,
    /// The route to the peer's endpoint leads into the tunnel itself.
    EndpointInTunnel,
    /// A node that is not a peer initiates a handshake.
    UnknownPeer,
    /// Somebody has taken the interface down.
    InterfaceDown,
}

impl Problem {
    /// The problems that a peer can have.
    pub const OF_PEERS: [Self; 17] = [
        Self::Unresolved,
        Self::Unreachable,
        Self::PortClosed,
        Self::NoAnswer,
        Self::WrongKey,
        Self::SecurityMismatch,
        Self::OneWay,
        Self::Stopped,
        Self::NotDelivered,
        Self::PathMtu,
        Self::RateTooHigh,
        Self::NotAllowed,
        Self::DictionaryMismatch,
        Self::DecodesSlowly,
        Self::ClockDiffers,
        Self::Bypassed,
        Self::EndpointInTunnel,
    ];

    /// The problems of the node itself.
    pub const OF_NODE: [Self; 2] = [Self::UnknownPeer, Self::InterfaceDown];

    /// Returns the name in records, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Unreachable => "unreachable",
            Self::PortClosed => "port_closed",
            Self::NoAnswer => "no_answer",
            Self::WrongKey => "wrong_key",
            Self::SecurityMismatch => "security_mismatch",
            Self::OneWay => "one_way",
            Self::Stopped => "stopped",
            Self::NotDelivered => "not_delivered",
            Self::PathMtu => "path_mtu",
            Self::RateTooHigh => "rate_too_high",
            Self::DecodesSlowly => "decodes_slowly",
            Self::NotAllowed => "not_allowed",
            Self::DictionaryMismatch => "dictionary_mismatch",
            Self::ClockDiffers => "clock_differs",
            Self::Bypassed => "bypassed",
            Self::EndpointInTunnel => "endpoint_in_tunnel",
            Self::UnknownPeer => "unknown_peer",
            Self::InterfaceDown => "interface_down",
        }
    }
}

/// A problem that exists now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemStatus {
    /// Its kind, by [`Problem::name`]. Readers may meet names that they do not know.
    pub problem: String,
    /// The time for which it has been known.
    pub for_ns: u64,
    /// The facts known about it, in full sentences.
    pub why: String,
    /// The advice on it, in full sentences.
    pub remedy: String,
}

impl ProblemStatus {
    /// Returns true if it is of this kind.
    pub fn is(&self, problem: Problem) -> bool {
        self.problem == problem.name()
    }
}
