//! Tunnel addresses that nobody has yet.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::Config;

/// The tunnel address of a node that nobody has given one.
pub const DEFAULT_ADDRESS: &str = "10.77.0.1/24";

/// Addresses of a network that are looked at: nobody has more peers.
const LOOKED_AT_MAX: usize = 1 << 16;

/// Returns the addresses that a new peer may take, one in each network of the node's tunnel addresses:
/// the first that neither the node nor a peer has, after `skip` others. Networks that are full are left out.
pub fn suggest(config: &Config, skip: usize) -> Vec<IpNet> {
    let own = config.node.addresses.iter();
    own.filter_map(|own| free(config, own, skip)).collect()
}

fn free(config: &Config, own: &IpNet, skip: usize) -> Option<IpNet> {
    let is_edge = |ip: &IpAddr| match own {
        // The first address of an IPv6 network is that of all its routers.
        IpNet::V6(net) => net.prefix_len() < 127 && *ip == IpAddr::from(net.network()),
        IpNet::V4(net) => {
            net.prefix_len() < 31 && [net.network(), net.broadcast()].map(IpAddr::from).contains(ip)
        }
    };
    let mut hosts = own.trunc().hosts().take(LOOKED_AT_MAX);
    let ip = hosts.by_ref().filter(|ip| !is_edge(ip) && !is_taken(config, *ip)).nth(skip)?;
    IpNet::new(ip, own.prefix_len()).ok()
}

/// Returns true if the node or a peer has this very address.
pub fn is_taken(config: &Config, ip: IpAddr) -> bool {
    let is_host = |prefix: &&IpNet| prefix.prefix_len() == prefix.max_prefix_len();
    let of_peers = config.peers.iter().flat_map(|peer| &peer.prefixes).filter(is_host);
    let mut all = config.node.addresses.iter().chain(of_peers);
    all.any(|net| net.addr() == ip)
}

/// Returns the prefix of this address alone.
pub fn host(address: &IpNet) -> IpNet {
    IpNet::from(address.addr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NodeConfig, PeerConfig, Security};

    fn config(addresses: &[&str], peers: &[&str]) -> Config {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let peer = |(at, prefix): (usize, &&str)| PeerConfig {
            prefixes: vec![prefix.parse().unwrap()],
            ..PeerConfig::new(format!("p{at}"), Security::None)
        };
        let peers = peers.iter().enumerate().map(peer).collect();
        let node = NodeConfig { addresses, ..NodeConfig::default() };
        Config { node, peers, ..Config::default() }
    }

    fn suggested(config: &Config, skip: usize) -> Vec<String> {
        suggest(config, skip).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_next_free_address_of_each_network_is_suggested() {
        let addresses = ["10.77.0.1/24", "fd77::1/64"];
        let alone = config(&addresses, &[]);
        assert_eq!(suggested(&alone, 0), ["10.77.0.2/24", "fd77::2/64"]);
        assert_eq!(suggested(&alone, 8), ["10.77.0.10/24", "fd77::a/64"]);
        let hub = config(&addresses, &["10.77.0.2/32", "10.77.0.3/32", "fd77::2/128"]);
        assert_eq!(suggested(&hub, 0), ["10.77.0.4/24", "fd77::3/64"]);
        // A network is no address.
        assert_eq!(suggested(&config(&["10.77.0.1/24"], &["10.77.0.0/16"]), 0), ["10.77.0.2/24"]);
    }

    #[test]
    fn full_networks_have_none() {
        assert_eq!(suggested(&config(&["10.77.0.1/30"], &[]), 0), ["10.77.0.2/30"]);
        assert!(suggested(&config(&["10.77.0.1/30"], &["10.77.0.2/32"]), 0).is_empty());
        assert!(suggested(&config(&["10.77.0.1/32"], &[]), 0).is_empty());
        assert_eq!(suggested(&config(&["10.77.0.0/31"], &[]), 0), ["10.77.0.1/31"]);
        assert!(suggested(&config(&["10.77.0.1/24"], &[]), 253).is_empty());
    }
}
