//! The worked example of ARCHITECTURE.md: a scheme of one's own, from four values to a simulation and
//! a replay, with the same decisions in both.

use std::sync::Arc;

use dwell_base::Rate;
use dwell_policy::{
    ClassKey, ClassTimers, ConfigError, Estimate, Estimates, FrameCost, Method, PortConfig,
    PullPolicy, Queue, QueueLimit, Ratio, Release, Scheme, Select,
};
use dwell_sim::plan::{
    CompressionModel, Flow, Group, Link, Plan, PortPlan, Queue as SimQueue, Ties, Traffic, Window,
};
use dwell_sim::world::World;
use dwell_trace::replay::compress::{Compress, Compressed, Job};
use dwell_trace::replay::lane::{Arriving, Lane, LaneSetup};

// The example begins here.

/// Sensors with two deadlines: frames are filled by the most urgent first, topped up from the other
/// class, and compressed as a whole if they leave earlier for it.
fn sensors() -> Result<Scheme, ConfigError> {
    let scheme = Scheme {
        queue: Queue::Tandem(ClassTimers::new(&[20_000_000, 60_000_000])?, PullPolicy::Dcf.lazy()),
        select: Select::Frame,
        method: Method::backing_off(),
        release: Release::Full { bytes_max: 1_400, fill: true },
    };
    scheme.check()?;
    Ok(scheme)
}

/// A link of 200 kbit/s, where compressing halves in 0.1 ms.
fn port() -> Result<PortConfig, ConfigError> {
    Ok(PortConfig {
        scheme: sensors()?,
        rate: Rate::from_bps(200_000),
        limit: QueueLimit::packets(1_000),
        frame: FrameCost::FREE_CHUNKS,
        estimates: Estimates::Fixed(Estimate { ratio: Ratio::from_ppm(500_000), cost_ns: 100_000 }),
        ..PortConfig::default()
    })
}

// The example ends here; the two worlds follow.

const RATE: Rate = match Rate::from_bps(200_000) {
    Some(rate) => rate,
    None => panic!("a possible rate"),
};
const MAX_WAIT_NS: u64 = 60_000_000;

/// A packet of 100 bytes every 5 ms.
fn arrivals() -> Vec<(u64, u32)> {
    (0..1_000).map(|n| (n * 5_000_000, 100)).collect()
}

fn simulated() -> (u64, u64, u64) {
    let queue = SimQueue::Port(Box::new(PortPlan {
        config: port().expect("a possible port"),
        compress: CompressionModel::Constant { ratio: 0.5, time_ns: 100_000 },
        resend_after_ns: None,
        unit_s: None,
    }));
    let plan = Plan {
        counts_only: false,
        nodes: vec!["sensors".into(), "site".into()],
        links: vec![Link {
            name: "link".into(),
            from: 0,
            to: 1,
            rate: RATE,
            propagation_ns: 0,
            frame_ns_min: 0,
            queue,
            restored: false,
            medium: dwell_sim::plan::Medium::default(),
        }],
        groups: vec![Group { name: "all".into(), wait_ns_max: MAX_WAIT_NS }],
        flows: vec![Flow {
            group: 0,
            route: vec![0],
            back: Vec::new(),
            max_wait_ns: MAX_WAIT_NS,
            edge: 0,
            service: 0,
            hosts: 0,
            traffic: Traffic::Trace(Arc::from(arrivals())),
        }],
        window: Window { from_ns: 0, until_ns: 10_000_000_000, drain_ns: 10_000_000_000 },
        bin_ns: None,
        ties: Ties::Random,
        check_invariants: true,
    };
    let accounts = World::new(&plan, 1).expect("a possible plan").run().ports[0].accounts;
    (accounts.sent.packets, accounts.link_bytes, accounts.compress.compressions)
}

struct Halves;

impl Compress for Halves {
    fn compress(&mut self, job: Job<'_>) -> Compressed {
        Compressed { len: Ok(Some(job.bytes.len() / 2)), in_context: false, took_ns: 100_000 }
    }
}

fn replayed() -> (u64, u64, u64) {
    let mut lane = Lane::new(LaneSetup {
        port: port().expect("a possible port"),
        rate: RATE,
        compress: Box::new(Halves),
        waits_ns_max: vec![MAX_WAIT_NS],
        columnar: false,
        chosen_contexts: 0,
    })
    .expect("a possible lane");
    for (at_ns, bytes) in arrivals() {
        let class = ClassKey::new(17, 9);
        let arriving = Arriving {
            bytes: vec![0; bytes as usize].into(),
            source: class,
            destination: class,
            flow: 7,
            service: 7,
            hosts: 7,
            class: Some(0),
            looks_random: false,
        };
        lane.arrive(at_ns, &arriving);
    }
    let (port, _) = lane.finish();
    let accounts = port.accounts();
    (accounts.sent.packets, accounts.link_bytes, accounts.compress.compressions)
}

#[test]
fn a_scheme_of_ones_own_runs_in_simulator_and_replay_alike() {
    let simulated = simulated();
    assert_eq!(simulated, replayed());
    let (sent, link_bytes, compressions) = simulated;
    assert_eq!(sent, 1_000);
    assert!(compressions > 70 && link_bytes < 60_000, "{compressions}, {link_bytes}");
}

/// The example is as short as the page says.
#[test]
fn the_example_is_under_forty_lines() {
    let text = include_str!("own_scheme.rs");
    let from = text.find("// The example begins here").expect("it is marked");
    let to = text.find("// The example ends here").expect("it is marked");
    assert!(text[from..to].lines().count() < 40);
}
