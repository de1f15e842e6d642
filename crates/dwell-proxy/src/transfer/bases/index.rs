//! The files below a directory, to be found by name, time and likeness.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Dir, FileType};

use super::{Room, Wanted, is_long_file};
use crate::transfer::entry::EntryPath;
use crate::transfer::part::is_part_name;
use crate::transfer::tree::{Tree, kind};

/// So many files with the same name, or in the same directory, are looked at.
const LOOKED_AT_MAX: usize = 4096;

/// A file that is there.
#[derive(Debug)]
struct Entry {
    path: EntryPath,
    bytes: u64,
    mtime: (i64, i64),
}

/// The files below a directory, those at the top first, as far as there is room for them.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Entry>,
    /// Their numbers, by name;
    by_name: Vec<u32>,
    /// by length and time;
    by_time: Vec<u32>,
    /// and by directory.
    by_directory: Vec<u32>,
}

impl Index {
    /// Looks at what there is room for.
    pub(super) fn read(tree: &mut Tree, room: &mut Room) -> Self {
        let mut index = Self::default();
        let mut directories = VecDeque::from([None]);
        while let Some(directory) = directories.pop_front() {
            let added = index.add(tree, directory.as_ref(), &mut directories, room);
            match (added, directory) {
                (Ok(true), _) => {}
                (Ok(false), _) => {
                    tracing::warn!("a basis has more in it than is looked at");
                    break;
                }
                (Err(error), Some(path)) => tracing::debug!("{path} can't be looked at: {error}"),
                (Err(error), None) => tracing::warn!("a basis can't be looked at: {error}"),
            }
        }
        index.sort();
        index
    }

    /// Notes what is in a directory; false if there was no room for all of it.
    fn add(
        &mut self,
        tree: &mut Tree,
        directory: Option<&EntryPath>,
        directories: &mut VecDeque<Option<EntryPath>>,
        room: &mut Room,
    ) -> io::Result<bool> {
        for entry in Dir::read_from(tree.opened(directory)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_part_name(name) {
                continue;
            }
            let path = match directory {
                Some(directory) => EntryPath::new(&[directory.bytes(), b"/", name].concat()),
                None => EntryPath::new(name),
            };
            let Some(path) = path else { continue };
            if !room.take(&path) {
                return Ok(false);
            }
            // It may have gone meanwhile.
            let Ok(Some(stat)) = tree.stat(&path) else { continue };
            if kind(&stat) == FileType::Directory {
                directories.push_back(Some(path));
            } else if is_long_file(&stat) {
                let bytes = u64::try_from(stat.st_size).unwrap_or(0);
                let mtime = (stat.st_mtime, stat.st_mtime_nsec as i64);
                self.entries.push(Entry { path, bytes, mtime });
            }
        }
        Ok(true)
    }

    fn sort(&mut self) {
        let entries = &self.entries;
        let numbers = || 0..entries.len() as u32;
        let at = |number: &u32| &entries[*number as usize];
        self.by_name = numbers().collect();
        self.by_name.sort_by(|a, b| at(a).by_name().cmp(&at(b).by_name()));
        self.by_time = numbers().collect();
        self.by_time.sort_by_key(|number| at(number).by_time());
        self.by_directory = numbers().collect();
        self.by_directory.sort_by(|a, b| at(a).by_directory().cmp(&at(b).by_directory()));
    }

    /// Those in a sorted list for which a key is this one.
    fn with<'a, K: Ord + 'a>(
        &'a self,
        sorted: &'a [u32],
        wanted: K,
        key: impl Fn(&'a Entry) -> K + 'a,
    ) -> impl Iterator<Item = &'a Entry> {
        let at = move |number: &u32| &self.entries[*number as usize];
        let begin = sorted.partition_point(|number| key(at(number)) < wanted);
        let same = sorted[begin..].iter().map(at).take_while(move |entry| key(entry) == wanted);
        same.take(LOOKED_AT_MAX)
    }

    /// The file of that name with the most directories in common, the nearest length, and then the latest.
    pub(super) fn named(&self, wanted: Wanted<'_>) -> Option<EntryPath> {
        let name = wanted.path.name().as_bytes();
        let same = self.with(&self.by_name, name, |entry| entry.path.name().as_bytes());
        let rank = |entry: &&Entry| {
            (ends_in_common(&entry.path, wanted.path), Reverse(entry.away(wanted)), entry.mtime)
        };
        same.max_by_key(rank).map(|entry| entry.path.clone())
    }

    /// The file of that length and time.
    pub(super) fn timed(&self, wanted: Wanted<'_>) -> Option<EntryPath> {
        let (bytes, meta) = (wanted.bytes?, wanted.meta?);
        let time = (bytes, (meta.mtime_s, i64::from(meta.mtime_ns)));
        let mut same = self.with(&self.by_time, time, Entry::by_time);
        same.next().map(|entry| entry.path.clone())
    }

    /// The file in the same directory, or at the top, that has the most similar name.
    pub(super) fn similar(&self, wanted: Wanted<'_>) -> Option<EntryPath> {
        let short = wanted.path.without_first();
        let directories = [Some(wanted.path.parent()), short.as_ref().map(EntryPath::parent)];
        let name = Name::new(wanted.path);
        let in_one = |directory| self.with(&self.by_directory, directory, |it| it.path.parent());
        let all = directories.into_iter().flatten().flat_map(in_one);
        let ranked = all.filter_map(|entry| {
            let likeness = Name::new(&entry.path).likeness(&name)?;
            Some(((likeness, entry.mtime), entry))
        });
        ranked.max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, entry)| entry.path.clone())
    }
}

impl Entry {
    fn by_name(&self) -> (&[u8], &[u8]) {
        (self.path.name().as_bytes(), self.path.bytes())
    }

    const fn by_time(&self) -> (u64, (i64, i64)) {
        (self.bytes, self.mtime)
    }

    fn by_directory(&self) -> (&[u8], &[u8]) {
        (self.path.parent(), self.path.bytes())
    }

    fn away(&self, wanted: Wanted<'_>) -> u64 {
        wanted.bytes.map_or(0, |bytes| bytes.abs_diff(self.bytes))
    }
}

/// How many names at the end two paths have in common.
fn ends_in_common(a: &EntryPath, b: &EntryPath) -> usize {
    let is_slash = |&byte: &u8| byte == b'/';
    let names = a.bytes().rsplit(is_slash).zip(b.bytes().rsplit(is_slash));
    names.take_while(|(a, b)| a == b).count()
}

/// A name without its ending, and what is left of it if each number counts as one and the same: dates and versions differ in numbers
/// only.
struct Name<'a> {
    stem: &'a [u8],
    ending: &'a [u8],
    shape: Vec<u8>,
}

impl<'a> Name<'a> {
    fn new(path: &'a EntryPath) -> Self {
        let name = path.name().as_bytes();
        // The ending is what is behind the last dot, if that has a letter.
        let (stem, ending) = match name.iter().rposition(|&byte| byte == b'.') {
            Some(at @ 1..) if name[at..].iter().any(u8::is_ascii_alphabetic) => name.split_at(at),
            _ => (name, &name[name.len()..]),
        };
        let in_shape = |&byte: &u8| if byte.is_ascii_digit() { b'0' } else { byte };
        let mut shape: Vec<u8> = stem.iter().map(in_shape).collect();
        shape.dedup_by(|a, b| *a == b'0' && *b == b'0');
        Self { stem, ending, shape }
    }

    /// How like another name it is: first in what is no number, and then by the beginning. None if more than half of the longer one
    /// differs, or the endings do.
    fn likeness(&self, other: &Self) -> Option<(Reverse<usize>, usize)> {
        if self.ending != other.ending {
            return None;
        }
        let (a, b) = (&self.shape, &other.shape);
        let first = in_common(a.iter(), b.iter());
        let last = in_common(a[first..].iter().rev(), b[first..].iter().rev());
        let longer = a.len().max(b.len());
        let differs = longer - (first + last);
        let is_like = 2 * differs <= longer;
        is_like.then(|| (Reverse(differs), in_common(self.stem.iter(), other.stem.iter())))
    }
}

fn in_common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}
