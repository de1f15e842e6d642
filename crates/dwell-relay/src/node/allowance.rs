//! How many packets the records of a datagram may yet hold (docs/wire.md, section 5.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The packets that the records of one datagram may yet hold.
///
/// A record that waits for others shares it: how many packets are in it is known when it is opened.
#[derive(Debug)]
pub(crate) enum Allowance {
    /// Nothing else of the datagram waits.
    Own(usize),
    /// Records of the datagram wait.
    Shared(Arc<AtomicUsize>),
}

impl Default for Allowance {
    fn default() -> Self {
        Self::Own(0)
    }
}

impl Allowance {
    /// Allows so many packets.
    pub(crate) fn new(packets: usize) -> Self {
        Self::Own(packets)
    }

    /// Returns the same allowance for a record that waits: what one takes the other has no more.
    pub(crate) fn share(&mut self) -> Self {
        let left = match self {
            Self::Own(left) => Arc::new(AtomicUsize::new(*left)),
            Self::Shared(left) => Arc::clone(left),
        };
        *self = Self::Shared(Arc::clone(&left));
        Self::Shared(left)
    }

    /// Returns the packets that are left.
    pub(super) fn left(&self) -> usize {
        match self {
            Self::Own(left) => *left,
            Self::Shared(left) => left.load(Ordering::Relaxed),
        }
    }

    /// Allows so many more.
    pub(super) fn add(&mut self, packets: usize) {
        match self {
            Self::Own(left) => *left += packets,
            Self::Shared(left) => {
                left.fetch_add(packets, Ordering::Relaxed);
            }
        }
    }

    /// Takes one; false if none is left.
    pub(super) fn take(&mut self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        match self {
            Self::Own(left) => {
                let less = one_less(*left);
                *left = less.unwrap_or(0);
                less.is_some()
            }
            Self::Shared(left) => {
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_takes_from_the_same() {
        let mut all = Allowance::new(5);
        assert!(all.take());
        let (mut one, mut other) = (all.share(), all.share());
        assert!(one.take() && other.take() && all.take());
        assert_eq!([&all, &one, &other].map(Allowance::left), [1; 3]);
        assert!(other.take() && !one.take() && !all.take());
        all.add(1);
        assert!(one.take() && !other.take());
    }
}
