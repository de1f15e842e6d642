//! The dictionary that contexts with a peer begin from.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use dwell_codec::{ContextDictionary, DictionaryFile};
use toml::de::DeValue;

use super::error::Errors;
use super::read::Secrets;
use super::table::{Located, Table};
use super::value;

const ADVICE: &str = "`dwell trace train CAPTURE --out DIRECTORY` makes one";

pub(super) fn path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    let path = value::text(value, "/etc/dwell/all.dict")?;
    if path.is_empty() || path.contains('\0') {
        return Err(format!("must be the path of a file: {ADVICE}"));
    }
    Ok(path.into())
}

/// Reads the file; none, and an error, if it is no dictionary.
pub(super) fn read(
    file: &Located<PathBuf>,
    table: &Table<'_>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Arc<ContextDictionary>> {
    let path = secrets.directory.join(&file.value);
    let bytes = (secrets.read_dictionary)(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no such file: {ADVICE}"),
        _ => error.to_string(),
    });
    match bytes.and_then(|bytes| parse(&bytes)) {
        Ok(dictionary) => Some(Arc::new(dictionary)),
        Err(message) => {
            let message = format!("{}: {message}", path.display());
            table.fail("dictionary", file.line, message, errors);
            None
        }
    }
}

fn parse(bytes: &[u8]) -> Result<ContextDictionary, String> {
    let files = DictionaryFile::parse_all(bytes).map_err(|error| error.to_string())?;
    ContextDictionary::of(&files).ok_or_else(|| "it is empty".to_owned())
}
