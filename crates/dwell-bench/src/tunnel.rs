//! A contender that runs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::lab::{Host, Process};
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};
use dwell_report::Status;

use super::bed::Bed;
use super::contender::{Contender, Dwell, Security};
use super::ends::Ends;
use super::machine::cpu_ns;
use super::peers::pipe::Pipes;
use super::pinger::SERVER;
use super::{openvpn, peers, program, wireguard};

/// The knowledge that relays have of the link.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(super) enum Belief {
    /// They find out by back-pressure, and from what the peer reports
    Auto,
    /// They find out by back-pressure only
    Local,
    /// The link's rate is in their configuration
    Configured,
}

/// Which programs to run.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The relay.
    pub(super) dwell: PathBuf,
    /// `wireguard-go`, where it takes part.
    pub(super) wireguard_go: PathBuf,
}

impl Programs {
    /// The program that is measured, and `wireguard-go` as it is found.
    pub(super) fn usual() -> anyhow::Result<Self> {
        Ok(Self { dwell: program::dwell()?, wireguard_go: "wireguard-go".into() })
    }
}

/// A contender that carries what passes between client and server.
#[derive(Debug)]
pub(super) enum Tunnel {
    Off,
    Dwell(Box<Relays>),
    Other(Other),
    /// TCP connections only, each with processes of its own.
    Pipes(Pipes),
    /// TCP connections only.
    Forward(Ends),
}

/// A tunnel of somebody else.
#[derive(Debug)]
pub(super) struct Other {
    /// The interfaces of sender and receiver.
    pub(super) devices: [&'static str; 2],
    pub(super) ends: Ends,
}

/// The time in which packets must get through a new tunnel.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time in which the first bytes of each connection must come.
const FIRST_BYTES: Duration = Duration::from_secs(15);
/// `zstd -d` reads 128 KiB before it writes anything, and ssh has long queues: on one of many connections of a
/// slow link either takes long.
const FIRST_BYTES_OF_CONNECTIONS: Duration = Duration::from_secs(60);

impl Tunnel {
    /// Starts it, and waits until it carries packets.
    pub(super) fn start(
        bed: &Bed<'_>,
        contender: &Contender,
        belief: Belief,
        programs: &Programs,
    ) -> anyhow::Result<Self> {
        match contender {
            Contender::Off => Ok(Self::Off),
            Contender::Dwell(dwell) => {
                let settings = relay_settings(bed, dwell, belief);
                let relays = Relays::start(bed.lab, &bed.pair, &programs.dwell, &settings)?;
                Ok(Self::Dwell(Box::new(relays)))
            }
            Contender::OpenVpn(variant) => {
                Ok(Self::Other(openvpn::start(bed, *variant)?.ready(bed)?))
            }
            Contender::WireGuardGo => {
                Ok(Self::Other(wireguard::start(bed, &programs.wireguard_go)?.ready(bed)?))
            }
            Contender::Peer(peer) => peer.start(bed),
        }
    }

    /// CPU time of the processes at the sending and at the receiving end, if there are any.
    pub(super) fn cpu_ns(&mut self) -> anyhow::Result<Option<[u64; 2]>> {
        Ok(match self {
            Self::Off => None,
            Self::Dwell(relays) => {
                let ends = [&mut relays.egress, &mut relays.ingress];
                let [sender, receiver] = ends.map(|relay| relay.process().id());
                Some([cpu_ns(sender)?, cpu_ns(receiver)?])
            }
            Self::Other(Other { ends, .. }) | Self::Forward(ends) => Some(ends.cpu_ns()),
            Self::Pipes(pipes) => Some(pipes.cpu_ns()?),
        })
    }

    /// Returns the sending relay's status.
    pub(super) fn status(&self) -> anyhow::Result<Option<Status>> {
        match self {
            Self::Dwell(relays) => Ok(Some(relays.egress.status()?)),
            _ => Ok(None),
        }
    }

    /// Returns the receiving relay's status.
    pub(super) fn receiver_status(&self) -> anyhow::Result<Option<Status>> {
        match self {
            Self::Dwell(relays) => Ok(Some(relays.ingress.status()?)),
            _ => Ok(None),
        }
    }

    /// Returns the address at which clients find the server: where only TCP connections are carried, that
    /// of the receiver's router, so that nothing can go past it.
    pub(super) fn entrance(&self) -> IpAddr {
        match self {
            Self::Off | Self::Dwell(_) | Self::Other(_) => server(0).ip(),
            Self::Pipes(_) | Self::Forward(_) => peers::ENTRANCE,
        }
    }

    /// Returns the time in which the first bytes of a load must come.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Pipes(_) | Self::Forward(_) => FIRST_BYTES_OF_CONNECTIONS,
            _ => FIRST_BYTES,
        }
    }

    /// Bytes that the sender's end of it has carried; `None` where there is no tunnel of packets.
    pub(super) fn carried_bytes(&self, bed: &Bed<'_>) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Off | Self::Pipes(_) | Self::Forward(_) => Ok(None),
            Self::Dwell(relays) => Ok(Some(relays.egress.status()?.tun.rx_bytes)),
            Self::Other(other) => Ok(Some(bed.pair.egress.tx_bytes(other.devices[0])?)),
        }
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self {
            // They end as they are dropped.
            Self::Off | Self::Pipes(_) => Ok(()),
            Self::Dwell(mut relays) => Ok(relays.stop()?),
            Self::Other(Other { mut ends, .. }) | Self::Forward(mut ends) => ends.stop(),
        }
    }
}

/// Lines for the relays' configuration.
fn more_lines(dwell: &Dwell) -> String {
    let mut lines = String::new();
    if let Some(packets) = dwell.block_packets {
        lines.push_str(&format!("block_packets = {packets}\n"));
    }
    if !dwell.retransmit {
        lines.push_str("retransmit = false\n");
    }
    if let Some(keys) = &dwell.keys {
        lines.extend(keys.split(';').map(|key| format!("{}\n", key.trim())));
    }
    if let Some(like) = &dwell.like {
        lines.push_str(&like.lines);
    }
    lines
}

fn relay_settings(bed: &Bed<'_>, dwell: &Dwell, belief: Belief) -> RelaySettings {
    let usual = RelaySettings::default();
    let rate = match (belief, bed.rate.0) {
        (Belief::Auto, _) => RelayRate::Auto,
        (Belief::Local, _) => RelayRate::Local,
        (Belief::Configured, Some(rate)) => RelayRate::Fixed(rate),
        (Belief::Configured, None) => RelayRate::Unlimited,
    };
    RelaySettings {
        scheme: dwell.scheme.clone(),
        codec: dwell.codec.clone().unwrap_or(usual.codec),
        sealed: dwell.security != Security::None,
        keyed: dwell.security == Security::Keys,
        rate,
        extra: more_lines(dwell),
        node: dwell.like.as_ref().map_or_else(String::new, |like| like.node.clone()),
        ..RelaySettings::default()
    }
}

impl Other {
    /// Sends both sites' traffic into it, and waits until it gets through.
    pub(super) fn ready(mut self, bed: &Bed<'_>) -> anyhow::Result<Self> {
        let end = Instant::now() + PATIENCE;
        let sides = [(&bed.pair.egress, "10.1.0.0/24"), (&bed.pair.ingress, "10.2.0.0/24")];
        for ((host, prefix), device) in sides.into_iter().zip(self.devices) {
            while route(host, prefix, device).is_err() {
                self.ends.still_hopeful(bed, end)?;
            }
        }
        while bed.pair.client.output("ping", &["-c", "1", "-W", "1", SERVER]).is_err() {
            self.ends.still_hopeful(bed, end)?;
        }
        Ok(self)
    }
}

/// Prefers the device over the plain way; fails until the device is up.
fn route(host: &Host, prefix: &str, device: &str) -> anyhow::Result<()> {
    Ok(host.output("ip", &["route", "replace", prefix, "dev", device, "metric", "50"]).map(drop)?)
}

/// Starts a process on a host, its output going to a file.
pub(super) fn spawn_logged(
    host: &Host,
    program: &Path,
    arguments: &[&str],
    log: &Path,
    environment: &[(&str, &str)],
) -> anyhow::Result<Process> {
    let output = std::fs::File::create(log)
        .with_context(|| format!("the log {} can't be written", log.display()))?;
    let errors = output.try_clone().context("a log can't be written")?;
    let mut command = host.command(program);
    command.args(arguments).envs(environment.iter().copied()).stdout(output).stderr(errors);
    Ok(Process::spawn(&mut command)?)
}

/// Returns the address of a bed's server.
pub(super) fn server(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 2], port))
}
