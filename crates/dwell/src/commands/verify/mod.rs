//! `dwell verify`: tries whether a tunnel works, there and back.

pub(super) mod findings;
pub(super) mod machine;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use dwell_relay::io::echo::echo;
use dwell_report::Status;
use dwell_report::status::{PeerState, PeerStatus};
use serde_json::json;

use self::findings::{Finding, NotSent, Pings, Verdict};
use self::machine::Machine;
use super::node::{named, relay_status, the_only_relay};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell verify                    all peers of the node that runs here
  sudo dwell verify site-a --peer hub  one peer of the node of this name
  sudo dwell verify --wait 60          gives the other end a minute to come up
  sudo dwell verify --json

For each peer: the session; the routes; a ping to its tunnel address, there and back through the
tunnel, with short packets and with the longest; and whether this machine forwards for the networks
behind it. What the other machine forwards only it can say: run it there, too.

Exit codes:
  0  all that was tried works, perhaps with hints
  1  something does not
  2  the command line is wrong";

/// Try whether the tunnel works in both directions, and say what to do if it does not
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Verify {
    /// The relay's name; may be left out if only one relay runs here
    #[arg(conflicts_with = "socket")]
    name: Option<String>,
    /// The node's status socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Try this peer only
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Wait up to SECONDS for the peers to be up
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    wait: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A ping over a slow link behind a full queue takes no longer.
const PING_PATIENCE: Duration = Duration::from_secs(3);
/// One ping may be lost on any path.
const PINGS: u32 = 3;
const SHORT_LEN: u16 = 84;

impl Verify {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = match (&self.socket, &self.name) {
            (Some(socket), _) => socket.clone(),
            (None, Some(name)) => named(name),
            (None, None) => the_only_relay()?,
        };
        let status = self.wait_until_up(&socket)?;
        let machine = Machine::look();
        let mut findings = findings::of_node(&status, &machine);
        for peer in status.peers.iter().filter(|peer| self.is_wanted(peer)) {
            let pings = match peer.state {
                PeerState::Up => ping(peer, &socket, status.tun.mtu),
                PeerState::Connecting | PeerState::Down => Pings::default(),
            };
            findings.extend(findings::of_peer(peer, &status, &pings, &machine));
        }
        let failed = findings.iter().any(|finding| finding.verdict == Verdict::Failed);
        self.print(&status, &findings, failed)?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn is_wanted(&self, peer: &PeerStatus) -> bool {
        self.peer.as_ref().is_none_or(|name| *name == peer.name)
    }

    /// Peers that just came to know each other need a moment.
    fn wait_until_up(&self, socket: &Path) -> anyhow::Result<Status> {
        let end = Instant::now() + Duration::from_secs(self.wait.into());
        loop {
            let status = relay_status(socket)?;
            ensure!(
                !status.peers.is_empty(),
                "{} has no peers yet: paste the line of `dwell invite` at the other end",
                status.name
            );
            let wanted = || status.peers.iter().filter(|peer| self.is_wanted(peer));
            if let (Some(name), None) = (&self.peer, wanted().next()) {
                let names: Vec<_> = status.peers.iter().map(|peer| &*peer.name).collect();
                bail!("there is no peer \"{name}\": the peers are {}", names.join(", "));
            }
            let are_up = wanted().all(|peer| peer.state == PeerState::Up);
            if are_up || Instant::now() >= end {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn print(&self, status: &Status, findings: &[Finding], failed: bool) -> anyhow::Result<()> {
        if self.json {
            let document = json!({ "node": status.name, "ok": !failed, "findings": findings });
            return Ok(terminal::print(&format!("{document:#}\n"))?);
        }
        let mut text: String = findings.iter().map(Finding::to_text).collect();
        text += match failed {
            true => "\nIt does not work yet.\n",
            false => {
                "\nIt works, as far as it can be seen from here. Run it at the other end, too.\n"
            }
        };
        Ok(terminal::print(&text)?)
    }
}

/// Pings a peer's tunnel address, with short packets and with the longest ones.
pub(super) fn ping(peer: &PeerStatus, socket: &Path, mtu: u32) -> Pings {
    let Some(address) = findings::tunnel_address(peer) else { return Pings::default() };
    let counter = || relay_status(socket).ok().and_then(|status| entered(&status, &peer.name));
    let before = counter();
    let short = attempt(address, SHORT_LEN);
    let went_through = match (before, counter()) {
        (Some(before), Some(after)) => Some(after > before),
        _ => None,
    };
    // No longer than the interface takes, nor than fits into one datagram to this peer.
    let len = u16::try_from(mtu.min(peer.mtu)).unwrap_or(u16::MAX);
    let full = matches!(short, Ok(Some(_))).then(|| attempt(address, len));
    Pings { address: Some(address), short: Some(short), full, full_len: len, went_through }
}

/// Packets that came for a peer so far.
fn entered(status: &Status, name: &str) -> Option<u64> {
    status.peers.iter().find(|peer| peer.name == name).map(|peer| peer.tx.arrived.packets)
}

pub(super) fn attempt(address: IpAddr, len: u16) -> Result<Option<Duration>, NotSent> {
    for _ in 0..PINGS {
        match echo(address, len, PING_PATIENCE) {
            Ok(None) => {}
            Ok(time) => return Ok(time),
            Err(error) => {
                let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
                let not_sent = if is_forbidden { NotSent::Forbidden } else { NotSent::Failed };
                return Err(not_sent(error.to_string()));
            }
        }
    }
    Ok(None)
}
