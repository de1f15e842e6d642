//! A hostile peer at a UDP socket.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::HostilePeer;
use dwell_lab::lab::Host;

/// A hostile peer that has a session with a relay, from a host of a lab.
#[derive(Debug)]
pub struct HostileSocket {
    /// The peer that seals its datagrams.
    pub peer: HostilePeer,
    socket: UdpSocket,
}

/// The time for which it tries to reach the relay.
const PATIENCE: Duration = Duration::from_secs(10);

impl HostileSocket {
    /// Begins a session with the relay at `relay`, from this address of a host.
    ///
    /// # Errors
    /// If there is no such address or path, or the relay does not answer within ten seconds.
    pub fn connect(
        host: &Host,
        from: SocketAddr,
        relay: SocketAddr,
        key: Option<[u8; 32]>,
    ) -> io::Result<Self> {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(from)?;
            socket.connect(relay)?;
            Ok(socket)
        };
        let socket = host.run(open).map_err(io::Error::other)??;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let seed = u64::from(std::process::id());
        let mut hostile = Self { peer: HostilePeer::new(key, seed), socket };
        let end = Instant::now() + PATIENCE;
        while !hostile.peer.is_connected() {
            if Instant::now() > end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the relay does not answer"));
            }
            let hello = hostile.peer.initiate();
            // Without a relay at the address, the first `send` fails with its ICMP error.
            let _ = hostile.socket.send(&hello);
            let _ = hostile.receive();
        }
        hostile.socket.set_nonblocking(true)?;
        Ok(hostile)
    }

    /// Sends a datagram with this body.
    ///
    /// # Errors
    /// If the socket does not take it.
    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        match self.peer.seal(body) {
            Some(datagram) => self.send_raw(&datagram),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends a datagram unchanged.
    ///
    /// # Errors
    /// If the socket does not take it.
    pub fn send_raw(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send(datagram).map(drop)
    }

    /// Receives the datagrams that came, and sends the answers that keep the session alive. Returns
    /// the bodies of the relay's datagrams.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut bodies = Vec::new();
        let mut room = vec![0; 65_536];
        loop {
            let len = match self.socket.recv(&mut room) {
                Ok(len) => len,
                Err(error) if is_nothing(&error) => return Ok(bodies),
                Err(error) => return Err(error),
            };
            if let Some(answer) = self.peer.receive(&room[..len]) {
                let _ = self.send_raw(&answer);
                if self.peer.is_connected() {
                    return Ok(bodies);
                }
            }
            bodies.extend(self.peer.open(&room[..len]));
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | Interrupted | TimedOut | WouldBlock)
}
