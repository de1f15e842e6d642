//! A day and more of two relays in virtual time, over links that get worse and better.
//!
//!     cargo run --release -p dwell-relay --example soak -- --hours 24 --seeds 1..8
//!
//! `./x soak` runs it at length, `./x test` briefly. Each run has a pair of nodes with the real
//! codecs, a source at either end that works in shifts (bursts, trickles, nights), and *weather*:
//! every few minutes the link changes its rate, delay, loss, order, duplication and damage, or is
//! cut; and every now and then a node is restarted, reconfigured (another rate, objective, limit of processor time and of
//! memory, perhaps another scheme and codec), or found at another address. Half of the runs have key pairs, whose sessions are renewed
//! every two minutes, the others a key that both ends have.
//!
//! Compressing in contexts takes virtual time, and so do trials of codecs, on a modelled processor of which the nodes have a part that
//! changes with the weather, as of a quota: the nodes look at it as relays do. Every other seed has two threads that compress, with a
//! processor each while there is no quota. What is short is compressed at once. What each job takes varies by chance, and now and then is
//! several times as much; models take time to be decoded.
//!
//! Checked all along: the nodes' invariants after each event; every packet that comes out is bit for
//! bit one that went in, and comes out once; in fair weather packets of every flow arrive; where nothing changes,
//! contexts keep their codecs, as much comes as half of what the link takes or more, a rate that was found is about the link's in most looks, and `auto` compresses
//! some of what a full link is sent. Checked every hour: the accounts balance, contexts have no more memory than they may,
//! and that of the process does not grow.

mod end;
#[path = "../modelled/mod.rs"]
mod modelled;
mod packet;
mod run;
mod setup;
mod steady;
mod weather;

use std::process::ExitCode;

use dwell_confine::memory;
use dwell_relay::config::SCHEMES;

/// The options of a run.
#[derive(Debug)]
struct Options {
    hours: f64,
    seeds: std::ops::Range<u64>,
    schemes: Vec<String>,
    /// All runs with this codec.
    codec: Option<String>,
    /// All runs with keys, or none.
    keyed: Option<bool>,
}

const USAGE: &str = "\
Runs pairs of relays for a long time in virtual time.

Usage: soak [--hours H] [--seeds A..B] [--scheme NAME[,NAME...]] [--codec CODEC] [--security KIND]

  --hours H        virtual hours of each run (24)
  --seeds A..B     a run for each seed and scheme (1..3)
  --scheme NAMES   begin with these schemes only (all that the relay knows)
  --codec CODEC    keep to this codec, as in a configuration (begin with zstd:1, and change)
  --security KIND  keys or psk (both, by turns)

Exit codes: 0 all is well, 1 a check failed, 2 wrong arguments.";

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("soak: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    memory::give_back_large();
    let mut failed = 0;
    for (number, scheme) in (0..).zip(&options.schemes) {
        for seed in options.seeds.clone() {
            // With one seed, too, some schemes run with keys and some without.
            let keyed = options.keyed.unwrap_or((seed ^ number) & 1 == 0);
            let name =
                format!("{scheme:<10} {:<4} seed {seed:<3}", if keyed { "keys" } else { "psk" });
            let rate = setup::FIRST_RATES[((seed / 2) & 1) as usize];
            let setup = setup::Setup::new(scheme, options.codec.as_deref(), rate, keyed);
            match run::run(&setup, seed, options.hours) {
                Ok(summary) => println!("{name} {summary}"),
                Err(message) => {
                    failed += 1;
                    println!("{name} FAILED: {message}");
                }
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Options {
    /// None if help is asked for.
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let schemes = SCHEMES.iter().map(|scheme| (*scheme).to_owned()).collect();
        let mut options = Self { hours: 24.0, seeds: 1..3, schemes, codec: None, keyed: None };
        while let Some(flag) = arguments.next() {
            if flag == "--help" || flag == "-h" {
                return Ok(None);
            }
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let wrong = || format!("\"{value}\" is no value for {flag}");
            match flag.as_str() {
                "--hours" => {
                    options.hours = value.parse().map_err(|_| wrong())?;
                    if !(options.hours > 0.0 && options.hours <= 10_000.0) {
                        return Err(wrong());
                    }
                }
                "--seeds" => {
                    let (from, to) = value.split_once("..").ok_or_else(wrong)?;
                    let number = |text: &str| text.parse().map_err(|_| wrong());
                    options.seeds = number(from)?..number(to)?;
                }
                "--security" => {
                    options.keyed = match value.as_str() {
                        "keys" => Some(true),
                        "psk" => Some(false),
                        _ => return Err(wrong()),
                    };
                }
                "--codec" => options.codec = Some(value),
                "--scheme" => {
                    options.schemes = value.split(',').map(str::to_owned).collect();
                    let known = |name: &String| SCHEMES.contains(&name.as_str());
                    if let Some(unknown) = options.schemes.iter().find(|name| !known(name)) {
                        return Err(format!("there is no scheme \"{unknown}\""));
                    }
                }
                _ => return Err(format!("there is no option \"{flag}\"")),
            }
        }
        Ok(Some(options))
    }
}
