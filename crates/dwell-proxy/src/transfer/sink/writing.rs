//! Files: what comes of them, and what is copied from what is there.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FileType, Mode, Stat};
use tokio::sync::mpsc;

use super::ends::Ends;
use super::stretches::{Origin, Spill, Spot, Stretch};
use super::{Basis, COPY_BYTES, Node, Ready, Sink, SinkError, Target, cant_write};
use crate::transfer::bases;
use crate::transfer::early::Early;
use crate::transfer::entry::EntryPath;
use crate::transfer::part::PartFile;
use crate::transfer::place::{Existing, Site};
use crate::transfer::record::FileEntry;
use crate::transfer::tree::{kind, set_meta};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) entry: FileEntry,
    pub(super) path: EntryPath,
    pub(super) part: Option<PartFile>,
    /// What has its name, if it is copied from.
    pub(super) named: Option<File>,
    /// Where the offsets are from which is copied.
    pub(super) stretches: Vec<Stretch>,
    /// Where a copy may begin and end.
    pub(super) ends: Ends,
    /// What the part had at first, where it has been written to.
    pub(super) spill: Option<Spill>,
    /// What of the part was copied there from elsewhere, in order.
    pub(super) copied: Vec<Range<u64>>,
    pub(super) at: u64,
    pub(super) hasher: blake3::Hasher,
    /// What is there stays.
    pub(super) is_unwanted: bool,
}

impl Sink {
    pub(super) fn file(&mut self, entry: FileEntry) -> Result<(), SinkError> {
        self.enter(&entry.path)?;
        self.begin_file()?;
        if !self.is_tree && self.ready.is_some() {
            return Err(SinkError::Order);
        }
        let path = self.placed(&entry.path);
        let basis = match entry.was_asked {
            true => Some(self.next_asked().ok_or(SinkError::Order)?),
            false => None,
        };
        let is_unwanted = !self.may_replace(&path)?;
        let (stretches, ends) = match basis {
            Some(Basis { path: known, .. }) if known != path => return Err(SinkError::Order),
            Some(Basis { stretches, ends, .. }) => (stretches, ends),
            None => (Vec::new(), Ends::default()),
        };
        let (mut named, mut part) = (None, None);
        if let Target::Site(site) = &mut self.target {
            let opened = open(site, &path, &stretches);
            (part, named) = opened.map_err(|error| cant_write(site, &path, error))?;
        }
        let (spill, hasher) = (None, blake3::Hasher::new());
        let (at, copied) = (0, Vec::new());
        let writing = Writing {
            entry,
            path,
            part,
            named,
            stretches,
            ends,
            spill,
            copied,
            at,
            hasher,
            is_unwanted,
        };
        self.writing = Some(writing);
        Ok(())
    }

    /// The next bytes are those that came so far back.
    pub(super) fn repeat(&mut self, distance: u32, bytes: u32) -> Result<(), SinkError> {
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

    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
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
                let written = writing.write(bytes, site, &mut self.early);
                written.map_err(|error| cant_write(site, &writing.path, error))?;
            }
        }
        writing.hasher.update(bytes);
        writing.at += bytes.len() as u64;
        self.count.moved(bytes.len() as u64);
        self.check_bytes()
    }

    /// Takes the next bytes from what is there: from such an offset, or from where they go. Whole chunks or blocks of which the sender
    /// has the hashes, and nothing less: of two bytes, among others that it knows, it could guess by the hash of all of them what they are.
    pub(super) fn copy(&mut self, from: Option<u64>, bytes: u64) -> Result<(), SinkError> {
        let writing = self.writing.as_mut().ok_or(SinkError::Order)?;
        let Target::Site(site) = &mut self.target else { return Err(SinkError::Order) };
        match (&writing.stretches[..], from) {
            ([], _) | ([Stretch { origin: Origin::Blocks, .. }], Some(_)) => {
                return Err(SinkError::Order);
            }
            _ => {}
        }
        let mut offset = from.unwrap_or(writing.at);
        let end = offset.checked_add(bytes).ok_or(SinkError::Order)?;
        if ![offset, end].into_iter().all(|at| writing.ends.has(at)) {
            return Err(SinkError::Order);
        }
        let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(bytes).unwrap_or(COPY_BYTES))];
        while offset < end {
            // What is copied by then must be taken out of the part before the program ends.
            if self.answers.as_ref().is_some_and(mpsc::Sender::is_closed) {
                return Err(SinkError::Order);
            }
            let spot = writing.spot(offset).ok_or(SinkError::Order)?;
            let left = usize::try_from(spot.bytes.min(end - offset)).unwrap_or(usize::MAX);
            let piece = &mut buffer[..left.min(COPY_BYTES)];
            let opened = match writing.stretches.get_mut(spot.stretch).map(|it| &mut it.origin) {
                Some(Origin::Other(base)) => self.bases.open_again(base),
                _ => Ok(()),
            };
            opened.map_err(|error| cant_write(site, &writing.path, error))?;
            let copied = writing.copy_piece(piece, spot, (site, &mut self.early));
            copied.map_err(|error| cant_write(site, &writing.path, error))?;
            offset += piece.len() as u64;
            self.count.reused(piece.len() as u64);
            if writing.is_of_base(spot) {
                self.received.basis_bytes += piece.len() as u64;
            }
            // No more is written than was offered, however little comes.
            if self.count.get().0 > self.bytes_max {
                break;
            }
        }
        self.check_bytes()
    }

    pub(super) fn end(&mut self, bytes: u64, blake3: &[u8; 32]) -> Result<(), SinkError> {
        let mut writing = self.writing.take().ok_or(SinkError::Order)?;
        if writing.at != bytes || writing.hasher.finalize().as_bytes() != blake3 {
            self.discard(&writing);
            return Err(match &self.target {
                Target::Site(site) if writing.has_changed_base() => {
                    cant_write(site, &writing.path, bases::changed())
                }
                _ => SinkError::Differs(writing.path.to_string()),
            });
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
        let path = writing.path;
        if !self.is_tree {
            self.received.files += 1;
            self.ready = Some(Ready { part: writing.part, path });
            return Ok(());
        }
        let replaces = replaces(site, self.policy.existing);
        let completed = match &writing.part {
            Some(part) => complete(site, part, &path, (replaces, &mut self.early)),
            None => Ok(()),
        };
        if !replaces && is_there_now(&completed) {
            let name = writing.part.map(|part| part.name).unwrap_or_default();
            let _ = site.tree.remove_part(&path, &name);
            self.received.kept += 1;
            return Ok(());
        }
        let has_links = writing.entry.link_id != 0;
        let stat =
            completed.and_then(|()| if has_links { site.tree.stat(&path) } else { Ok(None) });
        let stat = stat.map_err(|error| cant_write(site, &path, error))?;
        self.received.files += 1;
        self.put(&path)?;
        if has_links
            && let Some(node) = stat.and_then(|stat| node_of(&stat))
            && self.known.linked(path.bytes())
        {
            self.linked.insert(writing.entry.link_id, (path, node));
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, writing: &Writing) {
        if let (Target::Site(site), Some(part)) = (&mut self.target, &writing.part) {
            let _ = site.tree.remove_part(&writing.path, &part.name);
        }
    }
}

impl Writing {
    /// Its part, and where the next bytes go. What was only compared so far is copied to it first.
    pub(super) fn part(&mut self, site: &mut Site) -> io::Result<(&PartFile, u64)> {
        if self.part.is_none() {
            // Nobody else reads it before it has its own permissions.
            let mode = if self.entry.meta.is_some() { 0o600 } else { 0o666 };
            let part = site.tree.open_part(&self.path, Mode::from_raw_mode(mode))?;
            if let Some(named) = &self.named {
                part.file.set_len(0)?;
                if self.at > 0 {
                    self.copied.push(0..self.at);
                }
                copy_again(named, self.at, &part.file, &self.hasher)?;
            }
            self.part = Some(part);
        }
        let part = self.part.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((part, self.at))
    }

    /// Takes the next bytes from what is there; they are written unless they are where they belong.
    fn copy_piece(
        &mut self,
        piece: &mut [u8],
        spot: Spot,
        (site, early): (&mut Site, &mut Early),
    ) -> io::Result<()> {
        self.read_at(spot, piece)?;
        match (self.is_in_place(spot), &self.spill) {
            _ if self.is_unwanted => {}
            (false, _) => {
                // It is made out of what was only compared.
                self.part(site)?;
                self.note_copy(piece.len());
                self.write(piece, site, early)?;
            }
            (true, Some(_)) => self.keep_aside(piece, site)?,
            (true, None) => {}
        }
        self.hasher.update(piece);
        self.at += piece.len() as u64;
        Ok(())
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
        if !part.is_new {
            part.file.set_len(at)?;
        }
        if let Some(meta) = meta {
            set_meta(part.file.as_fd(), &meta)?;
        }
        Ok(())
    }
}

/// Opens what the sender knows of, which was there when it asked.
fn open(
    site: &mut Site,
    path: &EntryPath,
    stretches: &[Stretch],
) -> io::Result<(Option<PartFile>, Option<File>)> {
    let (mut part, mut named) = (None, None);
    for stretch in stretches {
        match &stretch.origin {
            Origin::Blocks | Origin::Part => {
                let found = site.tree.find_part(path);
                let gone = || io::Error::other("what had come of it is gone: send it again");
                part = Some(found.ok_or_else(gone)?);
            }
            Origin::Named => named = Some(site.tree.open_file(path)?),
            // It is opened when something is copied from it.
            Origin::Other(_) => {}
        }
    }
    Ok((part, named))
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
fn complete(
    site: &mut Site,
    part: &PartFile,
    path: &EntryPath,
    (replaces, early): (bool, &mut Early),
) -> io::Result<()> {
    if replaces && site.staging.is_none() && site.tree.stat(path)?.is_some() {
        early.settle()?;
        part.file.sync_all()?;
    }
    site.tree.complete(&part.name, path, replaces)
}

/// True if what is at the place of an entry may be replaced: it may have come there since the entry began.
pub(super) fn replaces(site: &Site, existing: Existing) -> bool {
    site.staging.is_some() || existing == Existing::Replace
}

/// True if an entry did not get its name, as something has that now.
pub(super) fn is_there_now(completed: &io::Result<()>) -> bool {
    matches!(completed, Err(error) if error.kind() == io::ErrorKind::AlreadyExists)
}

/// What a file is known by whatever its name; none if it is no file.
pub(super) fn node_of(stat: &Stat) -> Option<Node> {
    (kind(stat) == FileType::RegularFile).then_some((stat.st_dev, stat.st_ino))
}
