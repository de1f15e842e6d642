//! Every scenario of the papers, with the invariants verified after every event.

use dwell_sim::scenario::Options;
use dwell_sim::{World, library};

/// Enough for queues to fill and presses to come out; every event verifies whole queues.
const EVENTS: usize = 4000;

#[test]
fn invariants_hold_after_every_event_of_every_scenario() {
    let options = Options { is_quick: true, ..Options::default() };
    for entry in library::ENTRIES {
        let scenario = entry.read(&options).unwrap();
        for point in &scenario.points {
            let mut plan = point.plan.clone();
            plan.check_invariants = true;
            let mut world = World::new(&plan, 1).unwrap();
            let events = (0..EVENTS).take_while(|_| world.step()).count();
            assert!(events > 10, "{}: nothing happens", entry.id);
        }
    }
}
