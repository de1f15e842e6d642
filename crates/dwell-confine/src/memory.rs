//! Memory that is free, back to the system: that of a peer's contexts is not needed when the peer is gone.
//!
//! The allocator of glibc maps what is large, and unmaps it when it is free, but from the first time on that this happens
//! it takes what was as large from its heaps instead. There it stays: a model of 16 MiB of which a few pages are used has
//! all of them from then on, and what was once the most is kept for as long as the process lasts. Other allocators (musl's)
//! always unmap what is large.

#![cfg_attr(
    target_env = "gnu",
    allow(unsafe_code, reason = "what the allocator keeps is set by functions of C")
)]

/// What is as large as this is mapped, and unmapped when it is free: the memory of contexts and models, and nothing that
/// comes and goes with packets.
const LARGE_BYTES: i32 = 512 << 10;
/// The allocator keeps so much at the end of a heap.
const KEPT_BYTES: i32 = 4 << 20;

/// From now on large blocks go back to the system as soon as they are free. To be called before other threads are there.
pub fn give_back_large() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in
        [(libc::M_MMAP_THRESHOLD, LARGE_BYTES), (libc::M_TRIM_THRESHOLD, KEPT_BYTES)]
    {
        // SAFETY: it sets a number of the allocator, under its lock; it is in the range that it allows, or it ignores it.
        unsafe {
            libc::mallopt(what, bytes);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (LARGE_BYTES, KEPT_BYTES);
}

/// Gives back what is free now, of any size, so that what is resident says what is needed.
pub fn give_back_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and gives back only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }

    #[test]
    fn large_blocks_come_and_go_and_leave_nothing() {
        give_back_large();
        let (before, mut kept) = (resident_bytes(), Vec::new());
        for round in 0..20_u8 {
            let blocks: Vec<Vec<u8>> = (0..4).map(|_| vec![round | 1; 16 << 20]).collect();
            assert!(resident_bytes() > before + (60 << 20));
            // What is small, and lasts, stands behind them in a heap.
            kept.push((0..100).map(|len| vec![round; 100 * len]).collect::<Vec<_>>());
            drop(blocks);
        }
        let after = resident_bytes();
        assert!(after < before + (20 << 20), "{before} {after} {}", kept.len());
    }
}
