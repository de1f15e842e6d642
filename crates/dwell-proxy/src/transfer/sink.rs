//! The thread that turns records into files, as a state machine without threads: bytes of the stream go in, files
//! come out. Whoever sends them is not trusted with anything but this place.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::mpsc;

use super::bases::Bases;
use super::blocks::Have;
use super::chunks::Grain;
use super::count::Count;
use super::early::Early;
use super::entry::{EntryPath, Meta};
use super::part::{PARTS, PartFile, is_part_name};
use super::place::{Existing, Offer, Place, Site};
use super::record::{Item, Record, RecordError, Records};
use super::repeats::Ring;
use ends::Ends;
use known::Known;
use stretches::Stretch;
use writing::Writing;

/// No more of what has come is named at the end.
const NAMED_MAX: usize = 5;
/// Files that may have been asked for and not come.
const ASKED_MAX: usize = 4096;
/// The ends of chunks that are held of all these files together: some more than a sender asks for at once, and the most chunks of one file.
const ENDS_MAX: usize = 1 << 20;
/// Directories in each other.
const DEPTH_MAX: usize = 2048;
/// Remarks on what was left out that are kept; the others are counted only.
const REMARKS_MAX: usize = 20;
/// Files may have grown since they were offered, and others may have come: a quarter more may come than was offered,
/// or, if that is more, this many bytes and entries of a kind.
const BYTES_MORE: u64 = 64 << 20;
const ENTRIES_MORE: u64 = 1000;
/// Read at once where something is copied.
const COPY_BYTES: usize = 256 << 10;

/// Why it does not go on.
#[derive(Debug, Error)]
pub(super) enum SinkError {
    #[error("{what} can't be written: {error}")]
    Write { what: String, error: io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("{0} arrived with other bytes than it was sent with: its BLAKE3 is another one")]
    Differs(String),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("entries came in an order that makes no sense")]
    Order,
}

/// What came.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) files: u64,
    /// Files that were there and stay, although others came.
    pub(super) kept: u64,
    pub(super) left_out: u64,
    pub(super) remarks: Vec<String>,
    /// BLAKE3 of a single file.
    pub(super) blake3: Option<[u8; 32]>,
    /// The bytes that were copied from bases.
    pub(super) basis_bytes: u64,
    /// What it is called here, and where it is, once it is there.
    pub(super) name: String,
}

/// What is left of a transfer that failed, for the next one to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its path.
    pub path: PathBuf,
    /// The bytes of files that had come.
    pub bytes: u64,
}

/// The settings of a sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) existing: Existing,
    /// Links that lead out of the tree are made.
    pub(super) allows_links_outside: bool,
}

/// Writes what comes.
#[derive(Debug)]
pub(super) struct Sink {
    records: Records,
    target: Target,
    policy: Policy,
    /// The chunks that the sender understands, if any.
    grain: Option<Grain>,
    is_tree: bool,
    roots: Vec<EntryPath>,
    root_names: HashSet<Vec<u8>>,
    writing: Option<Writing>,
    /// What was answered about files that have not come yet.
    asked: VecDeque<Basis>,
    /// The ends of chunks in that.
    ends: usize,
    /// Files that others are names of.
    linked: HashMap<u64, (EntryPath, Node)>,
    /// The memory for roots, those files, and what came.
    known: Known,
    /// The directories in which the last entry was; what is not to be changed has no permissions and time.
    directories: Vec<(EntryPath, Option<Meta>)>,
    /// What roots get that can't be renamed with it.
    locked: HashMap<EntryPath, Meta>,
    /// What came, if there may be something else from an earlier time.
    seen: Option<HashSet<[u8; 16]>>,
    /// No more bytes of files come, ...
    bytes_max: u64,
    /// ... no more files, ...
    files_max: u64,
    /// ... and no more directories and symbolic links.
    others_max: u64,
    /// The files that have begun.
    files: u64,
    /// The files that were asked for, whether they have come or not, and their bytes.
    asks: (u64, u64),
    /// Who waits for answers, if that is known: without anybody nothing is hashed.
    answers: Option<mpsc::Sender<Have>>,
    /// The directories and symbolic links that have come.
    others: u64,
    /// A complete single file that has not got its name yet.
    ready: Option<Ready>,
    received: Received,
    count: Arc<Count>,
    early: Early,
    /// The last bytes of what came; none if the sender does not refer to them.
    ring: Option<Ring>,
    /// What may be copied from besides what has the name.
    bases: Bases,
}

/// Device and inode.
type Node = (u64, u64);

#[derive(Debug)]
enum Target {
    Stdout(io::Stdout),
    Site(Box<Site>),
}

/// What a file that comes may be copied from, as was answered.
#[derive(Debug)]
struct Basis {
    path: EntryPath,
    /// None if there is nothing.
    stretches: Vec<Stretch>,
    /// Between which of them it is copied.
    ends: Ends,
}

#[derive(Debug)]
struct Ready {
    part: Option<PartFile>,
    path: EntryPath,
}

impl Sink {
    /// Opens the place of what is offered; whether the sender should ask before it sends.
    ///
    /// # Errors
    /// In words that say what to do.
    pub(super) fn open(
        place: &Place,
        offer: &Offer,
        policy: Policy,
        count: Arc<Count>,
    ) -> Result<(Self, bool), String> {
        let (target, asks, seen) = match place {
            Place::Stdout if offer.is_tree => {
                return Err(
                    "several files can't be written to a pipe: receive them into a directory, or send \
                     an archive, as `tar c DIRECTORY | dwell send -`"
                        .to_owned(),
                );
            }
            Place::Stdout => (Target::Stdout(io::stdout()), false, None),
            place => {
                let site = Site::open(place, offer, policy.existing)?;
                let was_there = site.staging.as_ref().is_some_and(|staging| staging.was_there);
                let asks = site.has_something && !offer.is_eager;
                (Target::Site(Box::new(site)), asks, was_there.then(HashSet::new))
            }
        };
        let sink = Self {
            records: Records::default(),
            target,
            policy,
            grain: None,
            is_tree: offer.is_tree,
            roots: Vec::new(),
            root_names: HashSet::new(),
            writing: None,
            asked: VecDeque::new(),
            ends: 0,
            linked: HashMap::new(),
            known: Known::new(0),
            directories: Vec::new(),
            locked: HashMap::new(),
            seen,
            bytes_max: offer.bytes.map_or(u64::MAX, |bytes| with_growth(bytes, BYTES_MORE)),
            files_max: with_growth(offer.files, ENTRIES_MORE),
            files: 0,
            asks: (0, 0),
            answers: None,
            others_max: with_growth(offer.others, ENTRIES_MORE),
            others: 0,
            ready: None,
            received: Received::default(),
            count,
            early: Early::default(),
            ring: None,
            bases: Bases::default(),
        };
        Ok((sink, asks))
    }

    /// Holds so many bytes, as a binary logarithm, of what comes, for what refers to them.
    pub(super) fn hold(&mut self, window_log2: u8) {
        self.ring = (window_log2 > 0).then(|| Ring::new(window_log2));
    }

    /// Remembers entries in as much memory.
    pub(super) fn remember(&mut self, memory_bytes: u64) {
        self.known = Known::new(memory_bytes);
    }

    /// Says what is there by chunks that end where the content says so, to a sender that understands them.
    pub(super) fn cut_chunks(&mut self, grain: Option<Grain>) {
        self.grain = grain;
    }

    /// Has other files compared with those that come, if the sender understands chunks.
    pub(super) fn compare_with(&mut self, bases: Bases) {
        self.bases = bases;
    }

    /// Hashes as long as somebody takes such answers.
    pub(super) fn answer_to(&mut self, answers: mpsc::Sender<Have>) {
        self.answers = Some(answers);
    }

    /// Where it goes, for messages.
    pub(super) fn shown(&self) -> String {
        match &self.target {
            Target::Stdout(_) => "standard output".to_owned(),
            Target::Site(site) => match &site.name {
                Some(name) => shown_in(&site.shown, OsStr::from_bytes(name.bytes())),
                None => site.shown.display().to_string(),
            },
        }
    }

    /// What has come, and where it is.
    fn shown_at_end(&self) -> String {
        let Target::Site(site) = &self.target else { return self.shown() };
        if !self.is_tree {
            return self.shown();
        }
        let (directory, name) = match &site.staging {
            Some(staging) => staging.goes_to(),
            None => (&*site.shown, None),
        };
        if let Some(name) = name {
            return shown_in(directory, name);
        }
        let names = self.roots.iter().take(NAMED_MAX).map(ToString::to_string);
        let mut names: Vec<String> = names.collect();
        let last = match self.roots.len() - names.len() {
            0 => names.pop().unwrap_or_default(),
            more => format!("{more} more"),
        };
        match (&names[..], directory == Path::new(".")) {
            ([], _) => shown_in(directory, OsStr::new(&last)),
            (_, true) => format!("{} and {last} into this directory", names.join(", ")),
            (_, false) => format!("{} and {last} into {}", names.join(", "), directory.display()),
        }
    }

    /// Takes the next bytes of the stream; what there is to answer goes to `answer`, which says if anybody takes it.
    ///
    /// # Errors
    /// [`SinkError`]; nothing more can be taken then.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        answer: &mut impl FnMut(Have) -> bool,
    ) -> Result<(), SinkError> {
        let mut records = std::mem::take(&mut self.records);
        while let Some(item) = records.next(&mut bytes)? {
            match item {
                Item::Data(bytes) => self.data(bytes)?,
                // A file that is being written is not hashed.
                Item::Record(Record::Ask(_)) if self.writing.is_some() => {
                    return Err(SinkError::Order);
                }
                Item::Record(Record::Ask(ask)) => {
                    if !self.ask(&ask)?.into_iter().all(&mut *answer) {
                        return Err(SinkError::Order);
                    }
                }
                Item::Record(record) => self.record(record)?,
            }
        }
        self.records = records;
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), SinkError> {
        let belongs = match &record {
            Record::Copy(_) | Record::CopyFrom { .. } | Record::End(..) | Record::Repeat { .. } => {
                self.writing.is_some()
            }
            _ => self.writing.is_none(),
        };
        if !belongs {
            return Err(SinkError::Order);
        }
        match record {
            Record::Root(path) => self.root(path),
            Record::Directory(path, meta) => self.directory(path, meta),
            Record::File(entry) => self.file(entry),
            Record::Symlink(path, meta, target) => self.symlink(&path, &meta, &target),
            Record::HardLink(path, id) => self.hard_link(&path, id),
            Record::Copy(bytes) => self.copy(None, bytes),
            Record::CopyFrom { offset, bytes } => self.copy(Some(offset), bytes),
            Record::Repeat { distance, bytes } => self.repeat(distance, bytes),
            Record::End(bytes, blake3) => self.end(bytes, &blake3),
            Record::Skip => self.next_asked().map(|_| ()).ok_or(SinkError::Order),
            Record::Ask(_) => Err(SinkError::Order),
        }
    }

    fn root(&mut self, path: EntryPath) -> Result<(), SinkError> {
        let is_first = self.roots.is_empty();
        if !path.parent().is_empty() || (!is_first && !self.is_tree) {
            return Err(SinkError::Order);
        }
        self.known.root(path.bytes())?;
        if !self.root_names.insert(path.bytes().to_vec()) {
            return Err(SinkError::Order);
        }
        if let Target::Site(site) = &mut self.target
            && let Site { staging: Some(staging), tree, .. } = &mut **site
        {
            if path.name() == PARTS {
                return Err(SinkError::Refused(format!("{path} is no name for what is received")));
            }
            staging.check(tree, &path).map_err(SinkError::Refused)?;
        }
        self.roots.push(path);
        Ok(())
    }

    /// Comes to an entry: it must be below a root, and the directories in which it is not are complete.
    fn enter(&mut self, path: &EntryPath) -> Result<(), SinkError> {
        let root = path.bytes().split(|&byte| byte == b'/').next().unwrap_or_default();
        if !self.root_names.contains(root) {
            return Err(SinkError::Order);
        }
        if let Target::Site(site) = &self.target
            && self.is_tree
            && site.staging.is_none()
            && path.bytes().split(|&byte| byte == b'/').any(is_part_name)
        {
            return Err(SinkError::Refused(format!(
                "{path} is named like what is not complete, and could be taken for it: receive it where nothing is yet"
            )));
        }
        while let Some((directory, _)) = self.directories.last() {
            if path.is_in(directory.bytes()) && path != directory {
                break;
            }
            self.finish_directory()?;
        }
        Ok(())
    }
}

/// A path for messages, without the `./` of what is in this directory.
fn shown_in(directory: &Path, name: &OsStr) -> String {
    match directory == Path::new(".") {
        true => Path::new(name).display().to_string(),
        false => directory.join(name).display().to_string(),
    }
}

fn with_growth(offered: u64, more: u64) -> u64 {
    offered.saturating_add(more.max(offered / 4))
}

fn cant_write(site: &Site, path: &EntryPath, error: io::Error) -> SinkError {
    let what = site.shown.join(OsStr::from_bytes(path.bytes())).display().to_string();
    SinkError::Write { what, error }
}

mod ends;
mod entries;
mod finish;
mod known;
mod remove;
mod stretches;
#[cfg(test)]
mod tests;
mod writing;
