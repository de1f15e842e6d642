//! Files being written: their names, the locks on them, and those that nobody writes any more.
//!
//! A part file is locked (`flock`) by the process that writes it. The kernel frees the lock however
//! that process ends; so a part file that can be locked is left over from one that was killed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::Place;

/// The mark in the name of each part file, between the file's own name and random letters.
const MARK: &str = ".dwell-part-";
/// The number of random letters at the end of the name.
const LETTERS: usize = 8;
/// Another name is tried this often if a file is taken for a stale one just as it is made.
const TRIES: usize = 8;

/// A part file that was left over, and is removed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Makes and locks a part file beside `path`.
pub(super) fn create(path: &Path) -> Result<(File, PathBuf), String> {
    for _ in 0..TRIES {
        let part = random_name(path)?;
        let failed = |error| format!("{} can't be made: {error}", part.display());
        let file = OpenOptions::new().write(true).create_new(true).open(&part).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Another receiver may have locked and removed it before.
            Ok(()) if file.metadata().map_err(failed)?.nlink() == 0 => {}
            Err(Errno::WOULDBLOCK) => {}
            Ok(()) => return Ok((file, part)),
            Err(error) => {
                tracing::debug!("{} can't be locked: {error}", part.display());
                return Ok((file, part));
            }
        }
    }
    Err(format!("{} can't be made: other receivers remove it again and again", path.display()))
}

/// Removes the part files of a place that no process writes any more: those of its file, or all of
/// its directory if the sender names the file. Files that another process has locked, other names and
/// what is no regular file are left alone.
pub fn remove_stale(place: &Place) -> Vec<Stale> {
    let (directory, prefix) = match place {
        Place::Stdout => return Vec::new(),
        Place::Directory(directory) => (directory.clone(), None),
        Place::File(path) => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            (directory.unwrap_or(Path::new(".")).to_owned(), Some(prefix(path)))
        }
    };
    // A directory that can't be read can't be written, either, which is said in time.
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        is_part_name(&name, prefix.as_deref())
    };
    let parts = entries.map(|entry| entry.path()).filter(is_part);
    parts.filter_map(|path| remove_if_stale(path).ok().flatten()).collect()
}

fn remove_if_stale(path: PathBuf) -> io::Result<Option<Stale>> {
    // To lock exclusively over NFS a file must be open for writing. Nothing is waited for, nor a
    // link followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    if !fs::symlink_metadata(&path)?.is_file() {
        return Ok(None);
    }
    let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // It may have got its own name meanwhile, and another file this one.
    let (locked, named) = (file.metadata()?, fs::symlink_metadata(&path)?);
    if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
        return Ok(None);
    }
    fs::remove_file(&path)?;
    Ok(Some(Stale { path, bytes: locked.len() }))
}

/// Hidden, in the same directory, so that it can become the file by another name alone; nobody else
/// comes upon the name, not even one with the same number in another container.
fn random_name(path: &Path) -> Result<PathBuf, String> {
    let mut number = [0; LETTERS];
    SystemRandom::new()
        .fill(&mut number)
        .map_err(|_| "the operating system gives no random bytes".to_owned())?;
    let letters = String::from_iter(number.map(|byte| char::from(b'a' + byte % 26)));
    Ok(path.with_file_name(prefix(path) + &letters))
}

/// The names of all part files of a file begin so.
fn prefix(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Room for what is added, in a name of 255 bytes at most.
    let cut = name.char_indices().map(|(at, _)| at).take_while(|&at| at <= 200).last();
    let short = &name[..if name.len() > 200 { cut.unwrap_or(0) } else { name.len() }];
    format!(".{short}{MARK}")
}

fn is_part_name(name: &str, prefix: Option<&str>) -> bool {
    let is_random =
        |letters: &str| letters.len() == LETTERS && letters.bytes().all(|b| b.is_ascii_lowercase());
    match prefix {
        Some(prefix) => name.strip_prefix(prefix).is_some_and(is_random),
        None => {
            let ends = name.rsplit_once(MARK).is_some_and(|(_, letters)| is_random(letters));
            ends && name.starts_with('.')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dwell-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_nobody_writes_is_removed() {
        let directory = Directory::new("stale");
        let stale = directory.0.join(".a.dwell-part-abcdefgh");
        for name in [
            ".a.dwell-part-abcdefgh",
            ".b.dwell-part-abcdefgh",
            ".a.dwell-part-abcdefg",
            ".a.dwell-part-abcdefgH",
            "a.dwell-part-abcdefgh",
            "a",
        ] {
            fs::write(directory.0.join(name), "half").unwrap();
        }
        std::os::unix::fs::symlink("a", directory.0.join(".a.dwell-part-linklink")).unwrap();
        let removed = remove_stale(&Place::File(directory.0.join("a")));
        assert_eq!(removed, [Stale { path: stale, bytes: 4 }]);
        assert!(remove_stale(&Place::File(directory.0.join("a"))).is_empty());
        // Where the sender names the file, it may be any.
        let removed = remove_stale(&Place::Directory(directory.0.clone()));
        assert_eq!(removed.len(), 1);
        assert!(removed[0].path.ends_with(".b.dwell-part-abcdefgh"));
        assert_eq!(
            directory.names(),
            [
                ".a.dwell-part-abcdefg",
                ".a.dwell-part-abcdefgH",
                ".a.dwell-part-linklink",
                "a",
                "a.dwell-part-abcdefgh"
            ]
        );
        assert!(remove_stale(&Place::Stdout).is_empty());
        assert!(remove_stale(&Place::Directory(directory.0.join("none"))).is_empty());
    }

    #[test]
    fn what_somebody_writes_is_kept() {
        let directory = Directory::new("locked");
        let path = directory.0.join("x".repeat(250));
        let (file, part) = create(&path).unwrap();
        for place in [Place::File(path.clone()), Place::Directory(directory.0.clone())] {
            assert!(remove_stale(&place).is_empty());
        }
        assert!(part.exists());
        drop(file);
        assert_eq!(remove_stale(&Place::File(path)).len(), 1);
        assert!(directory.names().is_empty());
    }
}
