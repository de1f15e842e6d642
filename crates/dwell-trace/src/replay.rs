//! Replays of a capture through schemes on a link: its packets as arrivals, the decision core of
//! the relay in virtual time, and real codecs on the real bytes.
//!
//! A link has a queue for each direction, so packets are distinguished by their direction
//! ([`crate::sides`]). For each direction a [`Replay`] has a lane for each scheme, and one without
//! dwell. All of them see the same packets at the same times; each has a [`dwell_policy::Port`], a
//! link, and a compression of its own. Sources don't react: TCP's reactions to drops and delays are
//! not replayed, and neither are the messages between peers (hellos, probes, reports).
//!
//! Time is virtual. With a given cost of compressing ([`compress::GivenCost`]) the result follows from
//! capture and settings alone; with a measured one, the codecs' time on this machine goes into
//! it.

mod batches;
pub mod class;
pub mod compress;
pub mod content;
pub mod cut;
pub mod input;
pub mod lane;
pub mod link;
pub mod merge;
pub mod report;
#[cfg(test)]
pub(crate) mod samples;
pub mod simulated;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod view;

use std::net::IpAddr;
use std::sync::Arc;

use dwell_codec::content::{ContentClass, classify_packet};
use dwell_codec::{CodecError, CodecSpec};
use dwell_drive::group_key;
use dwell_policy::{
    ClassKey, ClassTimers, ConfigError, Estimates, Gather, LearnedConfig, Objective, PRESETS,
    PortConfig, Queue, QueueLimit, Ratio, Scheme,
};
use dwell_wire::PacketInfo;
use ipnet::IpNet;
use thiserror::Error;

use self::class::{DEADLINE_CLASSES_MAX, DeadlineClass};
use self::compress::{CodecCompressor, Cost, Dictionaries};
use self::content::{Composition, Sorter};
use self::input::{Input, InputCounts, Spelled};
use self::lane::{Arriving, Lane, LaneSetup};
use self::link::{Link, PATH_MTU_MIN};
use self::report::{DirectionReport, LaneReport, ReplayReport};
use crate::contexts::{CONTEXTS_MAX, Contexts};
use crate::sides::{Rule, Sides};

/// The name of the lane without relays.
pub const WITHOUT: &str = "without dwell";

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The link.
    pub link: Link,
    /// The schemes and their names, all different. There is always a lane without dwell before
    /// them. Those that fill frames hold back packets of [`Settings::classes`].
    pub schemes: Vec<(String, Scheme)>,
    /// The codec that compresses packets.
    pub codec: CodecSpec,
    /// Dictionaries, for schemes with contexts and for others; all schemes are replayed without, too.
    pub dictionaries: Dictionaries,
    /// The limit of the queue; in the lane without dwell too.
    pub limit: QueueLimit,
    /// Packets below this size are not compressed.
    pub compress_bytes_min: u32,
    /// True if the headers of a block's packets are rearranged in columns before they are
    /// compressed.
    pub columnar: bool,
    /// A result at or above this ratio is too poor for its time.
    pub poor_ratio: Ratio,
    /// What schemes save that can gather packets (`auto`); others save time.
    pub objective: Objective,
    /// Classes that are never compressed.
    pub exceptions: Vec<ClassKey>,
    /// Classes that have a deadline; the first that matches applies.
    pub classes: Vec<DeadlineClass>,
    /// The prefixes whose packets go over the link by source; all if empty.
    pub sources: Vec<IpNet>,
    /// The prefixes whose packets go over the link by destination; all if empty.
    pub destinations: Vec<IpNet>,
    /// Arrivals come this many times faster than they were captured.
    pub speed: f64,
    /// The two sides of the link, for the packets of both directions.
    pub sides: Arc<Sides>,
}

impl Settings {
    /// The settings of a relay that is given the rate and nothing else, for all packets of the
    /// capture.
    pub fn new(link: Link) -> Self {
        Self {
            link,
            schemes: PRESETS
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), Scheme::preset(name).ok()?)))
                .collect(),
            codec: CodecSpec::with_default_level(dwell_codec::CodecId::Zstd),
            dictionaries: Dictionaries::default(),
            limit: QueueLimit::default(),
            compress_bytes_min: 64,
            columnar: true,
            poor_ratio: LearnedConfig::default().poor_ratio,
            objective: Objective::Time,
            exceptions: Vec::new(),
            classes: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            speed: 1.0,
            sides: Arc::new(Sides::one_way()),
        }
    }

    /// Checks that all values make sense.
    ///
    /// # Errors
    /// The first value that does not.
    pub fn check(&self) -> Result<(), ReplayError> {
        if !(SPEED_MIN..=SPEED_MAX).contains(&self.speed) {
            return Err(ReplayError::Speed(self.speed));
        }
        if self.link.path_mtu < PATH_MTU_MIN {
            return Err(ReplayError::PathMtu(self.link.path_mtu));
        }
        if self.classes.len() > DEADLINE_CLASSES_MAX {
            return Err(ReplayError::Classes(self.classes.len()));
        }
        Ok(())
    }

    /// Returns the scheme with the timers of the classes, if it has a timer for each class of
    /// deadlines and there are any classes.
    fn timed(&self, scheme: Scheme) -> Result<Scheme, ConfigError> {
        let mut waits: Vec<u64> = self.classes.iter().map(|class| class.wait_ns_max).collect();
        waits.sort_unstable();
        waits.dedup();
        match waits.is_empty() {
            true => Ok(scheme),
            false => Ok(scheme.with_class_timers(ClassTimers::new(&waits)?)),
        }
    }

    fn port(&self, scheme: Scheme) -> PortConfig {
        let learned = LearnedConfig { poor_ratio: self.poor_ratio, ..LearnedConfig::default() };
        PortConfig {
            scheme,
            rate: Some(self.link.rate),
            limit: self.limit,
            frame: self.link.relay_frames(scheme.fills_frames()),
            estimates: Estimates::Learned(learned),
            compress_bytes_min: self.compress_bytes_min,
            exceptions: self.exceptions.clone(),
            objective: match scheme.queue {
                Queue::Flows(_) => self.objective,
                _ => Objective::Time,
            },
            jobs_max: 1,
        }
    }

    fn selects(&self, info: &PacketInfo) -> bool {
        let within = |nets: &[IpNet], address: &IpAddr| {
            nets.is_empty() || nets.iter().any(|net| net.contains(address))
        };
        within(&self.sources, &info.src) && within(&self.destinations, &info.dst)
    }
}

impl Dictionaries {
    /// Returns those that a scheme can use with a codec; none if it can use none.
    fn of(&self, scheme: &Scheme, codec: CodecSpec) -> Option<Self> {
        if scheme.has_contexts() && Contexts::of(codec).is_some() {
            let of_contexts = Some(self.of_contexts.clone()?);
            return Some(Self { by_class: Vec::new(), of_contexts });
        }
        let is_used = scheme.compresses() && !self.by_class.is_empty();
        is_used.then(|| Self { by_class: self.by_class.clone(), of_contexts: None })
    }
}

/// The smallest speed: arrivals can be this much slower than they were captured, ...
pub const SPEED_MIN: f64 = 1e-3;
/// ... and the largest: this much faster.
pub const SPEED_MAX: f64 = 1e6;

/// A reason why a replay is impossible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReplayError {
    /// The speed is none.
    #[error("the speed must be between {SPEED_MIN} and {SPEED_MAX}, not {0}")]
    Speed(f64),
    /// The path's MTU is too small.
    #[error("the path's MTU must be at least {PATH_MTU_MIN} bytes, not {0}")]
    PathMtu(u16),
    /// Too many classes.
    #[error("there can be at most {DEADLINE_CLASSES_MAX} classes with a deadline, not {0}")]
    Classes(usize),
    /// The core refuses the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The codec refuses the settings.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// The suffix of a scheme that uses dictionaries: as relays do if it has contexts, and otherwise as no
/// relay does.
pub const WITH_DICTIONARIES: &str = "+dictionaries";

/// Lanes whose packets have the same greatest length.
struct Group {
    packet_max: usize,
    lanes: Vec<(String, Lane)>,
}

/// One direction of the link.
struct Lanes {
    groups: [Group; 2],
    counts: InputCounts,
    composition: Composition,
}

/// A replay of a capture over a link, once for each scheme.
pub struct Replay {
    settings: Settings,
    /// Forward, and backward if there are packets in that direction.
    directions: [Option<Lanes>; 2],
    origin_ns: Option<u64>,
    last_ns: u64,
    counts: InputCounts,
    sorter: Sorter,
    spelled: Spelled,
    piece: Vec<u8>,
}

impl Lanes {
    fn new(settings: &Settings, cost: &mut impl FnMut() -> Cost) -> Result<Self, ReplayError> {
        let mut without = settings.port(Scheme::none());
        without.frame = settings.link.bare_frames();
        let none = Dictionaries::default();
        let mut lane = |port: PortConfig,
                        dictionaries: &Dictionaries|
         -> Result<Lane, ReplayError> {
            let compress = CodecCompressor::new(settings.codec, dictionaries, cost())?;
            let chooses = port.scheme.has_contexts() && port.scheme.gather() == Gather::HostPair;
            let chosen_contexts = if chooses { CONTEXTS_MAX } else { 0 };
            Ok(Lane::new(LaneSetup {
                port,
                rate: settings.link.rate,
                compress: Box::new(compress),
                waits_ns_max: settings.classes.iter().map(|class| class.wait_ns_max).collect(),
                columnar: settings.columnar,
                chosen_contexts,
            })?)
        };
        let bare = Group {
            packet_max: usize::from(settings.link.path_mtu),
            lanes: vec![(WITHOUT.to_owned(), lane(without, &none)?)],
        };
        let mut relayed =
            Group { packet_max: usize::from(settings.link.packet_max()), lanes: Vec::new() };
        for (name, scheme) in &settings.schemes {
            let port = settings.port(settings.timed(*scheme)?);
            relayed.lanes.push((name.clone(), lane(port.clone(), &none)?));
            if let Some(dictionaries) = settings.dictionaries.of(scheme, settings.codec) {
                relayed
                    .lanes
                    .push((format!("{name}{WITH_DICTIONARIES}"), lane(port, &dictionaries)?));
            }
        }
        Ok(Self {
            groups: [bare, relayed],
            counts: InputCounts::default(),
            composition: Composition::default(),
        })
    }

    /// Handles a packet, of which `missing` bytes at the end are made up.
    fn packet(&mut self, settings: &Settings, at_ns: u64, of: &Whole<'_>, piece: &mut Vec<u8>) {
        let Whole { packet, info, missing } = *of;
        self.counts.selected.packets += 1;
        self.counts.selected.bytes += packet.len() as u64;
        self.counts.missing.packets += u64::from(missing > 0);
        self.counts.missing.bytes += missing as u64;
        for group in &mut self.groups {
            let lanes = &mut group.lanes;
            let whole = packet.len() <= group.packet_max;
            let is_cut = cut::cut(packet, &info, group.packet_max, piece, |piece| {
                let arriving = arriving(piece, &info, &settings.classes);
                lanes.iter_mut().for_each(|(_, lane)| lane.arrive(at_ns, &arriving));
            });
            if group.packet_max < usize::from(settings.link.path_mtu) {
                self.counts.shortened += u64::from(!whole && is_cut);
                if !is_cut {
                    self.counts.too_big.packets += 1;
                    self.counts.too_big.bytes += packet.len() as u64;
                }
            }
        }
    }

    /// Lets all waiting packets leave. `counts` are those of both directions.
    fn finish(
        self,
        settings: &Settings,
        version: &str,
        span_ns: u64,
        counts: &InputCounts,
    ) -> ReplayReport {
        let lanes = self.groups.into_iter().flat_map(|group| group.lanes);
        let lanes = lanes.map(|(name, lane)| LaneReport::new(&name, settings, lane)).collect();
        let own = self.counts;
        let counts = InputCounts {
            selected: own.selected,
            missing: own.missing,
            shortened: own.shortened,
            too_big: own.too_big,
            ..counts.clone()
        };
        ReplayReport::new(settings, version, span_ns, counts, self.composition, lanes)
    }
}

/// A packet, of which `missing` bytes at the end are made up.
#[derive(Clone, Copy)]
struct Whole<'p> {
    packet: &'p [u8],
    info: PacketInfo,
    missing: usize,
}

impl Replay {
    /// Creates a replay at time zero. `cost` gives the cost of compressing of each lane.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn new(settings: Settings, mut cost: impl FnMut() -> Cost) -> Result<Self, ReplayError> {
        settings.check()?;
        let mut lanes = || Lanes::new(&settings, &mut cost);
        let has_two = settings.sides.rule() != Rule::OneWay;
        let directions = [Some(lanes()?), has_two.then(lanes).transpose()?];
        Ok(Self {
            settings,
            directions,
            origin_ns: None,
            last_ns: 0,
            counts: InputCounts::default(),
            sorter: Sorter::default(),
            spelled: Spelled::default(),
            piece: Vec::new(),
        })
    }

    /// Handles the next packet of the capture.
    pub fn packet(&mut self, input: Input<'_>) {
        self.counts.packets += 1;
        let Some(packet) = self.spelled.whole(input) else {
            self.counts.malformed += 1;
            return;
        };
        let Ok(info) = PacketInfo::parse(packet, FLOW_SEED) else {
            self.counts.malformed += 1;
            return;
        };
        if !self.settings.selects(&info) {
            self.counts.not_selected += 1;
            return;
        }
        if let Some(at_ns) = input.at_ns {
            let origin_ns = *self.origin_ns.get_or_insert(at_ns);
            let back_ns = origin_ns.saturating_add(self.last_ns).saturating_sub(at_ns);
            self.counts.unordered += u64::from(back_ns > 0);
            self.counts.back_ns_max = self.counts.back_ns_max.max(back_ns);
            self.last_ns = self.last_ns.max(at_ns.saturating_sub(origin_ns));
        }
        let packet = &packet[..info.total_len];
        let missing = packet.len().saturating_sub(input.packet.len());
        let direction = self.settings.sides.direction(&input.ends, &info);
        let lanes = direction.index().and_then(|direction| self.directions[direction].as_mut());
        let Some(lanes) = lanes else {
            self.counts.same_side.packets += 1;
            self.counts.same_side.bytes += packet.len() as u64;
            return;
        };
        let captured = &packet[..packet.len() - missing];
        let content = self.sorter.sort(captured, &info, missing > 0);
        lanes.composition.add(content, packet.len() as u64);
        let at_ns = replayed_ns(self.last_ns, self.settings.speed);
        let whole = Whole { packet, info, missing };
        lanes.packet(&self.settings, at_ns, &whole, &mut self.piece);
    }

    /// Returns the counts of the packets read so far, of both directions.
    pub fn counts(&self) -> &InputCounts {
        &self.counts
    }

    /// Lets all waiting packets leave, and reports on the busier direction, with a report on the
    /// other one in it. `version` is the program's.
    pub fn finish(self, version: &str) -> ReplayReport {
        let span_ns = replayed_ns(self.last_ns, self.settings.speed);
        let Self { settings, directions, counts, .. } = self;
        let reports = directions.into_iter().flatten().enumerate().map(|(n, lanes)| {
            let report = lanes.finish(&settings, version, span_ns, &counts);
            ReplayReport { direction: DirectionReport::new(&settings.sides, n > 0), ..report }
        });
        // The first of two that are equal.
        let busier = |a: ReplayReport, b: ReplayReport| {
            let (mut busier, other) =
                if b.offered_bytes() > a.offered_bytes() { (b, a) } else { (a, b) };
            busier.other_direction = (other.input.selected.packets > 0).then(|| Box::new(other));
            busier
        };
        reports.reduce(busier).unwrap_or_else(|| {
            let composition = Composition::default();
            ReplayReport::new(&settings, version, span_ns, counts.clone(), composition, Vec::new())
        })
    }
}

/// The latest time of an arrival: 146 years.
const AT_NS_MAX: u64 = u64::MAX / 4;

/// Returns the replayed time of an event that was captured `since_ns` after the first packet. False
/// times and a low speed could make it too late to add anything to it.
fn replayed_ns(since_ns: u64, speed: f64) -> u64 {
    ((since_ns as f64 / speed) as u64).min(AT_NS_MAX)
}

/// Any number will do: nobody attacks the hashes of a replay.
const FLOW_SEED: u64 = 0;

fn arriving(packet: &[u8], info: &PacketInfo, classes: &[DeadlineClass]) -> Arriving {
    let class = classes.iter().position(|class| class.matches(info));
    let payload = packet.get(usize::from(info.header_len)..).unwrap_or_default();
    Arriving {
        bytes: packet.into(),
        source: ClassKey::new(info.protocol, info.src_port),
        destination: ClassKey::new(info.protocol, info.dst_port),
        flow: info.flow_hash,
        service: group_key(Gather::Service, info, FLOW_SEED, 0),
        hosts: group_key(Gather::HostPair, info, FLOW_SEED, 0),
        class: class.map(|class| class as u8), // at most DEADLINE_CLASSES_MAX
        looks_random: classify_packet(payload) == ContentClass::Random,
    }
}
