//! Text to and from C.

use std::ffi::{CStr, c_char};

/// Reads a text of the caller; none if the pointer is null, an error if it is not UTF-8.
///
/// # Safety
/// If `text` is not null, it must end with a zero byte.
pub(crate) unsafe fn read<'a>(text: *const c_char) -> Result<Option<&'a str>, &'static str> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the function's own condition.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| "a name is not UTF-8")
}

/// Writes as much as fits, with a zero byte at its end, and returns the length of the text.
///
/// # Safety
/// If `to` is not null, `len` bytes must be writable there.
pub(crate) unsafe fn write(text: &str, to: *mut c_char, len: usize) -> usize {
    if to.is_null() || len == 0 {
        return text.len();
    }
    let fits = text.len().min(len - 1);
    // SAFETY: `fits` bytes and one more are writable by the function's own condition, and what a
    // caller gives to be written to does not lie within our text.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, fits) };
    // SAFETY: as above: `fits` is less than `len`.
    let end = unsafe { to.add(fits) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    text.len()
}
