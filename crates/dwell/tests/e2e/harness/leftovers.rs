//! The things that labs could leave outside: processes, namespaces, interfaces, mounts, sockets' files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::ensure;
use rustix::process::{getpid, set_child_subreaper};

/// The state of the machine before the checks.
pub(super) struct Outside {
    interfaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
    files: BTreeSet<String>,
    /// The PID namespaces of the labs since then.
    pub(super) labs: Vec<String>,
}

impl Outside {
    pub(super) fn look() -> Self {
        // Whoever loses its parent becomes our child, instead of init's: so it will be seen.
        let _ = set_child_subreaper(Some(getpid()));
        Self { interfaces: interfaces(), mounts: mounts(), files: files(), labs: Vec::new() }
    }

    /// Looks again.
    pub(super) fn compare(&self) -> anyhow::Result<String> {
        let new = |now: &BTreeSet<String>, before: &BTreeSet<String>| -> Vec<String> {
            now.difference(before).cloned().collect()
        };
        let interfaces = new(&interfaces(), &self.interfaces);
        ensure!(interfaces.is_empty(), "new interfaces: {interfaces:?}");
        let mounts = new(&mounts(), &self.mounts);
        ensure!(mounts.is_empty(), "new mounts: {mounts:?}");
        let files = new(&files(), &self.files);
        ensure!(files.is_empty(), "new files: {files:?}");
        let orphans = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        ensure!(orphans.trim().is_empty(), "processes that lost their parent: {orphans}");
        let alive = namespaces_in_use();
        let left: Vec<_> = self.labs.iter().filter(|lab| alive.contains(*lab)).collect();
        ensure!(left.is_empty(), "processes still live in {left:?}");
        Ok(format!("{} labs", self.labs.len()))
    }
}

fn interfaces() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

fn mounts() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The fifth field is the mount point.
    table.lines().filter_map(|line| Some(line.split(' ').nth(4)?.to_owned())).collect()
}

/// The places where relays and labs put files.
fn files() -> BTreeSet<String> {
    let list = |directory: &str| {
        let entries = fs::read_dir(Path::new(directory)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    ["/run/dwell", "/run/dwell-lab", "/run/netns"].into_iter().flat_map(list).collect()
}

/// The PID namespaces of all processes that this user may look at.
fn namespaces_in_use() -> BTreeSet<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("ns/pid")).ok())
        .map(|link| link.display().to_string())
        .collect()
}
