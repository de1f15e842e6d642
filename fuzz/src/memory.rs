//! An allocator that counts what each thread holds, so that a target can say how much memory
//! bytes from anyone may cost.

#![allow(unsafe_code, reason = "an allocator can only be made by unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with an account.
pub struct Counting;

/// The bytes that this thread has allocated and not yet freed. What it frees of other threads'
/// counts, too.
pub fn held() -> isize {
    HELD.with(Cell::get)
}

fn count(bytes: isize) {
    // While a thread ends its counter may be gone; nobody reads it then.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: all of it is the system's allocator, which keeps the promises; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passes on the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: passes on the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passes on the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: passes on the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}
