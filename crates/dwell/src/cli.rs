//! The command line as a whole.

use clap::Parser;

use crate::commands::Command;
use crate::logging::Logging;

const ABOUT: &str = "Compress packets while they wait

dwell relays packets over slow links. While a packet waits for the link, it is compressed, \
but only if its waiting time suffices: nothing waits longer than it would have anyway.";

const EXIT_CODES: &str = "\
Exit codes:
  0  the job is done
  1  the job failed
  2  the command line is wrong";

/// Compress packets while they wait
#[derive(Debug, Parser)]
#[command(name = "dwell", version, long_about = ABOUT, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true, infer_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Longer lines are broken once more, where they are shown: that looks ragged.
    #[test]
    fn what_stands_below_options_fits_a_hundred_columns() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn every_command_has_examples_and_exit_codes() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{name} has no examples");
            assert!(help.contains("Exit codes:"), "{name} does not list its exit codes");
            assert!(command.get_about().is_some(), "{name} does not say what it is for");
            for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
                let id = argument.get_id();
                assert!(argument.get_help().is_some(), "{name} does not explain {id}");
            }
        }
    }
}
