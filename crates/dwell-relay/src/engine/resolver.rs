//! Host names of peers, looked up beside the relay's work: a slow name server must not stop
//! the packets.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::io::poller::Waker;

/// A peer's name, and the host and port where it listens.
pub(super) type Wanted = (String, String, u16);

/// Looks names up on a thread of its own, one batch at a time.
#[derive(Debug)]
pub(super) struct Resolver {
    waker: Waker,
    send: Sender<Vec<(String, SocketAddr)>>,
    found: Receiver<Vec<(String, SocketAddr)>>,
    busy: bool,
}

impl Resolver {
    pub(super) fn new(waker: Waker) -> Self {
        let (send, found) = channel();
        Self { waker, send, found, busy: false }
    }

    /// Begins to look names up, unless it is at it already. The waker tells when it is done.
    pub(super) fn start(&mut self, wanted: Vec<Wanted>) {
        if self.busy || wanted.is_empty() {
            return;
        }
        let (send, waker) = (self.send.clone(), self.waker.clone());
        let thread = std::thread::Builder::new().name("dwell-resolve".into()).spawn(move || {
            let found = wanted.into_iter().filter_map(look_up).collect();
            // If nobody listens any more, the relay has ended.
            let _ = send.send(found);
            waker.wake();
        });
        match thread {
            Ok(_) => self.busy = true,
            Err(error) => tracing::warn!("cannot look names up: {error}"),
        }
    }

    /// What was found: peers' names, and where they listen.
    pub(super) fn take(&mut self) -> Vec<(String, SocketAddr)> {
        match self.found.try_recv() {
            Ok(found) => {
                self.busy = false;
                found
            }
            Err(_) => Vec::new(),
        }
    }
}

fn look_up((peer, host, port): Wanted) -> Option<(String, SocketAddr)> {
    match (host.as_str(), port).to_socket_addrs() {
        Ok(mut addresses) => Some((peer, addresses.next()?)),
        Err(error) => {
            tracing::warn!("cannot resolve {host}, the endpoint of {peer}: {error}");
            None
        }
    }
}
