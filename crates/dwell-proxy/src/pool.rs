//! An ingress' connections to its egress: some are kept ready, so that a stream begins at once.
//!
//! Each carries one stream at a time. Sharing one among several streams would make the slowest
//! reader hold up the others, or need a window of its own for each, as TCP has one already; a lost
//! segment would hold up all of them; and how busy the link is could not be seen any more from whether it takes bytes.
//! A stream on a connection that is ready begins without waiting for an answer, as one of many on a shared one would.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::carrier::Carrier;
use crate::metrics::{Counter, Present};

/// A connection without a stream is closed after this time: before a NAT or a firewall between
/// the two forgets it, and before the egress does.
pub(crate) const WARM_TIME: Duration = Duration::from_secs(240);

/// Connections that wait for a stream, the latest last.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    warm: Mutex<VecDeque<(Instant, Carrier)>>,
    /// Streams that wait for a connection: for each of these one more is kept.
    waiting: Counter,
    came: Notify,
    /// One was taken, so that there is room for another one.
    taken: Notify,
}

impl Pool {
    /// The most connections in it.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            warm: Mutex::default(),
            waiting: Counter::default(),
            came: Notify::new(),
            taken: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Carrier)>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The connection that was used last, of those that are still there.
    pub(crate) fn take(&self) -> Option<Carrier> {
        loop {
            let last = self.lock().pop_back();
            let (since, mut carrier) = last?;
            self.taken.notify_one();
            if since.elapsed() < WARM_TIME && carrier.is_quiet() {
                return Some(carrier);
            }
        }
    }

    /// Waits for a connection that another stream gives back.
    pub(crate) async fn wait(&self) -> Carrier {
        let _waiting = Present::new(&self.waiting);
        loop {
            if let Some(carrier) = self.take() {
                return carrier;
            }
            self.came.notified().await;
        }
    }

    /// Waits until one is taken.
    pub(crate) async fn taken(&self) {
        self.taken.notified().await;
    }

    /// Keeps a connection whose stream has finished, if there is room for it, or somebody waits for
    /// it. Whether it was fit to be kept.
    pub(crate) fn put(&self, mut carrier: Carrier) -> bool {
        if !carrier.is_quiet() {
            return false;
        }
        let waiting = usize::try_from(self.waiting.get()).unwrap_or(usize::MAX);
        let mut warm = self.lock();
        if warm.len() < self.size.saturating_add(waiting) {
            warm.push_back((Instant::now(), carrier));
            drop(warm);
            self.came.notify_one();
        }
        true
    }

    /// Closes all of them.
    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.taken.notify_one();
    }

    /// Closes those that have waited for too long, that the other end has closed, or for which
    /// nobody waits any more.
    pub(crate) fn tidy(&self) {
        let mut warm = self.lock();
        warm.retain_mut(|(since, carrier)| since.elapsed() < WARM_TIME && carrier.is_quiet());
        let spare = warm.len().saturating_sub(self.size);
        warm.drain(..spare);
    }
}
