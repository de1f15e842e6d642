//! The control groups of this process: how much of the processors and of the memory it may have.
//!
//! Both versions of control groups are read: version 2 with one tree, and version 1 with a tree for each controller. A
//! limit of a group holds for all groups below it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use dwell_base::time::MICRO_NS;

/// What the kernel mounts where, and which groups this process is in.
const MOUNTS: &str = "/proc/self/mountinfo";
const GROUPS: &str = "/proc/self/cgroup";
/// Longer files are none of these.
const FILE_LEN_MAX: usize = 4_096;
/// Version 1 writes a number near 2^63 where there is no limit.
const NO_LIMIT_MIN: u64 = 1 << 60;

/// The directories of this process's groups under a controller, its own first, and their version.
struct Groups {
    directories: Vec<PathBuf>,
    is_unified: bool,
}

impl Groups {
    fn of(controller: &str) -> Option<Self> {
        let (mounts, groups) = (fs::read_to_string(MOUNTS).ok()?, fs::read_to_string(GROUPS).ok()?);
        Self::read(controller, &mounts, &groups)
    }

    /// Finds them in the texts of the kernel.
    fn read(controller: &str, mounts: &str, groups: &str) -> Option<Self> {
        let of_version = |is_unified: bool| {
            let (root, mount) =
                mounts.lines().find_map(|it| mounted(it, controller, is_unified))?;
            let group = groups.lines().find_map(|it| grouped(it, controller, is_unified))?;
            // In a container the tree may be mounted from the container's own group on.
            let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
            let own: PathBuf = Path::new(mount).components().chain(below.components()).collect();
            let within = |it: &&Path| it.starts_with(mount);
            let directories = own.ancestors().take_while(within).map(Path::to_owned).collect();
            Some(Self { directories, is_unified })
        };
        of_version(false).or_else(|| of_version(true))
    }
}

/// Returns the root and the place of a line of mountinfo, if it is of this controller.
fn mounted<'a>(line: &'a str, controller: &str, is_unified: bool) -> Option<(&'a str, &'a str)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut kind = kind.split(' ');
    let is_it = match (kind.next()?, is_unified) {
        ("cgroup2", true) => true,
        ("cgroup", false) => kind.nth(1)?.split(',').any(|option| option == controller),
        _ => false,
    };
    if is_it { Some((place.next()?, place.next()?)) } else { None }
}

/// Returns the group of a line of cgroup, if it is of this controller.
fn grouped<'a>(line: &'a str, controller: &str, is_unified: bool) -> Option<&'a str> {
    let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
    let is_it = match is_unified {
        true => controllers.is_empty(),
        false => controllers.split(',').any(|it| it == controller),
    };
    (is_it && group.starts_with('/')).then_some(group)
}

/// Returns the most memory that this process may have by its control groups, in bytes, if they limit it.
pub fn memory_max() -> Option<u64> {
    let groups = Groups::of("memory")?;
    let name = if groups.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
    let limit = |directory: &PathBuf| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse().ok().filter(|&bytes: &u64| bytes < NO_LIMIT_MIN)
    };
    groups.directories.iter().filter_map(limit).min()
}

/// The control group with the least quota of processor time, for this process; its own, if there is none yet.
///
/// Its files stay open: a relay that has dropped its privileges may not open them again.
#[derive(Debug)]
pub struct CpuGroup {
    /// The quota: in one file, or beside it the period.
    quota: (File, Option<File>),
    stat: File,
}

/// What a control group says of processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuAllowance {
    /// The number of processors that may be used on average, if that is limited: a quarter, say.
    pub processors: Option<f64>,
    /// The time for which it was withheld since the group was made, in nanoseconds: of all processors together.
    pub withheld_ns: u64,
}

impl CpuGroup {
    /// Finds it. None where the kernel has no such groups, or their files can't be read.
    pub fn find() -> Option<Self> {
        let groups = Groups::of("cpu")?;
        let open = |directory: &PathBuf| Self::open(directory, groups.is_unified);
        let all = groups.directories.iter().filter_map(open);
        // Of equal ones the first, which is the innermost.
        all.map(|it| (it.read().processors.unwrap_or(f64::INFINITY), it))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|it| it.1)
    }

    fn open(directory: &Path, is_unified: bool) -> Option<Self> {
        let open = |name: &str| File::open(directory.join(name)).ok();
        let quota = match is_unified {
            true => (open("cpu.max")?, None),
            false => (open("cpu.cfs_quota_us")?, Some(open("cpu.cfs_period_us")?)),
        };
        Some(Self { quota, stat: open("cpu.stat")? })
    }

    /// Returns what it says now.
    pub fn read(&self) -> CpuAllowance {
        let quota = match &self.quota {
            (both, None) => content(both),
            (quota, Some(period)) => format!("{} {}", content(quota).trim(), content(period)),
        };
        let withheld_ns = withheld_ns(&content(&self.stat));
        CpuAllowance { processors: processors(&quota), withheld_ns }
    }
}

/// Returns what is in a file of a control group; nothing if it can't be read.
fn content(file: &File) -> String {
    let mut bytes = [0; FILE_LEN_MAX];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Reads a quota and its period.
fn processors(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let (quota, period): (f64, f64) = (words.next()??, words.next()??);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Reads the counters of a group.
fn withheld_ns(stat: &str) -> u64 {
    let count = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        match name {
            "throttled_time" => Some(value),
            "throttled_usec" => Some(value.saturating_mul(MICRO_NS)),
            _ => None,
        }
    };
    stat.lines().find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n\
        26 24 0:23 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const SEPARATE: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        38 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn found(controller: &str, mounts: &str, groups: &str) -> Option<(Vec<String>, bool)> {
        let found = Groups::read(controller, mounts, groups)?;
        let directories = found.directories.iter().map(|it| it.display().to_string()).collect();
        Some((directories, found.is_unified))
    }

    #[test]
    fn groups_of_both_versions_are_found_up_to_their_roots() {
        let (own, is_unified) = found("cpu", UNIFIED, "0::/system.slice/dwell.service\n").unwrap();
        let expected = ["/system.slice/dwell.service", "/system.slice", ""];
        assert_eq!(own, expected.map(|it| format!("/sys/fs/cgroup{it}")));
        assert!(is_unified);
        let groups = "4:memory:/else\n3:cpuset:/\n2:cpu,cpuacct:/a/b\n0::/unified\n";
        let (own, is_unified) = found("cpu", SEPARATE, groups).unwrap();
        let expected = ["/a/b", "/a", ""];
        assert_eq!(own, expected.map(|it| format!("/sys/fs/cgroup/cpu,cpuacct{it}")));
        assert!(!is_unified);
        // What version 1 has no tree for is in version 2's.
        let (own, is_unified) = found("memory", SEPARATE, groups).unwrap();
        assert_eq!((own[0].as_str(), is_unified), ("/sys/fs/cgroup/unified/unified", true));
        assert_eq!(found("cpu", "", groups), None);
        assert_eq!(found("cpu", UNIFIED, "nonsense\n::\n1\n"), None);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let mounts = "9 8 0:1 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        for groups in ["0::/docker/1\n", "0::/\n", "0::/docker/1/x\n"] {
            let (own, _) = found("cpu", mounts, groups).unwrap();
            assert_eq!(own.last().unwrap(), "/sys/fs/cgroup", "{groups}");
        }
    }

    #[test]
    fn quotas_and_counters_are_read_as_both_versions_write_them() {
        assert_eq!(processors("25000 100000\n"), Some(0.25));
        for none in ["max 100000\n", "-1 100000\n", "", "1", "0 0", "x y", "nan nan"] {
            assert_eq!(processors(none), None, "{none}");
        }
        let unified = "usage_usec 7\nnr_periods 3\nnr_throttled 2\nthrottled_usec 15\n";
        assert_eq!(withheld_ns(unified), 15_000);
        assert_eq!(withheld_ns("nr_periods 0\nthrottled_time 15\n"), 15);
        assert_eq!(withheld_ns("usage_usec\nthrottled_usec x\n"), 0);
    }

    #[test]
    fn this_machine_has_groups_or_none_and_no_error() {
        assert!(memory_max().is_none_or(|bytes| bytes > 0));
        if let Some(group) = CpuGroup::find() {
            let allowance = group.read();
            assert!(allowance.processors.is_none_or(|it| it > 0.0));
            assert!(group.read().withheld_ns >= allowance.withheld_ns);
        }
    }
}
