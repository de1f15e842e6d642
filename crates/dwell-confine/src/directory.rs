//! The directory of a socket that a process makes as root and gives to the user that it becomes.
//!
//! A process of that user must not be able to replace the socket while root still changes it: root
//! would change the file behind a link. So the directory stays root's, and the socket is reached by
//! the open directory and never through a link.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, chownat, fstat, openat, statat,
};
use rustix::process::{Gid, Uid, geteuid};
use thiserror::Error;

use crate::privilege::User;

/// What a directory that this program makes is: the owner's to change, everybody's to look into.
const DIRECTORY_MODE: u32 = 0o755;
/// Whoever may write may ask; nobody else.
const SOCKET_MODE: Mode = Mode::from_raw_mode(0o660);
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why a socket can't be made in a directory.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// Its owner could replace the socket.
    #[error(
        "the directory {} belongs to user {uid}, who could replace what is made there: give it to \
         the user who starts this program (chown {wanted} {}), or choose another directory",
        path.display(), path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Whose it should be.
        wanted: u32,
    },
    /// Others could replace the socket.
    #[error(
        "other users may write to the directory {}, and could replace what is made there: forbid \
         it (chmod go-w {}), or choose another directory",
        path.display(), path.display()
    )]
    Writable {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where a socket is: an open directory in which only root and this process's user can replace it,
/// and its name there.
#[derive(Debug)]
pub struct SocketPlace {
    directory: OwnedFd,
    name: OsString,
}

impl SocketPlace {
    /// Opens the directory of `path`, and makes it if it is missing.
    ///
    /// # Errors
    /// If the directory belongs to a user who is neither root nor this process's, if others may
    /// replace files in it (in a sticky directory such as `/tmp` they can't), or if the kernel
    /// refuses.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput).map_err(io::Error::from)?;
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let parent = parent.unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(parent)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let directory = openat(CWD, parent, flags, Mode::empty()).map_err(io::Error::from)?;
        let stat = fstat(&directory).map_err(io::Error::from)?;
        review(&stat, geteuid().as_raw(), parent)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Lets only owner and group connect to the socket.
    ///
    /// # Errors
    /// If there is no socket of this name, or the kernel refuses.
    pub fn protect(&self) -> io::Result<()> {
        let name = self.socket()?;
        Ok(chmodat(&self.directory, name, SOCKET_MODE, AtFlags::empty())?)
    }

    /// Gives the socket to another user; the directory stays whose it is.
    ///
    /// # Errors
    /// If there is no socket of this name, or the kernel refuses.
    pub fn give_to(&self, user: User) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let name = self.socket()?;
        Ok(chownat(&self.directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The name, if it is that of a socket, and of nothing that leads elsewhere.
    fn socket(&self) -> io::Result<&OsStr> {
        let stat = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            let message = "there is something else in the place of the socket";
            return Err(io::Error::other(message));
        }
        Ok(&self.name)
    }
}

/// Refuses a directory in which another user than root and this one can replace files.
fn review(stat: &Stat, own: u32, path: &Path) -> Result<(), DirectoryError> {
    let path = path.to_owned();
    if stat.st_uid != 0 && stat.st_uid != own {
        return Err(DirectoryError::Owner { path, uid: stat.st_uid, wanted: own });
    }
    if stat.st_mode & WRITABLE_BY_OTHERS != 0 && stat.st_mode & STICKY == 0 {
        return Err(DirectoryError::Writable { path });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::privilege::is_root;

    const NOBODY: User = User { uid: 65_534, gid: 65_534 };

    /// A directory of its own for each test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("dwell-directory-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("node.sock")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_socket_is_not_followed() {
        let scratch = Scratch::new("link");
        let victim = scratch.0.join("shadow");
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        let before = fs::metadata(&victim).unwrap();
        let place = SocketPlace::open(&scratch.socket()).unwrap();
        symlink(&victim, scratch.socket()).unwrap();
        assert!(place.protect().is_err() && place.give_to(NOBODY).is_err());
        let after = fs::metadata(&victim).unwrap();
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let scratch = Scratch::new("writable");
        for (mode, is_refused) in
            [(0o755, false), (0o775, true), (0o757, true), (0o777, true), (0o1777, false)]
        {
            fs::set_permissions(&scratch.0, Permissions::from_mode(mode)).unwrap();
            let place = SocketPlace::open(&scratch.socket());
            let refused = matches!(place, Err(DirectoryError::Writable { .. }));
            assert_eq!(refused, is_refused, "{mode:o}: {place:?}");
        }
    }

    #[test]
    fn only_the_socket_is_given_away() {
        if !is_root() {
            dwell_testkit::skips::skipped("only root can give files away");
            return;
        }
        let scratch = Scratch::new("given");
        let inner = scratch.0.join("made/here");
        let path = inner.join("node.sock");
        let place = SocketPlace::open(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        place.protect().unwrap();
        place.give_to(NOBODY).unwrap();
        let socket = fs::symlink_metadata(&path).unwrap();
        assert_eq!((socket.uid(), socket.gid()), (NOBODY.uid, NOBODY.gid));
        assert_eq!(socket.mode() & 0o777, 0o660);
        assert_eq!(fs::metadata(&inner).unwrap().uid(), 0, "the directory stays root's");
        // What an older version left behind.
        chown(&inner, Some(NOBODY.uid), Some(NOBODY.gid)).unwrap();
        let error = SocketPlace::open(&path).unwrap_err();
        assert!(matches!(error, DirectoryError::Owner { uid: 65_534, wanted: 0, .. }), "{error}");
        assert!(error.to_string().contains("chown 0 "), "{error}");
    }
}
