//! The functions of receivers.

use std::ffi::c_char;

use dwell_stream::{Decompressors, Limits, Receiver, StreamError};

use crate::config::dwell_config;
use crate::sender::dwell_sender;
use crate::{ABORTED, DAMAGED, MISUSE, TRUNCATED, slice, text};

/// A receiver with its own decoders.
#[derive(Debug)]
pub struct dwell_receiver {
    pub(crate) receiver: Receiver,
    decompressors: Decompressors,
}

fn number(error: &StreamError) -> i32 {
    match error {
        StreamError::Truncated => TRUNCATED,
        StreamError::Aborted(_) => ABORTED,
        _ => DAMAGED,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_receiver_new() -> *mut dwell_receiver {
    let receiver = Receiver::new(Limits::default());
    Box::into_raw(Box::new(dwell_receiver { receiver, decompressors: Decompressors::new() }))
}

/// See the header.
///
/// # Safety
/// `config` must be null or a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_with(config: *const dwell_config) -> *mut dwell_receiver {
    // SAFETY: by the function's own condition.
    let Some(config) = (unsafe { config.as_ref() }) else { return dwell_receiver_new() };
    // Each limit was checked when it was set.
    let Ok(receiver) = config.builder.clone().limits(config.limits).receiver() else {
        return std::ptr::null_mut();
    };
    Box::into_raw(Box::new(dwell_receiver { receiver, decompressors: Decompressors::new() }))
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or come from `dwell_receiver_new`, and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_free(receiver: *mut dwell_receiver) {
    if !receiver.is_null() {
        // SAFETY: by the function's own condition.
        drop(unsafe { Box::from_raw(receiver) });
    }
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver, `back` null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_grant(
    receiver: *mut dwell_receiver,
    back: *mut dwell_sender,
    window_log: u8,
    model_log: u8,
) -> bool {
    // SAFETY: by the function's own condition.
    let this = unsafe { receiver.as_mut() };
    // SAFETY: by the function's own condition.
    let back = unsafe { back.as_mut() };
    let (Some(this), Some(back)) = (this, back) else { return false };
    this.receiver.may_grant()
        && back.sender.grant_context(window_log, model_log)
        && this.receiver.grant(window_log, model_log).is_ok()
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_has_granted(receiver: *const dwell_receiver) -> bool {
    // SAFETY: by the function's own condition.
    unsafe { receiver.as_ref() }.is_some_and(|this| this.receiver.has_granted())
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver; `len` bytes must be readable at `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_feed(
    receiver: *mut dwell_receiver,
    bytes: *const u8,
    len: usize,
) -> isize {
    // SAFETY: by the function's own condition.
    let this = unsafe { receiver.as_mut() };
    // SAFETY: by the function's own condition.
    let bytes = unsafe { slice(bytes, len) };
    let (Some(this), Some(bytes)) = (this, bytes) else { return MISUSE as isize };
    match this.receiver.feed(bytes, &mut this.decompressors) {
        Ok(taken) => taken as isize,
        Err(error) => number(&error) as isize,
    }
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver; a length must be writable at `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_data(
    receiver: *const dwell_receiver,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: by the function's own condition.
    let this = unsafe { receiver.as_ref() };
    // SAFETY: by the function's own condition.
    let len = unsafe { len.as_mut() };
    let Some(len) = len else { return std::ptr::null() };
    *len = 0;
    let Some(this) = this else { return std::ptr::null() };
    *len = this.receiver.data().len();
    this.receiver.data().as_ptr()
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_consume(receiver: *mut dwell_receiver, len: usize) -> i32 {
    // SAFETY: by the function's own condition.
    match unsafe { receiver.as_mut() } {
        Some(this) if len <= this.receiver.data().len() => {
            this.receiver.consume(len);
            0
        }
        _ => MISUSE,
    }
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_is_finished(receiver: *const dwell_receiver) -> bool {
    // SAFETY: by the function's own condition.
    unsafe { receiver.as_ref() }.is_some_and(|this| this.receiver.is_finished())
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_end(receiver: *const dwell_receiver) -> i32 {
    // SAFETY: by the function's own condition.
    match unsafe { receiver.as_ref() }.map(|this| this.receiver.end()) {
        Some(Ok(())) => 0,
        Some(Err(error)) => number(&error),
        None => MISUSE,
    }
}

/// See the header.
///
/// # Safety
/// `receiver` must be null or a receiver; `len` bytes must be writable at `why`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_receiver_why(
    receiver: *const dwell_receiver,
    why: *mut c_char,
    len: usize,
) -> usize {
    // SAFETY: by the function's own condition.
    let this = unsafe { receiver.as_ref() };
    let sentence = match this.map(|this| this.receiver.end()) {
        Some(Err(error)) => error.to_string(),
        _ => String::new(),
    };
    // SAFETY: by the function's own condition.
    unsafe { text::write(&sentence, why, len) }
}
