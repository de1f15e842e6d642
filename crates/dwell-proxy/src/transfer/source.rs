//! What is sent: a pipe, a file, or files and directories; and the thread that turns it into records.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use walkdir::WalkDir;

use super::TransferError;
use super::blocks::{Blocks, Have};
use super::chunks::{self, Chunks, Table};
use super::count::Count;
use super::entry::{EntryPath, MODE_MASK, Meta};
use super::record::{Ask, FileEntry, Record};
use super::repeats::Finder;
use super::tree::Tree;
use content::Ended;

/// Files that are asked for ahead of what is sent.
const AHEAD_MAX: usize = 128;
/// Hashes that may be on their way to here, unless one file alone has more.
const AHEAD_HASHES_MAX: u64 = 1 << 16;
/// Remarks on what was left out that are kept; the others are counted only.
const REMARKS_MAX: usize = 20;
/// More files with several names than that are sent as if each name were a file.
const LINKS_MAX: usize = 1 << 20;
/// Read at once where nothing is compared.
const READ_BYTES: usize = 64 << 10;

/// Something to be sent.
pub struct Source {
    input: Input,
    /// Its name at the receiver; empty if it has none.
    pub(super) name: String,
    /// Its name in messages.
    pub what: String,
    /// The number of files.
    pub(super) files: u64,
    /// The number of directories and symbolic links.
    pub(super) others: u64,
    /// The length of all of them, if it is known.
    pub(super) bytes: Option<u64>,
    /// True if it is more than one plain file.
    pub(super) is_tree: bool,
    /// True if a file comes under several names.
    pub(super) has_links: bool,
}

enum Input {
    Pipe(Box<dyn Read + Send>),
    Files { roots: Vec<Root>, follow: bool },
}

/// What was named on the command line.
#[derive(Clone)]
struct Root {
    path: PathBuf,
    name: EntryPath,
}

impl Source {
    /// The same once more; none of what can be read only once.
    pub(super) fn again(&self) -> Option<Self> {
        let Input::Files { roots, follow } = &self.input else { return None };
        let input = Input::Files { roots: roots.clone(), follow: *follow };
        let (name, what) = (self.name.clone(), self.what.clone());
        let Self { files, others, bytes, is_tree, has_links, .. } = *self;
        Some(Self { input, name, what, files, others, bytes, is_tree, has_links })
    }

    /// What comes through a pipe. Its name is without directories.
    pub fn pipe(reader: Box<dyn Read + Send>, name: &str, what: &str) -> Self {
        Self {
            input: Input::Pipe(reader),
            name: name.to_owned(),
            what: what.to_owned(),
            files: 1,
            others: 0,
            bytes: None,
            is_tree: false,
            has_links: false,
        }
    }

    /// Files and directories with all that is in them. Symbolic links that are named are followed, others only if
    /// `follow` says so.
    ///
    /// # Errors
    /// One can't be read, or two have the same name.
    pub fn files(paths: &[PathBuf], follow: bool) -> Result<Self, TransferError> {
        let mut roots = Vec::new();
        let mut names = HashSet::new();
        for path in paths {
            let name = root_name(path)?;
            if !names.insert(name.bytes().to_vec()) {
                let error = io::Error::other(format!("another file is called {name}, too"));
                return Err(cant_read(path, error));
            }
            // The offer has the first one's.
            let is_text = std::str::from_utf8(name.bytes())
                .is_ok_and(|name| !name.contains(char::is_control));
            if roots.is_empty() && !is_text {
                let error = "its name has bytes that can't be shown (no UTF-8, or a control character): \
                             send it under another name, or the directory that it is in";
                return Err(cant_read(path, io::Error::other(error)));
            }
            roots.push(Root { path: followed(path)?, name });
        }
        if let [root] = &roots[..] {
            let metadata =
                fs::metadata(&root.path).map_err(|error| cant_read(&root.path, error))?;
            if !metadata.is_file() && !metadata.is_dir() {
                let device =
                    File::open(&root.path).map_err(|error| cant_read(&root.path, error))?;
                let (name, what) = (root.name.to_string(), root.path.display().to_string());
                return Ok(Self::pipe(Box::new(device), &name, &what));
            }
        }
        Self::counted(roots, follow)
    }

    fn counted(roots: Vec<Root>, follow: bool) -> Result<Self, TransferError> {
        let (mut files, mut others, mut bytes) = (0, 0, 0);
        let mut is_tree = roots.len() > 1;
        let (mut nodes, mut has_links) = (HashSet::new(), false);
        for root in &roots {
            let metadata =
                fs::metadata(&root.path).map_err(|error| cant_read(&root.path, error))?;
            if metadata.is_file() {
                // So that it fails before anybody is called.
                drop(open(&root.path, follow).map_err(|error| cant_read(&root.path, error))?);
            }
            is_tree |= metadata.is_dir();
            for entry in walk(root, follow).flatten() {
                if entry.file_type().is_file() {
                    files += 1;
                    let Ok(metadata) = entry.metadata() else { continue };
                    bytes += metadata.len();
                    if metadata.nlink() > 1 && !has_links {
                        has_links = !nodes.insert((metadata.dev(), metadata.ino()))
                            || nodes.len() > LINKS_MAX;
                    }
                } else {
                    others += 1;
                }
            }
        }
        let what = match &roots[..] {
            [root] => root.path.display().to_string(),
            [first, rest @ ..] => format!("{} and {} more", first.path.display(), rest.len()),
            [] => String::new(),
        };
        let name = match &roots[..] {
            [root] | [root, ..] => root.name.to_string(),
            [] => String::new(),
        };
        let input = Input::Files { roots, follow };
        Ok(Self { input, name, what, files, others, bytes: Some(bytes), is_tree, has_links })
    }
}

fn cant_read(path: &Path, error: io::Error) -> TransferError {
    TransferError::Read { what: path.display().to_string(), error }
}

/// The name at the receiver of what is named here; of `.` and `..` the name that the directory really has.
fn root_name(path: &Path) -> Result<EntryPath, TransferError> {
    let whole = match path.file_name() {
        Some(_) => path.to_path_buf(),
        None => fs::canonicalize(path).map_err(|error| cant_read(path, error))?,
    };
    let name = whole.file_name().and_then(|name| EntryPath::new(name.as_bytes()));
    name.ok_or_else(|| cant_read(path, io::Error::other("it has no name: send what is in it")))
}

/// Returns where a path leads if it is a symbolic link, and else the path. A walk that does not follow links
/// would take a link for itself, though what it leads to was named.
fn followed(path: &Path) -> Result<PathBuf, TransferError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    match is_link {
        true => fs::canonicalize(path).map_err(|error| cant_read(path, error)),
        false => Ok(path.to_path_buf()),
    }
}

fn walk(root: &Root, follow: bool) -> walkdir::IntoIter {
    WalkDir::new(&root.path).follow_links(follow).sort_by_file_name().into_iter()
}

/// Opens for reading; a pipe that took the file's place keeps nobody waiting, and a link that did is not followed.
fn open(path: &Path, follow: bool) -> io::Result<File> {
    let links = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = (OFlags::NONBLOCK | links).bits().cast_signed();
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens what a walk has found. Unless links are followed, each directory below the root is opened by its name in the one
/// before: whoever may write to one of them could have put a link in the place of anything since.
#[derive(Default)]
struct Opener {
    follow: bool,
    /// The root that was used last, if it is a directory.
    root: Option<(PathBuf, Tree)>,
}

impl Opener {
    /// Opens a file for reading; `path` is that at the receiver.
    fn open(&mut self, path: &EntryPath, from: &Path) -> io::Result<File> {
        let below = path.without_first().filter(|_| !self.follow);
        let root = from.ancestors().nth(path.parents().count());
        let (Some(below), Some(root)) = (below, root) else { return open(from, self.follow) };
        if self.root.as_ref().is_none_or(|(known, _)| known != root) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let base = rustix::fs::open(root, flags, Mode::empty())?;
            self.root = Some((root.to_owned(), Tree::new(base, None)));
        }
        let (_, tree) = self.root.as_mut().ok_or(io::ErrorKind::NotFound)?;
        tree.open_file(&below)
    }
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// BLAKE3 of a single file.
    pub(super) blake3: Option<[u8; 32]>,
    /// What was not sent, and why.
    pub(super) remarks: Vec<String>,
    /// The number of entries that were not sent.
    pub(super) left_out: u64,
    /// The number of files that the receiver has then.
    pub(super) files: u64,
}

/// Why it does not go on.
pub(super) enum Stop {
    /// Nobody takes the records any more.
    Gone,
    /// What is sent can't be read.
    Read(io::Error),
    /// The receiver gave an answer that is none.
    Answer,
}

/// Where records go, piece by piece.
pub(super) trait Outlet {
    /// False if nobody takes them.
    fn put(&mut self, piece: Vec<u8>) -> bool;

    /// An empty buffer for another piece; one that was used before has its memory already.
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// True if whoever takes the pieces takes them as soon as they come, so that no link holds them up, and no link that is
    /// known holds up more than the threads at its ends.
    fn is_waiting(&self) -> bool {
        false
    }
}

/// Turns a source into records.
pub(super) struct Recorder<'a, O> {
    /// The answers of the receiver; none if it has nothing to answer.
    pub(super) answers: Option<mpsc::Receiver<Have>>,
    /// The same length and time suffice for a file to be the same.
    pub(super) is_quick: bool,
    pub(super) outlet: &'a mut O,
    pub(super) count: Arc<Count>,
    /// Finds what was sent before; none if the receiver does not hold it.
    finder: Option<Finder>,
    piece: Vec<u8>,
    /// What comes goes on at once, as more may come much later.
    is_pipe: bool,
    sent: Sent,
    /// The numbers of files with several names, by device and inode.
    links: HashMap<(u64, u64), u64>,
    opener: Opener,
}

/// What was found, in the order in which it is sent.
enum Found {
    Directory(EntryPath, Meta),
    File { path: EntryPath, from: PathBuf, metadata: Metadata, was_asked: bool },
    Symlink(EntryPath, Meta, Vec<u8>),
}

impl<'a, O: Outlet> Recorder<'a, O> {
    pub(super) fn new(
        answers: Option<mpsc::Receiver<Have>>,
        is_quick: bool,
        finder: Option<Finder>,
        outlet: &'a mut O,
        count: Arc<Count>,
    ) -> Self {
        let (piece, sent, links) = (Vec::new(), Sent::default(), HashMap::new());
        let (is_pipe, opener) = (false, Opener::default());
        Self { answers, is_quick, outlet, count, finder, piece, is_pipe, sent, links, opener }
    }

    /// All of it.
    pub(super) fn run(mut self, source: Source) -> Result<Sent, Stop> {
        match source.input {
            Input::Pipe(mut reader) => self.pipe(&source.name, &mut reader)?,
            Input::Files { roots, follow } => {
                for root in &roots {
                    self.put(&Record::Root(root.name.clone()))?;
                }
                self.files(&roots, follow)?;
                if source.is_tree {
                    self.sent.blake3 = None;
                }
            }
        }
        self.flush()?;
        Ok(self.sent)
    }

    fn pipe(&mut self, name: &str, reader: &mut impl Read) -> Result<(), Stop> {
        // The receiver has another name for it, if it has none.
        let path = EntryPath::new(name.as_bytes()).or_else(|| EntryPath::new(b"-"));
        let path = path.ok_or(Stop::Answer)?;
        self.is_pipe = true;
        self.put(&Record::Root(path.clone()))?;
        let was_asked = self.answers.is_some();
        let (meta, bytes) = (None, None);
        if was_asked {
            self.put(&Record::Ask(Ask { path: path.clone(), bytes, meta, is_quick: false }))?;
        }
        let mut have = self.answer(was_asked)?;
        let file = FileEntry { path, meta, bytes, link_id: 0, was_asked };
        self.put(&Record::File(file))?;
        self.sent.files += 1;
        self.content(reader, &mut have).map_err(|stop| match stop {
            Ended::Read(error) => Stop::Read(error),
            Ended::Stop(stop) => stop,
        })
    }

    fn files(&mut self, roots: &[Root], follow: bool) -> Result<(), Stop> {
        self.opener.follow = follow;
        let mut entries =
            roots.iter().flat_map(|root| walk(root, follow).map(move |entry| (root, entry)));
        let mut queue: VecDeque<(Found, u64)> = VecDeque::new();
        let mut hashes = 0;
        loop {
            let ahead = if self.answers.is_some() { AHEAD_MAX } else { 1 };
            while queue.len() < ahead && (queue.is_empty() || hashes < AHEAD_HASHES_MAX) {
                let Some((root, entry)) = entries.next() else { break };
                let Some(mut found) = self.look(root, entry) else { continue };
                let cost = self.ask(&mut found)?;
                hashes += cost;
                queue.push_back((found, cost));
            }
            let Some((found, cost)) = queue.pop_front() else { return Ok(()) };
            hashes -= cost;
            self.entry(found)?;
        }
    }

    /// Asks what is there of a file; returns how many hashes may come.
    fn ask(&mut self, found: &mut Found) -> Result<u64, Stop> {
        let Found::File { path, metadata, was_asked, .. } = found else { return Ok(0) };
        if self.answers.is_none() {
            return Ok(0);
        }
        *was_asked = true;
        let (bytes, meta) = (Some(metadata.len()), Some(meta(metadata)));
        // Other names refer to it, for which it must have been sent.
        let is_quick = self.is_quick && metadata.nlink() == 1;
        let ask = Ask { path: path.clone(), bytes, meta, is_quick };
        self.put(&Record::Ask(ask))?;
        Ok(chunks::hashes_max(metadata.len()))
    }

    /// What an entry is; none if it can't be sent, which is noted.
    fn look(&mut self, root: &Root, entry: walkdir::Result<walkdir::DirEntry>) -> Option<Found> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.leave_out(&error.to_string()),
        };
        let shown = entry.path().display();
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return self.leave_out(&format!("{shown} can't be read: {error}")),
        };
        let below = entry.path().strip_prefix(&root.path).ok()?;
        let path = match below.as_os_str().is_empty() {
            true => Some(root.name.clone()),
            false => {
                EntryPath::new(&[root.name.bytes(), b"/", below.as_os_str().as_bytes()].concat())
            }
        };
        let Some(path) = path else {
            return self.leave_out(&format!("{shown} has too long a path"));
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Some(Found::Directory(path, meta(&metadata)));
        }
        if kind.is_file() {
            let from = entry.path().to_path_buf();
            return Some(Found::File { path, from, metadata, was_asked: false });
        }
        if !kind.is_symlink() {
            return self.leave_out(&format!("{shown} is no file, directory or link"));
        }
        match fs::read_link(entry.path()) {
            Ok(target) => {
                let target = target.as_os_str().as_bytes().to_vec();
                Some(Found::Symlink(path, meta(&metadata), target))
            }
            Err(error) => self.leave_out(&format!("{shown} can't be read: {error}")),
        }
    }

    fn leave_out<T>(&mut self, why: &str) -> Option<T> {
        self.sent.left_out += 1;
        if self.sent.remarks.len() < REMARKS_MAX {
            self.sent.remarks.push(why.to_owned());
        }
        None
    }

    fn entry(&mut self, found: Found) -> Result<(), Stop> {
        match found {
            Found::Directory(path, meta) => self.put(&Record::Directory(path, meta)),
            Found::Symlink(path, meta, target) => self.put(&Record::Symlink(path, meta, target)),
            Found::File { path, from, metadata, was_asked } => {
                self.file(path, &from, &metadata, was_asked)
            }
        }
    }

    fn file(
        &mut self,
        path: EntryPath,
        from: &Path,
        metadata: &Metadata,
        was_asked: bool,
    ) -> Result<(), Stop> {
        let mut have = self.answer(was_asked)?;
        let node = (metadata.dev(), metadata.ino());
        if let Some(&id) = self.links.get(&node) {
            self.skip(was_asked)?;
            self.count.moved(metadata.len());
            self.sent.files += 1;
            return self.put(&Record::HardLink(path, id));
        }
        if matches!(have, Answer::Unwanted) {
            self.count.reused(metadata.len());
            self.sent.files += 1;
            return self.put(&Record::Skip);
        }
        let (mut file, metadata) = match self.opened(&path, from) {
            Ok(opened) => opened,
            Err(why) => {
                self.leave_out::<()>(&format!("{} {why}", from.display()));
                return self.skip(was_asked);
            }
        };
        // Another file may have taken its place, and the names of the one before are none of it.
        let node = (metadata.dev(), metadata.ino());
        let mut link_id = 0;
        if metadata.nlink() > 1 && self.links.len() < LINKS_MAX {
            link_id = self.links.len() as u64 + 1;
            self.links.insert(node, link_id);
        }
        let (bytes, meta) = (Some(metadata.len()), Some(meta(&metadata)));
        self.put(&Record::File(FileEntry { path, meta, bytes, link_id, was_asked }))?;
        self.sent.files += 1;
        self.content(&mut file, &mut have).map_err(|ended| match ended {
            // Half of it is there: only from the beginning it would be right.
            Ended::Read(error) => {
                let shown = from.display();
                Stop::Read(io::Error::new(error.kind(), format!("{shown}: {error}")))
            }
            Ended::Stop(stop) => stop,
        })
    }

    /// Opens a file that was found, or says why it can't be sent.
    fn opened(&mut self, path: &EntryPath, from: &Path) -> Result<(File, Metadata), String> {
        let opened = self.opener.open(path, from);
        match opened.and_then(|file| Ok((file.metadata()?, file))) {
            Ok((metadata, file)) if metadata.is_file() => Ok((file, metadata)),
            Ok(_) => Err("is no file any more".to_owned()),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::LOOP | Errno::NOTDIR) => {
                    "is no file any more, or a link has taken its place or that of a directory"
                        .to_owned()
                }
                _ => format!("can't be read: {error}"),
            }),
        }
    }

    fn skip(&mut self, was_asked: bool) -> Result<(), Stop> {
        if was_asked { self.put(&Record::Skip) } else { Ok(()) }
    }

    fn answer(&mut self, was_asked: bool) -> Result<Answer, Stop> {
        if !was_asked {
            return Ok(Answer::Nothing);
        }
        self.flush()?;
        let Some(answers) = &self.answers else { return Ok(Answer::Nothing) };
        let (mut blocks, mut chunks) = (Blocks::default(), Chunks::default());
        loop {
            let more = match answers.recv().map_err(|_| Stop::Gone)? {
                Have::Nothing => return Ok(Answer::Nothing),
                Have::Same | Have::Stays => return Ok(Answer::Unwanted),
                Have::Blocks { log2, more, bytes, hashes } => {
                    let fits = chunks.is_empty() && !(more && hashes.is_empty());
                    if !fits || !blocks.extend(log2, bytes, &hashes) {
                        return Err(Stop::Answer);
                    }
                    more
                }
                Have::Chunks { log2, more, chunks: next } => {
                    let fits = blocks.hashes.is_empty() && !next.is_empty();
                    if !fits || !chunks.extend(log2, &next) {
                        return Err(Stop::Answer);
                    }
                    more
                }
            };
            match more {
                true => {}
                false if chunks.is_empty() => return Ok(Answer::Blocks(blocks)),
                false => return Ok(Answer::Chunks(Table::new(chunks))),
            }
        }
    }

    fn put(&mut self, record: &Record) -> Result<(), Stop> {
        record.put(&mut self.piece);
        self.flush_if_long()
    }

    fn flush_if_long(&mut self) -> Result<(), Stop> {
        if self.piece.len() >= READ_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, self.outlet.buffer());
        if self.outlet.put(piece) { Ok(()) } else { Err(Stop::Gone) }
    }
}

enum Answer {
    Nothing,
    /// It is there, or something else is to stay there.
    Unwanted,
    Blocks(Blocks),
    Chunks(Table),
}

fn meta(metadata: &Metadata) -> Meta {
    Meta {
        mode: metadata.mode() & MODE_MASK,
        mtime_s: metadata.mtime(),
        mtime_ns: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    }
}

mod content;
#[cfg(test)]
mod tests;
