//! Attacks on the relay and the proxy: real programs, in network namespaces of this machine.
//!
//! Each attack has a lab of its own, in a process of its own that is killed if it takes too long.
//! Honest traffic runs beside it and is measured without and with the attack in turn, so that what
//! else the machine does meanwhile concerns both. `./x attack --list` names them all.

mod attacks;
mod cli;
mod context;
mod crowd;
mod honest;
mod hostile;
mod peer;
mod phases;
mod row;
mod runner;
mod site;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    if let Some(code) = attacks::local::thief() {
        return code;
    }
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dwell-attack: {error:#}");
            ExitCode::FAILURE
        }
    }
}
