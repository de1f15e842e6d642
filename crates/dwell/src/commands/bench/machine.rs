//! What a result holds for, and what processes cost.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// The machine that a record was made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) kernel: String,
}

impl Machine {
    pub(super) fn this() -> Self {
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: model
                .map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into()),
            kernel: read("/proc/sys/kernel/osrelease"),
        }
    }

    /// In a line, for the head of a report.
    pub(super) fn line(&self) -> String {
        let Self { cores, cpu, kernel } = self;
        format!("{cores} × {cpu}, Linux {kernel}")
    }
}

/// What TCP reacts to congestion with, unless told otherwise.
pub(super) fn congestion_control() -> String {
    read("/proc/sys/net/ipv4/tcp_congestion_control")
}

/// A file of one line; empty if it is not there.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// CPU time that a process has used, all its threads, user and system.
pub(super) fn cpu_ns(process: u32) -> anyhow::Result<u64> {
    let path = Path::new("/proc").join(process.to_string()).join("stat");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("the CPU time of process {process} can't be read"))?;
    parse_ticks(&text)
        .map(|ticks| ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second()))
        .with_context(|| format!("{} is not understood", path.display()))
}

/// User and system time: the 14th and 15th field. The second is a name that may hold anything.
fn parse_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_confuses_nobody() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194304 100 0 0 0 70 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse_ticks(stat), Some(100));
        assert_eq!(parse_ticks("12 (a"), None);
        assert!(cpu_ns(std::process::id()).is_ok());
        assert!(cpu_ns(u32::MAX).is_err());
    }

    #[test]
    fn this_machine_has_a_core_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && !machine.kernel.is_empty(), "{machine:?}");
    }
}
