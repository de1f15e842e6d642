//! The Unix socket that `dwell status` asks.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Gives one document to each who connects; the socket's file goes with it.
#[derive(Debug)]
pub(super) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    made_folder: bool,
}

impl StatusSocket {
    /// Listens at `path`; a socket there that nobody serves any more is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let mut made_folder = false;
        if let Some(folder) = path.parent() {
            made_folder = !folder.exists();
            fs::create_dir_all(folder)?;
        }
        if is_abandoned(path) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        // What it tells is nobody's business but the operator's.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        Ok(Self { listener, path: path.to_owned(), made_folder })
    }

    /// Makes it another user's, so that he can remove it.
    pub(super) fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        chown(&self.path, Some(uid), Some(gid))?;
        match self.path.parent().filter(|_| self.made_folder) {
            Some(folder) => chown(folder, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Serves everybody who waits. A reader who does not read gets what fits into the
    /// socket's buffer: the relay waits for nobody.
    pub(super) fn serve(&self, document: impl Fn() -> Vec<u8>) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let sent = stream.set_nonblocking(true).and_then(|()| stream.write_all(&document()));
            if let Err(error) = sent {
                tracing::debug!("a status reader went away: {error}");
            }
        }
    }
}

/// A socket that nobody serves; nothing else is ever replaced.
fn is_abandoned(path: &Path) -> bool {
    let socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    socket && UnixStream::connect(path).is_err_and(refused)
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_sockets_are_replaced() {
        let folder = std::env::temp_dir().join(format!("dwell-status-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("relay.toml");
        fs::write(&file, "precious").unwrap();
        assert!(StatusSocket::bind(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        let path = folder.join("node.sock");
        drop(UnixListener::bind(&path).unwrap()); // leaves its file behind
        let socket = StatusSocket::bind(&path).unwrap();
        assert!(StatusSocket::bind(&path).is_err(), "it is served");
        drop(socket);
        assert!(!path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
