//! When datagrams came, one by one (`docs/wire.md` section 7).

use crate::reader::Reader;

/// The most gaps in one message: it is not longer than a report.
pub const GAPS_MAX: usize = 40;
/// The resolution of times, in nanoseconds.
pub const GAP_UNIT_NS: u64 = 4_000;
/// The subtype, the first number, when that datagram came, and the number of gaps.
pub(crate) const HEADER_LEN: usize = 1 + 8 + 8 + 1;
/// A datagram that had not come when the message was written, or came after one with a higher number, or
/// more than 262 ms after the one before it.
const UNKNOWN: u16 = u16::MAX;

/// When datagrams with consecutive numbers came, by their receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// The number of the first datagram.
    pub first: u64,
    /// When it came, in nanoseconds of the receiver's clock; only differences are meaningful.
    pub first_at_ns: u64,
    pub(crate) len: u8,
    gaps: [u16; GAPS_MAX],
    /// The time of the latest datagram that is in it, in units.
    latest: u64,
}

impl Arrivals {
    /// Begins with a datagram that came at this time, in nanoseconds.
    pub const fn new(first: u64, first_at_ns: u64) -> Self {
        let latest = first_at_ns / GAP_UNIT_NS;
        Self { first, first_at_ns, len: 0, gaps: [0; GAPS_MAX], latest }
    }

    /// Adds the datagram with the next number, and when it came, in nanoseconds; none if that is not known.
    /// False if there is no room.
    pub fn push(&mut self, came_at_ns: Option<u64>) -> bool {
        let Some(slot) = self.gaps.get_mut(usize::from(self.len)) else { return false };
        let units = came_at_ns.map(|ns| ns / GAP_UNIT_NS);
        let gap = units.and_then(|units| u16::try_from(units.checked_sub(self.latest)?).ok());
        *slot = gap.unwrap_or(UNKNOWN);
        if let Some(units) = units.filter(|_| *slot != UNKNOWN) {
            self.latest = units;
        }
        self.len += 1;
        true
    }

    /// Returns the numbers and when each of these datagrams came, in nanoseconds with a resolution of
    /// [`GAP_UNIT_NS`], as far as that is known.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Option<u64>)> + use<> {
        let Self { first, first_at_ns, len, gaps, .. } = *self;
        let mut at_ns = first_at_ns;
        let others = (0..usize::from(len)).map(move |index| {
            let gap = Some(gaps[index]).filter(|&gap| gap != UNKNOWN);
            let came_at_ns = gap.map(|gap| at_ns.wrapping_add(u64::from(gap) * GAP_UNIT_NS));
            at_ns = came_at_ns.unwrap_or(at_ns);
            (index as u64 + 1, came_at_ns)
        });
        let number = move |(after, at)| Some((first.checked_add(after)?, at));
        std::iter::once((0, Some(first_at_ns))).chain(others).map_while(number)
    }

    /// The gaps as they stand on the wire.
    pub(crate) fn written(&self) -> &[u16] {
        &self.gaps[..usize::from(self.len)]
    }

    pub(crate) fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let mut arrivals = Self::new(rest.u64()?, rest.u64()?);
        arrivals.len = rest.u8()?.min(GAPS_MAX as u8);
        for slot in &mut arrivals.gaps[..usize::from(arrivals.len)] {
            let gap = rest.u16()?;
            *slot = gap;
            if gap != UNKNOWN {
                arrivals.latest = arrivals.latest.wrapping_add(gap.into());
            }
        }
        Some(arrivals)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_arrivals() -> impl Strategy<Value = Arrivals> {
        let gaps = prop::collection::vec(any::<u16>(), 0..=GAPS_MAX);
        (any::<(u64, u64)>(), gaps).prop_map(|((first, first_at_ns), gaps)| {
            let body: Vec<u8> = gaps.iter().flat_map(|gap| gap.to_be_bytes()).collect();
            let head = [first.to_be_bytes(), first_at_ns.to_be_bytes()].concat();
            let all = [head, vec![gaps.len() as u8], body].concat();
            Arrivals::read(&mut Reader(&all)).expect("it is whole")
        })
    }

    #[test]
    fn times_are_kept_to_their_resolution_and_errors_do_not_add_up() {
        let times: Vec<u64> = (0..=GAPS_MAX as u64).map(|at| 1_000_001 + at * 33_333).collect();
        let mut arrivals = Arrivals::new(7, times[0]);
        for &at in &times[1..] {
            assert!(arrivals.push(Some(at)));
        }
        assert!(!arrivals.push(Some(9_999_999)), "there is no room");
        for ((number, at), (index, &time)) in arrivals.iter().zip(times.iter().enumerate()) {
            assert_eq!(number, 7 + index as u64);
            assert!(at.expect("it came").abs_diff(time) <= GAP_UNIT_NS);
        }
    }

    #[test]
    fn what_did_not_come_in_order_or_in_time_is_unknown() {
        let ms = |ms: u64| Some(ms * 1_000_000);
        let mut arrivals = Arrivals::new(1, 1_000_000);
        for at in [ms(3), None, ms(2), ms(4), ms(900), ms(5)] {
            arrivals.push(at);
        }
        let times: Vec<_> = arrivals.iter().map(|(_, at)| at).collect();
        assert_eq!(times, [ms(1), ms(3), None, None, ms(4), None, ms(5)]);
        let last = Arrivals::new(u64::MAX, 0);
        assert_eq!(last.iter().count(), 1);
    }
}
