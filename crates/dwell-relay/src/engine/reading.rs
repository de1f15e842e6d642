//! What comes: packets from the TUN, and datagrams from sockets.

use dwell_base::time::SECOND_NS;

use super::Engine;
use super::sockets::unsent;
use crate::io::clock::Clock;
use crate::io::tun::TunError;
use crate::io::udp::{Received, UdpPort};

/// One direction is served for at most this many reads or packets before the other gets its
/// turn.
const READS_IN_A_ROW: usize = 64;
const PACKETS_IN_A_ROW: usize = 256;
/// A datagram that seems to have waited longer to be read was not: the clock of the day was set.
const WAITED_NS_MAX: u64 = SECOND_NS;

impl Engine {
    pub(super) fn read_tun(&mut self) {
        let stop_at = self.read.packets + PACKETS_IN_A_ROW as u64;
        for _ in 0..READS_IN_A_ROW {
            let Some(tun) = self.env.tun.as_ref().filter(|_| self.read.packets < stop_at) else {
                return;
            };
            match tun.recv(&mut self.from_tun) {
                Ok(0) => return,
                Ok(packets) => self.read.packets += packets as u64,
                Err(TunError::Gone { .. }) => {
                    self.env.tun_gone = true;
                    return;
                }
                Err(error) => {
                    tracing::debug!("{error}");
                    return;
                }
            }
            for packet in self.from_tun.packets() {
                self.read.bytes += packet.len() as u64;
                let Some(peer) = self.node.packet(&mut self.env, packet) else { continue };
                if self.node.is_paced(peer) {
                    self.node.pump(&mut self.env, peer);
                } else if !self.touched.contains(&peer) {
                    self.touched.push(peer);
                }
            }
            self.go_on();
        }
    }

    /// What workers have done meanwhile is taken at once: a context's next batch waits for it.
    fn go_on(&mut self) {
        if self.take_results() {
            for peer in std::mem::take(&mut self.touched) {
                self.node.pump(&mut self.env, peer);
            }
        }
    }

    /// The poller reports an error of a socket that is not read again and again, until somebody takes it.
    fn take_error_of(&mut self, peer: usize) {
        let socket = self.env.peer_sockets.get(peer).and_then(|it| it.socket.as_ref());
        if let Some(error) = socket.and_then(UdpPort::take_error) {
            self.node.unsent(&mut self.env, peer, unsent(&error));
        }
    }

    /// Reads the listener, or the socket that is connected to a peer, as long as it is the peer's
    /// turn. What is not read waits in the socket, and is reported again.
    pub(super) fn read_socket(&mut self, peer: Option<usize>) {
        let mut datagrams = 0;
        for _ in 0..READS_IN_A_ROW {
            if let Some(peer) = peer.filter(|&peer| !self.node.has_turn(peer)) {
                self.take_error_of(peer);
                return;
            }
            let socket = match peer {
                None => Some(&self.env.listener),
                Some(peer) => self
                    .env
                    .peer_sockets
                    .get(peer)
                    .and_then(|peer_socket| peer_socket.socket.as_ref()),
            };
            let Some(socket) = socket.filter(|_| datagrams < PACKETS_IN_A_ROW) else { return };
            let received = socket.recv(&mut self.from_net);
            if let (Some(peer), Some(error)) = (peer, self.from_net.take_error()) {
                self.node.unsent(&mut self.env, peer, unsent(&error));
            }
            match received {
                Ok(0) => return,
                Ok(count) => datagrams += count,
                Err(error) => {
                    tracing::warn!("receiving failed: {error}");
                    return;
                }
            }
            // Between its making and its being connected a socket may be given datagrams of
            // others: the sender's address distinguishes them.
            let connected = peer.and_then(|peer| Some((peer, self.node.endpoint(peer)?)));
            let (read_at, read_at_unix_ns) = (Clock::now(), Clock::unix_ns());
            for Received { source, came_at_unix_ns, bytes } in self.from_net.datagrams() {
                let known = connected.filter(|(_, at)| *at == source).map(|(peer, _)| peer);
                // The clock of the day may have been set meanwhile.
                let waited_ns = came_at_unix_ns.map(|at| read_at_unix_ns.saturating_sub(at));
                let waited_ns = waited_ns.filter(|&ns| ns < WAITED_NS_MAX);
                self.env.came_at = waited_ns.map(|ns| read_at.before_ns(ns));
                self.node.datagram(&mut self.env, known, source, bytes);
            }
            // What comes from now on is reported again.
            if self.from_net.has_room() {
                return;
            }
        }
    }
}
