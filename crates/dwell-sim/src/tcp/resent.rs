//! Retransmissions that are lost again, as Linux finds them (RACK, RFC 8985, `tcp_recovery.c`): what was sent before a packet that has
//! arrived, and has not arrived itself, is lost. Packets keep their order here, so that nothing has to wait for it.

use std::collections::VecDeque;

/// The transmissions of a sender, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Resent {
    /// Packets from this number on are outstanding.
    from: u64,
    /// The place of each one's latest transmission in the order of all; none once it has arrived.
    places: VecDeque<Option<u64>>,
    sent: u64,
    /// The latest transmission that has arrived.
    newest: Option<u64>,
    /// Retransmissions under way, the oldest first: packet, and place.
    flying: VecDeque<(u64, u64)>,
    /// Packets whose retransmission was lost, the lowest first.
    lost: Vec<u64>,
}

impl Resent {
    pub(super) fn on_sent(&mut self, seq: u64, resent: bool) {
        let place = self.sent;
        self.sent += 1;
        let Some(at) = seq.checked_sub(self.from) else { return };
        match self.places.get_mut(at as usize) {
            Some(slot) => *slot = slot.map(|_| place),
            None => self.places.push_back(Some(place)),
        }
        if resent {
            self.flying.push_back((seq, place));
            self.lost.retain(|&other| other != seq);
        }
    }

    /// Notes that packets up to `seq` are acknowledged.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        while self.from < seq {
            let Some(place) = self.places.pop_front() else { break };
            self.newest = self.newest.max(place);
            self.from += 1;
        }
        self.from = self.from.max(seq);
    }

    /// Notes that the packets of a block have arrived.
    pub(super) fn reported(&mut self, from: u64, until: u64) {
        let places = from.saturating_sub(self.from)..until.saturating_sub(self.from);
        for at in places.start as usize..(places.end as usize).min(self.places.len()) {
            self.newest = self.newest.max(self.places[at].take());
        }
    }

    /// Takes out of what is under way what is lost by what has arrived; returns the number of packets.
    pub(super) fn find_lost(&mut self) -> u64 {
        let (from, places) = (self.from, &self.places);
        let is_out = |seq: u64| {
            let at = seq.checked_sub(from);
            at.and_then(|at| places.get(at as usize)).is_some_and(Option::is_some)
        };
        self.lost.retain(|&seq| is_out(seq));
        let mut found = 0;
        while let Some(&(seq, place)) = self.flying.front() {
            if is_out(seq) && self.newest.is_none_or(|newest| newest < place) {
                break;
            }
            self.flying.pop_front();
            if is_out(seq) {
                let at = self.lost.partition_point(|&other| other < seq);
                self.lost.insert(at, seq);
                found += 1;
            }
        }
        found
    }

    /// The lowest packet whose retransmission was lost.
    pub(super) fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// The number of packets whose retransmission was lost, and that were not sent once more.
    pub(super) fn lost_len(&self) -> u64 {
        self.lost.len() as u64
    }

    /// After a timeout all that has not arrived counts as lost.
    pub(super) fn on_timeout(&mut self) {
        self.flying.clear();
        self.lost.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retransmission_is_lost_once_something_sent_after_it_has_arrived() {
        let mut sent = Resent::default();
        (0..10).for_each(|seq| sent.on_sent(seq, false));
        sent.acknowledged(2);
        sent.reported(4, 10);
        sent.on_sent(2, true);
        sent.on_sent(10, false);
        sent.on_sent(3, true);
        assert_eq!((sent.find_lost(), sent.first_lost()), (0, None));
        // 10 was sent after 2, and before 3.
        sent.reported(4, 11);
        assert_eq!((sent.find_lost(), sent.first_lost(), sent.lost_len()), (1, Some(2), 1));
        sent.on_sent(2, true);
        assert_eq!((sent.find_lost(), sent.lost_len()), (0, 0));
        // That of 3 arrives; the second one of 2 was sent after it.
        sent.reported(3, 11);
        assert_eq!(sent.find_lost(), 0);
        sent.acknowledged(11);
        assert_eq!((sent.find_lost(), sent.first_lost()), (0, None));
    }
}
