//! The machine that a result holds for, and the cost of processes.

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

/// Returns the machine's default congestion control of TCP.
pub(super) fn congestion_control() -> String {
    read("/proc/sys/net/ipv4/tcp_congestion_control")
}

/// A file of one line; empty if it is not there.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// CPU time of all cores that a hypervisor gave to others although it was wanted here, since the
/// machine's start; zero if it is unknown.
pub(super) fn stolen_ns() -> u64 {
    let ticks = parse_stolen(&read("/proc/stat")).unwrap_or(0);
    ns(ticks)
}

/// The eighth number of the first line.
fn parse_stolen(stat: &str) -> Option<u64> {
    let mut words = stat.lines().next()?.split_whitespace();
    (words.next()? == "cpu").then(|| words.nth(7)?.parse().ok())?
}

/// CPU time that a process has used, all its threads, user and system.
pub(super) fn cpu_ns(process: u32) -> anyhow::Result<u64> {
    let path = Path::new("/proc").join(process.to_string()).join("stat");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("the CPU time of process {process} can't be read"))?;
    parse_stat(&text)
        .map(|stat| ns(stat.own_ticks))
        .with_context(|| format!("{} is not understood", path.display()))
}

/// The memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// What it has in use.
    pub(super) resident_bytes: u64,
    /// What it has had in use at most.
    pub(super) peak_bytes: u64,
}

/// Returns the memory that a process has in use now and has had at most.
pub(super) fn memory(process: u32) -> anyhow::Result<Memory> {
    let path = Path::new("/proc").join(process.to_string()).join("status");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("the memory of process {process} can't be read"))?;
    parse_memory(&text).with_context(|| format!("{} is not understood", path.display()))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim();
        kib.strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Memory { resident_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
}

/// CPU time that processes and all their descendants have used, including those that have ended.
pub(super) fn family_cpu_ns(processes: &[u32]) -> u64 {
    ns(family_ticks(processes, &stats()))
}

/// Returns processes with all their descendants.
pub(super) fn family(processes: &[u32]) -> Vec<u32> {
    members(processes, &stats())
}

/// Of all processes.
fn stats() -> Vec<(u32, Stat)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        Some((process, parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    })
    .collect()
}

fn family_ticks(processes: &[u32], stats: &[(u32, Stat)]) -> u64 {
    let family = members(processes, stats);
    let members = stats.iter().filter(|(process, _)| family.contains(process));
    members.map(|(_, stat)| stat.own_ticks + stat.children_ticks).sum()
}

fn members(processes: &[u32], stats: &[(u32, Stat)]) -> Vec<u32> {
    let mut family = processes.to_vec();
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        let children = stats.iter().filter(|(_, stat)| stat.parent == parent).map(|&(it, _)| it);
        let new: Vec<u32> = children.filter(|child| !family.contains(child)).collect();
        family.extend(new);
        at += 1;
    }
    family
}

/// The CPU time in a process' `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// Of children that have ended, and theirs.
    children_ticks: u64,
}

fn ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second())
}

/// The parent is the 4th field; user and system time are the 14th and 15th, those of ended children
/// the 16th and 17th. The second is a name that may hold anything.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let mut ticks = fields.skip(9).map_while(|field| field.parse::<u64>().ok());
    let own_ticks = ticks.next()? + ticks.next()?;
    let children_ticks = ticks.next()? + ticks.next()?;
    Some(Stat { parent, own_ticks, children_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hypervisor_took_is_read() {
        let stat = "cpu  2504370 2540996 726564 1683391 22089 0 89859 113142 0 0\ncpu0 1 2 3";
        assert_eq!(parse_stolen(stat), Some(113_142));
        assert_eq!(parse_stolen("cpu 1 2 3"), None);
        assert_eq!(parse_stolen(""), None);
    }

    #[test]
    fn memory_is_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n";
        let expected = Memory { resident_bytes: 1 << 20, peak_bytes: 2 << 20 };
        assert_eq!(parse_memory(status), Some(expected));
        assert_eq!(parse_memory("Name:\tkthreadd\n"), None);
        assert!(memory(std::process::id()).unwrap().resident_bytes > 0);
    }

    #[test]
    fn a_name_with_brackets_confuses_nobody() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194304 100 0 0 0 70 30 5 6 20 0 1 0 5 6 7";
        assert_eq!(parse_stat(stat), Some(Stat { parent: 1, own_ticks: 100, children_ticks: 11 }));
        assert_eq!(parse_stat("12 (a"), None);
        assert!(cpu_ns(std::process::id()).is_ok());
        assert!(cpu_ns(u32::MAX).is_err());
    }

    #[test]
    fn a_family_is_counted_to_its_last_member() {
        let stat = |parent, own_ticks| Stat { parent, own_ticks, children_ticks: 1000 };
        let stats = [(9, stat(7, 1)), (7, stat(3, 10)), (3, stat(1, 100)), (4, stat(1, 5))];
        assert_eq!(family_ticks(&[3], &stats), 3111);
        assert_eq!(family_ticks(&[3, 7], &stats), 3111);
        assert_eq!(family_ticks(&[8], &stats), 0);
        assert_eq!(members(&[3], &stats), [3, 7, 9]);
        let own = cpu_ns(std::process::id()).unwrap();
        assert!(family_cpu_ns(&[std::process::id()]) >= own);
    }

    #[test]
    fn this_machine_has_a_core_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && !machine.kernel.is_empty(), "{machine:?}");
    }
}
