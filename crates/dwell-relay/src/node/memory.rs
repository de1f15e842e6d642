//! The memory that the contexts of all peers take together.
//!
//! Each peer alone has limits, but a hub has many peers, and what peers begin is up to them. Where all would take
//! more than the node has for them, the contexts that were used least recently go first: what is sent or received
//! next of these begins from nothing.
//!
//! What is in use is not given up for something else that would be: nothing would be left of either but the work of
//! beginning. Where only such are left, no more contexts of what is sent begin, and of what is received those of
//! the peers go that have more than their share.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::HistoryStatus;

use super::Node;
use super::contexts::Evictable;
use super::peer::Peer;

/// All are looked at this often; those of a peer that begins a generation at once.
const LOOK_NS: u64 = 50 * MILLI_NS;
/// A context that was used since is in use.
const IN_USE_NS: u64 = 2 * SECOND_NS;
/// Where there is too much, this part of the limit is made free, so that not each beginning costs another context.
const FREE_PART: u64 = 16;
/// Of `history_memory`, the part that datagrams kept to be sent again have at most, so that contexts can begin as long as
/// there is traffic, and the part that they have however much contexts take that are in use.
const KEPT_PART: u64 = 2;
const KEPT_PART_MIN: u64 = 8;

/// A context that may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeastRecent {
    pub(super) used_at: Instant,
    pub(super) context: u8,
}

/// What all contexts take, and may.
#[derive(Debug)]
pub(super) struct HistoryMemory {
    bytes_max: u64,
    /// By peer, when it was looked at.
    bytes: Vec<u64>,
    /// The same of the datagrams that may be sent again: nothing of them is freed by giving up contexts.
    kept: Vec<u64>,
    look_at: Instant,
    evicted: u64,
    /// There is no room for contexts that would begin.
    is_short: bool,
}

impl Default for HistoryMemory {
    fn default() -> Self {
        Self {
            bytes_max: u64::MAX,
            bytes: Vec::new(),
            kept: Vec::new(),
            look_at: Instant::ZERO,
            evicted: 0,
            is_short: false,
        }
    }
}

impl HistoryMemory {
    fn total(&self) -> u64 {
        sum(&self.bytes).saturating_add(self.kept_bytes())
    }

    fn kept_bytes(&self) -> u64 {
        sum(&self.kept)
    }

    /// Returns what datagrams that are kept may take.
    fn kept_bytes_max(&self) -> u64 {
        let left = self.bytes_max.saturating_sub(sum(&self.bytes));
        left.clamp(self.bytes_max / KEPT_PART_MIN, self.bytes_max / KEPT_PART)
    }

    /// Divides what datagrams that are kept may take among the peers, of which so many are there: each has what it takes and
    /// its part of what is left. An eighth is left at least, for those who have begun to keep some: if it is less, those that
    /// keep most have to keep less.
    fn shares(&self, peers: u64) -> Vec<u64> {
        let bytes_max = self.kept_bytes_max();
        let level = level(&self.kept, bytes_max - bytes_max / 8);
        let held: Vec<_> = self.kept.iter().map(|&kept| kept.min(level)).collect();
        let more = bytes_max.saturating_sub(sum(&held)) / peers.max(1);
        held.into_iter().map(|held| held + more).collect()
    }
}

fn sum(all: &[u64]) -> u64 {
    all.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))
}

/// Returns the most that each may have if all together have so much at most, and whoever wants less has that.
fn level(wanted: &[u64], most: u64) -> u64 {
    let mut wanted: Vec<_> = wanted.iter().copied().filter(|&bytes| bytes > 0).collect();
    wanted.sort_unstable();
    let mut left = most;
    for (at, &bytes) in wanted.iter().enumerate() {
        let share = left / (wanted.len() - at) as u64;
        if bytes >= share {
            return share;
        }
        left -= bytes;
    }
    most
}

impl Peer {
    /// Returns the memory that contexts take, with what is kept because of them: records that wait, what may be sent or
    /// encoded again; in bytes.
    fn history_bytes(&self) -> u64 {
        self.contexts.memory_bytes() + self.kept_bytes()
    }

    /// Of them, datagrams that may be sent again.
    pub(super) fn kept_bytes(&self) -> u64 {
        let before = self.before.as_ref().map_or(0, |before| before.kept_bytes());
        let kept = self.retransmit_buffer.bytes() + before;
        // Without contexts a little is kept, for blocks.
        if self.retransmit_buffer.is_for_contexts() { kept as u64 } else { 0 }
    }

    /// Takes what the node has for them: first for those of the present session.
    fn set_kept_bytes_max(&mut self, bytes: u64) {
        // Without contexts a little is kept, for blocks, which is not counted.
        let is_counted = self.retransmit_buffer.is_for_contexts();
        let bytes = usize::try_from(bytes).ok().filter(|_| is_counted).unwrap_or(usize::MAX);
        let present = self.retransmit_buffer.bytes();
        self.retransmit_buffer.set_share(bytes);
        if let Some(before) = &mut self.before {
            before.set_share(bytes.saturating_sub(present));
            // Both together keep no more.
            let rest = bytes.saturating_sub(before.kept_bytes());
            self.retransmit_buffer.set_share(rest);
        }
    }
}

impl Node {
    /// Sets how many bytes of memory the contexts of all peers may take together; as many as they like, before.
    pub fn set_history_memory(&mut self, bytes_max: u64) {
        self.history.bytes_max = bytes_max;
        self.history.look_at = Instant::ZERO;
    }

    /// Looks at all peers, if that is due.
    pub(super) fn watch_history(&mut self, now: Instant) {
        if now < self.history.look_at {
            return;
        }
        self.history.look_at = now + LOOK_NS;
        self.history.bytes.resize(self.peers.len(), 0);
        self.history.kept.resize(self.peers.len(), 0);
        for index in 0..self.peers.len() {
            self.count_history(index);
        }
        self.share_kept();
        self.keep_history_within(now, None);
    }

    /// Has each peer keep no more datagrams than there is memory for.
    fn share_kept(&mut self) {
        let peers = self.peers.iter().filter(|peer| !peer.removed).count() as u64;
        let shares = self.history.shares(peers);
        for (index, (peer, share)) in self.peers.iter_mut().zip(shares).enumerate() {
            peer.set_kept_bytes_max(share);
            self.history.kept[index] = self.history.kept[index].min(share);
        }
    }

    /// A generation has begun of what goes to a peer or comes from it.
    pub(super) fn history_grew(&mut self, now: Instant, index: usize) {
        self.history.bytes.resize(self.peers.len(), 0);
        self.history.kept.resize(self.peers.len(), 0);
        self.count_history(index);
        self.keep_history_within(now, Some(index));
    }

    fn count_history(&mut self, index: usize) {
        let peer = &self.peers[index];
        let counted =
            if peer.removed { (0, 0) } else { (peer.contexts.memory_bytes(), peer.kept_bytes()) };
        (self.history.bytes[index], self.history.kept[index]) = counted;
    }

    fn keep_history_within(&mut self, now: Instant, grew: Option<usize>) {
        let bytes_max = self.history.bytes_max;
        let enough = bytes_max - bytes_max / FREE_PART;
        // Once there was too much, what is not in use any more goes until others can begin.
        let is_over = self.history.total() > bytes_max;
        if !is_over && !self.history.is_short {
            return;
        }
        while self.history.total() > enough {
            let idle = self.least_recent_where(|_| true);
            let idle = idle.filter(|(of, _)| now.since_ns(of.used_at()) >= IN_USE_NS);
            let is_over = self.history.total() > bytes_max;
            let in_use = || self.beyond_share(grew).filter(|_| is_over);
            let Some((of, at)) = idle.or_else(in_use) else { break };
            self.peers[at].contexts.evict(of);
            self.history.evicted += 1;
            self.count_history(at);
        }
        self.history.is_short = self.history.total() > enough;
        for peer in &mut self.peers {
            peer.contexts.outgoing.is_short_of_memory = self.history.is_short;
            peer.contexts.incoming.is_short_of_memory = self.history.is_short;
        }
    }

    /// Returns the context to be given up of those in use: one of a peer that has more than its share, and not the
    /// only one of that which has just begun one.
    fn beyond_share(&self, grew: Option<usize>) -> Option<(Evictable, usize)> {
        let peers = self.history.bytes.iter().filter(|&&bytes| bytes > 0).count() as u64;
        let share =
            (self.history.bytes_max.saturating_sub(self.history.kept_bytes())) / peers.max(1);
        let has_more = |at: usize| self.history.bytes[at] > share;
        let others = |at: usize| has_more(at) && grew != Some(at);
        self.least_recent_where(others).or_else(|| {
            let others = |at: usize| has_more(at) && self.peers[at].contexts.evictable() > 1;
            self.least_recent_where(others)
        })
    }

    fn least_recent_where(&self, may: impl Fn(usize) -> bool) -> Option<(Evictable, usize)> {
        let peers = self.peers.iter().enumerate();
        let peers = peers.filter(|&(at, peer)| !peer.removed && may(at));
        let oldest = peers.filter_map(|(at, peer)| Some((peer.contexts.least_recent()?, at)));
        oldest.min_by_key(|(of, _)| of.used_at())
    }

    pub(super) fn history_status(&self) -> HistoryStatus {
        let peers = self.peers.iter().filter(|peer| !peer.removed);
        let memory_bytes = peers.map(Peer::history_bytes).sum();
        let HistoryMemory { bytes_max, evicted, .. } = self.history;
        let memory_bytes_max = Some(bytes_max).filter(|&bytes| bytes < u64::MAX);
        HistoryStatus { memory_bytes, memory_bytes_max, evicted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_are_kept_leave_room_for_contexts() {
        let memory = |kept| HistoryMemory {
            bytes_max: 96 << 20,
            bytes: vec![10 << 20, 5 << 20],
            kept,
            ..HistoryMemory::default()
        };
        assert_eq!(memory(vec![0, 0]).total(), 15 << 20);
        assert_eq!(memory(vec![16 << 20, 8 << 20]).total(), 39 << 20);
        // Each may keep more as long as there is memory for it.
        assert_eq!(memory(vec![16 << 20, 8 << 20]).shares(2), [28 << 20, 20 << 20]);
        // However much it is, half is left, and who keeps little may keep more.
        assert_eq!(memory(vec![u64::MAX, 1 << 20]).shares(2), [44 << 20, 4 << 20]);
        // Where contexts take nearly all, a part is left for that.
        let full = HistoryMemory { bytes: vec![90 << 20], ..memory(vec![60 << 20, 40 << 20]) };
        assert_eq!(full.shares(2), [6 << 20; 2]);
    }

    proptest::proptest! {
        #[test]
        fn shares_are_within_the_limit_and_no_more_is_taken_than_must_be(
            bytes_max in 8_u64..1 << 40,
            bytes in proptest::collection::vec(0_u64..1 << 34, 1..20),
            kept in proptest::collection::vec(0_u64..1 << 34, 1..20),
        ) {
            let peers = kept.len() as u64;
            let memory = HistoryMemory { bytes_max, bytes, kept, ..HistoryMemory::default() };
            let (shares, most) = (memory.shares(peers), memory.kept_bytes_max());
            proptest::prop_assert!(sum(&shares) <= most);
            proptest::prop_assert!(sum(&shares) + peers >= most);
            if memory.kept_bytes() <= most - most / 8 {
                let mut all = shares.iter().zip(&memory.kept);
                proptest::prop_assert!(all.all(|(share, kept)| share >= kept));
            }
        }
    }
}
