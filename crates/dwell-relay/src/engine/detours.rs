//! Routes that lead packets past the tunnel, though the configuration wants them in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{Config, PeerConfig};
use crate::io::route::{FoundRoute, PROTOCOL, RouteError, RouteKind, Routes};

/// A problem of the path of a prefix's packets, and its remedy: full sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    pub(super) why: String,
    pub(super) remedy: String,
    /// The route into the tunnel may be missing.
    pub(super) is_ours_missing: bool,
}

impl Detour {
    fn new(why: String, remedy: String) -> Self {
        Self { why, remedy, is_ours_missing: false }
    }
}

/// The present interface, while the relay runs and its routes are set; none if they are yet to be.
type Interface = Option<u32>;

/// Asks the kernel where packets for a prefix of a peer go. None if they go into the interface, or
/// would.
pub(super) fn detour(
    routes: &Routes,
    peer: &PeerConfig,
    prefix: IpNet,
    interface: Interface,
) -> Result<Option<Detour>, RouteError> {
    let mut winner = None;
    for address in samples(prefix) {
        let found = routes.lookup(address)?;
        // Others may well have routes to parts of a prefix, this machine's site for instance.
        if !is_detour(found.as_ref(), (prefix, peer.metric), interface) {
            return Ok(None);
        }
        // Of a network of this machine, its own address in it is the least of what can be said.
        let is_address = |found: &Option<FoundRoute>| {
            found.as_ref().is_some_and(|found| found.kind == RouteKind::Local)
        };
        if winner.as_ref().is_none_or(is_address) {
            winner = Some(found);
        }
    }
    let Some(winner) = winner else { return Ok(None) };
    let device = winner
        .and_then(|found| routes.link_name(found.ifindex?).ok())
        .map_or_else(String::new, |(name, _)| format!(" dev {name}"));
    Ok(Some(explain(peer, prefix, winner.as_ref(), &device)))
}

/// Returns true if a packet that takes this route misses the interface.
fn is_detour(
    found: Option<&FoundRoute>,
    (prefix, metric): (IpNet, u32),
    interface: Interface,
) -> bool {
    let Some(found) = found else { return interface.is_some() };
    match interface {
        Some(index) => found.ifindex != Some(index) || found.kind == RouteKind::Local,
        None if found.protocol == PROTOCOL => false,
        None => {
            let same = found.prefix == prefix && found.is_in_main_table();
            found.kind == RouteKind::Local
                || found.prefix.prefix_len() > prefix.prefix_len()
                || (same && found.metric <= metric)
        }
    }
}

fn explain(peer: &PeerConfig, prefix: IpNet, found: Option<&FoundRoute>, device: &str) -> Detour {
    let mistaken = format!(
        "Write what is at \"{}\" in its prefixes, and not what is at this machine.",
        peer.name
    );
    let Some(found) = found else {
        return Detour {
            why: format!(
                "Packets for {prefix} are refused by this machine: the route into the tunnel is \
                 missing, or another one refuses them."
            ),
            remedy: format!(
                "A missing route is set again within seconds; the log says if it can't be. Look at \
                 `ip route show` and `ip -6 route show` for routes that are unreachable, prohibit or \
                 blackhole, and remove them; but leave those of proto {PROTOCOL}, which are this \
                 relay's own: without them packets leave unprotected."
            ),
            is_ours_missing: true,
        };
    };
    let via = found.gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
    let FoundRoute { prefix: to, metric, table, .. } = *found;
    let route = format!("{to}{via}{device}");
    if found.kind == RouteKind::Local {
        let why =
            format!("{prefix} is an address of this machine itself: packets for it stay here.");
        return Detour::new(why, mistaken);
    }
    if found.is_own_network() && to == prefix {
        let why = format!(
            "{prefix} is the network of an interface of this machine ({route}): packets for it go \
             there, and not into the tunnel."
        );
        return Detour::new(why, mistaken);
    }
    if !found.is_in_main_table() {
        return Detour {
            why: format!(
                "Packets for {prefix} take the route {route} of table {table} instead of the tunnel: \
                 a rule (ip rule) asks that table first."
            ),
            remedy: format!(
                "Let that rule leave {prefix} out: for instance ip rule add to {prefix} lookup main \
                 priority 1000."
            ),
            is_ours_missing: false,
        };
    }
    if to.prefix_len() < prefix.prefix_len() {
        return Detour {
            why: format!(
                "Packets for {prefix} take the route {route}: the one into the tunnel is missing."
            ),
            remedy: "Look at the relay's log for why it could not be set.".to_owned(),
            is_ours_missing: true,
        };
    }
    let ip = if to.addr().is_ipv4() { "ip" } else { "ip -6" };
    let remove = format!("Remove it ({ip} route del {route} metric {metric})");
    if to.prefix_len() > prefix.prefix_len() {
        return Detour {
            why: format!(
                "Packets for {prefix} take the route {route} instead of the tunnel: it is more specific."
            ),
            remedy: format!(
                "{remove}, or write prefixes for \"{}\" that are more specific than it.",
                peer.name
            ),
            is_ours_missing: false,
        };
    }
    let why = format!(
        "Packets for {prefix} take the route {route} instead of the tunnel: its metric {metric} is \
         not larger than that of the peer's routes ({}).",
        peer.metric
    );
    let remedy = match metric {
        _ if prefix.prefix_len() == 0 => format!("Instead of {prefix}, {}.", halves(peer, prefix)),
        0 | 1 => format!("{remove}, or {}.", halves(peer, prefix)),
        _ => format!("{remove}, or write metric = {} for \"{}\".", metric - 1, peer.name),
    };
    Detour::new(why, remedy)
}

/// Returns the prefixes to write instead of one, so that they win over another route to the same.
fn halves(peer: &PeerConfig, prefix: IpNet) -> String {
    let Some([a, b]) = split(prefix) else {
        return format!("take {prefix} out of the prefixes of \"{}\"", peer.name);
    };
    let mut advice = format!(
        "write its two halves, which are more specific: prefixes = [\"{a}\", \"{b}\"] for \"{}\"",
        peer.name
    );
    if prefix.prefix_len() == 0 {
        advice += ", with a route of its own to the endpoint, outside of the tunnel (ip route add \
                   ENDPOINT via GATEWAY)";
    }
    advice
}

fn split(prefix: IpNet) -> Option<[IpNet; 2]> {
    let mut halves = prefix.subnets(prefix.prefix_len() + 1).ok()?;
    Some([halves.next()?, halves.next()?])
}

/// Addresses that stand for a prefix: its first, its middle and its last hosts. Of short prefixes,
/// which cover much that is never routed, ordinary addresses in each half.
fn samples(prefix: IpNet) -> Vec<IpAddr> {
    const ORDINARY_V4: [Ipv4Addr; 6] = [
        Ipv4Addr::new(8, 0, 0, 1),
        Ipv4Addr::new(64, 0, 0, 1),
        Ipv4Addr::new(100, 0, 0, 1),
        Ipv4Addr::new(130, 0, 0, 1),
        Ipv4Addr::new(180, 0, 0, 1),
        Ipv4Addr::new(200, 0, 0, 1),
    ];
    const ORDINARY_V6: [Ipv6Addr; 3] = [
        Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfd00, 0xd0e1, 0, 0, 0, 0, 0, 1),
    ];
    const SHORT: u8 = 4;
    let short = prefix.prefix_len() < SHORT;
    let ordinary: Vec<IpAddr> = match prefix {
        IpNet::V4(_) => ORDINARY_V4.map(IpAddr::from).to_vec(),
        IpNet::V6(_) => ORDINARY_V6.map(IpAddr::from).to_vec(),
    };
    let contained: Vec<IpAddr> =
        ordinary.into_iter().filter(|address| short && prefix.contains(address)).collect();
    if !contained.is_empty() {
        return contained;
    }
    let mut hosts = match prefix {
        IpNet::V4(net) => hosts_v4(net).map(IpAddr::from).to_vec(),
        IpNet::V6(net) => hosts_v6(net).map(IpAddr::from).to_vec(),
    };
    hosts.dedup();
    hosts
}

fn hosts_v4(net: Ipv4Net) -> [Ipv4Addr; 3] {
    let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
    let inner = u32::from(net.prefix_len() < 31);
    let (first, last) = (first + inner, last - inner);
    [first, first + (last - first) / 2, last].map(Ipv4Addr::from)
}

fn hosts_v6(net: Ipv6Net) -> [Ipv6Addr; 3] {
    let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
    // The first address of a network is that of its routers.
    let inner = u128::from(net.prefix_len() < 127);
    let (first, last) = (first + inner, last - inner);
    [first, first + (last - first) / 2, last].map(Ipv6Addr::from)
}

/// The route of a relay's own datagrams to a peer leads into the tunnel: a loop.
pub(super) fn circle(
    routes: &Routes,
    peer: &PeerConfig,
    endpoint: SocketAddr,
    interface: u32,
) -> Result<Option<Detour>, RouteError> {
    let ip = endpoint.ip();
    if routes.lookup(ip)?.is_none_or(|found| found.ifindex != Some(interface)) {
        return Ok(None);
    }
    let outside = best_outside(routes, ip, interface)?;
    let way = outside.map_or_else(
        || " via GATEWAY".to_owned(),
        |found| {
            let via = found.gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
            let name = found.ifindex.and_then(|index| routes.link_name(index).ok());
            name.map_or(via.clone(), |(name, _)| format!("{via} dev {name}"))
        },
    );
    let ip_command = if ip.is_ipv4() { "ip" } else { "ip -6" };
    Ok(Some(Detour {
        why: format!(
            "{ip}, the endpoint of \"{}\", is reached through the tunnel itself: its datagrams go \
             round in circles.",
            peer.name
        ),
        remedy: format!(
            "Give it a route of its own, outside of the tunnel: {ip_command} route add {ip}{way}"
        ),
        is_ours_missing: false,
    }))
}

/// Describes another route in the place of one that refuses packets of a closed peer.
pub(super) fn displaced(found: &FoundRoute) -> Detour {
    let FoundRoute { prefix, metric, .. } = found;
    let ip = if prefix.addr().is_ipv4() { "ip" } else { "ip -6" };
    Detour::new(
        format!(
            "Another program's route to {prefix} stands in the place of the unreachable one, with \
             metric {metric}: packets for {prefix} leave by it, unprotected, when the tunnel is \
             gone."
        ),
        format!(
            "Remove it ({ip} route del {prefix} metric {metric}): the relay sets its own again."
        ),
    )
}

/// The route to an address that would be taken if the interface were not there.
fn best_outside(
    routes: &Routes,
    ip: IpAddr,
    interface: u32,
) -> Result<Option<FoundRoute>, RouteError> {
    let mut best: Option<FoundRoute> = None;
    routes.list(|found| {
        let fits = found.is_in_main_table()
            && found.kind == RouteKind::Unicast
            && found.ifindex.is_some_and(|index| index != interface)
            && found.prefix.contains(&ip);
        let rank = |route: &FoundRoute| (route.prefix.prefix_len(), u32::MAX - route.metric);
        if fits && best.is_none_or(|best| rank(&found) > rank(&best)) {
            best = Some(found);
        }
    })?;
    Ok(best)
}

/// Returns one sentence for each thing that this machine's routes would do to a relay with this
/// configuration, or do to the one that runs. Empty if the machine can't be asked.
pub fn route_warnings(config: &Config) -> Vec<String> {
    let Ok(routes) = Routes::new() else { return Vec::new() };
    let running = routes.link_index(&config.node.tun).ok();
    let mut warnings = Vec::new();
    for peer in &config.peers {
        for &prefix in &peer.prefixes {
            // A relay may run with its routes withdrawn.
            let through = |index| detour(&routes, peer, prefix, Some(index)).ok().flatten();
            if running.is_some_and(|index| through(index).is_none()) {
                continue;
            }
            if let Ok(Some(Detour { why, remedy, .. })) = detour(&routes, peer, prefix, None) {
                warnings.push(format!("{why} {remedy}"));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Security;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn found(prefix: &str, metric: u32) -> FoundRoute {
        FoundRoute {
            prefix: net(prefix),
            metric,
            table: 254,
            protocol: 4,
            kind: RouteKind::Unicast,
            ifindex: Some(3),
            gateway: Some(IpAddr::from([192, 0, 2, 1])),
            owner: None,
        }
    }

    #[test]
    fn samples_are_hosts_of_the_prefix() {
        let of = |text: &str| -> Vec<String> {
            samples(net(text)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(of("10.2.0.0/24"), ["10.2.0.1", "10.2.0.127", "10.2.0.254"]);
        assert_eq!(of("10.2.0.7/32"), ["10.2.0.7"]);
        assert_eq!(of("10.2.0.6/31"), ["10.2.0.6", "10.2.0.7"]);
        assert_eq!(of("10.2.0.4/30"), ["10.2.0.5", "10.2.0.6"]);
        assert_eq!(of("fd00::9/128"), ["fd00::9"]);
        assert_eq!(of("fd00::/64")[0], "fd00::1");
        for text in
            ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "::/0", "::/1", "8000::/1", "224.0.0.0/3"]
        {
            let samples = samples(net(text));
            assert!(!samples.is_empty(), "{text}");
            assert!(samples.iter().all(|address| net(text).contains(address)), "{text}");
        }
    }

    #[test]
    fn what_would_win_over_a_route_is_known() {
        let ours = (net("10.2.0.0/16"), 50);
        let wins = |route: FoundRoute| is_detour(Some(&route), ours, None);
        assert!(wins(found("10.2.0.0/16", 0)) && wins(found("10.2.0.0/16", 50)));
        assert!(!wins(found("10.2.0.0/16", 51)) && !wins(found("0.0.0.0/0", 0)));
        assert!(wins(found("10.2.0.0/17", 100)));
        assert!(wins(FoundRoute { kind: RouteKind::Local, ..found("10.2.0.1/32", 0) }));
        assert!(!wins(FoundRoute { protocol: PROTOCOL, ..found("10.2.0.0/16", 50) }));
        assert!(!is_detour(None, ours, None), "nothing is there yet");
        // While the relay runs all but its interface is wrong.
        assert!(is_detour(None, ours, Some(7)));
        assert!(is_detour(Some(&found("10.2.0.0/16", 51)), ours, Some(7)));
        assert!(!is_detour(Some(&found("10.2.0.0/16", 50)), ours, Some(3)));
    }

    #[test]
    fn each_detour_has_its_remedy() {
        let peer = PeerConfig::new("hub".to_owned(), Security::None);
        let said = |prefix: &str, route: &FoundRoute| {
            let Detour { why, remedy, .. } = explain(&peer, net(prefix), Some(route), " dev eth0");
            format!("{why} {remedy}")
        };
        let default = said("0.0.0.0/0", &found("0.0.0.0/0", 0));
        assert!(default.contains("0.0.0.0/0 via 192.0.2.1 dev eth0"), "{default}");
        assert!(default.contains("[\"0.0.0.0/1\", \"128.0.0.0/1\"]"), "{default}");
        assert!(default.contains("to the endpoint"), "{default}");
        let metric = said("10.2.0.0/16", &found("10.2.0.0/16", 20));
        assert!(metric.contains("write metric = 19 for \"hub\""), "{metric}");
        let specific = said("10.2.0.0/16", &found("10.2.0.0/17", 0));
        assert!(specific.contains("more specific"), "{specific}");
        let own = FoundRoute { protocol: 2, gateway: None, ..found("10.2.0.0/16", 0) };
        let own = said("10.2.0.0/16", &own);
        assert!(own.contains("an interface of this machine"), "{own}");
        let local = FoundRoute { kind: RouteKind::Local, ..found("10.2.0.1/32", 0) };
        assert!(said("10.2.0.1/32", &local).contains("an address of this machine itself"));
        let table = said("10.2.0.0/16", &FoundRoute { table: 100, ..found("0.0.0.0/0", 0) });
        assert!(table.contains("table 100") && table.contains("ip rule"), "{table}");
    }
}
