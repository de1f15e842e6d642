//! Writing files so that nobody ever sees half of one.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Context as _;

/// Writes a file whole or not at all.
pub(super) fn replace(path: &Path, bytes: &(impl AsRef<[u8]> + ?Sized)) -> anyhow::Result<()> {
    replace_with(path, |file| io::Write::write_all(file, bytes.as_ref()))
}

/// Writes a file whole or not at all, bit by bit.
pub(super) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut new = path.file_name().unwrap_or_default().to_owned();
    new.push(".new");
    let new = path.with_file_name(new);
    File::create(&new)
        .and_then(|file| {
            let mut file = BufWriter::new(file);
            write(&mut file)?;
            // What is left in it is written now, so that errors are seen.
            file.into_inner().map_err(io::IntoInnerError::into_error)
        })
        .and_then(|_| fs::rename(&new, path))
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("{} can't be written", path.display()))
}
