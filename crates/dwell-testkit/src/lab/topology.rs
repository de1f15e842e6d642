//! Ready-made networks.

use std::net::IpAddr;

use dwell_base::Rate;

use super::host::has_ipv6;
use super::{Host, Lab, LabError, Shape};
use crate::emulator::EmulatedLink;
use crate::link::LinkSpec;

/// Two sites and the thin link between them:
///
/// ```text
/// client ───── ingress ═════════════ egress ───── server
///      eth0 eth0     thin0       thin0    eth0 eth0
/// 10.1.0.2  10.1.0.1 10.0.0.1 10.0.0.2 10.2.0.1  10.2.0.2
/// fd00:1::2 fd00:1::1 fd00::1  fd00::2 fd00:2::1 fd00:2::2
/// ```
///
/// All routes are there: client and server reach each other without dwell. A kernel without
/// IPv6 has the IPv4 half. Dropping the value takes the hosts and the link down.
#[derive(Debug)]
pub struct Pair {
    /// Where requests come from.
    pub client: Host,
    /// The client's end of the thin link.
    pub ingress: Host,
    /// The server's end of the thin link.
    pub egress: Host,
    /// What answers.
    pub server: Host,
    /// The thin link, if it is an emulated one. Its first direction is ingress → egress.
    pub link: Option<EmulatedLink>,
}

/// What the thin link of a [`Pair`] is like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairSpec {
    /// Shapes both thin devices with the kernel's token bucket: the queue is then on the
    /// sending host, where its sockets feel it as back-pressure.
    pub shape: Option<Shape>,
    /// What lies between the thin devices, ingress → egress and back; `None` is a plain
    /// cable. A rate in here is a bottleneck further on, which the hosts do not see.
    pub medium: Option<[LinkSpec; 2]>,
}

/// The device of ingress and egress on the thin link.
pub const THIN_DEVICE: &str = "thin0";

impl PairSpec {
    /// A thin link of this rate and delay each way: shaped by the sending host, delayed by
    /// the emulator (which needs /dev/net/tun; not used if the delay is zero).
    pub fn thin(rate: Rate, delay_ns: u64) -> Self {
        let delayed = LinkSpec::new().with_delay_ns(delay_ns);
        Self {
            shape: Some(Shape::new(rate)),
            medium: (delay_ns > 0).then(|| [delayed.clone(), delayed]),
        }
    }

    /// All by the emulator, its queue included: what the hosts see is a fast link with a
    /// bottleneck somewhere behind it.
    pub fn emulated(there: LinkSpec, back: LinkSpec) -> Self {
        Self { shape: None, medium: Some([there, back]) }
    }
}

/// Builds a [`Pair`].
pub fn pair(lab: &mut Lab, spec: PairSpec) -> Result<Pair, LabError> {
    let [client, ingress, egress, server] = ["client", "ingress", "egress", "server"];
    let (client, ingress) = (lab.host(client)?, lab.host(ingress)?);
    let (egress, server) = (lab.host(egress)?, lab.host(server)?);
    lab.veth((&client, "eth0"), (&ingress, "eth0"))?;
    lab.veth((&egress, "eth0"), (&server, "eth0"))?;
    let thin = [(&ingress, THIN_DEVICE), (&egress, THIN_DEVICE)];
    let link = match spec.medium {
        Some([there, back]) => Some(lab.emulated_link(thin[0], thin[1], there, back)?),
        None => lab.veth(thin[0], thin[1]).map(|()| None)?,
    };
    if let Some(shape) = spec.shape {
        ingress.shape(THIN_DEVICE, &shape)?;
        egress.shape(THIN_DEVICE, &shape)?;
    }
    let pair = Pair { client, ingress, egress, server, link };
    pair.number()?;
    pair.connect()?;
    Ok(pair)
}

impl Pair {
    fn number(&self) -> Result<(), LabError> {
        for (host, device, v4, v6) in [
            (&self.client, "eth0", "10.1.0.2/24", "fd00:1::2/64"),
            (&self.ingress, "eth0", "10.1.0.1/24", "fd00:1::1/64"),
            (&self.ingress, THIN_DEVICE, "10.0.0.1/24", "fd00::1/64"),
            (&self.egress, THIN_DEVICE, "10.0.0.2/24", "fd00::2/64"),
            (&self.egress, "eth0", "10.2.0.1/24", "fd00:2::1/64"),
            (&self.server, "eth0", "10.2.0.2/24", "fd00:2::2/64"),
        ] {
            host.address(device, v4)?;
            if has_ipv6() {
                host.address(device, v6)?;
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<(), LabError> {
        self.ingress.forwarding(true)?;
        self.egress.forwarding(true)?;
        let v4 = |site: u8, host: u8| IpAddr::from([10, site, 0, host]);
        self.client.route("default", v4(1, 1))?;
        self.ingress.route("10.2.0.0/24", v4(0, 2))?;
        self.egress.route("10.1.0.0/24", v4(0, 1))?;
        self.server.route("default", v4(2, 1))?;
        if !has_ipv6() {
            return Ok(());
        }
        let v6 = |site: u16, host: u16| IpAddr::from([0xfd00, site, 0, 0, 0, 0, 0, host]);
        self.client.route("default", v6(1, 1))?;
        self.ingress.route("fd00:2::/64", v6(0, 2))?;
        self.egress.route("fd00:1::/64", v6(0, 1))?;
        self.server.route("default", v6(2, 1))
    }
}
