//! Writing files so that nobody ever sees half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Context as _;

/// Writes a file whole or not at all.
pub(super) fn replace(path: &Path, bytes: &(impl AsRef<[u8]> + ?Sized)) -> anyhow::Result<()> {
    replace_with(path, |file| io::Write::write_all(file, bytes.as_ref()))
}

/// Writes a file whole or not at all, bit by bit. What is no file, as a pipe or `/dev/stdout`, stays what it is, and is
/// written as it comes.
pub(super) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let is_special = fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir());
    let result = if is_special {
        OpenOptions::new().write(true).open(path).and_then(|file| written(file, write))
    } else {
        let mut new = path.file_name().unwrap_or_default().to_owned();
        new.push(".new");
        let new = path.with_file_name(new);
        File::create(&new).and_then(|file| {
            let result = written(file, write).and_then(|()| fs::rename(&new, path));
            result.inspect_err(|_| drop(fs::remove_file(&new)))
        })
    };
    result.with_context(|| format!("{} can't be written", path.display()))
}

fn written(
    file: File,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    // What is left in it is written now, so that errors are seen.
    file.into_inner().map(drop).map_err(io::IntoInnerError::into_error)
}
