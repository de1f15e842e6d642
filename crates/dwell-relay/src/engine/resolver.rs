//! Host names of peers, looked up beside the relay's work: a slow name server must not stop
//! the packets.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

use dwell_confine::privilege;

use crate::io::poller::Waker;

/// A peer's name, and the host and port where it listens.
pub(super) type Wanted = (String, String, u16);

/// A peer's name, and where it listens, or why that is not known.
pub(super) type Found = (String, Result<SocketAddr, String>);

/// Looks names up on a thread of its own, one batch at a time.
#[derive(Debug)]
pub(super) struct Resolver {
    waker: Waker,
    send: Sender<Vec<Found>>,
    found: Receiver<Vec<Found>>,
    busy: bool,
}

impl Resolver {
    pub(super) fn new(waker: Waker) -> Self {
        let (send, found) = channel();
        Self { waker, send, found, busy: false }
    }

    /// Begins to look names up, unless it is at it already. The waker wakes the engine when it is done.
    pub(super) fn start(&mut self, wanted: Vec<Wanted>) {
        if self.busy || wanted.is_empty() {
            return;
        }
        let (send, waker) = (self.send.clone(), self.waker.clone());
        let thread = std::thread::Builder::new().name("dwell-resolve".into()).spawn(move || {
            // It reads answers of name servers: it must not be able to change routes.
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("the thread that looks names up keeps its privileges: {error}");
            }
            let found = wanted.into_iter().map(look_up).collect();
            // If nobody listens any more, the relay has ended.
            let _ = send.send(found);
            waker.wake();
        });
        match thread {
            Ok(_) => self.busy = true,
            Err(error) => tracing::warn!("cannot look names up: {error}"),
        }
    }

    /// Takes the addresses that were found.
    pub(super) fn take(&mut self) -> Vec<Found> {
        match self.found.try_recv() {
            Ok(found) => {
                self.busy = false;
                found
            }
            Err(_) => Vec::new(),
        }
    }
}

fn look_up((peer, host, port): Wanted) -> Found {
    let found = match (host.as_str(), port).to_socket_addrs() {
        Ok(mut addresses) => addresses.next().ok_or_else(|| "it has no address".to_owned()),
        Err(error) => Err(words_of(&error)),
    };
    (peer, found)
}

/// The resolver's own words, without those that the standard library puts before them.
fn words_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let known = text.strip_prefix("failed to lookup address information: ");
    known.map_or_else(|| text.clone(), str::to_owned)
}
