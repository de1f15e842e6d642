//! `dwell genpsk`: makes the key that two peers share.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell genpsk --out /etc/dwell/hub.psk   a new key, in a file that only its owner can read
  dwell genpsk | ssh hub 'umask 077; cat > /etc/dwell/site-a.psk'

Both peers need the same key, and each pair of peers its own.

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

const KEY_BYTES: usize = 32;

impl Genpsk {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let line = hex(&random()?) + "\n";
        let Some(path) = self.out else {
            terminal::print(&line)?;
            return Ok(ExitCode::SUCCESS);
        };
        write_new(&path, &line).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                "{} exists and is left as it is: choose another name, or remove it first",
                path.display()
            ),
            _ => anyhow::Error::new(error)
                .context(format!("the key can't be written to {}", path.display())),
        })?;
        terminal::note(&format!(
            "wrote {}: copy it to the peer, where only its owner may read it too",
            path.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

fn random() -> anyhow::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    // Requests of up to 256 bytes are not cut short by signals.
    let filled = getrandom(&mut key, GetRandomFlags::empty())
        .context("the operating system gives no random bytes")?;
    ensure!(filled == KEY_BYTES, "the operating system gives too few random bytes");
    Ok(key)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string can't fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is worse than none; if it can't be removed, the first error says why.
        let _ = std::fs::remove_file(path);
    }
    written
}
