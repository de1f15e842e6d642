//! Peers that are known by their public keys: their handshakes, and where they are.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use dwell_report::status::PeerState;
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::{Cookie, DataHeader, Hello, Initiation, Response};

use super::Node;
use super::before::mark_end;
use super::diagnosis::Foreign;
use super::env::{Destination, Env, NodeEvent};
use super::outbound::probe;
use super::peer::Peer;
use super::turns::DATAGRAM_NS;
use crate::config::PublicKey;
use crate::trust::{Admission, Answer, GateCounts, HELLO_LEN_MAX, Opened, Responded};

/// Within a session a peer moves at most once in this time.
const MOVE_GAP_NS: u64 = 100 * MILLI_NS;
/// The cost of a move: the peer's socket is closed, and another one is made.
const MOVE_NS: u64 = 200_000;

impl Node {
    /// Returns the outcomes of all initiations.
    pub fn gate_counts(&self) -> GateCounts {
        self.identity.as_ref().map(crate::trust::Identity::counts).unwrap_or_default()
    }

    /// Somebody begins an exchange. Only a peer gets more of an answer than perhaps a cookie.
    pub(super) fn initiation(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        source: SocketAddr,
        initiation: &Initiation<'_>,
    ) {
        let Some(identity) = &mut self.identity else {
            self.drops.unknown_key += 1;
            self.saw_foreign(now, source, Foreign::OtherSecurity("keys"));
            return;
        };
        let at_home = |peer: &Peer| !peer.removed && peer.endpoint == Some(source);
        let is_known = self.peers.iter().any(at_home);
        match identity.admit(now, source, is_known, initiation) {
            Admission::InvalidMac => {
                self.saw_foreign(now, source, Foreign::OtherOwnKey);
                return;
            }
            Admission::Refused => return,
            Admission::Cookie(cookie) => {
                env.hello(Destination::Address(source), &cookie);
                return;
            }
            Admission::Examine => {}
        }
        let examined = identity.examine(initiation);
        let of = |key: &[u8; 32]| {
            self.peers.iter().position(|peer| !peer.removed && peer.handshake.is_with(key))
        };
        let Some(examined) = examined else {
            self.drops.unknown_key += 1;
            return;
        };
        let Some(index) = of(&examined.public) else {
            self.drops.unknown_key += 1;
            self.unknown_peer(env, now, source, PublicKey::new(examined.public));
            return;
        };
        let peer = &mut self.peers[index];
        let payload = examined.payload().to_vec();
        let mut out = [0; HELLO_LEN_MAX];
        let times = (now, env.unix_ns());
        let answer =
            peer.handshake.answer(times, initiation.sender, examined.state, &payload, &mut out);
        match answer {
            Answer::Replayed => {
                self.drops.hello_replayed += 1;
                // Perhaps it was started again, and its clock is behind: then it does not know
                // our session, and will not answer.
                if peer.may_ask(now) {
                    probe(peer, index, env, now);
                }
            }
            Answer::Malformed => self.drops.malformed_datagram += 1,
            Answer::Written(len) => {
                peer.diagnosis.answered(now);
                if peer.endpoint == Some(source) {
                    env.hello(Destination::Peer(index), &out[..len]);
                    peer.sent_hello(now, len);
                } else {
                    // The peer is moved when it proves to have got this.
                    env.hello(Destination::Address(source), &out[..len]);
                }
                self.review_if_due(env, now, index);
            }
        }
    }

    /// A peer answers our initiation.
    pub(super) fn response(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        source: SocketAddr,
        response: &Response<'_>,
    ) {
        let awaits = |peer: &Peer| !peer.removed && peer.handshake.awaits(response.receiver);
        let Some(index) = self.peers.iter().position(awaits) else {
            self.drops.unknown_key += 1;
            return;
        };
        match self.peers[index].handshake.responded(now, response) {
            Responded::Rejected => {
                self.peers[index].rx.auth_failed += 1;
                self.saw_foreign(now, source, Foreign::BadResponse);
            }
            Responded::Installed(hello) => {
                self.installed(env, now, index, source, &hello);
                // The peer may not send by the new session before it receives something from us by it. The
                // answer to this is awaited, and asked for again.
                probe(&mut self.peers[index], index, env, now);
            }
        }
    }

    /// A peer is busy, and wants to see that we are where we say.
    pub(super) fn cookie(&mut self, now: Instant, cookie: &Cookie) {
        let taken = self.peers.iter_mut().any(|peer| {
            !peer.removed
                && peer.handshake.awaits(cookie.receiver)
                && peer.handshake.cookie(now, cookie)
        });
        self.drops.unknown_key += u64::from(!taken);
    }

    /// A session with a peer came into use: it is where its datagram came from.
    pub(super) fn installed(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        source: SocketAddr,
        hello: &Hello,
    ) {
        self.stop_waiting(env, now, index);
        self.moved(env, now, index, source);
        let peer = &mut self.peers[index];
        let was_up = peer.state == PeerState::Up;
        let connected = peer.connected(now, hello);
        mark_end(peer, index, env, now);
        if connected.is_codec_refused {
            env.event(NodeEvent::CodecRefused(index));
        }
        // Of one that was down it is said that it is up.
        if connected.is_another && was_up {
            env.event(NodeEvent::Restarted(index));
        }
        self.compare_dictionaries(env, index);
        self.came_up(env, now, index);
    }

    fn moved(&mut self, env: &mut impl Env, now: Instant, index: usize, source: SocketAddr) {
        let peer = &mut self.peers[index];
        if peer.endpoint != Some(source) {
            peer.moved_at = Some(now);
            peer.turn.charge(MOVE_NS);
            peer.set_endpoint(source);
            env.event(NodeEvent::Moved(index, source));
        }
    }

    /// A datagram of a session that is in use came from elsewhere. Who has a key could send each
    /// from another address, and a move costs much more than a datagram. What comes too soon
    /// after a move is taken all the same; the next one moves the peer.
    fn roamed(&mut self, env: &mut impl Env, now: Instant, index: usize, source: SocketAddr) {
        let moved_at = self.peers[index].moved_at;
        if moved_at.is_none_or(|at| now >= at + MOVE_GAP_NS) {
            self.moved(env, now, index, source);
        }
    }

    /// A data datagram from an address that is no peer's: perhaps a peer is there now.
    ///
    /// Only keys identify the peer. Which keys are tried follows from the datagram's header, so that the work
    /// is about that of a datagram from a known address.
    pub(super) fn data_from_elsewhere(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        source: SocketAddr,
        header: DataHeader,
        datagram: &mut [u8],
    ) {
        let len = datagram.len();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.removed || !peer.handshake.may_open(header) {
                continue;
            }
            // Opening destroys the datagram, and the next key needs it.
            let copy = &mut self.scratch[..len];
            copy.copy_from_slice(datagram);
            let Ok(opened) = peer.handshake.open(now, header, copy) else { continue };
            let Opened { body, current, previous, newest, began, clock } = opened;
            let body_end = DATA_HEADER_LEN + body.len();
            datagram[DATA_HEADER_LEN..body_end].copy_from_slice(body);
            if let Some(hello) = &began {
                self.installed(env, now, index, source, hello);
            } else if current && newest {
                // A straggler from where the peer was does not move it back.
                self.roamed(env, now, index, source);
            }
            if let Some(clock) = clock {
                self.compare_clocks(env, index, clock);
            }
            self.peers[index].turn.charge(DATAGRAM_NS);
            self.peers[index].turn.charge_bytes(len as u64);
            let rx = &mut self.peers[index].rx;
            rx.datagrams += 1;
            rx.bytes += len as u64;
            let body = &mut datagram[DATA_HEADER_LEN..body_end];
            self.opened(
                env,
                now,
                index,
                header,
                &Opened { body, current, previous, newest, began: None, clock: None },
            );
            return;
        }
        self.drops.unknown_source += 1;
    }
}
