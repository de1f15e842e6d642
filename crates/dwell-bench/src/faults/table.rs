//! The runs, fault by fault.

use dwell_base::Rate;
use dwell_base::time::format_duration_ns;
use dwell_report::Table;

use super::super::record::Run;
use super::super::runner;
use super::super::sheet::{self, Figure, Of, Row, ms, whole};
use super::Faults;
use super::record::Aftermath;

/// Everything, for a terminal.
pub(super) fn report(runs: &[Run<Faults>]) -> String {
    let mut text = runner::head(runs);
    if let Some(run) = runs.first() {
        let it = &run.conditions;
        let (rate, delay) = (Rate::clamped_bps(it.rate_bps), format_duration_ns(it.delay_ns));
        text.push_str(&format!("{}/{}, {rate}, {delay} each way\n", it.scheme, it.codec));
    }
    text + "\n" + &table(runs).to_text()
}

fn table(runs: &[Run<Faults>]) -> Table {
    let rows = runner::places(runs).into_iter().flat_map(|place| {
        runner::rows(runs, place)
            .into_iter()
            .map(move |row| Row { name: format!("{} {}", place.fault, row.name), ..row })
    });
    let ns = |name: &str, of: Of, value: fn(&Aftermath) -> u64| {
        Figure::new(name, of, ms, move |run| Some(value(run) as f64))
    };
    sheet::table(
        "fault, security",
        rows,
        vec![
            ns("resumes", Of::Median, Aftermath::resumed_ns).unit("ms"),
            ns("min..max", Of::Span, Aftermath::resumed_ns),
            ns("silence", Of::Median, Aftermath::silence_ns).unit("ms"),
            ns("min..max", Of::Span, Aftermath::silence_ns),
            Figure::of_both("lost there, back", whole, |run: &Aftermath, end| {
                Some([&run.there, &run.back][end].lost as f64)
            }),
            Figure::new("of each", Of::Median, whole, |run: &Aftermath| {
                Some(run.there.sent as f64)
            }),
            ns("download resumes", Of::Median, |run| run.download_resumed_ns).unit("ms"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::super::record::{Cause, Circumstances, OneWay};
    use super::*;
    use crate::record::tests::record;

    fn run(fault: &str, who: (&str, u32), resumed_ms: u64) -> Run<Faults> {
        let way = |ms: u64| OneWay {
            resumed_ns: ms * 1_000_000,
            silence_ns: ms * 2_000_000,
            sent: 1000,
            lost: ms,
        };
        let circumstances = Circumstances {
            scheme: "edge".into(),
            codec: "lz4".into(),
            rate_bps: 1,
            delay_ns: 2,
            restart_ns: 3,
            outage_ns: 4,
        };
        let measured = Aftermath {
            there: way(resumed_ms),
            back: way(resumed_ms + 1),
            download_resumed_ns: 9_000_000,
            download_bytes: 7,
        };
        record::<Faults>(circumstances, Cause { fault: fault.into() }, who, measured)
    }

    #[test]
    fn a_row_is_of_one_fault_and_one_security_and_of_the_slower_way() {
        let runs = [
            run("freeze", ("keys", 0), 10),
            run("freeze", ("psk", 0), 700),
            run("freeze", ("keys", 1), 30),
        ];
        let text = table(&runs).to_text();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let keys = rows.iter().find(|row| row.get(1) == Some(&"keys")).unwrap();
        assert_eq!(keys[2..4], ["21.0", "11.0..31.0"], "{text}");
        assert_eq!(keys[6..8], ["20,", "21"], "{text}");
        let psk = rows.iter().filter(|row| row.get(1) == Some(&"psk")).count();
        assert_eq!(psk, 1);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = run("reload", ("keys", 2), 5);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run<Faults>>(&line).unwrap(), run);
    }
}
