//! How soon `codec = "auto"` follows a start and steps of rate, content and load, in virtual time.
//!
//!     cargo run --release -p dwell-relay --example timelines
//!
//! Nothing depends on the machine: the processor is a model (see `docs/benchmarks-codecs.md`). With `--json` each phase
//! is a line with all that was seen of it.

#[path = "../modelled/mod.rs"]
mod modelled;
mod run;

use std::process::ExitCode;

use run::{PHASES, Seen, WINDOW_NS};

const USAGE: &str = "\
Shows how soon codec = \"auto\" follows what changes, in virtual time.

Usage: timelines [--codec CODEC] [--share PART] [--seed N] [--json]

  --codec CODEC  what is configured (auto), such as zstd:6 or ppm:6: what a fixed codec delivers
  --share PART   the part of a processor that may be had (1)
  --seed N       of the content (1)
  --json         a line for each phase, with what was delivered in each 50 ms

Exit codes: 0 all is well, 1 something failed, 2 wrong arguments.";

fn main() -> ExitCode {
    let (mut share, mut seed, mut json) = (1.0, 1, false);
    let mut codec = "auto".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        let is_good = match flag.as_str() {
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            "--share" => value().parse().is_ok_and(|it| {
                share = it;
                (0.01..=1.0).contains(&share)
            }),
            "--seed" => value().parse().map(|it| seed = it).is_ok(),
            "--codec" => {
                codec = value();
                !codec.is_empty() && !codec.contains(['"', '\\', '\n'])
            }
            "--json" => {
                json = true;
                true
            }
            _ => false,
        };
        if !is_good {
            eprintln!("timelines: {flag} is no option, or its value is wrong\n\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    match run::run(&PHASES, &codec, share, seed) {
        Ok(seen) if json => seen.iter().for_each(print_json),
        Ok(seen) => print_table(&seen),
        Err(message) => {
            eprintln!("timelines: {message}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn print_table(seen: &[Seen]) {
    println!("step           link  offered  content  delivered  converged  1st second  codecs");
    println!("             Mbit/s   Mbit/s              Mbit/s         ms         %");
    for it in seen {
        let codecs: Vec<_> =
            it.codecs.iter().map(|(ms, codec)| format!("{codec} at {ms}")).collect();
        let converged = it.converged_ms.map_or("-".to_owned(), |ms| ms.to_string());
        println!(
            "{:<13} {:>5}  {:>7}  {:<7}  {:>9.2}  {:>9}  {:>10.0}  {}",
            it.phase.what,
            it.phase.mbit,
            it.phase.offered_mbit,
            format!("{:?}", it.phase.content).to_lowercase(),
            it.mbit,
            converged,
            100.0 * it.first_second,
            codecs.join(", "),
        );
    }
    let counts = run::taken_up(seen);
    println!("taken up: {counts:?}");
}

fn print_json(seen: &Seen) {
    let windows: Vec<_> = seen.windows.iter().map(|bps| (bps / 1e3).round() as u64).collect();
    let line = serde_json::json!({
        "step": seen.phase.what,
        "link_mbit": seen.phase.mbit,
        "offered_mbit": seen.phase.offered_mbit,
        "content": format!("{:?}", seen.phase.content).to_lowercase(),
        "delivered_mbit": seen.mbit,
        "converged_ms": seen.converged_ms,
        "first_second": seen.first_second,
        "codecs": seen.codecs,
        "window_ms": WINDOW_NS / 1_000_000,
        "delivered_kbit": windows,
    });
    println!("{line}");
}
