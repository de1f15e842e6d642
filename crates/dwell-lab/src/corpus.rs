//! Payloads of every degree of compressibility, the same for the same seed.
//!
//! The real ones come from the repository's `data/` (its README has sources and licences)
//! and are embedded, so that an installed program needs no files.

use std::sync::LazyLock;

use dwell_base::Rng;

/// Lewis Carroll, Alice's Adventures in Wonderland: English prose of 152 kB.
pub const ALICE: &[u8] = include_bytes!("../../../data/text/alice29.txt");
/// Thomas Hardy, Far from the Madding Crowd: English prose of 769 kB.
pub static BOOK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // The only one of them in the shipped program, which can decompress anyway.
    let compressed = include_bytes!("../../../data/text/book1.txt.zst");
    let mut book = vec![0; BOOK_LEN];
    let len = zstd_safe::decompress(&mut book[..], compressed);
    assert_eq!(len, Ok(BOOK_LEN), "what was built in is a book");
    book
});
const BOOK_LEN: usize = 768_771;
/// The output of a satellite receiver, a sentence a line, after some lines of remarks (`#`).
pub const NMEA: &[u8] = include_bytes!("../../../data/telemetry/zed-f9p.nmea");
/// A video: compressed already.
pub const VIDEO: &[u8] = include_bytes!("../../../data/media/elf.webm");

/// Returns English prose, from some place on; after 768 kB the same with other letters, see
/// [`rewritten`].
pub fn text(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed);
    let start = rng.below(BOOK.len() as u64) as usize;
    let mut text: Vec<u8> = BOOK[start..].iter().take(len).copied().collect();
    text.extend(rewritten(&BOOK, len - text.len(), &mut rng));
    text
}

/// Returns `len` bytes of a text, over and over, each time with other letters in place of the letters:
/// to a compressor with a long memory each time is as hard as the first, as nothing of the times before
/// comes again.
pub fn rewritten(original: &[u8], len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let letters = exchanged(rng);
        let rest = len - out.len();
        out.extend(original.iter().take(rest).map(|&byte| letters[usize::from(byte)]));
    }
    out
}

/// Another letter for each, small and capital alike; all other bytes stay.
fn exchanged(rng: &mut Rng) -> [u8; 256] {
    let mut order: [u8; 26] = std::array::from_fn(|at| at as u8);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    std::array::from_fn(|at| {
        let byte = at as u8;
        let first = if byte.is_ascii_uppercase() { b'A' } else { b'a' };
        if byte.is_ascii_alphabetic() { first + order[usize::from(byte - first)] } else { byte }
    })
}

/// Returns random bytes, which can't be compressed.
pub fn incompressible(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Returns prose and random bytes in turn, 16 KiB each: half of every stretch can be compressed.
pub fn half_and_half(len: usize, seed: u64) -> Vec<u8> {
    const STRETCH: usize = 16 << 10;
    let (prose, random) = (text(len, seed), incompressible(len, seed));
    let turns = prose.chunks(STRETCH).zip(random.chunks(STRETCH)).enumerate();
    turns
        .flat_map(|(turn, (prose, random))| if turn % 2 == 0 { prose } else { random })
        .copied()
        .collect()
}

/// Returns readings of sixteen machines as short JSON messages of about 94 bytes, whose values
/// wander.
pub fn telemetry_messages(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::from_seed(seed);
    let mut machines: Vec<Machine> = (0..16).map(|number| Machine::new(number, &mut rng)).collect();
    (0..count)
        .map(|sequence| {
            let which = rng.below(machines.len() as u64) as usize;
            machines[which].reading(sequence, &mut rng).into_bytes()
        })
        .collect()
}

/// Returns sentences of a satellite receiver, from some place on.
pub fn nmea_messages(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let lines = NMEA.split_inclusive(|&byte| byte == b'\n');
    // The file begins with remarks on its origin.
    let lines: Vec<&[u8]> = lines.filter(|line| line.starts_with(b"$")).collect();
    let start = Rng::from_seed(seed).below(lines.len() as u64) as usize;
    lines.iter().cycle().skip(start).take(count).map(|line| line.to_vec()).collect()
}

struct Machine {
    number: u64,
    temperature: f64,
    pressure: f64,
    speed: f64,
}

impl Machine {
    fn new(number: u64, rng: &mut Rng) -> Self {
        let (temperature, pressure) = (20.0 + 40.0 * rng.unit(), 2.0 + 4.0 * rng.unit());
        Self { number, temperature, pressure, speed: 900.0 + 900.0 * rng.unit() }
    }

    fn reading(&mut self, sequence: usize, rng: &mut Rng) -> String {
        self.temperature += rng.unit() - 0.5;
        self.pressure = (self.pressure + 0.1 * (rng.unit() - 0.5)).max(0.0);
        self.speed = (self.speed + 20.0 * (rng.unit() - 0.5)).max(0.0);
        let Self { number, temperature, pressure, speed } = self;
        let time_ms = 1_750_000_000_000 + 20 * sequence as u64;
        format!(
            "{{\"id\":\"pump-{number:02}\",\"seq\":{sequence},\"ms\":{time_ms},\
             \"degC\":{temperature:.2},\"bar\":{pressure:.3},\"rpm\":{speed:.0},\"state\":\"on\"}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_is_the_file() {
        assert!(*BOOK == include_bytes!("../../../data/text/book1.txt"));
    }

    #[test]
    fn lengths_are_as_asked_and_seeds_matter() {
        for make in [text, incompressible, half_and_half] {
            assert_eq!(make(100_000, 1).len(), 100_000);
            assert_eq!(make(40_000, 1), make(40_000, 1));
            assert_ne!(make(40_000, 1), make(40_000, 2));
            assert!(make(0, 1).is_empty());
        }
        assert_eq!(text(2_000_000, 3).len(), 2_000_000);
    }

    #[test]
    fn letters_are_exchanged_one_for_one() {
        let letters = exchanged(&mut Rng::from_seed(1));
        let different: std::collections::HashSet<u8> = letters.into_iter().collect();
        assert_eq!(different.len(), 256);
        assert_eq!(letters[usize::from(b' ')], b' ');
        assert_eq!(letters[usize::from(b'A')].to_ascii_lowercase(), letters[usize::from(b'a')]);
    }

    #[test]
    fn messages_are_of_the_length_of_the_comparisons() {
        let messages = telemetry_messages(1000, 1);
        let mean = messages.iter().map(Vec::len).sum::<usize>() / messages.len();
        assert!((90..=98).contains(&mean), "{mean}");
        assert_eq!(nmea_messages(50_000, 1).len(), 50_000);
        assert!(nmea_messages(100, 1).iter().all(|line| line.starts_with(b"$")));
    }
}
