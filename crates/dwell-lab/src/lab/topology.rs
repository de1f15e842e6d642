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
    /// The host that sends requests.
    pub client: Host,
    /// The client's end of the thin link.
    pub ingress: Host,
    /// The server's end of the thin link.
    pub egress: Host,
    /// The host that answers.
    pub server: Host,
    /// The thin link, if it is an emulated one. Its first direction is ingress → egress.
    pub link: Option<EmulatedLink>,
    /// A router in the middle of the thin link, if there is one.
    pub router: Option<Router>,
}

/// A router between ingress and egress, whose ports are shaped: to both of them the link seems
/// fast. A medium, if there is one, is between it and egress.
///
/// Ingress and egress take each other for neighbours; the router answers for both (proxy ARP).
#[derive(Debug)]
pub struct Router {
    host: Host,
    /// It lasts as long as the router.
    _medium: Option<EmulatedLink>,
}

const ROUTER_PORTS: [&str; 2] = ["port0", "port1"];

impl Router {
    fn build(
        lab: &mut Lab,
        [ingress, egress]: [(&Host, &str); 2],
        shape: &Shape,
        medium: Option<[LinkSpec; 2]>,
    ) -> Result<Self, LabError> {
        let host = lab.host("router")?;
        lab.veth((&host, ROUTER_PORTS[0]), ingress)?;
        let port = (&host, ROUTER_PORTS[1]);
        let medium = match medium {
            Some([there, back]) => Some(lab.emulated_link(port, egress, there, back)?),
            None => lab.veth(port, egress).map(|()| None)?,
        };
        let router = Self { host, _medium: medium };
        for port in ROUTER_PORTS {
            router.host.sysctl(&format!("net/ipv4/conf/{port}/proxy_arp"), "1")?;
            // The answer is not delayed for a better one.
            router.host.sysctl(&format!("net/ipv4/neigh/{port}/proxy_delay"), "0")?;
        }
        router.host.forwarding(true)?;
        router.shape(shape)?;
        Ok(router)
    }

    /// Adds the routes, once the ends have their addresses.
    fn connect(&self) -> Result<(), LabError> {
        let other = |port: usize| ROUTER_PORTS[1 - port];
        let route = |version: &str, prefix: &str, more: &[&str]| {
            self.host.output("ip", &[&[version, "route", "replace", prefix], more].concat())
        };
        for (port, end) in ["10.0.0.1", "10.0.0.2"].into_iter().enumerate() {
            let device = ROUTER_PORTS[port];
            route("-4", &format!("{end}/32"), &["dev", device])?;
            let site = format!("10.{}.0.0/24", port + 1);
            route("-4", &site, &["via", end, "dev", device, "onlink"])?;
        }
        if has_ipv6() {
            for (port, end) in ["fd00::1", "fd00::2"].into_iter().enumerate() {
                let device = ROUTER_PORTS[port];
                route("-6", &format!("{end}/128"), &["dev", device])?;
                let site = format!("fd00:{}::/64", port + 1);
                route("-6", &site, &["via", end, "dev", device, "onlink"])?;
                self.host.sysctl(&format!("net/ipv6/conf/{device}/proxy_ndp"), "1")?;
                let answers = ["-6", "neigh", "add", "proxy", end, "dev", other(port)];
                self.host.output("ip", &answers)?;
            }
        }
        Ok(())
    }

    /// Shapes the traffic that leaves both ports.
    ///
    /// # Errors
    /// If `tc` fails.
    pub fn shape(&self, shape: &Shape) -> Result<(), LabError> {
        ROUTER_PORTS.iter().try_for_each(|port| self.host.shape(port, shape))
    }

    /// Returns the bytes that were sent towards the ingress.
    ///
    /// # Errors
    /// If the counter can't be read.
    pub fn bytes_to_ingress(&self) -> Result<u64, LabError> {
        self.host.tx_bytes(ROUTER_PORTS[0])
    }
}

/// The properties of the thin link of a [`Pair`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairSpec {
    /// Shapes both thin devices with the kernel's token bucket: the queue is then on the
    /// sending host, where its sockets feel it as back-pressure.
    pub shape: Option<Shape>,
    /// The medium between the thin devices, ingress → egress and back; `None` is a plain cable. A
    /// rate in here is a bottleneck further on, which the hosts do not see.
    pub medium: Option<[LinkSpec; 2]>,
    /// A router in the middle of the link, and how it shapes its ports: a bottleneck that the hosts
    /// do not see, made by the kernel. A medium is then between it and egress.
    pub router: Option<Shape>,
}

/// The device of ingress and egress on the thin link.
pub const THIN_DEVICE: &str = "thin0";

impl PairSpec {
    /// Makes a thin link of this rate and delay in each direction: shaped by the sending host,
    /// delayed by the emulator (which needs /dev/net/tun; not used if the delay is zero).
    pub fn thin(rate: Rate, delay_ns: u64) -> Self {
        Self { shape: Some(Shape::new(rate)), ..Self::default() }.with_delay_ns(delay_ns)
    }

    /// Makes a link entirely by the emulator, its queue included: the hosts see a fast link with a
    /// bottleneck somewhere behind it.
    pub fn emulated(there: LinkSpec, back: LinkSpec) -> Self {
        Self { shape: None, medium: Some([there, back]), router: None }
    }

    /// Makes two plain cables and a router between them that is shaped to this rate.
    pub fn routed(rate: Rate) -> Self {
        Self { router: Some(Shape::new(rate)), ..Self::default() }
    }

    /// Adds a medium that takes this time in each direction; none if it is zero.
    #[must_use]
    pub fn with_delay_ns(mut self, delay_ns: u64) -> Self {
        let delayed = LinkSpec::new().with_delay_ns(delay_ns);
        self.medium = (delay_ns > 0).then(|| [delayed.clone(), delayed]);
        self
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
    let (router, link) = match (spec.router, spec.medium) {
        (Some(shape), medium) => (Some(Router::build(lab, thin, &shape, medium)?), None),
        (None, Some([there, back])) => {
            (None, Some(lab.emulated_link(thin[0], thin[1], there, back)?))
        }
        (None, None) => lab.veth(thin[0], thin[1]).map(|()| (None, None))?,
    };
    if let Some(shape) = spec.shape {
        ingress.shape(THIN_DEVICE, &shape)?;
        egress.shape(THIN_DEVICE, &shape)?;
    }
    let pair = Pair { client, ingress, egress, server, link, router };
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
        self.router.as_ref().map_or(Ok(()), Router::connect)?;
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
