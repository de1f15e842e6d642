//! Repetitions at a long distance: what came before within the transfer, up to 128 MiB ago, is not sent again. What
//! is nearer than what blocks refer to is left to the codecs, unless it is long. No I/O.
//!
//! Places are remembered where a rolling hash of the last 64 bytes (Gear: Xia et al., "Ddelta: A Deduplication-Inspired
//! Fast Delta Compression Approach") has six zeros at its top, so one in 64 on average, wherever the same
//! bytes stand. What a hash finds is compared byte by byte.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The longest distance, as a binary logarithm: that of `zstd --long`.
pub(super) const WINDOW_LOG2_MAX: u8 = 27;
/// What both ends hold in any case.
pub(super) const WINDOW_LOG2_MIN: u8 = 20;
/// Shorter repetitions are not worth a record.
const FAR_LEN_MIN: usize = 128;
/// Shorter ones that are nearer than this are found by the codecs, for less.
const NEAR: u64 = 128 << 10;
const NEAR_LEN_MIN: usize = 4096;
/// A repetition that goes on in the next block.
const GOING_ON_LEN_MIN: usize = 32;
/// One place in so many, as a binary logarithm, is remembered.
const SPACING_LOG2: u32 = 6;
/// After so many bytes in which nothing was repeated, and whose taker waits for more, only one stretch in so many is
/// searched, until something is found.
const FRUITLESS_MAX: u64 = 8 << 20;
const STRETCHES: u64 = 8;
/// The length of a stretch, as a binary logarithm.
const STRETCH_LOG2: u32 = 16;
/// So much is searched before what it repeats is passed by.
const SEARCHED_AT_ONCE: usize = 4 << 10;
/// The bytes that a hash depends on.
pub(super) const HASHED_LEN: usize = u64::BITS as usize;

/// The longest window that fits into so many bytes, as a binary logarithm; 0, which is none, if that is too short to
/// be of use.
pub(super) fn window_log2(bytes: u64) -> u8 {
    let log2 = bytes.max(1).ilog2();
    let log2 = u8::try_from(log2).map_or(WINDOW_LOG2_MAX, |log2| log2.min(WINDOW_LOG2_MAX));
    if log2 < WINDOW_LOG2_MIN { 0 } else { log2 }
}

/// The last bytes of a transfer.
#[derive(Debug)]
pub(super) struct Ring {
    /// Grows up to the window; then the oldest bytes are overwritten.
    bytes: Vec<u8>,
    window: usize,
    /// All bytes that were put in.
    total: u64,
}

impl Ring {
    /// Of so many bytes, as a binary logarithm.
    pub(super) const fn new(window_log2: u8) -> Self {
        Self { bytes: Vec::new(), window: 1 << window_log2, total: 0 }
    }

    /// Appends bytes.
    pub(super) fn push(&mut self, mut new: &[u8]) {
        self.total += new.len() as u64;
        let room = self.window - self.bytes.len();
        if room > 0 {
            let (fitting, rest) = new.split_at(room.min(new.len()));
            self.bytes.extend_from_slice(fitting);
            new = rest;
        }
        let mut at = self.index(self.total - new.len() as u64);
        while !new.is_empty() {
            let len = new.len().min(self.window - at);
            self.bytes[at..at + len].copy_from_slice(&new[..len]);
            new = &new[len..];
            at = 0;
        }
    }

    /// Reads at most `len` bytes from so far back, as many as stand together there. Empty if nothing is held from there.
    pub(super) fn back(&self, distance: u64, len: usize) -> &[u8] {
        if distance == 0 || distance > self.bytes.len() as u64 {
            return &[];
        }
        let at = self.index(self.total - distance);
        let len = len.min(self.bytes.len() - at).min(usize::try_from(distance).unwrap_or(len));
        &self.bytes[at..at + len]
    }

    #[allow(clippy::cast_possible_truncation, reason = "it is masked")]
    const fn index(&self, position: u64) -> usize {
        position as usize & (self.window - 1)
    }

    /// The bytes from a position on that is held, at most `len`, as many as stand together there.
    fn stretch(&self, position: u64, len: usize) -> &[u8] {
        let at = self.index(position);
        &self.bytes[at..self.bytes.len().min(at.saturating_add(len))]
    }

    fn byte(&self, position: u64) -> u8 {
        self.bytes[self.index(position)]
    }
}

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// So many bytes are new.
    New(usize),
    /// So many bytes were there, so far back.
    Repeat {
        /// From the first of them.
        distance: u32,
        /// Their number.
        len: u32,
    },
}

/// Where the same hash was.
#[derive(Clone, Copy, Debug)]
struct Place {
    check: u32,
    /// The lower half of the position after it.
    position: u32,
}

impl Place {
    /// As one number: a list of zeros is made without writing them, of which there are 32 MiB for a long window.
    const fn pack(self) -> u64 {
        (self.check as u64) << u32::BITS | self.position as u64
    }

    #[allow(clippy::cast_possible_truncation, reason = "halves are what is meant")]
    const fn unpack(packed: u64) -> Self {
        Self { check: (packed >> u32::BITS) as u32, position: packed as u32 }
    }
}

/// Finds repetitions in what is sent.
#[derive(Debug)]
pub(super) struct Finder {
    ring: Ring,
    /// Packed.
    places: Vec<u64>,
    hash: u64,
    /// The distance of the repetition with which the last block ended.
    going_on: Option<u64>,
    /// That of the last repetition.
    distance: u64,
    /// An empty list of places in a block, and their hashes.
    remembered: Vec<(u32, u64)>,
    /// The longest distance that the receiver is known to hold, as a binary logarithm.
    held: Arc<AtomicU8>,
    /// The number of bytes that came since something was repeated.
    fruitless: u64,
    /// Where a block ended that was not searched.
    passed_at: Option<u64>,
}

impl Finder {
    /// With a window of so many bytes, as a binary logarithm, for a transfer of about so many, to a receiver that holds so
    /// many.
    pub(super) fn new(window_log2: u8, bytes: u64, held: Arc<AtomicU8>) -> Self {
        let needed = bytes.clamp(1 << 16, 1 << window_log2).next_power_of_two();
        let places = needed >> (SPACING_LOG2 - 1);
        let places = vec![0; usize::try_from(places).unwrap_or(1 << 10)];
        Self {
            ring: Ring::new(window_log2),
            places,
            hash: 0,
            going_on: None,
            distance: 0,
            remembered: Vec::new(),
            held,
            fruitless: 0,
            passed_at: None,
        }
    }

    /// Appends the parts of the next block, which is no longer than half of the window. `is_awaited` if whoever takes
    /// them has nothing else to do: then what is hardly ever repeated is searched less closely.
    pub(super) fn find(&mut self, block: &[u8], is_awaited: bool, parts: &mut Vec<Part>) {
        let base = self.ring.total;
        self.ring.push(block);
        let is_fruitless = self.fruitless >= FRUITLESS_MAX;
        self.fruitless = self.fruitless.saturating_add(block.len() as u64);
        if is_awaited && is_fruitless && !(base >> STRETCH_LOG2).is_multiple_of(STRETCHES) {
            self.pass(block, parts);
            return;
        }
        let mut done = 0;
        if let Some(distance) = self.going_on.take() {
            let len = self.forward(distance, base, block);
            if len >= GOING_ON_LEN_MIN || len == block.len() {
                done = self.repeat(distance, 0..len, done, block.len(), parts);
            }
        }
        let mut from = self.pass_repeated(block, 0, done);
        while from < block.len() {
            let to = block.len().min(from + SEARCHED_AT_ONCE);
            done = self.search(block, base, from..to, done, parts);
            from = self.pass_repeated(block, to, done);
        }
        if done < block.len() {
            parts.push(Part::New(block.len() - done));
        }
    }

    /// Searches a range of the block at `base`, of which so much is done; how much is then.
    fn search(
        &mut self,
        block: &[u8],
        base: u64,
        range: Range<usize>,
        mut done: usize,
        parts: &mut Vec<Part>,
    ) -> usize {
        let bits = self.places.len().trailing_zeros();
        let mut remembered = std::mem::take(&mut self.remembered);
        self.hash = roll(self.hash, &block[range.clone()], &mut remembered);
        for (at, hash) in remembered.drain(..) {
            let at = range.start + at as usize;
            let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let end = base + at as u64 + 1;
            #[allow(clippy::cast_possible_truncation, reason = "halves are what is meant")]
            let here = Place { check: mixed as u32, position: end as u32 };
            let index = usize::try_from(mixed >> (u64::BITS - bits)).unwrap_or(0);
            let there = std::mem::replace(&mut self.places[index], here.pack());
            let there = Place::unpack(there);
            if at < done || there.check != here.check {
                continue;
            }
            let distance = u64::from(here.position.wrapping_sub(there.position));
            let before = self.backward(distance, end, &block[done..=at]);
            let after = self.forward(distance, end, &block[at + 1..]);
            let min = if distance < NEAR { NEAR_LEN_MIN } else { FAR_LEN_MIN };
            if before + after >= min {
                let range = at + 1 - before..at + 1 + after;
                done = self.repeat(distance, range, done, block.len(), parts);
            }
        }
        self.remembered = remembered;
        done
    }

    /// Where to go on behind `to`, of a block of which so much is done. Places in what is repeated are remembered already, unless some
    /// were passed by, and need be again only if they are about to leave what the receiver holds.
    fn pass_repeated(&mut self, block: &[u8], to: usize, done: usize) -> usize {
        let held = 1 << self.held.load(Ordering::Relaxed).min(WINDOW_LOG2_MAX);
        let window = held.min(self.ring.window as u64);
        let stays = 2 * (self.distance + block.len() as u64) <= window;
        let is_whole = self.passed_at.is_none_or(|at| self.ring.total - at > window);
        if done <= to || done < HASHED_LEN || !stays || !is_whole {
            return to;
        }
        self.hash = roll(0, &block[done - HASHED_LEN..done], &mut self.remembered);
        self.remembered.clear();
        done
    }

    /// Passes by a block.
    fn pass(&mut self, block: &[u8], parts: &mut Vec<Part>) {
        let last = &block[block.len().saturating_sub(HASHED_LEN)..];
        self.hash = roll(self.hash, last, &mut self.remembered);
        self.remembered.clear();
        self.passed_at = Some(self.ring.total);
        if !block.is_empty() {
            parts.push(Part::New(block.len()));
        }
    }

    fn repeat(
        &mut self,
        distance: u64,
        range: Range<usize>,
        done: usize,
        block_len: usize,
        parts: &mut Vec<Part>,
    ) -> usize {
        let (Ok(distance), Ok(len)) = (u32::try_from(distance), u32::try_from(range.len())) else {
            return done;
        };
        if range.is_empty() {
            return done;
        }
        if range.start > done {
            parts.push(Part::New(range.start - done));
        }
        parts.push(Part::Repeat { distance, len });
        self.fruitless = 0;
        self.distance = u64::from(distance);
        self.going_on = (range.end == block_len).then_some(u64::from(distance));
        range.end
    }

    /// True if what was so far before a position is still held.
    fn holds(&self, distance: u64, position: u64) -> bool {
        let held = match self.held.load(Ordering::Relaxed) {
            0 => 0,
            log2 => (self.ring.bytes.len() as u64).min(1 << log2.min(WINDOW_LOG2_MAX)),
        };
        distance > 0 && distance <= position && position - distance >= self.ring.total - held
    }

    /// The number of bytes from a position on that are the same so far back.
    fn forward(&self, distance: u64, position: u64, new: &[u8]) -> usize {
        if !self.holds(distance, position) {
            return 0;
        }
        let mut same = 0;
        while same < new.len() {
            let old = self.ring.stretch(position - distance + same as u64, new.len() - same);
            let more = common_len(&new[same..], old);
            same += more;
            if more == 0 || more < old.len() {
                break;
            }
        }
        same
    }

    /// The number of bytes before a position that are the same so far back.
    fn backward(&self, distance: u64, position: u64, new: &[u8]) -> usize {
        let same = |at: usize| {
            let position = position - 1 - at as u64;
            self.holds(distance, position)
                && self.ring.byte(position - distance) == new[new.len() - 1 - at]
        };
        (0..new.len()).take_while(|&at| same(at)).count()
    }
}

/// The number of bytes with which both begin.
fn common_len(one: &[u8], other: &[u8]) -> usize {
    let (ones, others) = (one.as_chunks::<32>().0, other.as_chunks::<32>().0);
    let chunks = ones.iter().zip(others).take_while(|(one, other)| one == other).count();
    let done = 32 * chunks;
    let rest = one[done..].iter().zip(&other[done..]);
    done + rest.take_while(|(one, other)| one == other).count()
}

/// Rolls a hash over a block, and appends the places behind which it has zeros at its top. Four bytes at a time, of which
/// hardly ever one has them: a byte at a time takes twice as long.
#[allow(clippy::cast_possible_truncation, reason = "a block is no longer than half of the window")]
fn roll(mut hash: u64, block: &[u8], places: &mut Vec<(u32, u64)>) -> u64 {
    let gear = |byte: u8| GEAR[usize::from(byte)];
    let (quarters, rest) = block.as_chunks::<4>();
    for (number, &[a, b, c, d]) in quarters.iter().enumerate() {
        let (a, b, c, d) = (gear(a), gear(b), gear(c), gear(d));
        let first = (hash << 1).wrapping_add(a);
        let second = (hash << 2).wrapping_add((a << 1).wrapping_add(b));
        let third = (second << 1).wrapping_add(c);
        hash = (second << 2).wrapping_add((c << 1).wrapping_add(d));
        if first.min(second).min(third.min(hash)) < REMEMBERED {
            remember([first, second, third, hash], 4 * number as u32, places);
        }
    }
    let done = (block.len() - rest.len()) as u32;
    for (&byte, at) in rest.iter().zip(done..) {
        hash = (hash << 1).wrapping_add(gear(byte));
        if hash < REMEMBERED {
            places.push((at, hash));
        }
    }
    hash
}

/// Hashes below this have the zeros.
const REMEMBERED: u64 = 1 << (u64::BITS - SPACING_LOG2);

#[cold]
#[inline(never)]
fn remember(hashes: [u64; 4], from: u32, places: &mut Vec<(u32, u64)>) {
    for (hash, at) in hashes.into_iter().zip(from..) {
        if hash < REMEMBERED {
            places.push((at, hash));
        }
    }
}

/// Random numbers, the same at every build: chunks depend on them as well, at both ends.
pub(super) const GEAR: [u64; 256] = {
    let mut gear = [0; 256];
    let mut state = 0u64;
    let mut at = 0;
    while at < gear.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        gear[at] = z ^ (z >> 31);
        at += 1;
    }
    gear
};

#[cfg(test)]
mod tests {
    use dwell_base::Rng;
    use proptest::prelude::*;

    use super::*;

    /// Finds, and puts together again; returns the new bytes.
    fn round_trip(bytes: &[u8], block_len: usize, window_log2: u8) -> usize {
        round_trip_to(bytes, block_len, window_log2, window_log2)
    }

    /// The same to who holds less.
    fn round_trip_to(bytes: &[u8], block_len: usize, window_log2: u8, held_log2: u8) -> usize {
        let mut finder = Finder::new(window_log2, bytes.len() as u64, holding(held_log2));
        let mut ring = Ring::new(held_log2);
        let mut new = 0;
        for block in bytes.chunks(block_len) {
            let mut parts = Vec::new();
            finder.find(block, false, &mut parts);
            let mut at = 0;
            for part in parts {
                match part {
                    Part::New(len) => {
                        ring.push(&block[at..at + len]);
                        (at, new) = (at + len, new + len);
                    }
                    Part::Repeat { distance, len } => {
                        let end = at + len as usize;
                        while at < end {
                            let piece = ring.back(u64::from(distance), end - at).to_vec();
                            assert!(!piece.is_empty());
                            assert_eq!(piece, block[at..at + piece.len()]);
                            ring.push(&piece);
                            at += piece.len();
                        }
                    }
                }
            }
            assert_eq!(at, block.len());
        }
        new
    }

    fn holding(window_log2: u8) -> Arc<AtomicU8> {
        Arc::new(AtomicU8::new(window_log2))
    }

    #[test]
    fn what_the_receiver_is_not_known_to_hold_is_not_referred_to() {
        let one = random(1, 100_000);
        let held = holding(20);
        let mut finder = Finder::new(22, 1 << 22, Arc::clone(&held));
        let repeats = |finder: &mut Finder, block: &[u8]| {
            let mut parts = Vec::new();
            for block in block.chunks(65_536) {
                finder.find(block, false, &mut parts);
            }
            parts.iter().any(|part| matches!(part, Part::Repeat { .. }))
        };
        assert!(!repeats(&mut finder, &one) && !repeats(&mut finder, &random(2, 1 << 20)));
        assert!(!repeats(&mut finder, &one), "too far");
        assert!(!repeats(&mut finder, &random(3, 1 << 20)));
        held.store(22, Ordering::Relaxed);
        assert!(repeats(&mut finder, &one));
    }

    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Rng::from_seed(seed).fill(&mut bytes);
        bytes
    }

    #[test]
    fn copies_at_a_distance_are_found() {
        let one = random(1, 400_000);
        let bytes = [&one[..], &random(2, 200_000), &one].concat();
        let new = round_trip(&bytes, 65_536, 20);
        assert!((600_000..603_000).contains(&new), "{new}");
        // Further away than the window.
        let bytes = [&one[..], &random(2, 1 << 20), &one].concat();
        assert_eq!(round_trip(&bytes, 65_536, 20), bytes.len());
        // Between other bytes, at no boundary, over several blocks.
        let bytes = [&random(3, 300_000)[..], &one, &[7; 77], &one[1000..200_000]].concat();
        let new = round_trip(&bytes, 50_000, 20);
        assert!((700_000..702_500).contains(&new), "{new}");
    }

    #[test]
    fn as_much_is_common_as_is_the_same() {
        let bytes = random(1, 200);
        for at in [0, 1, 31, 32, 33, 64, 127, 150] {
            let mut other = bytes[..150].to_vec();
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 1;
            }
            assert_eq!((common_len(&bytes, &other), common_len(&other, &bytes)), (at, at));
        }
    }

    #[test]
    fn who_waits_has_less_searched_until_something_is_repeated() {
        // The repetition begins behind a stretch that is searched.
        let once = random(1, (10 << 20) + (1 << STRETCH_LOG2));
        let repeated = |is_awaited: bool| {
            let mut finder = Finder::new(24, 1 << 24, holding(24));
            let mut parts = Vec::new();
            for block in once.chunks(65_536).chain(once[..4 << 20].chunks(65_536)) {
                finder.find(block, is_awaited, &mut parts);
            }
            let len = |part: &Part| match part {
                Part::Repeat { len, .. } => *len as usize,
                Part::New(_) => 0,
            };
            parts.iter().map(len).sum::<usize>()
        };
        let stretch = 1 << STRETCH_LOG2;
        assert!(repeated(false) > (4 << 20) - stretch);
        let least = (4 << 20) - STRETCHES as usize * stretch;
        assert!((least..(4 << 20) - stretch).contains(&repeated(true)), "{}", repeated(true));
    }

    /// Each copy is of the one before: the first has left the window by the time the last one comes.
    #[test]
    fn copies_of_copies_are_found_however_often() {
        let one = random(1, 300_000);
        let copies: Vec<u8> =
            (2..9).flat_map(|seed| [random(seed, 99_999), one.clone()].concat()).collect();
        let bytes = [&one[..], &copies].concat();
        for window_log2 in [20, 26] {
            let new = round_trip_to(&bytes, 65_536, window_log2, 20);
            assert!((999_000..1_006_000).contains(&new), "{new}");
        }
        // With a change in each, behind which it has to be found again.
        let mut changing = one.clone();
        let copies = (2..9).flat_map(|at: u8| {
            changing[usize::from(at) * 30_000] ^= 1;
            [random(u64::from(at), 250_000), changing.clone()].concat()
        });
        let bytes: Vec<u8> = one.iter().copied().chain(copies).collect();
        let new = round_trip_to(&bytes, 65_536, 26, 20);
        assert!((2_049_000..2_060_000).contains(&new), "{new}");
    }

    /// A copy extends over what was not searched; another one that begins there is found, as that copy was remembered.
    #[test]
    fn a_copy_of_what_was_passed_by_is_remembered() {
        let once = random(1, 12 << 20);
        let mut finder = Finder::new(26, 1 << 26, holding(26));
        let mut parts = Vec::new();
        for block in once.chunks(65_536) {
            finder.find(block, true, &mut parts);
        }
        let stretch = 1 << STRETCH_LOG2;
        let searched = (8 << 20) + STRETCHES as usize * stretch;
        let copy = &once[searched..searched + 8 * stretch];
        // The second one begins behind the only stretch of it that was searched.
        for copy in [copy, &copy[stretch + stretch / 2..4 * stretch]] {
            parts.clear();
            for block in copy.chunks(65_536) {
                finder.find(block, false, &mut parts);
            }
            let new: usize =
                parts.iter().map(|part| if let Part::New(len) = part { *len } else { 0 }).sum();
            assert!(new < 1000, "{new} of {}", copy.len());
        }
    }

    #[test]
    fn short_and_near_ones_are_left_to_codecs() {
        let one = random(1, 2000);
        let bytes = [&one[..], &random(2, 10_000), &one].concat();
        assert_eq!(round_trip(&bytes, 65_536, 20), bytes.len());
    }

    #[test]
    fn what_is_not_held_is_not_read() {
        let mut ring = Ring::new(20);
        assert!(ring.back(1, 5).is_empty());
        ring.push(b"hello");
        assert_eq!((ring.back(5, 9), ring.back(2, 9)), (&b"hello"[..], &b"lo"[..]));
        assert!(ring.back(6, 1).is_empty() && ring.back(0, 1).is_empty());
        ring.push(&random(1, 3 << 20));
        assert_eq!(ring.bytes.len(), 1 << 20);
        assert!(ring.back((1 << 20) + 1, 1).is_empty() && !ring.back(1 << 20, 1).is_empty());
    }

    #[test]
    fn four_bytes_at_a_time_have_the_hashes_of_each() {
        for len in [0, 1, 3, 4, 5, 4099] {
            let bytes = random(len as u64, len);
            let (mut hash, mut each) = (5u64, Vec::new());
            for (byte, at) in bytes.iter().zip(0..) {
                hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
                if hash >> (u64::BITS - SPACING_LOG2) == 0 {
                    each.push((at, hash));
                }
            }
            let mut places = Vec::new();
            assert_eq!((roll(5, &bytes, &mut places), places), (hash, each), "{len}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn whatever_repeats_comes_back(
            pieces in prop::collection::vec((0u64..4, 1usize..70_000), 1..30),
            block_len in 1000usize..70_000,
        ) {
            let bytes: Vec<u8> =
                pieces.iter().flat_map(|&(seed, len)| random(seed, len)).collect();
            prop_assert!(round_trip(&bytes, block_len, 17) <= bytes.len());
        }
    }
}
