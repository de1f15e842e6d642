//! `dwell genkey`: makes a node's private key.

use std::path::PathBuf;
use std::process::ExitCode;

use dwell_relay::config::base64_of;

use super::key_file;

const AFTER_HELP: &str = "\
Examples:
  dwell genkey --out /etc/dwell/private.key   a new key, in a file that only its owner can read
  dwell pubkey /etc/dwell/private.key         what the peers write as public_key
  (umask 077; dwell genkey | tee private.key | dwell pubkey)

Each node needs one key, and keeps it secret.

Exit codes:
  0  the key is made
  1  it is not, for instance because the file exists
  2  the command line is wrong";

/// Make a node's private key
///
/// Prints 32 random bytes from the operating system in base64.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Genkey {
    /// Write to this new file, readable only by its owner, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Genkey {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let line = base64_of(&key_file::random()?) + "\n";
        let then = match &self.out {
            Some(path) => {
                let file = path.display();
                format!(
                    "name it in the configuration, private_key_file = \"{file}\" under [node]; \
                     `dwell pubkey {file}` prints what the peers write as public_key"
                )
            }
            None => String::new(),
        };
        key_file::hand_out(&line, self.out.as_deref(), &then)?;
        Ok(ExitCode::SUCCESS)
    }
}
