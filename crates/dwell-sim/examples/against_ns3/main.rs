//! Managed queues, TCP and BBR against ns-3, through one bottleneck: `cases` prints what ns-3 is to run, `compare
//! FILE` runs the same here, prints the table and says why what is beyond the limits is so. `validate/ns3/run.sh` does
//! both. `linux` prints our side of the comparison with `validate/kernel-line.sh`, `kernel CASES FILE` the comparison with
//! Linux in virtual time (`validate/linux/run.sh`).
//!
//! Ends with 1 if something is beyond the limits without an explanation, or an explanation does not hold.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod case;
mod kernel;
mod linux;
mod reasons;
mod spread;
mod table;

use std::path::Path;
use std::process::ExitCode;

use case::{FROM_S, UNTIL_S, cases};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cases"] => {
            let mut known = std::collections::BTreeSet::new();
            for case in cases() {
                for seed in 1..=case.seeds {
                    let words =
                        format!("{} --seed={seed} --from={FROM_S} --until={UNTIL_S}", case.words());
                    if known.insert(words.clone()) {
                        println!("{}|{words}", case.words());
                    }
                }
            }
        }
        ["linux"] => linux::print(),
        ["kernel", list, runs] => {
            let is_near = kernel::compare(Path::new(list), Path::new(runs));
            return if is_near { ExitCode::SUCCESS } else { ExitCode::from(1) };
        }
        ["compare", file] => {
            let text = std::fs::read_to_string(file).expect("ns-3's numbers");
            return if table::compare(&text) { ExitCode::SUCCESS } else { ExitCode::from(1) };
        }
        _ => panic!("cases, compare FILE, linux, or kernel CASES FILE"),
    }
    ExitCode::SUCCESS
}
