//! The end of a transfer, whether all has come or not.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::known::mark;
use super::remove::remove_below;
use super::{Kept, Ready, Received, Sink, SinkError, Target};
use crate::transfer::entry::EntryPath;
use crate::transfer::part::{PARTS, unlock};
use crate::transfer::place::{Existing, NotPlaced};

impl Sink {
    /// The stream has ended: puts what came on the disk, and, if somebody still waits for it, into its place.
    ///
    /// # Errors
    /// [`SinkError`]; nothing that is not complete has its name.
    pub(in super::super) fn finish(
        &mut self,
        is_awaited: impl Fn() -> bool,
    ) -> Result<Received, SinkError> {
        let is_whole = self.records.is_between() && self.writing.is_none() && self.asked.is_empty();
        if !is_whole || self.roots.is_empty() {
            return Err(SinkError::Order);
        }
        while !self.directories.is_empty() {
            self.finish_directory()?;
        }
        let shown = self.shown();
        let failed = |error: io::Error| SinkError::Write { what: shown.clone(), error };
        self.early.settle().map_err(failed)?;
        match &mut self.target {
            Target::Stdout(out) => out.flush().map_err(failed)?,
            Target::Site(site) if self.is_tree => {
                if let Some(seen) = &self.seen {
                    let staging = site.staging.as_ref();
                    let keeps = |below: &Path| {
                        let below = below.as_os_str();
                        below.is_empty()
                            || below == PARTS
                            || staging.is_some_and(|it| it.has_taken_back(below.as_bytes()))
                            || seen.contains(&mark(below.as_bytes()))
                    };
                    remove_below(site.tree.base(), Path::new(""), keeps).map_err(failed)?;
                }
                rustix::fs::syncfs(site.tree.base()).map_err(|error| failed(error.into()))?;
                if !is_awaited() {
                    return Err(SinkError::Order);
                }
                if let Some(staging) = &site.staging {
                    let placed = staging.complete(&site.tree, &self.roots, &self.locked);
                    placed.map_err(|error| match error {
                        NotPlaced::InTheWay(why) => SinkError::Refused(why),
                        NotPlaced::Failed(error) => failed(error),
                    })?;
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
        self.received.name = self.shown_at_end();
        Ok(std::mem::take(&mut self.received))
    }

    /// What is left of it, if it did not come to its end; what is empty is removed.
    pub(in super::super) fn give_up(mut self) -> Option<Kept> {
        let bytes = self.count.get().0;
        let Target::Site(site) = &mut self.target else { return None };
        let mut is_safe = true;
        let unfinished = self.writing.map(|writing| {
            let taken_out = writing.take_out_copies();
            is_safe = taken_out.is_ok();
            if let Err(error) = taken_out {
                tracing::warn!("what had come of {} is not kept: {error}", writing.path);
            }
            (writing.part, writing.path)
        });
        let unfinished = unfinished.or(self.ready.map(|ready| (ready.part, ready.path)));
        let mut kept = None;
        if let Some((Some(part), path)) = unfinished {
            let len = part.file.metadata().map_or(0, |metadata| metadata.len());
            let path_of_part = path_beside(&site.shown, &path, &part.name);
            if len == 0 || !is_safe {
                let _ = site.tree.remove_part(&path, &part.name);
            } else {
                kept = Some(Kept { path: path_of_part, bytes });
            }
            unlock(&part);
        }
        match &site.staging {
            Some(staging) if staging.remove_if_empty(&site.tree) => None,
            Some(_) => Some(Kept { path: site.shown.clone(), bytes }),
            None => kept,
        }
    }
}

fn path_beside(base: &Path, path: &EntryPath, name: &OsStr) -> PathBuf {
    base.join(OsStr::from_bytes(path.parent())).join(name)
}
