//! The two sides of a captured link, and so the direction of each packet.
//!
//! A capture holds both directions, and a link has a queue for each. A [`Learner`] sees all packets
//! once and [`Learner::finish`] chooses a rule that gives them a direction; [`Sides::direction`]
//! applies it. The first of these rules that explains [`AGREED_MIN`] of the bytes is used:
//!
//! 1. Marks: what the capture says itself (flags of pcapng, Linux cooked frames, PPP).
//! 2. Frames: the sending and receiving stations of Ethernet frames, parted in two sides so that
//!    as many bytes as possible go from one side to the other.
//! 3. Prefixes: private addresses (RFC 1918, RFC 4193, link-local) on one side, others on the other.
//! 4. Addresses: IP addresses parted in two sides as stations are.
//! 5. Ports: the client of each pair of hosts is on one side, its server on the other. This one
//!    always has an answer, and is a guess.
//!
//! A rule explains the bytes of a pair of hosts if it gives a direction to each packet, and
//! opposite ones to the two hosts. The clients' side is the first one.

mod graph;

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::net::IpAddr;

use dwell_wire::PacketInfo;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::graph::{Edge, color};
use crate::capture::{Mark, Packet};
use crate::keyed::KeyedMap;

/// The share of the bytes that a rule must explain to be used.
pub const AGREED_MIN: f64 = 0.9;
/// The most pairs of hosts that are kept; packets of further ones have no part in the choice.
pub const CONVERSATIONS_MAX: usize = 1 << 18;

/// The direction of a frame, by its own contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The direction at the interface that captured it.
    pub mark: Option<Mark>,
    /// The sending and the receiving station, if the frame names two different ones.
    pub stations: Option<(Station, Station)>,
}

/// A station's address (EUI-48), as a number.
pub type Station = u64;

/// The bit of a station's address that marks a group.
const GROUP_BIT: u64 = 1 << 40;

impl Ends {
    /// Reads a captured frame.
    #[inline]
    pub fn of(packet: &Packet<'_>) -> Self {
        let data = packet.data;
        let mut ends = Self { mark: packet.mark, stations: None };
        match packet.link.0 {
            // Ethernet.
            1 => {
                if let Some(head) = data.first_chunk::<12>() {
                    let station = |at: usize| {
                        head[at..at + 6].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
                    };
                    let (to, from) = (station(0), station(6));
                    ends.stations = (from != to).then_some((from, to));
                }
            }
            // Linux cooked: the type of packet.
            113 => ends.mark = ends.mark.or_else(|| data.get(1).copied().and_then(cooked)),
            276 => ends.mark = ends.mark.or_else(|| data.get(10).copied().and_then(cooked)),
            // PPP with directions.
            204 => {
                let mark = |&byte| if byte == 0 { Mark::In } else { Mark::Out };
                ends.mark = ends.mark.or_else(|| data.first().map(mark));
            }
            _ => {}
        }
        ends
    }

    fn is_to_many(&self) -> bool {
        self.stations.is_some_and(|(_, to)| to & GROUP_BIT != 0)
    }
}

fn cooked(kind: u8) -> Option<Mark> {
    match kind {
        0..=2 => Some(Mark::In),
        4 => Some(Mark::Out),
        _ => None,
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first side to the second.
    Forward,
    /// From the second side to the first.
    Backward,
    /// Between hosts of one side, by the rule: not over the link.
    Neither,
}

impl Direction {
    /// Returns the index of a direction over the link in tables of two.
    pub const fn index(self) -> Option<usize> {
        match self {
            Self::Forward => Some(0),
            Self::Backward => Some(1),
            Self::Neither => None,
        }
    }

    fn from_sides(from: Option<bool>, to: Option<bool>) -> Self {
        // An end on no known side is on the side opposite to the other one.
        match (from, to) {
            (Some(a), Some(b)) if a == b => Self::Neither,
            (Some(false), _) | (None, Some(true)) => Self::Forward,
            (Some(true), _) | (None, Some(false)) => Self::Backward,
            (None, None) => Self::Neither,
        }
    }
}

/// A rule for the direction of packets, the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// All packets go in one direction, as configured.
    OneWay,
    /// Prefixes that are configured to be on the first side.
    Inside,
    /// The capture's own marks.
    Marks,
    /// Stations of Ethernet frames.
    Frames,
    /// Private and public addresses.
    Prefixes,
    /// Addresses that talk to each other.
    Addresses,
    /// Clients and servers.
    Ports,
}

impl Rule {
    /// Returns its name in words, to stand after "by".
    pub const fn words(self) -> &'static str {
        match self {
            Self::OneWay => "what was selected",
            Self::Inside => "the prefixes of --inside",
            Self::Marks => "the capture's own marks",
            Self::Frames => "the stations of the Ethernet frames",
            Self::Prefixes => "private and public addresses",
            Self::Addresses => "which addresses talk to each other",
            Self::Ports => "clients and servers, which is a guess",
        }
    }
}

/// The sides of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    rule: Rule,
    agreed: f64,
    inside: Vec<IpNet>,
    stations: KeyedMap<Station, bool>,
    addresses: KeyedMap<IpAddr, bool>,
    /// The client of each pair of hosts, the lower address first: true if it is the higher one.
    clients: KeyedMap<(IpAddr, IpAddr), bool>,
    names: [String; 2],
}

impl Sides {
    /// Returns sides for which all packets go forward.
    pub fn one_way() -> Self {
        Self::new(Rule::OneWay, 1.0)
    }

    /// Returns sides of which these prefixes are the first, all else is the second.
    pub fn inside(prefixes: Vec<IpNet>) -> Self {
        let listed: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
        let names = [listed.join(", "), "elsewhere".to_owned()];
        Self { inside: prefixes, names, ..Self::new(Rule::Inside, 1.0) }
    }

    fn new(rule: Rule, agreed: f64) -> Self {
        Self {
            rule,
            agreed,
            inside: Vec::new(),
            stations: KeyedMap::default(),
            addresses: KeyedMap::default(),
            clients: KeyedMap::default(),
            names: ["the first side".to_owned(), "the second side".to_owned()],
        }
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// The share of the bytes that the rule explains, 0 to 1.
    pub fn agreed(&self) -> f64 {
        self.agreed
    }

    /// The sides' names, for sentences.
    pub fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// Returns the direction of a packet.
    #[inline]
    pub fn direction(&self, ends: &Ends, info: &PacketInfo) -> Direction {
        match self.rule {
            Rule::OneWay => Direction::Forward,
            Rule::Inside => {
                let is_inside =
                    |address: &IpAddr| self.inside.iter().any(|prefix| prefix.contains(address));
                match (is_inside(&info.src), is_inside(&info.dst)) {
                    (true, true) => Direction::Neither,
                    (true, false) => Direction::Forward,
                    (false, true) => Direction::Backward,
                    (false, false) => Direction::Neither,
                }
            }
            Rule::Marks => match ends.mark {
                Some(Mark::Out) => Direction::Forward,
                Some(Mark::In) => Direction::Backward,
                None => Direction::Neither,
            },
            Rule::Frames => {
                let side = |station: Station| self.stations.get(&station).copied();
                match ends.stations {
                    // Captures of links without stations may be among others.
                    None => self.by_addresses(ends, info),
                    Some((from, _)) if ends.is_to_many() => Direction::from_sides(side(from), None),
                    Some((from, to)) => Direction::from_sides(side(from), side(to)),
                }
            }
            Rule::Prefixes => by_prefix(info.src, info.dst),
            Rule::Addresses => self.by_addresses(ends, info),
            Rule::Ports if info.src == info.dst => by_ports(info),
            Rule::Ports => {
                let (key, is_from_higher) = key(info.src, info.dst);
                match self.clients.get(&key) {
                    Some(&is_client_higher) if is_client_higher == is_from_higher => {
                        Direction::Forward
                    }
                    Some(_) => Direction::Backward,
                    None => by_ports(info),
                }
            }
        }
    }

    fn by_addresses(&self, ends: &Ends, info: &PacketInfo) -> Direction {
        // Within a host only ports show the direction.
        if info.src == info.dst {
            return by_ports(info);
        }
        let side = |address: IpAddr| self.addresses.get(&address).copied();
        let from = side(info.src);
        match is_many(info.dst) || ends.is_to_many() {
            // A host that only ever sends to many has no known side: it counts as one of the
            // clients.
            true => Direction::from_sides(from.or(Some(false)), None),
            false => Direction::from_sides(from, side(info.dst)),
        }
    }
}

/// The pair in the order of its addresses, and whether the first was the higher one.
fn key(src: IpAddr, dst: IpAddr) -> ((IpAddr, IpAddr), bool) {
    if src <= dst { ((src, dst), false) } else { ((dst, src), true) }
}

/// Returns the direction by ports: the lower port is the server's.
fn by_ports(info: &PacketInfo) -> Direction {
    if info.src_port < info.dst_port { Direction::Backward } else { Direction::Forward }
}

fn by_prefix(src: IpAddr, dst: IpAddr) -> Direction {
    match (is_private(src), is_private(dst)) {
        (true, false) => Direction::Forward,
        (false, true) => Direction::Backward,
        _ => Direction::Neither,
    }
}

/// Returns true for multicast and broadcast.
fn is_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_private() || address.is_link_local() || address.is_loopback()
        }
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80 || address.is_loopback()
        }
    }
}

/// Learns the sides from the packets of a capture.
#[derive(Clone, Debug, Default)]
pub struct Learner {
    /// Whatever follows from them must not depend on their order, which is that of a hash.
    conversations: KeyedMap<(IpAddr, IpAddr), [Half; 2]>,
}

/// The traffic of one of two hosts to the other.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    bytes: u64,
    /// Of these, bytes marked as coming in and as going out.
    marked: [u64; 2],
    /// The stations of the first frame, and the bytes of frames that name them.
    stations: Option<(Station, Station)>,
    same_stations: u64,
    /// Bytes to a lower port, and to a higher one.
    to_server: u64,
    to_client: u64,
    /// True if it goes to many, which says nothing about their side.
    is_to_many: bool,
}

impl Learner {
    /// Adds a packet.
    pub fn observe(&mut self, ends: &Ends, info: &PacketInfo) {
        self.observe_bytes(ends, info, info.total_len as u64);
    }

    /// Adds packets with so many bytes, which have this packet's ends, addresses and order of ports.
    pub(crate) fn observe_bytes(&mut self, ends: &Ends, info: &PacketInfo, bytes: u64) {
        let (key, is_from_higher) = key(info.src, info.dst);
        let is_full = self.conversations.len() >= CONVERSATIONS_MAX;
        let halves = match self.conversations.get_mut(&key) {
            Some(halves) => halves,
            None if is_full => return,
            None => self.conversations.entry(key).or_default(),
        };
        let half = &mut halves[usize::from(is_from_higher)];
        half.bytes += bytes;
        if let Some(mark) = ends.mark {
            half.marked[usize::from(mark == Mark::Out)] += bytes;
        }
        if half.stations.is_none() {
            half.stations = ends.stations;
        }
        if half.stations.is_some() && half.stations == ends.stations {
            half.same_stations += bytes;
        }
        match info.src_port.cmp(&info.dst_port) {
            Ordering::Greater => half.to_server += bytes,
            Ordering::Less => half.to_client += bytes,
            Ordering::Equal => {}
        }
        half.is_to_many = is_many(info.dst) || ends.is_to_many();
    }

    /// Returns the sides, by the first rule that explains enough.
    pub fn finish(self) -> Sides {
        let total = self.bytes(|_, _| true);
        let framed = |half: &Half| if half.stations.is_some() { half.bytes } else { 0 };
        let framed: u64 = self.halves().map(|(_, half)| framed(half)).sum();
        let found = [Rule::Marks, Rule::Frames, Rule::Prefixes, Rule::Addresses]
            .into_iter()
            // Packets without stations are parted by addresses: they must not be most.
            .filter(|rule| *rule != Rule::Frames || framed * 2 >= total.max(1))
            .map(|rule| self.sides(rule))
            .map(|sides| Sides { agreed: self.share(&sides, total), ..sides })
            .find(|sides| sides.agreed >= AGREED_MIN);
        let mut sides = found.unwrap_or_else(|| self.sides(Rule::Ports));
        sides.names = self.names(&sides);
        sides
    }

    fn sides(&self, rule: Rule) -> Sides {
        let mut sides = Sides::new(rule, 1.0);
        match rule {
            Rule::Frames => {
                let edges = self.halves().filter_map(|(_, half)| {
                    let (from, to) = half.stations.filter(|_| !half.is_to_many)?;
                    Some(Edge { from, to, bytes: half.same_stations, clients: half.clients() })
                });
                sides.stations = color(edges);
                sides.addresses = self.addresses(|half| half.stations.is_none());
            }
            Rule::Addresses => sides.addresses = self.addresses(|_| true),
            Rule::Ports => {
                let clients = self
                    .conversations
                    .iter()
                    .map(|(&key, [lower, higher])| (key, higher.clients() - lower.clients() > 0));
                sides.clients = clients.collect();
            }
            _ => {}
        }
        sides
    }

    /// Returns the sides of addresses, by those pairs for which `is` returns true.
    fn addresses(&self, is: impl Fn(&Half) -> bool) -> KeyedMap<IpAddr, bool> {
        let edges = self.halves().filter(|(_, half)| !half.is_to_many && is(half));
        color(edges.map(|((from, to), half)| {
            let (bytes, clients) = (half.bytes, half.clients());
            Edge { from, to, bytes, clients }
        }))
    }

    /// Returns the traffic of each host to another.
    fn halves(&self) -> impl Iterator<Item = ((IpAddr, IpAddr), &Half)> {
        self.conversations.iter().flat_map(|(&(lower, higher), [a, b])| {
            [((lower, higher), a), ((higher, lower), b)].into_iter().filter(|(_, h)| h.bytes > 0)
        })
    }

    /// Returns the bytes of pairs for which `is` returns true, without those to many.
    fn bytes(&self, is: impl Fn(&(IpAddr, IpAddr), &[Half; 2]) -> bool) -> u64 {
        let of = |half: &Half| if half.is_to_many { 0 } else { half.bytes };
        let pairs = self.conversations.iter().filter(|(key, halves)| is(key, halves));
        pairs.map(|(_, halves)| halves.iter().map(of).sum::<u64>()).sum()
    }

    /// Returns the share of the bytes that this rule explains.
    fn share(&self, sides: &Sides, total: u64) -> f64 {
        let explained = self.bytes(|&(lower, higher), [a, b]| {
            let forward = a.direction(sides, (lower, higher));
            let back = b.direction(sides, (higher, lower));
            match (a.counts(), b.counts()) {
                (true, true) => forward.index().zip(back.index()).is_some_and(|(a, b)| a != b),
                (true, false) => forward != Direction::Neither,
                (false, true) => back != Direction::Neither,
                (false, false) => false,
            }
        });
        match (total, sides.rule) {
            // Nothing but packets to many.
            (0, Rule::Addresses) => 1.0,
            (0, _) => 0.0,
            _ => explained as f64 / total as f64,
        }
    }

    /// Returns the names of the sides: the address that sends the most, and the number of the
    /// others.
    fn names(&self, sides: &Sides) -> [String; 2] {
        if sides.rule == Rule::Marks {
            return ["this interface".to_owned(), "its link".to_owned()];
        }
        let mut found: [BTreeMap<IpAddr, u64>; 2] = Default::default();
        for ((from, to), half) in self.halves() {
            let Some(side) = half.direction(sides, (from, to)).index() else { continue };
            *found[side].entry(from).or_default() += half.bytes;
            if !half.is_to_many {
                found[1 - side].entry(to).or_default();
            }
        }
        let names = found.map(|addresses| {
            let most = addresses.iter().max_by_key(|&(address, sent)| (*sent, Reverse(*address)));
            match (most, addresses.len()) {
                (None, _) => "nobody".to_owned(),
                (Some((address, _)), 1) => address.to_string(),
                (Some((address, _)), 2) => format!("{address} and 1 other"),
                (Some((address, _)), count) => format!("{address} and {} others", count - 1),
            }
        });
        match names {
            [clients, servers] if clients == servers => {
                [format!("{clients} (clients)"), format!("{servers} (servers)")]
            }
            names => names,
        }
    }
}

impl Half {
    fn counts(&self) -> bool {
        self.bytes > 0 && !self.is_to_many
    }

    /// Returns the weight of the evidence that the sender is a client, in bytes.
    fn clients(&self) -> i64 {
        let clamp = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        clamp(self.to_server).saturating_sub(clamp(self.to_client))
    }

    /// Returns the direction of its packets, if nearly all of them have the same.
    fn direction(&self, sides: &Sides, (src, dst): (IpAddr, IpAddr)) -> Direction {
        let is_most = |part: u64| part as f64 >= AGREED_MIN * self.bytes as f64;
        let mark = match self.marked {
            [r#in, _] if is_most(r#in) => Some(Mark::In),
            [_, out] if is_most(out) => Some(Mark::Out),
            _ => None,
        };
        let stations = self.stations.filter(|_| is_most(self.same_stations));
        let info = PacketInfo {
            version: 4,
            protocol: 0,
            flow_hash: 0,
            src_port: 0,
            dst_port: 0,
            dscp: 0,
            header_len: 0,
            total_len: 0,
            fragment: false,
            dont_fragment: false,
            tcp_syn: false,
            src,
            dst,
        };
        sides.direction(&Ends { mark, stations }, &info)
    }
}

#[cfg(test)]
mod tests;
