//! The report on the runs: a verdict, and a table for each field.

use std::fmt::Write as _;

use dwell_report::human::NOTHING;
use dwell_report::{Column, Table};

use super::super::runner;
use super::record::{Setting, StreamAccounts, StreamRun};
use super::results::{self, Results};
use super::{overview, verdict};

/// Everything, for a terminal: the verdict is what stands last.
pub(super) fn all(runs: &[StreamRun]) -> String {
    let mut text = runner::head(runs);
    let Some(first) = runs.first() else { return text };
    let _ = writeln!(text, "each run watched for {} s", first.conditions.seconds);
    let fields = results::fields(runs);
    let mut reported: Vec<(&str, usize)> = Vec::new();
    for field in &fields {
        // Writing to a string can't fail.
        let about = (field.workload, field.setting.block_bytes);
        if !reported.contains(&about) {
            reported.push(about);
            let block = dwell_report::human::bytes(about.1 as u64);
            let _ = write!(text, "\n{}, codecs in blocks of {block}\n\n{}", about.0, speeds(field));
        }
        let _ = write!(text, "\n{}\n\n{}", heading(field), of_field(field).to_text());
    }
    text + &overview::all(&fields) + &verdict::all(&fields)
}

/// A table whose first column has names and whose others have numbers.
pub(crate) fn numbers<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Table {
    let column = |(at, name): (usize, S)| match at {
        0 => Column::left(name.as_ref()),
        _ => Column::right(name.as_ref()),
    };
    Table::new(names.into_iter().enumerate().map(column))
}

/// Returns the heading of a field, with the settings that are not as usual.
pub(super) fn heading(field: &Results<'_>) -> String {
    format!("{}, {}{}", field.workload, field.rate, unusual(field.setting))
}

/// Returns the settings that are not as usual.
pub(super) fn unusual(setting: Setting) -> String {
    let usual = Setting::default();
    let mut text = String::new();
    if setting.competing {
        text.push_str(", half of it taken by another stream");
    }
    if setting.delay_ns != usual.delay_ns {
        let delay = dwell_base::time::format_duration_ns(setting.delay_ns);
        let _ = write!(text, ", {delay} each way");
    }
    if (setting.block_bytes, setting.buffer_bytes) != (usual.block_bytes, usual.buffer_bytes) {
        let (block, buffer) = (setting.block_bytes >> 10, setting.buffer_bytes >> 10);
        let _ = write!(text, ", blocks of {block} KiB, buffer of {buffer} KiB");
    }
    text
}

/// Returns a table of the codecs' speeds and ratios.
fn speeds(field: &Results<'_>) -> String {
    let mut table = numbers(["codec", "Mbit/s in", "ratio", "full at Mbit/s"]);
    for (codec, point) in field.speeds() {
        let input = 8e3 / point.cost_ns;
        table.row([
            codec.to_owned(),
            format!("{input:.0}"),
            format!("{:.3}", point.ratio),
            format!("{:.0}", input * point.ratio),
        ]);
    }
    table.to_text()
}

fn of_field(field: &Results<'_>) -> Table {
    let mut table = numbers([
        "contender",
        "Mbit/s",
        "quartiles",
        "/plain",
        "/best",
        "/est",
        "/bound",
        "/bound+tx",
        "link B/B",
        "raw",
        "CPU s/GB",
        "fill",
        "units/MB",
        "segments/MB",
        "efficiency",
        "failures",
    ]);
    for contender in field.contenders() {
        table.row(row(field, contender));
    }
    table
}

fn row(field: &Results<'_>, contender: &str) -> Vec<String> {
    let goodput = field.goodput(contender);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or(NOTHING.to_owned(), |value| format!("{value:.digits$}"))
    };
    let share =
        |whole: Option<f64>| number(goodput.zip(whole).map(|(part, all)| part.median / all), 3);
    let mbit = |bps: f64| format!("{:.1}", bps / 1e6);
    let codec = field.codec_of(contender);
    let each_mb = |count: fn(&StreamAccounts) -> u64| {
        let count =
            field.account(contender, |s| dwell_base::share(count(s) * 1_000_000, s.framed_bytes));
        number(count.filter(|&count| count > 0.0), 0)
    };
    vec![
        contender.to_owned(),
        goodput.map_or_else(String::new, |summary| mbit(summary.median)),
        goodput.map_or_else(String::new, |s| format!("{}..{}", mbit(s.low), mbit(s.high))),
        share(field.rate_of("plain")),
        share(field.best_simple().map(|(_, best)| best)),
        share(codec.and_then(|codec| field.bound(Some(codec)))),
        share(field.bound(None)),
        share(field.bound_with_sending()),
        number(
            field.figure(contender, |m| dwell_base::share(m.link_bytes, m.application_bytes)),
            3,
        ),
        number(field.account(contender, |s| dwell_base::share(s.raw_bytes, s.framed_bytes)), 3),
        number(field.figure(contender, |m| dwell_base::share(m.cpu_ns, m.application_bytes)), 2),
        number(field.account(contender, |s| Some(s.fill)), 2),
        each_mb(|s| s.segments),
        each_mb(|s| s.tcp_segments),
        number(field.account(contender, |s| Some(s.efficiency)), 3),
        number(field.account(contender, |s| Some(s.failures as f64)), 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::run;
    use super::*;

    #[test]
    fn a_row_compares_with_the_best_and_the_bounds() {
        let runs = [run("plain", 100), run("mix/deflate", 144), run("hull", 160)];
        let [field] = &results::fields(&runs)[..] else { panic!("one field") };
        let mixing = row(field, "mix/deflate");
        assert_eq!(mixing[..2], ["mix/deflate", "144.0"]);
        assert_eq!(mixing[3..6], ["1.440", "1.000", "1.000"]);
        let hull = row(field, "hull");
        assert_eq!((hull[4].as_str(), hull[5].as_str()), ("1.111", NOTHING));
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let run = run("hull", 120);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<StreamRun>(&line).unwrap(), run);
        assert!(all(&[run]).contains("text, 100 Mbit/s"));
    }
}
