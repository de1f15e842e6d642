//! Writing files so that nobody ever sees half of one.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Writes a file whole or not at all.
pub(super) fn replace(path: &Path, bytes: &(impl AsRef<[u8]> + ?Sized)) -> anyhow::Result<()> {
    let mut new = path.file_name().unwrap_or_default().to_owned();
    new.push(".new");
    let new = path.with_file_name(new);
    fs::write(&new, bytes)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("{} can't be written", path.display()))
}
