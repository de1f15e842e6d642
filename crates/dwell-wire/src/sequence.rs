//! Sequence numbers: reconstruction, and protection against replays (`docs/wire.md` section 3).

/// Returns the 64-bit number whose low half is `low` and that is nearest to `highest`.
///
/// As IPsec does for its extended numbers (RFC 4304) and SRTP for its indices (RFC 3711 3.3.1). The
/// result is right if the datagram is less than 2^31 numbers away from the highest received one.
/// Of two that are equally near, the lower one.
#[inline]
pub const fn reconstruct_sequence(highest: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let ahead = low.wrapping_sub(highest as u32) as i32;
    match highest.checked_add_signed(ahead as i64) {
        Some(sequence) => sequence,
        // The nearest number would lie below zero, or beyond the last one: the next best is
        // one span away, on the other side of `highest`.
        None if ahead < 0 => highest + SPAN - ahead.unsigned_abs() as u64,
        None => highest - (SPAN - ahead as u64),
    }
}

/// Returns the 64-bit number of a context whose low 16 bits are `low` and that is nearest to the
/// next expected one. Of two that are equally near, the lower one.
#[inline]
pub const fn reconstruct_number(expected: u64, low: u16) -> u64 {
    const SPAN: u64 = 1 << 16;
    let ahead = low.wrapping_sub(expected as u16) as i16;
    match expected.checked_add_signed(ahead as i64) {
        Some(number) => number,
        None if ahead < 0 => expected + SPAN - ahead.unsigned_abs() as u64,
        None => expected - (SPAN - ahead as u64),
    }
}

/// Words of the ring. A power of two, so that the remainder is a mask.
const WORDS: usize = 32;

/// The distance below the highest accepted number at which another one is still accepted.
///
/// One word of the ring is always partly ahead of the highest number (RFC 6479 section 2).
pub const REPLAY_WINDOW: u64 = 64 * (WORDS as u64 - 1);

/// Accepts each sequence number at most once, in constant memory, after RFC 6479.
///
/// The window only knows numbers. Ask [`check`](Self::check) first, authenticate the datagram,
/// and only then [`accept`](Self::accept): otherwise a forged number could move the window.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// Bit `n % 64` of word `n / 64 % WORDS` says that the number `n` was accepted.
    ring: [u64; WORDS],
    highest: u64,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplayWindow {
    /// Makes the window of a new session, which has accepted nothing.
    pub const fn new() -> Self {
        Self { ring: [0; WORDS], highest: 0 }
    }

    /// Returns the highest number accepted; zero if none was.
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// Returns true if [`accept`](Self::accept) would accept this number: new, and not too old.
    #[inline]
    pub const fn check(&self, sequence: u64) -> bool {
        if sequence > self.highest {
            return true;
        }
        let recent = self.highest - sequence < REPLAY_WINDOW;
        recent && self.ring[slot(sequence / 64)] & bit(sequence) == 0
    }

    /// Accepts a number, and moves the window up to it if it is the highest. Returns false, and
    /// changes nothing, if it was accepted before or is too old.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> bool {
        if !self.check(sequence) {
            return false;
        }
        if sequence > self.highest {
            self.advance(sequence / 64);
            self.highest = sequence;
        }
        self.ring[slot(sequence / 64)] |= bit(sequence);
        true
    }

    /// Makes `word` the front word of the ring: clears the words that are reused.
    fn advance(&mut self, word: u64) {
        let front = self.highest / 64;
        for step in 1..=(word - front).min(WORDS as u64) {
            self.ring[slot(front + step)] = 0;
        }
    }
}

const fn slot(word: u64) -> usize {
    (word % WORDS as u64) as usize
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nearest_number_is_found(highest: u64, ahead in -(1i64 << 31)..1 << 31) {
            if let Some(sequence) = highest.checked_add_signed(ahead) {
                prop_assert_eq!(reconstruct_sequence(highest, sequence as u32), sequence);
            }
        }

        #[test]
        fn no_other_number_is_nearer(
            highest in prop_oneof![any::<u64>(), 0..1u64 << 33, u64::MAX - (1 << 33)..],
            low: u32,
        ) {
            let found = reconstruct_sequence(highest, low);
            prop_assert_eq!(found as u32, low);
            let others = [found.checked_sub(1 << 32), found.checked_add(1 << 32)];
            for other in others.into_iter().flatten() {
                prop_assert!(other.abs_diff(highest) >= found.abs_diff(highest));
            }
        }

        #[test]
        fn the_window_is_a_set(
            start in prop_oneof![Just(0u64), 0u64..1 << 40],
            steps in prop::collection::vec(
                prop_oneof![10 => -100i64..100, 2 => -3000i64..3000, 1 => -9000i64..9000], 1..300,
            ),
        ) {
            let mut window = ReplayWindow::new();
            let mut seen = HashSet::new();
            let mut highest = 0;
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                let new = !seen.contains(&at) && (at > highest || highest - at < REPLAY_WINDOW);
                prop_assert_eq!(window.check(at), new);
                prop_assert_eq!(window.accept(at), new);
                if new {
                    seen.insert(at);
                    highest = highest.max(at);
                }
                prop_assert_eq!(window.highest(), highest);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers() {
        assert_eq!(reconstruct_sequence(0, u32::MAX), u64::from(u32::MAX));
        assert_eq!(reconstruct_sequence(u64::MAX, 0), u64::MAX - u64::from(u32::MAX));
        let mut window = ReplayWindow::new();
        assert!(window.accept(u64::MAX));
        assert!(!window.accept(u64::MAX) && !window.accept(0));
    }
}
