//! The memory of this machine.

/// Returns the bytes of memory that this machine has.
pub(crate) fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_machine_has_some() {
        assert!(super::machine_bytes() > 64 << 20);
    }
}
