//! Conditions that must hold between different keys, and others that should.

use std::net::IpAddr;

use dwell_policy::{History, Select, When};
use ipnet::IpNet;

use super::error::Errors;
use super::read::Peer;
use super::{Config, Endpoint, FailMode, NodeConfig, PeerConfig, RateConfig, Security, history};

/// Adds the errors of values that are valid alone but not together.
pub(super) fn across(node: &NodeConfig, peers: &[Peer<'_>], errors: &mut Errors<'_>) {
    for (index, peer) in peers.iter().enumerate() {
        let before = &peers[..index];
        same_name(peer, before, errors);
        same_endpoint(peer, before, errors);
        same_secret(peer, before, errors);
        same_prefix(peer, before, errors);
        other_family(node, peer, errors);
        unrecognisable(peer, before, errors);
    }
}

fn same_name(peer: &Peer<'_>, before: &[Peer<'_>], errors: &mut Errors<'_>) {
    if let Some(other) = before.iter().find(|other| other.config.name == peer.config.name) {
        let message =
            format!("the peer on line {} has this name too: choose another", other.name_line);
        peer.table.fail("name", peer.name_line, message, errors);
    }
}

fn same_endpoint(peer: &Peer<'_>, before: &[Peer<'_>], errors: &mut Errors<'_>) {
    let Some(endpoint) = &peer.config.endpoint else { return };
    let same = |other: &&Peer<'_>| other.config.endpoint.as_ref() == Some(endpoint);
    if let Some(other) = before.iter().find(same) {
        let message = format!(
            "\"{}\" (line {}) has this endpoint too: join the two peers into one, or correct it",
            other.config.name, other.endpoint_line
        );
        peer.table.fail("endpoint", peer.endpoint_line, message, errors);
    }
}

fn same_secret(peer: &Peer<'_>, before: &[Peer<'_>], errors: &mut Errors<'_>) {
    let key = match &peer.config.security {
        Security::None => return,
        Security::Psk(_) => "psk_file",
        Security::Keys { .. } => "public_key",
    };
    let same = |other: &&Peer<'_>| match (&other.config.security, &peer.config.security) {
        (Security::Keys { peer: a, .. }, Security::Keys { peer: b, .. }) => a == b,
        (a, b) => a == b,
    };
    if let Some(other) = before.iter().find(same) {
        if key == "public_key" {
            let message = format!(
                "\"{}\" has the same key, so that the two could not be distinguished: join the two \
                 peers into one, or correct it",
                other.config.name
            );
            peer.table.fail(key, peer.protection_line, message, errors);
            return;
        }
        let message = format!(
            "\"{}\" has the same key, so that the two could not be distinguished: make one for each \
             with `dwell genpsk`",
            other.config.name
        );
        peer.table.fail("psk_file", peer.protection_line, message, errors);
    }
}

fn same_prefix(peer: &Peer<'_>, before: &[Peer<'_>], errors: &mut Errors<'_>) {
    for (at, (prefix, &line)) in peer.config.prefixes.iter().zip(&peer.prefix_lines).enumerate() {
        if peer.config.prefixes[..at].contains(prefix) {
            let message = format!("{prefix} is in the list twice: remove one");
            peer.table.fail("prefixes", line, message, errors);
        } else if let Some(other) =
            before.iter().find(|other| other.config.prefixes.contains(prefix))
        {
            let message = format!(
                "{prefix} is routed to \"{}\" already: a prefix can have one peer only",
                other.config.name
            );
            peer.table.fail("prefixes", line, message, errors);
        }
    }
}

fn other_family(node: &NodeConfig, peer: &Peer<'_>, errors: &mut Errors<'_>) {
    let Some(ip) = peer.config.endpoint.as_ref().and_then(Endpoint::ip) else { return };
    if ip.is_ipv4() != node.listen.is_ipv4() {
        let (wanted, all) = match ip {
            IpAddr::V4(_) => ("IPv4", "0.0.0.0"),
            IpAddr::V6(_) => ("IPv6", "[::]"),
        };
        let message = format!(
            "{ip} can't be reached from {}: listen on an {wanted} address, for instance \
             listen = \"{all}:{}\" under [node]",
            node.listen,
            node.listen.port()
        );
        peer.table.fail("endpoint", peer.endpoint_line, message, errors);
    }
}

fn unrecognisable(peer: &Peer<'_>, before: &[Peer<'_>], errors: &mut Errors<'_>) {
    if !peer.is_bare {
        return;
    }
    if let Some(other) = before.iter().find(|other| other.is_bare) {
        let message = format!(
            "neither it nor \"{}\" has a key or an endpoint, so that the two could not be distinguished \
             apart: give one of them an endpoint",
            other.config.name
        );
        peer.table.fail_whole(message, errors);
    }
}

impl Config {
    /// The peer that packets to `address` are routed to, and by which prefix: the longest
    /// match.
    pub fn route(&self, address: IpAddr) -> Option<(&PeerConfig, IpNet)> {
        self.peers
            .iter()
            .flat_map(|peer| peer.prefixes.iter().map(move |&prefix| (peer, prefix)))
            .filter(|(_, prefix)| prefix.contains(&address))
            .max_by_key(|(_, prefix)| prefix.prefix_len())
    }

    /// Returns one sentence for each setting that is legal but probably not meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for peer in &self.peers {
            warnings.extend(self.routing_loop(peer));
            warnings.extend(without_security(peer));
            warnings.extend(never_waits(peer));
            warnings.extend(useless_dictionary(peer));
            warnings.extend(nothing_to_pick(peer));
            warnings.extend(past_the_tunnel(peer));
            warnings.extend(self.own_as_the_peers(peer));
        }
        warnings.extend(self.carried_past_site());
        if self.peers.is_empty() {
            warnings.push(
                "there is no peer yet: paste the line that `dwell invite` prints at the other end, or \
                 write a [[peer]]"
                    .to_owned(),
            );
        }
        if self.node.user.as_deref() == Some("nobody") {
            warnings.push(
                "user = \"nobody\" is the user of other programs too, which could share the relay's \
                 UDP port and take its datagrams: make a user of its own"
                    .to_owned(),
            );
        }
        let deadline = self.classes.iter().find(|class| class.max_wait_ns.is_some());
        let holds = |peer: &PeerConfig| peer.scheme.fills_frames();
        let gathers = self.peers.iter().any(|peer| peer.saving.saves_bytes);
        match (deadline, self.peers.iter().find(|peer| holds(peer))) {
            (Some(class), None) if !gathers => warnings.push(format!(
                "the class \"{}\" has a max_wait, but no peer has a scheme that holds packets \
                 back: write for instance scheme = \"chutq-dcf\", or objective = \"bytes\"",
                class.name
            )),
            (None, Some(peer)) => warnings.push(format!(
                "the scheme \"{}\" of \"{}\" holds back packets of classes with a max_wait, \
                 and there is none: add a [[class]]",
                peer.scheme_name, peer.name
            )),
            _ => {}
        }
        let waits = self.peers.iter().find(|peer| peer.endpoint.is_none());
        if let (0, Some(peer)) = (self.node.listen.port(), waits) {
            warnings.push(format!(
                "\"{}\" has no endpoint, and port 0 is a different one at each start: it can't \
                 know where to contact this node",
                peer.name
            ));
        }
        warnings
    }

    /// Packets for what is here never come to the relay.
    fn own_as_the_peers(&self, peer: &PeerConfig) -> Option<String> {
        let of_prefix = |prefix: &IpNet| {
            let is_host = prefix.prefix_len() == prefix.max_prefix_len();
            let is_own = self.node.addresses.iter().any(|own| own.addr() == prefix.addr());
            if is_host && is_own {
                return Some(format!(
                    "{prefix} is an address of this node itself (see addresses under [node]), and \
                     \"{}\" has it among its prefixes: packets for it never enter the tunnel; write \
                     the address of the peer",
                    peer.name
                ));
            }
            let local = self.node.local.iter().find(|local| local.contains(prefix))?;
            Some(format!(
                "{prefix}, a prefix of \"{}\", lies within {local}, which is at this node (see local \
                 under [node]): remove one of the two",
                peer.name
            ))
        };
        peer.prefixes.iter().find_map(of_prefix)
    }

    /// Transit goes by prefixes alone: it does not know which networks the kernel has other routes to.
    fn carried_past_site(&self) -> Option<String> {
        if !self.node.transit || !self.node.local.is_empty() {
            return None;
        }
        let is_default = |prefix: &IpNet| prefix.prefix_len() == 0;
        let with_default = |peer: &&PeerConfig| peer.prefixes.iter().any(is_default);
        let peer = self.peers.iter().find(with_default)?;
        let prefix = peer.prefixes.iter().find(|prefix| is_default(prefix))?;
        Some(format!(
            "with transit, all that comes for {prefix} goes on to \"{}\", and that is all but this \
             node's own `addresses`: if there are hosts at this site, name their networks under \
             [node], for instance local = [\"10.1.0.0/16\"]",
            peer.name
        ))
    }

    fn routing_loop(&self, peer: &PeerConfig) -> Option<String> {
        let endpoint = peer.endpoint.as_ref()?;
        let Some(ip) = endpoint.ip() else {
            let all = self.peers.iter().flat_map(|peer| &peer.prefixes);
            let default = all.into_iter().find(|prefix| prefix.prefix_len() == 0)?;
            return Some(format!(
                "{default} is routed into the tunnel: \"{}\" at {endpoint} must be reached by a \
                 route of its own, or its datagrams go round in circles",
                peer.name
            ));
        };
        let (through, prefix) = self.route(ip)?;
        Some(format!(
            "{ip}, the endpoint of \"{}\", is in {prefix}, which is routed to \"{}\": its \
             datagrams go round in circles, unless it has a route of its own outside of the tunnel (ip route \
             add {ip} via GATEWAY)",
            peer.name, through.name
        ))
    }
}

fn without_security(peer: &PeerConfig) -> Option<String> {
    if peer.security != Security::None {
        return None;
    }
    let who = match peer.endpoint {
        None => ", and whoever sends to this node's port first takes its place",
        Some(_) => "",
    };
    Some(format!(
        "datagrams to \"{}\" are neither encrypted nor authenticated{who}: security = \"none\" is \
         for paths that are protected already, such as WireGuard or IPsec",
        peer.name
    ))
}

fn past_the_tunnel(peer: &PeerConfig) -> Option<String> {
    (peer.on_dead == FailMode::Open && peer.security != Security::None).then(|| {
        format!(
            "while \"{}\" is not up, packets for its prefixes leave by other routes, unencrypted \
             (on_dead = \"open\"): remove on_dead, or write \"closed\", if they must not",
            peer.name
        )
    })
}

/// Codecs are picked for batches.
fn nothing_to_pick(peer: &PeerConfig) -> Option<String> {
    if !peer.picks_codec || !peer.scheme.compresses() || peer.picks_alone() {
        return None;
    }
    Some(format!(
        "\"{}\" has codec = \"auto\", which picks a codec for what the scheme \"auto\" gathers, and with the scheme \"{}\" \
         all is compressed with {}. Write that, or scheme = \"auto\"",
        peer.name, peer.scheme_name, peer.codec,
    ))
}

fn useless_dictionary(peer: &PeerConfig) -> Option<String> {
    (peer.dictionary.is_some() && peer.history == History::Off).then(|| {
        format!(
            "nothing that is sent to \"{}\" begins from its dictionary, since batches to it have no \
             history: that needs {}; what the peer sends may yet begin from it",
            peer.name,
            if history::refusal(peer).is_some() {
                "zstd and retransmit = \"auto\""
            } else {
                "history = \"host-pair\", or scheme = \"auto\""
            }
        )
    })
}

fn never_waits(peer: &PeerConfig) -> Option<String> {
    (peer.rate == RateConfig::Unlimited
        && matches!(
            peer.scheme.select,
            Select::Each(When::WaitingTime) | Select::Waiting { .. } | Select::Slack { .. }
        ))
    .then(|| {
        format!(
            "the rate to \"{}\" is \"unlimited\", so that nothing waits there and nothing will be \
             compressed: give the link's rate, or write scheme = \"none\" or \"all\"",
            peer.name
        )
    })
}
