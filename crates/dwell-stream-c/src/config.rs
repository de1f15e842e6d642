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
    /// True if the codecs were named: then none are added for a running context.
    has_codecs: bool,
}

impl dwell_config {
    pub(crate) fn new() -> Self {
        Self { builder: Builder::new(), limits: Limits::default(), has_codecs: false }
    }

    /// Sets one of them.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let builder = self.builder.clone();
        let builder = match name {
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
        self.has_codecs = match name {
            "codecs" => true,
            "objective" | "strategy" => false,
            _ => self.has_codecs,
        };
        let has_codecs = self.has_codecs;
        self.builder = builder.configure(|config| {
            if !has_codecs {
                default_codecs(config);
            }
        });
        Ok(())
    }
}

/// Sets the codecs to those of the strategy, window and model, in whatever order these were set.
fn default_codecs(config: &mut Config) {
    config.codecs = Config::new(config.strategy).codecs;
    config.set_window(config.window_log);
    config.set_model(config.model_log);
}

/// Sets what a sender has beside its strategy and codecs; none if it has nothing of that name.
fn set_number(config: &mut Config, name: &str, value: &str) -> Option<Result<(), String>> {
    Some(match name {
        "block_len" => size(value).map(|len| config.block_len = len),
        "buffer_len" => size(value).map(|len| config.buffer_len = len),
        "mss" => size(value).map(|len| config.mss = len),
        "reorder_max" => other(value).map(|blocks| config.reorder_max = blocks),
        "idle_history" => truth(value).map(|is_held| config.idle_history = is_held),
        "may_get_context" => truth(value).map(|may| config.may_get_context = may),
        "window_log" => other(value).map(|log| config.window_log = log),
        "model_log" => other(value).map(|log| config.model_log = log),
        "mixed_models" => truth(value).map(|may| config.mixed_models = may),
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

/// Sets a limit if it is a possible one: nobody checks it later, unlike what a sender has.
fn set_limit(limits: &mut Limits, name: &str, value: &str) -> Option<Result<(), String>> {
    let mut changed = *limits;
    let read = match name.strip_prefix("limits.")? {
        "output_len" => size(value).map(|len| changed.output_len = len),
        "block_len" => size(value).map(|len| changed.block_len = len),
        "reorder" => other(value).map(|blocks| changed.reorder = blocks),
        "units" => truth(value).map(|are_accepted| changed.units = are_accepted),
        "history" => truth(value).map(|is_held| changed.history = is_held),
        "window_log" => other(value).map(|log| changed.window_log = log),
        "model_log" => other(value).map(|log| changed.model_log = log),
        "mixed_models" => truth(value).map(|are_accepted| changed.mixed_models = are_accepted),
        _ => return None,
    };
    let checked = read.and_then(|()| changed.check().map_err(|error| error.to_string()));
    Some(checked.map(|()| *limits = changed))
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
    use std::collections::{BTreeMap, BTreeSet};

    use dwell_stream::Objective;

    use super::*;

    /// Each setting with a value that is not its default, and what the field is then.
    const SETTINGS: [(&str, &str, &str); 31] = [
        ("objective", "bytes", "\"bytes\""),
        ("strategy", "tcpcomp", "\"tcpcomp\""),
        ("codecs", "lz4, zstd:3", "[\"lz4\",\"zstd:3\"]"),
        ("block_len", "32KiB", "32768"),
        ("buffer_len", "131072", "131072"),
        ("mss", "1200", "1200"),
        ("reorder_max", "3", "3"),
        ("history", "no", "false"),
        ("idle_history", "false", "false"),
        ("may_get_context", "yes", "true"),
        ("window_log", "20", "20"),
        ("model_log", "22", "22"),
        ("mixed_models", "yes", "true"),
        ("tcpcomp.target_len", "1100", "1100"),
        ("tcpcomp.factor_min", "1.3", "1.3"),
        ("tcpcomp.poor_units", "4", "4"),
        ("tcpcomp.skip_first", "6", "6"),
        ("tcpcomp.skip_max", "60", "60"),
        ("tcpcomp.backoff", "off", "false"),
        ("tcpcomp.variance_first", "9", "9.0"),
        ("tcpcomp.drift", "0.002", "0.002"),
        ("tcpcomp.process_variance", "1e-1", "0.1"),
        ("tcpcomp.measurement_variance", "0.2", "0.2"),
        ("limits.output_len", "128 KiB", "131072"),
        ("limits.block_len", "4096", "4096"),
        ("limits.reorder", "0", "0"),
        ("limits.units", "0", "false"),
        ("limits.history", "off", "false"),
        ("limits.window_log", "23", "23"),
        ("limits.model_log", "26", "26"),
        ("limits.mixed_models", "on", "true"),
    ];

    /// Returns the fields of both ends by the names that settings have, with their values.
    fn fields(config: &dwell_config) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        let of_sender = serde_json::to_value(config.builder.config()).unwrap();
        for (name, value) in of_sender.as_object().unwrap() {
            match (name.as_str(), value.as_object()) {
                // The first of the codecs: set with these.
                ("codec", _) => {}
                ("tcpcomp", Some(parts)) => fields.extend(
                    parts.iter().map(|(part, value)| (format!("{name}.{part}"), value.to_string())),
                ),
                _ => drop(fields.insert(name.clone(), value.to_string())),
            }
        }
        // Limits are in no file, so that serde has no names for them.
        let of_receiver = format!("{:#?}", config.limits);
        let lines = of_receiver.lines().filter_map(|line| line.strip_prefix("    "));
        fields.extend(lines.map(|line| {
            let (name, value) = line.trim_end_matches(',').split_once(": ").unwrap();
            (format!("limits.{name}"), value.to_owned())
        }));
        fields
    }

    /// Windows and models had no setting, at neither end.
    #[test]
    fn each_field_has_a_setting_and_the_header_names_it() {
        let names: BTreeSet<String> =
            SETTINGS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        let fields: BTreeSet<String> = fields(&dwell_config::new()).into_keys().collect();
        assert_eq!(fields, names);
        let header = include_str!("../include/dwell_stream.h");
        for name in names {
            let is_named = match name.strip_prefix("tcpcomp.") {
                Some(part) => header.contains(&format!(".{part}")),
                None => header.contains(&format!("\n *   {name} ")),
            };
            assert!(is_named, "{name}");
        }
    }

    #[test]
    fn settings_have_names() {
        let defaults = fields(&dwell_config::new());
        for (name, value, expected) in SETTINGS {
            let mut config = dwell_config::new();
            assert_eq!(config.set(name, value), Ok(()), "{name}");
            assert_eq!(fields(&config)[name], expected, "{name}");
            assert_ne!(defaults[name], expected, "{name}");
        }
        let mut config = dwell_config::new();
        assert_eq!(config.set("strategy", "all"), Ok(()));
        assert_eq!(config.set("objective", "bytes"), Ok(()));
        let shown = config.builder.config();
        assert_eq!((shown.strategy, shown.objective), (Strategy::Hull, Objective::Bytes));
        for (name, value) in [("blok_len", "1"), ("block_len", "x"), ("history", "maybe")] {
            assert!(config.set(name, value).is_err(), "{name}");
        }
        assert!(config.set("objective", "fame").unwrap_err().contains("time and bytes"));
        for name in ["tcpcomp.x", "limits.x"] {
            assert!(config.set(name, "1").unwrap_err().contains("no setting"), "{name}");
        }
    }

    /// They were taken, and then something else held.
    #[test]
    fn limits_that_are_not_possible_are_refused() {
        let mut config = dwell_config::new();
        let wrong = [
            ("limits.reorder", "200", "at most 64"),
            ("limits.reorder", "65", "at most 64"),
            ("limits.block_len", "5GiB", "4096 to 65536"),
            ("limits.block_len", "65537", "4096 to 65536"),
            ("limits.block_len", "4095", "4096 to 65536"),
            ("limits.output_len", "0", "at least 1"),
            ("limits.window_log", "14", "15 to 23"),
            ("limits.window_log", "24", "15 to 23"),
            ("limits.model_log", "19", "20 to 26"),
            ("limits.model_log", "27", "20 to 26"),
        ];
        for (name, value, expected) in wrong {
            let error = config.set(name, value).unwrap_err();
            assert!(error.contains(expected), "{name} = {value}: {error}");
        }
        assert_eq!(config.limits, Limits::default());
        let highest = [("reorder", "64"), ("block_len", "64KiB"), ("output_len", "5MiB")];
        for (name, value) in highest {
            assert_eq!(config.set(&format!("limits.{name}"), value), Ok(()), "{name}");
        }
    }

    /// A window has levels of its own, and a model codecs: they are there whatever was set first.
    #[test]
    fn a_context_brings_its_codecs_unless_they_were_named() {
        let made = |settings: &[(&str, &str)]| {
            let mut config = dwell_config::new();
            for (name, value) in settings {
                assert_eq!(config.set(name, value), Ok(()), "{name}");
            }
            config.builder.config().clone()
        };
        let mut expected = Config::default();
        expected.set_window(20);
        expected.set_model(22);
        let (window, model) = (("window_log", "20"), ("model_log", "22"));
        assert_eq!(made(&[window, model]), expected);
        assert_eq!(made(&[model, window]), expected);
        assert_eq!(made(&[model, window, ("objective", "time")]), expected);
        assert_eq!(expected.check(), Ok(()));
        let off = [window, model, ("window_log", "0"), ("model_log", "0")];
        assert_eq!(made(&off), Config::default());
        let named = made(&[("codecs", "zstd:3"), window, model]);
        assert_eq!((named.codecs.len(), named.window_log, named.model_log), (1, 20, 22));
        // As with all that a sender has, it is refused when one is made.
        assert!(made(&[model]).check().unwrap_err().to_string().contains("beside a window"));
    }
}
