//! What people use instead of dwell: programs that compress what goes over a link.
//!
//! Some are tunnels of packets; others carry TCP connections only, which then go to the receiver's router
//! instead of the server.

pub(super) mod pipe;
pub(super) mod ssh;
mod vtun;

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_lab::lab::{Host, has_ipv6};

use super::bed::Bed;
use super::ends::Ends;
use super::program;
use super::tunnel::Tunnel;
use super::workload::Workload;

/// A program that compresses what goes over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// `zstd --adapt` and `zstd -d` at the ends of a TCP connection, a pair for each.
    Pipe,
    /// `ssh -C -w`: packets in one TCP connection.
    SshTunnel,
    /// `ssh -C -L`: TCP connections in one.
    SshForward,
    /// vtun with zlib, over TCP.
    Vtun,
    /// vtun with LZO, over UDP.
    VtunLzo,
}

/// The address at which the receiver's router takes TCP connections for the server.
pub(super) const ENTRANCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1));
/// The time in which a peer must be ready for what comes next.
const PATIENCE: Duration = Duration::from_secs(10);

impl Peer {
    const ALL: [Self; 5] =
        [Self::Pipe, Self::SshTunnel, Self::SshForward, Self::Vtun, Self::VtunLzo];

    /// As it is written on the command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::SshTunnel => "ssh-w",
            Self::SshForward => "ssh-l",
            Self::Vtun => "vtun",
            Self::VtunLzo => "vtun:lzo",
        }
    }

    /// The programs that it needs, and Debian's packages of them.
    const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Pipe => &[("zstd", "zstd")],
            Self::SshTunnel | Self::SshForward => &ssh::PROGRAMS,
            Self::Vtun | Self::VtunLzo => &[(vtun::PROGRAM, "vtun")],
        }
    }

    /// Fails if one of its programs is missing, and names the package.
    pub(super) fn ensure_installed(self) -> anyhow::Result<()> {
        for (name, package) in self.programs() {
            ensure!(
                program::find(name).is_some(),
                "`{self}` needs {name}, which can't be found: install it, for instance: \
                 sudo apt install {package}"
            );
        }
        Ok(())
    }

    /// Returns true if it can carry this; some carry TCP connections only.
    pub(super) const fn carries(self, workload: Workload) -> bool {
        match self {
            // It gives nothing on before it has a block's worth.
            Self::Pipe => workload.overload().is_none() && !matches!(workload, Workload::Requests),
            Self::SshForward => workload.overload().is_none(),
            Self::SshTunnel | Self::Vtun | Self::VtunLzo => true,
        }
    }

    /// Starts it at both ends.
    pub(super) fn start(self, bed: &Bed<'_>) -> anyhow::Result<Tunnel> {
        // Most of them use TCP over the link.
        bed.congest_link()?;
        Ok(match self {
            Self::Pipe => Tunnel::Pipes(pipe::Pipes::start(bed)?),
            Self::SshTunnel => Tunnel::Other(ssh::tunnel(bed)?.ready(bed)?),
            Self::SshForward => Tunnel::Forward(ssh::forward(bed)?),
            Self::Vtun => Tunnel::Other(vtun::start(bed, vtun::ZLIB)?.ready(bed)?),
            Self::VtunLzo => Tunnel::Other(vtun::start(bed, vtun::LZO)?.ready(bed)?),
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|peer| peer.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("\"{text}\" is no peer here: use one of {names}")
        })
    }
}

/// Waits for a device at each end, gives it an address of its own and an MTU, and brings it up.
///
/// There is no IPv6, which would send reports at once: vtun gives up if it gets a packet before the device
/// at its end is up.
fn number(
    bed: &Bed<'_>,
    ends: &mut Ends,
    (device, addresses): (&str, [&str; 2]),
    mtu: u32,
) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    for (host, address) in [&bed.pair.egress, &bed.pair.ingress].into_iter().zip(addresses) {
        while host.output("ip", &["link", "show", "dev", device]).is_err() {
            ends.still_hopeful(bed, end)?;
        }
        host.address(device, address)?;
        if has_ipv6() {
            host.sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
        host.mtu(device, mtu)?;
        host.up(device)?;
    }
    Ok(())
}

/// Returns true if somebody listens there, as this host sees it.
pub(super) fn listens(host: &Host, address: SocketAddr) -> anyhow::Result<bool> {
    Ok(host.run(|| TcpStream::connect(address).is_ok())?)
}

/// Waits until somebody listens on a port of the sender's router.
pub(super) fn await_listener(bed: &Bed<'_>, who: &str, port: u16) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    let address = SocketAddr::from(([10, 0, 0, 2], port));
    while !listens(&bed.pair.egress, address)? {
        ensure!(Instant::now() < end, "{who} does not listen");
        bed.sleep(Duration::from_millis(20))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_as_they_are_written() {
        for peer in Peer::ALL {
            assert_eq!(peer.to_string().parse(), Ok(peer));
        }
        for text in ["", "ssh", "vtun:zlib", "Pipe"] {
            let error = text.parse::<Peer>().unwrap_err();
            assert!(error.contains("pipe, ssh-w, ssh-l, vtun, vtun:lzo"), "{error}");
        }
    }

    #[test]
    fn only_tunnels_carry_messages() {
        let carrying = |workload| Peer::ALL.into_iter().filter(move |it| it.carries(workload));
        assert_eq!(carrying(Workload::Text).count(), Peer::ALL.len());
        let names: Vec<_> = carrying(Workload::Telemetry).map(Peer::name).collect();
        assert_eq!(names, ["ssh-w", "vtun", "vtun:lzo"]);
    }
}
