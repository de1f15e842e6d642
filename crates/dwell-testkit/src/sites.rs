//! Networks of many sites: chains, parking lots, stars.

use std::collections::VecDeque;
use std::net::IpAddr;

use dwell_lab::emulator::EmulatedLink;
use dwell_lab::lab::topology::PairSpec;
use dwell_lab::lab::{Host, Lab, LabError, has_ipv6};

/// The most gateways: their numbers are part of addresses.
pub const GATEWAYS_MAX: usize = 50;

/// The pairs of gateways with a thin link between them; no link closes a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    gateways: usize,
    links: Vec<(usize, usize)>,
}

impl Layout {
    /// Joins `gateways` in a row, each with the next: a chain; with traffic that enters and leaves
    /// between its ends, a parking lot.
    ///
    /// # Panics
    /// If there are fewer than two or more than [`GATEWAYS_MAX`].
    pub fn chain(gateways: usize) -> Self {
        assert!((2..=GATEWAYS_MAX).contains(&gateways), "{gateways} gateways");
        Self { gateways, links: (1..gateways).map(|n| (n - 1, n)).collect() }
    }

    /// Joins each of the `branches` to gateway 0, the hub, by a thin link.
    ///
    /// # Panics
    /// If there is none, or more than [`GATEWAYS_MAX`] − 1.
    pub fn star(branches: usize) -> Self {
        assert!((1..GATEWAYS_MAX).contains(&branches), "{branches} branches");
        Self { gateways: branches + 1, links: (1..=branches).map(|n| (0, n)).collect() }
    }

    /// Returns the number of gateways.
    pub fn gateways(&self) -> usize {
        self.gateways
    }

    /// Returns the thin links, by the gateways at their ends.
    pub fn links(&self) -> &[(usize, usize)] {
        &self.links
    }

    /// Returns the gateways that `from` has a thin link to, and the number of that link.
    pub fn neighbours(&self, from: usize) -> impl Iterator<Item = (usize, usize)> {
        self.links.iter().enumerate().filter_map(move |(link, &(a, b))| match from {
            _ if from == a => Some((b, link)),
            _ if from == b => Some((a, link)),
            _ => None,
        })
    }

    /// Returns the neighbour through which `from` reaches each of the others; none for itself.
    pub fn first_hops(&self, from: usize) -> Vec<Option<usize>> {
        let mut first = vec![None; self.gateways];
        let mut next: VecDeque<(usize, usize)> =
            self.neighbours(from).map(|(near, _)| (near, near)).collect();
        while let Some((at, via)) = next.pop_front() {
            if at == from || first[at].is_some() {
                continue;
            }
            first[at] = Some(via);
            next.extend(self.neighbours(at).map(|(further, _)| (further, via)));
        }
        first
    }
}

/// Sites, each behind a gateway, and thin links between the gateways:
///
/// ```text
/// site1          site2          site3             10.1.0.2  10.2.0.2  10.3.0.2
///   │              │              │               fd00:1::2 …
/// gateway1 ═════ gateway2 ═════ gateway3          10.1.0.1 …
///        thin0 thin0    thin1  thin1              10.200.0.1, .2; 10.200.1.1, .2
/// ```
///
/// Numbers in names and addresses begin with 1, those of links with 0, as do indices. All routes
/// are there: the sites reach each other without dwell. A kernel without IPv6 has the IPv4 half.
#[derive(Debug)]
pub struct Sites {
    layout: Layout,
    /// The hosts that send and receive, one behind each gateway.
    pub sites: Vec<Host>,
    /// The hosts at the ends of the thin links, where relays run.
    pub gateways: Vec<Host>,
    /// The thin links that are emulated, by number.
    pub links: Vec<Option<EmulatedLink>>,
}

/// Builds [`Sites`], with thin links that are all of one kind.
///
/// # Errors
/// If a host, a device or a route can't be made.
pub fn sites(lab: &mut Lab, layout: &Layout, thin: &PairSpec) -> Result<Sites, LabError> {
    let mut network = Sites {
        layout: layout.clone(),
        sites: Vec::new(),
        gateways: Vec::new(),
        links: Vec::new(),
    };
    for n in 0..layout.gateways {
        let site = lab.host(&format!("site{}", n + 1))?;
        let gateway = lab.host(&format!("gateway{}", n + 1))?;
        lab.veth((&site, "eth0"), (&gateway, "eth0"))?;
        address((&site, "eth0"), net_of_site(n), 2)?;
        address((&gateway, "eth0"), net_of_site(n), 1)?;
        gateway.forwarding(true)?;
        network.sites.push(site);
        network.gateways.push(gateway);
    }
    for (number, &(a, b)) in layout.links.iter().enumerate() {
        let link = thin_link(lab, number, [&network.gateways[a], &network.gateways[b]], thin)?;
        network.links.push(link);
    }
    network.connect()?;
    Ok(network)
}

fn thin_link(
    lab: &mut Lab,
    number: usize,
    ends: [&Host; 2],
    thin: &PairSpec,
) -> Result<Option<EmulatedLink>, LabError> {
    let device = thin_device(number);
    let [a, b] = ends.map(|host| (host, device.as_str()));
    let link = match &thin.medium {
        Some([there, back]) => Some(lab.emulated_link(a, b, there.clone(), back.clone())?),
        None => lab.veth(a, b).map(|()| None)?,
    };
    for (end, host) in ends.into_iter().enumerate() {
        if let Some(shape) = &thin.shape {
            host.shape(&device, shape)?;
        }
        address((host, &device), net_of_link(number), end as u8 + 1)?;
    }
    Ok(link)
}

/// Returns the device of both ends of a thin link.
pub fn thin_device(link: usize) -> String {
    format!("thin{link}")
}

/// The networks of a site or a link.
#[derive(Clone, Copy, Debug)]
struct Net {
    v4: [u8; 2],
    v6: u16,
}

fn net_of_site(n: usize) -> Net {
    Net { v4: [n as u8 + 1, 0], v6: n as u16 + 1 }
}

fn net_of_link(n: usize) -> Net {
    Net { v4: [200, n as u8], v6: 0x1000 + n as u16 }
}

impl Net {
    fn v4(self, host: u8) -> IpAddr {
        IpAddr::from([10, self.v4[0], self.v4[1], host])
    }

    fn v6(self, host: u8) -> IpAddr {
        IpAddr::from([0xfd00, self.v6, 0, 0, 0, 0, 0, u16::from(host)])
    }
}

fn address((host, device): (&Host, &str), net: Net, number: u8) -> Result<(), LabError> {
    host.address(device, &format!("{}/24", net.v4(number)))?;
    if has_ipv6() {
        host.address(device, &format!("{}/64", net.v6(number)))?;
    }
    Ok(())
}

impl Sites {
    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the address of a site's host: IPv4, and IPv6.
    pub fn site_addresses(n: usize) -> [IpAddr; 2] {
        [net_of_site(n).v4(2), net_of_site(n).v6(2)]
    }

    /// Returns the prefixes of a site: IPv4, and IPv6.
    pub fn site_prefixes(n: usize) -> [String; 2] {
        let net = net_of_site(n);
        [format!("{}/24", net.v4(0)), format!("{}/64", net.v6(0))]
    }

    /// Returns the IPv4 address of `gateway` on this link.
    pub fn link_address(&self, link: usize, gateway: usize) -> IpAddr {
        let end = if self.layout.links[link].0 == gateway { 1 } else { 2 };
        net_of_link(link).v4(end)
    }

    fn connect(&self) -> Result<(), LabError> {
        for (n, site) in self.sites.iter().enumerate() {
            site.route("default", net_of_site(n).v4(1))?;
            if has_ipv6() {
                site.route("default", net_of_site(n).v6(1))?;
            }
        }
        for (n, gateway) in self.gateways.iter().enumerate() {
            for (to, hop) in self.layout.first_hops(n).into_iter().enumerate() {
                if let Some(hop) = hop {
                    self.route(gateway, n, to, hop)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the route of gateway `n` to the site of another, through its neighbour `hop`.
    fn route(&self, gateway: &Host, n: usize, to: usize, hop: usize) -> Result<(), LabError> {
        let link = self.layout.neighbours(n).find(|&(near, _)| near == hop);
        let Some((_, link)) = link else { return Ok(()) };
        let end = if self.layout.links[link].0 == hop { 1 } else { 2 };
        let [v4, v6] = Self::site_prefixes(to);
        gateway.route(&v4, net_of_link(link).v4(end))?;
        if has_ipv6() {
            gateway.route(&v6, net_of_link(link).v6(end))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_leads_along_its_links() {
        let chain = Layout::chain(4);
        assert_eq!(chain.links(), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(chain.first_hops(1), [Some(0), None, Some(2), Some(2)]);
        assert_eq!(chain.neighbours(2).collect::<Vec<_>>(), [(1, 1), (3, 2)]);
    }

    #[test]
    fn a_star_leads_over_its_hub() {
        let star = Layout::star(3);
        assert_eq!(star.gateways(), 4);
        assert_eq!(star.first_hops(2), [Some(0), Some(0), None, Some(0)]);
        assert_eq!(star.first_hops(0), [None, Some(1), Some(2), Some(3)]);
    }
}
