//! What is sent: files that are made here, the same for the same seed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use dwell_base::Rng;
use dwell_lab::corpus;

use super::super::program;
use super::contender::create;

/// A kind of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// A dump of a database
    Sql,
    /// What a web server has noted
    Logs,
    /// Records of an interface, a line each
    Json,
    /// The program itself, as shared objects are
    Program,
    /// A tree of sources, twice more with changes
    Tree,
    /// Many files of 200 to 4,000 bytes
    Small,
    /// Compressed already, as a .deb and films are
    Package,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Sql, Self::Logs, Self::Json, Self::Program, Self::Tree, Self::Small, Self::Package];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Logs => "logs",
            Self::Json => "json",
            Self::Program => "program",
            Self::Tree => "tree",
            Self::Small => "small",
            Self::Package => "package",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Files in a directory.
#[derive(Debug)]
pub(super) struct Content {
    /// The name of the only file; none of a tree.
    pub(super) file: Option<String>,
    /// The bytes of all files.
    pub(super) bytes: u64,
    /// BLAKE3 would do, but they are a few megabytes.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Content {
    /// Makes files of about so many bytes in a directory, whose other content is removed.
    pub(super) fn make(kind: Kind, bytes: u64, seed: u64, at: &Path) -> anyhow::Result<Self> {
        let (len, mut rng) = (bytes as usize, Rng::from_seed(seed));
        let files = match kind {
            Kind::Sql => vec![("dump.sql".into(), sql(len, &mut rng))],
            Kind::Logs => vec![("access.log".into(), logs(len, &mut rng))],
            Kind::Json => vec![("records.json".into(), json(len, &mut rng))],
            Kind::Program => vec![("program.so".into(), program(len)?)],
            Kind::Package => vec![("package.deb".into(), package(len, seed))],
            Kind::Tree => tree(len, &mut rng),
            Kind::Small => small(len / 8, &mut rng),
        };
        Self::write(files, at)
    }

    /// Copies a file of the user's.
    pub(super) fn copy_of(file: &Path, at: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("{} can't be read", file.display()))?;
        let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
        Self::write(vec![(name.into(), bytes)], at)
    }

    fn write(files: Vec<(PathBuf, Vec<u8>)>, at: &Path) -> anyhow::Result<Self> {
        if at.exists() {
            fs::remove_dir_all(at).context("files of another kind can't be removed")?;
        }
        for (path, bytes) in &files {
            create(&at.join(path))?.write_all(bytes)?;
        }
        let file = match &files[..] {
            [(name, _)] => Some(name.to_string_lossy().into_owned()),
            _ => None,
        };
        let bytes = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Ok(Self { file, bytes, files: files.into_iter().collect() })
    }

    /// Compares what arrived.
    pub(super) fn verify(&self, at: &Path) -> anyhow::Result<()> {
        for (path, bytes) in &self.files {
            let shown = path.display();
            let came =
                fs::read(at.join(path)).with_context(|| format!("{shown} did not arrive"))?;
            ensure!(came == *bytes, "{shown} arrived with other bytes");
        }
        Ok(())
    }
}

const SYLLABLES: [&str; 24] = [
    "an", "be", "cor", "da", "el", "fi", "ga", "hu", "in", "jo", "ka", "lu", "mer", "no", "or",
    "pa", "qui", "ro", "sa", "ti", "um", "va", "wen", "zo",
];

/// So many words, the same for the same numbers.
fn words(count: usize, rng: &mut Rng) -> Vec<String> {
    let mut word = || -> String {
        let count = 2 + rng.below(3);
        (0..count).map(|_| SYLLABLES[rng.below(SYLLABLES.len() as u64) as usize]).collect()
    };
    (0..count).map(|_| word()).collect()
}

fn one<'a>(of: &'a [String], rng: &mut Rng) -> &'a str {
    &of[rng.below(of.len() as u64) as usize]
}

fn sql(len: usize, rng: &mut Rng) -> Vec<u8> {
    let (names, notes) = (words(3000, rng), words(600, rng));
    let states = ["open", "paid", "shipped", "cancelled"];
    let mut text = String::with_capacity(len + 1024);
    for id in 0u64.. {
        if text.len() >= len {
            break;
        }
        if id % 500 == 0 {
            text.push_str("INSERT INTO `orders` (`id`,`customer`,`city`,`state`,`total`,`at`,`note`) VALUES\n");
        }
        let (day, minute, second) = (1 + rng.below(28), rng.below(1440), rng.below(60));
        let (state, cents) = (states[rng.below(4) as usize], rng.below(400_000));
        // A `String` takes everything.
        let _ = write!(
            text,
            "({id},'{} {}','{}','{state}',{}.{:02},'2026-{:02}-{day:02} {:02}:{:02}:{second:02}','",
            one(&names, rng),
            one(&names, rng),
            one(&names[..200], rng),
            cents / 100,
            cents % 100,
            1 + rng.below(12),
            minute / 60,
            minute % 60,
        );
        for _ in 0..[0, 0, 3, 6][rng.below(4) as usize] {
            text.push_str(one(&notes, rng));
            text.push(' ');
        }
        text.push_str("'),\n");
    }
    cut(text, len)
}

fn logs(len: usize, rng: &mut Rng) -> Vec<u8> {
    let (paths, agents) = (words(800, rng), words(60, rng));
    let mut text = String::with_capacity(len + 1024);
    let mut ms = 0;
    while text.len() < len {
        ms += rng.below(400);
        let seconds = ms / 1000;
        let _ = writeln!(
            text,
            "10.{}.{}.{} - - [17/Mar/2026:{:02}:{:02}:{:02} +0000] \"GET /{}/{}?id={} HTTP/1.1\" {} {} \"-\" \
             \"Mozilla/5.0 ({}; rv:{}.0) {}\" {:.3}",
            rng.below(4),
            rng.below(32),
            rng.below(256),
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
            one(&paths[..40], rng),
            one(&paths, rng),
            rng.below(100_000),
            [200, 200, 200, 200, 304, 404, 500][rng.below(7) as usize],
            rng.below(50_000),
            one(&agents, rng),
            100 + rng.below(20),
            one(&agents, rng),
            rng.below(2_000) as f64 / 1000.0,
        );
    }
    cut(text, len)
}

fn json(len: usize, rng: &mut Rng) -> Vec<u8> {
    let names = words(500, rng);
    let mut text = String::with_capacity(len + 1024);
    while text.len() < len {
        let (id, cents) = (rng.next_u64(), rng.below(1_000_000));
        let (day, minute) = (1 + rng.below(28), rng.below(1440));
        let _ = writeln!(
            text,
            "{{\"id\":\"{id:016x}\",\"customer\":{{\"number\":{},\"name\":\"{}\",\"city\":\"{}\"}},\"total\":{}.{:02},\
             \"currency\":\"EUR\",\"tags\":[\"{}\",\"{}\"],\"created_at\":\"2026-03-{day:02}T{:02}:{:02}:00Z\"}}",
            rng.below(100_000),
            one(&names, rng),
            one(&names[..60], rng),
            cents / 100,
            cents % 100,
            one(&names[..30], rng),
            one(&names[..30], rng),
            minute / 60,
            minute % 60,
        );
    }
    cut(text, len)
}

/// A tree that is three times the same, but for a change in every fifth file of the second and third.
fn tree(len: usize, rng: &mut Rng) -> Vec<(PathBuf, Vec<u8>)> {
    let (names, mut files) = (words(4000, rng), Vec::new());
    let (mut all, mut number) = (0, 0);
    while all < len / 3 {
        let bytes = source(2_000 + rng.below(28_000) as usize, &names, rng);
        all += bytes.len();
        let name = format!("{}/{}_{number}.rs", one(&names[..30], rng), one(&names, rng));
        for copy in ["one", "two", "three"] {
            let mut bytes = bytes.clone();
            if copy != "one" && rng.below(5) == 0 {
                let place = rng.below(bytes.len() as u64) as usize;
                bytes.splice(place..place, source(200, &names, rng));
            }
            files.push((Path::new(copy).join(&name), bytes));
        }
        number += 1;
    }
    files.sort();
    files
}

/// Something like a program.
fn source(len: usize, names: &[String], rng: &mut Rng) -> Vec<u8> {
    let own: Vec<String> = (0..12).map(|_| one(names, rng).to_owned()).collect();
    let mut text = String::with_capacity(len + 512);
    while text.len() < len {
        let (a, b, c) = (one(&own, rng), one(&own, rng), one(names, rng));
        let _ = match rng.below(6) {
            0 => writeln!(
                text,
                "/// Returns the {c} of a {a}.\npub fn {a}_{c}({b}: &{b}) -> usize {{"
            ),
            1 => writeln!(text, "    let {a} = {b}.{c}({});", rng.below(1000)),
            2 => writeln!(text, "    if {a}.is_{c}() {{\n        return Err(Error::{b});\n    }}"),
            3 => writeln!(
                text,
                "    for {a} in {b}.iter().filter(|{a}| {a}.{c} > {}) {{",
                rng.below(64)
            ),
            4 => writeln!(text, "    self.{a}.push({c}_{b}::new({a}, {b}));"),
            _ => writeln!(text, "}}\n"),
        };
    }
    cut(text, len)
}

fn small(len: usize, rng: &mut Rng) -> Vec<(PathBuf, Vec<u8>)> {
    let (names, mut files) = (words(2000, rng), Vec::new());
    let mut all = 0;
    while all < len {
        let bytes = source(200 + rng.below(3_800) as usize, &names, rng);
        all += bytes.len();
        files.push((format!("{}/{:04}.txt", one(&names[..20], rng), files.len()).into(), bytes));
    }
    files.sort();
    files
}

/// As much of the program that is measured as there is.
fn program(len: usize) -> anyhow::Result<Vec<u8>> {
    let at = program::dwell()?;
    let mut bytes = fs::read(&at).with_context(|| format!("{} can't be read", at.display()))?;
    bytes.truncate(len);
    Ok(bytes)
}

/// A short text before what can't be compressed.
fn package(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = corpus::text(2_000.min(len), seed);
    bytes.extend(corpus::incompressible(len - bytes.len(), seed));
    bytes
}

fn cut(text: String, len: usize) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_made_twice_the_same_and_is_verified() {
        let at = std::env::temp_dir().join(format!("dwell-transfers-{}", std::process::id()));
        // Where only the tests were built there is no `dwell` beside them; any program will do.
        program::choose(Some(&std::env::current_exe().unwrap())).unwrap();
        for kind in Kind::ALL {
            let first = Content::make(kind, 100_000, 7, &at).unwrap();
            let again = Content::make(kind, 100_000, 7, &at).unwrap();
            assert!(first.files == again.files, "{kind:?}");
            assert!(first.bytes <= 140_000 && first.bytes > 12_000, "{kind:?}: {}", first.bytes);
            again.verify(&at).unwrap();
            let (path, _) = again.files.first_key_value().unwrap();
            fs::write(at.join(path), b"other").unwrap();
            assert!(again.verify(&at).is_err(), "{kind:?}");
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        fs::remove_dir_all(&at).unwrap();
    }
}
