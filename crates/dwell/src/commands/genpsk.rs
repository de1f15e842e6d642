//! `dwell genpsk`: makes the key that two peers share.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::key_file;

const AFTER_HELP: &str = "\
Examples:
  dwell genpsk --out /etc/dwell/hub.psk   a new key, in a file that only its owner can read
  dwell genpsk | ssh hub 'umask 077; cat > /etc/dwell/site-a.psk'

Both peers need the same key, and each pair of peers its own. Where peers have public
keys (`dwell genkey`), it may be mixed in.

Exit codes:
  0  the key is made
  1  it is not, for instance because the file exists
  2  the command line is wrong";

/// Make the key that two peers share
///
/// Prints 32 random bytes from the operating system as hex digits.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Genpsk {
    /// Write to this new file, readable only by its owner, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Genpsk {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let line = hex(&key_file::random()?) + "\n";
        let then = "copy it to the peer, where only its owner may read it too";
        key_file::hand_out(&line, self.out.as_deref(), then)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string can't fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
