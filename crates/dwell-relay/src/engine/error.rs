//! Why a relay can't run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    #[error(
        "cannot serve the status at {}: {source}: stop the relay that has it, choose another \
         path for \"status\" in [node], or switch it off with status = \"none\"",
        path.display()
    )]
    Status {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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
    /// Told twice to stop.
    #[error("stopped at once; packets that waited were dropped")]
    Interrupted,
    /// The operating system.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl RunError {
    pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
