//! The dumbbell with schemes that compress blocks, in ns-2 and here with each order of ties: with ns-2's, which run
//! has exactly the same throughput and number of compressions; with all, the means over seeds.

use std::collections::BTreeMap;
use std::fs;

use crate::Agreement;
use crate::mean::Mean;
use crate::reference::blocks::{Case, Run, measure, parse_run};

/// The largest accepted difference of mean throughputs, as a share of ns-2's.
const THROUGHPUT_MAX: f64 = 0.01;
/// The largest accepted difference of mean numbers of compressions.
const COMPRESSIONS_MAX: f64 = 0.05;

/// ns-2's runs with their seeds, by case.
type Runs = BTreeMap<Case, Vec<(u64, Run)>>;

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
    for (case, there) in &runs {
        let of = format!("{:>10} {:>7} {:>5}", case.network, case.scheme, case.flows);
        let values: Vec<Run> = there.iter().map(|&(_, run)| run).collect();
        print_line(&format!("{of} {:>8}", "in ns-2"), &values, &values);
        for &ties in orders.iter().filter(|&&ties| ties == "ns-2" || case.network == "paper") {
            let point = case.point(&[&format!("run.ties=\"{ties}\"")])?;
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
    here.iter().zip(there).filter(|(here, there)| here.is_same(there)).count()
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
        format!("{:>9.2} ± {:>6} {deviation:>7.2}%", ours.mean, ours.plus_minus())
    };
    let cells =
        [cell(|run| run.mbps, THROUGHPUT_MAX), cell(|run| run.compressions, COMPRESSIONS_MAX)];
    let equal = format!("{} of {}", equals(here, there), there.len());
    println!("{of} {} {} {equal:>9}", cells[0], cells[1]);
    near
}

fn read(text: &str) -> Result<Runs, Box<dyn std::error::Error>> {
    let mut runs = Runs::new();
    for line in text.lines() {
        let (case, seed, run) = parse_run(line)?;
        runs.entry(case).or_default().push((seed, run));
    }
    Ok(runs)
}
