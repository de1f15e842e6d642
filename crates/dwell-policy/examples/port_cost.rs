//! The cost of the core per packet, in nanoseconds, without anything around it.
//!
//! `cargo run --release -p dwell-policy --example port_cost`
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "examples may measure")]

use std::hint::black_box;
use std::time::Instant as Clock;

use dwell_base::{Instant, Rate};
use dwell_policy::{
    Action, ClassKey, Estimate, Estimates, Event, LearnedConfig, Outcome, Packet, PacketId, Port,
    PortConfig, QueueLimit, Ratio, Scheme,
};

const PACKETS: u32 = 2_000_000;

fn main() {
    let fixed = Estimates::Fixed(Estimate { ratio: Ratio::from_ppm(700_000), cost_ns: 200_000 });
    let learned = Estimates::Learned(LearnedConfig::default());
    println!("{:<9} {:<8} {:>14} {:>12}", "scheme", "beliefs", "ns per packet", "spread");
    for (name, estimates) in [("fixed", fixed), ("learned", learned)] {
        // The paper's rule for blocks beside ours.
        for scheme in dwell_policy::PRESETS.into_iter().chain(["flow(5,5)", "edge(5,5)"]) {
            if preset(scheme).fills_frames() {
                continue; // see chunk_cost
            }
            let mut costs: Vec<f64> = (0..5).map(|_| cost_ns(scheme, estimates)).collect();
            costs.sort_by(f64::total_cmp);
            println!("{scheme:<9} {name:<8} {:>14.1} {:>5.1}–{:.1}", costs[2], costs[0], costs[4]);
        }
    }
}

fn preset(name: &str) -> Scheme {
    Scheme::preset(name).expect("a preset")
}

/// At least ten packets wait at first: one comes, one goes, or a block of them.
fn cost_ns(scheme: &str, estimates: Estimates) -> f64 {
    let mut port = Port::new(PortConfig {
        scheme: preset(scheme),
        rate: Some(Rate::from_mbps(100)),
        limit: QueueLimit::packets(1000),
        estimates,
        ..PortConfig::default()
    })
    .expect("a possible configuration");
    port.handle(Instant::ZERO, Event::LinkBusy);
    for id in 0..10 {
        step(&mut port, id, false);
    }
    let start = Clock::now();
    for id in 0..PACKETS {
        step(&mut port, id, true);
    }
    start.elapsed().as_nanos() as f64 / f64::from(PACKETS)
}

fn step(port: &mut Port, id: u32, link: bool) {
    let now = Instant::from_ns(u64::from(id) * 40_000);
    let class = ClassKey::new(17, 9);
    let packet = Packet {
        id: PacketId(id),
        bytes: 500,
        source: class,
        destination: class,
        flow: u64::from(id % 64) << 32 | u64::from(id % 64),
        group: u64::from(id % 64),
        max_wait_ns: Packet::NEVER_HELD,
        batch_bytes_max: u32::MAX,
        looks_random: false,
        takes_mark: false,
        compressed: false,
    };
    port.handle(now, Event::Arrive(black_box(packet)));
    if link {
        port.handle(now, Event::LinkReady);
    }
    while let Some(action) = port.poll(now) {
        match action {
            Action::Compress(job) => {
                let (bytes, took_ns) =
                    if job.packets == 1 { (350, 3_000) } else { (300 * job.packets, 15_000) };
                let outcome = Outcome::Smaller(bytes);
                port.handle(now, Event::Compressed { job: job.id, outcome, took_ns });
            }
            Action::Send => (),
            Action::Drop(..) | Action::Mark(_) => panic!("there is room"),
        }
    }
}
