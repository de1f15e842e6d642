//! The parking lot, packet by packet.

use std::fs;

use crate::Agreement;
use crate::reference::compare::{ROUNDING_NS, compare};
use crate::reference::parking::Parking;
use crate::reference::records;

/// The largest accepted share of packets that fare differently. Two sources' packets come within a
/// nanosecond of each other once in 80,000, and may then change places or fates.
const DIFFERING_SHARE_MAX: f64 = 5e-5;

/// Compares a run of each seed with its records, and prints a line for each flow.
pub(crate) fn run([relays, seconds, limit, peak]: [&str; 4], files: &[&str]) -> Agreement {
    let parking = Parking {
        relays: relays.parse()?,
        peak: peak.parse()?,
        limit_packets: limit.parse()?,
        until_ns: (seconds.parse::<f64>()? * 1e9) as u64,
    };
    print_row(&[
        "", "", "sent", "sent", "dropped", "dropped", "fates", "delays", "delays", "apart",
    ]);
    print_row(&[
        "seed", "flow", "ns-2", "here", "ns-2", "here", "differ", "differ", "after", "max ns",
    ]);
    let mut near = !files.is_empty();
    for pair in files.chunks_exact(2) {
        let seed = pair[0].parse()?;
        let records = records::parse(&fs::read_to_string(pair[1])?)?;
        for (flow, c) in compare(&parking, seed, &records)?.iter().enumerate() {
            print_row(&[
                &seed.to_string(),
                &flow.to_string(),
                &c.packets.to_string(),
                &c.packets_here.to_string(),
                &c.dropped.to_string(),
                &c.dropped_here.to_string(),
                &c.fates_differ.to_string(),
                &c.delays_differ.to_string(),
                &c.delays_differ_after.to_string(),
                &format!("{:.1}", c.delay_apart_ns_max),
            ]);
            near &= c.is_near(DIFFERING_SHARE_MAX);
        }
    }
    println!(
        "delays differ if they are more than {ROUNDING_NS} ns apart: before and after the first \
         packet whose fate differs"
    );
    Ok(near)
}

fn print_row(cells: &[&str; 10]) {
    let widths = [4, 4, 8, 8, 7, 7, 6, 6, 6, 10];
    let row: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    println!("{}", row.join(" "));
}
