//! An ingress' connections to its egress: some are kept ready, so that a stream begins at once.
//!
//! Each carries one stream at a time. Sharing one among several streams would make the slowest
//! reader hold up the others, or need a window of its own for each, as TCP has one already; and
//! how busy the link is could not be seen any more from whether it takes bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::carrier::Carrier;

/// A connection without a stream is closed after this time: before a NAT or a firewall between
/// the two forgets it, and before the egress does.
pub(crate) const WARM_TIME: Duration = Duration::from_secs(240);

/// Connections that wait for a stream, the latest last.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    warm: Mutex<VecDeque<(Instant, Carrier)>>,
}

impl Pool {
    /// Of so many connections at most.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, warm: Mutex::default() }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn len(&self) -> usize {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The connection that was used last, of those that are still there.
    pub(crate) fn take(&self) -> Option<Carrier> {
        loop {
            let last = self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop_back();
            let (since, mut carrier) = last?;
            if since.elapsed() < WARM_TIME && carrier.is_quiet() {
                return Some(carrier);
            }
        }
    }

    /// Keeps a connection whose stream has finished, if there is room for it. Whether it was fit to
    /// be kept.
    pub(crate) fn put(&self, mut carrier: Carrier) -> bool {
        if !carrier.is_quiet() {
            return false;
        }
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() < self.size {
            warm.push_back((Instant::now(), carrier));
        }
        true
    }

    /// Closes those that have waited for too long, or that the other end has closed.
    pub(crate) fn tidy(&self) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        warm.retain_mut(|(since, carrier)| since.elapsed() < WARM_TIME && carrier.is_quiet());
    }
}
