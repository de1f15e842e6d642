//! The program `dwell`: arguments in, text and exit codes out.
//!
//! Everything that it does is done by the crates below. Only this crate knows the command
//! line, the terminal and exit codes: 0 if the job is done, 1 if it failed, 2 if the command
//! line was wrong.

mod cli;
mod commands;
mod descriptors;
mod logging;
mod memory;

use std::process::ExitCode;

use clap::Parser as _;
use dwell_cli::failure;

use crate::cli::Cli;

fn main() -> ExitCode {
    // A wrong command line ends the program here, with exit code 2.
    let cli = Cli::parse();
    failure::exit_code("dwell", cli.command.run(&cli.logging))
}
