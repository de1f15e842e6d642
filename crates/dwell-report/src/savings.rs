//! The account of what was saved, by days.
//!
//! Its file has two lines of equal length, of which one is written at a time: whenever a machine loses its
//! power, the other one is whole. Each line has a number that grows, and a check sum.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::{Saved, SavingsStatus};

/// The days that are kept one by one.
const DAYS_MAX: usize = 31;
/// A clock with an earlier day was not set yet: the first of January 2026.
const SET_DAY_MIN: u32 = 20_454;
/// The length of each of the two lines.
pub const SLOT_LEN: usize = 4_096;
/// The two of them.
pub const FILE_LEN: usize = 2 * SLOT_LEN;

/// What was saved since the account began. Days are counted from 1970, UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Savings {
    /// Grows by one each time that it is written.
    #[serde(default)]
    version: u64,
    first_day: u32,
    total: (u64, u64),
    /// By day: bytes without dwell, and bytes that the link carried.
    days: BTreeMap<u32, (u64, u64)>,
}

impl Savings {
    /// Begins an account today.
    pub fn new(day: u32) -> Self {
        Self { first_day: day, ..Self::default() }
    }

    /// Adds what was saved on this day.
    pub fn add(&mut self, day: u32, saved: Saved) {
        add(&mut self.total, saved);
        if day < SET_DAY_MIN {
            return;
        }
        // Days that have not come were noted by a clock that was wrong.
        self.days.retain(|&noted, _| noted <= day);
        self.first_day = match self.first_day {
            first if first < SET_DAY_MIN => day,
            first => first.min(day),
        };
        add(self.days.entry(day).or_default(), saved);
        while self.days.len() > DAYS_MAX {
            self.days.pop_first();
        }
    }

    /// Returns the sums as they are on this day.
    pub fn status(&self, day: u32) -> SavingsStatus {
        let since = |from: u32| {
            let days = self.days.range(from..=day.max(from));
            days.map(|(_, &day)| saved(day)).fold(Saved::default(), Saved::plus)
        };
        SavingsStatus {
            today: since(day),
            days_30: since(day.saturating_sub(29)),
            total: saved(self.total),
            total_days: u64::from(day.saturating_sub(self.first_day)) + 1,
            ..SavingsStatus::default()
        }
    }

    /// Returns the place in the file of the next line to be written, and that line.
    pub fn next_slot(&mut self) -> (usize, Vec<u8>) {
        self.version = self.version.wrapping_add(1);
        let place = if self.version.is_multiple_of(2) { 0 } else { SLOT_LEN };
        // Numbers and lists of numbers can always be written.
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut line = format!("{:016x} {json}", hash(json.as_bytes())).into_bytes();
        line.resize(SLOT_LEN - 1, b' ');
        line.push(b'\n');
        (place, line)
    }

    /// Reads the later of the lines that are whole; none if neither is.
    pub fn read(file: &[u8]) -> Option<Self> {
        let slots = file.get(..FILE_LEN.min(file.len()))?.chunks(SLOT_LEN);
        slots.filter_map(read_slot).max_by_key(|savings| savings.version)
    }
}

fn read_slot(slot: &[u8]) -> Option<Savings> {
    let text = std::str::from_utf8(slot).ok()?.trim_end();
    let (sum, json) = text.split_once(' ')?;
    let savings: Savings = (sum == format!("{:016x}", hash(json.as_bytes())))
        .then(|| serde_json::from_str(json).ok())??;
    (savings.days.len() <= DAYS_MAX).then_some(savings)
}

/// FNV-1a: it finds damage, and nobody forges what root alone can write.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn add(sum: &mut (u64, u64), saved: Saved) {
    sum.0 = sum.0.saturating_add(saved.plain_bytes);
    sum.1 = sum.1.saturating_add(saved.taken_bytes);
}

fn saved((plain_bytes, taken_bytes): (u64, u64)) -> Saved {
    Saved { plain_bytes, taken_bytes }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(plain_bytes: u64, taken_bytes: u64) -> Saved {
        Saved { plain_bytes, taken_bytes }
    }

    fn at(day: u32) -> u32 {
        SET_DAY_MIN + day
    }

    #[test]
    fn days_add_up() {
        let mut savings = Savings::new(at(100));
        for day in at(100)..at(150) {
            savings.add(day, of(10, 4));
            savings.add(day, of(10, 4));
        }
        let status = savings.status(at(149));
        assert_eq!(
            (status.today, status.days_30, status.total),
            (of(20, 8), of(600, 240), of(1000, 400))
        );
        assert_eq!((status.total_days, status.total.net_bytes()), (50, 600));
        let later = savings.status(at(160));
        assert_eq!((later.today, later.days_30), (of(0, 0), of(380, 152)));
        assert_eq!(of(1, 5).net_bytes(), -4);
    }

    #[test]
    fn a_clock_that_was_wrong_spoils_no_sum() {
        let mut savings = Savings::new(at(100));
        savings.add(at(100), of(10, 5));
        savings.add(at(9_000), of(10, 5));
        savings.add(at(101), of(10, 5));
        let status = savings.status(at(101));
        assert_eq!((status.today, status.days_30), (of(10, 5), of(20, 10)));
        assert_eq!(status.total, of(30, 15), "nothing that was saved is lost");
        // A machine without a clock of its own begins in 1970.
        savings.add(3, of(1, 1));
        let status = savings.status(at(102));
        assert_eq!((status.total_days, status.days_30), (3, of(20, 10)));
        assert_eq!(status.total, of(31, 16));
        let mut early = Savings::new(3);
        early.add(3, of(1, 1));
        early.add(at(7), of(1, 1));
        assert_eq!(early.status(at(7)).total_days, 1);
    }

    /// Writes as the file is written.
    fn write(file: &mut [u8], savings: &mut Savings) {
        let (place, line) = savings.next_slot();
        file[place..place + SLOT_LEN].copy_from_slice(&line);
    }

    #[test]
    fn half_a_line_is_as_good_as_the_one_before() {
        let mut savings = Savings::new(at(1));
        let mut file = vec![0; FILE_LEN];
        for day in at(1)..=at(40) {
            savings.add(day, of(u64::MAX / 64, u64::MAX / 128));
            let before = savings.clone();
            write(&mut file, &mut savings);
            assert_eq!(Savings::read(&file).as_ref(), Some(&savings));
            let (place, line) = savings.clone().next_slot();
            for cut in [0, 1, 40, 400, SLOT_LEN - 1] {
                let mut torn = file.clone();
                torn[place..place + cut].copy_from_slice(&line[..cut]);
                let read = Savings::read(&torn).unwrap();
                assert!(read.total == before.total, "cut after {cut}");
            }
        }
    }

    #[test]
    fn no_line_is_longer_than_its_place() {
        let mut savings = Savings { version: u64::MAX - 1, ..Savings::new(0) };
        for day in u32::MAX - 40..u32::MAX {
            savings.add(day, of(u64::MAX, u64::MAX));
        }
        let (_, line) = savings.next_slot();
        assert_eq!(line.len(), SLOT_LEN);
        assert!(read_slot(&line).is_some(), "nothing was cut");
    }

    #[test]
    fn what_is_no_account_is_none() {
        assert_eq!(Savings::read(b""), None);
        assert_eq!(Savings::read(&[0; FILE_LEN]), None);
        assert_eq!(Savings::read(b"0000000000000000 {}"), None);
    }

    proptest! {
        #[test]
        fn damage_is_noticed(bytes in vec(any::<u8>(), 0..300), at in 0..FILE_LEN, byte: u8) {
            prop_assert_eq!(Savings::read(&bytes), None);
            let mut savings = Savings::new(SET_DAY_MIN);
            savings.add(SET_DAY_MIN, of(100, 50));
            let mut file = vec![b' '; FILE_LEN];
            write(&mut file, &mut savings);
            let first = savings.clone();
            write(&mut file, &mut savings);
            file[at] = byte;
            let read = Savings::read(&file).unwrap();
            prop_assert!(read == savings || read == first);
        }
    }
}
