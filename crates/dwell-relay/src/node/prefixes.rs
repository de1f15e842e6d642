//! Which peer an inner address belongs to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dwell_wire::Label;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Addresses that no router forwards by its routes alone, whatever prefixes say: "this" network,
/// loopback,
/// link-local addresses, multicast, and the broadcast. The kernel knows what becomes of them. (RFC 6890,
/// RFC 4291, sections 2.4 and 2.5.)
const NEVER_ROUTED: [IpNet; 9] = [
    v4([0, 0, 0, 0], 8),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([224, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
    v6(Ipv6Addr::UNSPECIFIED, 128),
    v6(Ipv6Addr::LOCALHOST, 128),
    v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits))
}

const fn v6(address: Ipv6Addr, bits: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(address, bits))
}

/// Prefixes and the peers that they lead to; the longest match wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Longest first.
    entries: Vec<(IpNet, usize)>,
    /// The last answer, an entry: packets of a flow come in a row.
    last: Option<(IpAddr, usize)>,
}

/// The peers to which packets from one peer go without being opened: all addresses of a label must
/// have the same next hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// Longest first; no peer for what stays here.
    entries: Vec<(IpNet, Option<usize>)>,
    /// The last answer.
    last: Option<(Label, Option<usize>)>,
}

impl Routes {
    /// Routes to peers. What lies in a network at this node stays, unless a peer has a longer
    /// prefix.
    pub(crate) fn new(
        local: impl IntoIterator<Item = IpNet>,
        peers: impl IntoIterator<Item = (IpNet, usize)>,
    ) -> Self {
        let local = local.into_iter().map(|net| (net.trunc(), None));
        let peers = peers.into_iter().map(|(net, peer)| (net, Some(peer)));
        let mut entries: Vec<_> = local.chain(peers).collect();
        // The sort is stable: of two equal networks the local one goes first.
        entries.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Self { entries, last: None }
    }

    /// The only peer that the label's addresses belong to.
    pub(crate) fn peer_of(&mut self, label: &Label) -> Option<usize> {
        match self.last {
            Some((last, peer)) if last == *label => peer,
            _ => {
                let peer = self.find(label);
                self.last = Some((*label, peer));
                peer
            }
        }
    }

    fn find(&self, label: &Label) -> Option<usize> {
        let all = IpNet::new(label.address(), label.bits()).ok()?;
        if NEVER_ROUTED.iter().any(|net| net.contains(&all) || all.contains(net)) {
            return None;
        }
        // The longest that has all of them, and those before it that have a part.
        let at = self.entries.iter().position(|(net, _)| net.contains(&all))?;
        let (longer, peer) = (&self.entries[..at], self.entries[at].1?);
        let mut parts = longer.iter().filter(|(net, _)| all.contains(net));
        parts.all(|(_, owner)| *owner == Some(peer)).then_some(peer)
    }
}

impl Prefixes {
    pub(crate) fn new(entries: impl IntoIterator<Item = (IpNet, usize)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Self { entries, last: None }
    }

    /// The peer that this address belongs to.
    #[inline]
    pub(crate) fn peer_of(&mut self, address: IpAddr) -> Option<usize> {
        let at = self.entry_of(address)?;
        Some(self.entries[at].1)
    }

    /// The number of the prefix that this address belongs to.
    #[inline]
    pub(crate) fn entry_of(&mut self, address: IpAddr) -> Option<usize> {
        match self.last {
            Some((last, at)) if last == address => Some(at),
            _ => {
                let at = self.entries.iter().position(|(net, _)| net.contains(&address))?;
                self.last = Some((address, at));
                Some(at)
            }
        }
    }

    /// The number of the prefix that all addresses of a label belong to; none if there is no such,
    /// or some belong to longer ones.
    pub(crate) fn entry_of_all(&self, label: &Label) -> Option<usize> {
        let all = IpNet::new(label.address(), label.bits()).ok()?;
        let touched = |(net, _): &(IpNet, usize)| net.contains(&all) || all.contains(net);
        let at = self.entries.iter().position(touched)?;
        self.entries[at].0.contains(&all).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_match_wins() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let mut prefixes = Prefixes::new([
            (net("10.0.0.0/8"), 0),
            (net("10.1.0.0/16"), 1),
            (net("fd00::/8"), 2),
            (net("0.0.0.0/0"), 3),
        ]);
        for (address, peer) in [
            ("10.1.2.3", Some(1)),
            ("10.2.2.3", Some(0)),
            ("192.0.2.1", Some(3)),
            ("fd00::1", Some(2)),
            ("2001:db8::1", None),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(prefixes.peer_of(address), peer);
            assert_eq!(prefixes.peer_of(address), peer); // and again from memory
        }
    }
    #[test]
    fn a_label_goes_one_way_only() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let label = |text: &str| {
            let net = net(text);
            Label::new(net.addr(), net.prefix_len())
        };
        let mut routes = Routes::new(
            [net("10.1.9.1/24"), net("172.16.0.1/12")],
            [
                (net("10.0.0.0/8"), 0),
                (net("10.1.0.0/16"), 1),
                (net("10.2.0.0/16"), 0),
                (net("172.16.4.0/24"), 2),
                (net("fd00::/8"), 1),
            ],
        );
        for (text, peer) in [
            ("10.1.2.3/32", Some(1)),
            ("10.1.9.7/32", None), // here
            ("10.1.8.0/23", None), // partly here
            ("10.1.0.0/16", None), // the same
            ("10.1.128.0/17", Some(1)),
            ("10.0.0.0/14", None),    // of two
            ("10.2.0.0/15", Some(0)), // a longer prefix of the same peer
            ("10.4.0.0/16", Some(0)),
            ("0.0.0.0/0", None), // more than anybody has
            ("172.16.4.9/32", Some(2)),
            ("172.16.4.0/23", None),
            ("192.0.2.1/32", None),
            ("fd00::/64", Some(1)),
            ("::/0", None),
        ] {
            assert_eq!(routes.peer_of(&label(text)), peer, "{text}");
            assert_eq!(routes.peer_of(&label(text)), peer, "{text}, from memory");
        }
    }

    #[test]
    fn what_is_not_routed_stays_whatever_prefixes_say() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let all = ["0.0.0.0/0", "::/0", "224.0.1.0/24", "fe80::/64"].map(|text| (net(text), 0));
        let mut routes = Routes::new([], all);
        for (text, goes) in [
            ("0.0.0.0/32", false),
            ("127.0.0.1/32", false),
            ("169.254.7.7/32", false),
            ("224.0.1.9/32", false),
            ("239.1.1.1/32", false),
            ("255.255.255.255/32", false),
            ("::/128", false),
            ("::1/128", false),
            ("fe80::1/128", false),
            ("fe80::/64", false),
            ("ff02::1/128", false),
            ("128.0.0.0/1", false), // has some of them
            ("::/0", false),
            ("198.51.100.1/32", true),
            ("192.0.2.0/24", true),
            ("128.0.0.0/3", true),
            ("2001:db8::/64", true),
        ] {
            let label = Label::new(net(text).addr(), net(text).prefix_len());
            assert_eq!(routes.peer_of(&label).is_some(), goes, "{text}");
        }
    }

    #[test]
    fn all_of_a_label_are_in_one_prefix_or_not() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let prefixes = Prefixes::new([(net("10.0.0.0/8"), 0), (net("10.1.0.0/16"), 0)]);
        let entry = |text: &str| {
            let net = net(text);
            prefixes.entry_of_all(&Label::new(net.addr(), net.prefix_len()))
        };
        assert_eq!(entry("10.1.2.0/24"), Some(0));
        assert_eq!(entry("10.2.0.0/16"), Some(1));
        assert_eq!(entry("10.0.0.0/14"), None);
        assert_eq!(entry("192.0.2.0/24"), None);
    }
}
