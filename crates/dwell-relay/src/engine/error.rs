//! Why a relay can't run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use dwell_confine::directory::DirectoryError;
use thiserror::Error;

use crate::io::route::RouteError;
use crate::io::tun::TunError;

/// Why a relay did not start, or stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The TUN.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A route or an address.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The configuration can't work.
    #[error(transparent)]
    Config(#[from] dwell_policy::ConfigError),
    /// The UDP port.
    #[error(
        "cannot listen on {address}: {source}: choose a local address and a free port for \
         \"listen\" in [node]"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The status socket.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The port for metrics.
    #[error(
        "cannot serve metrics at {address}: {source}: choose a local address and a free port for \
         \"listen\" in [metrics]"
    )]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The port for the web page.
    #[error(
        "cannot serve the web page at {address}: {source}: choose a local address and a free port for \
         \"listen\" in [web]"
    )]
    Web {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The directory for journals.
    #[error("cannot write journals in {}: {source}", directory.display())]
    Journal {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Asked twice to stop.
    #[error("stopped at once; packets that waited were dropped")]
    Interrupted,
    /// The operating system.
    #[error("cannot {action}: {source}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Why a relay can't serve its status.
#[derive(Debug, Error)]
pub enum StatusError {
    /// Somebody serves this socket.
    #[error(
        "the status socket {} is in use: is this relay running already? Stop that one first; or \
         give this node another name, or another path for \"status\" in [node]",
        path.display()
    )]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// There is something else at this path, which is never replaced.
    #[error(
        "cannot make the status socket {}: there is a file of that name that is not a socket: \
         remove it, or choose another path for \"status\" in [node]",
        path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// This user may not write there.
    #[error(
        "cannot make the status socket {}: this user may not write there: run it as root (under \
         systemd, RuntimeDirectory=dwell makes the directory); or choose a path for \"status\" in \
         [node] that this user may write to; or switch it off with status = \"none\"",
        path.display()
    )]
    Forbidden {
        /// The path.
        path: PathBuf,
    },
    /// Others could replace the socket in its directory.
    #[error(
        "cannot make the status socket {}: {source} for \"status\" in [node]",
        path.display()
    )]
    UnsafePlace {
        /// The path.
        path: PathBuf,
        /// Why.
        source: DirectoryError,
    },
    /// Anything else.
    #[error(
        "cannot make the status socket {}: {source}: choose another path for \"status\" in \
         [node], or switch it off with status = \"none\"",
        path.display()
    )]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl RunError {
    pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
