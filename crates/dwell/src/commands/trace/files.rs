//! The captures of a command line: directories, parts of rotated ones in their order, none of them twice.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::input::STDIN;
use dwell_cli::terminal;

/// The largest depth of directories that are searched.
const DEPTH_MAX: usize = 16;

/// Returns the captures that the command line names, those of directories and of rotated
/// captures in the order of the numbers in their names. A file that is there twice is taken once,
/// and that is said.
pub(super) fn find(arguments: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if arguments.iter().filter(|path| path.as_os_str() == STDIN).count() > 1 {
        bail!("\"-\" is given twice, and standard input can be read only once");
    }
    let mut found = Vec::new();
    for path in arguments {
        match path.as_os_str() != STDIN && path.is_dir() {
            true => directory(path, &mut found)?,
            false => found.push(path.clone()),
        }
    }
    in_order(&mut found);
    Ok(once(found))
}

/// The captures in a directory and in those within it.
fn directory(path: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let (before, mut others) = (found.len(), 0);
    walk(path, DEPTH_MAX, found, &mut others)?;
    if found.len() == before {
        bail!("there is no capture in the directory {}", path.display());
    }
    if others > 0 {
        let (path, files) = (path.display(), if others == 1 { "file" } else { "files" });
        terminal::note(&format!("{others} {files} in {path} left out: no captures"));
    }
    Ok(())
}

fn walk(
    path: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
    others: &mut usize,
) -> anyhow::Result<()> {
    let reported = || format!("the directory {} can't be read", path.display());
    let entries = fs::read_dir(path).with_context(reported)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(reported)?;
    entries.sort_by(|a, b| {
        natural(&a.file_name().to_string_lossy(), &b.file_name().to_string_lossy())
    });
    for entry in entries {
        let path = entry.path();
        // A link to a directory could lead in a circle.
        let kind = entry.file_type().with_context(reported)?;
        if kind.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, found, others)?;
            }
        } else if path.is_file() {
            match is_capture(&path) {
                true => found.push(path),
                false => *others += 1,
            }
        }
    }
    Ok(())
}

/// Returns true if a file begins like a capture, or is packed and has a capture's name.
fn is_capture(path: &Path) -> bool {
    const CAPTURES: [&[u8]; 7] = [
        &[0x0a, 0x0d, 0x0d, 0x0a],
        &[0xd4, 0xc3, 0xb2, 0xa1],
        &[0xa1, 0xb2, 0xc3, 0xd4],
        &[0x4d, 0x3c, 0xb2, 0xa1],
        &[0xa1, 0xb2, 0x3c, 0x4d],
        &[0x34, 0xcd, 0xb2, 0xa1],
        &[0xa1, 0xb2, 0xcd, 0x34],
    ];
    const PACKED: [&[u8]; 4] =
        [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"BZh", &[0xfd, b'7', b'z', b'X', b'Z']];
    let mut head = Vec::with_capacity(8);
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
    let is_any = |beginnings: &[&[u8]]| beginnings.iter().any(|magic| head.starts_with(magic));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = ["cap", "dump", "trace"].iter().any(|part| name.contains(part));
    read.is_ok() && (is_any(&CAPTURES) || (is_named && is_any(&PACKED)))
}

/// Puts the parts of each rotated capture in their order, at the places that they have.
fn in_order(paths: &mut [PathBuf]) {
    let mut series: HashMap<(Option<PathBuf>, String), Vec<usize>> = HashMap::new();
    for (at, path) in paths.iter().enumerate() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else { continue };
        series.entry((path.parent().map(Path::to_owned), stem(&name))).or_default().push(at);
    }
    for places in series.into_values().filter(|places| places.len() > 1) {
        let mut parts: Vec<PathBuf> = places.iter().map(|&at| paths[at].clone()).collect();
        parts.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
        places.into_iter().zip(parts).for_each(|(at, part)| paths[at] = part);
    }
}

/// Returns the part that the names of a series share: `day_00001_20260101.pcap.gz` is `day_#_#.pcap.gz`,
/// and the first part of `tcpdump -C`, which has no number, belongs to those that have.
fn stem(name: &str) -> String {
    let mut stem = String::new();
    for part in name.chars() {
        match part.is_ascii_digit() {
            true if stem.ends_with('#') => {}
            true => stem.push('#'),
            false => stem.push(part),
        }
    }
    stem.trim_end_matches('#').to_owned()
}

/// Text by text, and numbers by their values.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let (x, y) = match (a.first(), b.first()) {
            (Some(x), Some(y)) => (x, y),
            (x, y) => return x.cmp(&y),
        };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (first, second) = (digits(&mut a), digits(&mut b));
            let order = (first.len(), first).cmp(&(second.len(), second));
            if order != Ordering::Equal {
                return order;
            }
        } else if x != y {
            return x.cmp(y);
        } else {
            (a, b) = (&a[1..], &b[1..]);
        }
    }
}

/// Takes the digits at the beginning, without zeros before the first other one.
fn digits<'t>(text: &mut &'t [u8]) -> &'t [u8] {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(count);
    *text = rest;
    let zeros = number.iter().take_while(|&&byte| byte == b'0').count();
    &number[zeros..]
}

/// Leaves out files that are there already, under any name.
fn once(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let is_new = |path: &PathBuf| {
        let Ok(data) = fs::metadata(path) else { return true };
        match seen.get(&(data.dev(), data.ino())) {
            Some(first) if data.is_file() => {
                let (path, first) = (path.display(), first.display());
                terminal::note(&format!("{path} is the same file as {first}, and is read once"));
                false
            }
            _ => {
                seen.insert((data.dev(), data.ino()), path.clone());
                true
            }
        }
    };
    paths.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(names: &[&str]) -> Vec<String> {
        let mut paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        in_order(&mut paths);
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn parts_of_rotated_captures_are_put_in_order() {
        assert_eq!(
            ordered(&["d/x.pcap", "d/x.pcap1", "d/x.pcap10", "d/x.pcap2", "e/x.pcap1", "b.pcap"]),
            ["d/x.pcap", "d/x.pcap1", "d/x.pcap2", "d/x.pcap10", "e/x.pcap1", "b.pcap"]
        );
        assert_eq!(
            ordered(&["r_00010_20260102.pcapng", "z.pcap", "r_00009_20260101.pcapng"]),
            ["r_00009_20260101.pcapng", "z.pcap", "r_00010_20260102.pcapng"]
        );
        assert_eq!(ordered(&["b.pcap", "a.pcap"]), ["b.pcap", "a.pcap"]);
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let mut names = ["a10", "a9", "a", "a09b", "b1", "a010"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a", "a9", "a09b", "a10", "a010", "b1"]);
        let long = "9".repeat(60);
        assert_eq!(natural(&long, &format!("1{long}")), Ordering::Less);
    }
}
