//! Fairness among peers: how much of one turn each may cost.
//!
//! One thread serves all peers, and what a datagram costs has little to do with its length: a
//! hundred bytes may hold a packet, or a hundred. So peers take turns by deficit round robin
//! (Shreedhar and Varghese, 1995), with the cost of restoring in the place of bytes: each turn a
//! peer gets the same budget, what it overdraws is taken from its next turns, and what it doesn't
//! need it can't save. A peer whose budget is used up isn't read from: its datagrams wait in its own
//! socket. What had been read before, or came through the socket that all peers share, waits here,
//! up to a limit.
//!
//! The cost follows from packets and bytes alone, so that the same datagrams take the same turns;
//! time that really passed counts instead if it is more.

use std::collections::VecDeque;

use dwell_base::time::MILLI_NS;

use super::Node;
use super::allowance::Allowance;
use super::env::Env;
use super::peer::Peer;

/// The allowed cost of restoring a peer's packets in a turn.
pub(super) const BUDGET_NS: i64 = MILLI_NS as i64;
/// Datagrams that were read already are restored until the peer is in debt by this: a batch, as
/// sockets give them, need not be copied.
const OVERDRAFT_NS: i64 = BUDGET_NS;
/// A larger debt is forgiven: that the machine stood still is not the peer's fault.
const DEBT_NS_MAX: i64 = 50 * BUDGET_NS;

/// The cost of a datagram: opening it, and the system call's share.
pub(super) const DATAGRAM_NS: u64 = 1_000;
/// The cost of a packet, most of it for the system call that writes it to the TUN.
pub(super) const PACKET_NS: u64 = 3_000;
/// The cost of each byte, of datagrams and of restored packets.
const BYTE_NS: u64 = 1;

/// Bytes of datagrams that may wait for a peer's turn: more than is read from its socket at once.
const WAITING_BYTES_MAX: usize = 512 << 10;
/// The largest number of them.
const WAITING_MAX: usize = 4_096;

/// The records of a datagram, from one of them on.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) body: Vec<u8>,
    /// The offset of the first record whose packets are yet to be restored.
    pub(super) from: usize,
    /// The most packets that the rest may hold.
    pub(super) packets_left: Allowance,
    /// It is of the present session.
    pub(super) is_present: bool,
    /// The number under which it was first sent.
    pub(super) number: u64,
}

/// The rest of a peer's turn, and the datagrams that wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    left_ns: i64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The number of further packets that the datagram being restored may hold.
    pub(super) packets_left: Allowance,
}

impl Turn {
    /// Returns true if more may be read from the peer's socket.
    pub(super) fn may_read(&self) -> bool {
        self.left_ns > 0 && self.waiting.is_empty()
    }

    /// Returns true if the packets of what was read may be restored now.
    pub(super) fn may_restore(&self) -> bool {
        self.left_ns > -OVERDRAFT_NS
    }

    /// Returns true if datagrams wait for the next turn; what comes later must not pass them.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn left_ns(&self) -> i64 {
        self.left_ns
    }

    /// A turn begins.
    fn begin(&mut self) {
        self.left_ns = (self.left_ns + BUDGET_NS).min(BUDGET_NS);
    }

    /// Books what something costs.
    pub(super) fn charge(&mut self, ns: u64) {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        self.left_ns = self.left_ns.saturating_sub(ns).max(-DEBT_NS_MAX);
    }

    /// Books what bytes cost.
    pub(super) fn charge_bytes(&mut self, bytes: u64) {
        self.charge(bytes.saturating_mul(BYTE_NS));
    }

    /// Something took this long that began with `left_ns`: counts if it was charged less.
    pub(super) fn took(&mut self, left_ns: i64, elapsed_ns: u64) {
        let elapsed_ns = i64::try_from(elapsed_ns).unwrap_or(i64::MAX);
        let left_ns = left_ns.saturating_sub(elapsed_ns).max(-DEBT_NS_MAX);
        self.left_ns = self.left_ns.min(left_ns);
    }

    /// Keeps the rest of a datagram for the next turn; false if too much waits already.
    pub(super) fn defer(&mut self, rest: Waiting) -> bool {
        let bytes = rest.body.len();
        if self.waiting.len() >= WAITING_MAX || self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            return false;
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(rest);
        true
    }

    /// Returns the first of the waiting datagrams, if anything may be restored.
    fn resume(&mut self) -> Option<Waiting> {
        if self.left_ns <= 0 {
            return None;
        }
        let first = self.waiting.pop_front()?;
        self.waiting_bytes -= first.body.len();
        Some(first)
    }

    /// It was not finished: it comes first in the next turn.
    fn put_back(&mut self, rest: Waiting) {
        self.waiting_bytes += rest.body.len();
        self.waiting.push_front(rest);
    }

    /// Marks the waiting datagrams as belonging to a session that ended.
    pub(super) fn end_session(&mut self) {
        self.waiting.iter_mut().for_each(|it| (it.is_present, it.number) = (false, 0));
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }
}

impl Node {
    /// Each peer gets its next turn, one after another; what waited for it is restored first. To be
    /// called before datagrams are read, each time round.
    pub fn take_turns(&mut self, env: &mut impl Env) {
        let peers = self.peers.len();
        self.first_turn = (self.first_turn + 1) % peers.max(1);
        for at in 0..peers {
            let index = (self.first_turn + at) % peers;
            let peer = &mut self.peers[index];
            peer.turn.begin();
            if peer.turn.is_behind() || peer.contexts.incoming.is_ready() {
                self.catch_up(env, index);
            }
        }
        self.pump_paced(env);
    }

    /// Returns true if datagrams of a peer may be read: in this turn it has not used up its budget.
    pub fn has_turn(&self, peer: usize) -> bool {
        let of_peer = |peer: &Peer| {
            let incoming = &peer.contexts.incoming;
            peer.turn.may_read() && !incoming.is_ready() && !incoming.is_clogged()
        };
        self.peers.get(peer).is_none_or(of_peer)
    }

    /// Returns true if nothing is to be read from the peer until a thread is done with something of it.
    pub fn is_clogged(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.contexts.incoming.is_clogged())
    }

    /// Returns true if datagrams wait for [`Node::take_turns`], which is to be called at once.
    pub fn is_behind(&self) -> bool {
        self.peers.iter().any(|peer| peer.turn.is_behind() || peer.contexts.incoming.is_ready())
    }

    fn catch_up(&mut self, env: &mut impl Env, index: usize) {
        let (now, left_ns) = (env.now(), self.peers[index].turn.left_ns());
        self.open_ready(env, now, index);
        let elapsed_ns = env.now().since_ns(now);
        self.peers[index].turn.took(left_ns, elapsed_ns);
        while let Some(rest) = self.peers[index].turn.resume() {
            let (now, left_ns) = (env.now(), self.peers[index].turn.left_ns());
            let rest = self.restore_rest(env, now, index, rest);
            let elapsed_ns = env.now().since_ns(now);
            let turn = &mut self.peers[index].turn;
            turn.took(left_ns, elapsed_ns);
            if let Some(rest) = rest {
                turn.put_back(rest);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(len: usize) -> Waiting {
        Waiting {
            body: vec![0; len],
            from: 0,
            packets_left: Allowance::new(9),
            is_present: true,
            number: 1,
        }
    }

    #[test]
    fn a_debt_is_paid_and_nothing_is_saved() {
        let mut turn = Turn::default();
        assert!(!turn.may_read());
        for _ in 0..9 {
            turn.begin();
        }
        assert_eq!(turn.left_ns(), BUDGET_NS);
        turn.charge(3 * BUDGET_NS as u64);
        assert!(!turn.may_read() && !turn.may_restore());
        turn.begin();
        assert!(!turn.may_read() && !turn.may_restore());
        turn.begin();
        assert!(!turn.may_read() && turn.may_restore(), "what was read may overdraw a little");
        turn.begin();
        assert!(turn.may_read());
        turn.charge(u64::MAX);
        assert_eq!(turn.left_ns(), -DEBT_NS_MAX);
    }

    #[test]
    fn time_counts_if_it_is_more_than_was_charged() {
        let mut turn = Turn::default();
        turn.begin();
        turn.charge(700);
        turn.took(BUDGET_NS, 600);
        assert_eq!(turn.left_ns(), BUDGET_NS - 700);
        turn.took(BUDGET_NS, 900);
        assert_eq!(turn.left_ns(), BUDGET_NS - 900);
    }

    #[test]
    fn what_waits_is_bounded_and_keeps_its_order() {
        let mut turn = Turn::default();
        let mut taken = 0;
        while turn.defer(rest(1_400)) {
            taken += 1;
        }
        assert_eq!(taken, WAITING_BYTES_MAX / 1_400);
        assert!(!turn.may_read() && turn.is_behind());
        assert!(turn.resume().is_none(), "it is not its turn");
        turn.begin();
        let first = turn.resume().expect("something waits");
        turn.put_back(Waiting { from: 7, ..first });
        assert_eq!(turn.resume().map(|it| it.from), Some(7));
        turn.clear();
        assert!(turn.may_read() && turn.waiting_bytes == 0);
        let small = (0..10_000).take_while(|_| turn.defer(rest(1))).count();
        assert_eq!(small, WAITING_MAX);
    }
}
