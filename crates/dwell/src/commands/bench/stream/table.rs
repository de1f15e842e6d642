//! What people read of the runs: a table for each workload and rate.

use std::fmt::Write as _;

use dwell_report::{Column, Table};
use dwell_stream::{Bound, CodecPoint};

use super::super::link_rate::LinkRate;
use super::super::statistics::{Summary, median};
use super::record::{Measured, StreamAccounts, StreamRun};

/// Everything, for a terminal.
pub(super) fn all(runs: &[StreamRun]) -> String {
    let Some(first) = runs.first() else { return "There are no runs.\n".to_owned() };
    let conditions = &first.conditions;
    let mut text = format!(
        "\ndwell {} on {}\nblocks of {}, buffer {}, {} each way{}\n",
        first.origin.version,
        first.origin.machine.line(),
        dwell_report::human::bytes(conditions.block_bytes as u64),
        dwell_report::human::bytes(conditions.buffer_bytes as u64),
        dwell_base::time::format_duration_ns(conditions.delay_ns),
        if conditions.competing { ", half of the link taken by another stream" } else { "" },
    );
    let mut workloads: Vec<&str> = Vec::new();
    for run in runs {
        if !workloads.contains(&run.workload.as_str()) {
            workloads.push(&run.workload);
        }
    }
    for workload in workloads {
        let of: Vec<&StreamRun> = runs.iter().filter(|run| run.workload == workload).collect();
        // Writing to a string can't fail.
        let _ = write!(text, "\n{workload}\n\n{}", speeds(&of));
        let mut rates: Vec<LinkRate> = of.iter().map(|run| run.rate).collect();
        rates.sort_by_key(|rate| rate.bps().unwrap_or(u64::MAX));
        rates.dedup();
        for rate in rates {
            let field: Vec<&StreamRun> =
                of.iter().copied().filter(|run| run.rate == rate).collect();
            let _ = write!(text, "\n{workload}, {rate}\n\n{}", Field(field).table().to_text());
        }
    }
    text
}

/// What the codecs take and give.
fn speeds(runs: &[&StreamRun]) -> String {
    let mut table = Table::new(
        ["codec", "Mbit/s in", "ratio", "full at Mbit/s"]
            .into_iter()
            .enumerate()
            .map(|(at, name)| if at == 0 { Column::left(name) } else { Column::right(name) }),
    );
    for speed in runs.first().map_or(&[][..], |run| &run.speeds) {
        let input = 8e3 / speed.point.cost_ns;
        table.row([
            speed.codec.clone(),
            format!("{input:.0}"),
            format!("{:.3}", speed.point.ratio),
            format!("{:.0}", input * speed.point.ratio),
        ]);
    }
    table.to_text()
}

/// The runs of a workload at a rate.
struct Field<'a>(Vec<&'a StreamRun>);

impl Field<'_> {
    fn table(&self) -> Table {
        let names = [
            "contender",
            "Mbit/s",
            "quartiles",
            "/plain",
            "/est",
            "/bound",
            "link B/B",
            "raw",
            "CPU s/GB",
            "fill",
            "segments/MB",
            "efficiency",
            "failures",
        ];
        let column = |(at, name)| if at == 0 { Column::left(name) } else { Column::right(name) };
        let mut table = Table::new(names.into_iter().enumerate().map(column));
        let mut contenders: Vec<&str> = Vec::new();
        let mut runs = self.0.clone();
        runs.sort_by_key(|run| run.round);
        for run in runs {
            if !contenders.contains(&run.contender.as_str()) {
                contenders.push(&run.contender);
            }
        }
        for contender in contenders {
            table.row(self.row(contender));
        }
        table
    }

    fn row(&self, contender: &str) -> Vec<String> {
        let runs = || self.0.iter().filter(|run| run.contender == contender);
        let goodput = Summary::of(runs().map(|run| run.measured.goodput_bps()));
        let plain = self.plain();
        let share = |whole: Option<f64>| match (goodput, whole) {
            (Some(goodput), Some(whole)) => format!("{:.3}", goodput.median / whole),
            _ => dwell_report::human::NOTHING.to_owned(),
        };
        let of = |figure: fn(&Measured) -> Option<f64>, digits: usize| {
            let median = median(runs().filter_map(|run| figure(&run.measured)));
            median.map_or(dwell_report::human::NOTHING.to_owned(), |m| format!("{m:.digits$}"))
        };
        let codec = runs().find_map(|run| run.codec.clone());
        let shown = |bps: f64| format!("{:.1}", bps / 1e6);
        vec![
            contender.to_owned(),
            goodput.map_or_else(String::new, |summary| shown(summary.median)),
            goodput.map_or_else(String::new, |s| format!("{}..{}", shown(s.low), shown(s.high))),
            share(plain),
            share(codec.and_then(|codec| self.bound(Some(&codec)))),
            share(self.bound(None)),
            of(|m| ratio(m.link_bytes, m.application_bytes), 3),
            of(|m| of_stream(m, |s| ratio(s.raw_bytes, s.framed_bytes)), 3),
            of(|m| ratio(m.cpu_ns, m.application_bytes), 2),
            of(|m| of_stream(m, |s| Some(s.fill)), 2),
            of(
                |m| {
                    of_stream(m, |s| ratio(s.segments * 1_000_000, s.framed_bytes))
                        .filter(|&n| n > 0.0)
                },
                0,
            ),
            of(|m| of_stream(m, |s| Some(s.efficiency)), 3),
            of(|m| of_stream(m, |s| Some(s.failures as f64)), 0),
        ]
    }

    /// What plain TCP carries, in bit/s.
    fn plain(&self) -> Option<f64> {
        let plain = self.0.iter().filter(|run| run.contender == "plain");
        median(plain.map(|run| run.measured.goodput_bps()))
    }

    /// The best possible rate in bit/s with one codec, or all, and raw.
    fn bound(&self, codec: Option<&str>) -> Option<f64> {
        let mut points = vec![CodecPoint::RAW];
        let speeds = &self.0.first()?.speeds;
        let wanted = speeds.iter().filter(|speed| codec.is_none_or(|codec| codec == speed.codec));
        points.extend(wanted.map(|speed| speed.point));
        Some(Bound::of(self.plain()? / 8.0, &points).rate * 8.0)
    }
}

fn of_stream(measured: &Measured, figure: impl Fn(&StreamAccounts) -> Option<f64>) -> Option<f64> {
    measured.stream.as_ref().and_then(figure)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Origin;
    use super::super::record::Conditions;
    use super::super::speed::Speed;
    use super::*;

    fn run(contender: &str, codec: Option<&str>, mbit: u64) -> StreamRun {
        let speed = |codec: &str, mbit: f64, ratio| Speed {
            codec: codec.to_owned(),
            point: CodecPoint::new(8e3 / mbit, ratio),
        };
        StreamRun {
            at_unix_seconds: 0,
            origin: Origin::this(),
            conditions: Conditions {
                delay_ns: 0,
                competing: false,
                block_bytes: 65536,
                buffer_bytes: 262_144,
                seconds: 1.0,
                seed: 1,
            },
            rate: "100mbit".parse().unwrap(),
            workload: "text".to_owned(),
            contender: contender.to_owned(),
            codec: codec.map(str::to_owned),
            round: 0,
            speeds: vec![speed("deflate:6", 88.0, 0.5), speed("lz4", 1000.0, 0.6)],
            measured: Measured {
                window_ns: 1_000_000_000,
                application_bytes: mbit * 125_000,
                ..Measured::default()
            },
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_papers() {
        let runs = [run("plain", None, 100), run("mix/deflate", Some("deflate:6"), 144)];
        let field = Field(runs.iter().collect());
        // 88 in, 44 out, and 56 raw, as in figure 5.
        let estimated = field.bound(Some("deflate:6")).unwrap();
        assert!((estimated - 144e6).abs() < 1.0, "{estimated}");
        let all = field.bound(None).unwrap();
        assert!(all > 166e6, "{all}");
        let row = field.row("mix/deflate");
        assert_eq!(row[..2], ["mix/deflate", "144.0"]);
        assert_eq!(row[3..5], ["1.440", "1.000"]);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let run = run("hull", None, 120);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<StreamRun>(&line).unwrap(), run);
        assert!(all(&[run]).contains("text, 100 Mbit/s"));
    }
}
