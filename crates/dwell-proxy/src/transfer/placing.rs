//! What is noted of several roots before they get their names, one after the other: a receiver that is killed between
//! two of them has left some beside its staging directory, and the next one takes those back. If all have their names, the
//! transfer was complete, and they are their owner's.
//!
//! Of a staging directory that gets its name with all roots in it, it is noted that it was complete: what is left in it when a receiver is killed
//! just then is removed by the next one that comes to it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx, unlinkat};
use rustix::io::Errno;

/// The name of the note among the parts, none of which has such a name.
const NAME: &str = "placing";
/// What is noted of a directory that gets its name as a whole. No root is called so.
pub(super) const WHOLE: &str = ".";
/// No more is read of it.
const BYTES_MAX: u64 = 512 << 20;

/// What something is known by whatever its name: the numbers of device and inode, and when that was made, in seconds and
/// nanoseconds, as the numbers of what is gone are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    born: (i64, u32),
}

impl Identity {
    /// Returns that of what has this name in a directory.
    ///
    /// # Errors
    /// The system's: there is none, or the file system knows no such time.
    pub(super) fn of(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let stat = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        if stat.stx_mask & wanted.bits() != wanted.bits() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let born = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
        Ok(Self { device, inode: stat.stx_ino, born })
    }
}

/// The roots that an earlier receiver was about to give their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Placing(HashMap<Vec<u8>, Identity>);

impl Placing {
    /// Returns true if what has this name in a directory is what that receiver has put there.
    pub(super) fn has(&self, directory: BorrowedFd<'_>, name: &OsStr) -> bool {
        let noted = self.0.get(name.as_bytes());
        noted.is_some_and(|noted| Identity::of(directory, name).is_ok_and(|it| it == *noted))
    }

    /// Returns true if one of them is still in this directory.
    pub(super) fn has_any_in(&self, directory: BorrowedFd<'_>) -> bool {
        self.0.keys().any(|name| self.has(directory, OsStr::from_bytes(name)))
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
            let mut fields = line.splitn(6, |&byte| byte == b' ');
            let mut text = || std::str::from_utf8(fields.next()?).ok();
            let device = (text()?.parse().ok()?, text()?.parse().ok()?);
            let inode = text()?.parse().ok()?;
            let born = (text()?.parse().ok()?, text()?.parse().ok()?);
            Some((fields.next()?.to_vec(), Identity { device, inode, born }))
        };
        // The last one may have been cut.
        let Some(end) = text.iter().rposition(|&byte| byte == 0) else { return Self::default() };
        Self(text[..end].split(|&byte| byte == 0).filter_map(of_line).collect())
    }
}

/// Notes roots, before the first one gets its name.
pub(super) fn note(parts: BorrowedFd<'_>, roots: &[(OsString, Identity)]) -> io::Result<()> {
    let mut text = Vec::new();
    for (name, Identity { device, inode, born }) in roots {
        write!(text, "{} {} {inode} {} {} ", device.0, device.1, born.0, born.1)?;
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
        let text = b"1 2 3 -4 5 a file\x008 1 40 6 7 other\x001 2 3 4 5 cut";
        let placing = Placing::parse(text);
        let of = |device, inode, born| Identity { device, inode, born };
        let expected = [
            (b"a file".to_vec(), of((1, 2), 3, (-4, 5))),
            (b"other".to_vec(), of((8, 1), 40, (6, 7))),
        ];
        assert_eq!(placing, Placing(expected.into()));
        assert_eq!(Placing::parse(b"1 2 3 4 5 no end"), Placing::default());
    }

    proptest! {
        #[test]
        fn anything_may_be_in_it(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Placing::parse(&text);
        }
    }
}
