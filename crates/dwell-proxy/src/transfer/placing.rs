//! What is noted of several roots before they get their names, one after the other: a receiver that is killed between
//! two of them has left some beside its staging directory, and the next one takes those back.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, unlinkat};
use rustix::io::Errno;

/// The name of the note among the parts, none of which has such a name.
const NAME: &str = "placing";
/// No more is read of it.
const BYTES_MAX: u64 = 512 << 20;

/// Device and inode.
type Node = (u64, u64);

/// The roots that an earlier receiver was about to give their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Placing(HashMap<Vec<u8>, Node>);

impl Placing {
    /// Returns true if what has this name is what that receiver has put there.
    pub(super) fn has(&self, name: &OsStr, stat: &Stat) -> bool {
        self.0.get(name.as_bytes()) == Some(&(stat.st_dev, stat.st_ino))
    }

    /// Reads what is noted among the parts; nothing if that is nothing, or no such note.
    pub(super) fn read(parts: BorrowedFd<'_>) -> Self {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = openat(parts, NAME, flags, Mode::empty()) else { return Self::default() };
        let mut text = Vec::new();
        match File::from(fd).take(BYTES_MAX).read_to_end(&mut text) {
            Ok(_) => Self::parse(&text),
            Err(_) => Self::default(),
        }
    }

    fn parse(text: &[u8]) -> Self {
        let of_line = |line: &[u8]| {
            let mut fields = line.splitn(3, |&byte| byte == b' ');
            let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
            let node = (number()?, number()?);
            Some((fields.next()?.to_vec(), node))
        };
        // The last one may have been cut.
        let Some(end) = text.iter().rposition(|&byte| byte == 0) else { return Self::default() };
        Self(text[..end].split(|&byte| byte == 0).filter_map(of_line).collect())
    }
}

/// Notes roots, before the first one gets its name.
pub(super) fn note(parts: BorrowedFd<'_>, roots: &[(OsString, Stat)]) -> io::Result<()> {
    let mut text = Vec::new();
    for (name, stat) in roots {
        write!(text, "{} {} ", stat.st_dev, stat.st_ino)?;
        text.extend_from_slice(name.as_bytes());
        text.push(0);
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(parts, NAME, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(&text)?;
    file.sync_all()
}

/// All have their names, or none.
pub(super) fn forget(parts: BorrowedFd<'_>) -> io::Result<()> {
    match unlinkat(parts, NAME, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_cut_counts_as_far_as_it_is_whole() {
        let text = b"1 2 a file\0003 40 other\0005 6 cut";
        let placing = Placing::parse(text);
        let expected = [(b"a file".to_vec(), (1, 2)), (b"other".to_vec(), (3, 40))];
        assert_eq!(placing, Placing(expected.into()));
        assert_eq!(Placing::parse(b"1 2 no end"), Placing::default());
    }

    proptest! {
        #[test]
        fn anything_may_be_in_it(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Placing::parse(&text);
        }
    }
}
