//! A small part of `./x validate`, with stored records of ns-2.35: it needs no ns-2.
//!
//! ```text
//! ns validate/parking.tcl n=4 seed=1 seconds=0.006 limit=2 peak=61Mb \
//!     records=parking-4.txt
//! ```

mod blocks;
mod reference;

use dwell_base::Rate;

use reference::compare::{CompareError, compare};
use reference::parking::Parking;
use reference::records::{self, Fate};

const GOLDEN: &str = include_str!("../golden/parking-4.txt");

fn parking() -> Parking {
    let peak = Rate::from_mbps(61);
    Parking { relays: 4, peak, limit_packets: 2, until_ns: 6_000_000 }
}

#[test]
fn every_packet_fares_as_in_ns2() {
    let records = records::parse(GOLDEN).unwrap();
    let flows = compare(&parking(), 1, &records).unwrap();
    for (flow, result) in flows.iter().enumerate() {
        assert!(result.is_equal(), "flow {flow}: {result:?}");
        assert!(result.packets > 50, "flow {flow}: {result:?}");
        assert!(result.sent_apart_ns_max < 1.0, "flow {flow}: {result:?}");
    }
    let dropped: u64 = flows.iter().map(|flow| flow.dropped).sum();
    assert!(dropped > 10, "nothing is shown where nothing is dropped: {dropped}");
}

#[test]
fn what_differs_is_seen() {
    let mut records = records::parse(GOLDEN).unwrap();
    let arrived = |record: &&mut records::Record| matches!(record.fate, Fate::Received { .. });
    let first = records[0].iter_mut().find(arrived).unwrap();
    first.fate = Fate::Dropped { at_ns: first.sent_ns };
    let second = records[1].iter_mut().find(arrived).unwrap();
    if let Fate::Received { at_ns } = &mut second.fate {
        *at_ns += 10.0;
    }
    records[2].pop();
    let flows = compare(&parking(), 1, &records).unwrap();
    let delays = |flow: usize| flows[flow].delays_differ + flows[flow].delays_differ_after;
    assert_eq!((flows[0].fates_differ, delays(0)), (1, 0));
    assert_eq!((flows[1].fates_differ, delays(1)), (0, 1));
    assert!(!flows[0].is_equal() && !flows[1].is_equal() && !flows[2].is_equal());
    assert!(flows[3].is_equal());
}

#[test]
fn other_seeds_are_other_packets() {
    let records = records::parse(GOLDEN).unwrap();
    let flows = compare(&parking(), 2, &records).unwrap();
    assert!(flows.iter().all(|flow| !flow.is_equal()));
}

#[test]
fn records_of_another_network_are_refused() {
    let records = records::parse("0 0 0.001 r 0.002").unwrap();
    let error = compare(&parking(), 1, &records).unwrap_err();
    assert_eq!(error, CompareError::Flows { found: 1, expected: 4 });
}
