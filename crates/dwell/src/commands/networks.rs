//! What the networks in a line would take from this machine, before they are routed into the tunnel.

use std::net::IpAddr;

use anyhow::bail;
use dwell_relay::config::{Config, Endpoint, PublicKey};
use dwell_relay::io::address::reachable_addresses;
use dwell_relay::io::route::{FoundRoute, Routes};
use dwell_relay::pairing::{Line, LineKind, address};
use ipnet::IpNet;

/// The shortest prefixes that are a site's networks, and not a good part of the Internet.
const SITE_LEN_MIN_V4: u8 = 8;
const SITE_LEN_MIN_V6: u8 = 16;

/// What is here is not at the other end.
pub(super) fn refuse_own(line: &Line, own: &[IpNet], addresses: &[IpNet]) -> anyhow::Result<()> {
    for theirs in &line.prefixes {
        // One that has the other in it is no mistake: a hub has all of the network, and what is connected
        // here is nearer than that.
        if let Some(own) = own.iter().find(|own| *own == theirs) {
            bail!(
                "{theirs} is behind {} by its line, and {own} is behind this node: both sites can't have the \
                 same network. If they were swapped, correct the prefixes (under [pairing]) and make the line \
                 again; if both really use it, renumber one",
                line.name
            );
        }
        let is_theirs = |own: &&IpNet| address::host(own) == *theirs;
        if let Some(own) = addresses.iter().find(is_theirs) {
            bail!(
                "{} has the tunnel address {} already: give this node another one, with --address for a new \
                 node, or under [node] (addresses), for instance the next one of that network",
                line.name,
                own.addr()
            );
        }
    }
    Ok(())
}

/// Networks as wide as a default route are nothing that somebody takes by the way.
pub(super) fn refuse_default(line: &Line, is_wanted: bool) -> anyhow::Result<()> {
    let is_wide = |net: &&IpNet| {
        net.prefix_len() < if net.addr().is_ipv4() { SITE_LEN_MIN_V4 } else { SITE_LEN_MIN_V6 }
    };
    match line.prefixes.iter().find(is_wide) {
        Some(net) if !is_wanted => bail!(
            "{} wants {net} to be routed to it, which is as good as a default route: all that this machine \
             sends to the Internet would go there. If you want that, add --default-route; if not, ask for \
             another line",
            line.name
        ),
        _ => Ok(()),
    }
}

/// What the machine itself would lose: its own addresses, and the way to the endpoints.
pub(super) fn refuse_what_is_in_use(line: &Line, config: Option<&Config>) -> anyhow::Result<()> {
    // Where the kernel can't be asked, the relay says it when it runs.
    let (Ok(routes), Ok(own)) = (Routes::new(), reachable_addresses()) else { return Ok(()) };
    let mut networks = Vec::new();
    let mut collect = |route: FoundRoute| {
        if route.is_own_network() {
            networks.push(route.prefix);
        }
    };
    let _ = routes.list(&mut collect);
    // A node that is there already keeps its addresses.
    match config {
        None => refuse_addresses(line, taken(line), &own, &networks)?,
        Some(_) => refuse_addresses(line, line.prefixes.iter().copied(), &own, &networks)?,
    }
    let way = |ip: IpAddr| routes.lookup(ip).ok();
    refuse_endpoints(line, config, way)
}

/// What the tunnel would get by a line.
fn taken(line: &Line) -> impl Iterator<Item = IpNet> {
    let suggested = match &line.kind {
        LineKind::Offer { addresses, .. } => &addresses[..],
        LineKind::Answer { .. } => &[],
    };
    line.prefixes.iter().copied().chain(suggested.iter().map(IpNet::trunc))
}

fn refuse_addresses(
    line: &Line,
    routed: impl Iterator<Item = IpNet>,
    own: &[IpAddr],
    networks: &[IpNet],
) -> anyhow::Result<()> {
    for theirs in routed {
        // A route that is wider than the network leaves that where it is.
        let is_lost = |own: &&IpAddr| {
            theirs.contains(*own)
                && networks.iter().any(|net| net.contains(*own) && net.contains(&theirs))
        };
        if let Some(own) = own.iter().find(is_lost) {
            bail!(
                "{theirs} would be routed to {} by its line, and this machine has the address {own} in it: both \
                 sites and the tunnel need networks of their own. If {} really uses it, renumber one; if not, ask \
                 for another line",
                line.name,
                line.name
            );
        }
    }
    Ok(())
}

/// Refuses routes that would take the tunnel's own datagrams: `way` says how an address is reached now.
fn refuse_endpoints(
    line: &Line,
    config: Option<&Config>,
    way: impl Fn(IpAddr) -> Option<Option<FoundRoute>>,
) -> anyhow::Result<()> {
    let key = |key: &PublicKey| *key == line.public_key;
    let others = config.iter().flat_map(|config| &config.peers);
    let others = others.filter(|peer| !super::join::key_of(peer).as_ref().is_some_and(key));
    let endpoints = line.endpoints.iter().chain(others.filter_map(|peer| peer.endpoint.as_ref()));
    for ip in endpoints.filter_map(Endpoint::ip) {
        let Some(net) = taken(line).find(|net| net.contains(&ip)) else { continue };
        // One that leads elsewhere than by what the tunnel takes stays as it is.
        let found = way(ip);
        let is_nearer =
            |route: &FoundRoute| taken(line).all(|net| !net.contains(&ip) || nearer(route, net));
        match found {
            None => {}
            Some(Some(route)) if is_nearer(&route) => {}
            Some(route) => {
                let gateway = route.and_then(|route| route.gateway);
                let gateway = gateway.map_or_else(|| "GATEWAY".to_owned(), |ip| ip.to_string());
                bail!(
                    "{} wants {net} to be routed to it, and the endpoint {ip} lies in that: the tunnel's own \
                     datagrams would go into the tunnel. Give {ip} a route of its own first (ip route add {ip} \
                     via {gateway}), or ask for a line without that network",
                    line.name
                )
            }
        }
    }
    Ok(())
}

fn nearer(route: &FoundRoute, net: IpNet) -> bool {
    route.prefix.prefix_len() > net.prefix_len()
}

#[cfg(test)]
mod tests {
    use dwell_relay::io::route::RouteKind;
    use dwell_relay::pairing::Pass;

    use super::*;

    fn line(prefixes: &[&str], you: &str) -> Line {
        Line {
            kind: LineKind::Offer {
                addresses: vec![you.parse().unwrap()],
                pass: Pass::new([1; 16]),
            },
            name: "site-a".to_owned(),
            public_key: PublicKey::new([7; 32]),
            endpoints: vec!["203.0.113.10:7733".parse().unwrap()],
            prefixes: prefixes.iter().map(|text| text.parse().unwrap()).collect(),
            has_psk: false,
        }
    }

    fn route(prefix: &str) -> FoundRoute {
        FoundRoute {
            prefix: prefix.parse().unwrap(),
            metric: 0,
            table: 254,
            protocol: 2,
            kind: RouteKind::Unicast,
            ifindex: Some(2),
            gateway: Some([192, 0, 2, 1].into()),
            owner: None,
        }
    }

    #[test]
    fn a_default_route_is_wanted_or_refused() {
        for net in ["0.0.0.0/0", "128.0.0.0/1", "10.0.0.0/7", "::/0", "2000::/3", "fc00::/7"] {
            let line = line(&["10.1.0.0/24", net], "10.77.0.2/24");
            let said = refuse_default(&line, false).unwrap_err().to_string();
            assert!(said.contains("--default-route"), "{said}");
            assert!(refuse_default(&line, true).is_ok());
        }
        let site = line(&["10.0.0.0/8", "fd00::/16"], "10.77.0.2/24");
        assert!(refuse_default(&site, false).is_ok());
    }

    #[test]
    fn own_addresses_stay() {
        let own = ["192.168.1.5".parse().unwrap()];
        let networks = ["192.168.1.0/24".parse().unwrap()];
        let is_refused =
            |line: Line| refuse_addresses(&line, taken(&line), &own, &networks).is_err();
        let refused = |net: &str| is_refused(line(&[net], "10.77.0.2/24"));
        for net in ["192.168.1.0/24", "192.168.1.0/25", "192.168.1.5/32"] {
            assert!(refused(net), "{net}");
        }
        // Nor does a suggested address take a network of this machine.
        assert!(is_refused(line(&["10.1.0.0/24"], "192.168.1.77/25")));
        // The hub of a whole network, and a site that is elsewhere.
        assert!(!refused("192.168.0.0/16") && !refused("192.168.2.0/24"));
    }

    #[test]
    fn the_way_to_the_endpoints_stays() {
        let refused = |line: &Line, way: Option<FoundRoute>| {
            refuse_endpoints(line, None, |_| Some(way)).err().map(|error| error.to_string())
        };
        let inside = line(&["203.0.113.0/24"], "10.77.0.2/24");
        let said = refused(&inside, Some(route("0.0.0.0/0"))).unwrap();
        assert!(said.contains("ip route add 203.0.113.10 via 192.0.2.1"), "{said}");
        assert!(refused(&inside, Some(route("203.0.113.0/24"))).is_some());
        assert!(refused(&inside, None).unwrap().contains("via GATEWAY"));
        assert_eq!(refused(&inside, Some(route("203.0.113.10/32"))), None);
        // The network of the suggested address is routed into the tunnel as well.
        assert!(refused(&line(&["10.1.0.0/24"], "203.0.113.99/24"), None).is_some());
        assert_eq!(refused(&line(&["10.1.0.0/24"], "10.77.0.2/24"), None), None);
        // With a default route through the tunnel, too.
        let all = line(&["0.0.0.0/0"], "10.77.0.2/24");
        assert!(refused(&all, Some(route("0.0.0.0/0"))).is_some());
        assert_eq!(refused(&all, Some(route("203.0.113.0/24"))), None);
        // Where the kernel does not answer nothing is known.
        assert!(refuse_endpoints(&all, None, |_| None).is_ok());
    }
}
