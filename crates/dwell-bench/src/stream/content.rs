//! The contents that are sent: bytes made here, so that everybody can measure with the same, and files.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dwell_base::Rng;
use dwell_lab::corpus;

use super::super::file;
use super::fresh::FreshText;

/// A content that is made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Workload {
    /// English prose
    Text,
    /// Random bytes
    Random,
    /// Prose and random bytes in turns of half a megabyte
    Hybrid,
    /// Places of atoms in a simulated liquid, as text
    Coordinates,
    /// An XML catalogue of papers
    Xml,
    /// A tar archive of program sources
    Sources,
    /// This program itself
    Binary,
    /// A film, already compressed
    Film,
    /// Sentences of GPS receivers
    Telemetry,
    /// Nothing but the files
    None,
}

/// Bytes to be sent over and over, and what they are called.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) name: String,
    pub(super) body: Arc<Vec<u8>>,
    /// Runs are watched from one multiple of this to another, so that what is watched is always
    /// made of whole turns. In bytes.
    pub(super) period_bytes: u64,
}

/// The length of a workload before it begins again, and the part of a file that is read.
const BODY_BYTES: usize = 16 << 20;
/// The period of content that is the same everywhere: it is cut where blocks end.
const PERIOD_BYTES: u64 = 64 << 10;
/// The length of a turn of prose, and of noise.
const TURN_BYTES: usize = 512 << 10;

impl Workload {
    /// All but nothing.
    pub(super) const ALL: [Self; 9] = [
        Self::Text,
        Self::Hybrid,
        Self::Coordinates,
        Self::Xml,
        Self::Sources,
        Self::Binary,
        Self::Random,
        Self::Film,
        Self::Telemetry,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Random => "random",
            Self::Hybrid => "hybrid",
            Self::Coordinates => "coordinates",
            Self::Xml => "xml",
            Self::Sources => "sources",
            Self::Binary => "binary",
            Self::Film => "film",
            Self::Telemetry => "telemetry",
            Self::None => "none",
        }
    }
}

impl Content {
    pub(super) fn made(workload: Workload, seed: u64) -> anyhow::Result<Self> {
        let body = match workload {
            Workload::Text => FreshText::books().bytes(BODY_BYTES, seed),
            Workload::Random => corpus::incompressible(BODY_BYTES, seed),
            Workload::Hybrid => hybrid(seed),
            Workload::Coordinates => coordinates(BODY_BYTES, seed),
            Workload::Xml => catalogue(BODY_BYTES, seed),
            Workload::Sources => archive(BODY_BYTES, seed),
            Workload::Binary => shuffled(&beginning_of(Path::new("/proc/self/exe"))?, seed),
            Workload::Film => corpus::VIDEO.to_vec(),
            Workload::Telemetry => corpus::telemetry_messages(60_000, seed).concat(),
            Workload::None => Vec::new(),
        };
        let period_bytes = match workload {
            Workload::Hybrid => 2 * TURN_BYTES as u64,
            _ => PERIOD_BYTES,
        };
        Ok(Self { name: workload.name().to_owned(), body: Arc::new(body), period_bytes })
    }

    pub(super) fn read(path: &Path, seed: u64) -> anyhow::Result<Self> {
        let body = shuffled(&beginning_of(path)?, seed);
        let shown = path.display();
        ensure!(!body.is_empty(), "{shown} is empty: name a file with something in it");
        Ok(Self { name: file::name(path), body: Arc::new(body), period_bytes: PERIOD_BYTES })
    }
}

/// The pieces of what is not the same everywhere in another order: a run sees only some of them, and
/// all runs should see about the same mixture.
fn shuffled(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed);
    let mut pieces: Vec<&[u8]> = bytes.chunks(PERIOD_BYTES as usize).collect();
    for last in (1..pieces.len()).rev() {
        pieces.swap(last, rng.below(last as u64 + 1) as usize);
    }
    pieces.concat()
}

fn beginning_of(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut body = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BODY_BYTES as u64).read_to_end(&mut body))
        .with_context(|| format!("{shown} can't be read"))?;
    Ok(body)
}

/// Half a megabyte of prose, half a megabyte of noise, and so on.
fn hybrid(seed: u64) -> Vec<u8> {
    let text = FreshText::books().bytes(BODY_BYTES / 2, seed);
    let random = corpus::incompressible(BODY_BYTES / 2, seed);
    let turns = text.chunks(TURN_BYTES).zip(random.chunks(TURN_BYTES));
    turns.flat_map(|(text, noise)| [text, noise]).flatten().copied().collect()
}

/// Frames of a molecular dynamics run: atoms that jitter about places which wander slowly, with
/// five digits after the point. gzip halves it, as it did what Pu and Singaravelu had.
fn coordinates(len: usize, seed: u64) -> Vec<u8> {
    const ATOMS: usize = 3000;
    const BOX: f64 = 60.0;
    let mut rng = Rng::from_seed(seed);
    let mut uniform = move || rng.below(1 << 32) as f64 / f64::from(u32::MAX);
    let mut places: Vec<[f64; 3]> = (0..ATOMS).map(|_| [(); 3].map(|()| uniform() * BOX)).collect();
    let mut text = String::with_capacity(len + 128);
    let mut frame = 0_u32;
    while text.len() < len {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{ATOMS}\nframe {frame}, t = {:.3} ps", f64::from(frame) * 0.002);
        for (atom, place) in places.iter_mut().enumerate() {
            // The sum of several is nearly normal.
            let mut step = || (0..4).map(|_| uniform() - 0.5).sum::<f64>() * 0.02;
            for axis in place.iter_mut() {
                *axis = (*axis + step()).clamp(0.0, BOX);
            }
            let element = ["O", "H", "H"][atom % 3];
            let [x, y, z] = *place;
            let _ = writeln!(text, "{element} {x:.5} {y:.5} {z:.5}");
        }
        frame += 1;
    }
    text.truncate(len);
    text.into_bytes()
}

/// Records of papers, whose titles and abstracts are prose.
fn catalogue(len: usize, seed: u64) -> Vec<u8> {
    let prose_of_all = FreshText::books().bytes(len, seed);
    let mut prose_left = &prose_of_all[..];
    let mut rng = Rng::from_seed(seed);
    let mut names = |count: u64| -> String {
        const FIRST: [&str; 8] = ["Ada", "Bengt", "Chidi", "Dana", "Emre", "Fatou", "Goro", "Hana"];
        const LAST: [&str; 8] =
            ["Okafor", "Lindgren", "Yilmaz", "Sato", "Novak", "Diallo", "Moreau", "Costa"];
        (0..count).fold(String::new(), |text, _| {
            let first = FIRST[rng.below(8) as usize];
            let last = LAST[rng.below(8) as usize];
            text + "    <author>" + first + " " + last + "</author>\n"
        })
    };
    let mut numbers = Rng::from_seed(seed + 1);
    let mut text = String::with_capacity(len + 1024);
    text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<catalogue>\n");
    while text.len() < len {
        let mut prose = |len| {
            let (bytes, rest) = prose_left.split_at(prose_left.len().min(len));
            prose_left = rest;
            let clean = |c: char| if c.is_control() || "<>&".contains(c) { ' ' } else { c };
            String::from_utf8_lossy(bytes).trim().chars().map(clean).collect::<String>()
        };
        let (title, about) = (prose(60), prose(115));
        let (volume, page) = (1 + numbers.below(60), 1 + numbers.below(900));
        let authors = names(1 + numbers.below(4));
        let _ = write!(
            text,
            "  <article key=\"journals/net/{:08x}\" mdate=\"20{:02}-{:02}-{:02}\">\n{authors}    \
             <title>{title}.</title>\n    <abstract>{about}</abstract>\n    \
             <pages>{page}-{}</pages>\n    <year>{}</year>\n    \
             <volume>{volume}</volume>\n    <journal>Journal of Networks and Their \
             Measurement</journal>\n    <ee>https://papers.example/net/{volume}/{page}</ee>\n  \
             </article>\n",
            numbers.below(1 << 32),
            numbers.below(27),
            1 + numbers.below(12),
            1 + numbers.below(28),
            page + numbers.below(30),
            1960 + volume,
        );
    }
    text.truncate(len);
    text.into_bytes()
}

/// Files of program text, each after a header of tar's.
fn archive(len: usize, seed: u64) -> Vec<u8> {
    const BLOCK_BYTES: usize = 512;
    // Headers and padding make up for what it is too short.
    let sources = FreshText::sources().bytes(len, seed);
    let mut left = &sources[..];
    let mut rng = Rng::from_seed(seed);
    let mut bytes = Vec::with_capacity(len + (64 << 10));
    let mut number = 0;
    while bytes.len() < len {
        let (file, rest) = left.split_at(left.len().min(500 + rng.below(12_000) as usize));
        left = rest;
        let mut header = [0; BLOCK_BYTES];
        let mut put = |at: usize, field: &str| {
            header[at..at + field.len()].copy_from_slice(field.as_bytes());
        };
        put(0, &format!("project/crates/part{}/src/module{number}.rs", number / 17));
        put(100, "0000644\x000001750\x000001750");
        put(124, &format!("{:011o}", file.len()));
        put(136, &format!("{:011o}", 1_700_000_000 + number * 3671));
        put(156, "0");
        put(257, "ustar\x0000builder");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(file);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        number += 1;
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use dwell_codec::{CodecSpec, Compressor};

    use super::*;

    /// original / compressed, by deflate in blocks of 64 KiB.
    fn factor(body: &[u8]) -> f64 {
        let spec: CodecSpec = "deflate".parse().unwrap();
        let mut compressor = Compressor::new(spec, None).unwrap();
        let mut dst = vec![0; 64 << 10];
        let compressed: usize = body
            .chunks(64 << 10)
            .map(|block| compressor.compress(block, &mut dst).unwrap().unwrap_or(block.len()))
            .sum();
        body.len() as f64 / compressed as f64
    }

    /// The papers' molecular data had a factor of about 2, and their XML one of 4.2.
    #[test]
    fn what_is_made_is_as_compressible_as_the_real_thing() {
        let len = 1 << 20;
        for (name, body, range) in [
            ("coordinates", coordinates(len, 1), 1.8..2.6),
            ("xml", catalogue(len, 1), 3.5..5.0),
            ("sources", archive(len, 1), 2.5..6.0),
            ("text", FreshText::books().bytes(len, 1), 1.8..2.8),
        ] {
            let factor = factor(&body);
            assert!(body.len() == len && range.contains(&factor), "{name}: {factor}");
        }
    }

    #[test]
    fn an_archive_can_be_unpacked() {
        let bytes = archive(100_000, 1);
        let text = |from: usize, len: usize| std::str::from_utf8(&bytes[from..from + len]).unwrap();
        let size = usize::from_str_radix(text(124, 11), 8).unwrap();
        let second = 512 + size.next_multiple_of(512);
        assert!(text(second, 40).starts_with("project/crates/part0/src/module1.rs"));
        assert_eq!(text(second + 257, 5), "ustar");
    }

    #[test]
    fn what_is_shuffled_is_all_there() {
        let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(|i| (i >> 8).to_le_bytes()).collect();
        let other = shuffled(&bytes, 1);
        assert!(other != bytes && other == shuffled(&bytes, 1));
        let sorted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.sort_unstable();
            bytes
        };
        assert!(sorted(&other) == sorted(&bytes));
        assert!(shuffled(&[], 1).is_empty());
    }

    #[test]
    fn every_workload_can_be_made() {
        for workload in Workload::ALL {
            let content = Content::made(workload, 1).unwrap();
            assert!(content.body.len() > 100_000, "{}", content.name);
        }
    }
}
