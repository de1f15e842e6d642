//! Schemes that compress blocks with ns-2's order of ties: stored runs of ns-2.35, and the first packets of one.
//!
//! `validate/ns2-blocks/build.sh DIR` builds the queue for ns-2; each line of `blocks.txt` is
//!
//! ```text
//! validate/blocks-line.sh DIR/libblocks.so NETWORK SCHEME FLOWS SEED from=1 seconds=1.5
//! ```
//!
//! and the packets, whose times are rounded to nanoseconds, are
//!
//! ```text
//! validate/blocks-line.sh DIR/libblocks.so buffers20 edge5 45 1 from=0.1 seconds=0.4 records=FILE
//! ```

use crate::reference::blocks::{Case, Leaving, leaving, measure, parse_leaving, parse_run};

const RUNS: &str = include_str!("../golden/blocks.txt");
const PACKETS: &str = include_str!("../golden/packets-buffers20-edge5-45-1.txt");

/// The settings of the stored runs.
const WINDOW: [&str; 2] = ["run.warm_up=\"1s\"", "run.measure=\"500ms\""];

#[test]
fn every_run_is_that_of_ns2() {
    let mut compressions = 0.0;
    for line in RUNS.lines() {
        let (case, seed, there) = parse_run(line).unwrap();
        let point = case.point(&[WINDOW[0], WINDOW[1], "run.ties=\"ns-2\""]).unwrap();
        let here = measure(&point, seed).unwrap();
        assert!(here.is_same(&there), "{line}: {here:?}");
        compressions += here.compressions;
    }
    assert!(RUNS.lines().count() > 10 && compressions > 1000.0, "{compressions}");
}

#[test]
fn another_order_of_ties_is_seen() {
    let (case, seed, there) = parse_run(RUNS.lines().nth(3).unwrap()).unwrap();
    let point = case.point(&[WINDOW[0], WINDOW[1], "run.ties=\"random\""]).unwrap();
    let here = measure(&point, seed).unwrap();
    assert!(!here.is_same(&there), "{here:?}");
}

#[test]
fn every_packet_leaves_when_it_leaves_in_ns2() {
    let there: Vec<Leaving> = PACKETS.lines().map(|line| parse_leaving(line).unwrap()).collect();
    let case = Case { network: "buffers20".to_owned(), scheme: "edge5".to_owned(), flows: 45 };
    let settings = ["run.warm_up=\"100ms\"", "run.measure=\"300ms\"", "run.ties=\"ns-2\""];
    let mut here = Vec::new();
    leaving(&case.point(&settings).unwrap(), 1, |packet| here.push(packet)).unwrap();
    let differ = here.iter().zip(&there).position(|(here, there)| !here.is_same(there));
    assert_eq!(differ.map(|at| (here[at], there[at])), None);
    assert_eq!(here.len(), there.len());
    let blocks = there.iter().filter(|packet| packet.bytes > 1500).count();
    assert!(blocks > 40, "nothing is shown where nothing is compressed: {blocks}");
}
