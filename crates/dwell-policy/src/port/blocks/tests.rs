use dwell_base::Rate;
use proptest::prelude::*;

use crate::account::{Bypass, DropReason};
use crate::action::{Action, FramePacket};
use crate::config::{ConfigError, PortConfig, QueueLimit};
use crate::estimate::{Estimate, Estimates, LearnedConfig, Ratio};
use crate::event::{LostBatch, Outcome};
use crate::packet::{ClassKey, Packet, PacketId};
use crate::port::Port;
use crate::port::shorthand::{Admission, Wanted};
use crate::scheme::{BlockOrder, BlockPlace, BlockRules, BlockSlots, Gather, Scheme, Unfinished};
use dwell_base::Instant;

mod link;
mod waiting;

const NOW: Instant = Instant::ZERO;

fn port_of(scheme: Scheme) -> Port {
    let estimate = Estimate { ratio: Ratio::from_ppm(600_000), cost_ns: 600_000 };
    let mut port = Port::new(PortConfig {
        scheme,
        rate: Some(Rate::from_mbps(100)),
        limit: QueueLimit::packets(50),
        estimates: Estimates::Fixed(estimate),
        ..PortConfig::default()
    })
    .unwrap();
    port.link_busy();
    port
}

/// The paper's rules, with m and n.
fn port(packets: u32, lead: u32) -> Port {
    port_of(Scheme::backlog(Gather::Edge, packets, lead))
}

fn with(packets: u32, lead: u32, rules: BlockRules) -> Port {
    port_of(Scheme::backlog(Gather::Edge, packets, lead).with_rules(rules))
}

fn packet(id: u32, group: u64) -> Packet {
    let class = ClassKey::new(6, 80);
    Packet {
        id: PacketId(id),
        bytes: 1500,
        source: class,
        destination: class,
        flow: group << 32,
        group,
        max_wait_ns: Packet::NEVER_HELD,
        batch_bytes_max: u32::MAX,
        looks_random: false,
        takes_mark: false,
        compressed: false,
    }
}

fn actions(port: &mut Port) -> Vec<Wanted> {
    let actions = std::iter::from_fn(|| port.ask(NOW)).collect();
    port.assert_invariants();
    actions
}

/// Packets arrive one by one, the first with this id, of these groups.
fn arrive(port: &mut Port, first: u32, groups: &[u64]) -> Vec<Wanted> {
    let mut asked = Vec::new();
    for (id, &group) in (first..).zip(groups) {
        assert_eq!(port.arrive_one(NOW, packet(id, group)), Admission::Queued);
        asked.extend(actions(port));
    }
    asked
}

fn ids(port: &Port) -> Vec<u32> {
    port.last_batch().iter().map(|id| id.0).collect()
}

/// Returns the packets of the unit that the link takes next.
fn sent(port: &mut Port) -> Vec<u32> {
    port.link_ready();
    match port.ask(NOW) {
        Some(Wanted::Send) => frame_ids(port),
        other => panic!("{other:?} instead of a frame"),
    }
}

fn frame_ids(port: &Port) -> Vec<u32> {
    let frame = port.frame();
    assert_eq!(frame.units.len(), 1);
    let first = std::iter::once(frame.units[0].id.0);
    first.chain(frame.followers.iter().map(|packet| packet.id.0)).collect()
}

fn finish(port: &mut Port, outcome: Outcome) -> Vec<Wanted> {
    let first = port.last_batch()[0];
    port.compressed(first, outcome, 600_000);
    actions(port)
}

#[test]
fn a_block_is_compressed_when_more_than_n_and_m_wait() {
    let mut port = port(5, 5);
    assert_eq!(arrive(&mut port, 0, &[1; 10]), []);
    assert_eq!(arrive(&mut port, 10, &[1]), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [5, 6, 7, 8, 9]);
    assert_eq!(port.waiting(), (0, 6));
}

#[test]
fn the_head_most_group_that_has_enough_beyond_the_lead_is_taken() {
    let mut port = port(2, 1);
    // Group 1 has two packets, but one of them is in the lead.
    assert_eq!(arrive(&mut port, 0, &[1, 2, 1, 3]), []);
    assert_eq!(arrive(&mut port, 4, &[3]), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [3, 4]);
}

#[test]
fn a_block_stands_where_its_first_packet_stood() {
    let mut port = port(2, 1);
    assert_eq!(arrive(&mut port, 0, &[1, 2, 1, 2]), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [1, 3]);
    assert_eq!(finish(&mut port, Outcome::Smaller(1800)), []);
    assert_eq!(sent(&mut port), [0]);
    assert_eq!(sent(&mut port), [1, 3]);
    let unit = port.frame().units[0];
    assert_eq!((unit.bytes, unit.original_bytes, unit.followers), (1800, 3000, 1));
    assert!(unit.compressed_here);
    assert_eq!(sent(&mut port), [2]);
    let compress = port.accounts().compress;
    assert_eq!((compress.compressions, compress.tried, compress.compressed.packets), (1, 2, 2));
    assert_eq!(compress.bypassed[Bypass::NoBlock as usize], 2);
    assert_eq!(port.accounts().sent.packets, 4);
}

#[test]
fn packets_in_the_compress_keep_their_places_in_the_count() {
    let mut port = port(2, 0);
    assert_eq!(arrive(&mut port, 0, &[1; 3]), [Wanted::CompressBatch]);
    // 3 of 49 places are taken, two of them by what is being compressed.
    assert_eq!(arrive(&mut port, 3, &[1; 46]), []);
    let full = Admission::Dropped(DropReason::QueuePackets);
    assert_eq!(port.arrive_one(NOW, packet(49, 1)), full);
    // Two packets have become one unit, and two others are being compressed.
    assert_eq!(finish(&mut port, Outcome::Smaller(1800)), [Wanted::CompressBatch]);
    assert_eq!(arrive(&mut port, 50, &[1]), []);
    assert_eq!(port.arrive_one(NOW, packet(51, 1)), full);
}

#[test]
fn a_block_can_count_for_all_its_packets() {
    let mut port = with(2, 0, BlockRules { slots: BlockSlots::PerPacket, ..BlockRules::PAPER });
    arrive(&mut port, 0, &[1; 49]);
    finish(&mut port, Outcome::Smaller(1800));
    let full = Admission::Dropped(DropReason::QueuePackets);
    assert_eq!(port.arrive_one(NOW, packet(49, 1)), full);
}

#[test]
fn the_link_passes_over_what_is_still_in_the_compress() {
    let mut port = port(2, 0);
    assert_eq!(arrive(&mut port, 0, &[1, 1, 1]), [Wanted::CompressBatch]);
    assert_eq!(sent(&mut port), [2]);
    port.link_ready();
    assert_eq!(actions(&mut port), []);
    assert_eq!(finish(&mut port, Outcome::Smaller(1800)), [Wanted::Send]);
    assert_eq!(frame_ids(&port), [0, 1]);
}

#[test]
fn in_strict_order_the_link_passes_with_other_groups_only() {
    let mut port = with(2, 0, BlockRules { order: BlockOrder::Strict, ..BlockRules::PAPER });
    assert_eq!(arrive(&mut port, 0, &[1, 1, 1, 2]), [Wanted::CompressBatch]);
    assert_eq!(sent(&mut port), [3]);
    port.link_ready();
    assert_eq!(actions(&mut port), []);
    assert_eq!(finish(&mut port, Outcome::Smaller(1800)), [Wanted::Send]);
    assert_eq!(sent(&mut port), [2]);
}

#[test]
fn the_link_can_wait_for_a_block() {
    let mut port = with(2, 0, BlockRules { unfinished: Unfinished::Wait, ..BlockRules::PAPER });
    assert_eq!(arrive(&mut port, 0, &[1, 1, 1, 2]), [Wanted::CompressBatch]);
    port.link_ready();
    assert_eq!(actions(&mut port), []);
    assert_eq!(finish(&mut port, Outcome::NotSmaller), [Wanted::Send]);
}

#[test]
fn a_block_can_move_to_the_tail() {
    let mut port = with(2, 0, BlockRules { place: BlockPlace::Tail, ..BlockRules::PAPER });
    assert_eq!(arrive(&mut port, 0, &[1, 1, 2]), [Wanted::CompressBatch]);
    finish(&mut port, Outcome::Smaller(1800));
    assert_eq!(sent(&mut port), [2]);
    assert_eq!(sent(&mut port), [0, 1]);
}

#[test]
fn what_did_not_become_smaller_stays_and_is_not_tried_again() {
    for outcome in [Outcome::NotSmaller, Outcome::Failed, Outcome::Smaller(3000)] {
        let mut port = port(2, 0);
        assert_eq!(arrive(&mut port, 0, &[1, 1, 1]), [Wanted::CompressBatch]);
        assert_eq!(finish(&mut port, outcome), []);
        assert_eq!(arrive(&mut port, 3, &[1]), [Wanted::CompressBatch]);
        assert_eq!(ids(&port), [2, 3]);
        for id in 0..2 {
            assert_eq!(sent(&mut port), [id]);
            assert!(!port.frame().units[0].compressed_here);
        }
    }
}

#[test]
fn a_block_in_strict_order_has_nothing_of_its_group_between() {
    for (order, expected) in [(BlockOrder::Loose, [0, 2]), (BlockOrder::Strict, [2, 3])] {
        let mut port = with(2, 0, BlockRules { order, ..BlockRules::PAPER });
        arrive(&mut port, 0, &[1]);
        let upstream = Packet { compressed: true, ..packet(1, 1) };
        assert_eq!(port.arrive_one(NOW, upstream), Admission::Queued);
        let asked = arrive(&mut port, 2, &[1, 1]);
        assert_eq!(asked, [Wanted::CompressBatch], "{order:?}");
        assert_eq!(ids(&port), expected, "{order:?}");
    }
}

#[test]
fn single_packets_are_compressed_from_beyond_the_lead() {
    let mut port = port_of(Scheme::backlog(Gather::Packet, 1, 2));
    assert_eq!(arrive(&mut port, 0, &[1, 2, 3]), []);
    assert_eq!(arrive(&mut port, 3, &[4]), [Wanted::Compress(PacketId(2))]);
    assert_eq!(finish(&mut port, Outcome::Smaller(1400)), [Wanted::Compress(PacketId(3))]);
    assert_eq!(port.frame().units.len(), 0);
}

fn lost(ids: &[u32]) -> Vec<FramePacket> {
    let packet = |&id| FramePacket { id: PacketId(id), original_bytes: 1500, sojourn_ns: 0 };
    ids.iter().map(packet).collect()
}

#[test]
fn a_lost_block_comes_back_to_the_head_or_the_tail() {
    for (put_back, expected) in [(BlockPlace::Front, [7, 0]), (BlockPlace::Tail, [0, 7])] {
        let mut port = with(2, 5, BlockRules { put_back, ..BlockRules::PAPER });
        arrive(&mut port, 0, &[1]);
        let packets = lost(&[7, 8]);
        let unit = LostBatch { packets: &packets, bytes: 1800 };
        assert_eq!(port.lose(NOW, unit), Admission::Queued);
        port.assert_invariants();
        assert_eq!([sent(&mut port)[0], sent(&mut port)[0]], expected);
        assert_eq!(port.accounts().sent.packets, 3);
        assert!(port.is_empty());
    }
}

#[test]
fn what_is_put_back_has_bounds() {
    let mut port = port(2, 5);
    arrive(&mut port, 0, &[1; 49]);
    let packets = lost(&[50, 51]);
    for _ in 0..25 {
        assert_eq!(port.lose(NOW, LostBatch { packets: &packets, bytes: 1 }), Admission::Queued);
    }
    let refused = Admission::Dropped(DropReason::PutBack);
    assert_eq!(port.lose(NOW, LostBatch { packets: &packets, bytes: 1 }), refused);
    assert_eq!(port.lose(NOW, LostBatch { packets: &[], bytes: 1 }), refused);
    actions(&mut port);
}

#[test]
fn clearing_leaves_what_is_in_the_compress() {
    let mut port = port(2, 0);
    arrive(&mut port, 0, &[1; 4]);
    let mut freed = Vec::new();
    port.clear(|id, _| freed.push(id.0));
    assert_eq!(freed, [2, 3]);
    port.assert_invariants();
    finish(&mut port, Outcome::Smaller(1800));
    assert_eq!(sent(&mut port), [0, 1]);
    assert!(port.is_empty());
}

#[test]
fn m_and_n_can_change_while_packets_wait_but_not_the_groups() {
    let mut port = port(5, 5);
    assert_eq!(arrive(&mut port, 0, &[1; 8]), []);
    let config = |scheme| PortConfig { scheme, ..port_of(Scheme::none()).config().clone() };
    port.configure(config(Scheme::backlog(Gather::Edge, 3, 2))).unwrap();
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [2, 3, 4]);
    for other in [Scheme::backlog(Gather::Flow, 3, 2), Scheme::none()] {
        assert_eq!(port.configure(config(other)), Err(ConfigError::Occupied));
    }
    port.assert_invariants();
}

#[test]
fn what_has_left_leaves_its_place() {
    let mut port = port(2, 0);
    for id in 0..5_000 {
        assert_eq!(port.arrive_one(NOW, packet(id, u64::from(id))), Admission::Queued);
        sent(&mut port);
        port.assert_invariants();
    }
    // Packets of a block have places, too.
    assert_eq!(arrive(&mut port, 5_000, &[1; 3]), [Wanted::CompressBatch]);
    finish(&mut port, Outcome::Smaller(1800));
    assert_eq!((sent(&mut port), sent(&mut port)), (vec![5_000, 5_001], vec![5_002]));
    port.assert_invariants();
}

#[test]
fn a_job_says_what_is_in_it() {
    let mut port = port(2, 0);
    for (id, bytes) in [(0, 1_000), (1, 600), (2, 1_500)] {
        let packet = Packet { bytes, ..packet(id, 1) };
        assert_eq!(port.arrive_one(NOW, packet), Admission::Queued);
    }
    let Some(Action::Compress(job)) = port.poll(NOW) else { panic!("no job") };
    assert_eq!((job.packets, job.bytes, job.cost_ns), (2, 1_600, 600_000));
}

/// A codec that fails says nothing about the data.
#[test]
fn a_failure_teaches_nothing() {
    for (outcome, learned) in [(Outcome::Failed, false), (Outcome::NotSmaller, true)] {
        let mut port = port(2, 0);
        let estimates = Estimates::Learned(LearnedConfig::default());
        port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
        assert_eq!(arrive(&mut port, 0, &[1; 3]), [Wanted::CompressBatch]);
        let Packet { flow, source, .. } = packet(0, 1);
        let before = port.estimate(flow, source, 1_500);
        finish(&mut port, outcome);
        assert_eq!(port.estimate(flow, source, 1_500) != before, learned, "{outcome:?}");
    }
}

/// The rules once more, as plainly as can be, to compare with.
#[derive(Debug, Default)]
struct Plain {
    units: Vec<PlainUnit>,
    packets: usize,
    lead: usize,
    rules: Option<BlockRules>,
    link_idle: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PlainUnit {
    ids: Vec<u32>,
    group: Option<u64>,
    state: PlainState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PlainState {
    Raw,
    Fixed,
    Compressing,
}

#[derive(Debug, PartialEq)]
enum Asked {
    Send(Vec<u32>),
    Compress(Vec<u32>),
}

impl Plain {
    fn rules(&self) -> BlockRules {
        self.rules.unwrap_or(BlockRules::PAPER)
    }

    fn slots(&self, units: &[PlainUnit]) -> usize {
        match self.rules().slots {
            BlockSlots::One => units.len(),
            BlockSlots::PerPacket => units.iter().map(|unit| unit.ids.len()).sum(),
        }
    }

    fn poll(&mut self) -> Option<Asked> {
        if let Some(at) = self.sendable().filter(|_| self.link_idle) {
            self.link_idle = false;
            return Some(Asked::Send(self.units.remove(at).ids));
        }
        let members = self.block()?;
        let ids = members.iter().map(|&at| self.units[at].ids[0]).collect();
        for at in members {
            self.units[at].state = PlainState::Compressing;
        }
        Some(Asked::Compress(ids))
    }

    fn sendable(&self) -> Option<usize> {
        let head = self.units.first()?;
        let rules = self.rules();
        if head.state != PlainState::Compressing {
            return Some(0);
        }
        if rules.unfinished == Unfinished::Wait {
            return None;
        }
        let barred =
            |unit: &PlainUnit| rules.order == BlockOrder::Strict && unit.group == head.group;
        self.units.iter().position(|unit| unit.state != PlainState::Compressing && !barred(unit))
    }

    fn block(&self) -> Option<Vec<usize>> {
        let is_compressing = self.units.iter().any(|unit| unit.state == PlainState::Compressing);
        if is_compressing || self.slots(&self.units) <= self.lead + self.packets {
            return None;
        }
        let beyond = (0..self.units.len()).filter(|&at| self.slots(&self.units[..at]) >= self.lead);
        beyond.filter_map(|at| self.block_from(at)).next()
    }

    fn block_from(&self, first: usize) -> Option<Vec<usize>> {
        let group = self.units[first].group;
        let mut members = Vec::new();
        for at in (first..self.units.len()).filter(|&at| self.units[at].group == group) {
            match (self.units[at].state, self.rules().order) {
                (PlainState::Raw, _) => members.push(at),
                (_, BlockOrder::Strict) => return None,
                (_, BlockOrder::Loose) if members.is_empty() => return None,
                (_, BlockOrder::Loose) => (),
            }
            if members.len() == self.packets {
                return Some(members);
            }
        }
        None
    }

    fn finish(&mut self, smaller: bool) {
        let being_compressed = |unit: &PlainUnit| unit.state == PlainState::Compressing;
        let Some(first) = self.units.iter().position(being_compressed) else { return };
        if !smaller {
            for unit in self.units.iter_mut().filter(|unit| being_compressed(unit)) {
                unit.state = PlainState::Fixed;
            }
            return;
        }
        let ids = self.units.iter().filter(|u| being_compressed(u)).map(|u| u.ids[0]).collect();
        let group = self.units[first].group;
        self.units.retain(|unit| !being_compressed(unit));
        let block = PlainUnit { ids, group, state: PlainState::Fixed };
        match self.rules().place {
            BlockPlace::Front => self.units.insert(first, block),
            BlockPlace::Tail => self.units.push(block),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { group: u64, compressed: bool },
    Compressed { smaller: bool },
    LinkReady,
    PutBack { packets: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..4, prop::bool::weighted(0.1))
            .prop_map(|(group, compressed)| Step::Arrive { group, compressed }),
        2 => prop::bool::weighted(0.8).prop_map(|smaller| Step::Compressed { smaller }),
        3 => Just(Step::LinkReady),
        1 => (1u32..4).prop_map(|packets| Step::PutBack { packets }),
    ]
}

fn rules() -> impl Strategy<Value = BlockRules> {
    use prop::sample::select;
    let place = || select(vec![BlockPlace::Front, BlockPlace::Tail]);
    let order = select(vec![BlockOrder::Loose, BlockOrder::Strict]);
    let unfinished = select(vec![Unfinished::Pass, Unfinished::Wait]);
    let slots = select(vec![BlockSlots::One, BlockSlots::PerPacket]);
    (order, unfinished, place(), slots, place()).prop_map(
        |(order, unfinished, place, slots, put_back)| {
            // What moves to the tail can't keep its order.
            let place = if order == BlockOrder::Strict { BlockPlace::Front } else { place };
            BlockRules { order, unfinished, place, slots, put_back }
        },
    )
}

/// Applies a step to both; `next_id` names what arrives.
fn apply(port: &mut Port, plain: &mut Plain, step: &Step, next_id: &mut u32) {
    match *step {
        Step::Arrive { group, compressed } => {
            let arrival = Packet { compressed, ..packet(*next_id, group) };
            let full = !plain.units.is_empty() && plain.slots(&plain.units) + 1 >= 50;
            let queued = port.arrive_one(NOW, arrival) == Admission::Queued;
            assert_eq!(queued, !full);
            if queued {
                let state = if compressed { PlainState::Fixed } else { PlainState::Raw };
                let unit = PlainUnit { ids: vec![*next_id], group: Some(group), state };
                plain.units.push(unit);
            }
            *next_id += 1;
        }
        Step::Compressed { smaller } => {
            if let Some(&first) = port.last_batch().first() {
                let outcome = if smaller { Outcome::Smaller(900) } else { Outcome::NotSmaller };
                port.compressed(first, outcome, 600_000);
                plain.finish(smaller);
            }
        }
        Step::LinkReady => {
            port.link_ready();
            plain.link_idle = true;
        }
        Step::PutBack { packets } => {
            let ids: Vec<u32> = (*next_id..*next_id + packets).collect();
            *next_id += packets;
            let packets = lost(&ids);
            if port.lose(NOW, LostBatch { packets: &packets, bytes: 900 }) == Admission::Queued {
                let unit = PlainUnit { ids, group: None, state: PlainState::Fixed };
                match plain.rules().put_back {
                    BlockPlace::Front => plain.units.insert(0, unit),
                    BlockPlace::Tail => plain.units.push(unit),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn does_what_the_plain_rules_do(
        steps in prop::collection::vec(step(), 1..200),
        packets in 1u32..5,
        lead in 0u32..6,
        rules in rules(),
    ) {
        let mut port = with(packets, lead, rules);
        let mut plain = Plain {
            packets: packets as usize,
            lead: lead as usize,
            rules: Some(rules),
            ..Plain::default()
        };
        let mut next_id = 0;
        for step in &steps {
            apply(&mut port, &mut plain, step, &mut next_id);
            while let Some(action) = port.ask(NOW) {
                let asked = match action {
                    Wanted::Send => Asked::Send(frame_ids(&port)),
                    Wanted::Compress(id) => Asked::Compress(vec![id.0]),
                    Wanted::CompressBatch => Asked::Compress(ids(&port)),
                    Wanted::Drop(..) | Wanted::Mark(_) => panic!("blocks are not dropped"),
                };
                prop_assert_eq!(Some(asked), plain.poll());
            }
            prop_assert_eq!(None, plain.poll());
            port.assert_invariants();
        }
    }
}

/// Asserts that fences, which may hold packets of any group, overtake nothing and are not
/// overtaken.
fn assert_fenced(sent: &[u32], fences: &[u32]) {
    let place = |id: u32| sent.iter().position(|&other| other == id);
    for &fence in fences {
        let Some(at) = place(fence) else { continue };
        assert!(sent[..at].iter().all(|&id| id < fence), "{fence} was overtaken: {sent:?}");
        assert!(sent[at..].iter().all(|&id| id >= fence), "{fence} overtook: {sent:?}");
    }
}

proptest! {
    /// If blocks keep their order, nothing passes packets that may be of any group.
    #[test]
    fn nothing_passes_what_may_be_of_any_group(
        steps in prop::collection::vec(step(), 1..200),
        (packets, lead) in (1u32..5, 0u32..6),
        unfinished in prop::sample::select(vec![Unfinished::Pass, Unfinished::Wait]),
        waiting in any::<bool>(),
    ) {
        let order = BlockOrder::Strict;
        let rules = BlockRules { order, unfinished, place: BlockPlace::Front, ..BlockRules::PAPER };
        let mut port = with(packets, lead, rules);
        if waiting {
            let scheme = Scheme::waiting(Gather::Flow, 6_000);
            let config = PortConfig { scheme, ..port.config().clone() };
            port.configure(config).unwrap();
        }
        let (mut sent, mut fences) = (Vec::new(), Vec::new());
        for (id, step) in (0..).zip(&steps) {
            match *step {
                Step::Arrive { group, compressed } => {
                    let group = if compressed { Packet::ANY_GROUP } else { group };
                    if compressed {
                        fences.push(id);
                    }
                    let _ = port.arrive_one(NOW, Packet { compressed, ..packet(id, group) });
                }
                Step::Compressed { smaller } => {
                    if let Some(&first) = port.last_batch().first() {
                        let smaller = if smaller { Outcome::Smaller(900) } else { Outcome::NotSmaller };
                        port.compressed(first, smaller, 600_000);
                    }
                }
                Step::LinkReady | Step::PutBack { .. } => port.link_ready(),
            }
            while let Some(action) = port.ask(NOW) {
                if action == Wanted::Send {
                    sent.extend(frame_ids(&port));
                }
            }
            port.assert_invariants();
        }
        assert_fenced(&sent, &fences);
    }
}
