//! The version, wherever it stands by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};

use super::ROOT;

/// That of the workspace: `version` in Cargo.toml.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Files that name it, and what stands before it there, at least once. Other numbers may follow such words elsewhere
/// in the file.
const PLACES: [(&str, &str); 15] = [
    ("Cargo.toml", "[workspace.package]\nversion = \""),
    ("CITATION.cff", "\nversion: "),
    (".zenodo.json", "\"version\": \""),
    ("README.md", "\nVersion "),
    ("SECURITY.md", "From "),
    ("bindings/python/Cargo.toml", "\nversion = \""),
    ("crates/dwell-stream-c/include/dwell_stream.h", "#define DWELL_STREAM_VERSION \""),
    ("docs/packages.md", "dwell_"),
    ("docs/packages.md", "dwell-"),
    ("docs/relay.md", ": dwell "),
    ("packaging/ansible/inventory.ini", "dwell_"),
    ("packaging/kubernetes/daemonset.yaml", "dwell:"),
    ("packaging/oci/compose.yaml", "dwell-"),
    ("packaging/oci/compose.yaml", "dwell:"),
    ("packaging/openwrt/Makefile", "PKG_VERSION:="),
];

/// What follows the name of the program, wherever it stands: files of packages, images, what the program says.
const NAMED: [&str; 4] = ["dwell_", "dwell-", "dwell:", "dwell "];

/// The workspace's version is the one that all else names, and the one that the changelog is about.
pub(super) fn agree() -> anyhow::Result<ExitCode> {
    for (name, before) in PLACES {
        let text = read(name)?;
        let found: Vec<&str> = versions_after(&text, before).collect();
        ensure!(!found.is_empty(), "{name} has no version after {before:?}: correct this list");
        are_ours(name, before, &found)?;
    }
    for directory in dwell_testkit::pages::crates()? {
        let name = directory.join("Cargo.toml").display().to_string();
        ensure!(
            read(&name)?.contains("\nversion.workspace = true\n"),
            "{name}: a version of its own"
        );
    }
    for path in files(Path::new("docs"))?.into_iter().chain(files(Path::new("packaging"))?) {
        // Pictures are no text.
        let Ok(text) = fs::read_to_string(Path::new(ROOT).join(&path)) else { continue };
        for before in NAMED {
            let found: Vec<&str> = versions_after(&text, before).collect();
            are_ours(&path.display().to_string(), before, &found)?;
        }
    }
    changelog(&read("CHANGELOG.md")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Before the first release the page says what will be released; from then on its newest release is this version.
fn changelog(text: &str) -> anyhow::Result<()> {
    let mut sections = text.lines().filter_map(|line| line.strip_prefix("## "));
    let newest = sections.find(|title| *title != "Unreleased");
    match newest {
        None => ensure!(
            text.contains(&format!("What will be {VERSION} is ")),
            "CHANGELOG.md is not about {VERSION}, and has no release"
        ),
        Some(title) => ensure!(
            title.split(' ').next() == Some(VERSION),
            "CHANGELOG.md's newest release is \"{title}\", and Cargo.toml has {VERSION}"
        ),
    }
    Ok(())
}

fn are_ours(name: &str, before: &str, found: &[&str]) -> anyhow::Result<()> {
    for version in found {
        ensure!(
            *version == VERSION,
            "{name} has \"{}{version}\", and Cargo.toml {VERSION}",
            before.trim_start()
        );
    }
    Ok(())
}

/// Returns each version of three numbers that stands after these words.
fn versions_after<'a>(text: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        let numbers = version.split('.').filter(|number| !number.is_empty()).count();
        (numbers == 3 && version.matches('.').count() == 2).then_some(version)
    })
}

fn read(name: &str) -> anyhow::Result<String> {
    fs::read_to_string(Path::new(ROOT).join(name)).context(name.to_owned())
}

/// Returns the files of a directory and of all beneath it, from the project's root.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join(directory))? {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
