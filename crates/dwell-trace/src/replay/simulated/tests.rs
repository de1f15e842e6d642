use dwell_base::Rate;
use dwell_policy::{PortConfig, Scheme};
use dwell_sim::plan::{
    CompressionModel, Flow, Group, Link as SimLink, Medium, Plan, PortPlan, Queue, Ties, Window,
};
use dwell_sim::world::World;
use dwell_wire::PacketInfo;

use super::super::compress::{CodecCompressor, Dictionaries};
use super::super::lane::{Lane, LaneSetup};
use super::super::tests::{capture, given, settings};
use super::super::{CONTEXTS_MAX, FLOW_SEED, arriving};
use super::*;

/// The same capture, really compressed, through a replay and through a simulated link of the same rate.
#[test]
fn a_simulated_capture_is_its_replay_to_the_byte() {
    let settings = settings();
    let packets = capture(3_000);
    let origin_ns = packets[0].0;
    let mut recorded = Recorded::default();
    for (at_ns, packet) in &packets {
        let info = PacketInfo::parse(packet, FLOW_SEED).unwrap();
        recorded.push(at_ns - origin_ns, arriving(packet, &info, &settings.classes));
    }
    let recorded = Arc::new(recorded);
    for name in ["none", "packet", "host-pair", "auto"] {
        let scheme = Scheme::preset(name).unwrap();
        let config = settings.port(settings.timed(scheme).unwrap());
        let compressor = || {
            let none = Dictionaries::default();
            Box::new(CodecCompressor::new(settings.codec, &none, given()).unwrap())
        };
        let chooses = scheme.has_contexts() && scheme.gather() == Gather::HostPair;
        let chosen_contexts = if chooses { CONTEXTS_MAX } else { 0 };
        let mut lane = Lane::new(LaneSetup {
            port: config.clone(),
            rate: settings.link.rate,
            compress: compressor(),
            waits_ns_max: Vec::new(),
            columnar: settings.columnar,
            chosen_contexts,
        })
        .unwrap();
        recorded.for_each(|at_ns, packet| lane.arrive(at_ns, packet));
        let (port, result) = lane.finish();
        let replayed = *port.accounts();

        let mut plan = one_link(&config, settings.link.rate);
        plan.flows[0].traffic = recorded.traffic();
        let contents =
            CaptureContents::default().with_flow(0, Arc::clone(&recorded)).with_port(RealPort {
                link: 0,
                gather: scheme.gather(),
                compress: compressor(),
                columnar: settings.columnar,
                chosen_contexts,
                waits_ns_max: Vec::new(),
            });
        let outcome = World::new(&plan, 1).unwrap().with_contents(Box::new(contents)).run();
        assert_eq!(outcome.ports[0].accounts, replayed, "{name}");
        assert_eq!(u128::from(outcome.groups[0].delay.sum_ns), result.delay.sum_ns(), "{name}");
        assert!(name == "none" || replayed.compress.compressions > 300, "{name}: {replayed:?}");
    }
}

/// A link with a port, and a flow over it.
fn one_link(config: &PortConfig, rate: Rate) -> Plan {
    let until_ns = 1_000_000_000_000;
    Plan {
        nodes: vec!["a".into(), "b".into()],
        links: vec![SimLink {
            name: "link".into(),
            from: 0,
            to: 1,
            rate,
            propagation_ns: 0,
            frame_ns_min: 0,
            queue: Queue::Port(Box::new(PortPlan {
                config: config.clone(),
                compress: CompressionModel::Constant { ratio: 1.0, time_ns: 0 },
                resend_after_ns: None,
                unit_s: None,
            })),
            restored: false,
            medium: Medium::default(),
        }],
        groups: vec![Group { name: "all".into(), wait_ns_max: 0 }],
        flows: vec![Flow {
            group: 0,
            route: vec![0],
            back: Vec::new(),
            max_wait_ns: 0,
            edge: 0,
            service: 0,
            hosts: 0,
            traffic: Traffic::Trace(Arc::from([])),
        }],
        window: Window { from_ns: 0, until_ns, drain_ns: until_ns },
        bin_ns: None,
        ties: Ties::Random,
        check_invariants: false,
        counts_only: false,
    }
}
