//! The receiving end: the packets that have arrived, and their acknowledgements.

use super::bits::RingBits;
use super::config::{Like, TcpConfig, TcpConfigError};
use super::reader::Reader;
use super::sack_delay::SackDelay;
use super::segment::{Ack, SACK_BLOCKS_MAX, SackBlock};

/// The receiving end of a connection.
///
/// Acknowledgements are those of ns-2's `Agent/TCPSink/Sack1`: the first block is the run of
/// packets that the answered one belongs to, the others are the blocks of the latest
/// acknowledgements that it does not cover (RFC 2018, section 4).
#[derive(Clone, Debug)]
pub struct Receiver {
    ack_bytes: u32,
    window_packets: u64,
    delayed_ack_ns: Option<u64>,
    /// All before it have arrived.
    next: u64,
    /// One past the highest that has arrived, or `next`.
    end: u64,
    /// The packets of `[next, end)` that have arrived.
    arrived: RingBits,
    /// The blocks of the latest acknowledgements, the latest first.
    reported: [SackBlock; SACK_BLOCKS_MAX],
    reported_len: usize,
    echo_ns: u64,
    /// `next`, as it was last reported to the sender.
    next_reported: u64,
    /// True if a packet was marked that is not answered yet.
    was_marked: bool,
    /// The packet whose acknowledgement is being delayed, and until when.
    delayed: Option<Delayed>,
    /// The program that reads, if it does not read at once.
    reader: Option<Box<Reader>>,
    /// Lets acknowledgements beyond a gap wait for each other.
    sack_delay: Option<Box<SackDelay>>,
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    seq: u64,
    until_ns: u64,
}

impl Receiver {
    /// The receiving end of a connection with these parameters.
    ///
    /// # Errors
    /// A parameter is outside of its range.
    pub fn new(config: &TcpConfig) -> Result<Self, TcpConfigError> {
        config.check()?;
        Ok(Self {
            ack_bytes: config.ack_bytes,
            window_packets: u64::from(config.window_packets),
            delayed_ack_ns: config.delayed_ack_ns,
            next: 0,
            end: 0,
            arrived: RingBits::new(),
            reported: [SackBlock::default(); SACK_BLOCKS_MAX],
            reported_len: 0,
            echo_ns: 0,
            next_reported: 1,
            was_marked: false,
            delayed: None,
            reader: config
                .reading
                .map(|reading| Box::new(Reader::new(reading, u64::from(config.window_packets)))),
            sack_delay: (config.like == Like::Linux).then(Box::default),
        })
    }

    /// Notes that the packet that arrives next is marked: the next answer says so.
    pub fn note_mark(&mut self) {
        self.was_marked = true;
    }

    /// Packet `seq` arrives, which was sent at `sent_ns`. Returns the answer, unless it is
    /// delayed. A packet from beyond the window is not taken, but answered.
    pub fn on_segment(&mut self, now_ns: u64, seq: u64, sent_ns: u64) -> Option<Ack> {
        if sent_ns >= self.echo_ns && seq <= self.next_reported {
            self.echo_ns = sent_ns;
        }
        if let Some(reader) = &mut self.reader {
            reader.advance(now_ns, self.next);
        }
        self.take(seq);
        if let Some(delay_ns) = self.delayed_ack_ns
            && self.may_delay(seq)
        {
            self.delayed = Some(Delayed { seq, until_ns: now_ns.saturating_add(delay_ns) });
            return None;
        }
        if self.waits_beyond_gap(now_ns, seq, sent_ns) {
            return None;
        }
        self.delayed = None;
        Some(self.answer(seq))
    }

    /// Lets the answer to a packet beyond a gap wait, if it may; those of marks don't.
    fn waits_beyond_gap(&mut self, now_ns: u64, seq: u64, sent_ns: u64) -> bool {
        let is_beyond = seq >= self.next && seq < self.end && self.arrived.get(seq);
        let may_wait = is_beyond && !self.was_marked;
        let Some(sack_delay) = &mut self.sack_delay else { return false };
        sack_delay.measure(now_ns.saturating_sub(sent_ns));
        let wait_ns = if may_wait { sack_delay.wait_ns(self.next) } else { None };
        let Some(wait_ns) = wait_ns else {
            sack_delay.on_sent();
            return false;
        };
        // Its block is among the latest, though this answer is not sent.
        self.report_blocks(seq, &mut Ack::new(self.next, self.echo_ns, self.ack_bytes));
        let until_ns = now_ns.saturating_add(wait_ns);
        let until_ns = self.delayed.map_or(until_ns, |delayed| delayed.until_ns);
        self.delayed = Some(Delayed { seq, until_ns });
        true
    }

    /// Returns the time at which [`Self::on_timer`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        let delayed = self.delayed.map(|delayed| delayed.until_ns);
        let visit = self.reader.as_ref().and_then(|reader| reader.deadline(self.next));
        delayed.into_iter().chain(visit).min()
    }

    /// Returns the acknowledgement that was delayed until `now_ns`, or one that says that there is room again;
    /// nothing if it is not time.
    pub fn on_timer(&mut self, now_ns: u64) -> Option<Ack> {
        let mut has_news = false;
        if let Some(reader) = &mut self.reader {
            reader.advance(now_ns, self.next);
            has_news = reader.has_news(self.next);
        }
        match self.delayed.take_if(|delayed| delayed.until_ns <= now_ns || has_news) {
            Some(delayed) => {
                if let Some(sack_delay) = &mut self.sack_delay {
                    sack_delay.on_sent();
                }
                Some(self.answer(delayed.seq))
            }
            None => has_news.then(|| self.answer(self.next.saturating_sub(1))),
        }
    }

    /// All packets before this one have arrived.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// Notes that `seq` has arrived, unless it is beyond the window.
    fn take(&mut self, seq: u64) {
        if self.reader.as_ref().is_some_and(|reader| !reader.takes(seq)) {
            return;
        }
        if seq == self.next && self.end == self.next {
            self.next += 1;
            self.end = self.next;
            return;
        }
        if seq < self.next || seq - self.next >= self.window_packets {
            return;
        }
        let end = self.end.max(seq + 1);
        self.arrived.reserve(self.next, self.end, end);
        self.arrived.set_range(seq, seq + 1);
        self.end = end;
        if seq == self.next {
            let next = self.arrived.first_clear(seq, self.end);
            self.arrived.clear_range(seq, next);
            self.next = next;
        }
    }

    /// The answer to an expected packet may wait for the packet after it, but not if there
    /// is a gap above it (RFC 5681, section 4.2), or if it opens the connection.
    fn may_delay(&self, seq: u64) -> bool {
        self.delayed.is_none() && seq + 1 == self.next && self.next == self.end && seq != 0
    }

    fn answer(&mut self, seq: u64) -> Ack {
        let mut ack = Ack::new(self.next, self.echo_ns, self.ack_bytes);
        ack.ecn_echo = std::mem::take(&mut self.was_marked);
        if let Some(reader) = &mut self.reader {
            ack.window = reader.window(self.next);
        }
        self.next_reported = self.next;
        if self.next < self.end {
            self.report_blocks(seq, &mut ack);
        } else {
            self.reported_len = 0;
        }
        ack
    }

    fn report_blocks(&mut self, seq: u64, ack: &mut Ack) {
        let beyond_gap = seq >= self.next && seq < self.end && self.arrived.get(seq);
        let recent = if beyond_gap {
            let end = self.arrived.first_clear(seq, self.end);
            SackBlock { start: self.arrived.run_start(self.next, end), end }
        } else {
            SackBlock { start: 0, end: self.next }
        };
        if beyond_gap {
            ack.push(recent);
        }
        let mut index = 0;
        while ack.blocks().len() < SACK_BLOCKS_MAX && index < self.reported_len {
            if recent.covers(self.reported[index]) {
                self.reported.copy_within(index + 1..self.reported_len, index);
                self.reported_len -= 1;
            } else {
                ack.push(self.reported[index]);
                index += 1;
            }
        }
        if beyond_gap {
            self.reported_len = (self.reported_len + 1).min(SACK_BLOCKS_MAX);
            self.reported.copy_within(..self.reported_len - 1, 1);
            self.reported[0] = recent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cumulative number and the blocks of the answer to each packet.
    fn answers(packets: &[u64]) -> Vec<(u64, Vec<(u64, u64)>)> {
        let mut receiver = Receiver::new(&TcpConfig::sack1()).unwrap();
        let reported = |ack: Ack| ack.blocks().map(|b| (b.start, b.end)).collect();
        let answer = |&seq| receiver.on_segment(seq, seq, seq).unwrap();
        packets.iter().map(answer).map(|ack| (ack.cumulative, reported(ack))).collect()
    }

    #[test]
    fn packets_in_order_are_acknowledged_without_blocks() {
        assert_eq!(answers(&[0, 1, 2]), [(1, vec![]), (2, vec![]), (3, vec![])]);
    }

    #[test]
    fn the_latest_block_comes_first_and_three_are_reported() {
        assert_eq!(
            answers(&[0, 2, 4, 6, 8, 7]),
            [
                (1, vec![]),
                (1, vec![(2, 3)]),
                (1, vec![(4, 5), (2, 3)]),
                (1, vec![(6, 7), (4, 5), (2, 3)]),
                (1, vec![(8, 9), (6, 7), (4, 5)]),
                // 7 joins two blocks; blocks before the last three are forgotten.
                (1, vec![(6, 9), (4, 5)]),
            ]
        );
    }

    #[test]
    fn a_filled_gap_moves_the_cumulative_number_and_keeps_the_blocks_above() {
        assert_eq!(
            answers(&[0, 2, 4, 1, 3, 5])[3..],
            [(3, vec![(4, 5)]), (5, vec![]), (6, vec![])]
        );
    }

    #[test]
    fn duplicates_are_answered() {
        assert_eq!(
            answers(&[0, 1, 1, 3, 3, 0])[2..],
            [(2, vec![]), (2, vec![(3, 4)]), (2, vec![(3, 4)]), (2, vec![(3, 4)])]
        );
    }

    #[test]
    fn blocks_add_to_the_size() {
        let mut receiver = Receiver::new(&TcpConfig::sack1()).unwrap();
        let mut bytes = |seq| receiver.on_segment(0, seq, 0).unwrap().bytes;
        assert_eq!([bytes(0), bytes(2), bytes(4)], [40, 48, 56]);
    }

    #[test]
    fn the_echo_is_of_the_packet_that_was_waited_for() {
        let mut receiver = Receiver::new(&TcpConfig::sack1()).unwrap();
        let mut echo = |seq, sent| receiver.on_segment(0, seq, sent).unwrap().echo_ns;
        assert_eq!([echo(0, 10), echo(2, 20), echo(3, 30), echo(1, 40)], [10, 10, 10, 40]);
    }

    #[test]
    fn what_lies_beyond_the_window_is_not_taken() {
        let config = TcpConfig { window_packets: 10, ..TcpConfig::sack1() };
        let mut receiver = Receiver::new(&config).unwrap();
        for seq in [10, u64::MAX] {
            let ack = receiver.on_segment(0, seq, 0).unwrap();
            assert_eq!((ack.cumulative, ack.blocks().len()), (0, 0));
        }
        assert_eq!(receiver.on_segment(0, 9, 0).unwrap().blocks().len(), 1);
    }

    #[test]
    fn delayed_answers_are_for_two_packets_or_after_a_while() {
        let config = TcpConfig { delayed_ack_ns: Some(100), ..TcpConfig::sack1() };
        let mut receiver = Receiver::new(&config).unwrap();
        assert_eq!(receiver.on_segment(0, 0, 0).map(|ack| ack.cumulative), Some(1));
        assert_eq!(receiver.on_segment(1, 1, 0), None);
        assert_eq!(receiver.on_segment(2, 2, 0).map(|ack| ack.cumulative), Some(3));
        assert_eq!(receiver.on_segment(3, 3, 0), None);
        assert_eq!(receiver.deadline(), Some(103));
        assert_eq!(receiver.on_timer(102), None);
        assert_eq!(receiver.on_timer(103).map(|ack| ack.cumulative), Some(4));
        assert_eq!(receiver.deadline(), None);
        // A gap, and a packet that fills it, are reported at once.
        assert!(receiver.on_segment(4, 5, 0).is_some());
        assert!(receiver.on_segment(5, 4, 0).is_some());
    }

    #[test]
    fn like_linux_answers_beyond_a_gap_wait_for_each_other() {
        let config = TcpConfig { like: Like::Linux, ..TcpConfig::new_reno() };
        let mut receiver = Receiver::new(&config).unwrap();
        let ms = 1_000_000;
        let mut arrives = |at_us: u64, seq: u64| {
            let now_ns = 100 * ms + at_us * 1_000;
            receiver.on_segment(now_ns, seq, now_ns - 20 * ms).map(|ack| ack.cumulative)
        };
        // 1 is missing; three show it, the others wait.
        assert_eq!([0, 2, 3, 4].map(|seq| arrives(0, seq)), [Some(1); 4]);
        assert_eq!([5, 6].map(|seq| arrives(10 * seq, seq)), [None; 2]);
        // Another gap within, reported though nothing was sent for it.
        assert_eq!([8, 10].map(|seq| arrives(10 * seq, seq)), [None; 2]);
        assert_eq!(receiver.deadline(), Some(101 * ms + 150_000));
        assert_eq!(receiver.on_timer(101 * ms), None);
        let ack = receiver.on_timer(101 * ms + 150_000).unwrap();
        let blocks: Vec<_> = ack.blocks().map(|block| (block.start, block.end)).collect();
        assert_eq!((ack.cumulative, blocks), (1, vec![(10, 11), (8, 9), (2, 7)]));
        // What fills the gap is answered at once.
        assert_eq!(receiver.on_segment(102 * ms, 11, 82 * ms).map(|ack| ack.cumulative), None);
        assert_eq!(receiver.on_segment(102 * ms, 1, 82 * ms).map(|ack| ack.cumulative), Some(7));
        assert_eq!(receiver.deadline(), None);
    }
}
