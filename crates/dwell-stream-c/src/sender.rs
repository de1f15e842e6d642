//! The functions of senders.

use std::ffi::c_char;

use dwell_base::Instant;
use dwell_stream::{AbortReason, Compressors, Config, LinkReport, Sender, Strategy};

use crate::config::dwell_config;
use crate::receiver::dwell_receiver;
use crate::{MISUSE, slice, text};

/// A sender with its own compressors.
#[derive(Debug)]
pub struct dwell_sender {
    pub(crate) sender: Sender,
    compressors: Compressors,
}

/// What the transport says of its link, as C has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_link_report {
    /// See [`LinkReport::delivered_rate`].
    pub delivered_rate: f64,
    /// See [`LinkReport::window_rate`].
    pub window_rate: f64,
    /// See [`LinkReport::path_rate`].
    pub path_rate: f64,
    /// See [`LinkReport::round_trip_ns`].
    pub round_trip_ns: u64,
    /// See [`LinkReport::pending_bytes`].
    pub pending_bytes: u64,
    /// See [`LinkReport::is_least`]: not zero if it is so.
    pub is_least: u32,
    /// Zero.
    pub reserved: u32,
}

impl dwell_sender {
    fn make(strategy: Option<&str>, codec: Option<&str>, block_len: usize) -> Result<Self, String> {
        let strategy = match strategy {
            Some(name) => name.parse::<Strategy>().map_err(|error| error.to_string())?,
            None => Strategy::default(),
        };
        let mut config = Config::new(strategy);
        if let Some(codec) = codec {
            config.set_codec(codec).map_err(|error| error.to_string())?;
        }
        if block_len > 0 {
            config.block_len = block_len;
            config.buffer_len = config.buffer_len.max(block_len.saturating_mul(2));
        }
        Self::with(&config)
    }

    fn with(config: &Config) -> Result<Self, String> {
        let sender = Sender::new(config).map_err(|error| error.to_string())?;
        Ok(Self { sender, compressors: Compressors::new() })
    }
}

/// Gives a sender to C, or null and the reason.
///
/// # Safety
/// `why` must be null or have `why_len` bytes.
unsafe fn give(
    made: Result<dwell_sender, String>,
    why: *mut c_char,
    why_len: usize,
) -> *mut dwell_sender {
    match made {
        Ok(sender) => Box::into_raw(Box::new(sender)),
        Err(error) => {
            // SAFETY: by the function's own condition.
            unsafe { text::write(&error, why, why_len) };
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// The texts must be null or end with a zero byte; `why` must be null or have `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_new(
    strategy: *const c_char,
    codec: *const c_char,
    block_len: usize,
    why: *mut c_char,
    why_len: usize,
) -> *mut dwell_sender {
    // SAFETY: by the function's own condition.
    let strategy = unsafe { text::read(strategy) };
    // SAFETY: by the function's own condition.
    let codec = unsafe { text::read(codec) };
    let made = match (strategy, codec) {
        (Ok(strategy), Ok(codec)) => dwell_sender::make(strategy, codec, block_len),
        (Err(error), _) | (_, Err(error)) => Err(error.to_owned()),
    };
    // SAFETY: by the function's own condition.
    unsafe { give(made, why, why_len) }
}

/// See the header.
///
/// # Safety
/// `config` must be null or a configuration; `why` must be null or have `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_with(
    config: *const dwell_config,
    why: *mut c_char,
    why_len: usize,
) -> *mut dwell_sender {
    // SAFETY: by the function's own condition.
    let made = match unsafe { config.as_ref() } {
        Some(config) => dwell_sender::with(config.builder.config()),
        None => dwell_sender::with(&Config::default()),
    };
    // SAFETY: by the function's own condition.
    unsafe { give(made, why, why_len) }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender, `report` null or a report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_reported(
    sender: *mut dwell_sender,
    now_ns: u64,
    report: *const dwell_link_report,
) {
    // SAFETY: by the function's own condition.
    let this = unsafe { sender.as_mut() };
    // SAFETY: by the function's own condition.
    let report = unsafe { report.as_ref() };
    if let (Some(this), Some(report)) = (this, report) {
        // What is no number is not known.
        let rate = |rate: f64| if rate.is_finite() { rate.max(0.0) } else { 0.0 };
        let report = LinkReport {
            delivered_rate: rate(report.delivered_rate),
            is_least: report.is_least != 0,
            window_rate: rate(report.window_rate),
            path_rate: rate(report.path_rate),
            round_trip_ns: report.round_trip_ns,
            pending_bytes: report.pending_bytes,
            ..LinkReport::default()
        };
        this.sender.reported(Instant::from_ns(now_ns), &report);
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender, `back` null or a receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_get_context(
    sender: *mut dwell_sender,
    back: *mut dwell_receiver,
    now_ns: u64,
    memory_max: u64,
) -> bool {
    // SAFETY: by the function's own condition.
    let this = unsafe { sender.as_mut() };
    // SAFETY: by the function's own condition.
    let back = unsafe { back.as_mut() };
    let (Some(this), Some(back)) = (this, back) else { return false };
    let Some((window_log, model_log)) = back.receiver.take_offer() else { return false };
    let sender = &mut this.sender;
    let fits = |model_log: &u8| sender.context_bytes_max(window_log, *model_log) <= memory_max;
    let model_log = [model_log, 0].into_iter().find(fits);
    let now = Instant::from_ns(now_ns);
    let gets = model_log.is_some_and(|model_log| sender.get_context(now, window_log, model_log));
    if !gets {
        sender.decline_context();
    }
    gets
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_drop_context(
    sender: *mut dwell_sender,
    now_ns: u64,
    unused_ns: u64,
) -> bool {
    // SAFETY: by the function's own condition.
    let Some(this) = (unsafe { sender.as_mut() }) else { return false };
    let unused = this.sender.context_unused_ns(Instant::from_ns(now_ns));
    unused.is_some_and(|ns| ns >= unused_ns) && this.sender.drop_context()
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_presume_rate(
    sender: *mut dwell_sender,
    now_ns: u64,
    rate: f64,
    bytes: u64,
) {
    // SAFETY: by the function's own condition.
    let this = unsafe { sender.as_mut() };
    if let Some(this) = this.filter(|_| rate.is_finite() && rate > 0.0) {
        this.sender.presume_rate(Instant::from_ns(now_ns), rate, bytes);
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_expect_bulk(sender: *mut dwell_sender) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.expect_bulk();
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_held(sender: *const dwell_sender) -> usize {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.map_or(0, |this| this.sender.held())
}

/// See the header.
///
/// # Safety
/// `sender` must be null or come from `dwell_sender_new`, and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_free(sender: *mut dwell_sender) {
    if !sender.is_null() {
        // SAFETY: by the function's own condition.
        drop(unsafe { Box::from_raw(sender) });
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender; `len` bytes must be readable at `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_accept(
    sender: *mut dwell_sender,
    bytes: *const u8,
    len: usize,
) -> usize {
    // SAFETY: by the function's own condition.
    let Some(this) = (unsafe { sender.as_mut() }) else { return 0 };
    // SAFETY: by the function's own condition.
    let bytes = unsafe { slice(bytes, len) };
    bytes.map_or(0, |bytes| this.sender.accept(bytes))
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_room(sender: *const dwell_sender) -> usize {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.map_or(0, |this| this.sender.room())
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_finish(sender: *mut dwell_sender) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.finish();
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_abort(sender: *mut dwell_sender) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.abort(AbortReason::Reset);
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender; a length must be writable at `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_wire(
    sender: *mut dwell_sender,
    now_ns: u64,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: by the function's own condition.
    let this = unsafe { sender.as_mut() };
    // SAFETY: by the function's own condition.
    let len = unsafe { len.as_mut() };
    let Some(len) = len else { return std::ptr::null() };
    *len = 0;
    let Some(this) = this else { return std::ptr::null() };
    let wire = this.sender.wire(Instant::from_ns(now_ns));
    *len = wire.len();
    wire.as_ptr()
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_wrote(
    sender: *mut dwell_sender,
    now_ns: u64,
    len: usize,
) -> i32 {
    let now = Instant::from_ns(now_ns);
    // SAFETY: by the function's own condition.
    let Some(this) = (unsafe { sender.as_mut() }) else { return MISUSE };
    // Otherwise bytes would be chosen that nobody has seen.
    if len == 0 {
        return 0;
    }
    if len > this.sender.wire(now).len() {
        return MISUSE;
    }
    this.sender.wrote(now, len);
    0
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_blocked(sender: *mut dwell_sender, now_ns: u64) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.blocked(Instant::from_ns(now_ns));
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_unblocked(sender: *mut dwell_sender) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.unblocked();
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_not_sent_len(sender: *const dwell_sender) -> u32 {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.map_or(0, |this| this.sender.not_sent_len())
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_transport_holds(sender: *mut dwell_sender, len: u32) {
    // SAFETY: by the function's own condition.
    if let Some(this) = unsafe { sender.as_mut() } {
        this.sender.transport_holds(len);
    }
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender; `now_ns` must be null or a function that can be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_compress(
    sender: *mut dwell_sender,
    now_ns: Option<unsafe extern "C" fn() -> u64>,
) -> i32 {
    // SAFETY: by the function's own condition.
    let this = unsafe { sender.as_mut() };
    let (Some(this), Some(now_ns)) = (this, now_ns) else { return 0 };
    // SAFETY: by the function's own condition.
    let clock = || Instant::from_ns(unsafe { now_ns() });
    i32::from(this.sender.compress(&mut this.compressors, clock).is_some())
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_is_finished(sender: *const dwell_sender) -> bool {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.is_some_and(|this| this.sender.is_finished())
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_accepted_bytes(sender: *const dwell_sender) -> u64 {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.map_or(0, |this| this.sender.stats().accepted_bytes)
}

/// See the header.
///
/// # Safety
/// `sender` must be null or a sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_sender_wire_bytes(sender: *const dwell_sender) -> u64 {
    // SAFETY: by the function's own condition.
    unsafe { sender.as_ref() }.map_or(0, |this| this.sender.stats().wire_bytes)
}
