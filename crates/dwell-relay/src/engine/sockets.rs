//! The sockets to the peers, and where they lead.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::resolver::Wanted;
use super::world::Wire;
use super::{Engine, FIRST_PEER, RECEIVE_BUFFER_BYTES};
use crate::config::{Config, Endpoint, PeerConfig};
use crate::io::clock::Clock;
use crate::io::poller::{Interest, Token};
use crate::io::udp::UdpPort;
use crate::node::Node;

/// The send buffer of a link that is paced by a configured rate, or never busy: it must not
/// be what holds datagrams back.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// A peer that can't be reached is tried again this often.
const CONNECT_AGAIN_NS: u64 = 5 * SECOND_NS;

impl Engine {
    /// Makes the sockets that the peers' present endpoints ask for.
    pub(super) fn connect_peers(&mut self) {
        for peer in 0..self.node.peer_count() {
            self.connect_peer(peer);
        }
    }

    pub(super) fn connect_peer(&mut self, peer: usize) {
        while self.world.wires.len() <= peer {
            self.world.wires.push(Wire::new());
        }
        let endpoint = self.node.endpoint(peer).filter(|_| self.node.peer_config(peer).is_some());
        let wire = &mut self.world.wires[peer];
        let present = wire.socket.as_ref().and_then(|socket| socket.peer_addr().ok());
        if present == endpoint && endpoint.is_some() {
            set_send_buffer(wire, self.node.send_buffer_bytes(peer));
            return;
        }
        self.close_socket(peer);
        let Some(endpoint) = endpoint else { return };
        let wire = &mut self.world.wires[peer];
        let local = local_for(self.config.node.listen, endpoint);
        match UdpPort::connect(local, endpoint, None, Some(RECEIVE_BUFFER_BYTES)) {
            Ok(socket) => {
                if let Ok(bytes) = socket.datagram_max() {
                    let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
                    self.node.set_path_datagram_max(peer, bytes);
                }
                if let Err(error) = self.poller.register(&socket, peer_token(peer), Interest::Read)
                {
                    tracing::error!("cannot watch the socket to {endpoint}: {error}");
                }
                wire.socket = Some(socket);
                wire.send_buffer_bytes = 0;
                set_send_buffer(wire, self.node.send_buffer_bytes(peer));
            }
            Err(error) => {
                tracing::error!("cannot reach {endpoint}: {error}: trying again");
                self.connect_again_at = Clock::now() + CONNECT_AGAIN_NS;
            }
        }
    }

    /// The peer is silent. Our own address may have changed, it may be back where it is
    /// configured to be, or its name may lead elsewhere: begins from the beginning.
    pub(super) fn reconnect(&mut self, peer: usize) {
        let configured = self.node.peer_config(peer).and_then(|config| config.endpoint.clone());
        if let Some(Endpoint::Address(address)) = configured {
            self.node.set_endpoint(peer, address);
        }
        self.close_socket(peer);
        self.connect_peer(peer);
        self.look_up_names();
    }

    fn close_socket(&mut self, peer: usize) {
        let wire = &mut self.world.wires[peer];
        let Some(old) = wire.socket.take() else { return };
        let _ = self.poller.deregister(&old, peer_token(peer));
        wire.outbox.clear();
        if wire.blocked {
            wire.blocked = false;
            self.node.link_writable(peer);
        }
    }

    /// Tries again to reach the peers that have no socket yet.
    pub(super) fn connect_again(&mut self, now: Instant) {
        let mut missing = false;
        for peer in 0..self.node.peer_count() {
            let configured = self.node.peer_config(peer).is_some_and(|c| c.endpoint.is_some());
            if configured && self.world.wires[peer].socket.is_none() {
                self.connect_peer(peer);
                missing |= self.world.wires[peer].socket.is_none();
            }
        }
        if missing {
            self.look_up_names();
        }
        self.connect_again_at = if missing { now + CONNECT_AGAIN_NS } else { Instant::FAR_FUTURE };
    }

    /// Looks up where the peers listen that are configured by name.
    pub(super) fn look_up_names(&mut self) {
        let named = |peer: &PeerConfig| -> Option<Wanted> {
            match peer.endpoint.as_ref()? {
                Endpoint::Address(_) => None,
                Endpoint::Name { host, port } => Some((peer.name.clone(), host.clone(), *port)),
            }
        };
        self.resolver.start(self.config.peers.iter().filter_map(named).collect());
    }

    /// Takes what was looked up. A peer that is up is left where it is.
    pub(super) fn take_names(&mut self) {
        for (name, endpoint) in self.resolver.take() {
            let of_name = |peer: &usize| {
                self.node.peer_config(*peer).is_some_and(|config| config.name == name)
            };
            let Some(peer) = (0..self.node.peer_count()).find(of_name) else { continue };
            if !self.node.is_up(peer) {
                self.node.set_endpoint(peer, endpoint);
                self.connect_peer(peer);
            }
        }
    }

    pub(super) fn on_writable(&mut self, peer: usize) {
        let Some(wire) = self.world.wires.get_mut(peer) else { return };
        if !wire.blocked {
            return;
        }
        let unsent = wire.socket.as_ref().and_then(|socket| socket.outq_bytes().ok());
        if unsent == Some(0) {
            self.node.link_ran_dry(peer);
        }
        if wire.flush() {
            self.node.link_writable(peer);
            if !self.touched.contains(&peer) {
                self.touched.push(peer);
            }
        } else {
            self.node.link_blocked(Clock::now(), peer);
        }
        set_send_buffer(wire, self.node.send_buffer_bytes(peer));
    }
}

pub(super) fn peer_token(peer: usize) -> Token {
    // Far fewer peers fit into a configuration than a token can name.
    Token(u16::try_from(peer).unwrap_or(u16::MAX - FIRST_PEER) + FIRST_PEER)
}

pub(super) fn narrow(node: &mut Node, peer: usize, mtu: usize) {
    let headers = match node.endpoint(peer) {
        Some(SocketAddr::V4(_)) => 28,
        _ => 48,
    };
    let bytes = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    tracing::info!("the path to a peer takes {mtu} bytes");
    node.set_path_datagram_max(peer, bytes);
}

/// The local address for a socket to `peer`: the listener's port, and its address if it is
/// of the same family.
fn local_for(listen: SocketAddr, peer: SocketAddr) -> SocketAddr {
    match (listen, peer) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => listen,
        (_, SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, listen.port()).into(),
        (_, SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, listen.port()).into(),
    }
}

fn set_send_buffer(wire: &mut Wire, bytes: Option<u64>) {
    let bytes = bytes.map_or(SEND_BUFFER_BYTES, |bytes| bytes as usize);
    let Some(socket) = &wire.socket else { return };
    // A system call for each small change would cost more than it brings.
    if bytes.abs_diff(wire.send_buffer_bytes) <= wire.send_buffer_bytes / 8 {
        return;
    }
    wire.send_buffer_bytes = bytes;
    if let Err(error) = socket.set_send_buffer(bytes) {
        tracing::warn!("cannot set the size of a send buffer: {error}");
    }
}

/// The addresses of the peers' endpoints; those that are names are looked up later.
pub(super) fn addresses(config: &Config) -> Vec<Option<SocketAddr>> {
    let of_peer = |peer: &PeerConfig| match peer.endpoint.as_ref()? {
        Endpoint::Address(address) => Some(*address),
        Endpoint::Name { .. } => None,
    };
    config.peers.iter().map(of_peer).collect()
}
