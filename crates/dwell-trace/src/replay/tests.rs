//! Replays of made-up captures, compared with the accounts and with the simulator.

use std::sync::Arc;

use dwell_base::{Rate, Rng};
use dwell_policy::{Estimate, FrameCost};
use dwell_sim::plan::{
    CompressionModel, Flow, Group, Link as SimLink, Plan, PortPlan, Queue, Ties, Traffic, Window,
};
use dwell_sim::world::World;
use proptest::prelude::*;

use super::compress::{Compress, Compressed, GivenCost, Job};
use super::samples::{tcp_v4, udp_v4, udp_v6};
use super::*;
use crate::sides::Ends;

/// A link of 2 Mbit/s that gets about 3 in bursts: half text, a quarter noise, a quarter
/// small messages.
pub(super) fn capture(packets: usize) -> Vec<(u64, Vec<u8>)> {
    let mut rng = Rng::from_seed(11);
    let mut at_ns = 1_700_000_000_000_000_000;
    let text = "the quick brown fox jumps over the lazy dog, and the dog does not mind; ";
    (0..packets)
        .map(|n| {
            at_ns += rng.exponential(600_000.0) as u64;
            if n % 97 == 0 {
                at_ns += 150_000_000;
            }
            let flow = rng.below(5) as u16;
            let size = 60 + rng.below(1300) as usize;
            let packet = match rng.below(4) {
                0 => {
                    let mut noise = vec![0; size];
                    rng.fill(&mut noise);
                    tcp_v4(443, 5000 + flow, 1, &noise)
                }
                1 => udp_v6(5683, 7000 + flow, format!("{{\"t\":{n},\"v\":21}}").as_bytes()),
                _ => {
                    let start = rng.below(40) as usize;
                    tcp_v4(80, 6000 + flow, 1, &text.repeat(20).as_bytes()[start..start + size])
                }
            };
            (at_ns, packet)
        })
        .collect()
}

pub(super) fn given() -> Cost {
    Cost::Given(GivenCost { unit_ns: 5_000, byte_ps: 3_000 })
}

pub(super) fn settings() -> Settings {
    Settings::new(Link::ethernet(Rate::from_mbps(2)))
}

fn preset(name: &str) -> (String, Scheme) {
    (name.to_owned(), Scheme::preset(name).unwrap())
}

fn run(settings: Settings, capture: &[(u64, Vec<u8>)]) -> ReplayReport {
    let mut replay = Replay::new(settings, given).unwrap();
    for (at_ns, packet) in capture {
        let ends = Ends::default();
        replay.packet(Input { at_ns: Some(*at_ns), packet, wire_len: None, ends });
    }
    replay.finish("test")
}

fn lane<'r>(report: &'r ReplayReport, name: &str) -> &'r LaneReport {
    report.lanes.iter().find(|lane| lane.name == name).unwrap()
}

#[test]
fn accounts_balance_for_every_preset() {
    let capture = capture(4000);
    let classes = vec!["telemetry:udp/5683:20ms".parse().unwrap()];
    let report = run(Settings { classes, ..settings() }, &capture);
    assert_eq!(report.lanes.len(), PRESETS.len() + 1);
    let bytes: u64 = capture.iter().map(|(_, packet)| packet.len() as u64).sum();
    for lane in &report.lanes {
        let tx = lane.tx();
        assert!(tx.balances() && tx.held.packets == 0, "{}", lane.name);
        assert_eq!((tx.arrived.packets, tx.arrived.bytes), (4000, bytes), "{}", lane.name);
        assert_eq!(lane.delay.count, tx.sent.packets, "{}", lane.name);
        let bins = &lane.timeline.bins;
        assert_eq!(bins.iter().map(|bin| bin.sent).sum::<u64>(), tx.sent.packets);
        assert_eq!(bins.iter().map(|bin| bin.link_bytes).sum::<u64>(), tx.link_bytes);
        assert_eq!(bins.iter().map(|b| b.dropped).sum::<u64>(), tx.dropped_total().packets);
        let class = &lane.classes[0];
        assert_eq!(class.arrived, class.wait.count + class.dropped);
        // The link was busy for as long as its bytes take.
        assert!(lane.busy_ns.abs_diff(tx.link_bytes * 4000) < tx.frames + 1, "{}", lane.name);
    }
    // The link is overloaded.
    assert!(lane(&report, "none").drop_share() > 0.1);
    // Chunks hold telemetry back to share datagrams, and nothing else does.
    let frames = |name| lane(&report, name).tx().frames;
    assert!(frames("basicq") < frames("none"));
    // Schemes that compress send more of the arriving packets.
    let sent = |name| lane(&report, name).tx().sent.packets;
    assert!(sent("packet") > sent("none") && sent("edge") > sent("none"));
    assert!(lane(&report, WITHOUT).tx().link_bytes > 0);
}

#[test]
fn the_same_capture_gives_the_same_report() {
    let capture = capture(1500);
    let one = run(settings(), &capture);
    assert_eq!(one, run(settings(), &capture));
    let json = serde_json::to_string(&one).unwrap();
    let back: ReplayReport = serde_json::from_str(&json).unwrap();
    assert_eq!(back.joined(), one);
}

#[test]
fn speed_scales_arrivals_and_nothing_else() {
    let capture = capture(1000);
    let slow = run(Settings { speed: 0.01, ..settings() }, &capture);
    let real = run(settings(), &capture);
    assert!(slow.span_ns.abs_diff(real.span_ns * 100) <= 100);
    assert_eq!(lane(&slow, "none").tx().dropped_total().packets, 0);
    assert!(lane(&real, "none").tx().dropped_total().packets > 0);
    assert!(slow.load() < 0.02 && real.load() > 1.0, "{} {}", slow.load(), real.load());
}

#[test]
fn only_what_goes_over_the_link_is_replayed() {
    let capture = capture(400);
    let sources = vec!["fd00::/64".parse().unwrap()];
    let report = run(Settings { sources, ..settings() }, &capture);
    assert_eq!(report.input.selected.packets + report.input.not_selected, 400);
    assert!(report.input.selected.packets > 50 && report.input.not_selected > 50);
    let destinations = vec!["10.9.0.0/16".parse().unwrap()];
    let report = run(Settings { destinations, ..settings() }, &capture);
    assert_eq!(report.input.selected.packets, 0);
    assert_eq!(report.span_ns, 0);
}

#[test]
fn what_is_too_long_is_cut_as_senders_would() {
    let big = vec![
        (0, tcp_v4(80, 5000, 1, &[b'x'; 9000])),
        (1, udp_v4(80, 5000, &[b'x'; 1472])),
        (2, tcp_v4(80, 5000, 1, &[b'x'; 100])),
    ];
    let report = run(Settings { schemes: vec![preset("none")], ..settings() }, &big);
    assert_eq!((report.input.shortened, report.input.too_big.packets), (2, 0));
    assert_eq!(lane(&report, WITHOUT).tx().arrived.packets, 7 + 1 + 1);
    assert_eq!(lane(&report, "none").tx().arrived.packets, 7 + 2 + 1);
}

#[test]
fn cut_captures_are_replayed_as_incompressible() {
    let whole: Vec<_> =
        (0..300u64).map(|n| (n * 2_000_000, tcp_v4(80, 5000, n as u32, &[b'x'; 1200]))).collect();
    let cut: Vec<_> = whole.iter().map(|(at, packet)| (*at, packet[..96].to_vec())).collect();
    let (whole, cut) = (run(settings(), &whole), run(settings(), &cut));
    assert_eq!(cut.input.selected, whole.input.selected);
    assert_eq!(cut.input.missing.bytes, 300 * (1240 - 96));
    assert!(lane(&whole, "packet").tx().saved_bytes() > 100_000);
    let left = lane(&cut, "packet").tx().saved_bytes() as f64;
    assert!(left < 300.0 * 96.0, "{left}");
}

#[test]
fn impossible_settings_are_reported() {
    let refused = |settings: Settings| Replay::new(settings, given).err().unwrap().to_string();
    assert!(refused(Settings { speed: 0.0, ..settings() }).contains("speed"));
    assert!(refused(Settings { speed: f64::NAN, ..settings() }).contains("speed"));
    let link = Link { path_mtu: 576, ..settings().link };
    assert!(refused(Settings { link, ..settings() }).contains("MTU"));
    let codec = "zstd:1".parse().unwrap();
    let codec = CodecSpec { level: 99, ..codec };
    assert!(refused(Settings { codec, ..settings() }).contains("99"));
    let class: DeadlineClass = "a:tcp:1s".parse().unwrap();
    let classes = vec![class; DEADLINE_CLASSES_MAX + 1];
    assert!(refused(Settings { classes, ..settings() }).contains("classes"));
}

/// The same ratio and time for everything, as the simulator models it.
struct Constant {
    ratio: f64,
    time_ns: u64,
}

impl Compress for Constant {
    fn compress(&mut self, job: Job<'_>) -> Compressed {
        let len = (job.bytes.len() as f64 * self.ratio + 1e-6) as usize;
        Compressed {
            len: Ok((len < job.bytes.len()).then_some(len)),
            in_context: job.context.is_some(),
            took_ns: self.time_ns,
        }
    }
}

const RATIO: f64 = 0.7;
const TIME_NS: u64 = 900_000;

/// A packet's time, its bytes and its flow.
type Arrival = (u64, u32, usize);

fn port_config(name: &str) -> PortConfig {
    let estimate = Estimate { ratio: Ratio::from_ppm(700_000), cost_ns: TIME_NS };
    PortConfig {
        scheme: Scheme::preset(name).unwrap(),
        rate: Some(Rate::from_mbps(2)),
        limit: QueueLimit::packets(40),
        frame: FrameCost::FREE_CHUNKS,
        estimates: Estimates::Fixed(estimate),
        ..PortConfig::default()
    }
}

/// The same arrivals through the simulator's world and through a lane: time by time, drop by
/// drop the same, for every preset.
#[test]
fn lanes_agree_with_the_simulator() {
    let mut rng = Rng::from_seed(5);
    let mut at_ns = 0;
    let arrivals: Vec<Arrival> = (0..5000)
        .map(|n| {
            // Some packets arrive at the same time as others leave.
            at_ns += if n % 5 == 0 { 0 } else { rng.below(400) * 10_000 };
            (at_ns, 100 + 100 * rng.below(14) as u32, 0)
        })
        .collect();
    for name in PRESETS {
        for max_wait_ns in [0, 100_000] {
            let config = port_config(name);
            let simulated = simulate(&config, &arrivals, max_wait_ns);
            let replayed = replay_through_lane(config, &arrivals, max_wait_ns);
            assert_eq!(replayed, simulated, "{name}, held {max_wait_ns} ns");
            assert!(replayed.flows[0].1 > 0, "{name}: the link must be overloaded");
        }
    }
}

/// The same with flows that take turns, some of which send little, and groups of which batches are
/// made: `auto` with what is known beforehand, with what it learns, and when it saves bytes.
#[test]
fn auto_decides_alike_for_many_flows() {
    let mut rng = Rng::from_seed(6);
    let mut at_ns = 0;
    let arrivals: Vec<Arrival> = (0..8000)
        .map(|_| {
            at_ns += 10_000 + rng.below(250) * 10_000;
            // No two flows at once: the simulator would draw lots.
            let flow = if rng.below(20) == 0 { 4 + rng.below(2) } else { rng.below(4) };
            let bytes = if flow >= 4 { 80 } else { 100 + 100 * rng.below(14) as u32 };
            (at_ns, bytes, flow as usize)
        })
        .collect();
    let bytes = Objective::Bytes { max_wait_ns: 20_000_000, cpu_ppm: 500_000 };
    for objective in [Objective::Time, bytes] {
        for learns in [false, true] {
            let mut config = PortConfig { objective, ..port_config("auto") };
            if learns {
                config.estimates = Estimates::Learned(LearnedConfig::default());
            }
            let simulated = simulate(&config, &arrivals, 0);
            let replayed = replay_through_lane(config, &arrivals, 0);
            assert_eq!(replayed, simulated, "{objective:?}, learns {learns}");
            assert!(replayed.compressions > 100, "{replayed:?}");
            let dropped = replayed.flows.iter().map(|flow| flow.1).sum::<u64>();
            assert!(replayed.flows.len() == 6 && dropped > 0, "the link must be overloaded");
        }
    }
}

#[derive(Debug, PartialEq)]
struct Numbers {
    /// Of each flow, packets that were sent and dropped.
    flows: Vec<(u64, u64)>,
    delay_sum_ns: u128,
    delay_ns_max: u64,
    link_bytes: u64,
    compressions: u64,
}

/// Packets of two flows are of one pair of hosts.
const fn hosts_of(flow: usize) -> u64 {
    flow as u64 / 2
}

fn flows_of(arrivals: &[Arrival]) -> usize {
    arrivals.iter().map(|&(.., flow)| flow + 1).max().unwrap_or(0)
}

fn simulate(config: &PortConfig, arrivals: &[Arrival], max_wait_ns: u64) -> Numbers {
    let link = SimLink {
        name: "link".into(),
        from: 0,
        to: 1,
        rate: Rate::from_mbps(2),
        propagation_ns: 0,
        frame_ns_min: 0,
        queue: Queue::Port(Box::new(PortPlan {
            config: config.clone(),
            compress: CompressionModel::Constant { ratio: RATIO, time_ns: TIME_NS },
            resend_after_ns: None,
            unit_s: None,
        })),
        restored: false,
        medium: dwell_sim::plan::Medium::default(),
    };
    let flow = |flow: usize| {
        let own = arrivals.iter().filter(|&&(.., of)| of == flow);
        let own: Vec<(u64, u32)> = own.map(|&(at_ns, bytes, _)| (at_ns, bytes)).collect();
        Flow {
            group: flow,
            route: vec![0],
            back: Vec::new(),
            max_wait_ns,
            edge: 0,
            service: 0,
            hosts: hosts_of(flow),
            traffic: Traffic::Trace(Arc::from(own)),
        }
    };
    let flows = 0..flows_of(arrivals);
    let group = |flow: usize| Group { name: flow.to_string(), wait_ns_max: 0 };
    let until_ns = 1_000_000_000_000;
    let plan = Plan {
        nodes: vec!["a".into(), "b".into()],
        links: vec![link],
        groups: flows.clone().map(group).collect(),
        flows: flows.map(flow).collect(),
        window: Window { from_ns: 0, until_ns, drain_ns: until_ns },
        bin_ns: None,
        ties: Ties::Random,
        check_invariants: false,
        counts_only: false,
    };
    let outcome = World::new(&plan, 1).unwrap().run();
    let accounts = &outcome.ports[0].accounts;
    let groups = outcome.groups.iter();
    Numbers {
        flows: groups.clone().map(|group| (group.delivered, group.dropped)).collect(),
        delay_sum_ns: groups.clone().map(|group| u128::from(group.delay.sum_ns)).sum(),
        delay_ns_max: groups.map(|group| group.delay.max_ns).max().unwrap_or(0),
        link_bytes: accounts.link_bytes,
        compressions: accounts.compress.compressions,
    }
}

fn replay_through_lane(config: PortConfig, arrivals: &[Arrival], max_wait_ns: u64) -> Numbers {
    let flows = flows_of(arrivals);
    let mut lane = Lane::new(LaneSetup {
        port: config,
        rate: Rate::from_mbps(2),
        compress: Box::new(Constant { ratio: RATIO, time_ns: TIME_NS }),
        waits_ns_max: vec![max_wait_ns; flows],
        columnar: false,
        // A model of the compressor says nothing about which packets resemble each other.
        chosen_contexts: 0,
    })
    .unwrap();
    for &(at_ns, bytes, flow) in arrivals {
        let arriving = Arriving {
            bytes: vec![0; bytes as usize].into(),
            source: ClassKey::new(17, 9),
            destination: ClassKey::new(17, 9),
            flow: 7 + flow as u64,
            service: 7,
            hosts: 7 + hosts_of(flow),
            class: Some(flow as u8),
            looks_random: false,
        };
        lane.arrive(at_ns, &arriving);
    }
    let (port, result) = lane.finish();
    let accounts = port.accounts();
    let classes = result.classes.iter();
    Numbers {
        flows: classes.map(|class| (class.wait.count(), class.dropped)).collect(),
        delay_sum_ns: result.delay.sum_ns(),
        delay_ns_max: result.delay.summary().max_ns,
        link_bytes: accounts.link_bytes,
        compressions: accounts.compress.compressions,
    }
}

#[test]
fn a_report_is_shown_in_all_forms() {
    let classes = vec!["telemetry:udp/5683:20ms".parse().unwrap()];
    let report = run(Settings { classes, ..settings() }, &capture(1500));
    let text = view::lanes(&report).to_text();
    assert!(text.contains(WITHOUT) && text.contains("edge"), "{text}");
    assert!(view::summary(&report).contains("1,500 packets"));
    assert!(view::drops(&report).unwrap().to_text().contains("queue bytes"));
    assert!(view::deadlines(&report).unwrap().to_text().contains("telemetry"));
    let csv = view::records(&report).to_csv();
    assert_eq!(csv.lines().count(), PRESETS.len() + 2);
    assert!(csv.starts_with("scheme,rate_bps,") && csv.contains("class_telemetry_late"), "{csv}");
    let verdict = crate::verdict::judge(&report, &crate::verdict::Question::default());
    let page = view::page(&report, &verdict, dwell_figures::page::Provenance::default()).to_html();
    for title in ["Would dwell help?", "Deadlines", "Drops over time", "On the link over time"] {
        assert!(page.contains(title), "{title}");
    }
}

/// Without classes that have a deadline, schemes that fill frames have the same results as `none`,
/// and the table says so once.
#[test]
fn schemes_that_do_the_same_are_reported_together() {
    let report = run(settings(), &capture(800));
    let alike = view::alike(&report);
    assert!(alike[0].starts_with("The same as none: basicq, chumq,"), "{alike:?}");
    assert!(alike[0].contains("classes with a deadline"), "{alike:?}");
    let text = view::lanes(&report).to_text();
    assert!(text.contains("none") && !text.contains("basicq"), "{text}");
}

/// Packets of several kinds: text, noise, small messages, acknowledgements, some too long.
fn any_packets() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let packet = (0u8..5, 0usize..3000, 0u16..4, 0u64..3_000_000, any::<u64>());
    prop::collection::vec(packet, 1..250).prop_map(|packets| {
        let mut at_ns = 1_700_000_000_000_000_000;
        let text = "it was the age of wisdom, it was the age of foolishness, ".repeat(60);
        let packets =
            packets.into_iter().enumerate().map(|(n, (kind, size, flow, gap_ns, seed))| {
                at_ns += gap_ns;
                let start = (seed % 50) as usize;
                let packet = match kind {
                    0 => {
                        let mut noise = vec![0; size];
                        Rng::from_seed(seed).fill(&mut noise);
                        tcp_v4(443, 5000 + flow, n as u32, &noise)
                    }
                    1 => {
                        udp_v6(5683, 7000 + flow, format!("{{\"t\":{n},\"v\":{start}}}").as_bytes())
                    }
                    2 => tcp_v4(5000 + flow, 80, n as u32, &[]),
                    3 => udp_v4(9000, 9000 + flow, &text.as_bytes()[start..start + size % 1400]),
                    _ => tcp_v4(80, 6000 + flow, n as u32, &text.as_bytes()[start..start + size]),
                };
                (at_ns, packet)
            });
        packets.collect()
    })
}

fn saving_max(packets: &[(u64, Vec<u8>)]) -> f64 {
    struct Stopped;
    impl crate::Clock for Stopped {
        fn now_ns(&mut self) -> u64 {
            0
        }
    }
    let settings =
        crate::Settings { codecs: vec!["lz4".parse().unwrap()], ..crate::Settings::default() };
    let file = super::samples::pcap(packets);
    let mut capture = crate::Capture::open(&file[..]).unwrap();
    let mut accounts = crate::Accounts::new(&settings);
    accounts.begin("test", capture.format());
    let mut history = crate::HistoryAnalyzer::new(&settings, Stopped).unwrap();
    let mut compress = crate::Analyzer::new(&settings, Stopped).unwrap();
    let mut batch = crate::Batch::default();
    let mut is_more = true;
    while is_more {
        is_more = accounts.fill(&mut capture, &mut batch);
        history.batch(&mut batch).unwrap();
        compress.batch(&batch).unwrap();
    }
    let mut analysis = accounts.finish();
    analysis.merge(compress.finish()).unwrap();
    analysis.directions.sums[0].saving_max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// No scheme at any rate saves more than an analysis says is possible, with no codec of relays.
    #[test]
    fn no_scheme_saves_more_than_the_analysis_says(
        packets in any_packets(),
        kbps in prop::sample::select(vec![64, 256, 1000, 4000, 100_000]),
        codec in prop::sample::select(vec!["zstd:1", "zstd:9", "zstd:19", "lz4", "deflate"]),
        sealed: bool,
        is_free: bool,
    ) {
        let most = saving_max(&packets);
        let classes = vec!["all:udp,tcp:200ms".parse().unwrap()];
        let link = Link { sealed, ..Link::ethernet(Rate::clamped_bps(kbps * 1000)) };
        let codec = codec.parse().unwrap();
        let settings = Settings { classes, codec, ..Settings::new(link) };
        let cost = if is_free { 0 } else { 20_000 };
        let cost = || Cost::Given(GivenCost { unit_ns: cost, byte_ps: 0 });
        let mut replay = Replay::new(settings, cost).unwrap();
        for (at_ns, packet) in &packets {
            let ends = Ends::default();
            replay.packet(Input { at_ns: Some(*at_ns), packet, wire_len: None, ends });
        }
        let report = replay.finish("test");
        for lane in report.lanes.iter().filter(|lane| !lane.is_without()) {
            let question = crate::verdict::Question::default();
            let change = crate::verdict::Change::of(&report, lane, &question).unwrap();
            prop_assert!(change.saving <= most, "{}: {} of {most}", lane.name, change.saving);
        }
    }
}

/// What came so long ago that it is not in the same stretch of the analysis is still in a context.
#[test]
fn auto_saves_no_more_than_the_analysis_says() {
    let packet = |n: u64| {
        let mut noise = [0; 430];
        Rng::from_seed(n % 1_000).fill(&mut noise);
        let digits: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        udp_v4(40_000, 9, digits.as_bytes())
    };
    let packets: Vec<_> = (0..4_000).map(|n| (n * 2_000_000, packet(n))).collect();
    let most = saving_max(&packets);
    let objective = Objective::Bytes { max_wait_ns: 50_000_000, cpu_ppm: 1_000_000 };
    let link = Link::ethernet(Rate::from_mbps(10));
    let settings = Settings { schemes: vec![preset("auto")], objective, ..Settings::new(link) };
    let report = run(settings, &packets);
    let question = crate::verdict::Question::default();
    let change = crate::verdict::Change::of(&report, lane(&report, "auto"), &question).unwrap();
    // Digits alone come to half their bytes, and three of four packets were there before.
    assert!((0.65..=most).contains(&change.saving), "{} of {most}", change.saving);
}

#[test]
fn times_that_lie_are_no_later_than_can_be_counted() {
    let mut settings = settings();
    settings.speed = SPEED_MIN;
    let packet = udp_v4(1, 2, b"hello");
    let report = run(settings, &[(0, packet.clone()), (u64::MAX, packet.clone()), (7, packet)]);
    assert_eq!((report.span_ns, report.input.unordered), (u64::MAX / 4, 1));
    assert_eq!(report.without().unwrap().tx().sent.packets, 3);
}
