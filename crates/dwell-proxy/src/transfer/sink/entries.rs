//! Directories, links, and what is there already.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::FileType;
use tokio::sync::mpsc;

use super::ends::Ends;
use super::known::mark;
use super::remove::remove_below;
use super::stretches::{Origin, Stretch};
use super::writing::{is_there_now, node_of, replaces};
use super::{
    ASKED_MAX, Basis, DEPTH_MAX, ENDS_MAX, REMARKS_MAX, Sink, SinkError, Target, cant_write,
};
use crate::transfer::bases::{Base, Wanted};
use crate::transfer::blocks::{Blocks, Have};
use crate::transfer::chunks::{self, Chunks, Grain};
use crate::transfer::entry::{EntryPath, Meta};
use crate::transfer::place::{Existing, Site};
use crate::transfer::record::Ask;
use crate::transfer::tree::kind;

impl Sink {
    /// Notes that something was put there.
    pub(super) fn put(&mut self, path: &EntryPath) -> Result<(), SinkError> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        if seen.insert(mark(path.bytes())) {
            self.known.seen()?;
        }
        Ok(())
    }

    /// Another file begins: there are not many more than were offered.
    pub(super) fn begin_file(&mut self) -> Result<(), SinkError> {
        self.files += 1;
        if self.files > self.files_max {
            return Err(exceeded("files"));
        }
        Ok(())
    }

    /// A directory or symbolic link comes: there are not many more than were offered.
    fn begin_other(&mut self) -> Result<(), SinkError> {
        self.others += 1;
        if self.others > self.others_max {
            return Err(exceeded("directories and links"));
        }
        Ok(())
    }

    /// Notes that more bytes of files are there: not many more than were offered.
    pub(super) fn check_bytes(&self) -> Result<(), SinkError> {
        if self.count.get().0 > self.bytes_max { Err(exceeded("bytes")) } else { Ok(()) }
    }

    pub(super) fn finish_directory(&mut self) -> Result<(), SinkError> {
        let Some((path, Some(mut meta))) = self.directories.pop() else { return Ok(()) };
        let Target::Site(site) = &mut self.target else { return Err(SinkError::Order) };
        if site.staging.is_some() && path.parent().is_empty() && meta.mode & 0o200 == 0 {
            self.locked.insert(path.clone(), meta);
            meta.mode |= 0o700;
        }
        let keeps = site.staging.is_none() && self.policy.existing == Existing::Keep;
        let unmarked = if keeps { site.tree.unmark_directory(&path) } else { Ok(()) };
        let finished = unmarked.and_then(|()| site.tree.finish_directory(&path, &meta));
        finished.map_err(|error| cant_write(site, &path, error))
    }

    pub(super) fn directory(&mut self, path: EntryPath, meta: Meta) -> Result<(), SinkError> {
        self.enter(&path)?;
        self.begin_other()?;
        let keeps = self.policy.existing == Existing::Keep;
        let site = self.site()?;
        if let Ok(Some(stat)) = site.tree.stat(&path)
            && kind(&stat) != FileType::Directory
        {
            if site.staging.is_none() {
                return Err(no_directory(site, &path, kind(&stat)));
            }
            // What stood there in an earlier time, and is no directory now.
            let _ = site.tree.remove(&path);
        }
        let is_made =
            site.tree.make_directory(&path).map_err(|error| cant_write(site, &path, error))?;
        let is_ours = match site.staging.is_none() && keeps {
            true => marked(site, &path, is_made).map_err(|error| cant_write(site, &path, error))?,
            false => true,
        };
        if is_ours && !is_made {
            // It gets its permissions when all that belongs into it is there.
            site.tree.make_writable(&path).map_err(|error| cant_write(site, &path, error))?;
        }
        self.put(&path)?;
        if self.directories.len() >= DEPTH_MAX {
            return Err(SinkError::Order);
        }
        self.directories.push((path, is_ours.then_some(meta)));
        Ok(())
    }

    /// The site of a tree.
    pub(super) fn site(&mut self) -> Result<&mut Site, SinkError> {
        match &mut self.target {
            Target::Site(site) if self.is_tree => Ok(site),
            _ => Err(SinkError::Order),
        }
    }

    /// The kind of what is at a path, if anything is.
    pub(super) fn there(&mut self, path: &EntryPath) -> Result<Option<FileType>, SinkError> {
        let Target::Site(site) = &mut self.target else { return Ok(None) };
        let stat = site.tree.stat(path).map_err(|error| cant_write(site, path, error))?;
        Ok(stat.map(|stat| kind(&stat)))
    }

    /// True if what is at a path may be replaced, false if it stays.
    pub(super) fn may_replace(&mut self, path: &EntryPath) -> Result<bool, SinkError> {
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

    pub(super) fn symlink(
        &mut self,
        path: &EntryPath,
        meta: &Meta,
        target: &[u8],
    ) -> Result<(), SinkError> {
        self.enter(path)?;
        self.begin_other()?;
        if !self.policy.allows_links_outside && path.leads_outside(target) {
            let target = String::from_utf8_lossy(target);
            self.leave_out(format!("{path} is a link that leads outside, to {target}"));
            return Ok(());
        }
        let is_link = self.there(path)? == Some(FileType::Symlink);
        let may_replace = self.may_replace(path)?;
        let existing = self.policy.existing;
        let site = self.site()?;
        if is_link && site.tree.read_link(path).is_ok_and(|there| there == target) {
            self.put(path)?;
            return Ok(());
        }
        if !may_replace {
            self.received.kept += 1;
            return Ok(());
        }
        let replaces = replaces(site, existing);
        let made = site.tree.symlink(path, OsStr::from_bytes(target), meta, replaces);
        self.made(path, replaces, made)?;
        Ok(())
    }

    pub(super) fn hard_link(&mut self, path: &EntryPath, id: u64) -> Result<(), SinkError> {
        self.enter(path)?;
        self.begin_file()?;
        let Some((from, node)) = self.linked.get(&id).cloned() else {
            self.leave_out(format!(
                "{path} is another name of a file that was left out, or of more than --memory-max leaves room for"
            ));
            return Ok(());
        };
        if from == *path {
            return Err(SinkError::Order);
        }
        if !self.may_replace(path)? {
            self.received.kept += 1;
            return Ok(());
        }
        let existing = self.policy.existing;
        let site = self.site()?;
        // Another entry may have come in its place.
        let there = site.tree.stat(&from).map_err(|error| cant_write(site, path, error))?;
        if there.and_then(|stat| node_of(&stat)) != Some(node) {
            return Err(SinkError::Order);
        }
        let replaces = replaces(site, existing);
        let there = site.tree.stat(path).map_err(|error| cant_write(site, path, error))?;
        if there.and_then(|stat| node_of(&stat)) == Some(node) {
            self.put(path)?;
        } else {
            let made = site.tree.hard_link(&from, path, replaces);
            if !self.made(path, replaces, made)? {
                return Ok(());
            }
        }
        self.received.files += 1;
        let bytes = self.site()?.tree.stat(path).ok().flatten().map_or(0, |stat| stat.st_size);
        self.count.reused(u64::try_from(bytes).unwrap_or(0));
        Ok(())
    }

    /// A link was made; false if what is at its place came there meanwhile, and stays.
    fn made(
        &mut self,
        path: &EntryPath,
        replaces: bool,
        made: io::Result<()>,
    ) -> Result<bool, SinkError> {
        if !replaces && is_there_now(&made) {
            self.received.kept += 1;
            return Ok(false);
        }
        let site = self.site()?;
        made.map_err(|error| cant_write(site, path, error))?;
        self.put(path)?;
        Ok(true)
    }

    pub(super) fn leave_out(&mut self, why: String) {
        self.received.left_out += 1;
        if self.received.remarks.len() < REMARKS_MAX {
            self.received.remarks.push(why);
        }
    }

    /// The path at which an entry is written.
    pub(super) fn placed(&self, path: &EntryPath) -> EntryPath {
        match &self.target {
            Target::Site(site) => site.name.clone().unwrap_or_else(|| path.clone()),
            Target::Stdout(_) => path.clone(),
        }
    }

    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Vec<Have>, SinkError> {
        if self.asked.len() >= ASKED_MAX {
            return Err(SinkError::Order);
        }
        let root = ask.path.bytes().split(|&byte| byte == b'/').next().unwrap_or_default();
        if !self.root_names.contains(root) {
            return Err(SinkError::Order);
        }
        self.count_ask(ask)?;
        let path = self.placed(&ask.path);
        let (stretches, ends, answers) = self.look(&path, ask).unwrap_or_else(|error| {
            tracing::debug!("{path} can't be looked at: {error}");
            nothing()
        });
        if matches!(answers[..], [Have::Same | Have::Stays]) {
            if answers == [Have::Stays] {
                self.received.kept += 1;
            } else {
                self.received.files += 1;
            }
            self.put(&ask.path)?;
            self.count.reused(ask.bytes.unwrap_or(0));
        }
        self.ends += ends.held();
        self.asked.push_back(Basis { path, stretches, ends });
        Ok(answers)
    }

    /// No more is looked at than was offered, whatever comes of it then.
    fn count_ask(&mut self, ask: &Ask) -> Result<(), SinkError> {
        let (files, bytes) = &mut self.asks;
        *files += 1;
        // Only what comes through a pipe has no length, and nothing else comes then.
        if !self.is_tree && *files > 1 || self.is_tree && ask.bytes.is_none() {
            return Err(SinkError::Order);
        }
        *bytes = bytes.saturating_add(ask.bytes.unwrap_or(0));
        match (*files > self.files_max, *bytes > self.bytes_max) {
            (true, _) => Err(exceeded("files")),
            (_, true) => Err(exceeded("bytes")),
            _ => Ok(()),
        }
    }

    /// What was answered about the file that comes next, or does not.
    pub(super) fn next_asked(&mut self) -> Option<Basis> {
        let asked = self.asked.pop_front()?;
        self.ends -= asked.ends.held();
        for stretch in &asked.stretches {
            if let Origin::Other(base) = &stretch.origin {
                self.bases.let_go(base);
            }
        }
        Some(asked)
    }

    /// What there is at a path.
    pub(super) fn look(&mut self, path: &EntryPath, ask: &Ask) -> io::Result<Looked> {
        let existing = self.policy.existing;
        let Target::Site(site) = &mut self.target else { return Ok(nothing()) };
        let wanted = ask.bytes.unwrap_or(u64::MAX);
        let stat = site.tree.stat(path)?;
        if stat.is_some() && site.staging.is_none() && existing == Existing::Keep {
            return Ok((Vec::new(), Ends::default(), vec![Have::Stays]));
        }
        let is_file = stat.is_some_and(|stat| kind(&stat) == FileType::RegularFile);
        let has_same_time = match (stat.filter(|_| is_file), ask.meta) {
            (Some(stat), Some(meta)) => {
                let mtime = (stat.st_mtime, i64::from(meta.mtime_ns));
                (meta.mtime_s, stat.st_mtime_nsec as i64) == mtime
                    && u64::try_from(stat.st_size) == Ok(wanted)
            }
            _ => false,
        };
        if ask.is_quick && has_same_time {
            return Ok((Vec::new(), Ends::default(), vec![Have::Same]));
        }
        let part = site.tree.find_part(path).map(|part| part.file);
        let named = if is_file { Some(site.tree.open_file(path)?) } else { None };
        let mut files = Vec::new();
        files.extend(part.map(|file| (Origin::Part, file)));
        files.extend(named.map(|file| (Origin::Named, file)));
        let others = match self.grain {
            // One that is the same needs none.
            Some(_) if !has_same_time => self.find_bases(path, ask, &files),
            _ => Vec::new(),
        };
        let (mut stretches, ends, answers) = match (self.grain, files.len()) {
            (Some(grain), len) if len > 1 || !others.is_empty() => {
                files.extend(others);
                look_into_all(files, wanted, grain, &self.answers)?
            }
            // A part by itself stays where it is, and has fewer blocks than chunks.
            (grain, _) => match files.into_iter().next() {
                Some((origin, file)) => look_into(origin, file, wanted, grain, &self.answers)?,
                None => nothing(),
            },
        };
        if self.ends + ends.held() > ENDS_MAX {
            return Ok(nothing());
        }
        for stretch in &mut stretches {
            if let Origin::Other(base) = &mut stretch.origin {
                self.bases.hold(base);
            }
        }
        Ok((stretches, ends, answers))
    }

    /// What else may be copied from.
    fn find_bases(
        &mut self,
        path: &EntryPath,
        ask: &Ask,
        files: &[(Origin, File)],
    ) -> Vec<(Origin, File)> {
        if self.bases.is_empty() {
            return Vec::new();
        }
        let node = |(_, file): &(Origin, File)| {
            let metadata = file.metadata().ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let wanted = Wanted { path, bytes: ask.bytes, meta: ask.meta };
        let found = self.bases.find(wanted, files.iter().filter_map(node).collect());
        let with_file = |base: Base| {
            let file = base.file().and_then(|file| file.try_clone().ok())?;
            Some((Origin::Other(Box::new(base)), file))
        };
        found.into_iter().filter_map(with_file).collect()
    }
}

/// What may be copied from, between which ends, and the answers that say so.
type Looked = (Vec<Stretch>, Ends, Vec<Have>);

fn nothing() -> Looked {
    (Vec::new(), Ends::default(), vec![Have::Nothing])
}

/// What there is in a single file.
fn look_into(
    origin: Origin,
    file: File,
    wanted: u64,
    grain: Option<Grain>,
    answers: &Option<mpsc::Sender<Have>>,
) -> io::Result<Looked> {
    let mut file = Awaited { file, answers };
    let there = file.file.metadata()?.len();
    let compared = chunks::compared(there, wanted);
    // Offsets are those in the file, wherever the hashes end.
    let is_part = matches!(origin, Origin::Part);
    let fixed = if is_part { Origin::Blocks } else { origin };
    let stretches = |bytes| vec![Stretch { origin: fixed, bytes }];
    if let (Some(bytes), Some(grain), false) = (compared, grain, is_part) {
        let chunks = Chunks::read(grain, &mut file, bytes)?;
        // Of a long file that is cut often the list may be full before its end.
        if chunks.bytes() == bytes {
            let chunks = chunks.without_end(bytes < there);
            return Ok((stretches(chunks.bytes()), Ends::of_chunks(&chunks), chunks.answers()));
        }
        file.file.rewind()?;
    }
    let blocks = Blocks::read(&mut file, there.min(wanted))?.without_end(wanted < there);
    Ok((stretches(blocks.bytes), Ends::of_blocks(&blocks), blocks.answers()))
}

/// What there is in several files, one behind the other. The sender looks for each chunk in the first ones first: the part, where most need
/// not be moved.
fn look_into_all(
    files: Vec<(Origin, File)>,
    wanted: u64,
    grain: Grain,
    answers: &Option<mpsc::Sender<Have>>,
) -> io::Result<Looked> {
    let mut left = chunks::compared_together(wanted);
    let mut lengths = Vec::new();
    for (origin, file) in files {
        let there = file.metadata()?.len();
        let bytes = there.min(wanted.saturating_mul(2)).min(left);
        left -= bytes;
        lengths.push((origin, file, bytes, there));
    }
    let mut chunks = Chunks::new(grain, lengths.iter().map(|(_, _, bytes, _)| bytes).sum());
    let mut stretches = Vec::new();
    for (origin, file, bytes, there) in lengths {
        let mut file = Awaited { file, answers };
        let is = (bytes < there, matches!(origin, Origin::Part));
        match (chunks.append(&mut file, bytes, is), &origin) {
            (Ok(bytes), _) => stretches.push(Stretch { origin, bytes }),
            // The others are there all the same.
            (Err(error), Origin::Other(_)) => tracing::debug!("a basis can't be read: {error}"),
            (Err(error), _) => return Err(error),
        }
    }
    Ok((stretches, Ends::of_chunks(&chunks), chunks.answers()))
}

/// A file that is read as long as somebody waits for what is said of it.
struct Awaited<'a> {
    file: File,
    answers: &'a Option<mpsc::Sender<Have>>,
}

impl Read for Awaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.answers.as_ref().is_some_and(mpsc::Sender::is_closed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        self.file.read(buffer)
    }
}

/// Returns true if a directory was made here, by this receiver or by one that did not come to its end. Others stay as they
/// are, so that those are marked until they are complete.
fn marked(site: &mut Site, path: &EntryPath, is_made: bool) -> io::Result<bool> {
    if is_made {
        site.tree.mark_directory(path)?;
        return Ok(true);
    }
    site.tree.is_marked(path)
}

/// A link is not followed, wherever it leads.
fn no_directory(site: &Site, path: &EntryPath, kind: FileType) -> SinkError {
    let shown = site.shown.join(OsStr::from_bytes(path.bytes()));
    let is = if kind == FileType::Symlink { "a symbolic link" } else { "no directory" };
    SinkError::Refused(format!(
        "{} is {is}, and a directory comes in its place: remove it, or receive elsewhere",
        shown.display()
    ))
}

fn exceeded(what: &str) -> SinkError {
    SinkError::Refused(format!(
        "many more {what} come than were offered: if they grow while they are sent, send a copy"
    ))
}
