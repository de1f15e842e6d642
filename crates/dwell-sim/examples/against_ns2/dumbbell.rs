//! The dumbbell: mean throughput over seeds.

use std::collections::BTreeMap;
use std::fs;

use dwell_sim::World;
use dwell_sim::tcp::TcpConfig;

use crate::Agreement;
use crate::mean::Mean;
use crate::reference::dumbbell::dumbbell;

/// The largest accepted difference of the means, as a share of ns-2's.
const DEVIATION_MAX: f64 = 0.02;

/// For each number of flows the seeds with ns-2's throughput in Mbit/s and its fairness.
type Runs = BTreeMap<usize, Vec<(u64, f64, f64)>>;

/// Runs the same numbers of flows and seeds as the lines `FLOWS SEED MBPS FAIRNESS PACKETS` of
/// the file, and prints a line for each number of flows.
pub(crate) fn run(file: &str) -> Agreement {
    let runs = read(&fs::read_to_string(file)?)?;
    println!(
        "{:>5} {:>5} {:>20} {:>20} {:>10} {:>10} {:>10}",
        "flows", "seeds", "ns-2 Mbit/s", "here Mbit/s", "deviation", "fair ns-2", "fair here"
    );
    let mut near = !runs.is_empty();
    for (&flows, runs) in &runs {
        let plan = dumbbell(flows, &TcpConfig::sack1());
        let mut here = Vec::new();
        for &(seed, ..) in runs {
            let metrics = World::new(&plan, seed)?.run().metrics();
            let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
            here.push((get("throughput_bps") / 1e6, get("jain")));
        }
        let there = Mean::of(runs.iter().map(|run| run.1));
        let ours = Mean::of(here.iter().map(|run| run.0));
        let deviation = ours.mean / there.mean - 1.0;
        println!(
            "{flows:>5} {:>5} {:>11.2} ± {:>6.2} {:>11.2} ± {:>6.2} {:>9.2}% {:>10.3} {:>10.3}",
            runs.len(),
            there.mean,
            there.half_width,
            ours.mean,
            ours.half_width,
            100.0 * deviation,
            Mean::of(runs.iter().map(|run| run.2)).mean,
            Mean::of(here.iter().map(|run| run.1)).mean,
        );
        near &= deviation.abs() <= DEVIATION_MAX;
    }
    println!("± is the 95 % interval of the mean; allowed are {:.0} %", 100.0 * DEVIATION_MAX);
    Ok(near)
}

fn read(text: &str) -> Result<Runs, Box<dyn std::error::Error>> {
    let mut runs = Runs::new();
    for line in text.lines() {
        let [flows, seed, mbps, fairness, _] =
            line.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(format!("\"{line}\" is not FLOWS SEED MBPS FAIRNESS PACKETS").into());
        };
        let run = (seed.parse()?, mbps.parse()?, fairness.parse()?);
        runs.entry(flows.parse()?).or_default().push(run);
    }
    Ok(runs)
}
