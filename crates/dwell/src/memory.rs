//! The memory of this machine.

use dwell_relay::io::cgroup;

/// Returns the bytes of memory that this machine has, or that the control group of this process may have of it.
pub(crate) fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let all = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    cgroup::memory_max().map_or(all, |most| most.min(all))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_machine_has_some() {
        assert!(super::machine_bytes() > 16 << 20);
    }
}
