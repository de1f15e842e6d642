//! The program `dwell` between real programs: nginx, curl, iperf3, rsync, ssh, ping.
//!
//! Each check has a lab of its own with two relays at the ends of a thin link. A lab must be
//! entered before there are threads, so this is a program with its own main function that
//! starts itself again for each check. Arguments are parts of the names of the checks to run.
//! A check whose programs are missing, or that the machine does not permit, is skipped, with
//! the reason. How long anything takes is never judged.

// Nothing here is for others.
#![allow(missing_docs)]

mod checks;
mod harness;
mod site;
mod web;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--in-lab", name] => harness::run_in_lab(name),
        ["--refused"] => harness::make_refused_call(),
        _ => harness::run_all(&arguments),
    }
}
