//! The settings of both ends, by name: names can be added without a change of the interface.

use std::ffi::c_char;
use std::str::FromStr;

use dwell_base::ByteSize;
use dwell_stream::{Builder, Config, Limits, Strategy};

use crate::{MISUSE, text};

/// The settings of a sender and of its receiver.
#[derive(Clone, Debug)]
pub struct dwell_config {
    pub(crate) builder: Builder,
    pub(crate) limits: Limits,
}

impl dwell_config {
    pub(crate) fn new() -> Self {
        Self { builder: Builder::new(), limits: Limits::default() }
    }

    /// Sets one of them.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let builder = self.builder.clone();
        self.builder = match name {
            "objective" => builder.objective(value.parse()?),
            "strategy" => builder.strategy(other::<Strategy>(value)?),
            "codecs" => builder.codecs(value).map_err(|error| error.to_string())?,
            "history" => {
                self.limits.history = truth(value)?;
                builder.history(self.limits.history)
            }
            _ => {
                let mut changed = Ok(());
                let limits = &mut self.limits;
                let builder = builder.configure(|config| {
                    changed = set_number(config, name, value)
                        .or_else(|| set_tcpcomp(config, name, value))
                        .or_else(|| set_limit(limits, name, value))
                        .unwrap_or_else(|| Err(format!("there is no setting \"{name}\"")));
                });
                changed?;
                builder
            }
        };
        Ok(())
    }
}

/// Sets what a sender has beside its strategy and codecs; none if it has nothing of that name.
fn set_number(config: &mut Config, name: &str, value: &str) -> Option<Result<(), String>> {
    Some(match name {
        "block_len" => size(value).map(|len| config.block_len = len),
        "buffer_len" => size(value).map(|len| config.buffer_len = len),
        "mss" => size(value).map(|len| config.mss = len),
        "reorder_max" => other(value).map(|blocks| config.reorder_max = blocks),
        "idle_history" => truth(value).map(|is_held| config.idle_history = is_held),
        _ => return None,
    })
}

fn set_tcpcomp(config: &mut Config, name: &str, value: &str) -> Option<Result<(), String>> {
    let config = &mut config.tcpcomp;
    Some(match name.strip_prefix("tcpcomp.")? {
        "target_len" => size(value).map(|len| config.target_len = len),
        "factor_min" => other(value).map(|factor| config.factor_min = factor),
        "poor_units" => other(value).map(|units| config.poor_units = units),
        "skip_first" => other(value).map(|segments| config.skip_first = segments),
        "skip_max" => other(value).map(|segments| config.skip_max = segments),
        "backoff" => truth(value).map(|is_there| config.backoff = is_there),
        "variance_first" => other(value).map(|variance| config.variance_first = variance),
        "drift" => other(value).map(|drift| config.drift = drift),
        "process_variance" => other(value).map(|variance| config.process_variance = variance),
        "measurement_variance" => {
            other(value).map(|variance| config.measurement_variance = variance)
        }
        _ => return None,
    })
}

fn set_limit(limits: &mut Limits, name: &str, value: &str) -> Option<Result<(), String>> {
    Some(match name.strip_prefix("limits.")? {
        "output_len" => size(value).map(|len| limits.output_len = len),
        "block_len" => size(value).map(|len| limits.block_len = len),
        "reorder" => other(value).map(|blocks| limits.reorder = blocks),
        "units" => truth(value).map(|are_accepted| limits.units = are_accepted),
        "history" => truth(value).map(|is_held| limits.history = is_held),
        _ => return None,
    })
}

fn size(value: &str) -> Result<usize, String> {
    let ByteSize(bytes) = value.parse()?;
    usize::try_from(bytes).map_err(|error| error.to_string())
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        other => Err(format!("\"{other}\" is neither true nor false")),
    }
}

fn other<T: FromStr<Err: ToString>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_config_new() -> *mut dwell_config {
    Box::into_raw(Box::new(dwell_config::new()))
}

/// See the header.
///
/// # Safety
/// `config` must be null or come from `dwell_config_new`, and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_config_free(config: *mut dwell_config) {
    if !config.is_null() {
        // SAFETY: by the function's own condition.
        drop(unsafe { Box::from_raw(config) });
    }
}

/// See the header.
///
/// # Safety
/// `config` must be null or a configuration; the texts must be null or end with a zero byte; `why` must be
/// null or have `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_config_set(
    config: *mut dwell_config,
    name: *const c_char,
    value: *const c_char,
    why: *mut c_char,
    why_len: usize,
) -> i32 {
    // SAFETY: by the function's own condition.
    let this = unsafe { config.as_mut() };
    // SAFETY: by the function's own condition.
    let name = unsafe { text::read(name) };
    // SAFETY: by the function's own condition.
    let value = unsafe { text::read(value) };
    let set = match (this, name, value) {
        (Some(this), Ok(Some(name)), Ok(Some(value))) => this.set(name, value),
        (_, Err(error), _) | (_, _, Err(error)) => Err(error.to_owned()),
        _ => Err("a null pointer in place of a configuration, a name or a value".to_owned()),
    };
    let Err(error) = set else { return 0 };
    // SAFETY: by the function's own condition.
    unsafe { text::write(&error, why, why_len) };
    MISUSE
}

#[cfg(test)]
mod tests {
    use dwell_stream::Objective;

    use super::*;

    #[test]
    fn settings_have_names() {
        let mut config = dwell_config::new();
        let settings = [
            ("strategy", "tcpcomp"),
            ("codecs", "deflate:6"),
            ("block_len", "32KiB"),
            ("buffer_len", "65536"),
            ("mss", "1200"),
            ("reorder_max", "3"),
            ("history", "no"),
            ("idle_history", "false"),
            ("tcpcomp.target_len", "1100"),
            ("tcpcomp.factor_min", "1.3"),
            ("tcpcomp.poor_units", "4"),
            ("tcpcomp.skip_first", "6"),
            ("tcpcomp.skip_max", "60"),
            ("tcpcomp.backoff", "off"),
            ("tcpcomp.variance_first", "9"),
            ("tcpcomp.drift", "0.002"),
            ("tcpcomp.process_variance", "1e-5"),
            ("tcpcomp.measurement_variance", "0.2"),
            ("limits.output_len", "128KiB"),
            ("limits.block_len", "4096"),
            ("limits.reorder", "0"),
            ("limits.units", "0"),
            ("limits.history", "1"),
        ];
        for (name, value) in settings {
            assert_eq!(config.set(name, value), Ok(()), "{name}");
        }
        let shown = format!("{config:?}");
        for part in [
            "TcpComp",
            "32768",
            "65536",
            "1200",
            "reorder_max: 3",
            "1100",
            "1.3",
            "poor_units: 4",
            "skip_first: 6",
            "skip_max: 60",
            "backoff: false",
            "variance_first: 9.0",
            "0.002",
            "1e-5",
            "0.2",
            "131072",
            "block_len: 4096",
            "units: false",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert_eq!(config.set("objective", "bytes"), Ok(()));
        let shown = config.builder.config();
        assert_eq!((shown.strategy, shown.objective), (Strategy::Hull, Objective::Bytes));
        for (name, value) in [("blok_len", "1"), ("block_len", "x"), ("history", "maybe")] {
            assert!(config.set(name, value).is_err(), "{name}");
        }
        assert!(config.set("objective", "fame").unwrap_err().contains("time and bytes"));
        assert!(config.set("tcpcomp.x", "1").unwrap_err().contains("no setting"));
    }
}
