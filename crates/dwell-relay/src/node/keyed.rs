//! Peers that are known by their public keys: their handshakes, and where they are.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_report::status::PeerState;
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::{Cookie, DataHeader, Hello, Initiation, Response};

use super::env::{Destination, Env, NodeEvent};
use super::link::send_control;
use super::{Node, enter};
use crate::trust::{Answer, GateCounts, HELLO_LEN_MAX, Opened, Responded, Verdict};

impl Node {
    /// What came of all initiations.
    pub fn gate_counts(&self) -> GateCounts {
        self.identity.as_ref().map(crate::trust::Identity::counts).unwrap_or_default()
    }

    /// Somebody begins an exchange. Only a peer hears more of it than perhaps a cookie.
    pub(super) fn initiation(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        source: SocketAddr,
        initiation: &Initiation<'_>,
    ) {
        let Some(identity) = &mut self.identity else {
            self.drops.unknown_key += 1;
            return;
        };
        match identity.judge(now, source, initiation) {
            Verdict::Stranger | Verdict::Refused => return,
            Verdict::Cookie(cookie) => {
                env.hello(Destination::Address(source), &cookie);
                return;
            }
            Verdict::Examine => {}
        }
        let examined = identity.examine(initiation);
        let of = |key: &[u8; 32]| {
            self.peers.iter().position(|peer| !peer.removed && peer.handshake.is_with(key))
        };
        let known = examined.and_then(|it| of(&it.public).map(|index| (index, it)));
        let Some((index, examined)) = known else {
            self.drops.unknown_key += 1;
            return;
        };
        let peer = &mut self.peers[index];
        let payload = examined.payload().to_vec();
        let mut out = [0; HELLO_LEN_MAX];
        let answer =
            peer.handshake.answer(now, initiation.sender, examined.state, &payload, &mut out);
        match answer {
            Answer::Replayed => self.drops.hello_replayed += 1,
            Answer::Malformed => self.drops.malformed_datagram += 1,
            // The peer is moved when it proves to have got this.
            Answer::Written(len) if peer.endpoint == Some(source) => {
                env.hello(Destination::Peer(index), &out[..len]);
                peer.sent_control(now, len);
            }
            Answer::Written(len) => env.hello(Destination::Address(source), &out[..len]),
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
        let awaits = |peer: &super::Peer| !peer.removed && peer.handshake.awaits(response.receiver);
        let Some(index) = self.peers.iter().position(awaits) else {
            self.drops.unknown_key += 1;
            return;
        };
        match self.peers[index].handshake.responded(now, response) {
            Responded::Rejected => self.peers[index].rx.auth_failed += 1,
            Responded::Installed(hello) => {
                self.installed(env, now, index, source, &hello);
                // The peer may not send by the new session before it hears from us by it. The
                // answer to this is awaited, and asked for again.
                let peer = &mut self.peers[index];
                let probe = peer.probe(now, index);
                send_control(peer, index, env, &probe);
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
        self.release(env, now, index);
        self.moved(env, index, source);
        let peer = &mut self.peers[index];
        if peer.connected(now, hello) {
            env.event(NodeEvent::CodecRefused(index));
        }
        if enter(&mut peer.state, PeerState::Up) {
            env.event(NodeEvent::Up(index));
        }
    }

    fn moved(&mut self, env: &mut impl Env, index: usize, source: SocketAddr) {
        let peer = &mut self.peers[index];
        if peer.endpoint != Some(source) {
            peer.set_endpoint(source);
            env.event(NodeEvent::Moved(index, source));
        }
    }

    /// A data datagram from an address that is no peer's: perhaps a peer is there now.
    ///
    /// Only keys tell. Which keys are tried follows from the datagram's header, so that the work
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
            let Opened { body, current, newest, began } = opened;
            let body_end = DATA_HEADER_LEN + body.len();
            datagram[DATA_HEADER_LEN..body_end].copy_from_slice(body);
            if let Some(hello) = &began {
                self.installed(env, now, index, source, hello);
            } else if current && newest {
                // A straggler from where the peer was does not move it back.
                self.moved(env, index, source);
            }
            let rx = &mut self.peers[index].rx;
            rx.datagrams += 1;
            rx.bytes += len as u64;
            let body = &mut datagram[DATA_HEADER_LEN..body_end];
            self.opened(env, now, index, header, &Opened { body, current, newest, began: None });
            return;
        }
        self.drops.unknown_source += 1;
    }
}
