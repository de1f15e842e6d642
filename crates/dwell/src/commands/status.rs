//! `dwell status`: asks a running node what it does.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use dwell_relay::io::clock::Clock;
use dwell_report::{proxy_text, status_text};
use serde_json::Value;

use dwell_cli::terminal;

use super::node::{ask, is_proxy, named, the_only_node};

const AFTER_HELP: &str = "\
Examples:
  dwell status                      the node that runs here, if there is only one
  dwell status site-a               the node of this name
  dwell status --watch=5            again every 5 seconds
  dwell status --json | jq '.peers[].tx.link_bytes'
  dwell status --json | jq '.peers[].problems'   what is wrong, why, and the remedy

Dropped before a peer was known, of handshakes:
  hello_invalid_mac  the caller does not have this node's public key
  unknown_key        no peer has the caller's key
  hello_replayed     a call that is not later than one before it
  hello_cookie       many call: the caller has to show first that its address is its own
  hello_refused      more than its fair share

Exit codes:
  0  the node answered
  1  it did not
  2  the command line is wrong";

/// Show the state of a running node
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Status {
    /// The node's name; may be left out if only one node runs here
    #[arg(conflicts_with = "socket")]
    name: Option<String>,
    /// The node's status socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON, as the node reports it; with --watch, one line each time
    #[arg(long)]
    json: bool,
    /// Ask again every SECONDS, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
}

const WATCH_SECONDS_MIN: f64 = 0.1;
const WATCH_SECONDS_MAX: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (WATCH_SECONDS_MIN..=WATCH_SECONDS_MAX).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            format!("use a number of seconds from {WATCH_SECONDS_MIN} to {WATCH_SECONDS_MAX}")
        })
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.path()?;
        let Some(pause) = self.watch else {
            let status = ask(&path)?;
            terminal::print(&self.show(&status)?)?;
            return Ok(ExitCode::SUCCESS);
        };
        let clear = !self.json && io::stdout().is_terminal();
        loop {
            let text = self.show(&ask(&path)?)?;
            let (before, after) = match (clear, self.json) {
                // To the top left corner, and clear from there.
                (true, _) => ("\x1b[H\x1b[J", ""),
                (false, true) => ("", ""),
                (false, false) => ("", "\n"),
            };
            terminal::print(&format!("{before}{text}{after}"))?;
            std::thread::sleep(pause);
        }
    }

    fn path(&self) -> anyhow::Result<PathBuf> {
        match (&self.socket, &self.name) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => Ok(named(name)),
            (None, None) => the_only_node(),
        }
    }

    fn show(&self, status: &Value) -> anyhow::Result<String> {
        let text = match (self.json, self.watch) {
            (true, None) => serde_json::to_string_pretty(status)? + "\n",
            (true, Some(_)) => serde_json::to_string(status)? + "\n",
            (false, _) if is_proxy(status) => {
                let status: dwell_report::ProxyStatus = serde_json::from_value(status.clone())
                    .context("the proxy's answer is not a status: is it dwell that answers?")?;
                proxy_text(&status)
            }
            (false, _) => {
                let status: dwell_report::Status = serde_json::from_value(status.clone())
                    .context("the node's answer is not a status: is it dwell that answers?")?;
                status_text(&status, Clock::unix_ns())
            }
        };
        Ok(text)
    }
}
