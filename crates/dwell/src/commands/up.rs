//! `dwell up`: runs this machine's node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dwell_relay::config::Config;

use super::node::{self, Reloaded};
use super::relay;
use super::site::DEFAULT_CONFIG;
use crate::logging::Logging;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell up                        until Ctrl-C
  sudo systemctl enable --now dwell    as a service, from now on and after each boot

If the node runs already, it reads its configuration again.

Exit codes:
  0  it ran until it was asked to stop, or runs already
  1  it could not start, or had to give up
  2  the command line is wrong";

/// Run this machine's node, as `dwell init` or `dwell join` configured it
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Up {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Note what the decision cores decide, as `dwell relay --journal` does
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
}

impl Up {
    pub(crate) fn run(self, logging: &Logging) -> anyhow::Result<ExitCode> {
        run(&self.config, self.journal.as_deref(), logging)
    }
}

/// Where systemd finds the service.
const UNITS: [&str; 3] = [
    "/etc/systemd/system/dwell.service",
    "/usr/lib/systemd/system/dwell.service",
    "/lib/systemd/system/dwell.service",
];

pub(super) fn run(
    path: &Path,
    journal: Option<&Path>,
    logging: &Logging,
) -> anyhow::Result<ExitCode> {
    if !path.exists() {
        anyhow::bail!(
            "there is no {}: `dwell init` makes a node, `dwell join LINE` one that knows its peer",
            path.display()
        );
    }
    let Ok(config) = Config::load(path) else {
        // What is wrong with it is said there, and nothing before.
        return relay::run(path, journal, logging);
    };
    if let Reloaded::Taken(waits) = node::reload(config.node.status.as_deref(), path)? {
        let name = &config.node.name;
        terminal::note(&format!("{name} runs already, and has read its configuration again"));
        if let Some(keys) = waits {
            terminal::note(&format!(
                "{keys}: what it says now needs a restart of the relay; the rest is taken"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_default = path == Path::new(DEFAULT_CONFIG);
    if is_default && UNITS.iter().any(|unit| Path::new(unit).exists()) {
        terminal::note("As a service, after each boot too:  sudo systemctl enable --now dwell");
    }
    terminal::note("Ctrl-C stops it. In another terminal:  sudo dwell verify");
    relay::run(path, journal, logging)
}
