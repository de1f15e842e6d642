//! Files that may be like those which come, and that the receiver lets be copied from: they are named, or found in a directory that
//! is named. Nothing is opened through a symbolic link below that.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::TransferError;
use super::blocks::HASHED_MIN;
use super::entry::{EntryPath, Meta};
use super::part::is_part_name;
use super::tree::Tree;
use index::Index;

/// More bases than that are not named.
pub const BASES_MAX: usize = 8;
/// Entries that are remembered of all directories together, ...
const ENTRIES_MAX: usize = 1 << 15;
/// ... and the bytes of their paths.
const PATH_BYTES_MAX: usize = 4 << 20;
/// Files that stay open until what is copied from them comes; others are opened again.
const HELD_MAX: usize = 32;

/// Fails if one of them is no file and no directory, or can't be read.
pub(super) fn check(paths: &[PathBuf]) -> Result<(), TransferError> {
    for path in paths {
        if let Err(error) = Place::open(path) {
            return Err(TransferError::Read { what: path.display().to_string(), error });
        }
    }
    Ok(())
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) path: &'a EntryPath,
    pub(super) bytes: Option<u64>,
    pub(super) meta: Option<Meta>,
}

/// What may be copied from, for one transfer.
#[derive(Debug, Default)]
pub(super) struct Bases {
    places: Vec<Place>,
    /// Files that are open.
    held: usize,
    room: Room,
}

/// What may still be remembered of directories.
#[derive(Debug)]
struct Room {
    entries: usize,
    path_bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { entries: ENTRIES_MAX, path_bytes: PATH_BYTES_MAX }
    }
}

impl Room {
    /// Takes room for an entry with such a path; false if there is none.
    fn take(&mut self, path: &EntryPath) -> bool {
        let (entries, path_bytes) =
            (self.entries.checked_sub(1), self.path_bytes.checked_sub(path.bytes().len()));
        let (Some(entries), Some(path_bytes)) = (entries, path_bytes) else { return false };
        (self.entries, self.path_bytes) = (entries, path_bytes);
        true
    }
}

#[derive(Debug)]
enum Place {
    File(PathBuf),
    Directory(Box<Directory>),
}

#[derive(Debug)]
struct Directory {
    tree: Tree,
    /// What is in it, once something is looked for that is not where it would be.
    index: Option<Index>,
}

/// A file that may be copied from.
#[derive(Debug)]
pub(super) struct Base {
    /// The number of its place, and where it is there.
    place: usize,
    path: Option<EntryPath>,
    identity: Identity,
    file: Option<File>,
    /// True if something was copied from it.
    is_used: bool,
}

/// By what is noticed that it is another one, or was written to. A file that is only renamed or removed is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    node: (u64, u64),
    bytes: u64,
    mtime: (i64, i64),
}

impl Bases {
    /// Those that are there: one that has gone since it was named is passed over.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let open = |path: &PathBuf| match Place::open(path) {
            Ok(place) => Some(place),
            Err(error) => {
                tracing::warn!("{} can't be read: {error}", path.display());
                None
            }
        };
        Self { places: paths.iter().filter_map(open).collect(), ..Self::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// One file of each place, the likeliest; none of them is one of these already.
    pub(super) fn find(&mut self, wanted: Wanted<'_>, mut others: Vec<(u64, u64)>) -> Vec<Base> {
        let mut found = Vec::new();
        for (number, place) in self.places.iter_mut().enumerate() {
            let base = place.find(number, wanted, &mut self.room);
            let is_new = |base: &Base| !others.contains(&base.identity.node);
            if let Some(base) = base.filter(is_new) {
                others.push(base.identity.node);
                found.push(base);
            }
        }
        found
    }

    /// Keeps it open until the file comes, if there is room.
    pub(super) fn hold(&mut self, base: &mut Base) {
        match self.held < HELD_MAX {
            true => self.held += 1,
            false => base.file = None,
        }
    }

    /// The file comes now, or does not come at all.
    pub(super) fn let_go(&mut self, base: &Base) {
        self.held -= usize::from(base.file.is_some());
    }

    /// Opens a base again, unless it is held, when it is to be copied from for the first time: one that is not may change.
    ///
    /// # Errors
    /// It is another one, or was written to.
    pub(super) fn open_again(&mut self, base: &mut Base) -> io::Result<()> {
        if base.is_used && base.file.is_some() {
            return Ok(());
        }
        if base.file.is_none() {
            base.file = Some(match (self.places.get_mut(base.place), &base.path) {
                (Some(Place::Directory(directory)), Some(path)) => {
                    directory.tree.open_file(path)?
                }
                (Some(Place::File(path)), None) => open(path)?,
                _ => return Err(io::ErrorKind::NotFound.into()),
            });
        }
        base.is_used = true;
        if base.is_changed() { Err(changed()) } else { Ok(()) }
    }
}

/// What to say of a base that was written to.
pub(super) fn changed() -> io::Error {
    io::Error::other("the basis of it has changed meanwhile: send it again")
}

impl Base {
    /// The file, if it is open.
    pub(super) const fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// True if something was copied from it, and it is not what it was any more.
    pub(super) fn is_changed(&self) -> bool {
        if !self.is_used {
            return false;
        }
        let now = self.file.as_ref().and_then(|file| Identity::of(file).ok());
        now != Some(self.identity)
    }
}

impl Place {
    fn open(path: &Path) -> io::Result<Self> {
        // What is named may be a link.
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            let flags = (OFlags::DIRECTORY | OFlags::CLOEXEC).bits().cast_signed();
            let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
            let tree = Tree::new(OwnedFd::from(file), None);
            return Ok(Self::Directory(Box::new(Directory { tree, index: None })));
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        drop(open(path)?);
        Ok(Self::File(path.to_owned()))
    }

    fn find(&mut self, place: usize, wanted: Wanted<'_>, room: &mut Room) -> Option<Base> {
        match self {
            Self::File(path) => Base::new(place, None, open(path).ok()?),
            Self::Directory(directory) => {
                let path = directory.find(wanted, room)?;
                let file = directory.tree.open_file(&path).ok()?;
                Base::new(place, Some(path), file)
            }
        }
    }
}

impl Base {
    /// None if it is no file, or so short that its bytes could be guessed.
    fn new(place: usize, path: Option<EntryPath>, file: File) -> Option<Self> {
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let identity = Identity::of(&file).ok().filter(|it| is_file && it.bytes >= HASHED_MIN)?;
        Some(Self { place, path, identity, file: Some(file), is_used: false })
    }
}

impl Directory {
    /// The file that is likeliest to be like the one that comes: of the same path, with its first name or without; of the same name,
    /// anywhere; of the same length and time, anywhere; of the most similar name in the same directory.
    fn find(&mut self, wanted: Wanted<'_>, room: &mut Room) -> Option<EntryPath> {
        for path in [Some(wanted.path.clone()), wanted.path.without_first()].into_iter().flatten() {
            let is_part = path.bytes().split(|&byte| byte == b'/').any(is_part_name);
            if !is_part
                && self.tree.stat(&path).is_ok_and(|stat| stat.is_some_and(|it| is_long_file(&it)))
            {
                return Some(path);
            }
        }
        let tree = &mut self.tree;
        let index = self.index.get_or_insert_with(|| Index::read(tree, room));
        index.named(wanted).or_else(|| index.timed(wanted)).or_else(|| index.similar(wanted))
    }
}

fn is_long_file(stat: &rustix::fs::Stat) -> bool {
    let is_file = super::tree::kind(stat) == rustix::fs::FileType::RegularFile;
    is_file && u64::try_from(stat.st_size).is_ok_and(|bytes| bytes >= HASHED_MIN)
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            node: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Opens for reading; a pipe that took the file's place keeps nobody waiting.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

mod index;
#[cfg(test)]
mod tests;
