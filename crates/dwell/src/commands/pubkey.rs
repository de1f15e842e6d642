//! `dwell pubkey`: the public key that belongs to a private one.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_relay::config::Secret;
use dwell_relay::trust::public_key;

use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell pubkey /etc/dwell/private.key
  dwell genkey | dwell pubkey
  ssh hub dwell pubkey /etc/dwell/private.key   what to write as the hub's public_key here

Exit codes:
  0  the public key is printed
  1  there is no private key to be read
  2  the command line is wrong";

/// Print the public key that belongs to a private one
///
/// The private key is read from FILE or from standard input.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Pubkey {
    /// The file with the private key, as `dwell genkey` makes it [default: standard input]
    file: Option<PathBuf>,
}

fn no_key(text: &str, from: &str) -> anyhow::Error {
    let what = if text.trim().is_empty() { "is empty" } else { "holds no private key" };
    anyhow::anyhow!(
        "{from} {what}: there must be 32 bytes, as 64 hex digits or in base64; `dwell genkey` makes \
         a key"
    )
}

/// Far more than a key has.
const READ_BYTES_MAX: u64 = 1 << 10;

impl Pubkey {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut text = String::new();
        match &self.file {
            Some(path) => File::open(path)
                .and_then(|file| file.take(READ_BYTES_MAX).read_to_string(&mut text))
                .with_context(|| format!("{} can't be read", path.display()))?,
            None => {
                if io::stdin().is_terminal() {
                    terminal::note("reading a private key from the terminal, as one line");
                    io::stdin().read_line(&mut text)?
                } else {
                    let input = io::stdin().lock();
                    input.take(READ_BYTES_MAX).read_to_string(&mut text)?
                }
            }
        };
        let from = self.file.map_or("standard input".into(), |path| path.display().to_string());
        let private: Secret = text.parse().map_err(|_| no_key(&text, &from))?;
        let public = public_key(&private).with_context(|| format!("{from} holds no key"))?;
        terminal::print(&format!("{public}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
