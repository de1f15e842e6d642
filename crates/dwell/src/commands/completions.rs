//! `dwell completions`: writes what a shell completes the command line with.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell completions bash > /etc/bash_completion.d/dwell
  dwell completions zsh > /usr/local/share/zsh/site-functions/_dwell
  dwell completions fish > ~/.config/fish/completions/dwell.fish

The packages bring them for bash, zsh and fish.

Exit codes:
  0  they are written
  1  they are not
  2  the command line is wrong";

/// Print completions of the command line for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Completions {
    /// The shell that they are for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // The generators write to memory only, where nothing can fail.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dwell", &mut script);
        terminal::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
