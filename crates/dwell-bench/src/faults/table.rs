//! The runs, fault by fault.

use dwell_report::{Column, Table};

use super::super::report::figure;
use super::super::statistics::Summary;
use super::record::FaultRun;

pub(super) fn table(runs: &[FaultRun]) -> Table {
    let mut table = Table::new([
        Column::left("fault"),
        Column::left("security"),
        Column::right("resumes").unit("ms"),
        Column::right("least..most"),
        Column::right("silence").unit("ms"),
        Column::right("least..most"),
        Column::right("lost there, back"),
        Column::right("of each"),
        Column::right("download resumes").unit("ms"),
    ]);
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for run in runs {
        let row = (run.fault.as_str(), run.security.name());
        if seen.contains(&row) {
            continue;
        }
        seen.push(row);
        let of = |value: &dyn Fn(&FaultRun) -> u64| {
            let same = runs.iter().filter(|run| (run.fault.as_str(), run.security.name()) == row);
            Summary::of(same.map(|run| value(run) as f64))
        };
        let ms = |value: &dyn Fn(&FaultRun) -> u64| {
            let summary = of(value).unwrap_or(ZERO);
            let [median, min, max] =
                [summary.median, summary.min, summary.max].map(|ns| figure(ns / 1e6));
            (median, format!("{min}..{max}"))
        };
        let count = |value: &dyn Fn(&FaultRun) -> u64| {
            of(value).map_or(0.0, |summary| summary.median).round().to_string()
        };
        let (resumes, resumes_span) = ms(&|run| run.measured.resumed_ns());
        let silence_ns =
            |run: &FaultRun| run.measured.there.silence_ns.max(run.measured.back.silence_ns);
        let (silence, silence_span) = ms(&silence_ns);
        let lost = [count(&|run| run.measured.there.lost), count(&|run| run.measured.back.lost)];
        table.row([
            row.0.to_owned(),
            row.1.to_owned(),
            resumes,
            resumes_span,
            silence,
            silence_span,
            lost.join(", "),
            count(&|run| run.measured.there.sent),
            ms(&|run| run.measured.download_resumed_ns).0,
        ]);
    }
    table
}

const ZERO: Summary = Summary { runs: 0, min: 0.0, low: 0.0, median: 0.0, high: 0.0, max: 0.0 };

#[cfg(test)]
mod tests {
    use super::super::super::contender::Security;
    use super::super::super::machine::Machine;
    use super::super::super::record::Origin;
    use super::super::record::{Aftermath, Circumstances, OneWay};
    use super::*;

    fn run(fault: &str, security: Security, round: u32, resumed_ms: u64) -> FaultRun {
        let way = |ms: u64| OneWay {
            resumed_ns: ms * 1_000_000,
            silence_ns: ms * 2_000_000,
            sent: 1000,
            lost: ms,
        };
        FaultRun {
            at_unix_seconds: 0,
            origin: Origin {
                version: "0".into(),
                machine: Machine { cores: 2, cpu: "cpu".into(), kernel: "6".into() },
            },
            circumstances: Circumstances {
                scheme: "edge".into(),
                codec: "lz4".into(),
                rate_bps: 1,
                delay_ns: 2,
                restart_ns: 3,
                outage_ns: 4,
            },
            fault: fault.into(),
            security,
            round,
            measured: Aftermath {
                there: way(resumed_ms),
                back: way(resumed_ms + 1),
                download_resumed_ns: 9_000_000,
                download_bytes: 7,
            },
        }
    }

    #[test]
    fn a_row_is_of_one_fault_and_one_security_and_of_the_slower_way() {
        let runs = [
            run("freeze", Security::Keys, 0, 10),
            run("freeze", Security::Psk, 0, 700),
            run("freeze", Security::Keys, 1, 30),
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
        let run = run("reload", Security::Keys, 2, 5);
        let line = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<FaultRun>(&line).unwrap(), run);
    }
}
