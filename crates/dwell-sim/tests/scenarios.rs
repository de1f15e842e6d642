//! Every scenario of the papers, with the invariants verified after every event.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "scenarios/media.rs"]
mod media;

use std::collections::HashMap;

use dwell_policy::{Accounts, Scheme};
use dwell_sim::plan::{Plan, Queue, Traffic, Window};
use dwell_sim::scenario::Options;
use dwell_sim::{World, library};

const MILLI_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MILLI_NS;

/// Enough for compressions to end and timers to expire; every event verifies whole queues.
const EVENTS: usize = 4000;

/// Returns the time from which a plan is busy: connections fill the queues, an overload has begun,
/// and elsewhere the first packets are through.
fn busy_from_ns(plan: &Plan) -> u64 {
    match &plan.flows[0].traffic {
        Traffic::Tcp(..) => 5 * SECOND_NS,
        Traffic::Poisson { steps, .. } => {
            let most = steps.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            most.0 + 2 * MILLI_NS
        }
        _ => 200 * MILLI_NS,
    }
}

/// Returns the sums of the ports: units compressed, and frames sent.
fn done(world: &World) -> (u64, u64) {
    let sum = |(units, frames), port: &Accounts| {
        (units + port.compress.compressions, frames + port.frames)
    };
    world.accounts().fold((0, 0), sum)
}

fn has_port(plan: &Plan, wanted: impl Fn(&Scheme) -> bool) -> bool {
    plan.links.iter().any(|link| match &link.queue {
        Queue::Port(port) => wanted(&port.config.scheme),
        _ => false,
    })
}

/// Steps through a busy part of a run, and returns the number of units compressed in it.
fn step_through(plan: &Plan, name: &str) -> u64 {
    let mut world = World::new(plan, 1).unwrap();
    let busy_ns = busy_from_ns(plan);
    while world.now_ns() < busy_ns && world.step() {}
    let before = done(&world);
    world.check_invariants(true);
    let events = (0..EVENTS).take_while(|_| world.step()).count();
    assert_eq!(events, EVENTS, "{name}: nothing happens");
    let after = done(&world);
    if has_port(plan, Scheme::fills_frames) {
        assert!(after.1 > before.1, "{name}: no chunk was sent");
    }
    after.0 - before.0
}

/// Every scenario at each point of its quick variant, from when the queues are busy. Scenarios
/// that show other sides of the same runs share them.
#[test]
fn invariants_hold_after_every_event_of_every_scenario() {
    let options = Options { is_quick: true, ..Options::default() };
    let mut compressed = HashMap::new();
    for entry in library::ENTRIES {
        let scenario = entry.read(&options).unwrap();
        let (mut compressions, mut units) = (false, 0);
        for point in &scenario.points {
            let mut plan = point.plan.clone();
            // Long enough for the busy part, whatever the scenario's window is.
            let until_ns = busy_from_ns(&plan) + 10 * SECOND_NS;
            plan.window = Window { from_ns: 0, until_ns, drain_ns: 0 };
            plan.bin_ns = None;
            let step = || step_through(&plan, entry.id);
            units += *compressed.entry(format!("{plan:?}")).or_insert_with(step);
            compressions |= has_port(&plan, Scheme::compresses);
        }
        assert!(!compressions || units > 0, "{}: nothing was compressed", entry.id);
    }
}
