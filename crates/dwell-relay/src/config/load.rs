//! The configuration's files: the one place in this module that opens any.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dwell_base::FileErrors;
use dwell_codec::DICTIONARY_FILES_LEN_MAX;
use zeroize::Zeroizing;

use super::read::Secrets;
use super::{Config, ReadSecretError, Secret, read, value};

/// Far more than any configuration needs.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
const SECRET_FILE_BYTES_MAX: u64 = 1 << 10;

impl Config {
    /// Reads a configuration file and the secrets that it names. Their paths are relative to
    /// its directory. The node's default name is that of the host.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, FileErrors> {
        let file = path.display().to_string();
        let text = read_text(path, CONFIG_BYTES_MAX)
            .map_err(|error| FileErrors::whole_file(&file, explain(&error)))?;
        Self::load_text(&text, path)
    }

    /// The same for the text that is in that file, or is to be.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load_text(text: &str, path: &Path) -> Result<Self, FileErrors> {
        let file = path.display().to_string();
        let directory = path.parent().unwrap_or(Path::new(""));
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = if value::is_name(&host_name) { &host_name } else { "dwell" };
        let secrets = Secrets {
            directory,
            read: &read_secret,
            read_list: &read_list,
            read_password: &read_private,
            read_dictionary: &read_dictionary,
            dictionaries: &RefCell::default(),
            has_private: false,
        };
        read::parse(text, &file, name, &secrets)
    }
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such file: `dwell check --sample` prints one to begin with".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!("it can't be read ({error}): run dwell as a user that may read it")
        }
        _ => format!("it can't be read: {error}"),
    }
}

/// A list of exceptions may be as long as a configuration.
fn read_list(path: &Path) -> io::Result<String> {
    read_text(path, CONFIG_BYTES_MAX)
}

fn read_dictionary(path: &Path) -> io::Result<Vec<u8>> {
    let most = DICTIONARY_FILES_LEN_MAX as u64;
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_long(most));
    }
    Ok(bytes)
}

fn too_long(bytes_max: u64) -> io::Error {
    let message = format!("it is longer than {bytes_max} bytes");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    read_bounded(&mut File::open(path)?, bytes_max)
}

fn read_bounded(file: &mut File, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(too_long(bytes_max));
    }
    Ok(text)
}

fn read_secret(path: &Path) -> Result<Secret, ReadSecretError> {
    Ok(read_private(path)?.parse()?)
}

/// A file that nobody but its owner may read.
fn read_private(path: &Path) -> Result<Zeroizing<String>, ReadSecretError> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(ReadSecretError::Exposed { path: path.to_owned(), mode });
    }
    Ok(Zeroizing::new(read_bounded(&mut file, SECRET_FILE_BYTES_MAX)?))
}
