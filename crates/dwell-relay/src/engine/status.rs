//! The Unix socket that `dwell status` asks.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell_confine::directory::{DirectoryError, SocketPlace};
use dwell_confine::privilege::{self, User};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::StatusError;

/// Gives one document to each who connects; the socket's file goes with it.
#[derive(Debug)]
pub(super) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    place: SocketPlace,
    /// Held by each thread that writes to a slow reader, and once here.
    slow_readers: Arc<()>,
}

/// A document that does not fit into a socket's buffer is written by a thread of its own: for no
/// longer than this, and for no more readers at a time.
const PATIENCE: Duration = Duration::from_secs(5);
const SLOW_READERS_MAX: usize = 4;

impl StatusSocket {
    /// Listens at `path`; a socket there that nobody serves any more is replaced.
    pub(super) fn bind(path: &Path) -> Result<Self, StatusError> {
        let explain = |error: DirectoryError| {
            let path = path.to_owned();
            let source = match error {
                DirectoryError::Io(source) => source,
                unsafe_place => return StatusError::UnsafePlace { path, source: unsafe_place },
            };
            match source.kind() {
                io::ErrorKind::AddrInUse if is_socket(&path) => StatusError::InUse { path },
                io::ErrorKind::AddrInUse => StatusError::NotASocket { path },
                io::ErrorKind::PermissionDenied => StatusError::Forbidden { path },
                _ => StatusError::Io { path, source },
            }
        };
        Self::try_bind(path).map_err(explain)
    }

    fn try_bind(path: &Path) -> Result<Self, DirectoryError> {
        let place = SocketPlace::open(path)?;
        if is_abandoned(path) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        // The status is nobody's business but the operator's.
        place.protect()?;
        let slow_readers = Arc::new(());
        Ok(Self { listener, path: path.to_owned(), place, slow_readers })
    }

    /// Makes it another user's, whose group may then ask. In a directory of root's that user can't
    /// remove it: the next start does.
    pub(super) fn give_to(&self, user: User) -> io::Result<()> {
        self.place.give_to(user)
    }

    /// Serves everybody who waits. The relay waits for nobody: what does not fit into the socket's
    /// buffer is written by a thread, for [`PATIENCE`] at the most.
    ///
    /// Fails if those who wait can't be accepted now, for want of descriptors for instance. The socket
    /// then stays readable.
    pub(super) fn serve(&self, document: impl Fn() -> Vec<u8>) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.give(stream, document()) {
                        tracing::debug!("a status reader got a part, or nothing: {error}");
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn give(&self, mut stream: UnixStream, mut document: Vec<u8>) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let len = write_now(&mut stream, &document)?;
        document.drain(..len);
        if document.is_empty() {
            return Ok(());
        }
        // Only this thread makes more of them.
        if Arc::strong_count(&self.slow_readers) > SLOW_READERS_MAX {
            return Err(io::Error::other("too many read slowly"));
        }
        let counted = Arc::clone(&self.slow_readers);
        let thread = std::thread::Builder::new().name("dwell-status".into());
        thread.spawn(move || {
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("a thread that only writes keeps its privileges: {error}");
            }
            if let Err(error) = write_slowly(&mut stream, &document, PATIENCE) {
                tracing::debug!("a status reader got a part: {error}");
            }
            drop(counted);
        })?;
        Ok(())
    }
}

/// Writes what the socket takes at once.
fn write_now(stream: &mut UnixStream, document: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < document.len() {
        match stream.write(&document[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all, if the reader takes it within this time.
fn write_slowly(stream: &mut UnixStream, document: &[u8], patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    let mut done = write_now(stream, document)?;
    while done < document.len() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(stream, PollFlags::OUT)];
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        done += write_now(stream, &document[done..])?;
    }
    Ok(())
}

/// A socket that nobody serves; nothing else is ever replaced.
fn is_abandoned(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket(path) && UnixStream::connect(path).is_err_and(refused)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
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
    use std::io::Read as _;

    use super::*;

    fn bound(name: &str) -> (PathBuf, StatusSocket) {
        let file = format!("dwell-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(file);
        let socket = StatusSocket::bind(&path).unwrap();
        (path, socket)
    }

    #[test]
    fn a_document_larger_than_any_buffer_comes_whole() {
        let (path, socket) = bound("large");
        let document: Vec<u8> = (0..8_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut reader = UnixStream::connect(&path).unwrap();
        socket.serve(|| document.clone()).unwrap(); // waits for nobody
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(got == document, "{} of {} bytes", got.len(), document.len());
    }

    #[test]
    fn who_does_not_read_holds_few_threads_and_not_for_ever() {
        let (path, socket) = bound("stuck");
        let document = vec![7; 8_000_000];
        let readers: Vec<_> =
            (0..3 * SLOW_READERS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        socket.serve(|| document.clone()).unwrap();
        assert_eq!(Arc::strong_count(&socket.slow_readers), SLOW_READERS_MAX + 1);
        drop(readers);
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let error = write_slowly(&mut ours, &document, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_forbidden_path_is_explained() {
        if privilege::is_root() {
            dwell_testkit::skips::skipped("root may write everywhere");
            return;
        }
        let forbidden = StatusSocket::bind(Path::new("/proc/1/dwell/node.sock")).unwrap_err();
        assert!(matches!(forbidden, StatusError::Forbidden { .. }), "{forbidden}");
        assert!(forbidden.to_string().contains("run it as root"), "{forbidden}");
    }

    #[test]
    fn only_abandoned_sockets_are_replaced() {
        let directory = std::env::temp_dir().join(format!("dwell-status-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("relay.toml");
        fs::write(&file, "precious").unwrap();
        let not_a_socket = StatusSocket::bind(&file).unwrap_err();
        assert!(matches!(not_a_socket, StatusError::NotASocket { .. }), "{not_a_socket}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        let path = directory.join("node.sock");
        drop(UnixListener::bind(&path).unwrap()); // leaves its file behind
        let socket = StatusSocket::bind(&path).unwrap();
        let served = StatusSocket::bind(&path).unwrap_err();
        assert!(matches!(served, StatusError::InUse { .. }), "{served}");
        assert!(served.to_string().contains("is this relay running already?"), "{served}");
        drop(socket);
        assert!(!path.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
