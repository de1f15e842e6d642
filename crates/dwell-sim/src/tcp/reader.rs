//! The program behind a receiver, which reads what has arrived in order, and what room it leaves in the buffer.

/// The way in which a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time that it takes for a packet. At least 1.
    pub packet_ns: u64,
    /// It comes back for more so often, and reads as much as it would have read by then. At least 1.
    pub every_ns: u64,
    /// The packets of room that the sender hears of while the buffer is empty, though it may hold more; as it fills, they become
    /// fewer in proportion. `None`: all the room there is. At least 1. Linux announces what it would hold of packets that arrive
    /// one by one, and puts them together then, which takes less memory.
    pub announced_packets: Option<u32>,
}

/// A program that reads, and the window that it leaves to the sender.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    reading: Reading,
    buffer_packets: u64,
    announced: Option<u64>,
    /// All packets before it have been read.
    read: u64,
    /// One past the last packet that the sender knows to be welcome.
    edge: u64,
    /// The number of times that it has come so far.
    visits: u64,
    /// The time that it has for packets which it has not read yet.
    credit_ns: u64,
}

impl Reader {
    pub(super) fn new(reading: Reading, buffer_packets: u64) -> Self {
        let announced = reading.announced_packets.map(u64::from);
        let edge = announced.map_or(buffer_packets, |most| most.min(buffer_packets));
        Self { reading, buffer_packets, announced, read: 0, edge, visits: 0, credit_ns: 0 }
    }

    /// Reads what it has read by now, of all packets before `next`.
    pub(super) fn advance(&mut self, now_ns: u64, next: u64) {
        let visits = now_ns / self.reading.every_ns;
        let gained_ns = (visits - self.visits).saturating_mul(self.reading.every_ns);
        self.visits = visits;
        self.credit_ns = self.credit_ns.saturating_add(gained_ns);
        let packets = (self.credit_ns / self.reading.packet_ns).min(next - self.read);
        self.read += packets;
        self.credit_ns -= packets * self.reading.packet_ns;
        if self.read == next {
            self.credit_ns = 0; // time without work is no time for later work
        }
    }

    /// Returns the time of the next visit at which it reads a packet, if anything waits for it. Those before change nothing.
    pub(super) fn deadline(&self, next: u64) -> Option<u64> {
        let Reading { packet_ns, every_ns, .. } = self.reading;
        let visits = packet_ns.saturating_sub(self.credit_ns).div_ceil(every_ns).max(1);
        let at = || self.visits.saturating_add(visits).saturating_mul(every_ns);
        (self.read < next).then(at)
    }

    /// Returns true if there is room for this packet.
    pub(super) fn takes(&self, seq: u64) -> bool {
        seq < self.read + self.buffer_packets
    }

    /// Returns true if the sender should hear of the room that there is now: twice of what it knows of, as in
    /// Linux.
    pub(super) fn has_news(&self, next: u64) -> bool {
        let known = self.edge.saturating_sub(next);
        let room = self.room(next);
        room > known && room >= 2 * known
    }

    /// Returns the room beyond `next`, of which the sender is going to hear. It never shrinks from the right.
    pub(super) fn window(&mut self, next: u64) -> u32 {
        self.edge = self.edge.max(next + self.room(next));
        u32::try_from(self.edge - next).unwrap_or(u32::MAX)
    }

    /// The room beyond `next` that the sender may hear of.
    fn room(&self, next: u64) -> u64 {
        let free = (self.read + self.buffer_packets).saturating_sub(next);
        match self.announced {
            Some(most) if most < self.buffer_packets => most * free / self.buffer_packets,
            _ => free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(packet_ns: u64, every_ns: u64) -> Reader {
        Reader::new(Reading { packet_ns, every_ns, announced_packets: None }, 10)
    }

    #[test]
    fn it_reads_at_its_rate_and_saves_no_time_up() {
        let mut reader = reader(10, 10);
        reader.advance(95, 0);
        assert_eq!(reader.deadline(0), None);
        assert_eq!((reader.read, reader.deadline(4)), (0, Some(100)));
        reader.advance(100, 4);
        assert_eq!(reader.read, 1);
        reader.advance(125, 4);
        assert_eq!((reader.read, reader.window(4)), (3, 9));
        reader.advance(1_000, 4);
        assert_eq!((reader.read, reader.credit_ns), (4, 0));
    }

    #[test]
    fn one_that_comes_seldom_reads_much_at_once() {
        let mut reader = reader(10, 100);
        reader.advance(99, 10);
        assert_eq!((reader.read, reader.window(10)), (0, 0));
        assert!(!reader.takes(10) && !reader.has_news(10));
        reader.advance(100, 10);
        assert_eq!(reader.read, 10);
        assert!(reader.takes(10) && reader.takes(19) && !reader.takes(20));
        assert!(reader.has_news(10));
        assert_eq!(reader.window(10), 10);
        assert!(!reader.has_news(10));
    }

    #[test]
    fn visits_that_read_nothing_are_not_waited_for() {
        let mut often = reader(1_000_000, 1);
        often.advance(0, 1);
        assert_eq!(often.deadline(1), Some(1_000_000));
        often.advance(300, 1);
        assert_eq!(often.deadline(1), Some(1_000_000));
        often.advance(1_000_000, 1);
        assert_eq!((often.read, often.deadline(1)), (1, None));
        let mut other = reader(25, 10);
        other.advance(10, 2);
        assert_eq!(other.deadline(2), Some(30));
        other.advance(30, 2);
        // 5 ns are left of the third visit.
        assert_eq!((other.read, other.deadline(2)), (1, Some(50)));
    }

    #[test]
    fn less_than_there_is_may_be_announced_in_proportion() {
        let reading = Reading { packet_ns: 10, every_ns: 100, announced_packets: Some(6) };
        let mut reader = Reader::new(reading, 10);
        assert_eq!(reader.window(0), 6);
        // 6 × 8/10, of 7/10, of 4/10 and of 1/10, and never back behind what was announced.
        assert_eq!([2, 3, 6, 9].map(|next| reader.window(next)), [4, 4, 2, 0]);
        assert_eq!(reader.edge, 9);
        assert!(reader.takes(9) && !reader.takes(10));
        reader.advance(200, 10);
        assert!(reader.has_news(10));
        assert_eq!(reader.window(10), 6);
    }

    #[test]
    fn small_changes_of_an_open_window_are_no_news() {
        let mut reader = reader(10, 10);
        assert_eq!(reader.window(4), 6);
        reader.advance(30, 4);
        assert!(!reader.has_news(4), "9 are not twice 6");
        assert_eq!(reader.window(8), 5);
        reader.advance(60, 8);
        assert!(!reader.has_news(8), "8 are not twice 5");
    }
}
