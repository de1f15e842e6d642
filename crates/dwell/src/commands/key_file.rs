//! Keys for people: random bytes, and files that only their owner can read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::rand::{GetRandomFlags, getrandom};

use dwell_cli::terminal;

const KEY_BYTES: usize = 32;

/// 32 bytes from the operating system.
pub(super) fn random() -> anyhow::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    // Requests of up to 256 bytes are not cut short by signals.
    let filled = getrandom(&mut key, GetRandomFlags::empty())
        .context("the operating system gives no random bytes")?;
    ensure!(filled == KEY_BYTES, "the operating system gives too few random bytes");
    Ok(key)
}

/// Writes a key to a new file, and says what to do `then`; or to standard output.
pub(super) fn hand_out(line: &str, out: Option<&Path>, then: &str) -> anyhow::Result<()> {
    let Some(path) = out else { return Ok(terminal::print(line)?) };
    write_new(path, line).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow::anyhow!(
            "{} exists and is left as it is: choose another name, or remove it first",
            path.display()
        ),
        _ => anyhow::Error::new(error)
            .context(format!("the key can't be written to {}", path.display())),
    })?;
    terminal::note(&format!("wrote {}: {then}", path.display()));
    Ok(())
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
