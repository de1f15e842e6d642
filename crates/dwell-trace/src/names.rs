//! The IANA's names of ports and protocols.

use std::collections::HashMap;
use std::sync::LazyLock;

use dwell_policy::ClassKey;

const TCP: u8 = 6;
const UDP: u8 = 17;

static SERVICES: LazyLock<HashMap<ClassKey, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("services.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    rows.flat_map(|(key, name)| {
        let (port, protocols) = match key.split_once('/') {
            Some((port, protocol)) => (port, [protocol.parse().ok(), None]),
            None => (key, [Some(TCP), Some(UDP)]),
        };
        let port = port.parse().ok();
        protocols
            .into_iter()
            .flatten()
            .filter_map(move |protocol| Some((ClassKey::new(protocol, port?), name)))
    })
    .collect()
});

/// Returns the name of a class in the IANA's registry of ports (`https`, `domain`); of protocols
/// without ports, that of the protocol (`gre`). Empty if there is none.
pub fn class_name(class: ClassKey) -> &'static str {
    match class.protocol() {
        TCP | UDP => match (class.port(), SERVICES.get(&class)) {
            (_, Some(name)) => name,
            // The registry has another word for it; fragments are counted here.
            (0, None) => "reserved",
            (_, None) => "",
        },
        other => protocol_name(other).unwrap_or_default(),
    }
}

/// Returns the name of an IP protocol, for the few that occur: `tcp`, `gre`.
pub fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        0 => "hopopt",
        1 => "icmp",
        2 => "igmp",
        4 => "ipv4",
        TCP => "tcp",
        8 => "egp",
        9 => "igp",
        UDP => "udp",
        41 => "ipv6",
        43 => "ipv6-route",
        44 => "ipv6-frag",
        46 => "rsvp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "ipv6-icmp",
        59 => "ipv6-nonxt",
        60 => "ipv6-opts",
        88 => "eigrp",
        89 => "ospf",
        94 => "ipip",
        97 => "etherip",
        103 => "pim",
        108 => "ipcomp",
        112 => "vrrp",
        115 => "l2tp",
        132 => "sctp",
        136 => "udplite",
        137 => "mpls-in-ip",
        142 => "rohc",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_read() {
        let name = |protocol, port| class_name(ClassKey::new(protocol, port));
        assert_eq!((name(6, 443), name(17, 53), name(6, 4662)), ("https", "domain", "oms"));
        assert_eq!(
            (name(6, 0), name(17, 65_000), name(47, 0), name(253, 0)),
            ("reserved", "", "gre", "")
        );
        assert!(SERVICES.len() > 10_000);
    }
}
