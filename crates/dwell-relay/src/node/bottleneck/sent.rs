//! When each of the latest datagrams was sent, and its bytes.

use dwell_base::Instant;

/// A report is of what was sent a round trip before: of so many datagrams at first, which is enough for a hundred milliseconds
/// of 25 Mbit/s, ...
const LEN_MIN: usize = 256;
/// ... and of more, up to this, once the peer says something of one that is forgotten.
const LEN_MAX: usize = 4_096;
/// Times are kept in units of 2^8 ns: finer than the peer tells them, and they return after 18 minutes.
const TICK_SHIFT: u32 = 8;

/// A datagram that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) link_bytes: u64,
}

/// The same in 12 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    number: u32,
    ticks: u32,
    link_bytes: u16,
}

/// By number, in a ring that is as long as it has to be.
#[derive(Clone, Debug, Default)]
pub(super) struct SentRing {
    entries: Vec<Entry>,
    latest: u64,
    latest_at: Instant,
}

impl SentRing {
    #[inline]
    pub(super) fn sent(&mut self, at: Instant, number: u64, link_bytes: u64) {
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); LEN_MIN];
        }
        let entry = Entry {
            number: number as u32, // what is as far away was overwritten long ago
            ticks: (at.as_ns() >> TICK_SHIFT) as u32,
            link_bytes: link_bytes.try_into().unwrap_or(u16::MAX),
        };
        let len = self.entries.len();
        self.entries[number as usize % len] = entry;
        (self.latest, self.latest_at) = (number, at);
    }

    /// Returns the datagram with this number, if it is among the latest.
    pub(super) fn get(&self, number: u64) -> Option<Sent> {
        let len = self.entries.len();
        let behind = self.latest.checked_sub(number)?;
        if number == 0 || behind >= len as u64 {
            return None;
        }
        let entry = self.entries[number as usize % len];
        let latest_ticks = self.latest_at.as_ns() >> TICK_SHIFT;
        let before = (latest_ticks as u32).wrapping_sub(entry.ticks);
        (entry.number == number as u32).then_some(Sent {
            at: Instant::from_ns(latest_ticks.saturating_sub(before.into()) << TICK_SHIFT),
            link_bytes: entry.link_bytes.into(),
        })
    }

    /// The peer says something of this one: so many are kept that it would still be known.
    pub(super) fn reach(&mut self, number: u64) {
        let Some(behind) = self.latest.checked_sub(number) else { return };
        let len = self.entries.len();
        if number == 0 || len == 0 || behind < len as u64 || len == LEN_MAX {
            return;
        }
        let needed = behind.saturating_mul(2).clamp(LEN_MIN as u64, LEN_MAX as u64) as usize;
        let mut entries = vec![Entry::default(); needed.next_power_of_two()];
        let longer = entries.len();
        for entry in self.entries.drain(..) {
            entries[entry.number as usize % longer] = entry;
        }
        self.entries = entries;
    }

    /// A new session: its numbers begin again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::{MICRO_NS, SECOND_NS};

    use super::*;

    #[test]
    fn a_peer_costs_little_until_its_reports_are_of_long_ago() {
        let mut ring = SentRing::default();
        let at = |number: u64| Instant::from_ns(40 * SECOND_NS + number * 77 * MICRO_NS);
        let mut number = 0;
        let mut send = |ring: &mut SentRing, count: u64| {
            for _ in 0..count {
                number += 1;
                ring.sent(at(number), number, 100 + number % 1_400);
            }
            number
        };
        let last = send(&mut ring, 10_000);
        assert_eq!(ring.entries.capacity() * size_of::<Entry>(), 3_072);
        let is_right = |ring: &SentRing, number: u64| {
            let sent = ring.get(number).expect("it is known");
            assert!(sent.at.since_ns(at(number)) == 0 && at(number).since_ns(sent.at) < 256);
            assert_eq!(sent.link_bytes, 100 + number % 1_400);
        };
        (last - 255..=last).for_each(|number| is_right(&ring, number));
        assert!(ring.get(last - 256).is_none() && ring.get(last + 1).is_none());
        // A report comes of what was sent 1000 datagrams ago; what is known stays known.
        ring.reach(last - 1_000);
        (last - 255..=last).for_each(|number| is_right(&ring, number));
        let last = send(&mut ring, 1_100);
        (last - 1_000..=last).for_each(|number| is_right(&ring, number));
        // However long ago it was, and whatever a peer says.
        for number in [0, 1, last + 1, u64::MAX] {
            ring.reach(number);
        }
        assert_eq!(ring.entries.len(), LEN_MAX);
        ring.clear();
        assert!(ring.get(last).is_none());
    }
}
