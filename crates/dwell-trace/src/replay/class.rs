//! Classes of packets that have a deadline: their conditions, and the longest that they may wait.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use dwell_base::time::{format_duration_ns, parse_duration_ns};
use dwell_policy::ClassKey;
use dwell_wire::PacketInfo;
use thiserror::Error;

/// The most classes of a replay.
pub const DEADLINE_CLASSES_MAX: usize = 16;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
const DSCP_MAX: u8 = 63;

/// A class of packets and its largest acceptable waiting time (W of Sawabe, Tsukamoto and Oie,
/// "Efficient QoS-aware Packet Chunking Scheme for M2M Cloud Services", section 3.2).
///
/// As text: a name, the conditions on its packets, and the time, as in `voice:dscp=46:20ms` or
/// `telemetry:udp/5683,udp/1883:100ms`. Conditions on different fields must all hold; of several on
/// protocol and ports, one suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineClass {
    /// Its name in reports.
    pub name: String,
    /// The differentiated services code point; none for any.
    pub dscp: Option<u8>,
    /// The protocols and ports, any of which matches; empty for all.
    pub services: Vec<Service>,
    /// The longest that its packets may wait, in nanoseconds.
    pub wait_ns_max: u64,
}

/// A protocol, and ports of it at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The IP protocol's number.
    pub protocol: u8,
    /// The ports; none for every packet of the protocol.
    pub ports: Option<RangeInclusive<u16>>,
}

impl DeadlineClass {
    /// Returns true if a packet is of this class.
    pub fn matches(&self, info: &PacketInfo) -> bool {
        let service = |service: &Service| {
            let is = |port| service.ports.as_ref().is_none_or(|ports| ports.contains(&port));
            let protocol = match info.protocol {
                ICMP_V6 => ICMP,
                other => other,
            };
            service.protocol == protocol && (is(info.src_port) || is(info.dst_port))
        };
        self.dscp.is_none_or(|dscp| dscp == info.dscp)
            && (self.services.is_empty() || self.services.iter().any(service))
    }
}

/// A reason why a text is no class.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseClassError {
    /// Not three parts.
    #[error(
        "\"{0}\" is no class: write its name, what it is known by and how long it may wait, \
         as in voice:dscp=46:20ms or telemetry:udp/5683:100ms"
    )]
    Parts(String),
    /// A condition that is none.
    #[error(
        "\"{0}\" is nothing that packets are known by: use dscp=0 to dscp=63, tcp, udp, icmp, \
         ip/NUMBER, tcp/PORT or udp/FIRST-LAST"
    )]
    Condition(String),
    /// The time is none.
    #[error("{0}")]
    Time(String),
}

impl FromStr for DeadlineClass {
    type Err = ParseClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let [name, conditions, time] = parts[..] else {
            return Err(ParseClassError::Parts(text.to_owned()));
        };
        if name.is_empty() {
            return Err(ParseClassError::Parts(text.to_owned()));
        }
        let wait_ns_max = parse_duration_ns(time).map_err(ParseClassError::Time)?;
        let mut class =
            Self { name: name.to_owned(), dscp: None, services: Vec::new(), wait_ns_max };
        for condition in conditions.split(',').map(str::trim) {
            let bad = || ParseClassError::Condition(condition.to_owned());
            match condition.strip_prefix("dscp=") {
                Some(_) if class.dscp.is_some() => return Err(bad()),
                Some(number) => {
                    let dscp: u8 = number.parse().map_err(|_| bad())?;
                    class.dscp = Some(dscp).filter(|&d| d <= DSCP_MAX);
                    class.dscp.ok_or_else(bad)?;
                }
                None => class.services.push(service(condition).ok_or_else(bad)?),
            }
        }
        Ok(class)
    }
}

fn service(text: &str) -> Option<Service> {
    let (name, rest) = match text.split_once('/') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let all = |protocol| Some(Service { protocol, ports: None });
    let ports = |protocol| match rest {
        None => all(protocol),
        Some(rest) => {
            let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(Service { protocol, ports: Some(first..=last) })
        }
    };
    match (name, rest) {
        ("tcp", _) => ports(TCP),
        ("udp", _) => ports(UDP),
        ("icmp", None) => all(ICMP),
        ("ip", Some(number)) => all(number.parse().ok()?),
        _ => None,
    }
}

impl fmt::Display for DeadlineClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at most {}", self.name, format_duration_ns(self.wait_ns_max))
    }
}

/// Reads a class of protocol and port as [`ClassKey`] shows it: `tcp/443`, `icmp`, `icmpv6`,
/// `ip47`, `ip132/9`.
///
/// # Errors
/// Returns an error message, if it is none.
pub fn parse_class_key(text: &str) -> Result<ClassKey, String> {
    let error =
        || format!("\"{text}\" is no class of packets: write for instance tcp/443, udp/53 or icmp");
    let (protocol, port) = match text.trim().split_once('/') {
        Some((protocol, port)) => (protocol, Some(port)),
        None => (text.trim(), None),
    };
    let protocol = match (protocol, port) {
        ("icmp", None) => ICMP,
        ("icmpv6", None) => ICMP_V6,
        ("tcp", Some(_)) => TCP,
        ("udp", Some(_)) => UDP,
        (other, _) => {
            let number = other.strip_prefix("ip").and_then(|number| number.parse().ok());
            number.ok_or_else(error)?
        }
    };
    let port = port.map_or(Ok(0), str::parse).map_err(|_| error())?;
    Ok(ClassKey::new(protocol, port))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn info(protocol: u8, ports: (u16, u16), dscp: u8) -> PacketInfo {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        PacketInfo {
            version: 4,
            protocol,
            flow_hash: 0,
            src_port: ports.0,
            dst_port: ports.1,
            dscp,
            header_len: 28,
            total_len: 100,
            fragment: false,
            dont_fragment: false,
            tcp_syn: false,
            src: address,
            dst: address,
        }
    }

    #[test]
    fn classes_are_read_and_matched() {
        let voice: DeadlineClass = "voice:dscp=46:20ms".parse().unwrap();
        assert_eq!((voice.name.as_str(), voice.wait_ns_max), ("voice", 20_000_000));
        assert!(voice.matches(&info(6, (1, 2), 46)) && !voice.matches(&info(6, (1, 2), 0)));
        let both: DeadlineClass = "x: dscp=8, udp/5000-5010, tcp :1s".parse().unwrap();
        assert!(both.matches(&info(17, (9, 5010), 8)) && both.matches(&info(17, (5000, 9), 8)));
        assert!(!both.matches(&info(17, (5011, 9), 8)) && both.matches(&info(6, (1, 1), 8)));
        assert!(!both.matches(&info(6, (1, 1), 9)));
        let icmp: DeadlineClass = "ping:icmp:5ms".parse().unwrap();
        assert!(icmp.matches(&info(1, (0, 0), 0)) && icmp.matches(&info(58, (0, 0), 0)));
    }

    #[test]
    fn keys_are_read_as_they_are_shown() {
        for text in ["tcp/443", "udp/53", "icmp", "icmpv6", "ip47/0", "ip132/9"] {
            assert_eq!(parse_class_key(text).unwrap().to_string(), text);
        }
        for bad in ["", "tcp", "tcp/", "https", "ip", "ip300", "udp/65536"] {
            assert!(parse_class_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_class_is_reported() {
        let parts = ["", "voice", "a:b", ":tcp:1s", "a:tcp:1s:2"];
        for bad in parts {
            let error = bad.parse::<DeadlineClass>().unwrap_err();
            assert!(matches!(error, ParseClassError::Parts(_)), "{bad}: {error}");
        }
        for bad in ["dscp=64", "dscp=", "sctp", "tcp/", "udp/9-8", "tcp/70000", "ip/x", ""] {
            let error = format!("a:{bad}:1s").parse::<DeadlineClass>().unwrap_err();
            assert!(matches!(error, ParseClassError::Condition(_)), "{bad}: {error}");
        }
        let error = "a:tcp:20".parse::<DeadlineClass>().unwrap_err();
        assert!(error.to_string().contains("20ms"), "{error}");
    }
}
