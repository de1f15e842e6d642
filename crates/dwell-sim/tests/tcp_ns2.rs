//! The sender and receiver against ns-2.35, packet by packet: the network of
//! `validate/tcp/trace.tcl` is rebuilt here, and must send and drop the same packets in the same
//! microseconds as the traces beside that script say. The senders by the RFCs go through the same
//! network, where they must fill the link and retransmit the dropped packets, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dumbbell;

use dumbbell::{BOTTLENECK_US_PER_BYTE, Dumbbell, Event, Flow};
use dwell_sim::tcp::{Flavour, Sender};

/// The stored part of a trace of ns-2.
#[derive(Debug, Default)]
struct Trace {
    limit: usize,
    seconds: u64,
    flows: Vec<Flow>,
    /// Drops, retransmissions, and each 16th of the other packets.
    lines: Vec<String>,
    /// Number and checksum of all packets.
    sum: (u64, u64),
    ends: Vec<End>,
}

/// The final state of a sender.
#[derive(Debug, PartialEq)]
struct End {
    segments: u64,
    retransmissions: u64,
    timeouts: u64,
    acked: u64,
    /// The window in packets, with the six digits of ns-2's output.
    window: String,
    threshold: u64,
}

fn parse(text: &str) -> Trace {
    let mut trace = Trace::default();
    for line in text.lines() {
        let (what, rest) = line.split_once(' ').unwrap();
        let n = |i: usize| -> u64 { rest.split(' ').nth(i).unwrap().parse().unwrap() };
        match what {
            "limit" => trace.limit = n(0) as usize,
            "seconds" => trace.seconds = n(0),
            "flow" => trace.flows.push(Flow {
                start_us: n(0),
                delay_us: n(1),
                bytes: n(2) as u32,
                tick_phase_ns: n(3),
                flavour: Flavour::Sack1,
            }),
            "send" | "again" | "drop" => trace.lines.push(line.to_owned()),
            "sum" => trace.sum = (n(0), n(1)),
            "end" => trace.ends.push(End {
                segments: n(1),
                retransmissions: n(2),
                timeouts: n(3),
                acked: n(4),
                window: six_digits(rest.split(' ').nth(5).unwrap().parse().unwrap()),
                threshold: n(6),
            }),
            _ => assert!(what == "#", "{line}"),
        }
    }
    trace
}

fn six_digits(window: f64) -> String {
    format!("{window:.5e}")
}

fn compare(text: &str) {
    let trace = parse(text);
    let mut ours = Dumbbell::new(trace.limit, &trace.flows);
    let mut expected = trace.lines.iter();
    let (mut sent, mut sum) = (0u64, 0u64);
    ours.run(trace.seconds * 1_000_000, |us, event, flow, seq| {
        let us_flow_seq = format!("{us} {flow} {seq}");
        let line = match event {
            Event::Drop => format!("drop {us_flow_seq}"),
            Event::Retransmission => format!("again {us_flow_seq}"),
            Event::Send => format!("send {us_flow_seq}"),
        };
        if event != Event::Send || sent % 16 == 0 {
            assert_eq!(Some(&line), expected.next(), "after {sent} packets");
        }
        if event != Event::Drop {
            sum = (sum * 31 + us * 7 + flow as u64 * 3 + seq) % 2_147_483_647;
            sent += 1;
        }
    });
    assert_eq!(expected.next(), None);
    assert_eq!((sent, sum), trace.sum);
    let ends: Vec<End> = ours
        .senders()
        .map(|sender| End {
            segments: sender.counts().segments,
            retransmissions: sender.counts().retransmissions,
            timeouts: sender.counts().timeouts,
            acked: sender.acked(),
            window: six_digits(sender.window()),
            threshold: sender.threshold() as u64,
        })
        .collect();
    assert_eq!(ends, trace.ends);
}

macro_rules! same_as_ns2 {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            compare(include_str!(concat!(
                "../../../validate/tcp/",
                stringify!($name),
                ".trace"
            )));
        }
    )*};
}

same_as_ns2!(one_no_loss one_drops one_small bursts two five);

/// Flows of one flavour with a queue of 20 packets for a minute: the drops, and the senders.
fn minute(flavour: Flavour, starts_and_delays_us: &[(u64, u64)]) -> (u64, Vec<Sender>) {
    let flow =
        |&(start_us, delay_us)| Flow { start_us, delay_us, bytes: 1003, tick_phase_ns: 0, flavour };
    let flows: Vec<Flow> = starts_and_delays_us.iter().map(flow).collect();
    let mut network = Dumbbell::new(20, &flows);
    let mut drops = 0;
    network.run(60_000_000, |_, event, _, _| drops += u64::from(event == Event::Drop));
    (drops, network.senders().cloned().collect())
}

const FLAVOURS: [Flavour; 3] = [Flavour::Sack1, Flavour::NewReno, Flavour::Cubic];
const CAPACITY: u64 = 60_000_000 / (1003 * BOTTLENECK_US_PER_BYTE);

#[test]
fn every_flavour_fills_the_link_and_retransmits_what_was_dropped() {
    for flavour in FLAVOURS {
        let (drops, senders) = minute(flavour, &[(100_000, 5_003)]);
        let (acked, counts) = (senders[0].acked(), senders[0].counts());
        assert!(acked * 100 > CAPACITY * 99, "{flavour:?} {acked}");
        assert!(drops < acked / 100 && counts.timeouts <= 1, "{flavour:?} {drops} {counts:?}");
        // Packets dropped at the end were not missed yet.
        let resent = counts.retransmissions;
        assert!(resent <= drops && drops <= resent + 3, "{flavour:?} {drops} {resent}");
    }
}

#[test]
fn flows_fill_the_link_together() {
    for flavour in FLAVOURS {
        let (_, senders) =
            minute(flavour, &[(100_000, 5_003), (700_011, 33_001), (300_000, 17_777)]);
        let acked: Vec<u64> = senders.iter().map(Sender::acked).collect();
        assert!(acked.iter().sum::<u64>() * 100 > CAPACITY * 97, "{flavour:?} {acked:?}");
        assert!(acked.iter().all(|&a| a * 10 > CAPACITY), "{flavour:?} {acked:?}");
    }
}
