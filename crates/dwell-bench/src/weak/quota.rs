//! Control groups with a quota of processor time, one for each relay.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Where the trees of control groups usually are: version 1, or version 2.
const SEPARATE: [&str; 2] = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"];
const UNIFIED: &str = "/sys/fs/cgroup";
/// The time in which a quota may be used up, as container runtimes and systemd have it.
const PERIOD_US: u64 = 100_000;
const WHAT_TO_DO: &str = "control groups can't limit processor time here: that needs root of the machine, and the \
    controller \"cpu\" (version 2: in /sys/fs/cgroup/cgroup.controllers)";

/// A directory for groups, which goes with it.
#[derive(Debug)]
pub(super) struct Quotas {
    directory: PathBuf,
    is_unified: bool,
}

impl Quotas {
    /// Makes it.
    ///
    /// # Errors
    /// If control groups can't limit processor time here; that says what it needs.
    pub(super) fn new() -> anyhow::Result<Self> {
        let separate = SEPARATE.map(Path::new);
        let quota = |tree: &&&Path| tree.join("cgroup.procs").exists();
        let (tree, is_unified) = match separate.iter().find(quota) {
            Some(tree) => (*tree, false),
            None => (Path::new(UNIFIED), true),
        };
        let directory = tree.join(format!("dwell-bench-{}", std::process::id()));
        let quotas = Self { directory, is_unified };
        quotas.make(tree).context(WHAT_TO_DO)?;
        Ok(quotas)
    }

    fn make(&self, tree: &Path) -> anyhow::Result<()> {
        if self.is_unified {
            fs::write(tree.join("cgroup.subtree_control"), "+cpu")?;
        }
        match fs::create_dir(&self.directory) {
            // One of a run that was killed.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            done => done?,
        }
        if self.is_unified {
            fs::write(self.directory.join("cgroup.subtree_control"), "+cpu")?;
        }
        let file = if self.is_unified { "cgroup.subtree_control" } else { "cpu.cfs_quota_us" };
        if !self.directory.join(file).exists() {
            bail!("{} has no {file}", self.directory.display());
        }
        Ok(())
    }

    /// Writes a program to `at` that runs `program` in a group of its own, which may use so much of a processor.
    pub(super) fn wrap(&self, program: &Path, percent: u32, at: &Path) -> anyhow::Result<()> {
        let quota_us = PERIOD_US * u64::from(percent) / 100;
        let limit = match self.is_unified {
            true => format!("echo {quota_us} {PERIOD_US} > $group/cpu.max"),
            false => format!(
                "echo {PERIOD_US} > $group/cpu.cfs_period_us\necho {quota_us} > $group/cpu.cfs_quota_us"
            ),
        };
        let (directory, program) = (self.directory.display(), program.display());
        let text = format!(
            "#!/bin/sh\nset -e\ngroup={directory}/$$\nmkdir $group\n{limit}\necho 0 > $group/cgroup.procs\n\
             exec '{program}' \"$@\"\n"
        );
        fs::write(at, text).context("the program that sets a quota can't be written")?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        Ok(fs::set_permissions(at, mode)?)
    }

    /// Removes the groups of programs that have ended.
    pub(super) fn clean(&self) {
        for group in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            // What is not a group can't be removed so, nor one that somebody is in.
            let _ = fs::remove_dir(group.path());
        }
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        self.clean();
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_runs_a_program_in_a_group_with_the_quota() {
        let directory = std::env::temp_dir().join(format!("dwell-quota-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (is_unified, expected) in [
            (true, "echo 25000 100000 > $group/cpu.max"),
            (false, "echo 25000 > $group/cpu.cfs_quota_us"),
        ] {
            let quotas = Quotas { directory: directory.join("none"), is_unified };
            let at = directory.join("relay");
            quotas.wrap(Path::new("/bin/dwell"), 25, &at).unwrap();
            let text = fs::read_to_string(&at).unwrap();
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("exec '/bin/dwell' \"$@\""), "{text}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
