//! The sender and receiver against ns-2.35, packet by packet: the network of
//! `validate/tcp/trace.tcl` is built again here, and must send and drop the same packets in
//! the same microseconds as the traces beside that script say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dumbbell;

use dumbbell::{Dumbbell, Event, Flow};

/// A trace that ns-2 made, as far as it is kept.
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

/// How a sender was left.
#[derive(Debug, PartialEq)]
struct End {
    segments: u64,
    retransmissions: u64,
    timeouts: u64,
    acked: u64,
    /// In packets, with the six digits that ns-2 tells.
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
