//! Files and directories that are not complete: their names, and the locks on them.
//!
//! What is not complete has a hidden name beside its own, always the same one, so that the next receiver goes on
//! with it. It is locked (`flock`) by the process that writes it. The kernel frees the lock however
//! that process ends. While another one holds it, letters are added to the name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, openat, statat,
};
use rustix::io::Errno;

/// The end of the name of each part, before letters if it has some.
const MARK: &str = ".dwell-part";
/// The number of letters that are added to the name if it is taken.
const LETTERS: usize = 8;
/// The longest part of the own name that stays in it: together 255 bytes at most.
const OWN_BYTES_MAX: usize = 200;
/// Another name is tried this often.
const TRIES: usize = 8;

/// A file that is not complete, and its name in its directory.
#[derive(Debug)]
pub(super) struct PartFile {
    pub(super) file: File,
    pub(super) name: OsString,
}

/// The name under which what will have this name is written.
pub(super) fn part_name(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let own = &bytes[..bytes.len().min(OWN_BYTES_MAX)];
    let mut part = OsString::from(".");
    part.push(OsStr::from_bytes(own));
    part.push(MARK);
    part
}

/// Opens the part of a file, and locks it: the one that is there, if it is ours, or a new one with these permissions.
pub(super) fn open_file(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mode: Mode,
) -> io::Result<PartFile> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let known = part_name(name);
    if let Ok(fd) = openat(directory, &known, flags, mode)
        && is_usable(directory, &fd, &known, FileType::RegularFile)?
    {
        return Ok(PartFile { file: fd.into(), name: known });
    }
    for _ in 0..TRIES {
        let name = with_letters(&known)?;
        let fd = openat(directory, &name, flags | OFlags::EXCL, mode)?;
        if is_usable(directory, &fd, &name, FileType::RegularFile)? {
            return Ok(PartFile { file: fd.into(), name });
        }
    }
    Err(taken())
}

/// The part of a file that is there and can be gone on with, locked.
pub(super) fn find_file(directory: BorrowedFd<'_>, name: &OsStr) -> Option<PartFile> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = part_name(name);
    let fd = openat(directory, &name, flags, Mode::empty()).ok()?;
    let is_usable = is_usable(directory, &fd, &name, FileType::RegularFile).ok()?;
    is_usable.then(|| PartFile { file: fd.into(), name })
}

/// Opens and locks the directory in which a tree is put together, and whether it was there already.
pub(super) fn open_directory(
    parent: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<(OwnedFd, OsString, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let known = part_name(name);
    let was_there = match mkdirat(parent, &known, Mode::RWXU) {
        Ok(()) => false,
        Err(Errno::EXIST) => true,
        Err(error) => return Err(error.into()),
    };
    if let Ok(fd) = openat(parent, &known, flags, Mode::empty())
        && is_usable(parent, &fd, &known, FileType::Directory)?
    {
        return Ok((fd, known, was_there));
    }
    for _ in 0..TRIES {
        let name = with_letters(&known)?;
        mkdirat(parent, &name, Mode::RWXU)?;
        let fd = openat(parent, &name, flags, Mode::empty())?;
        if is_usable(parent, &fd, &name, FileType::Directory)? {
            return Ok((fd, name, false));
        }
    }
    Err(taken())
}

/// Locks it. False if another process has the lock, or it is not ours alone: whoever can make names in this
/// directory could have put anything there.
fn is_usable(
    directory: BorrowedFd<'_>,
    fd: &OwnedFd,
    name: &OsStr,
    kind: FileType,
) -> io::Result<bool> {
    let is_ours = |stat: &Stat| {
        let is_only_name = kind == FileType::Directory || stat.st_nlink == 1;
        let is_kind = FileType::from_raw_mode(stat.st_mode) == kind;
        is_kind && is_only_name && stat.st_uid == rustix::process::geteuid().as_raw()
    };
    if !is_ours(&fstat(fd)?) {
        return Ok(false);
    }
    match flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        // A file system without locks.
        Err(error) => tracing::debug!("{} can't be locked: {error}", name.display()),
    }
    // It may have got its own name meanwhile, and another file this one.
    let locked = fstat(fd)?;
    let named = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_same = named.is_ok_and(|named| {
        (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino) && is_ours(&locked)
    });
    Ok(is_same)
}

fn with_letters(name: &OsStr) -> io::Result<OsString> {
    let mut number = [0; LETTERS];
    SystemRandom::new()
        .fill(&mut number)
        .map_err(|_| io::Error::other("the operating system gives no random bytes"))?;
    let letters = String::from_iter(number.map(|byte| char::from(b'a' + byte % 26)));
    let mut name = name.to_owned();
    name.push("-");
    name.push(letters);
    Ok(name)
}

fn taken() -> io::Error {
    io::Error::other("other processes take its temporary name again and again")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dwell-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn open(&self) -> File {
            File::open(&self.0).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn open(directory: &Directory, name: &str) -> PartFile {
        open_file(directory.open().as_fd(), OsStr::new(name), Mode::from_raw_mode(0o600)).unwrap()
    }

    #[test]
    fn what_nobody_writes_is_gone_on_with() {
        let directory = Directory::new("part-again");
        let name = "x".repeat(255);
        let mut part = open(&directory, &name);
        part.file.write_all(b"half").unwrap();
        // Another receiver at the same time has a file of its own.
        let other = open(&directory, &name);
        assert_ne!(part.name, other.name);
        assert!(find_file(directory.open().as_fd(), OsStr::new(&name)).is_none());
        drop(part);
        let again = find_file(directory.open().as_fd(), OsStr::new(&name)).unwrap();
        assert_eq!(again.file.metadata().unwrap().len(), 4);
        assert!(again.name.len() <= 255 && again.name.to_string_lossy().ends_with(MARK));
    }

    #[test]
    fn what_somebody_else_has_put_there_is_not_touched() {
        let directory = Directory::new("part-others");
        let precious = directory.0.join("precious");
        fs::write(&precious, "mine").unwrap();
        std::os::unix::fs::symlink(&precious, directory.0.join(".link.dwell-part")).unwrap();
        fs::hard_link(&precious, directory.0.join(".hard.dwell-part")).unwrap();
        fs::create_dir(directory.0.join(".dir.dwell-part")).unwrap();
        for name in ["link", "hard", "dir"] {
            assert!(find_file(directory.open().as_fd(), OsStr::new(name)).is_none(), "{name}");
            let mut part = open(&directory, name);
            assert_ne!(part.name, part_name(OsStr::new(name)));
            part.file.write_all(b"theirs").unwrap();
        }
        assert_eq!(fs::read(&precious).unwrap(), b"mine");
    }

    #[test]
    fn directories_are_locked_as_well() {
        let directory = Directory::new("part-trees");
        let name = OsStr::new("tree");
        let (first, first_name, was_there) =
            open_directory(directory.open().as_fd(), name).unwrap();
        assert!(!was_there && first_name == part_name(name));
        let (_second, second_name, was_there) =
            open_directory(directory.open().as_fd(), name).unwrap();
        assert!(!was_there && second_name != first_name);
        drop(first);
        let (_again, name, was_there) = open_directory(directory.open().as_fd(), name).unwrap();
        assert!(was_there && name == first_name);
    }
}
