//! Measures what the papers' figures cost to reproduce: the processor time of their runs, by figure. A run that
//! several figures share counts for the first of them.
//!
//! `cargo run --release -p dwell-sim --example figure_cost -- [PAPER|FIGURE]... [--points] [--seeds N] [--part X]`
//!
//! `--points` lists the points, too. Only one seed of each point is run (or N), and counts for all. `--part 0.1` runs
//! a tenth of each run's time, for `valgrind --tool=callgrind`. The last column is a hash of all results: what only
//! makes the simulator faster must not change it.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "examples may measure")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use dwell_sim::results::Task;
use dwell_sim::scenario::{Options, Scenario};
use dwell_sim::{World, library};

struct Arguments {
    words: Vec<String>,
    points: bool,
    seeds: usize,
    part: f64,
}

/// The cost of some runs.
#[derive(Clone, Copy, Default)]
struct Cost {
    runs: u64,
    packets: f64,
    events: f64,
    cpu_s: f64,
    results: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let scenarios = scenarios(&arguments)?;
    let mut known = BTreeSet::new();
    let mut all = Cost::default();
    println!(
        "{:<60} {:>6} {:>10} {:>10} {:>8} {:>10} {:>16}",
        "figure", "runs", "M packets", "M events", "CPU s", "ns/packet", "results"
    );
    for scenario in &scenarios {
        let mut tasks: BTreeMap<usize, Vec<Task<'_>>> = BTreeMap::new();
        for task in Task::all(scenario).filter(|task| known.insert(task.key(""))) {
            let place = scenario.points.iter().position(|point| std::ptr::eq(point, task.point));
            tasks.entry(place.unwrap_or(0)).or_default().push(task);
        }
        let mut sum = Cost::default();
        for tasks in tasks.values() {
            let cost = run(tasks, arguments.seeds)?;
            if arguments.points {
                let values = &tasks[0].point.values;
                let values = values.iter().map(|(key, value)| format!("{key}={}", value.shown()));
                cost.print(&format!("{} {}", scenario.id, values.collect::<Vec<_>>().join(" ")));
            }
            sum.add(cost);
        }
        sum.print(&scenario.id);
        all.add(sum);
    }
    all.print("all");
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn std::error::Error>> {
    let mut arguments = Arguments { words: Vec::new(), points: false, seeds: 1, part: 1.0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--points" => arguments.points = true,
            "--seeds" => arguments.seeds = value()?.parse()?,
            "--part" => arguments.part = value()?.parse()?,
            _ => arguments.words.push(word),
        }
    }
    if arguments.words.is_empty() {
        arguments.words.push("all".to_owned());
    }
    Ok(arguments)
}

fn scenarios(arguments: &Arguments) -> Result<Vec<Scenario>, Box<dyn std::error::Error>> {
    let entries = arguments.words.iter().flat_map(|word| library::find(word));
    let mut scenarios = Vec::new();
    for entry in entries {
        let mut scenario = entry.read(&Options::default()).map_err(|errors| errors.to_string())?;
        for point in &mut scenario.points {
            let window = &mut point.plan.window;
            for ns in [&mut window.from_ns, &mut window.until_ns, &mut window.drain_ns] {
                *ns = (*ns as f64 * arguments.part) as u64;
            }
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

/// Runs the first few of these, which stand for all.
fn run(tasks: &[Task<'_>], seeds: usize) -> Result<Cost, Box<dyn std::error::Error>> {
    let begin_ns = cpu_ns();
    let some = tasks.len().min(seeds);
    let run = |task: &Task<'_>| World::new(&task.point.plan, task.seed).map(World::run);
    let outcomes = tasks[..some].iter().map(run).collect::<Result<Vec<_>, _>>()?;
    let cpu_s = (cpu_ns() - begin_ns) as f64 / 1e9;
    let packets: u64 = outcomes.iter().map(|outcome| outcome.source_packets).sum();
    let events: u64 = outcomes.iter().map(|outcome| outcome.events).sum();
    let mut results = DefaultHasher::new();
    for outcome in &outcomes {
        format!("{:?}", (&outcome.groups, &outcome.ports, &outcome.acknowledged))
            .hash(&mut results);
    }
    let scale = tasks.len() as f64 / some as f64;
    Ok(Cost {
        runs: tasks.len() as u64,
        packets: packets as f64 * scale,
        events: events as f64 * scale,
        cpu_s: cpu_s * scale,
        results: results.finish(),
    })
}

/// Returns the processor time of this process; other work on the machine does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("Linux reports it")
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.packets += other.packets;
        self.events += other.events;
        self.cpu_s += other.cpu_s;
        self.results = self.results.rotate_left(1) ^ other.results;
    }

    fn print(self, name: &str) {
        let Self { runs, packets, events, cpu_s, results } = self;
        let packet_ns = cpu_s * 1e9 / packets.max(1.0);
        println!(
            "{name:<60} {runs:>6} {:>10.1} {:>10.1} {cpu_s:>8.1} {packet_ns:>10.1} {results:016x}",
            packets / 1e6,
            events / 1e6
        );
    }
}
