//! The Unix socket that `dwell status` asks.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dwell_confine::directory::{DirectoryError, SocketPlace};
use dwell_confine::privilege::User;
use dwell_report::ProxyStatus;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// A client that asks and does not read is dropped after this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Readers at the same time; one more waits until one of them is done or has lost its time.
const READERS_MAX: usize = 16;

/// Gives one document to each who connects; the socket's file goes with it.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    listener: StdUnixListener,
    path: PathBuf,
    place: SocketPlace,
}

impl StatusSocket {
    /// Listens at `path`; a socket there that nobody serves any more is replaced.
    pub(crate) fn bind(path: &Path) -> Result<Self, DirectoryError> {
        let place = SocketPlace::open(path)?;
        if is_abandoned(path) {
            fs::remove_file(path)?;
        }
        let listener = StdUnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        // The status is nobody's business but the operator's.
        place.protect()?;
        Ok(Self { listener, path: path.to_owned(), place })
    }

    /// Makes it another user's, whose group may then ask. In a directory of root's that user can't
    /// remove it: the next start does.
    pub(crate) fn give_to(&self, user: User) -> io::Result<()> {
        self.place.give_to(user)
    }

    /// Serves everybody for ever, several at a time.
    pub(crate) async fn serve(&self, status: impl Fn() -> ProxyStatus) {
        let listener = match self.listener.try_clone().and_then(UnixListener::from_std) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!("the status socket can't be served: {error}");
                return;
            }
        };
        let places = Arc::new(Semaphore::new(READERS_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: streams that end will free some.
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            let document = serde_json::to_vec(&status()).unwrap_or_default();
            tokio::spawn(async move {
                answer(stream, &document).await;
                drop(place);
            });
        }
    }
}

/// Writes the document to a reader that takes it in time.
async fn answer(mut stream: UnixStream, document: &[u8]) {
    let written = tokio::time::timeout(PATIENCE, stream.write_all(document)).await;
    if !matches!(written, Ok(Ok(()))) {
        tracing::debug!("a status reader went away");
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

/// Where the units that packages bring have proxies' sockets: theirs is the `RuntimeDirectory=`.
/// Not the relay's directory, which is root's, and goes with the relay.
pub const UNIT_DIRECTORIES: [&str; 2] = ["/run/dwell-ingress", "/run/dwell-egress"];

/// Returns the default path of a proxy's status socket: for root where relays have theirs, for
/// others in their own runtime directory, or in that of the unit that runs this process.
pub fn default_status(name: &str) -> Option<PathBuf> {
    status_directory().map(|directory| directory.join(format!("{name}.sock")))
}

/// The directory of status sockets that this user may write to, if there is one.
pub fn status_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/dwell"));
    }
    let [of_user, of_unit] = ["XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY"].map(std::env::var_os);
    directory_of(of_user.as_deref(), of_unit.as_deref())
}

/// The user's own directory comes first, as `dwell status` of the same user looks there; services
/// of the system have none. systemd names several directories of a unit with colons between them.
fn directory_of(of_user: Option<&OsStr>, of_unit: Option<&OsStr>) -> Option<PathBuf> {
    let of_user = of_user.map(Path::new).filter(|path| path.is_absolute());
    let of_unit = of_unit.into_iter().flat_map(std::env::split_paths);
    of_user
        .map(|path| path.join("dwell"))
        .or_else(|| of_unit.into_iter().find(|path| path.is_absolute()))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Larger than any socket's buffer.
    fn large() -> ProxyStatus {
        ProxyStatus { name: "n".repeat(4 << 20), ..ProxyStatus::default() }
    }

    #[test]
    fn the_directory_is_the_users_or_the_units() {
        let directory = |of_user: Option<&str>, of_unit: Option<&str>| {
            directory_of(of_user.map(OsStr::new), of_unit.map(OsStr::new))
        };
        let unit = "/run/dwell-ingress";
        for (of_user, of_unit, expected) in [
            (None, None, None),
            (Some("/run/user/7"), None, Some("/run/user/7/dwell")),
            (Some("/run/user/7"), Some(unit), Some("/run/user/7/dwell")),
            (None, Some(unit), Some(unit)),
            (None, Some("/run/dwell-ingress:/run/other"), Some(unit)),
            (None, Some(":relative:/run/other"), Some("/run/other")),
            (Some(""), Some(unit), Some(unit)),
            (Some("relative"), Some(""), None),
        ] {
            let found = directory(of_user, of_unit);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{of_user:?}, {of_unit:?}");
        }
    }

    /// A packaged proxy had no status, and its compressors were as urgent as what moves bytes.
    #[test]
    fn packaged_units_have_what_a_proxy_needs() {
        let units = [
            include_str!("../../../packaging/dwell-ingress.service"),
            include_str!("../../../packaging/dwell-egress.service"),
        ];
        for (unit, directory) in units.iter().zip(UNIT_DIRECTORIES) {
            let has = |line: &str| unit.lines().any(|it| it == line);
            let name = directory.strip_prefix("/run/").unwrap();
            assert!(has(&format!("RuntimeDirectory={name}")), "{directory}");
            assert!(has("SystemCallFilter=seccomp setpriority"), "{directory}");
            assert!(has("ExecReload=kill -HUP $MAINPID"), "{directory}");
        }
    }

    #[tokio::test]
    async fn readers_that_do_not_read_hold_nobody_up() {
        let path = std::env::temp_dir().join(format!("dwell-proxy-{}.sock", std::process::id()));
        let socket = StatusSocket::bind(&path).unwrap();
        let reading = async {
            let mut stuck = Vec::new();
            for _ in 1..READERS_MAX {
                stuck.push(UnixStream::connect(&path).await.unwrap());
            }
            let mut got = Vec::new();
            let mut reader = UnixStream::connect(&path).await.unwrap();
            reader.read_to_end(&mut got).await.unwrap();
            serde_json::from_slice::<ProxyStatus>(&got).unwrap()
        };
        tokio::select! {
            () = socket.serve(large) => panic!("it serves for ever"),
            status = reading => assert_eq!(status, large()),
        }
    }
}
