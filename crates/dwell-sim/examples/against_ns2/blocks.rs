//! The dumbbell with schemes that compress blocks: mean throughput and mean number of compressions over
//! seeds, in ns-2 and here with each order of ties.

use std::collections::BTreeMap;
use std::fs;

use dwell_sim::World;
use dwell_sim::library;
use dwell_sim::scenario::{Options, Point, Setting, Value};

use crate::Agreement;
use crate::mean::Mean;

/// The largest accepted difference of mean throughputs, as a share of ns-2's.
const THROUGHPUT_MAX: f64 = 0.01;
/// The largest accepted difference of mean numbers of compressions.
const COMPRESSIONS_MAX: f64 = 0.05;

/// A scheme by its name in the file: its label in the scenario of the paper's Fig. 3.
const SCHEMES: [(&str, &str); 6] = [
    ("none", "Nocomp"),
    ("packet", "Packet"),
    ("flow5", "Flow, m = 5"),
    ("edge5", "Edge, m = 5"),
    ("flow10", "Flow, m = 10"),
    ("edge10", "Edge, m = 10"),
];

/// A run: Mbit/s, and the number of compressions.
type Run = (f64, f64);

/// ns-2's runs, by scheme and number of flows.
type Runs = BTreeMap<(String, usize), Vec<Run>>;

/// Reads lines `SCHEME FLOWS SEED MBPS COMPRESSIONS` of ns-2, runs the same here with as many seeds, and
/// compares, with each of these orders of ties.
pub(crate) fn run(file: &str, orders: &[&str]) -> Agreement {
    let runs = read(&fs::read_to_string(file)?)?;
    println!(
        "{:>7} {:>5} {:>8} {:>16} {:>15}",
        "scheme", "flows", "ties", "Mbit/s", "compressions"
    );
    let mut near = !runs.is_empty();
    for ((scheme, flows), there) in &runs {
        print_line(scheme, *flows, "in ns-2", there, there);
        for &ties in orders {
            let point = point(scheme, *flows, ties)?;
            let seeds = 1..=there.len() as u64;
            let here = seeds.map(|seed| measure(&point, seed)).collect::<Result<Vec<_>, _>>()?;
            let is_near = print_line(scheme, *flows, ties, &here, there);
            near &= is_near || ties != "ns-2"; // only that one claims to be ns-2's
        }
    }
    println!(
        "± is the 95 % interval of the mean; with ns-2's ties {:.0} % of throughput and {:.0} % of \
         compressions are allowed, or what the intervals leave open",
        100.0 * THROUGHPUT_MAX,
        100.0 * COMPRESSIONS_MAX
    );
    Ok(near)
}

fn point(scheme: &str, flows: usize, ties: &str) -> Result<Point, Box<dyn std::error::Error>> {
    let Some((_, label)) = SCHEMES.iter().find(|(name, _)| *name == scheme) else {
        return Err(format!("\"{scheme}\" is no scheme").into());
    };
    let settings = vec![
        format!("topology.flows={flows}").parse::<Setting>()?,
        format!("run.ties=\"{ties}\"").parse()?,
    ];
    let [entry] = library::find("yoshino/fig-3")[..] else { return Err("no scenario".into()) };
    let scenario =
        entry.read(&Options { settings, is_quick: false }).map_err(|e| format!("{e}"))?;
    let wanted = |point: &Point| matches!(point.value("label"), Some(Value::Text(text)) if text.as_str() == *label);
    let point = scenario.points.into_iter().find(wanted);
    point.ok_or_else(|| format!("the scenario has no {label}").into())
}

fn measure(point: &Point, seed: u64) -> Result<Run, Box<dyn std::error::Error>> {
    let metrics = World::new(&point.plan, seed)?.run().metrics();
    let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    Ok((get("throughput_bps") / 1e6, get("compressions")))
}

/// Prints a line; returns true if the means are near enough to ns-2's.
fn print_line(scheme: &str, flows: usize, ties: &str, here: &[Run], there: &[Run]) -> bool {
    let mut near = true;
    let mut cell = |value: fn(&Run) -> f64, allowed: f64| {
        let (ours, theirs) = (Mean::of(here.iter().map(value)), Mean::of(there.iter().map(value)));
        let deviation = ours.mean / theirs.mean - 1.0;
        let open = ours.half_width.hypot(theirs.half_width) / theirs.mean;
        near &= deviation.is_nan() || deviation.abs() <= allowed.max(open);
        let deviation = if deviation.is_nan() { 0.0 } else { 100.0 * deviation };
        format!("{:>9.2} ± {:>6.2} {deviation:>7.2}%", ours.mean, ours.half_width)
    };
    let cells = [cell(|run| run.0, THROUGHPUT_MAX), cell(|run| run.1, COMPRESSIONS_MAX)];
    println!("{scheme:>7} {flows:>5} {ties:>8} {} {}", cells[0], cells[1]);
    near
}

fn read(text: &str) -> Result<Runs, Box<dyn std::error::Error>> {
    let mut runs = Runs::new();
    for line in text.lines() {
        let [scheme, flows, _, mbps, compressions] =
            line.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(format!("\"{line}\" is not SCHEME FLOWS SEED MBPS COMPRESSIONS").into());
        };
        let run = (mbps.parse()?, compressions.parse()?);
        runs.entry((scheme.to_owned(), flows.parse()?)).or_default().push(run);
    }
    Ok(runs)
}
