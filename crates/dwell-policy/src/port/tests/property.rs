use std::collections::{HashMap, HashSet, VecDeque};

use dwell_base::{Instant, Rate};
use proptest::prelude::*;

use super::packet;
use crate::account::DropReason;
use crate::action::FramePacket;
use crate::config::{ConfigError, FrameCost, Objective, PortConfig, QueueLimit};
use crate::estimate::{Estimate, Estimates, LearnedConfig, Ratio};
use crate::event::{LostBatch, Outcome};
use crate::packet::{Packet, PacketId};
use crate::port::Port;
use crate::port::shorthand::{Admission, Wanted};
use crate::scheme::{
    BlockOrder, BlockPlace, BlockRules, BlockSlots, Gather, PRESETS, Queue, Scheme, Select,
    Unfinished,
};

#[derive(Clone, Debug)]
enum Step {
    Arrive { bytes: u32, flow: u64, compressed: bool },
    Compressed { which: usize, keep_percent: u32, took_ns: u64 },
    LinkReady,
    LinkBusy,
    PutBack,
    Rate(u64),
    Ahead(u64),
    Scheme(usize),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1u32..3000, 0u64..4, prop::bool::weighted(0.1)).prop_map(|(bytes, flow, compressed)| {
            Step::Arrive { bytes, flow: flow << 40 | flow, compressed }
        }),
        4 => (0usize..3, 0u32..130, 0u64..1_000_000).prop_map(|(which, keep_percent, took_ns)| {
            Step::Compressed { which, keep_percent, took_ns }
        }),
        4 => Just(Step::LinkReady),
        1 => Just(Step::LinkBusy),
        1 => Just(Step::PutBack),
        1 => (0u64..1_000_000_000).prop_map(Step::Rate),
        1 => (0u64..20_000).prop_map(|bytes| Step::Ahead(bytes.saturating_sub(10_000))),
        1 => (0..SCHEMES).prop_map(Step::Scheme),
        1 => Just(Step::Clear),
    ]
}

/// The settings that stay the same during a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    first_scheme: usize,
    packets: u32,
    lead: u32,
    order: BlockOrder,
    unfinished: Unfinished,
    slots: BlockSlots,
    two_queues: bool,
    jobs_max: u8,
}

fn setting() -> impl Strategy<Value = Setting> {
    (0..SCHEMES, 1u32..5, 0u32..5, any::<[bool; 4]>(), 1u8..4).prop_map(
        |(first_scheme, packets, lead, [strict, wait, heavy, pass], jobs_max)| Setting {
            first_scheme,
            packets,
            lead,
            order: if strict { BlockOrder::Strict } else { BlockOrder::Loose },
            unfinished: if wait { Unfinished::Wait } else { Unfinished::Pass },
            slots: if heavy { BlockSlots::PerPacket } else { BlockSlots::One },
            two_queues: pass,
            jobs_max,
        },
    )
}

/// The group of a packet. With a queue for each flow a flow's may change, as when it gets a history of its own.
fn group(scheme: &Scheme, flow: u64, id: u32) -> u64 {
    match scheme.select {
        Select::Slack { .. } => (flow + u64::from(id / 16)) % 3,
        _ => flow % 3,
    }
}

/// The presets, and others.
const SCHEMES: usize = PRESETS.len() + 8;

impl Setting {
    /// The presets, and after them batches by threshold, batches of what waits, and frames that are
    /// compressed as a whole.
    fn scheme(&self, n: usize) -> Scheme {
        let preset = |name: &str| Scheme::preset(name).unwrap();
        let scheme = match n.checked_sub(PRESETS.len()) {
            None => preset(PRESETS[n]),
            Some(0) => Scheme::backlog(Gather::Packet, 1, self.lead),
            Some(1) => Scheme::backlog(Gather::Edge, self.packets, self.lead),
            Some(2) => Scheme::backlog(Gather::Flow, self.packets, self.lead),
            Some(3) => return Scheme::waiting(Gather::Edge, self.packets * 1500),
            Some(4) => return Scheme::waiting(Gather::Packet, self.packets * 1500),
            Some(5) => preset("basicq").with_compressed_frames(),
            Some(6) => preset("chumq+cea").with_compressed_frames(),
            Some(_) => preset("chutq-dcf+cea").with_compressed_frames(),
        };
        match scheme.select {
            Select::Nothing | Select::Each(_) if self.two_queues && !scheme.fills_frames() => {
                Scheme { queue: Queue::CpuAndLink, ..scheme }
            }
            Select::Backlog { .. } => scheme.with_rules(BlockRules {
                order: self.order,
                unfinished: self.unfinished,
                slots: self.slots,
                place: match self.order {
                    BlockOrder::Strict => BlockPlace::Front,
                    BlockOrder::Loose => BlockPlace::Tail,
                },
                ..BlockRules::PAPER
            }),
            _ => scheme,
        }
    }

    /// The packets among which order is promised share a key; none if there is no promise.
    fn order_key(&self, scheme: &Scheme, held: &Held) -> Option<(u64, bool)> {
        match (scheme.select, self.order) {
            _ if scheme.fills_frames() => Some((held.flow, false)),
            (Select::Waiting { .. } | Select::Slack { .. }, _) => Some((held.flow, false)),
            (Select::Backlog { .. }, BlockOrder::Loose) => None,
            (Select::Backlog { .. }, BlockOrder::Strict) => Some((held.flow, false)),
            _ if scheme.queue == Queue::CpuAndLink => Some((0, held.compressed_before)),
            _ => Some((0, false)),
        }
    }
}

/// What is to be saved: bytes, by half of the ports that can.
fn objective(setting: &Setting, scheme: &Scheme) -> Objective {
    match scheme.queue {
        Queue::Flows(_) if setting.two_queues => {
            Objective::Bytes { max_wait_ns: 70_000, cpu_ppm: 500_000 }
        }
        _ => Objective::Time,
    }
}

/// Frames for this scheme: chunks need room for more than one unit.
fn frames(scheme: &Scheme, frame: FrameCost) -> FrameCost {
    let units_max = if scheme.fills_frames() { frame.units_max.max(2) } else { frame.units_max };
    FrameCost { units_max, ..frame }
}

/// Returns the time that packets of this flow may be held: the same for all of them.
fn max_wait_ns(flow: u64) -> u64 {
    [Packet::NEVER_HELD, 50_000, 100_000, 200_000][flow as usize & 3]
}

/// A packet in the port.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u32,
    flow: u64,
    group: u64,
    compressed_before: bool,
    /// It came in order, and waits in it: it is no unit that was put back.
    in_order: bool,
}

/// Drives a port as a driver would, and checks what it sends against what arrived.
struct Model {
    setting: Setting,
    next_id: u32,
    /// The first packet, and the bytes, of each batch.
    being_compressed: Vec<(PacketId, u32)>,
    held: HashMap<u32, Held>,
    compressed: HashSet<u32>,
    last_sent: HashMap<(u64, bool), u32>,
    /// The jobs that are to be sent in a context, in their order.
    jobs: HashMap<u64, VecDeque<PacketId>>,
    /// The last unit that was compressed here and sent.
    sent_compressed: Option<(Vec<FramePacket>, u32)>,
}

impl Model {
    fn new(setting: Setting) -> Self {
        Self {
            setting,
            next_id: 0,
            being_compressed: Vec::new(),
            held: HashMap::new(),
            compressed: HashSet::new(),
            last_sent: HashMap::new(),
            jobs: HashMap::new(),
            sent_compressed: None,
        }
    }

    fn drain(&mut self, port: &mut Port, now: Instant) {
        while let Some(action) = port.ask(now) {
            match action {
                Wanted::Compress(id) => self.compress(port, &[id]),
                Wanted::CompressBatch => self.compress(port, port.last_batch()),
                Wanted::Send => self.sent(port),
                Wanted::Mark(id) => {
                    assert!(self.held.contains_key(&id.0), "marked what is not held");
                }
                Wanted::Drop(id, reason) => {
                    let by_bytes = port.config().scheme == Scheme::auto(Gather::HostPair);
                    assert!(reason == DropReason::QueuePackets || by_bytes);
                    assert!(self.held.remove(&id.0).is_some(), "dropped what was not held");
                }
            }
        }
        let deadline = port.next_deadline();
        assert!(deadline.is_none_or(|at| at > now), "the deadline has passed");
        assert!(
            deadline.is_none()
                || port.config().scheme.fills_frames()
                || matches!(port.config().scheme.queue, Queue::Flows(_)),
            "this holds nothing back"
        );
        assert_eq!(port.accounts().held.packets, self.held.len() as u64);
        port.assert_invariants();
    }

    fn compress(&mut self, port: &Port, ids: &[PacketId]) {
        let has_flows = matches!(port.config().scheme.queue, Queue::Flows(_));
        let jobs_max = if has_flows { self.setting.jobs_max } else { 1 };
        for id in ids {
            assert!(self.compressed.insert(id.0), "compressed twice");
        }
        let group = self.held[&ids[0].0].group;
        let is_of_it = |it: &(PacketId, u32)| self.held[&it.0.0].group == group;
        assert!(!self.being_compressed.iter().any(is_of_it), "two batches of a group");
        self.being_compressed.push((ids[0], ids.iter().map(|id| self.held[&id.0].bytes).sum()));
        assert!(self.being_compressed.len() <= usize::from(jobs_max), "too many jobs");
    }

    fn sent(&mut self, port: &Port) {
        let (frame, scheme) = (port.frame(), &port.config().scheme);
        assert!(!frame.units.is_empty());
        let mut followers = frame.followers.iter();
        for unit in &frame.units {
            let mut packets = vec![FramePacket {
                id: unit.id,
                original_bytes: self.held[&unit.id.0].bytes,
                sojourn_ns: unit.sojourn_ns,
            }];
            packets.extend(followers.by_ref().take(unit.followers as usize));
            let original: u32 = packets.iter().map(|packet| packet.original_bytes).sum();
            assert_eq!(unit.original_bytes, original);
            let in_context = scheme.has_contexts() && unit.compressed_here;
            // What comes back may have been committed by another scheme.
            let came_back = !self.held[&unit.id.0].in_order;
            assert!(unit.bytes <= original || in_context || came_back);
            let group = self.held[&unit.id.0].group;
            if in_context && self.held[&unit.id.0].in_order {
                let first = self.jobs.get_mut(&group).and_then(VecDeque::pop_front);
                assert_eq!(first, Some(unit.id), "the order of jobs is not that of sending");
            }
            for packet in &packets {
                self.packet_sent(scheme, packet);
            }
            if unit.compressed_here {
                self.sent_compressed = Some((packets, unit.bytes));
            }
        }
        assert!(followers.next().is_none(), "a follower of no unit");
    }

    fn packet_sent(&mut self, scheme: &Scheme, packet: &FramePacket) {
        let id = packet.id.0;
        let held = self.held.remove(&id).expect("sent what was not held");
        assert_eq!(held.bytes, packet.original_bytes);
        let key = self.setting.order_key(scheme, &held).filter(|_| held.in_order);
        if let Some(key) = key {
            let last = self.last_sent.insert(key, id);
            assert!(last < Some(id), "order is broken: {id} after {last:?}");
        }
    }

    fn apply(&mut self, port: &mut Port, now: Instant, step: &Step) {
        match *step {
            Step::Arrive { bytes, flow, compressed } => {
                self.arrive(port, now, (bytes, flow, compressed));
            }
            Step::Compressed { which, keep_percent, took_ns } => {
                if !self.being_compressed.is_empty() {
                    let which = which % self.being_compressed.len();
                    let (id, bytes) = self.being_compressed.remove(which);
                    let to = bytes * keep_percent / 100;
                    let outcome = match keep_percent {
                        120.. => Outcome::Failed,
                        _ if port.config().scheme.has_contexts() => Outcome::Committed(to),
                        _ if to < bytes => Outcome::Smaller(to),
                        _ => Outcome::NotSmaller,
                    };
                    if let Outcome::Committed(_) = outcome {
                        let group = self.held[&id.0].group;
                        self.jobs.entry(group).or_default().push_back(id);
                    }
                    port.compressed(id, outcome, took_ns);
                }
            }
            Step::LinkReady => port.link_ready(),
            Step::LinkBusy => port.link_busy(),
            Step::PutBack => self.put_back(port, now),
            Step::Ahead(bytes) => port.set_ahead(bytes, false),
            Step::Rate(bps) => port.set_rate(Rate::from_bps(bps)),
            Step::Scheme(n) => {
                let scheme = self.setting.scheme(n);
                let before = port.config().scheme;
                let frame = frames(&scheme, port.config().frame);
                let objective = objective(&self.setting, &scheme);
                let config = PortConfig { scheme, frame, objective, ..port.config().clone() };
                match port.configure(config) {
                    // What a scheme without a promise has mixed up stays so under the next one.
                    Ok(()) => {
                        for held in self.held.values_mut() {
                            held.in_order &= self.setting.order_key(&before, held).is_some();
                        }
                    }
                    Err(error) => assert_eq!(error, ConfigError::Occupied),
                }
            }
            Step::Clear => {
                self.jobs.clear();
                port.clear(|id, _| {
                    assert!(self.held.remove(&id.0).is_some(), "cleared what was not held");
                });
            }
        }
    }

    fn arrive(
        &mut self,
        port: &mut Port,
        now: Instant,
        (bytes, flow, compressed): (u32, u64, bool),
    ) {
        let id = self.next_id;
        self.next_id += 1;
        if compressed {
            self.compressed.insert(id);
        }
        let group = group(&port.config().scheme, flow, id);
        let max_wait_ns = max_wait_ns(flow);
        let takes_mark = flow % 2 == 1;
        let arrival =
            Packet { takes_mark, bytes, flow, group, max_wait_ns, compressed, ..packet(id) };
        if port.arrive_one(now, arrival) == Admission::Queued {
            let held = Held { bytes, flow, group, compressed_before: compressed, in_order: true };
            self.held.insert(id, held);
        }
    }

    fn put_back(&mut self, port: &mut Port, now: Instant) {
        let Some((packets, bytes)) = self.sent_compressed.take() else { return };
        if port.lose(now, LostBatch { packets: &packets, bytes }) == Admission::Queued {
            for packet in packets {
                let bytes = packet.original_bytes;
                let held =
                    Held { bytes, flow: 0, group: 0, compressed_before: false, in_order: false };
                self.held.insert(packet.id.0, held);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn invariants_hold_after_every_event(
        steps in prop::collection::vec(step(), 1..300),
        setting in setting(),
        packets in 2u32..40,
        bytes in 1u64..40_000,
        units_max in 1u32..5,
        fragment_bytes in prop::sample::select(vec![0u32, 8]),
        learned in any::<bool>(),
    ) {
        let frame = FrameCost {
            frame_bytes: 42, raw_unit_bytes: 2, compressed_unit_bytes: 5,
            units_bytes_max: 1_430, fragment_bytes, fragment_spare_bytes: 6, unit_bytes_named: 1_000, units_max,
        };
        let limit = QueueLimit { packets, bytes, ..QueueLimit::default() };
        let fixed = Estimate { ratio: Ratio::from_ppm(700_000), cost_ns: 20_000 };
        let estimates = if learned {
            Estimates::Learned(LearnedConfig::default())
        } else {
            Estimates::Fixed(fixed)
        };
        let scheme = setting.scheme(setting.first_scheme);
        let frame = frames(&scheme, frame);
        let objective = objective(&setting, &scheme);
        let jobs_max = setting.jobs_max;
        let config = PortConfig {
            scheme, limit, frame, estimates, objective, jobs_max, ..PortConfig::default()
        };
        let mut port = Port::new(config).unwrap();
        let mut model = Model::new(setting);
        for (at, step) in steps.iter().enumerate() {
            let now = Instant::from_ns(at as u64 * 10_000);
            model.apply(&mut port, now, step);
            model.drain(&mut port, now);
        }
    }
}
