//! The reason why a peer does not answer, from what comes while handshakes with it are attempted.
//!
//! Most of what is seen here is not authenticated, since there is no session yet: a datagram from
//! the peer's address, an ICMP message. It is used for words to the operator only, never to decide
//! what is sent or accepted. Silence towards unknown peers is by design, so a wrong public key
//! can't be distinguished from a machine that is switched off; then the words name all that may be.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::human;
use dwell_report::status::{PeerState, Problem};
use dwell_wire::CloseReason;

use super::env::{Env, NodeEvent};
use super::peer::Peer;
use super::problems::Finding;
use super::{Node, enter};
use crate::config::{Endpoint, PublicKey, Security};

/// A peer that got this many handshakes, over at least this time, does not answer.
const CALLS_MIN: u32 = 3;
const SILENCE_NS: u64 = 3 * SECOND_NS;
/// An observation counts for this long: longer than the pause between two attempts.
const SEEN_NS: u64 = 15 * SECOND_NS;

/// A handshake of an unknown peer is reported for this long.
const UNKNOWN_PEER_NS: u64 = 60 * SECOND_NS;
/// Peers that are not up are checked this often: handshakes with them begin at most that often.
const REVIEW_NS: u64 = SECOND_NS / 2;

/// The problems of which a peer has one at most: why it is not up.
const REASONS: [Problem; 8] = [
    Problem::Unresolved,
    Problem::Unreachable,
    Problem::PortClosed,
    Problem::NoAnswer,
    Problem::WrongKey,
    Problem::SecurityMismatch,
    Problem::OneWay,
    Problem::Stopped,
];

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Nothing came for this long, though something was sent that is answered.
    Silent {
        /// For how long, in nanoseconds.
        for_ns: u64,
    },
    /// The peer said that it ends the session.
    Closed(CloseReason),
    /// Its keys reached the end of their life, and the peer did not agree on new ones.
    Expired,
}

impl std::fmt::Display for Parting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent { for_ns } => {
                write!(f, "nothing came from it for {}", human::duration(*for_ns))
            }
            Self::Closed(CloseReason::ShuttingDown) => f.write_str("it was stopped"),
            Self::Closed(CloseReason::Reload) => {
                f.write_str("its configuration has no such peer any more, or another key for it")
            }
            Self::Closed(CloseReason::Other(code)) => {
                write!(f, "it ended the session with code {code}")
            }
            Self::Expired => f.write_str("its keys expired, and it did not agree on new ones"),
        }
    }
}

/// Why nothing could be sent to a peer, by the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// An ICMP message: nobody listens at that port.
    PortClosed,
    /// Something else, in the system's words.
    Unreachable(String),
}

/// Datagrams from the peer's address that don't fit the peer's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// A hello that its pre-shared key does not open.
    OtherPsk,
    /// An answer to our initiation that does not open: with right public keys it is the pre-shared key.
    BadResponse,
    /// An initiation of a node with this public key, which proved to have the private one.
    OtherPublicKey(PublicKey),
    /// An initiation for a node with another public key than ours.
    OtherOwnKey,
    /// The beginning of an exchange by other means: `"keys"`, `"psk"` or `"none"`.
    OtherSecurity(&'static str),
}

/// Observations of a peer while it is not up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnosis {
    attempts: u32,
    attempted_since: Option<Instant>,
    /// Initiations of the peer that were answered, and since when.
    answers: u32,
    answered_since: Option<Instant>,
    unsent: Option<(Unsent, u32, Instant)>,
    foreign: Option<(Foreign, Instant)>,
    unresolved: Option<String>,
    stopped: bool,
    reviewed_at: Option<Instant>,
}

impl Diagnosis {
    /// The peer proved to be there.
    pub(crate) fn received(&mut self) {
        *self = Self::default();
    }

    /// The peer said why it ends the session, or we did.
    pub(crate) fn parted(&mut self, parting: Parting) {
        *self = Self::default();
        self.stopped = parting == Parting::Closed(CloseReason::ShuttingDown);
    }

    /// A handshake with the peer was attempted.
    pub(crate) fn attempted(&mut self, now: Instant) {
        self.attempts = self.attempts.saturating_add(1);
        self.attempted_since.get_or_insert(now);
    }

    /// The peer began a handshake, and got an answer.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.answers = self.answers.saturating_add(1);
        self.answered_since.get_or_insert(now);
        // It runs again, whatever it said.
        self.stopped = false;
    }

    /// The system refused to send, or an ICMP message came.
    pub(crate) fn unsent(&mut self, now: Instant, unsent: Unsent) {
        let times = match &self.unsent {
            Some((known, times, at)) if *known == unsent && now < *at + SEEN_NS => {
                times.saturating_add(1)
            }
            _ => 1,
        };
        self.unsent = Some((unsent, times, now));
    }

    /// Something foreign came from the peer's address.
    pub(crate) fn foreign(&mut self, now: Instant, foreign: Foreign) {
        self.foreign = Some((foreign, now));
    }

    /// The name of the peer's endpoint was looked up: the resolver's error, if it does not resolve.
    pub(crate) fn resolved(&mut self, error: Option<String>) {
        self.unresolved = error;
    }

    /// Why the peer is not up, if that can be said by now.
    fn reason(&self, now: Instant, peer: &Facts<'_>) -> Option<Finding> {
        let recent = |at: Instant| now < at + SEEN_NS;
        if let Some(error) = self.unresolved.as_ref().filter(|_| peer.endpoint.is_none()) {
            return Some(unresolved(error, peer));
        }
        if self.stopped {
            return Some(stopped());
        }
        if let Some((foreign, _)) = self.foreign.filter(|(_, at)| recent(*at)) {
            return Some(foreign_finding(foreign, peer));
        }
        let unsent = self.unsent.as_ref().filter(|(_, times, at)| *times > 1 && recent(*at));
        match (unsent, peer.endpoint) {
            (Some((Unsent::PortClosed, ..)), Some(at)) => return Some(port_closed(at)),
            (Some((Unsent::Unreachable(error), ..)), Some(at)) => {
                return Some(unreachable(at, error));
            }
            _ => {}
        }
        let long = |times: u32, since: Option<Instant>| {
            times >= CALLS_MIN && since.is_some_and(|since| now >= since + SILENCE_NS)
        };
        if long(self.answers, self.answered_since) {
            return Some(one_way(peer));
        }
        let at = peer.endpoint.filter(|_| long(self.attempts, self.attempted_since))?;
        Some(no_answer(at, peer))
    }
}

/// The configuration and the state of a peer.
struct Facts<'a> {
    configured: Option<&'a Endpoint>,
    endpoint: Option<SocketAddr>,
    security: &'a Security,
    own_key: Option<PublicKey>,
}

fn finding(problem: Problem, why: String, remedy: impl Into<String>) -> Finding {
    Finding { problem, why, remedy: remedy.into() }
}

fn unresolved(error: &str, peer: &Facts<'_>) -> Finding {
    let host = match peer.configured {
        Some(Endpoint::Name { host, .. }) => host.as_str(),
        _ => "its name",
    };
    finding(
        Problem::Unresolved,
        format!("The name {host} does not resolve: {error}."),
        format!(
            "Check the name under endpoint, and this machine's resolver (getent hosts {host}), or \
             write the address. It is looked up again every ten seconds."
        ),
    )
}

fn stopped() -> Finding {
    finding(
        Problem::Stopped,
        "The relay there was stopped, and said so.".to_owned(),
        "Start it there again; this relay tries until it answers.",
    )
}

fn port_closed(at: SocketAddr) -> Finding {
    let port = at.port();
    finding(
        Problem::PortClosed,
        format!("Nobody listens at {at}: that machine answers that UDP port {port} is closed."),
        "Start the relay there (dwell relay), and compare its listen with the port of endpoint \
         here. If that is the address of its router, have it forward this UDP port.",
    )
}

fn unreachable(at: SocketAddr, error: &str) -> Finding {
    finding(
        Problem::Unreachable,
        format!("Datagrams to {at} can't be sent: {error}."),
        format!(
            "Look at the route (ip route get {}), at the interface that it leads to, and at this \
             machine's firewall for outgoing UDP.",
            at.ip()
        ),
    )
}

/// Which key or secret of ours the peer must have to answer.
fn credentials(peer: &Facts<'_>) -> String {
    match (peer.security, peer.own_key) {
        (Security::Keys { psk, .. }, Some(own)) => {
            let psk = if psk.is_some() { ", and the same psk_file" } else { "" };
            format!(
                "that it runs with the private key of the public_key written here, and that its \
                 configuration has this node's public key, {own}{psk}"
            )
        }
        (Security::Keys { .. } | Security::Psk(_), _) => "that it has the same psk_file".to_owned(),
        (Security::None, _) => "that it has security = \"none\" too, and this node's address as \
                                its peer's endpoint"
            .to_owned(),
    }
}

fn no_answer(at: SocketAddr, peer: &Facts<'_>) -> Finding {
    let port = at.port();
    finding(
        Problem::NoAnswer,
        format!(
            "Nothing comes back from {at}: no relay runs there, a firewall drops UDP, or it does \
             not know this node and is silent by design."
        ),
        format!(
            "Check there that dwell relay runs and listens on port {port}, that firewalls on the \
             path let UDP to that port pass, and {}. The status there counts handshakes that it does \
             not accept.",
            credentials(peer)
        ),
    )
}

fn one_way(peer: &Facts<'_>) -> Finding {
    let psk = match peer.security {
        Security::Keys { .. } => ", or its psk_file is another one",
        _ => "",
    };
    finding(
        Problem::OneWay,
        format!(
            "Its handshakes arrive and are answered, but the answers do not arrive there{psk}."
        ),
        "Look for a firewall that drops UDP from here to there, and for a NAT whose mapping is \
         gone; compare psk_file on both ends if there is one.",
    )
}

fn foreign_finding(foreign: Foreign, peer: &Facts<'_>) -> Finding {
    let at = peer.endpoint.map_or_else(|| "its address".to_owned(), |at| at.to_string());
    match foreign {
        Foreign::OtherPsk => finding(
            Problem::WrongKey,
            format!("Handshakes come from {at}, but under another pre-shared key."),
            "Copy the psk_file of one end to the other one.",
        ),
        Foreign::BadResponse => finding(
            Problem::WrongKey,
            format!("Answers come from {at} that do not open: the pre-shared key there differs."),
            "Copy the psk_file of one end to the other one, or leave it out on both.",
        ),
        Foreign::OtherPublicKey(key) => finding(
            Problem::WrongKey,
            format!("The node at {at} uses the public key {key}, which no peer here has."),
            format!(
                "If that is this peer, write public_key = \"{key}\" for it here (dwell pubkey \
                 FILE there shows its key)."
            ),
        ),
        Foreign::OtherOwnKey => finding(
            Problem::WrongKey,
            format!(
                "Handshakes come from {at} that are meant for another public key than this node's."
            ),
            match peer.own_key {
                Some(own) => format!("Write public_key = \"{own}\" for this node there."),
                None => "Give this node a private_key_file.".to_owned(),
            },
        ),
        Foreign::OtherSecurity(there) => finding(
            Problem::SecurityMismatch,
            format!(
                "The node at {at} uses {}, and this one uses {} for it.",
                in_words(there),
                in_words(peer.security.name())
            ),
            "Configure both ends alike: public_key on both, psk_file on both, or security = \
             \"none\" on both.",
        ),
    }
}

fn in_words(security: &str) -> &'static str {
    match security {
        "keys" => "key pairs (public_key)",
        "psk" => "a pre-shared key (psk_file)",
        _ => "no security at all",
    }
}

impl Node {
    /// [`Node::review`], as often as it is worth it.
    pub(super) fn review_if_due(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &self.peers[index];
        let is_due = |at: Instant| now >= at + REVIEW_NS;
        if peer.state != PeerState::Up && peer.diagnosis.reviewed_at.is_none_or(is_due) {
            self.review(env, now, index);
        }
    }

    /// Looks again why a peer is not up, and reports what changed.
    fn review(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        self.peers[index].diagnosis.reviewed_at = Some(now);
        let peer = &self.peers[index];
        let reason = match peer.state {
            PeerState::Up => None,
            _ => peer.diagnosis.reason(now, &self.facts(peer)),
        };
        let problems = &mut self.peers[index].problems;
        for over in REASONS {
            let stays = reason.as_ref().is_some_and(|it| it.problem == over);
            // Another reason that takes its place is news enough.
            if !stays && problems.clear(over) && reason.is_none() {
                env.event(NodeEvent::Solved(Some(index), over));
            }
        }
        if let Some(reason) = reason {
            self.note_problem(env, Some(index), reason);
        }
    }

    fn facts<'a>(&self, peer: &'a Peer) -> Facts<'a> {
        Facts {
            configured: peer.config.endpoint.as_ref(),
            endpoint: peer.endpoint,
            security: &peer.config.security,
            own_key: self.own_key,
        }
    }

    /// The peer is up.
    pub(super) fn came_up(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        self.peers[index].diagnosis.received();
        if enter(&mut self.peers[index].state, PeerState::Up) {
            env.event(NodeEvent::Up(index));
        }
        self.review(env, now, index);
    }

    /// Something came from this address that is not of the peer that is configured there.
    pub(super) fn saw_foreign(&mut self, now: Instant, source: SocketAddr, foreign: Foreign) {
        let at_home = |peer: &&mut Peer| !peer.removed && peer.endpoint == Some(source);
        for peer in self.peers.iter_mut().filter(at_home) {
            let foreign = match foreign {
                // It has no key that could be the right one.
                Foreign::OtherPublicKey(_) | Foreign::OtherOwnKey if !peer.handshake.is_keyed() => {
                    Foreign::OtherSecurity("keys")
                }
                foreign => foreign,
            };
            if peer.state != PeerState::Up {
                peer.diagnosis.foreign(now, foreign);
            }
        }
    }

    /// A node initiates that has this key, which no peer has.
    pub(super) fn unknown_peer(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        source: SocketAddr,
        key: PublicKey,
    ) {
        self.saw_foreign(now, source, Foreign::OtherPublicKey(key));
        self.unknown_peer_at = Some(now);
        let why = format!("A node at {source} uses the public key {key}, which no peer here has.");
        let remedy = format!(
            "If it is one of yours, write public_key = \"{key}\" in its [[peer]]; otherwise \
             somebody has this node's public key and tries. It gets no answer."
        );
        self.note_problem(env, None, finding(Problem::UnknownPeer, why, remedy));
    }

    /// Forgets unknown peers whose handshakes were long ago.
    pub(super) fn forget_unknown_peers(&mut self, env: &mut impl Env, now: Instant) {
        if self.unknown_peer_at.is_some_and(|at| now >= at + UNKNOWN_PEER_NS) {
            self.unknown_peer_at = None;
            self.clear_problem(env, None, Problem::UnknownPeer);
        }
    }

    /// The operating system could not send to a peer, or an ICMP message came back.
    pub fn unsent(&mut self, env: &mut impl Env, peer: usize, unsent: Unsent) {
        let now = env.now();
        let Some(it) = self.peers.get_mut(peer).filter(|peer| !peer.removed) else { return };
        if it.state != PeerState::Up {
            it.diagnosis.unsent(now, unsent);
            self.review(env, now, peer);
        }
    }

    /// The name of a peer's endpoint was looked up: `error` is the resolver's if it failed.
    pub fn resolved(&mut self, env: &mut impl Env, peer: usize, error: Option<String>) {
        let now = env.now();
        let Some(it) = self.peers.get_mut(peer).filter(|peer| !peer.removed) else { return };
        it.diagnosis.resolved(error);
        self.review(env, now, peer);
    }
}
