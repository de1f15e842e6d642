//! The Unix socket that `dwell status` asks.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell_report::ProxyStatus;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

/// Who asks and does not read is left alone after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Gives one document to each who connects; the socket's file goes with it.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens at `path`; a socket there that nobody serves any more is replaced.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        if is_abandoned(path) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        // What it tells is nobody's business but the operator's.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves everybody, one after the other, for ever.
    pub(crate) async fn serve(&self, status: impl Fn() -> ProxyStatus) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Out of descriptors: streams that end will free some.
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            let document = serde_json::to_vec(&status()).unwrap_or_default();
            let telling = stream.write_all(&document);
            if !matches!(tokio::time::timeout(PATIENCE, telling).await, Ok(Ok(()))) {
                tracing::debug!("a status reader went away");
            }
        }
    }
}

/// A socket that nobody serves; nothing else is ever replaced.
fn is_abandoned(path: &Path) -> bool {
    let socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    socket && StdUnixStream::connect(path).is_err_and(refused)
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Where the status socket of a proxy is by default: for root where relays have theirs, for
/// others in their own runtime folder.
pub fn default_status(name: &str) -> Option<PathBuf> {
    status_folder().map(|folder| folder.join(format!("{name}.sock")))
}

/// The folder of status sockets that this user may write to, if there is one.
pub fn status_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/dwell"));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("dwell"))
}
