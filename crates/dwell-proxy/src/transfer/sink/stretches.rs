//! What a file that comes may be copied from, if that is several files: they lie one behind the other, as if they were one. The
//! part of the file is one of them, and is written to meanwhile: what it had is kept aside before it is overwritten.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FallocateFlags, fallocate};

use super::{COPY_BYTES, Writing};
use crate::transfer::bases::{self, Base};
use crate::transfer::early::Early;
use crate::transfer::place::Site;

/// Where a stretch of what may be copied from is.
#[derive(Debug)]
pub(super) enum Origin {
    /// In the part, of which the sender knows aligned blocks, which are where they belong.
    Blocks,
    /// In the part, as it was when the sender asked.
    Part,
    /// In what has the name.
    Named,
    /// In a file that the receiver lets be copied from.
    Other(Box<Base>),
}

/// The beginning of a file, of which the sender knows the chunks.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) origin: Origin,
    pub(super) bytes: u64,
}

/// What to say if it is needed and was not kept.
const NOT_KEPT: &str = "the disk has no room to keep aside what had come of it: send it again";

/// More of them count as one with what came between them, which is then to be sent again.
const COPIES_MAX: usize = 1 << 18;

/// A place in what may be copied from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The number of the stretch.
    pub(super) stretch: usize,
    offset: u64,
    /// So many bytes from there on are in the same file.
    pub(super) bytes: u64,
}

/// What the part had where it has been written to. It has no name, so that nothing is left of it.
#[derive(Debug)]
pub(super) struct Spill {
    /// None if there was no room.
    file: Option<File>,
    /// All is in it from here on, as far as the new file has come.
    begin: u64,
}

#[cfg(test)]
impl Spill {
    /// As if there were no room.
    pub(super) fn lose(&mut self) {
        self.file = None;
    }
}

/// Makes zeros of these bytes.
fn take_out(file: &File, range: Range<u64>) -> io::Result<()> {
    let Some(bytes) = range.end.checked_sub(range.start).filter(|&bytes| bytes > 0) else {
        return Ok(());
    };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(file, flags, range.start, bytes).is_ok() {
        return Ok(());
    }
    // Not all file systems can do that.
    let zeros = vec![0; COPY_BYTES];
    let end = range.end.min(file.metadata()?.len());
    let mut at = range.start;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(COPY_BYTES);
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

impl Writing {
    /// Returns where such an offset is; none if there is nothing.
    pub(super) fn spot(&self, mut offset: u64) -> Option<Spot> {
        for (stretch, Stretch { origin, bytes }) in self.stretches.iter().enumerate() {
            let Some(left) = bytes.checked_sub(offset).filter(|&left| left > 0) else {
                offset -= bytes;
                continue;
            };
            // What of the part was kept aside is in another file than what was not.
            let spilled = self.spill.as_ref().map(|spill| [spill.begin, self.at]);
            let turns = spilled.filter(|_| matches!(origin, Origin::Part)).unwrap_or_default();
            let next =
                turns.into_iter().find_map(|turn| turn.checked_sub(offset).filter(|&it| it > 0));
            return Some(Spot { stretch, offset, bytes: next.map_or(left, |next| next.min(left)) });
        }
        None
    }

    fn origin(&self, spot: Spot) -> Option<&Origin> {
        self.stretches.get(spot.stretch).map(|stretch| &stretch.origin)
    }

    /// Returns true if these bytes are where they belong already. What has the name is only compared as long as nothing of it is new.
    pub(super) fn is_in_place(&self, spot: Spot) -> bool {
        let has_place = match self.origin(spot) {
            Some(Origin::Blocks | Origin::Part) => true,
            Some(Origin::Named) => self.part.is_none(),
            Some(Origin::Other(_)) | None => false,
        };
        has_place && spot.offset == self.at
    }

    /// Reads what was there when the sender asked.
    pub(super) fn read_at(&self, spot: Spot, piece: &mut [u8]) -> io::Result<()> {
        let from = match (self.origin(spot), &self.spill) {
            (Some(Origin::Named), _) => self.named.as_ref(),
            (Some(Origin::Part), Some(spill)) if (spill.begin..self.at).contains(&spot.offset) => {
                Some(spill.file.as_ref().ok_or_else(|| io::Error::other(NOT_KEPT))?)
            }
            (Some(Origin::Blocks | Origin::Part), _) => self.part.as_ref().map(|part| &part.file),
            (Some(Origin::Other(base)), _) => base.file(),
            (None, _) => None,
        };
        let read = from.ok_or(io::ErrorKind::NotFound)?.read_exact_at(piece, spot.offset);
        read.map_err(|error| if self.has_changed_base() { bases::changed() } else { error })
    }

    /// Returns true if a base is not what it was when the sender asked.
    pub(super) fn has_changed_base(&self) -> bool {
        let is_changed = |stretch: &Stretch| match &stretch.origin {
            Origin::Other(base) => base.is_changed(),
            _ => false,
        };
        self.stretches.iter().any(is_changed)
    }

    /// Returns true if these bytes come from a base.
    pub(super) fn is_of_base(&self, spot: Spot) -> bool {
        matches!(self.origin(spot), Some(Origin::Other(_)))
    }

    /// Writes the next bytes.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        site: &mut Site,
        early: &mut Early,
    ) -> io::Result<()> {
        self.part(site)?;
        self.keep_aside(bytes, site)?;
        let (part, at) = self.part(site)?;
        if let Err(error) = part.file.write_all_at(bytes, at) {
            // What was kept aside may have taken the room.
            let kept = self.spill.as_mut().and_then(|spill| spill.file.take());
            drop(kept.ok_or(error)?);
            self.part(site)?.0.file.write_all_at(bytes, at)?;
        }
        let (part, _) = self.part(site)?;
        early.wrote(&part.file, bytes.len());
        Ok(())
    }

    /// Takes what was copied out of the part of a file that is not complete: the sender chooses what it is between, so that the hashes of
    /// the part could say what it is. It can be copied again. The same holds for what the part has behind what was overwritten, as far as
    /// no chunk or block ends.
    pub(super) fn take_out_copies(&self) -> io::Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        let len = part.file.metadata()?.len();
        let known = self
            .stretches
            .first()
            .filter(|it| matches!(it.origin, Origin::Part | Origin::Blocks) && self.at <= it.bytes);
        let mut begun = None;
        match known.and_then(|_| self.ends.next(self.at)) {
            _ if part.is_new || self.at == 0 => {}
            Some(end) => begun = Some(self.at..end.min(len)),
            None => part.file.set_len(self.at.min(len))?,
        }
        for range in self.copied.iter().cloned().chain(begun) {
            take_out(&part.file, range)?;
        }
        match self.copied.last() {
            // What ends with it is no longer than what came.
            Some(last) if last.end >= part.file.metadata()?.len() => part.file.set_len(last.start),
            _ => Ok(()),
        }
    }

    /// Notes that the part gets so many copied bytes where the next ones go.
    pub(super) fn note_copy(&mut self, bytes: usize) {
        let end = self.at + bytes as u64;
        let is_full = self.copied.len() >= COPIES_MAX;
        match self.copied.last_mut() {
            Some(last) if last.end == self.at || is_full => last.end = end,
            _ => self.copied.push(self.at..end),
        }
    }

    /// Keeps aside what the part has where these bytes go, if it may be copied from there. From the first byte on that differs all of it
    /// is kept, also what stays, so that one number says where it is.
    pub(super) fn keep_aside(&mut self, bytes: &[u8], site: &mut Site) -> io::Result<()> {
        let known = self.stretches.iter().find(|stretch| matches!(stretch.origin, Origin::Part));
        let left = known.map_or(0, |known| known.bytes.saturating_sub(self.at));
        let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Some(part) = self.part.as_ref().filter(|_| len > 0) else { return Ok(()) };
        let mut old = vec![0; len];
        part.file.read_exact_at(&mut old, self.at)?;
        if self.spill.is_none() {
            if old == bytes[..len] {
                return Ok(());
            }
            let file = site.tree.make_nameless(&self.path).ok();
            self.spill = Some(Spill { file, begin: self.at });
        }
        let spill = self.spill.as_mut().ok_or(io::ErrorKind::NotFound)?;
        // Most transfers need nothing of it.
        if spill.file.as_ref().is_some_and(|file| file.write_all_at(&old, self.at).is_err()) {
            spill.file = None;
        }
        Ok(())
    }
}
