//! Which peer an inner address belongs to.

use std::net::IpAddr;

use ipnet::IpNet;

/// Prefixes and the peers that they lead to; the longest match wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Longest first.
    entries: Vec<(IpNet, usize)>,
    /// The last answer: packets of a flow come in a row.
    last: Option<(IpAddr, usize)>,
}

impl Prefixes {
    pub(crate) fn new(entries: impl IntoIterator<Item = (IpNet, usize)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Self { entries, last: None }
    }

    /// The peer that this address belongs to.
    pub(crate) fn peer_of(&mut self, address: IpAddr) -> Option<usize> {
        match self.last {
            Some((last, peer)) if last == address => Some(peer),
            _ => {
                let (_, peer) = *self.entries.iter().find(|(net, _)| net.contains(&address))?;
                self.last = Some((address, peer));
                Some(peer)
            }
        }
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
}
