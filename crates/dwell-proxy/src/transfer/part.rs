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
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, openat,
    statat,
};
use rustix::io::Errno;

/// The end of the name of each part, before letters if it has some.
const MARK: &str = ".dwell-part";
/// The directory in a staging directory in which the parts of files are, so that nothing that is sent has their
/// names. It also shows that a receiver has made the directory around it.
pub(super) const PARTS: &str = ".dwell-part";
/// The number of letters that are added to the name if it is taken.
const LETTERS: usize = 8;
/// The longest own name that stays in it: together 255 bytes at most,
const OWN_BYTES_MAX: usize = 200;
/// and so much of a longer one, before its hash.
const CUT_BYTES: usize = 160;
/// Another name is tried this often.
const TRIES: usize = 8;

/// A file that is not complete, and its name in its directory.
#[derive(Debug)]
pub(super) struct PartFile {
    pub(super) file: File,
    pub(super) name: OsString,
    /// True if it was made just now, and so is empty at first.
    pub(super) is_new: bool,
}

/// A directory in which a tree is put together, locked.
#[derive(Debug)]
pub(super) struct PartDirectory {
    pub(super) base: OwnedFd,
    /// What is in [`PARTS`].
    pub(super) parts: OwnedFd,
    pub(super) name: OsString,
    /// True if another receiver began it.
    pub(super) was_there: bool,
}

/// The name under which what will have this name is written.
pub(super) fn part_name(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let mut part = OsString::from(".");
    if bytes.len() <= OWN_BYTES_MAX {
        part.push(name);
    } else {
        part.push(OsStr::from_bytes(&bytes[..CUT_BYTES]));
        part.push("-");
        part.push(&blake3::hash(bytes).to_hex()[..32]);
    }
    part.push(MARK);
    part
}

/// A name of that kind that nobody has, for what is made at once.
pub(super) fn new_name(name: &OsStr) -> io::Result<OsString> {
    with_letters(&part_name(name))
}

/// True if it is a name of that kind.
pub(super) fn is_part_name(name: &[u8]) -> bool {
    let is_letters =
        |end: &[u8]| end.first() == Some(&b'-') && end[1..].iter().all(u8::is_ascii_lowercase);
    let with_letters = name.split_at_checked(name.len().saturating_sub(LETTERS + 1));
    let known = match with_letters {
        Some((known, end)) if end.len() == LETTERS + 1 && is_letters(end) => known,
        _ => name,
    };
    known.first() == Some(&b'.') && known.ends_with(MARK.as_bytes())
}

/// Opens the part of a file, and locks it: the one that is there, if it is ours, or a new one with these permissions.
pub(super) fn open_file(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mode: Mode,
) -> io::Result<PartFile> {
    if let Some(part) = find_file(directory, name) {
        return Ok(part);
    }
    let mut name = part_name(name);
    let known = name.clone();
    for _ in 0..TRIES {
        match openat(directory, &name, NEW_FILE, mode) {
            // Not all file systems make files for the user who asks for them.
            Ok(fd) if is_usable(directory, &fd, &name, FileType::RegularFile, true)? => {
                return Ok(PartFile { file: fd.into(), name, is_new: true });
            }
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        name = with_letters(&known)?;
    }
    Err(taken())
}

/// The part of a file that is there and can be gone on with, locked.
pub(super) fn find_file(directory: BorrowedFd<'_>, name: &OsStr) -> Option<PartFile> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = part_name(name);
    let fd = openat(directory, &name, flags, Mode::empty()).ok()?;
    let is_usable = is_usable(directory, &fd, &name, FileType::RegularFile, false).ok()?;
    is_usable.then(|| PartFile { file: fd.into(), name, is_new: false })
}

/// Makes the part of a file in a directory that is new, and locked as a whole. It is locked all the same: not all file
/// systems lock directories.
pub(super) fn make_file(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mode: Mode,
) -> io::Result<PartFile> {
    let known = part_name(name);
    match openat(directory, &known, NEW_FILE, mode) {
        Ok(fd) => {
            if let Err(error) = flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                tracing::debug!("{} can't be locked: {error}", known.display());
            }
            Ok(PartFile { file: fd.into(), name: known, is_new: true })
        }
        Err(Errno::EXIST) => open_file(directory, name, mode),
        Err(error) => Err(error.into()),
    }
}

const NEW_FILE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens and locks the directory in which a tree is put together: the one that a receiver of ours has left, or a new
/// one.
pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<PartDirectory> {
    let known = part_name(name);
    let mut name = known.clone();
    for _ in 0..TRIES {
        let was_there = match mkdirat(parent, &name, Mode::RWXU) {
            Ok(()) => false,
            Err(Errno::EXIST) => true,
            Err(error) => return Err(error.into()),
        };
        if let Ok(base) = openat(parent, &name, DIRECTORY, Mode::empty())
            && is_usable(parent, &base, &name, FileType::Directory, !was_there)?
            && let Some(parts) = open_parts(&base, was_there)?
        {
            return Ok(PartDirectory { base, parts, name, was_there });
        }
        name = with_letters(&known)?;
    }
    Err(taken())
}

/// The directory of parts in one that is new; in one that was there, if a receiver has made it, so that nothing of
/// anybody else's is removed from it.
fn open_parts(base: &OwnedFd, was_there: bool) -> io::Result<Option<OwnedFd>> {
    if !was_there {
        mkdirat(base, PARTS, Mode::RWXU)?;
        return Ok(Some(openat(base, PARTS, DIRECTORY, Mode::empty())?));
    }
    if !is_private(base)? {
        return Ok(None);
    }
    let parts = match openat(base, PARTS, DIRECTORY, Mode::empty()) {
        Ok(parts) => parts,
        // A receiver may have been killed at once.
        Err(Errno::NOENT) if is_empty(base)? => return open_parts(base, false),
        Err(_) => return Ok(None),
    };
    Ok(is_private(&parts)?.then_some(parts))
}

/// True if it is this user's, and nobody else's to look into.
fn is_private(directory: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(directory)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    Ok(is_own && stat.st_mode & 0o077 == 0)
}

/// Finds the directory of parts in one that has its own name, which a receiver that was killed has left there. The first of the
/// two is locked as long as it is open, so that no other receiver is at it.
pub(super) fn find_parts(
    parent: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    let base = openat(parent, name, DIRECTORY, Mode::empty())?;
    let parts = match openat(&base, PARTS, DIRECTORY, Mode::empty()) {
        Ok(parts) => parts,
        Err(_) => return Ok(None),
    };
    // On a file system without locks nobody has it.
    let is_locked =
        flock(&base, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    Ok((is_private(&parts)? && !is_locked).then_some((base, parts)))
}

fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    has_no_others(directory.as_fd(), b".")
}

/// Lets the next receiver have a part at once, also one in this process: a thread that syncs may still have the file open.
pub(super) fn unlock(part: &PartFile) {
    // A file system without locks.
    let _ = flock(part.file.as_fd(), FlockOperation::Unlock);
}

/// Returns true if there is nothing in a staging directory but that of the parts.
pub(super) fn has_only_parts(directory: BorrowedFd<'_>) -> io::Result<bool> {
    has_no_others(directory, PARTS.as_bytes())
}

fn has_no_others(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let found = entry.file_name().to_bytes();
        if !matches!(found, b"." | b"..") && found != name {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks it. False if another process has the lock, or it was there and is not ours alone: whoever can make names in
/// this directory could have put anything there.
fn is_usable(
    directory: BorrowedFd<'_>,
    fd: &OwnedFd,
    name: &OsStr,
    kind: FileType,
    is_new: bool,
) -> io::Result<bool> {
    let is_ours = |stat: &Stat| {
        let is_only_name = kind == FileType::Directory || stat.st_nlink == 1;
        let is_kind = FileType::from_raw_mode(stat.st_mode) == kind;
        let is_own = is_new || stat.st_uid == rustix::process::geteuid().as_raw();
        is_kind && is_only_name && is_own
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
    use std::os::unix::fs::PermissionsExt as _;
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
        let open = || open_directory(directory.open().as_fd(), name).unwrap();
        let first = open();
        assert!(!first.was_there && first.name == part_name(name));
        let second = open();
        assert!(!second.was_there && second.name != first.name);
        let first_name = first.name.clone();
        drop(first);
        let again = open();
        assert!(again.was_there && again.name == first_name);
    }

    #[test]
    fn a_directory_that_no_receiver_has_made_is_not_adopted() {
        let directory = Directory::new("part-adopted");
        let precious = directory.0.join(".tree.dwell-part");
        fs::create_dir(&precious).unwrap();
        let open = || open_directory(directory.open().as_fd(), OsStr::new("tree")).unwrap();
        assert!(!open().was_there);
        // Nor one that others could have filled.
        fs::create_dir(precious.join(PARTS)).unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o755)).unwrap();
        let other = open();
        assert!(!other.was_there && other.name != ".tree.dwell-part");
    }

    #[test]
    fn names_of_parts_are_known_and_differ() {
        let (a, b) = ("x".repeat(250) + "a", "x".repeat(250) + "b");
        let (a, b) = (part_name(OsStr::new(&a)), part_name(OsStr::new(&b)));
        assert_ne!(a, b);
        let new = new_name(OsStr::new("x")).unwrap();
        for name in [&a, &b, &new, &part_name(OsStr::new("x"))] {
            assert!(name.len() <= 255 && is_part_name(name.as_bytes()), "{name:?}");
        }
        for name in ["x", ".x", "x.dwell-part", ".x.dwell-parts", ".x.dwell-part-1", "-abcdefgh"] {
            assert!(!is_part_name(name.as_bytes()), "{name}");
        }
    }
}
