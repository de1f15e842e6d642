//! The dumbbell with schemes that compress blocks, in ns-2 and here with each order of ties: with ns-2's, which run
//! has exactly the same throughput and number of compressions; with all, the means over seeds.

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

/// The networks by their names in the file, and what they change in the scenario; `validate/blocks-line.sh` has the
/// same for ns-2.
const CASES: [(&str, &[&str]); 6] = [
    ("paper", &[]),
    ("buffers20", &["topology.buffer_packets=20"]),
    ("buffers120", &["topology.buffer_packets=120"]),
    (
        "rates",
        &[
            "topology.access_rate=\"83mbit\"",
            "topology.edge_rate=\"70mbit\"",
            "topology.core_rate=\"110mbit\"",
        ],
    ),
    (
        "delays",
        &[
            "topology.access_delay=\"700us\"",
            "topology.edge_delay=\"1300us\"",
            "topology.core_delay=\"23100us\"",
            "topology.resend_after=\"50ms\"",
        ],
    ),
    ("sizes", &["traffic.packet_bytes=576", "scheme.n=8"]),
];

/// A run: Mbit/s, and the number of compressions.
type Run = (f64, f64);

/// ns-2's runs with their seeds, by case, scheme and number of flows.
type Runs = BTreeMap<(String, String, usize), Vec<(u64, Run)>>;

/// The precision with which ns-2's script prints.
const DIGITS: f64 = 1e-4;

/// Reads lines `CASE SCHEME FLOWS SEED MBPS COMPRESSIONS` of ns-2, runs the same here with the same seeds, and
/// compares, with each of these orders of ties.
pub(crate) fn run(file: &str, orders: &[&str]) -> Agreement {
    let runs = read(&fs::read_to_string(file)?)?;
    println!(
        "{:>10} {:>7} {:>5} {:>8} {:>16} {:>15} {:>22}",
        "case", "scheme", "flows", "ties", "Mbit/s", "compressions", "equal runs"
    );
    let mut near = !runs.is_empty();
    let (mut equal, mut all) = (0, 0);
    for ((case, scheme, flows), there) in &runs {
        let of = format!("{case:>10} {scheme:>7} {flows:>5}");
        let values: Vec<Run> = there.iter().map(|&(_, run)| run).collect();
        print_line(&format!("{of} {:>8}", "in ns-2"), &values, &values);
        for &ties in orders.iter().filter(|&&ties| ties == "ns-2" || case == "paper") {
            let point = point(case, scheme, *flows, ties)?;
            let seeds = there.iter().map(|&(seed, _)| seed);
            let here = seeds.map(|seed| measure(&point, seed)).collect::<Result<Vec<_>, _>>()?;
            let is_near = print_line(&format!("{of} {ties:>8}"), &here, &values);
            if ties == "ns-2" {
                near &= is_near; // only that one claims to be ns-2's
                all += here.len();
                equal += equals(&here, &values);
            }
        }
    }
    println!(
        "with ns-2's ties {equal} of {all} runs are ns-2's, to the last packet and compression, as all have to be"
    );
    near &= equal == all && all > 0;
    println!(
        "± is the 95 % interval of the mean; with ns-2's ties {:.0} % of throughput and {:.0} % of \
         compressions are allowed, or what the intervals leave open",
        100.0 * THROUGHPUT_MAX,
        100.0 * COMPRESSIONS_MAX
    );
    Ok(near)
}

/// Returns the number of runs that are the same.
fn equals(here: &[Run], there: &[Run]) -> usize {
    let same = |(one, other): &(&Run, &Run)| (one.0 - other.0).abs() < DIGITS && one.1 == other.1;
    here.iter().zip(there).filter(same).count()
}

fn point(
    case: &str,
    scheme: &str,
    flows: usize,
    ties: &str,
) -> Result<Point, Box<dyn std::error::Error>> {
    let Some((_, changes)) = CASES.iter().find(|(name, _)| *name == case) else {
        return Err(format!("\"{case}\" is no case").into());
    };
    let Some((_, label)) = SCHEMES.iter().find(|(name, _)| *name == scheme) else {
        return Err(format!("\"{scheme}\" is no scheme").into());
    };
    let mut settings = vec![
        format!("topology.flows={flows}").parse::<Setting>()?,
        format!("run.ties=\"{ties}\"").parse()?,
        "traffic.random=\"ns-2\"".parse()?,
    ];
    for change in *changes {
        settings.push(change.parse()?);
    }
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
fn print_line(of: &str, here: &[Run], there: &[Run]) -> bool {
    let mut near = true;
    let mut cell = |value: fn(&Run) -> f64, allowed: f64| {
        let (ours, theirs) = (Mean::of(here.iter().map(value)), Mean::of(there.iter().map(value)));
        let deviation = ours.mean / theirs.mean - 1.0;
        let open = ours.half_width.hypot(theirs.half_width) / theirs.mean;
        // Nothing is compressed without a scheme, here and there; whatever else is no number is wrong.
        let are_none = ours.mean == 0.0 && theirs.mean == 0.0;
        near &= are_none || deviation.abs() <= allowed.max(open);
        let deviation = if are_none { 0.0 } else { 100.0 * deviation };
        format!("{:>9.2} ± {:>6.2} {deviation:>7.2}%", ours.mean, ours.half_width)
    };
    let cells = [cell(|run| run.0, THROUGHPUT_MAX), cell(|run| run.1, COMPRESSIONS_MAX)];
    let equal = format!("{} of {}", equals(here, there), there.len());
    println!("{of} {} {} {equal:>9}", cells[0], cells[1]);
    near
}

fn read(text: &str) -> Result<Runs, Box<dyn std::error::Error>> {
    let mut runs = Runs::new();
    for line in text.lines() {
        let [case, scheme, flows, seed, mbps, compressions] =
            line.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            let form = "CASE SCHEME FLOWS SEED MBPS COMPRESSIONS";
            return Err(format!("\"{line}\" is not {form}").into());
        };
        let run = (seed.parse()?, (mbps.parse()?, compressions.parse()?));
        let of = (case.to_owned(), scheme.to_owned(), flows.parse()?);
        runs.entry(of).or_default().push(run);
    }
    Ok(runs)
}
