//! The program `dwell`: arguments in, text and exit codes out.
//!
//! Everything that it does is done by the crates below. Only this crate knows the command
//! line, the terminal and exit codes: 0 if the job is done, 1 if it failed, 2 if the command
//! line was wrong.

mod cli;
mod commands;
mod descriptors;
mod logging;
mod terminal;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;

fn main() -> ExitCode {
    // A wrong command line ends the program here, with exit code 2.
    let cli = Cli::parse();
    match cli.command.run(&cli.logging) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::complain("dwell", &sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, except for those that are in its words already.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    sentence
}

/// Whoever reads our output (`head`, a pager) has seen enough; that is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_reported_once() {
        let cause = || io::Error::other("the disk is full");
        let error = Err::<(), _>(cause()).context("the key can't be written").unwrap_err();
        assert_eq!(sentence(&error), "the key can't be written: the disk is full");
        let error = Err::<(), _>(cause()).context("no: the disk is full: stop").unwrap_err();
        assert_eq!(sentence(&error), "no: the disk is full: stop");
    }
}
