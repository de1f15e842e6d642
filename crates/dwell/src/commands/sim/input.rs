//! Finding and reading scenarios.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use dwell_base::FileErrors;
use dwell_base::text::nearest;
use dwell_sim::library;
use dwell_sim::scenario::{Options, Scenario};
use dwell_trace::replay::simulated::{self, Beside, Refused};

/// Far more than any scenario or table needs; traces of packets can be long.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads the scenario of this name, or in this file.
pub(super) fn scenario(name: &str, options: &Options) -> anyhow::Result<Scenario> {
    if let Some(entry) = library::all().find(|entry| entry.id == name) {
        return entry.read(options).map_err(|errors| reported(&errors));
    }
    let path = Path::new(name);
    if !path.exists() && !is_file_name(name) {
        bail!("{}", unknown(name));
    }
    let text = read(path).with_context(|| {
        format!("{name} can't be read (`dwell sim list` lists the scenarios that need no file)")
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    let beside = Beside(|name: &str| {
        read_bytes(&directory.join(name)).map_err(|error| format!("{error:#}"))
    });
    simulated::parse(&text, name, &id, options, &beside).map_err(|refused| match refused {
        Refused::Written(errors) => reported(&errors),
        Refused::Codec(why) => anyhow::anyhow!("{name}: {why}"),
    })
}

/// Reads all scenarios that these words mean.
pub(super) fn scenarios(words: &[String], options: &Options) -> anyhow::Result<Vec<Scenario>> {
    let mut out: Vec<Scenario> = Vec::new();
    for word in words {
        let found = library::find(word);
        if found.is_empty() {
            bail!("{}", unknown(word));
        }
        for entry in found {
            if !out.iter().any(|scenario| scenario.id == entry.id) {
                out.push(entry.read(options).map_err(|errors| reported(&errors))?);
            }
        }
    }
    Ok(out)
}

fn is_file_name(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

/// Returns the message for a word that is no scenario.
pub(super) fn unknown(word: &str) -> String {
    let ids: Vec<&str> = library::all().map(|entry| entry.id).collect();
    let hint = match nearest(word, &ids) {
        Some(id) => format!("did you mean {id}?"),
        None => "`dwell sim list` lists all".to_owned(),
    };
    format!("there is no scenario or paper \"{word}\": {hint}")
}

fn reported(errors: &FileErrors) -> anyhow::Error {
    let count = match errors.errors.len() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    anyhow::anyhow!("{count} in the scenario\n{errors}")
}

fn read(path: &Path) -> anyhow::Result<String> {
    String::from_utf8(read_bytes(path)?).context("it is no text")
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("it is longer than {FILE_BYTES_MAX} bytes");
    }
    Ok(bytes)
}

/// The version of the code that results depend on: that of the program and a hash of the simulator's
/// sources, so that a build with other code never takes old results for its own.
pub(in crate::commands) fn code_version() -> String {
    format!("{}+{}", env!("CARGO_PKG_VERSION"), dwell_sim::CODE)
}
