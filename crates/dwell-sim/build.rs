//! Hashes the code that the results of a simulation follow from, so that results carry the version
//! of their code and no program has to read and hash itself when it starts.

// A build script runs on the host that builds; the crate itself stays pure.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::collections::BTreeSet;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Crates that only show results. All others of ours that this one depends on count.
const SHOWING: [&str; 1] = ["dwell-figures"];
/// What the results follow from in other packages: chance, and functions of real numbers.
const PACKAGES: [&str; 3] = ["libm", "rand_core", "rand_xoshiro"];

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let root = manifest.join("../..");
    let crates = crates_behind(&root.join("crates"), "dwell-sim")?;
    let mut hasher = SipHasher24::new();
    for name in &crates {
        let sources = root.join("crates").join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        hash_directory(&sources, &mut hasher)?;
    }
    let lock = root.join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    hasher.write(versions(&fs::read_to_string(lock)?).as_bytes());
    println!("cargo::rustc-env=DWELL_SIM_CODE={:016x}", hasher.finish128().h1);
    let names: Vec<&str> = crates.iter().map(String::as_str).collect();
    println!("cargo::rustc-env=DWELL_SIM_CRATES={}", names.join(","));
    Ok(())
}

/// Returns this crate and those of ours that it depends on, directly or not, but for [`SHOWING`].
fn crates_behind(crates: &Path, first: &str) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut open = vec![first.to_owned()];
    while let Some(name) = open.pop() {
        let manifest = crates.join(&name).join("Cargo.toml");
        println!("cargo::rerun-if-changed={}", manifest.display());
        open.extend(dependencies(&fs::read_to_string(manifest)?).filter(|it| !found.contains(it)));
        found.insert(name);
    }
    Ok(found)
}

/// Returns the crates of ours under `[dependencies]` of a manifest, but for [`SHOWING`].
fn dependencies(manifest: &str) -> impl Iterator<Item = String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("dwell-") && !SHOWING.contains(name))
        .map(str::to_owned)
}

/// Adds the names and contents of all files below a directory, in the order of their names.
fn hash_directory(directory: &Path, hasher: &mut SipHasher24) -> io::Result<()> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_directory(&path, hasher)?;
        } else {
            let name = path.file_name().unwrap_or_default();
            hasher.write(name.as_encoded_bytes());
            hasher.write(&fs::read(&path)?);
        }
    }
    Ok(())
}

/// Returns the entries of [`PACKAGES`] in a lock file.
fn versions(lock: &str) -> String {
    let is_wanted =
        |entry: &&str| PACKAGES.iter().any(|name| entry.contains(&format!("name = \"{name}\"\n")));
    lock.split("[[package]]").filter(is_wanted).collect()
}
