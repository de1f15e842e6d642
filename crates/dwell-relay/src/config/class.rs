//! Classes of packets: `[[class]]`.

use dwell_base::text::printable;
use dwell_base::time::{MICRO_NS, SECOND_NS};
use dwell_policy::History;
use dwell_wire::PacketInfo;
use ipnet::IpNet;
use toml::de::DeValue;

use super::error::Errors;
use super::table::{Located, Table};
use super::{history, value};

/// The most classes.
pub const CLASSES_MAX: usize = 16;

/// The keys of `[[class]]`.
pub const CLASS_KEYS: [&str; 9] = [
    "name",
    "dscp",
    "protocols",
    "ports",
    "prefixes",
    "max_wait",
    "compress",
    "history",
    "retransmit",
];

/// Packets with something in common, and how they are treated. A packet is of the first class
/// whose conditions it all fulfils; an empty list is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// The class's name, in the status. No two are equal.
    pub name: String,
    /// Differentiated services code points, 0 to 63.
    pub dscp: Vec<u8>,
    /// IP protocols by their numbers.
    pub protocols: Vec<u8>,
    /// Ports of TCP and UDP, of the source or the destination.
    pub ports: Vec<PortRange>,
    /// Prefixes of the source or the destination.
    pub prefixes: Vec<IpNet>,
    /// The longest that a packet may take to the peer, in nanoseconds: schemes that fill
    /// datagrams hold it back only while that allows it. Without it it is never held back.
    pub max_wait_ns: Option<u64>,
    /// True if it may be compressed.
    pub compress: bool,
    /// What it may refer to, if that is not what the peer's `history` says: a fixed scope.
    pub history: Option<History>,
    /// True if it may be sent again if it was lost.
    pub retransmit: bool,
}

/// Ports of one protocol, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

impl PortRange {
    fn has(&self, info: &PacketInfo) -> bool {
        let ports = self.first..=self.last;
        let hit = ports.contains(&info.src_port) || ports.contains(&info.dst_port);
        info.protocol == self.protocol && hit
    }
}

impl ClassConfig {
    /// True if a packet fulfils all conditions.
    pub fn has(&self, info: &PacketInfo) -> bool {
        let within = |net: &IpNet| net.contains(&info.src) || net.contains(&info.dst);
        (self.dscp.is_empty() || self.dscp.contains(&info.dscp))
            && (self.protocols.is_empty() || self.protocols.contains(&info.protocol))
            && (self.ports.is_empty() || self.ports.iter().any(|range| range.has(info)))
            && (self.prefixes.is_empty() || self.prefixes.iter().any(within))
    }

    fn is_unconditional(&self) -> bool {
        self.dscp.is_empty()
            && self.protocols.is_empty()
            && self.ports.is_empty()
            && self.prefixes.is_empty()
    }
}

/// The class of a packet among `classes`, by its index.
pub fn class_of(classes: &[ClassConfig], info: &PacketInfo) -> Option<usize> {
    classes.iter().position(|class| class.has(info))
}

/// A timer in user space is not better than this.
const MAX_WAIT_NS_MIN: u64 = 200 * MICRO_NS;

/// Reads the tables of the classes.
pub(super) fn read(tables: &[Table<'_>], errors: &mut Errors<'_>) -> Vec<ClassConfig> {
    let mut classes: Vec<ClassConfig> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let class = read_one(table, index, errors);
        if classes.iter().any(|other| other.name == class.name) {
            let message = format!("two classes are called \"{}\": choose another name", class.name);
            table.fail_whole(message, errors);
        }
        if classes.last().is_some_and(ClassConfig::is_unconditional) {
            let message = "the class before it has no conditions, so that no packet comes to this \
                           one: exchange them, or give that one a condition";
            table.fail_whole(message.to_owned(), errors);
        }
        classes.push(class);
    }
    if let Some(table) = tables.get(CLASSES_MAX) {
        let message = format!("there can be no more than {CLASSES_MAX} classes");
        table.fail_whole(message, errors);
    }
    classes
}

fn read_one(table: &Table<'_>, index: usize, errors: &mut Errors<'_>) -> ClassConfig {
    table.refuse_unknown(&CLASS_KEYS, |_| None, errors);
    let name = table.get("name", errors, value::name);
    if name.is_none() && !table.has("name") {
        table.fail_whole("it has no name: add for instance name = \"sensors\"".to_owned(), errors);
    }
    let flag = |found: Option<Located<bool>>| found.is_none_or(|found| found.value);
    ClassConfig {
        name: name.map_or_else(|| format!("class {}", index + 1), |name| name.value),
        dscp: values(table.get_list("dscp", "[\"ef\", 10]", errors, dscp)),
        protocols: values(table.get_list("protocols", "[\"udp\"]", errors, protocol)),
        ports: values(table.get_list("ports", "[\"udp/5000-5010\"]", errors, port_range)),
        prefixes: values(table.get_list("prefixes", "[\"10.0.0.0/8\"]", errors, value::prefix)),
        max_wait_ns: table
            .get("max_wait", errors, |value| {
                value::duration_ns(value, MAX_WAIT_NS_MIN..=10 * SECOND_NS)
            })
            .map(|found| found.value),
        compress: flag(table.get("compress", errors, value::boolean)),
        history: table.get("history", errors, history::fixed).map(|found| found.value),
        retransmit: flag(table.get("retransmit", errors, value::boolean)),
    }
}

fn values<T>(list: Option<Vec<Located<T>>>) -> Vec<T> {
    list.unwrap_or_default().into_iter().map(|item| item.value).collect()
}

/// The names of RFC 2474, 2597, 3246, 5865 and 8622, and numbers.
fn dscp(value: &DeValue<'_>) -> Result<u8, String> {
    let Some(name) = value.as_str() else {
        return value::integer(value, 0..=63).map(|code| code as u8);
    };
    let named = [("be", 0), ("le", 1), ("ef", 46), ("va", 44)];
    let class = |prefix: &str| name.strip_prefix(prefix).filter(|rest| rest.len() <= 2);
    let digits = |text: &str| text.parse::<u8>().ok();
    let code = named
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, code)| code)
        .or_else(|| class("cs").and_then(digits).filter(|&n| n < 8).map(|n| 8 * n))
        .or_else(|| {
            let (class, drop) = class("af").and_then(digits).map(|n| (n / 10, n % 10))?;
            let exists = (1..=4).contains(&class) && (1..=3).contains(&drop);
            exists.then_some(8 * class + 2 * drop)
        });
    code.ok_or_else(|| {
        format!(
            "\"{}\" is no code point: write a number from 0 to 63, or ef, va, le, be, cs0 to cs7, \
             af11 to af43",
            printable(name)
        )
    })
}

fn protocol(value: &DeValue<'_>) -> Result<u8, String> {
    match value.as_str() {
        Some("tcp") => Ok(6),
        Some("udp") => Ok(17),
        Some("icmp") => Ok(1),
        Some("icmpv6") => Ok(58),
        Some("sctp") => Ok(132),
        Some(other) => Err(format!(
            "\"{}\" is no protocol known here: write tcp, udp, icmp, icmpv6, sctp, or a number",
            printable(other)
        )),
        None => value::integer(value, 0..=255).map(|number| number as u8),
    }
}

fn port_range(value: &DeValue<'_>) -> Result<PortRange, String> {
    let text = value.as_str().unwrap_or_default();
    let read = || {
        let (protocol, ports) = text.split_once('/')?;
        let protocol = match protocol {
            "tcp" => 6,
            "udp" => 17,
            _ => return None,
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(PortRange { protocol, first, last })
    };
    read().ok_or_else(|| {
        "must be ports such as \"udp/5000\" or \"tcp/8000-8010\", the lower one first".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Secret};
    use super::*;

    fn parse(classes: &str) -> Result<Vec<ClassConfig>, String> {
        let text = format!(
            "[[peer]]\nname = \"a\"\nprefixes = [\"::/0\"]\nsecurity = \"none\"\n{classes}"
        );
        Config::parse(&text, "a.toml", &|_| Ok(Secret::new([1; 32])))
            .map(|config| config.classes)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn all_conditions_must_hold_and_the_first_class_counts() {
        let classes = parse(
            "[[class]]\nname = \"voice\"\ndscp = [\"ef\", \"af41\", 3]\nmax_wait = \"0.2ms\"\n\
             compress = false\n\
             [[class]]\nname = \"meters\"\nports = [\"udp/5000-5010\", \"tcp/1883\"]\n\
             prefixes = [\"10.1.0.0/16\"]\nmax_wait = \"20ms\"\nretransmit = false\n\
             [[class]]\nname = \"rest\"\nprotocols = [\"udp\", 47]\n",
        )
        .unwrap();
        assert_eq!(classes[0].dscp, [46, 34, 3]);
        assert_eq!((classes[0].max_wait_ns, classes[0].compress), (Some(200_000), false));
        assert!(classes[1].compress && !classes[1].retransmit && classes[2].max_wait_ns.is_none());
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        packet.extend([0x13, 0x8a, 0, 9, 0, 8, 0, 0]); // from port 5002
        let of = |packet: &[u8]| class_of(&classes, &PacketInfo::parse(packet, 0).unwrap());
        assert_eq!(of(&packet), Some(1));
        packet[1] = 46 << 2;
        assert_eq!(of(&packet), Some(0));
        (packet[1], packet[13]) = (0, 9); // from 10.9.0.1
        assert_eq!(of(&packet), Some(2));
        packet[9] = 1;
        assert_eq!(of(&packet), None);
    }

    #[test]
    fn mistakes_are_reported_with_what_helps() {
        for (class, expected) in [
            ("dscp = [64]", "`dscp`"),
            ("dscp = [\"af44\"]", "\"af44\" is no code point: write a number from 0 to 63, or ef"),
            ("ports = [\"udp/9-5\"]", "the lower one first"),
            ("ports = [80]", "\"udp/5000\" or \"tcp/8000-8010\""),
            ("protocols = [\"upd\"]", "\"upd\" is no protocol known here"),
            ("max_wait = \"100us\"", "`max_wait`"),
            ("max_wiat = \"1ms\"", "did you mean `max_wait`?"),
            ("compress = 1", "`compress`"),
            ("history = \"auto\"", "there is no history \"auto\""),
            ("history = true", "a string such as \"host-pair\""),
        ] {
            let error = parse(&format!("[[class]]\nname = \"x\"\n{class}\n")).unwrap_err();
            assert!(error.contains(expected), "{class}: {error}");
        }
        let twice = "[[class]]\nname = \"x\"\ndscp = [1]\n".repeat(2);
        assert!(parse(&twice).unwrap_err().contains("two classes are called \"x\""));
        let never = "[[class]]\nname = \"all\"\n[[class]]\nname = \"x\"\n";
        assert!(parse(never).unwrap_err().contains("no packet comes to this one"));
        assert!(parse("[[class]]\n").unwrap_err().contains("it has no name"));
        assert!(parse("[class]\n").unwrap_err().contains("[[class]]"));
    }
}
