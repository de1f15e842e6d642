//! The sockets to the peers, and where they lead.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_wire::header::{DATA_HEADER_LEN, RECORD_HEADER_LEN, SEAL_TAG_LEN};

use super::os_env::PeerSocket;
use super::resolver::Wanted;
use super::{Engine, FIRST_PEER, RECEIVE_BUFFER_BYTES};
use crate::config::{Config, Endpoint, PeerConfig};
use crate::io::clock::Clock;
use crate::io::poller::{Interest, Token};
use crate::io::udp::UdpPort;
use crate::node::{Node, Unsent};

/// The send buffer of a link that is paced by a configured rate, or never busy: it must not
/// be what holds datagrams back.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The peers that don't answer, the paths and the routes are looked after this often.
const LOOK_AFTER_NS: u64 = 10 * SECOND_NS;
/// Sockets that broke are made again this often at most.
const REOPEN_NS: u64 = SECOND_NS / 4;
/// A datagram must carry a packet of 1280 bytes, or IPv6 would not work inside. Paths that take
/// less have to cut datagrams.
const DATAGRAM_MIN: u16 = 1280 + (DATA_HEADER_LEN + SEAL_TAG_LEN + RECORD_HEADER_LEN) as u16;

impl Engine {
    /// Makes the sockets that the peers' present endpoints ask for.
    pub(super) fn connect_peers(&mut self) {
        for peer in 0..self.node.peer_count() {
            self.connect_peer(peer);
        }
    }

    pub(super) fn connect_peer(&mut self, peer: usize) {
        while self.env.peer_sockets.len() <= peer {
            self.env.peer_sockets.push(PeerSocket::new());
        }
        let endpoint = self.node.endpoint(peer).filter(|_| self.node.peer_config(peer).is_some());
        let peer_socket = &mut self.env.peer_sockets[peer];
        let present = peer_socket.socket.as_ref().and_then(|socket| socket.peer_addr().ok());
        if present == endpoint && endpoint.is_some() {
            set_send_buffer(peer_socket, self.node.send_buffer_bytes(peer));
            return;
        }
        self.close_socket(peer);
        let Some(endpoint) = endpoint else { return };
        let peer_socket = &mut self.env.peer_sockets[peer];
        let local = local_for(self.config.node.listen, endpoint);
        match UdpPort::connect(local, endpoint, None, Some(RECEIVE_BUFFER_BYTES)) {
            Ok(socket) => {
                if let Err(error) = self.poller.register(&socket, peer_token(peer), Interest::Read)
                {
                    tracing::error!("cannot watch the socket to {endpoint}: {error}");
                }
                peer_socket.socket = Some(socket);
                peer_socket.send_buffer_bytes = 0;
                peer_socket.fragments = false;
                set_send_buffer(peer_socket, self.node.send_buffer_bytes(peer));
                self.measure_path(peer);
            }
            Err(error) => {
                peer_socket.unsent = Some(error);
                peer_socket.is_broken = true;
            }
        }
    }

    /// When [`Self::reopen`] has something to do.
    pub(super) fn reopen_due(&self) -> Instant {
        let is_any = self.env.peer_sockets.iter().any(|peer_socket| peer_socket.is_broken);
        if is_any { self.reopen_at } else { Instant::FAR_FUTURE }
    }

    /// Makes sockets again that are of no use any more. A connected socket sends from the address
    /// that this machine had when it was connected: when that is gone, all sending fails. The
    /// peer is informed at once where we are, or it would go on sending there.
    pub(super) fn reopen(&mut self, now: Instant) {
        self.reopen_at = now + REOPEN_NS;
        for peer in 0..self.env.peer_sockets.len() {
            if !self.env.peer_sockets[peer].is_broken {
                continue;
            }
            let before = self.local_ip(peer);
            self.close_socket(peer);
            self.connect_peer(peer);
            if let Some(now_at) = self.local_ip(peer).filter(|ip| before != Some(*ip)) {
                tracing::info!("{} is reached from {now_at} now", self.name(peer));
                self.node.moved_away(&mut self.env, peer);
            }
        }
        self.flush();
    }

    /// The address that datagrams to a peer are sent from.
    fn local_ip(&self, peer: usize) -> Option<std::net::IpAddr> {
        let socket = self.env.peer_sockets[peer].socket.as_ref()?;
        Some(socket.local_addr().ok()?.ip())
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
        let peer_socket = &mut self.env.peer_sockets[peer];
        peer_socket.is_broken = false;
        let Some(old) = peer_socket.socket.take() else { return };
        let _ = self.poller.deregister(&old, peer_token(peer));
        peer_socket.forget();
        if peer_socket.blocked {
            peer_socket.blocked = false;
            self.node.link_writable(peer);
        }
    }

    /// Checks from time to time what nobody reports: peers that don't answer are contacted from a
    /// new socket (our own address may have changed) and looked up again, paths may have become
    /// wider, and routes that could not be set may be settable now.
    pub(super) fn look_after(&mut self, now: Instant) {
        self.look_after_at = now + LOOK_AFTER_NS;
        for peer in 0..self.node.peer_count() {
            let configured = self.node.peer_config(peer).is_some_and(|c| c.endpoint.is_some());
            if configured && !self.node.is_up(peer) {
                self.reconnect(peer);
            } else {
                self.measure_path(peer);
            }
        }
        if let Err(error) = self.sync_routes() {
            tracing::error!("{error}");
        }
        self.route_care.verify_soon(now);
        self.look_at_counters();
        self.look_at_rates(now);
    }

    /// Asks the kernel what it knows of the path to a peer.
    fn measure_path(&mut self, peer: usize) {
        let Some(peer_socket) = self.env.peer_sockets.get_mut(peer) else { return };
        let Some(Ok(bytes)) = peer_socket.socket.as_ref().map(UdpPort::datagram_max) else {
            return;
        };
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        fit_path(&mut self.node, peer, peer_socket, bytes);
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
        for (name, found) in self.resolver.take() {
            let of_name = |peer: &usize| {
                self.node.peer_config(*peer).is_some_and(|config| config.name == name)
            };
            let Some(peer) = (0..self.node.peer_count()).find(of_name) else { continue };
            self.node.resolved(&mut self.env, peer, found.as_ref().err().cloned());
            let Ok(endpoint) = found else { continue };
            if !self.node.is_up(peer) {
                self.node.set_endpoint(peer, endpoint);
                self.connect_peer(peer);
            }
        }
    }

    /// The kernel may hold as much as the node wants it to at present.
    pub(super) fn fit_send_buffer(&mut self, peer: usize) {
        if let Some(peer_socket) = self.env.peer_sockets.get_mut(peer) {
            set_send_buffer(peer_socket, self.node.send_buffer_bytes(peer));
        }
    }

    pub(super) fn on_writable(&mut self, peer: usize) {
        let Some(peer_socket) = self.env.peer_sockets.get_mut(peer) else { return };
        if !peer_socket.blocked {
            return;
        }
        let unsent = peer_socket.socket.as_ref().and_then(|socket| socket.outq_bytes().ok());
        if unsent == Some(0) {
            self.node.link_ran_dry(Clock::now(), peer);
        }
        if peer_socket.flush() {
            self.node.link_writable(peer);
            if !self.touched.contains(&peer) {
                self.touched.push(peer);
            }
        } else {
            self.node.link_blocked(Clock::now(), peer);
        }
        set_send_buffer(peer_socket, self.node.send_buffer_bytes(peer));
    }
}

/// Classifies the system's error about the path to a peer.
pub(super) fn unsent(error: &io::Error) -> Unsent {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Unsent::PortClosed,
        io::ErrorKind::PermissionDenied => {
            Unsent::Unreachable("a firewall on this machine forbids it".to_owned())
        }
        _ => {
            let text = error.to_string();
            // "(os error 101)" helps nobody.
            let words = text.split(" (os error").next().unwrap_or(&text);
            Unsent::Unreachable(words.to_owned())
        }
    }
}

pub(super) fn peer_token(peer: usize) -> Token {
    // Far fewer peers fit into a configuration than a token can name.
    Token(u16::try_from(peer).unwrap_or(u16::MAX - FIRST_PEER) + FIRST_PEER)
}

/// The path turned out to take packets of `mtu` bytes, IP header included.
pub(super) fn narrow(node: &mut Node, peer: usize, peer_socket: &mut PeerSocket, mtu: usize) {
    let headers = match node.endpoint(peer) {
        Some(SocketAddr::V4(_)) => 28,
        _ => 48,
    };
    tracing::info!("the path to a peer takes {mtu} bytes");
    fit_path(
        node,
        peer,
        peer_socket,
        u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX),
    );
}

fn fit_path(node: &mut Node, peer: usize, peer_socket: &mut PeerSocket, bytes: u16) {
    if bytes < DATAGRAM_MIN && !peer_socket.fragments {
        tracing::warn!("a path that takes datagrams of {bytes} bytes only: they will be cut");
        let allowed = peer_socket.socket.as_ref().map(UdpPort::allow_fragments);
        if let Some(Err(error)) = allowed {
            tracing::error!("datagrams can't be cut: {error}");
        }
        peer_socket.fragments = true;
    }
    node.set_path_datagram_max(peer, bytes.max(DATAGRAM_MIN));
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

fn set_send_buffer(peer_socket: &mut PeerSocket, bytes: Option<u64>) {
    let bytes = bytes.map_or(SEND_BUFFER_BYTES, |bytes| bytes as usize);
    let Some(socket) = &peer_socket.socket else { return };
    // A system call for each small change would cost more than it brings.
    if bytes.abs_diff(peer_socket.send_buffer_bytes) <= peer_socket.send_buffer_bytes / 8 {
        return;
    }
    peer_socket.send_buffer_bytes = bytes;
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
