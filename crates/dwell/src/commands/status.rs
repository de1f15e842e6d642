//! `dwell status`: asks a running node what it does.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dwell_relay::config::NodeConfig;
use dwell_report::status::SCHEMA;
use dwell_report::{proxy, proxy_text, status_text};
use serde_json::Value;

use dwell_cli::terminal;

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
            (false, _) if status.get("kind").and_then(Value::as_str) == Some(proxy::KIND) => {
                let status: dwell_report::ProxyStatus = serde_json::from_value(status.clone())
                    .context("the proxy's answer is not a status: is it dwell that answers?")?;
                proxy_text(&status)
            }
            (false, _) => {
                let status: dwell_report::Status = serde_json::from_value(status.clone())
                    .context("the node's answer is not a status: is it dwell that answers?")?;
                status_text(&status)
            }
        };
        Ok(text)
    }
}

/// The socket of the node, or of this user's proxy, that has this name.
fn named(name: &str) -> PathBuf {
    let relay = NodeConfig::default_status(name);
    dwell_proxy::default_status(name).filter(|path| path.exists()).unwrap_or(relay)
}

/// The sockets in a directory, which need not exist. One whose process has ended is none.
fn sockets_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
            .filter(|path| !is_abandoned(path))
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", directory.display())),
    }
}

fn is_abandoned(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    UnixStream::connect(path).is_err_and(refused)
}

/// The socket of the one node, or proxy of this user, that has it where it is by default.
fn the_only_node() -> anyhow::Result<PathBuf> {
    let example = NodeConfig::default_status("NAME");
    let directory = example.parent().unwrap_or(Path::new("/"));
    let mut sockets = sockets_in(directory)?;
    if let Some(own) = dwell_proxy::status_directory().filter(|own| own != directory) {
        sockets.extend(sockets_in(&own)?);
    }
    match &sockets[..] {
        [socket] => Ok(socket.clone()),
        [] => bail!(
            "no node has a status socket in {}: is `dwell relay` or `dwell proxy` running? If its \
             socket is elsewhere, add --socket PATH",
            directory.display()
        ),
        several => {
            let mut names: Vec<_> = several
                .iter()
                .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
                .collect();
            names.sort();
            bail!("several nodes run here, name one of them: {}", names.join(", "))
        }
    }
}

/// A node answers at once; this is for one that hangs.
const TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The JSON document that the node answers with.
fn ask(path: &Path) -> anyhow::Result<Value> {
    tracing::debug!(socket = %path.display(), "asking");
    let shown = path.display();
    let mut answer = Vec::new();
    let stream = UnixStream::connect(path).map_err(|error| explain(error, path))?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                anyhow::anyhow!("the node at {shown} does not answer: it hangs or is overloaded")
            }
            _ => anyhow::Error::new(error).context(format!("the answer of {shown} is cut short")),
        })?;
    let status: Value = serde_json::from_slice(&answer)
        .with_context(|| format!("{shown} does not answer with JSON: is it dwell that answers?"))?;
    let schema = status.get("schema").and_then(Value::as_u64);
    ensure!(
        schema == Some(u64::from(SCHEMA)),
        "the node at {shown} speaks another version of the status format than this program \
         ({SCHEMA}): use the same dwell as the node"
    );
    Ok(status)
}

fn explain(error: io::Error, path: &Path) -> anyhow::Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no socket {path}: is `dwell relay` running, with its status there?"
        ),
        io::ErrorKind::ConnectionRefused => {
            anyhow::anyhow!("no node listens at {path} any more: start `dwell relay` again")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{path} may not be opened by this user: use sudo")
        }
        _ => anyhow::Error::new(error).context(format!("{path} can't be opened")),
    }
}
