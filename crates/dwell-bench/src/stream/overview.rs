//! The same contenders side by side along an axis: rates, block lengths, buffers.

use std::fmt::Write as _;

use dwell_report::human::NOTHING;

use super::results::Results;
use super::table::numbers;

/// An axis of the measurement.
struct Axis {
    title: &'static str,
    /// The name of a field's place on the axis.
    name: fn(&Results<'_>) -> String,
    /// The properties that all fields of a table share.
    key: fn(&Results<'_>) -> String,
    /// The figures that are shown.
    figures: &'static [Figure],
}

#[derive(Clone, Copy)]
enum Figure {
    Goodput,
    /// The fill of the sender's buffer, in percent.
    Fill,
}

impl Figure {
    const fn title(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::Fill => "fill of the sender's buffer, %",
        }
    }

    fn of(self, field: &Results<'_>, contender: &str) -> Option<f64> {
        match self {
            Self::Goodput => field.rate_of(contender).map(|bps| bps / 1e6),
            Self::Fill => field.account(contender, |s| Some(100.0 * s.fill)),
        }
    }
}

const AXES: [Axis; 3] = [
    Axis {
        title: "by rate",
        name: |field| field.rate.to_string(),
        key: |field| format!("{}{}", field.workload, super::table::unusual(field.setting)),
        figures: &[Figure::Goodput, Figure::Fill],
    },
    Axis {
        title: "by block length",
        name: |field| format!("{} KiB", field.setting.block_bytes >> 10),
        key: |field| {
            let buffer = field.setting.buffer_bytes >> 10;
            format!("{}, {}, buffer of {buffer} KiB", field.workload, field.rate) + shared(field)
        },
        figures: &[Figure::Goodput],
    },
    Axis {
        title: "by buffer",
        name: |field| format!("{} KiB", field.setting.buffer_bytes >> 10),
        key: |field| {
            let block = field.setting.block_bytes >> 10;
            format!("{}, {}, blocks of {block} KiB", field.workload, field.rate) + shared(field)
        },
        figures: &[Figure::Goodput, Figure::Fill],
    },
];

fn shared(field: &Results<'_>) -> &'static str {
    if field.setting.competing { ", shared" } else { "" }
}

/// All tables that have more than one column.
pub(super) fn all(fields: &[Results<'_>]) -> String {
    let mut text = String::new();
    for axis in &AXES {
        let mut keys: Vec<String> = Vec::new();
        for key in fields.iter().map(axis.key) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for key in keys {
            let of: Vec<_> = fields.iter().filter(|field| (axis.key)(field) == key).collect();
            if of.len() < 2 {
                continue;
            }
            for &figure in axis.figures {
                let title = format!("{key} {}: {}", axis.title, figure.title());
                // Writing to a string can't fail.
                let _ = write!(text, "\n{title}\n\n{}", table(axis, &of, figure));
            }
        }
    }
    text
}

fn table(axis: &Axis, fields: &[&Results<'_>], figure: Figure) -> String {
    let names = fields.iter().map(|field| (axis.name)(field));
    let mut table = numbers(["contender".to_owned()].into_iter().chain(names));
    let mut contenders: Vec<&str> = Vec::new();
    for contender in fields.iter().flat_map(|field| field.contenders()) {
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    for contender in contenders {
        let shown = |value: Option<f64>| match value {
            Some(value) if value >= 100.0 => format!("{value:.0}"),
            Some(value) => format!("{value:.1}"),
            None => NOTHING.to_owned(),
        };
        let values = fields.iter().map(|field| shown(figure.of(field, contender)));
        table.row([contender.to_owned()].into_iter().chain(values));
    }
    table.to_text()
}

#[cfg(test)]
mod tests {
    use super::super::results::{self, tests::run};
    use super::*;

    #[test]
    fn contenders_stand_side_by_side() {
        let mut faster = run("hull", 320);
        faster.place.rate = "200mbit".parse().unwrap();
        let mut short = run("hull", 150);
        short.place.setting.block_bytes = 4 << 10;
        let runs = [run("plain", 100), run("hull", 160), faster, short];
        let text = all(&results::fields(&runs));
        assert!(text.contains("text by rate: Mbit/s"), "{text}");
        assert!(text.contains("text, 100 Mbit/s, buffer of 256 KiB by block length"), "{text}");
        let line = text.lines().find(|line| line.starts_with("plain")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["plain", "100", "-"]);
        assert!(!text.contains("by buffer"), "{text}");
    }
}
