//! The party behind an address: places are divided among parties.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or a network of IPv6 (64 bits): one party has all of it, so that a machine with a
/// network of its own is not taken for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    /// The source that an address belongs to.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(ip) => {
                let prefix = u128::from(ip) >> 64 << 64;
                Self(Ipv6Addr::from(prefix).into())
            }
            v4 => Self(v4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_ipv6_and_addresses_of_ipv4_are_sources() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
