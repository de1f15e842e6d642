//! Logging to standard error or systemd's journal, at the level of `DWELL_LOG`, `-v` or the configuration.

mod journal;
mod unblocking;

use std::io;
use std::sync::Mutex;

use anyhow::Context as _;
use dwell_relay::config::LogLevel;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use dwell_cli::terminal;
use journal::Journal;
pub(crate) use unblocking::Unblocking;

/// The variable that goes before everything else: a level, or a filter such as
/// `dwell_relay=debug,info`.
const VARIABLE: &str = "DWELL_LOG";

/// The level of commands that have no configuration.
pub(crate) const DEFAULT: LogLevel = LogLevel::Warn;

#[derive(Debug, clap::Args)]
pub(crate) struct Logging {
    /// Log more; twice for still more (the variable DWELL_LOG takes precedence)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
}

impl Logging {
    /// Begins to log at `level`, or at what the user asked for. To be called once.
    pub(crate) fn start(&self, level: LogLevel) -> anyhow::Result<()> {
        let filter: Targets = match std::env::var(VARIABLE) {
            Ok(filter) if !filter.is_empty() => filter.parse().with_context(|| {
                format!("{VARIABLE} must be a level such as \"debug\", not {filter:?}")
            })?,
            _ => raised(level, self.verbose).name().parse()?,
        };
        let journal = Journal::of_service();
        let lines = journal.is_none().then(|| {
            tracing_subscriber::fmt::layer()
                .with_writer(Mutex::new(Unblocking::new(io::stderr())))
                .with_ansi(terminal::wants_colours(&io::stderr()))
                .with_target(false)
                // Sentences name what they are about; fields are for those who search.
                .fmt_fields(debug_fn(|writer, field, value| match field.name() {
                    "message" => write!(writer, "{value:?}"),
                    _ => Ok(()),
                }))
        });
        tracing_subscriber::registry()
            .with(lines)
            .with(journal)
            .with(filter)
            .try_init()
            .map_err(|error| anyhow::anyhow!("logging can't be started: {error}"))
    }
}

/// `level`, raised by a number of steps.
fn raised(level: LogLevel, steps: u8) -> LogLevel {
    let at = LogLevel::ALL.iter().position(|&other| other == level).unwrap_or_default();
    LogLevel::ALL[(at + usize::from(steps)).min(LogLevel::ALL.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_and_filters_of_modules_are_understood() {
        for level in LogLevel::ALL {
            let filter: Targets = level.name().parse().unwrap();
            let is_logged = filter.would_enable("dwell_relay", &tracing::Level::ERROR);
            assert_eq!(is_logged, level != LogLevel::Off);
        }
        let filter: Targets = "dwell_relay=debug,info".parse().unwrap();
        assert!(filter.would_enable("dwell_relay::node", &tracing::Level::DEBUG));
        assert!(!filter.would_enable("dwell_proxy", &tracing::Level::DEBUG));
        assert!(filter.would_enable("dwell_proxy", &tracing::Level::INFO));
    }

    #[test]
    fn each_v_is_one_step() {
        assert_eq!(raised(LogLevel::Warn, 0), LogLevel::Warn);
        assert_eq!(raised(LogLevel::Warn, 1), LogLevel::Info);
        assert_eq!(raised(LogLevel::Off, 1), LogLevel::Error);
        assert_eq!(raised(LogLevel::Debug, 200), LogLevel::Trace);
    }
}
