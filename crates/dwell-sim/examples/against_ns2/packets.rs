//! The dumbbell with schemes that compress blocks, packet by packet: what leaves the ingresses.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines};

use crate::Agreement;
use crate::reference::blocks::{Case, Leaving, leaving, parse_leaving};

/// Compares runs of ns-2, each `NETWORK SCHEME FLOWS SEED SECONDS FILE`, line by line with the same here, with ns-2's
/// ties: ingress, time to the nanosecond, flow, number and size.
pub(crate) fn run(words: &[&str]) -> Agreement {
    println!(
        "{:>10} {:>7} {:>5} {:>5} {:>8} {:>10} {:>10} {:>8}",
        "network", "scheme", "flows", "seed", "seconds", "packets", "here", "differ"
    );
    let (mut all, mut differ) = (0, 0);
    for words in words.chunks(6) {
        let &[network, scheme, flows, seed, seconds, file] = words else {
            return Err("a run is NETWORK SCHEME FLOWS SEED SECONDS FILE".into());
        };
        let flows = flows.parse()?;
        let case = Case { network: network.to_owned(), scheme: scheme.to_owned(), flows };
        let seed: u64 = seed.parse()?;
        let count = compare(&case, seed, seconds, file)?;
        println!(
            "{network:>10} {scheme:>7} {flows:>5} {seed:>5} {seconds:>8} {:>10} {:>10} {:>8}",
            count.there, count.here, count.differ
        );
        all += count.there;
        differ += count.differ;
    }
    println!(
        "of {all} packets and blocks {differ} differ in ingress, nanosecond, flow, number or size"
    );
    Ok(all > 0 && differ == 0)
}

/// Numbers of packets.
#[derive(Default)]
struct Count {
    there: u64,
    here: u64,
    /// The lines that differ, with those that are missing on either side.
    differ: u64,
}

fn compare(
    case: &Case,
    seed: u64,
    seconds: &str,
    file: &str,
) -> Result<Count, Box<dyn std::error::Error>> {
    let settings =
        ["run.ties=\"ns-2\"", "run.warm_up=\"0s\"", &format!("run.measure=\"{seconds}s\"")];
    let point = case.point(&settings)?;
    let mut lines = BufReader::new(File::open(file)?).lines();
    let mut count = Count::default();
    let mut error = None;
    leaving(&point, seed, |here| {
        count.here += 1;
        match next(&mut lines) {
            Ok(Some(there)) => {
                count.there += 1;
                count.differ += u64::from(!here.is_same(&there));
            }
            Ok(None) => count.differ += 1,
            Err(found) => error = error.take().or(Some(found)),
        }
    })?;
    while next(&mut lines)?.is_some() {
        count.there += 1;
        count.differ += 1;
    }
    error.map_or(Ok(count), Err)
}

fn next(lines: &mut Lines<BufReader<File>>) -> Result<Option<Leaving>, Box<dyn std::error::Error>> {
    let Some(line) = lines.next() else { return Ok(None) };
    Ok(Some(parse_leaving(&line?)?))
}
