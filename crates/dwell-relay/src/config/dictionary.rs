//! The dictionary that contexts with a peer begin from.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
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

/// The files that were read, and those that could not be.
pub(super) type Dictionaries = HashMap<PathBuf, Option<Arc<ContextDictionary>>>;

/// Reads the file unless it was read before; none, and an error the first time, if it is no dictionary.
pub(super) fn read(
    file: &Located<PathBuf>,
    table: &Table<'_>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Arc<ContextDictionary>> {
    let path = secrets.directory.join(&file.value);
    if let Some(known) = secrets.dictionaries.borrow().get(&path) {
        return known.clone();
    }
    let dictionary = match read_file(&path, secrets) {
        Ok(dictionary) => Some(Arc::new(dictionary)),
        Err(message) => {
            let message = format!("{}: {message}", path.display());
            table.fail("dictionary", file.line, message, errors);
            None
        }
    };
    secrets.dictionaries.borrow_mut().insert(path, dictionary.clone());
    dictionary
}

fn read_file(path: &Path, secrets: &Secrets<'_>) -> Result<ContextDictionary, String> {
    let bytes = (secrets.read_dictionary)(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no such file: {ADVICE}"),
        _ => error.to_string(),
    })?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<ContextDictionary, String> {
    let files = DictionaryFile::parse_all(bytes).map_err(|error| error.to_string())?;
    ContextDictionary::of(&files).ok_or_else(|| "it is empty".to_owned())
}
