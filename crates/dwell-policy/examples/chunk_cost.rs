//! The cost of chunking per packet, in nanoseconds, in the core alone: the classes and the load of
//! Sawabe et al., and a link that is free again after the time that each frame takes. Linux reports
//! the CPU time, so that it matters less what else runs.
//!
//! `cargo run --release -p dwell-policy --example chunk_cost`
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "examples may measure")]

use std::hint::black_box;
use std::time::Instant as Clock;

use dwell_base::{Instant, Rng};
use dwell_policy::{
    Action, ClassKey, ClassTimers, Event, FrameCost, PRESETS, Packet, PacketId, Port, PortConfig,
    QueueLimit, Scheme,
};

const PACKETS: usize = 2_000_000;
/// Bytes and W of each class.
const CLASSES: [(u32, u64); 3] = [(40, 50_000), (200, 100_000), (1500, 200_000)];

fn main() {
    println!("{:<26} {:>6} {:>14} {:>14}", "scheme", "load", "ns per packet", "spread");
    for load in [0.3, 0.9, 1.2] {
        let arrivals = arrivals(load);
        report("(the loop alone)", load, || loop_alone(&arrivals));
        for name in PRESETS {
            let scheme = Scheme::preset(name).expect("a preset");
            if scheme.fills_frames() {
                report(name, load, || run(scheme, &arrivals));
                if let Some(scheme) = with_16_classes(scheme) {
                    report(&format!("{name}, 16 classes"), load, || run(scheme, &arrivals));
                }
            }
        }
    }
}

/// Nanoseconds on the CPU where they are reported, otherwise those that have passed since `start`.
fn cpu_ns(start: Clock) -> u64 {
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu = reported.and_then(|text| text.split(' ').next()?.parse().ok());
    on_cpu.unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

fn report(name: &str, load: f64, mut run: impl FnMut() -> u64) {
    let start = Clock::now();
    let mut costs: Vec<f64> = (0..5)
        .map(|_| {
            let before = cpu_ns(start);
            black_box(run());
            (cpu_ns(start) - before) as f64 / PACKETS as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("{name:<26} {load:>6} {:>14.1} {:>8.1}–{:.1}", costs[2], costs[0], costs[4]);
}

/// The times and classes of Poisson arrivals at 10 Gbit/s, each class a third of the load.
fn arrivals(load: f64) -> Vec<(u64, u8)> {
    let mut rng = Rng::from_seed(1);
    let mean_ns = |class: usize| f64::from(CLASSES[class].0) / (1.25 * load / 3.0);
    let mut next = [0, 1, 2].map(|class| rng.exponential(mean_ns(class)));
    (0..PACKETS)
        .map(|_| {
            let class = (1..3).fold(0, |a, b| if next[b] < next[a] { b } else { a });
            let at = next[class] as u64;
            next[class] += rng.exponential(mean_ns(class));
            (at, class as u8)
        })
        .collect()
}

fn with_16_classes(scheme: Scheme) -> Option<Scheme> {
    let timers_ns: Vec<u64> = (1..=16).map(|n| n * 12_500).collect();
    let timers = ClassTimers::new(&timers_ns).ok()?;
    let with = scheme.with_class_timers(timers);
    (with != scheme).then_some(with)
}

fn loop_alone(arrivals: &[(u64, u8)]) -> u64 {
    let packets = arrivals.iter().enumerate();
    packets.map(|(id, &(at, class))| black_box(packet(id, class)).max_wait_ns ^ at).sum()
}

fn packet(id: usize, class: u8) -> Packet {
    let (bytes, max_wait_ns) = CLASSES[usize::from(class)];
    let key = ClassKey::new(17, 9);
    Packet {
        id: PacketId(id as u32),
        bytes,
        source: key,
        destination: key,
        flow: u64::from(class),
        group: 0,
        max_wait_ns,
        batch_bytes_max: u32::MAX,
        looks_random: false,
        takes_mark: false,
        compressed: false,
    }
}

fn run(scheme: Scheme, arrivals: &[(u64, u8)]) -> u64 {
    let mut port = Port::new(PortConfig {
        scheme,
        limit: QueueLimit::packets(10_000),
        frame: FrameCost::FREE_CHUNKS,
        ..PortConfig::default()
    })
    .expect("a possible configuration");
    let mut free_at = None;
    for (id, &(at, class)) in arrivals.iter().enumerate() {
        // What the time brings first: the end of a transmission, or a timer.
        while let Some(wake) = free_at.or(port.next_deadline().map(Instant::as_ns))
            && wake <= at
        {
            if free_at.take().is_some() {
                port.handle(Instant::from_ns(wake), Event::LinkReady);
            }
            free_at = send(&mut port, wake);
        }
        port.handle(Instant::from_ns(at), Event::Arrive(packet(id, class)));
        if free_at.is_none() {
            free_at = send(&mut port, at);
        }
    }
    port.accounts().frames
}

/// When the link is free again, if it got a frame.
fn send(port: &mut Port, now: u64) -> Option<u64> {
    let mut free_at = None;
    while let Some(action) = port.poll(Instant::from_ns(now)) {
        if action == Action::Send {
            free_at = Some(now + (port.frame().link_bytes * 4 / 5).max(200));
        }
    }
    free_at
}
