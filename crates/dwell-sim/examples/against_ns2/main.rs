//! Compares the simulator with recordings of ns-2; docs/validation.md describes it.
//!
//! Called by `validate/run.sh` and `validate/speed.sh`:
//!
//! ```text
//! against_ns2 numbers FILE
//! against_ns2 parking RELAYS SECONDS LIMIT PEAK (SEED FILE)...
//! against_ns2 dumbbell FILE
//! against_ns2 blocks FILE [ns-2|jitter|random]...
//! against_ns2 packets (CASE SCHEME FLOWS SEED SECONDS FILE)...
//! against_ns2 speed plain|none|packet|dumbbell|chumq SEED [counts]
//! ```
//!
//! Ends with 1 if something differs by more than allowed, with 2 if it can't be compared.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "examples may read files")]

use std::error::Error;
use std::process::ExitCode;

mod blocks;
mod dumbbell;
mod mean;
mod numbers;
mod packets;
mod parking;
#[path = "../../tests/ns2/reference/mod.rs"]
mod reference;
mod speed;

/// True if everything agrees; an error if the two can't be compared.
type Agreement = Result<bool, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let agreement = match words[..] {
        ["numbers", file] => numbers::run(file),
        ["parking", relays, seconds, limit, peak, ref files @ ..] => {
            parking::run([relays, seconds, limit, peak], files)
        }
        ["dumbbell", file] => dumbbell::run(file),
        ["blocks", file] => blocks::run(file, &["ns-2", "jitter", "random"]),
        ["blocks", file, ref orders @ ..] => blocks::run(file, orders),
        ["packets", ref runs @ ..] => packets::run(runs),
        ["speed", workload, seed] => speed::run(workload, seed, false),
        ["speed", workload, seed, "counts"] => speed::run(workload, seed, true),
        _ => Err("numbers, parking, dumbbell, blocks, packets or speed? See the top of the source"
            .into()),
    };
    match agreement {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("against_ns2: {error}");
            ExitCode::from(2)
        }
    }
}
