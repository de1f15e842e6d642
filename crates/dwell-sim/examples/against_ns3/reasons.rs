//! Why cases deviate by more than the limits, what shows it, and how far that goes.

use crate::case::Test;
use crate::table::Row;

/// A reason for a deviation.
pub(crate) struct Reason {
    /// Its letter in the table.
    pub(crate) letter: char,
    /// False if it explains a part only.
    pub(crate) is_whole: bool,
    pub(crate) sentence: &'static str,
    /// Takes the row and the one that tests it.
    holds: fn(&Row, Option<&Row>) -> bool,
}

/// Below this, flows starve: Jain's index.
const FAIR: f64 = 0.85;

const REASONS: [Reason; 8] = [
    Reason {
        letter: 'a',
        is_whole: true,
        sentence: "throughput is within 3 %, and the waits differ by less than one transmission of a packet: ns-3's device \
                   takes a packet from the discipline while it still sends the one before",
        holds: |row, _| {
            is_managed(row) && row.throughput_is_near() && row.wait_packets().abs() < 1.0
        },
    },
    Reason {
        letter: 'b',
        is_whole: true,
        sentence: "tested below: ns-3.37's CUBIC has no Reno-friendly region (RFC 9438, section 4.3), cuts its curve to whole packets, and \
                   an acknowledgement after a timeout takes its window far beyond the threshold. With a slow start that ends at the \
                   threshold there, and counted without that region here, both agree, or differ as in [a]",
        holds: |_, test| {
            is_test(test, Test::Cubic, |test| {
                test.throughput_is_near()
                    && (test.wait_is_near() || is_managed(test) && test.wait_packets().abs() < 1.0)
            })
        },
    },
    Reason {
        letter: 'c',
        is_whole: true,
        sentence: "tested below: ns-3.37's BBR paces at the rate that it measured, Linux' a hundredth below, sends packets one by one, and \
                   takes its smoothed round trip for the last one. With these three here, ours agrees with those of its runs in which \
                   nothing waited for half a round trip. In the others a sample right after the measurement of the least round trip is \
                   above the link's rate (18 % in a trace of seed 2), counts for ten rounds, and what it has queued stands for ten seconds",
        holds: |_, test| is_test(test, Test::Bbr, Row::is_near),
    },
    Reason {
        letter: 'd',
        is_whole: true,
        sentence: "an overload that does not react is what CoDel has no hold on: its drops still grow when the measurement ends",
        holds: |row, _| {
            row.case.poisson > row.case.mbps
                && row.case.queue == "codel"
                && row.throughput_is_near()
                && row.wait().abs() < 0.15
        },
    },
    Reason {
        letter: 'e',
        is_whole: true,
        sentence: "ns-3's BBR starves flows (see the fairness) or, with losses, all but stops. Linux does neither, nor do we: it is \
                   the reference for these",
        holds: |row, _| {
            let link_bps = row.case.mbps * 1e6;
            row.case.tcp == "Bbr"
                && row.here[4] > 0.9
                && row.here[0] > 0.9 * link_bps
                && (row.there[4] < FAIR || row.there[0] < 0.1 * link_bps)
        },
    },
    Reason {
        letter: 'f',
        is_whole: true,
        sentence: "tested below: CoDel leaves the last packet alone, in ns-3 that of each queue, in Linux and here that of all queues; and ns-3 \
                   brings its window down by PRR. With both as in ns-3, throughput is within 3 %, and the wait within 10 % or one transmission",
        holds: |_, test| {
            is_test(test, Test::Queue, |test| {
                test.throughput_is_near()
                    && (test.wait_is_near() || test.wait_packets().abs() < 1.0)
            })
        },
    },
    Reason {
        letter: 'g',
        is_whole: false,
        sentence: "tested below, as in [b]: ns-3's drops go from 524 to 50 (45 here), its wait from 3.9 to 0.6 ms. 3.4 % of throughput \
                   and 0.4 ms are left, as NewReno has 1.8 % and 0.1 ms there, and are not explained",
        holds: |_, test| {
            is_test(test, Test::Cubic, |test| {
                is_managed(test)
                    && test.throughput().abs() < 0.05
                    && test.wait_packets().abs() < 2.0
            })
        },
    },
    Reason {
        letter: 'h',
        is_whole: true,
        sentence: "tested below, as in [b]: counted as ns-3 does throughput is within 3 %, and the wait differs by half a transmission; \
                   ns-3's twenty runs have 0 to 25 ms, according to which packets are lost",
        holds: |row, test| {
            row.case.loss > 0.0
                && is_test(test, Test::Cubic, |test| {
                    test.throughput_is_near() && test.wait_packets().abs() < 1.0
                })
        },
    },
];

fn is_managed(row: &Row) -> bool {
    row.case.queue != "fifo" && row.case.poisson == 0.0
}

fn is_test(test: Option<&Row>, kind: Test, holds: impl Fn(&Row) -> bool) -> bool {
    test.is_some_and(|test| test.case.test == kind && holds(test))
}

/// Returns the first reason that holds for a row, beside the one that tests it.
pub(crate) fn find(row: &Row, test: Option<&Row>) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| (reason.holds)(row, test))
}
