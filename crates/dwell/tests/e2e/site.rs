//! Two sites joined by a thin link, with a relay at each end of it; and what is asked of them.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dwell_base::Rate;
use dwell_lab::emulator::EmulatedLink;
use dwell_lab::lab::topology::{Pair, PairSpec, pair};
use dwell_lab::lab::{Host, Lab, Process};
use dwell_lab::link::LinkSpec;
use dwell_lab::ping::PingSummary;
use dwell_lab::relays::{Relay, RelayRate, RelaySettings, Relays};
use dwell_report::Status;
use dwell_report::status::{PeerState, PeerStatus};
use rustix::process::Signal;

/// The program under test.
pub(crate) const DWELL: &str = env!("CARGO_BIN_EXE_dwell");
/// The relays' ends of the thin link.
pub(crate) const INGRESS: SocketAddrV4 =
    SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 1), 7733);
pub(crate) const EGRESS: SocketAddrV4 =
    SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 7733);
/// The server's addresses.
pub(crate) const SERVERS: [&str; 2] = ["10.2.0.2", "fd00:2::2"];
/// Nothing that is waited for takes longer, unless it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The two sites. The relays go first, then the hosts.
pub(crate) struct Site {
    pub(crate) relays: Relays,
    pub(crate) pair: Pair,
    pub(crate) directory: PathBuf,
}

/// Relays that know their link: 10 Mbit/s, unless a check says otherwise.
pub(crate) fn settings() -> RelaySettings {
    RelaySettings { rate: RelayRate::Fixed(Rate::from_mbps(10)), ..RelaySettings::default() }
}

impl Site {
    /// With a perfect link of 10 Mbit/s.
    pub(crate) fn thin(lab: &mut Lab, settings: &RelaySettings) -> anyhow::Result<Self> {
        Self::new(lab, PairSpec::thin(Rate::from_mbps(10), 0), settings)
    }

    /// With a router in the middle that is shaped to this rate.
    pub(crate) fn routed(
        lab: &mut Lab,
        rate: Rate,
        settings: &RelaySettings,
    ) -> anyhow::Result<Self> {
        Self::new(lab, PairSpec::routed(rate), settings)
    }

    /// With an emulated link: the same both ways, but for the chances.
    pub(crate) fn emulated(
        lab: &mut Lab,
        link: &str,
        settings: &RelaySettings,
    ) -> anyhow::Result<Self> {
        let there: LinkSpec = link.parse()?;
        let back = there.clone().with_seed(2);
        Self::new(lab, PairSpec::emulated(there, back), settings)
    }

    fn new(lab: &mut Lab, spec: PairSpec, settings: &RelaySettings) -> anyhow::Result<Self> {
        let pair = pair(lab, spec)?;
        let relays = Relays::start(lab, &pair, Path::new(DWELL), settings)?;
        Ok(Self { relays, pair, directory: lab.directory() })
    }

    pub(crate) fn link(&self) -> anyhow::Result<&EmulatedLink> {
        self.pair.link.as_ref().context("the link is not emulated")
    }

    pub(crate) fn statuses(&self) -> anyhow::Result<[Status; 2]> {
        Ok([self.relays.ingress.status()?, self.relays.egress.status()?])
    }

    /// The states of ingress and egress once nothing is under way any more.
    pub(crate) fn settled(&self) -> anyhow::Result<[Status; 2]> {
        let counts = |status: &Status| {
            let of = |p: &PeerStatus| (p.tx.arrived, p.tx.sent, p.tx.held, p.rx.packets);
            status.peers.iter().map(of).collect::<Vec<_>>()
        };
        let end = Instant::now() + PATIENCE;
        let mut before = self.statuses()?;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.statuses()?;
            let idle = now.iter().all(|s| s.peers.iter().all(|p| p.tx.held.packets == 0));
            if idle && now.iter().map(counts).eq(before.iter().map(counts)) {
                return Ok(now);
            }
            before = now;
        }
        bail!("the relays do not come to rest: {before:#?}");
    }

    /// Nothing was lost on the way: what the one sent, the other received and handed over,
    /// in both directions.
    pub(crate) fn verify_lossless(&self) -> anyhow::Result<[Status; 2]> {
        let settled = self.settled()?;
        for (from, to) in [(0, 1), (1, 0)] {
            balanced(&settled[from])?;
            let (tx, rx) = (&settled[from].peers[0].tx, &settled[to].peers[0].rx);
            let what = || format!("{tx:#?}\n{rx:#?}\n{:?}", settled[to].drops);
            ensure!(tx.sent == rx.packets, "sent is not received: {}", what());
            ensure!(
                tx.compressed.packets == rx.compressed,
                "compressed is not restored: {}",
                what()
            );
            ensure!(rx.raw + rx.compressed == rx.packets.packets, "rx does not add up: {}", what());
            let refused = rx.lost_datagrams + rx.replayed + rx.auth_failed + rx.malformed;
            ensure!(refused + rx.decode_failed + rx.not_allowed == 0, "refused: {}", what());
            ensure!(settled[to].tun.tx_packets == rx.packets.packets, "the TUN: {}", what());
            ensure!(settled[to].drops["tun_refused"] == 0, "the TUN refused: {}", what());
        }
        Ok(settled)
    }

    /// Pings the server from the client. The exit code says whether replies came; that is
    /// for the caller to judge.
    pub(crate) fn ping(&self, arguments: &[&str]) -> anyhow::Result<(PingSummary, String)> {
        let output = self.pair.client.command("ping").arg("-n").args(arguments).output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((PingSummary::parse(&said), said))
    }

    /// Returns true if the client reaches the server.
    pub(crate) fn is_connected(&self) -> anyhow::Result<bool> {
        let (summary, _) = self.ping(&["-c", "1", "-W", "1", SERVERS[0]])?;
        Ok(!summary.replies.is_empty())
    }

    /// Stops both relays, as one pulls a plug.
    pub(crate) fn kill_both(&mut self) -> anyhow::Result<()> {
        for relay in [&mut self.relays.ingress, &mut self.relays.egress] {
            kill(relay.process())?;
        }
        Ok(())
    }
}

/// The accounts of a relay add up.
pub(crate) fn balanced(status: &Status) -> anyhow::Result<()> {
    for peer in &status.peers {
        ensure!(peer.tx.balances(), "the accounts do not balance: {:#?}", peer.tx);
    }
    // What came out of the TUN, or from one peer for another, went to a peer's port, or was dropped
    // for a reason.
    let sum = |of: fn(&PeerStatus) -> u64| status.peers.iter().map(of).sum::<u64>();
    let refused = |peer: &PeerStatus| {
        let errors = &peer.tx.send_errors;
        errors.get("too_big").unwrap_or(&0) + errors.get("unconnected").unwrap_or(&0)
    };
    let dropped = status.drops["malformed_packet"] + status.drops["no_route"];
    let known = sum(|peer| peer.tx.arrived.packets) + sum(refused) + dropped;
    let passed = sum(|peer| peer.rx.forwarded.packets + peer.rx.forwarded_compressed.packets);
    let came = status.tun.rx_packets + passed;
    ensure!(came == known, "{came} packets came in, and {known} are accounted for: {status:#?}");
    Ok(())
}

/// Waits until something is so.
pub(crate) fn wait_until(
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("never happened: {what}")
}

/// As the power going off does.
pub(crate) fn kill(process: &mut Process) -> anyhow::Result<()> {
    process.signal(Signal::KILL)?;
    ensure!(process.wait_timeout(PATIENCE)?.is_some(), "SIGKILL does not kill");
    Ok(())
}

/// Starts a relay with this configuration, which may be the one of a relay that is gone. It
/// logs to `log`.
pub(crate) fn launch(host: &Host, config: &Path, log: &Path) -> anyhow::Result<Process> {
    let errors = std::fs::File::create(log)?;
    let mut command: Command = host.command(DWELL);
    command.arg("relay").arg("--config").arg(config).stderr(errors);
    Ok(Process::spawn(&mut command)?)
}

/// Changes a relay's configuration file.
pub(crate) fn edit(relay: &Relay, changes: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut text = std::fs::read_to_string(relay.config())?;
    for (from, to) in changes {
        ensure!(text.contains(from), "{from} is not in {text}");
        text = text.replace(from, to);
    }
    Ok(std::fs::write(relay.config(), text)?)
}

/// Makes a relay read its configuration again, and waits until it says that (or why not).
pub(crate) fn reload(relay: &mut Relay, answer: &str) -> anyhow::Result<()> {
    let before = relay.log().matches(answer).count();
    relay.process().signal(Signal::HUP)?;
    wait_until(answer, || Ok(relay.log().matches(answer).count() > before))
        .with_context(|| relay.log())
}

/// The prefixes that a host routes into its tunnel.
pub(crate) fn tunnel_routes(host: &Host) -> anyhow::Result<Vec<String>> {
    let mut prefixes = Vec::new();
    for family in ["-4", "-6"] {
        // Without the device there are no routes.
        let arguments = [family, "route", "show", "dev", "dwell0", "metric", "50"];
        let text = host.output("ip", &arguments).unwrap_or_default();
        prefixes.extend(text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())));
    }
    Ok(prefixes)
}

/// Returns true if the server is reached through the tunnel, for IPv4.
pub(crate) fn is_tunnelled(host: &Host, prefix: &str) -> anyhow::Result<bool> {
    Ok(tunnel_routes(host)?.iter().any(|route| route == prefix))
}

pub(crate) fn is_up(relay: &Relay) -> anyhow::Result<bool> {
    Ok(relay.status()?.peers.iter().all(|peer| peer.state == PeerState::Up))
}

/// The memory that a process has in use, in bytes.
pub(crate) fn resident_bytes(process: &Process) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}
