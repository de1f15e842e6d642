//! A directory, and what is made below it. Nothing is ever done through a symbolic link, whoever has made it:
//! each directory on the path is opened by its name in the one before.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT, chmod,
    chmodat, fchmod, fstat, futimens, linkat, mkdirat, openat, readlinkat, renameat, renameat_with,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::entry::{EntryPath, Meta};
use super::part::{self, PARTS, PartFile};

/// The place of entries.
#[derive(Debug)]
pub(super) struct Tree {
    base: OwnedFd,
    /// The directory that was used last, as the next entry is mostly in the same one.
    current: Option<(Vec<u8>, OwnedFd)>,
    /// Where the parts of files are, if not beside them. All below it was made here then, so that
    /// permissions that would be in the way may be changed.
    parts: Option<OwnedFd>,
    /// They were made just now, and there is none from an earlier time.
    has_new_parts: bool,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Tree {
    pub(super) const fn new(base: OwnedFd, parts: Option<OwnedFd>) -> Self {
        Self { base, current: None, parts, has_new_parts: false }
    }

    /// In a directory that is locked and was made just now, with the parts of files in this directory below it.
    pub(super) const fn new_with_parts(base: OwnedFd, parts: OwnedFd) -> Self {
        Self { base, current: None, parts: Some(parts), has_new_parts: true }
    }

    pub(super) fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// Forgets the directory that was used last, as it may be removed.
    pub(super) fn forget(&mut self) {
        self.current = None;
    }

    /// The directory of an entry.
    pub(super) fn parent(&mut self, path: &EntryPath) -> io::Result<BorrowedFd<'_>> {
        if path.parent().is_empty() {
            return Ok(self.base.as_fd());
        }
        let is_current = self.current.as_ref().is_some_and(|(known, _)| known == path.parent());
        if !is_current {
            let mut fd = openat(&self.base, ".", DIRECTORY, Mode::empty())?;
            for name in path.parents() {
                fd = self.open_directory(fd.as_fd(), name)?;
            }
            self.current = Some((path.parent().to_vec(), fd));
        }
        Ok(self.current.as_ref().map_or(self.base.as_fd(), |(_, fd)| fd.as_fd()))
    }

    fn open_directory(&self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
        match openat(parent, name, DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) if self.parts.is_some() => {
                // It was complete once, with permissions that its owner wanted.
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = openat(parent, name, flags, Mode::empty())?;
                let_owner_in(&fd)?;
                Ok(openat(&fd, ".", DIRECTORY, Mode::empty())?)
            }
            opened => Ok(opened?),
        }
    }

    /// What is there; not what a link leads to.
    pub(super) fn stat(&mut self, path: &EntryPath) -> io::Result<Option<Stat>> {
        let parent = match self.parent(path) {
            Ok(parent) => parent,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match statat(parent, path.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory in which the part of an entry is, and the name from which its own is made.
    fn place_of_part(&mut self, path: &EntryPath) -> io::Result<(BorrowedFd<'_>, OsString)> {
        self.parent(path)?;
        Ok(match &self.parts {
            Some(parts) => (parts.as_fd(), blake3::hash(path.bytes()).to_hex().as_str().into()),
            None => (self.opened_parent(path), path.name().to_owned()),
        })
    }

    /// The directory of an entry that was opened just now.
    fn opened_parent(&self, path: &EntryPath) -> BorrowedFd<'_> {
        match &self.current {
            Some((known, fd)) if known == path.parent() => fd.as_fd(),
            _ => self.base.as_fd(),
        }
    }

    /// Makes a directory that can be written to, if there is none; true if it did.
    pub(super) fn make_directory(&mut self, path: &EntryPath) -> io::Result<bool> {
        match mkdirat(self.parent(path)?, path.name(), Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory that is there one that can be written to, if it is this user's: an earlier transfer may have
    /// given it permissions that are in the way.
    pub(super) fn make_writable(&mut self, path: &EntryPath) -> io::Result<()> {
        // What can't be read can be opened like this.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let_owner_in(&openat(self.parent(path)?, path.name(), flags, Mode::empty())?)
    }

    fn directory(&mut self, path: &EntryPath) -> io::Result<OwnedFd> {
        self.parent(path)?;
        self.open_directory(self.opened_parent(path), path.name())
    }

    /// Opens a directory below the base, or the base itself.
    pub(super) fn opened(&mut self, path: Option<&EntryPath>) -> io::Result<OwnedFd> {
        match path {
            Some(path) => self.directory(path),
            None => Ok(openat(&self.base, ".", DIRECTORY, Mode::empty())?),
        }
    }

    /// Puts a mark into a directory, by which the next receiver knows that it is not complete.
    pub(super) fn mark_directory(&mut self, path: &EntryPath) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(self.directory(path)?, PARTS, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }

    /// Returns true if there is such a mark of ours in it.
    pub(super) fn is_marked(&mut self, path: &EntryPath) -> io::Result<bool> {
        match statat(self.directory(path)?, PARTS, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
                Ok(is_own && stat.st_size == 0 && kind(&stat) == FileType::RegularFile)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes it.
    pub(super) fn unmark_directory(&mut self, path: &EntryPath) -> io::Result<()> {
        match unlinkat(self.directory(path)?, PARTS, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Gives a directory its permissions and time, once all that is in it is there.
    pub(super) fn finish_directory(&mut self, path: &EntryPath, meta: &Meta) -> io::Result<()> {
        let fd = self.directory(path)?;
        set_meta(fd.as_fd(), meta)
    }

    /// Opens a file that is there for reading.
    pub(super) fn open_file(&mut self, path: &EntryPath) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(self.parent(path)?, path.name(), flags, Mode::empty())?;
        Ok(fd.into())
    }

    /// Opens the part of a file.
    pub(super) fn open_part(&mut self, path: &EntryPath, mode: Mode) -> io::Result<PartFile> {
        let make = if self.has_new_parts { part::make_file } else { part::open_file };
        let (directory, name) = self.place_of_part(path)?;
        make(directory, &name, mode)
    }

    /// The part of a file, if there is one.
    pub(super) fn find_part(&mut self, path: &EntryPath) -> Option<PartFile> {
        let (directory, name) = self.place_of_part(path).ok()?;
        part::find_file(directory, &name)
    }

    /// Makes a file without a name, on the file system of the part of an entry.
    pub(super) fn make_nameless(&mut self, path: &EntryPath) -> io::Result<File> {
        let (directory, name) = self.place_of_part(path)?;
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        if let Ok(fd) = openat(directory, ".", flags, mode) {
            return Ok(fd.into());
        }
        // Not all file systems can; it loses its name at once then.
        let made = part::new_name(&name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = openat(directory, &made, flags, mode)?;
        unlinkat(directory, &made, AtFlags::empty())?;
        Ok(fd.into())
    }

    /// Gives a part its name.
    pub(super) fn complete(
        &mut self,
        part: &OsStr,
        path: &EntryPath,
        replace: bool,
    ) -> io::Result<()> {
        self.parent(path)?;
        let parent = self.opened_parent(path);
        let from = self.parts.as_ref().map_or(parent, |parts| parts.as_fd());
        rename(from, part, parent, path.name(), replace)
    }

    /// Removes the part of an entry.
    pub(super) fn remove_part(&mut self, path: &EntryPath, part: &OsStr) -> io::Result<()> {
        Ok(unlinkat(self.place_of_part(path)?.0, part, AtFlags::empty())?)
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, path: &EntryPath) -> io::Result<()> {
        Ok(unlinkat(self.parent(path)?, path.name(), AtFlags::empty())?)
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(
        &mut self,
        path: &EntryPath,
        target: &OsStr,
        meta: &Meta,
        replace: bool,
    ) -> io::Result<()> {
        let (directory, name) = self.place_of_part(path)?;
        let made = part::new_name(&name)?;
        symlinkat(target, directory, &made)?;
        // Not all file systems give links a time.
        let _ = utimensat(directory, &made, &times(meta), AtFlags::SYMLINK_NOFOLLOW);
        self.complete_made(&made, path, replace)
    }

    /// Gives what was made just now its name, or removes it.
    fn complete_made(&mut self, made: &OsStr, path: &EntryPath, replace: bool) -> io::Result<()> {
        let completed = self.complete(made, path, replace);
        if completed.is_err() {
            let _ = self.remove_part(path, made);
        }
        completed
    }

    /// The target of a symbolic link.
    pub(super) fn read_link(&mut self, path: &EntryPath) -> io::Result<Vec<u8>> {
        Ok(readlinkat(self.parent(path)?, path.name(), Vec::new())?.into_bytes())
    }

    /// Makes another name of a file.
    pub(super) fn hard_link(
        &mut self,
        from: &EntryPath,
        path: &EntryPath,
        replace: bool,
    ) -> io::Result<()> {
        let source = openat(self.parent(from)?, ".", DIRECTORY, Mode::empty())?;
        let (directory, name) = self.place_of_part(path)?;
        let made = part::new_name(&name)?;
        linkat(&source, from.name(), directory, &made, AtFlags::empty())?;
        self.complete_made(&made, path, replace)?;
        // Renaming one name of a file to another one does nothing.
        let _ = self.remove_part(path, &made);
        Ok(())
    }
}

/// Gives a file or directory its permissions and its time.
pub(super) fn set_meta(fd: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    fchmod(fd, Mode::from_raw_mode(meta.mode))?;
    // Not all file systems have times like that.
    let _ = futimens(fd, &times(meta));
    Ok(())
}

fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime_s, tv_nsec: i64::from(meta.mtime_ns) },
    }
}

/// Renames; unless it may replace, not to what came there meanwhile.
pub(super) fn rename(
    from: BorrowedFd<'_>,
    old: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
    replace: bool,
) -> io::Result<()> {
    if replace {
        return Ok(renameat(from, old, to, new)?);
    }
    match renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // An older kernel, or a file system that can't: a second name is given, which fails if it is there; or that is
        // made first, and then what was made is replaced.
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            let stat = statat(from, old, AtFlags::SYMLINK_NOFOLLOW)?;
            rename_slowly((from, old), (to, new), kind(&stat) == FileType::Directory)
        }
        renamed => Ok(renamed?),
    }
}

fn rename_slowly(
    (from, old): (BorrowedFd<'_>, &OsStr),
    (to, new): (BorrowedFd<'_>, &OsStr),
    is_directory: bool,
) -> io::Result<()> {
    if is_directory {
        mkdirat(to, new, Mode::RWXU)?;
    } else {
        match linkat(from, old, to, new, AtFlags::empty()) {
            Ok(()) => return Ok(unlinkat(from, old, AtFlags::empty())?),
            Err(Errno::EXIST) => return Err(Errno::EXIST.into()),
            // A file system without further names.
            Err(_) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                openat(to, new, flags, Mode::RUSR | Mode::WUSR)?;
            }
        }
    }
    let renamed = renameat(from, old, to, new);
    if renamed.is_err() {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let _ = unlinkat(to, new, flags);
    }
    Ok(renamed?)
}

/// Lets the owner of a directory, which may be open as a path only, do all in it, if that is this user.
fn let_owner_in(directory: &OwnedFd) -> io::Result<()> {
    let stat = fstat(directory)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_own || mode.contains(Mode::RWXU) {
        return Ok(());
    }
    // By its name it could be another one by now.
    match chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode | Mode::RWXU) {
        // There is no /proc here: then only one that can be searched.
        Err(Errno::NOENT) => Ok(chmodat(directory, ".", mode | Mode::RWXU, AtFlags::empty())?),
        changed => Ok(changed?),
    }
}

/// The kind of what is there.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
