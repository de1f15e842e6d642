//! `dwell-stream` for C and any language that can call C; `include/dwell_stream.h` is the
//! documentation.
//!
//! The plain methods of [`dwell_sender`] and [`dwell_receiver`] do the work; the functions only
//! convert pointers to references.
#![allow(non_camel_case_types, reason = "the names that C sees")]
#![allow(unsafe_code, reason = "pointers from C")]

use std::ffi::{CStr, c_char};

pub mod config;
pub mod receiver;
pub mod sender;
mod text;

pub use config::dwell_config;
pub use receiver::dwell_receiver;
pub use sender::dwell_sender;

/// The version, as C has it.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_stream_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The stream cannot be restored.
pub(crate) const DAMAGED: i32 = -1;
/// The transport ended before the stream did.
pub(crate) const TRUNCATED: i32 = -2;
/// The sender gave the stream up.
pub(crate) const ABORTED: i32 = -3;
/// The call does not make sense.
pub(crate) const MISUSE: i32 = -4;

/// Returns the bytes that a caller points to.
///
/// # Safety
/// If `bytes` is not null, `len` bytes must be readable there, and not change during `'a`.
pub(crate) unsafe fn slice<'a>(bytes: *const u8, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    if bytes.is_null() || isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: by the function's own condition.
    Some(unsafe { std::slice::from_raw_parts(bytes, len) })
}
