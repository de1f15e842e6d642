//! The thread that turns records into files, as a state machine without threads: bytes of the stream go in, files
//! come out. Whoever sends them is not trusted with anything but this place.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, Stat};
use thiserror::Error;

use super::blocks::{Blocks, Have};
use super::count::Count;
use super::entry::{EntryPath, Meta};
use super::part::{PARTS, PartFile, is_part_name};
use super::place::{Existing, Offer, Place, Site};
use super::record::{Ask, FileEntry, Item, Record, RecordError, Records};
use super::repeats::Ring;
use super::tree::{kind, set_meta};
use remove::remove_below;

/// Files that may have been asked for and not come.
const ASKED_MAX: usize = 4096;
/// Files with several names.
const LINKED_MAX: usize = 1 << 20;
/// The bytes of names that are held.
const NAME_BYTES_MAX: usize = 256 << 20;
/// Names at the top.
const ROOTS_MAX: usize = 1 << 20;
/// Directories in each other.
const DEPTH_MAX: usize = 2048;
/// Remarks on what was left out that are kept; the others are counted only.
const REMARKS_MAX: usize = 20;
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
    is_tree: bool,
    roots: Vec<EntryPath>,
    root_names: HashSet<Vec<u8>>,
    writing: Option<Writing>,
    /// What was answered about files that have not come yet.
    asked: VecDeque<Basis>,
    /// Files that others are names of.
    linked: HashMap<u64, (EntryPath, Node)>,
    /// The bytes of the names of roots and of those files.
    name_bytes: usize,
    /// The directories in which the last entry was; what is not to be changed has no permissions and time.
    directories: Vec<(EntryPath, Option<Meta>)>,
    /// What roots get that can't be renamed with it.
    locked: HashMap<EntryPath, Meta>,
    /// What came, if there may be something else from an earlier time.
    seen: Option<HashSet<blake3::Hash>>,
    /// A complete single file that has not got its name yet.
    ready: Option<Ready>,
    received: Received,
    count: Arc<Count>,
    /// The last bytes of what came; none if the sender does not refer to them.
    ring: Option<Ring>,
}

/// Device and inode.
type Node = (u64, u64);

#[derive(Debug)]
enum Target {
    Stdout(io::Stdout),
    Site(Box<Site>),
}

/// What a file that comes may be copied from.
#[derive(Debug, PartialEq, Eq)]
enum Basis {
    Nothing(EntryPath),
    /// Its own part.
    Part(EntryPath),
    /// What has its name.
    Named(EntryPath),
}

/// A file that is being written.
#[derive(Debug)]
struct Writing {
    entry: FileEntry,
    path: EntryPath,
    part: Option<PartFile>,
    /// What has its name, if it is copied from.
    named: Option<File>,
    at: u64,
    hasher: blake3::Hasher,
    /// What is there stays.
    is_unwanted: bool,
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
            is_tree: offer.is_tree,
            roots: Vec::new(),
            root_names: HashSet::new(),
            writing: None,
            asked: VecDeque::new(),
            linked: HashMap::new(),
            name_bytes: 0,
            directories: Vec::new(),
            locked: HashMap::new(),
            seen,
            ready: None,
            received: Received::default(),
            count,
            ring: None,
        };
        Ok((sink, asks))
    }

    /// Holds so many bytes, as a binary logarithm, of what comes, for what refers to them.
    pub(super) fn hold(&mut self, window_log2: u8) {
        self.ring = (window_log2 > 0).then(|| Ring::new(window_log2));
    }

    /// Where it goes, for messages.
    pub(super) fn shown(&self) -> String {
        match &self.target {
            Target::Stdout(_) => "standard output".to_owned(),
            Target::Site(site) => match &site.name {
                Some(name) => {
                    site.shown.join(OsStr::from_bytes(name.bytes())).display().to_string()
                }
                None => site.shown.display().to_string(),
            },
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
            Record::Copy(_) | Record::End(..) | Record::Repeat { .. } => self.writing.is_some(),
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
            Record::Copy(bytes) => self.copy(bytes),
            Record::Repeat { distance, bytes } => self.repeat(distance, bytes),
            Record::End(bytes, blake3) => self.end(bytes, &blake3),
            Record::Skip => self.asked.pop_front().map(|_| ()).ok_or(SinkError::Order),
            Record::Ask(_) => Err(SinkError::Order),
        }
    }

    fn root(&mut self, path: EntryPath) -> Result<(), SinkError> {
        let is_first = self.roots.is_empty();
        let fits = path.parent().is_empty() && self.roots.len() < ROOTS_MAX;
        if !fits || (!is_first && !self.is_tree) || !self.root_names.insert(path.bytes().to_vec()) {
            return Err(SinkError::Order);
        }
        if let Target::Site(site) = &self.target
            && let Some(staging) = &site.staging
        {
            if path.name() == PARTS {
                return Err(SinkError::Refused(format!("{path} is no name for what is received")));
            }
            staging.check(&path).map_err(SinkError::Refused)?;
        }
        self.name_bytes += path.bytes().len();
        if self.name_bytes > NAME_BYTES_MAX {
            return Err(SinkError::Order);
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

    /// Notes that something was put there.
    fn put(&mut self, path: &EntryPath) {
        if let Some(seen) = &mut self.seen {
            seen.insert(blake3::hash(path.bytes()));
        }
    }

    fn finish_directory(&mut self) -> Result<(), SinkError> {
        let Some((path, Some(mut meta))) = self.directories.pop() else { return Ok(()) };
        let Target::Site(site) = &mut self.target else { return Err(SinkError::Order) };
        if site.staging.is_some() && path.parent().is_empty() && meta.mode & 0o200 == 0 {
            self.locked.insert(path.clone(), meta);
            meta.mode |= 0o700;
        }
        site.tree.finish_directory(&path, &meta).map_err(|error| cant_write(site, &path, error))
    }

    fn directory(&mut self, path: EntryPath, meta: Meta) -> Result<(), SinkError> {
        self.enter(&path)?;
        let keeps = self.policy.existing == Existing::Keep;
        let site = self.site()?;
        // What stood there in an earlier time, and is no directory now.
        if site.staging.is_some()
            && let Ok(Some(stat)) = site.tree.stat(&path)
            && kind(&stat) != FileType::Directory
        {
            let _ = site.tree.remove(&path);
        }
        let is_made =
            site.tree.make_directory(&path).map_err(|error| cant_write(site, &path, error))?;
        let is_ours = is_made || site.staging.is_some() || !keeps;
        self.put(&path);
        if self.directories.len() >= DEPTH_MAX {
            return Err(SinkError::Order);
        }
        self.directories.push((path, is_ours.then_some(meta)));
        Ok(())
    }

    /// The site of a tree.
    fn site(&mut self) -> Result<&mut Site, SinkError> {
        match &mut self.target {
            Target::Site(site) if self.is_tree => Ok(site),
            _ => Err(SinkError::Order),
        }
    }

    /// The kind of what is at a path, if anything is.
    fn there(&mut self, path: &EntryPath) -> Result<Option<FileType>, SinkError> {
        let Target::Site(site) = &mut self.target else { return Ok(None) };
        let stat = site.tree.stat(path).map_err(|error| cant_write(site, path, error))?;
        Ok(stat.map(|stat| kind(&stat)))
    }

    /// True if what is at a path may be replaced, false if it stays.
    fn may_replace(&mut self, path: &EntryPath) -> Result<bool, SinkError> {
        let Some(kind) = self.there(path)? else { return Ok(true) };
        let Target::Site(site) = &mut self.target else { return Ok(true) };
        let whole = site.shown.join(OsStr::from_bytes(path.bytes()));
        let shown = whole.display();
        let is_staged = site.staging.is_some();
        if kind == FileType::Directory && is_staged {
            // It was one when an earlier transfer came here.
            site.tree.forget();
            let at = Path::new(OsStr::from_bytes(path.bytes()));
            remove_below(site.tree.base(), at, |_| false)
                .map_err(|error| cant_write(site, path, error))?;
        } else if kind == FileType::Directory {
            return Err(SinkError::Refused(format!(
                "{shown} is a directory, and what comes in its place is none: remove it"
            )));
        }
        match self.policy.existing {
            _ if is_staged => Ok(true),
            Existing::Keep => Ok(false),
            Existing::Replace => Ok(true),
            Existing::Refuse => Err(SinkError::Refused(format!("{shown} exists"))),
        }
    }

    fn symlink(&mut self, path: &EntryPath, meta: &Meta, target: &[u8]) -> Result<(), SinkError> {
        self.enter(path)?;
        if !self.policy.allows_links_outside && path.leads_outside(target) {
            let target = String::from_utf8_lossy(target);
            self.leave_out(format!("{path} is a link that leads outside, to {target}"));
            return Ok(());
        }
        let is_link = self.there(path)? == Some(FileType::Symlink);
        let may_replace = self.may_replace(path)?;
        let site = self.site()?;
        if is_link && site.tree.read_link(path).is_ok_and(|there| there == target) {
            self.put(path);
            return Ok(());
        }
        if !may_replace {
            self.received.kept += 1;
            return Ok(());
        }
        let target = OsStr::from_bytes(target);
        site.tree
            .symlink(path, target, meta, true)
            .map_err(|error| cant_write(site, path, error))?;
        self.put(path);
        Ok(())
    }

    fn hard_link(&mut self, path: &EntryPath, id: u64) -> Result<(), SinkError> {
        self.enter(path)?;
        let Some((from, node)) = self.linked.get(&id).cloned() else {
            self.leave_out(format!("{path} is another name of a file that was left out"));
            return Ok(());
        };
        if from == *path {
            return Err(SinkError::Order);
        }
        if !self.may_replace(path)? {
            self.received.kept += 1;
            return Ok(());
        }
        let site = self.site()?;
        // Another entry may have come in its place.
        let there = site.tree.stat(&from).map_err(|error| cant_write(site, path, error))?;
        if there.and_then(|stat| node_of(&stat)) != Some(node) {
            return Err(SinkError::Order);
        }
        site.tree.hard_link(&from, path, true).map_err(|error| cant_write(site, path, error))?;
        self.put(path);
        self.received.files += 1;
        let bytes = self.site()?.tree.stat(path).ok().flatten().map_or(0, |stat| stat.st_size);
        self.count.reused(u64::try_from(bytes).unwrap_or(0));
        Ok(())
    }

    fn leave_out(&mut self, why: String) {
        self.received.left_out += 1;
        if self.received.remarks.len() < REMARKS_MAX {
            self.received.remarks.push(why);
        }
    }

    /// The path at which an entry is written.
    fn placed(&self, path: &EntryPath) -> EntryPath {
        match &self.target {
            Target::Site(site) => site.name.clone().unwrap_or_else(|| path.clone()),
            Target::Stdout(_) => path.clone(),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<Have>, SinkError> {
        if self.asked.len() >= ASKED_MAX {
            return Err(SinkError::Order);
        }
        let root = ask.path.bytes().split(|&byte| byte == b'/').next().unwrap_or_default();
        if !self.root_names.contains(root) {
            return Err(SinkError::Order);
        }
        let path = self.placed(&ask.path);
        let (basis, answers) = self.look(&path, ask).unwrap_or_else(|error| {
            tracing::debug!("{path} can't be looked at: {error}");
            (Basis::Nothing(path.clone()), vec![Have::Nothing])
        });
        if matches!(answers[..], [Have::Same | Have::Stays]) {
            if answers == [Have::Stays] {
                self.received.kept += 1;
            } else {
                self.received.files += 1;
            }
            self.put(&ask.path);
            self.count.reused(ask.bytes.unwrap_or(0));
        }
        self.asked.push_back(basis);
        Ok(answers)
    }

    /// What there is at a path.
    fn look(&mut self, path: &EntryPath, ask: &Ask) -> io::Result<(Basis, Vec<Have>)> {
        let nothing = (Basis::Nothing(path.clone()), vec![Have::Nothing]);
        let existing = self.policy.existing;
        let Target::Site(site) = &mut self.target else { return Ok(nothing) };
        let wanted = ask.bytes.unwrap_or(u64::MAX);
        let stat = site.tree.stat(path)?;
        if stat.is_some() && site.staging.is_none() && existing == Existing::Keep {
            return Ok((Basis::Nothing(path.clone()), vec![Have::Stays]));
        }
        let is_file = stat.is_some_and(|stat| kind(&stat) == FileType::RegularFile);
        if let (Some(stat), Some(meta), true) = (stat, ask.meta, ask.is_quick && is_file) {
            let mtime = (stat.st_mtime, i64::from(meta.mtime_ns));
            let is_same = (meta.mtime_s, stat.st_mtime_nsec as i64) == mtime
                && u64::try_from(stat.st_size) == Ok(wanted);
            if is_same {
                return Ok((Basis::Nothing(path.clone()), vec![Have::Same]));
            }
        }
        if let Some(mut part) = site.tree.find_part(path) {
            let bytes = part.file.metadata()?.len().min(wanted);
            let blocks = Blocks::read(&mut part.file, bytes)?;
            return Ok((Basis::Part(path.clone()), blocks.answers()));
        }
        if !is_file {
            return Ok(nothing);
        }
        let mut file = site.tree.open_file(path)?;
        let bytes = file.metadata()?.len().min(wanted);
        let blocks = Blocks::read(&mut file, bytes)?;
        Ok((Basis::Named(path.clone()), blocks.answers()))
    }

    fn file(&mut self, entry: FileEntry) -> Result<(), SinkError> {
        self.enter(&entry.path)?;
        if !self.is_tree && self.ready.is_some() {
            return Err(SinkError::Order);
        }
        let path = self.placed(&entry.path);
        let basis = match entry.was_asked {
            true => Some(self.asked.pop_front().ok_or(SinkError::Order)?),
            false => None,
        };
        let is_unwanted = !self.may_replace(&path)?;
        let (mut named, mut part) = (None, None);
        if let Target::Site(site) = &mut self.target {
            match basis {
                Some(Basis::Part(known)) if known == path => {
                    let found = site.tree.find_part(&path).ok_or_else(|| {
                        io::Error::other("what had come of it is gone: send it again")
                    });
                    part = Some(found.map_err(|error| cant_write(site, &path, error))?);
                }
                Some(Basis::Named(known)) if known == path => {
                    let opened = site.tree.open_file(&path);
                    named = Some(opened.map_err(|error| cant_write(site, &path, error))?);
                }
                Some(Basis::Nothing(known)) if known == path => {}
                None => {}
                _ => return Err(SinkError::Order),
            }
        }
        let hasher = blake3::Hasher::new();
        self.writing = Some(Writing { entry, path, part, named, at: 0, hasher, is_unwanted });
        Ok(())
    }

    /// The next bytes are those that came so far back.
    fn repeat(&mut self, distance: u32, bytes: u32) -> Result<(), SinkError> {
        let mut left = bytes as usize;
        while left > 0 {
            let ring = self.ring.as_ref().ok_or(SinkError::Order)?;
            let mut piece = ring.back(u64::from(distance), left.min(COPY_BYTES)).to_vec();
            if piece.is_empty() {
                return Err(SinkError::Order);
            }
            // What is near repeats itself.
            if piece.len() == distance as usize {
                piece = piece.repeat((COPY_BYTES.min(left) / piece.len()).max(1));
            }
            self.data(&piece)?;
            left -= piece.len();
        }
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        if let Some(ring) = &mut self.ring {
            ring.push(bytes);
        }
        let writing = self.writing.as_mut().ok_or(SinkError::Order)?;
        match &mut self.target {
            _ if writing.is_unwanted => {}
            Target::Stdout(out) => out
                .write_all(bytes)
                .map_err(|error| SinkError::Write { what: "standard output".to_owned(), error })?,
            Target::Site(site) => {
                let written =
                    writing.part(site).and_then(|(part, at)| part.file.write_all_at(bytes, at));
                written.map_err(|error| cant_write(site, &writing.path, error))?;
            }
        }
        writing.hasher.update(bytes);
        writing.at += bytes.len() as u64;
        self.count.moved(bytes.len() as u64);
        Ok(())
    }

    /// Takes the next bytes from what is there.
    fn copy(&mut self, mut bytes: u64) -> Result<(), SinkError> {
        let writing = self.writing.as_mut().ok_or(SinkError::Order)?;
        let Target::Site(site) = &mut self.target else { return Err(SinkError::Order) };
        let mut buffer = vec![0; COPY_BYTES];
        while bytes > 0 {
            let len = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
            let piece = &mut buffer[..len];
            let from = match (&writing.named, &writing.part) {
                (Some(named), _) => named,
                (None, Some(part)) => &part.file,
                (None, None) => return Err(SinkError::Order),
            };
            from.read_exact_at(piece, writing.at)
                .map_err(|error| cant_write(site, &writing.path, error))?;
            if let (Some(_), Some(part)) = (&writing.named, &writing.part) {
                let written = part.file.write_all_at(piece, writing.at);
                written.map_err(|error| cant_write(site, &writing.path, error))?;
            }
            writing.hasher.update(piece);
            writing.at += len as u64;
            bytes -= len as u64;
            self.count.reused(len as u64);
        }
        Ok(())
    }

    fn end(&mut self, bytes: u64, blake3: &[u8; 32]) -> Result<(), SinkError> {
        let mut writing = self.writing.take().ok_or(SinkError::Order)?;
        if writing.at != bytes || writing.hasher.finalize().as_bytes() != blake3 {
            self.discard(&writing);
            return Err(SinkError::Differs(writing.path.to_string()));
        }
        self.received.blake3 = (!self.is_tree).then_some(*blake3);
        let Target::Site(site) = &mut self.target else {
            self.received.files += 1;
            self.ready = Some(Ready { part: None, path: writing.path });
            return Ok(());
        };
        if writing.is_unwanted {
            self.received.kept += 1;
            self.ready = Some(Ready { part: None, path: writing.path });
            return Ok(());
        }
        let ended = writing.finish(site);
        ended.map_err(|error| cant_write(site, &writing.path, error))?;
        self.received.files += 1;
        let path = writing.path;
        if !self.is_tree {
            self.ready = Some(Ready { part: writing.part, path });
            return Ok(());
        }
        let completed = match &writing.part {
            Some(part) => complete(site, part, &path),
            None => Ok(()),
        };
        let stat = completed.and_then(|()| site.tree.stat(&path));
        let stat = stat.map_err(|error| cant_write(site, &path, error))?;
        self.put(&path);
        let name_bytes = self.name_bytes + path.bytes().len();
        let fits = self.linked.len() < LINKED_MAX && name_bytes <= NAME_BYTES_MAX;
        if writing.entry.link_id != 0
            && fits
            && let Some(node) = stat.and_then(|stat| node_of(&stat))
        {
            self.name_bytes = name_bytes;
            self.linked.insert(writing.entry.link_id, (path, node));
        }
        Ok(())
    }

    fn discard(&mut self, writing: &Writing) {
        if let (Target::Site(site), Some(part)) = (&mut self.target, &writing.part) {
            let _ = site.tree.remove_part(&writing.path, &part.name);
        }
    }

    /// The stream has ended: puts what came on the disk, and, if somebody still waits for it, into its place.
    ///
    /// # Errors
    /// [`SinkError`]; nothing that is not complete has its name.
    pub(super) fn finish(&mut self, is_awaited: impl Fn() -> bool) -> Result<Received, SinkError> {
        let is_whole = self.records.is_between() && self.writing.is_none() && self.asked.is_empty();
        if !is_whole || self.roots.is_empty() {
            return Err(SinkError::Order);
        }
        while !self.directories.is_empty() {
            self.finish_directory()?;
        }
        let shown = self.shown();
        let failed = |error: io::Error| SinkError::Write { what: shown.clone(), error };
        match &mut self.target {
            Target::Stdout(out) => out.flush().map_err(failed)?,
            Target::Site(site) if self.is_tree => {
                if let Some(seen) = &self.seen {
                    let keeps = |below: &Path| {
                        let below = below.as_os_str();
                        below.is_empty()
                            || below == PARTS
                            || seen.contains(&blake3::hash(below.as_bytes()))
                    };
                    remove_below(site.tree.base(), Path::new(""), keeps).map_err(failed)?;
                }
                rustix::fs::syncfs(site.tree.base()).map_err(|error| failed(error.into()))?;
                if !is_awaited() {
                    return Err(SinkError::Order);
                }
                if let Some(staging) = &site.staging {
                    staging.complete(&site.tree, &self.roots, &self.locked).map_err(failed)?;
                }
            }
            Target::Site(site) => {
                let existing = self.policy.existing;
                // What was asked for, and is to stay, does not come.
                if let Some(Ready { part: Some(part), path }) = &self.ready {
                    part.file.sync_all().map_err(failed)?;
                    if !is_awaited() {
                        return Err(SinkError::Order);
                    }
                    let replace = existing == Existing::Replace;
                    site.tree.complete(&part.name, path, replace).map_err(failed)?;
                    // It has its name already, and not all file systems can sync a directory.
                    let _ = rustix::fs::fsync(site.tree.base());
                    self.ready = None;
                }
            }
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// What is left of it, if it did not come to its end; what is empty is removed.
    pub(super) fn give_up(mut self) -> Option<Kept> {
        let bytes = self.count.get().0;
        let Target::Site(site) = &mut self.target else { return None };
        let unfinished = self.writing.map(|writing| (writing.part, writing.path));
        let unfinished = unfinished.or(self.ready.map(|ready| (ready.part, ready.path)));
        let mut kept = None;
        if let Some((Some(part), path)) = unfinished {
            let len = part.file.metadata().map_or(0, |metadata| metadata.len());
            let path_of_part = path_beside(&site.shown, &path, &part.name);
            if len == 0 {
                let _ = site.tree.remove_part(&path, &part.name);
            } else {
                kept = Some(Kept { path: path_of_part, bytes });
            }
        }
        match &site.staging {
            Some(staging) if staging.remove_if_empty(&site.tree) => None,
            Some(_) => Some(Kept { path: site.shown.clone(), bytes }),
            None => kept,
        }
    }
}

impl Writing {
    /// Its part, and where the next bytes go. What was only compared so far is copied to it first.
    fn part(&mut self, site: &mut Site) -> io::Result<(&PartFile, u64)> {
        if self.part.is_none() {
            // Nobody else reads it before it has its own permissions.
            let mode = if self.entry.meta.is_some() { 0o600 } else { 0o666 };
            let part = site.tree.open_part(&self.path, Mode::from_raw_mode(mode))?;
            if let Some(named) = &self.named {
                part.file.set_len(0)?;
                copy_again(named, self.at, &part.file, &self.hasher)?;
            }
            self.part = Some(part);
        }
        let part = self.part.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((part, self.at))
    }

    /// All has come: gives it its length, permissions and time.
    fn finish(&mut self, site: &mut Site) -> io::Result<()> {
        let is_there = match (&self.part, &self.named) {
            (None, Some(named)) => named.metadata()?.len() == self.at,
            _ => false,
        };
        if is_there {
            if let (Some(named), Some(meta)) = (&self.named, &self.entry.meta) {
                set_meta(named.as_fd(), meta)?;
            }
            return Ok(());
        }
        let at = self.at;
        let meta = self.entry.meta;
        let (part, _) = self.part(site)?;
        part.file.set_len(at)?;
        if let Some(meta) = meta {
            set_meta(part.file.as_fd(), &meta)?;
        }
        Ok(())
    }
}

/// Copies what was only compared so far, as long as it is still what it was.
fn copy_again(named: &File, len: u64, part: &File, hasher: &blake3::Hasher) -> io::Result<()> {
    let mut again = blake3::Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < len {
        let left = usize::try_from(len - at).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(COPY_BYTES)];
        named.read_exact_at(piece, at)?;
        part.write_all_at(piece, at)?;
        again.update(piece);
        at += piece.len() as u64;
    }
    if again.finalize() != hasher.finalize() {
        return Err(io::Error::other("what is there has changed meanwhile: send it again"));
    }
    Ok(())
}

/// Gives a part its name. What it replaces is gone then, so that its own bytes are synced before.
fn complete(site: &mut Site, part: &PartFile, path: &EntryPath) -> io::Result<()> {
    if site.staging.is_none() && site.tree.stat(path)?.is_some() {
        part.file.sync_all()?;
    }
    site.tree.complete(&part.name, path, true)
}

/// What a file is known by whatever its name; none if it is no file.
fn node_of(stat: &Stat) -> Option<Node> {
    (kind(stat) == FileType::RegularFile).then_some((stat.st_dev, stat.st_ino))
}

fn path_beside(base: &Path, path: &EntryPath, name: &OsStr) -> PathBuf {
    base.join(OsStr::from_bytes(path.parent())).join(name)
}

fn cant_write(site: &Site, path: &EntryPath, error: io::Error) -> SinkError {
    let what = site.shown.join(OsStr::from_bytes(path.bytes())).display().to_string();
    SinkError::Write { what, error }
}

mod remove;
#[cfg(test)]
mod tests;
