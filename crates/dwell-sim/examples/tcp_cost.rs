//! Measures the cost of both ends of TCP per packet of data and its acknowledgement, in
//! nanoseconds, with next to nothing around them: 198 connections in turn, over queues.
//!
//! `cargo run --release -p dwell-sim --example tcp_cost`
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "examples may measure")]

use std::collections::VecDeque;
use std::hint::black_box;

use dwell_base::Rng;
use dwell_sim::tcp::{Ack, Flavour, Receiver, Sender, TcpConfig, TcpConfigError};

const CONNECTIONS: usize = 198;
const PACKETS: u64 = 5_000_000;
const PACKET_NS: u64 = 60_000;

/// A connection and its packets in flight.
struct Connection {
    sender: Sender,
    receiver: Receiver,
    data: VecDeque<(u64, u64)>,
    acks: VecDeque<Ack>,
}

fn main() -> Result<(), TcpConfigError> {
    println!(
        "{:<10} {:>7} {:>8} {:>15} {:>10}",
        "flavour", "window", "loss", "ns per packet", "resent"
    );
    for flavour in [Flavour::Sack1, Flavour::NewReno, Flavour::Cubic] {
        for (window, loss) in [(16, 0.0), (100, 0.0), (100, 0.005), (1000, 0.005), (100, 0.05)] {
            let mut costs = Vec::new();
            let mut resent = 0.0;
            for _ in 0..3 {
                let (cost_ns, share) = run(flavour, window, loss)?;
                costs.push(cost_ns);
                resent = share;
            }
            costs.sort_by(f64::total_cmp);
            println!(
                "{:<10} {window:>7} {loss:>8} {:>15.1} {resent:>10.4}",
                format!("{flavour:?}"),
                costs[1]
            );
        }
    }
    Ok(())
}

/// Returns the cost of a packet, that of the path included, and the share of retransmitted packets.
fn run(flavour: Flavour, window: u32, loss: f64) -> Result<(f64, f64), TcpConfigError> {
    let config = TcpConfig { window_packets: window, ..TcpConfig::of(flavour) };
    let mut connections = (0..CONNECTIONS)
        .map(|_| {
            let (sender, receiver) = (Sender::new(&config)?, Receiver::new(&config)?);
            Ok(Connection { sender, receiver, data: VecDeque::new(), acks: VecDeque::new() })
        })
        .collect::<Result<Vec<_>, TcpConfigError>>()?;
    let mut rng = Rng::from_seed(1);
    let mut now_ns = 0;
    for connection in &mut connections {
        connection.sender.start(now_ns);
        connection.pump(now_ns);
    }
    let (mut sent, mut resent) = (0, 0);
    let begin_ns = cpu_ns();
    let mut steps = 0u64;
    while sent < PACKETS {
        steps += 1;
        let connection = &mut connections[(steps % CONNECTIONS as u64) as usize];
        now_ns += PACKET_NS;
        connection.step(now_ns, &mut rng, loss);
        if steps.is_multiple_of(1024) {
            sent = connections.iter().map(|c| c.sender.counts().segments).sum();
            resent = connections.iter().map(|c| c.sender.counts().retransmissions).sum();
        }
    }
    black_box(&connections);
    Ok(((cpu_ns() - begin_ns) as f64 / sent as f64, resent as f64 / sent as f64))
}

/// Returns the processor time of this process; other work on the machine does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("Linux reports it")
}

impl Connection {
    /// A packet arrives or is lost, is answered, and the answer arrives.
    fn step(&mut self, now_ns: u64, rng: &mut Rng, loss: f64) {
        if let Some((seq, sent_ns)) = self.data.pop_front()
            && !rng.chance(loss)
        {
            self.acks.extend(self.receiver.on_segment(now_ns, seq, sent_ns));
        }
        if let Some(ack) = self.acks.pop_front() {
            self.sender.on_ack(now_ns, &ack);
        } else {
            self.sender.on_timer(now_ns);
        }
        self.pump(now_ns);
    }

    fn pump(&mut self, now_ns: u64) {
        while let Some(segment) = self.sender.next_segment(now_ns) {
            self.data.push_back((segment.seq, now_ns));
        }
    }
}
