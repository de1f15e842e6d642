//! What is done with a service.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// PostgreSQL: a row by its key
    Point,
    /// PostgreSQL: 1,000 rows
    Rows,
    /// PostgreSQL: COPY TO STDOUT of the table
    CopyOut,
    /// PostgreSQL: COPY FROM STDIN into an empty one
    CopyIn,
    /// Redis: values of 100 bytes
    Get,
    /// Redis: the same, written
    Set,
    /// Redis: 16 commands for such values in advance
    Pipelined,
    /// Redis: values of 10 kB of JSON
    JsonGet,
    /// Redis: the same, written
    JsonSet,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Postgres,
    Redis,
}

impl Task {
    pub(super) const ALL: [Self; 9] = [
        Self::Point,
        Self::Rows,
        Self::CopyOut,
        Self::CopyIn,
        Self::Get,
        Self::Set,
        Self::Pipelined,
        Self::JsonGet,
        Self::JsonSet,
    ];

    pub(super) const fn service(self) -> Service {
        match self {
            Self::Point | Self::Rows | Self::CopyOut | Self::CopyIn => Service::Postgres,
            _ => Service::Redis,
        }
    }

    /// Returns true if it is one long transfer.
    pub(super) const fn is_copy(self) -> bool {
        matches!(self, Self::CopyOut | Self::CopyIn)
    }

    /// The numbers of clients at once.
    pub(super) const fn clients(self) -> &'static [u32] {
        match self {
            Self::Point | Self::Get | Self::JsonGet => &[1, 8],
            Self::Rows | Self::CopyOut | Self::CopyIn => &[1],
            Self::Set | Self::Pipelined | Self::JsonSet => &[8],
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Point => "point",
            Self::Rows => "rows",
            Self::CopyOut => "copy-out",
            Self::CopyIn => "copy-in",
            Self::Get => "get",
            Self::Set => "set",
            Self::Pipelined => "pipelined",
            Self::JsonGet => "json-get",
            Self::JsonSet => "json-set",
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn tasks_are_written_as_they_are_read() {
        assert_eq!(Task::value_variants(), &Task::ALL);
        for task in Task::ALL {
            assert_eq!(Task::from_str(&task.to_string(), false), Ok(task));
        }
    }
}
