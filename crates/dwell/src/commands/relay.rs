//! `dwell relay`: runs a relay until it is asked to stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dwell_relay::config::Config;

use super::check;
use crate::descriptors;
use crate::logging::Logging;
use crate::memory;

const AFTER_HELP: &str = "\
Examples:
  dwell check --sample > site-a.toml     a configuration to begin with
  sudo dwell relay --config site-a.toml

SIGTERM and SIGINT stop the relay: packets that wait still leave, and the interface and its
routes go with it. SIGHUP reads the configuration again without losing packets.
It needs the capability CAP_NET_ADMIN for the interface and its routes.

Exit codes:
  0  it ran until it was asked to stop
  1  it could not start, or had to give up
  2  the command line is wrong";

/// Run a relay with a configuration file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Relay {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Note what the decision core of each peer is given and decides, in new files in this directory, one for each peer that is configured at the start:
    /// sizes, ports, hashes of flows and times, but no contents and no addresses. They grow by
    /// about a kilobyte for each packet. `dwell sim journal` repeats them
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
}

impl Relay {
    pub(crate) fn run(self, logging: &Logging) -> anyhow::Result<ExitCode> {
        run(&self.config, self.journal.as_deref(), logging)
    }
}

/// Runs a relay with this configuration file until it is asked to stop.
pub(super) fn run(
    path: &Path,
    journal: Option<&Path>,
    logging: &Logging,
) -> anyhow::Result<ExitCode> {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(errors) => {
            check::complain(&errors);
            return Ok(ExitCode::FAILURE);
        }
    };
    logging.start(config.node.log)?;
    let machine_bytes = memory::machine_bytes();
    let memory = config.memory_warning(machine_bytes);
    for warning in config.warnings().into_iter().chain(memory) {
        tracing::warn!("{warning}");
    }
    // Each peer has a socket.
    descriptors::raise();
    dwell_relay::run(path, config, journal, machine_bytes)?;
    Ok(ExitCode::SUCCESS)
}
