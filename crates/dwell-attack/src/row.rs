//! The result of an attack: a line of JSON, and a row of the table.

use dwell_report::human;
use dwell_report::table::{Column, Table};
use serde::{Deserialize, Serialize};

/// An attack, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) attack: String,
    /// Which program was attacked: `relay` or `proxy`.
    pub(crate) target: String,
    /// The unit of the rate: datagrams, connections, ...
    pub(crate) unit: String,
    /// The rate that was reached.
    pub(crate) rate_per_second: f64,
    /// The attacker's bits a second, without headers, where they matter.
    pub(crate) rate_bps: Option<f64>,
    /// Honest traffic with the attack, as a share of that without: the worse direction.
    pub(crate) goodput_share: Option<f64>,
    /// The 99th percentile of round trips with the attack, over that without.
    pub(crate) ping_p99_ratio: Option<f64>,
    /// The 99th percentiles themselves.
    pub(crate) ping_p99_without_ns: Option<u64>,
    pub(crate) ping_p99_with_ns: Option<u64>,
    /// Pings without an answer, as shares of all.
    pub(crate) ping_lost_without: Option<f64>,
    pub(crate) ping_lost_with: Option<f64>,
    /// The largest resident memory of the attacked process.
    pub(crate) memory_peak_bytes: u64,
    /// The growth of its peak over the memory before the attack.
    pub(crate) memory_grown_bytes: u64,
    /// Cores that the attacked process used, without and with.
    pub(crate) cpu_without: f64,
    pub(crate) cpu_with: f64,
    /// The longest time that a processor of this machine stood still in all, over the duration.
    pub(crate) stalled_share: f64,
    /// The checks that must hold.
    pub(crate) checks: Vec<Check>,
    /// Further remarks.
    pub(crate) notes: Vec<String>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// The measured quantity.
    pub(crate) what: String,
    /// None if there is no end to it: nothing was answered, for instance.
    pub(crate) measured: Option<f64>,
    pub(crate) bound: Bound,
    pub(crate) passed: bool,
}

/// A limit on what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Check {
    pub(crate) fn new(what: impl Into<String>, measured: f64, bound: Bound) -> Self {
        let passed = match bound {
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
        };
        let measured = Some(measured).filter(|measured| measured.is_finite());
        Self { what: what.into(), measured, bound, passed }
    }

    /// As a sentence: `goodput 0.93, at least 0.8`.
    pub(crate) fn text(&self) -> String {
        let bound = match self.bound {
            Bound::AtLeast(least) => format!("at least {}", human::number(least)),
            Bound::AtMost(most) => format!("at most {}", human::number(most)),
        };
        let measured = self.measured.map_or_else(|| "without end".to_owned(), human::number);
        format!("{} {measured}, {bound}", self.what)
    }
}

impl Row {
    /// Demands that the attack was one: an attacker that does too little harms nobody and proves nothing.
    /// `what` is what it must do, in the plural: `resets a second`.
    pub(crate) fn must_reach(&mut self, what: &str, measured: f64, least: Bound) {
        let check = Check::new(what, measured, least);
        if !check.passed {
            self.notes.push(format!(
                "this was no attack: {}. Whatever honest traffic kept says nothing; run it again on a \
                 machine that does nothing else",
                check.text()
            ));
        }
        self.checks.push(check);
    }

    /// Returns true if all holds that must.
    pub(crate) fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// All rows as a table, for a terminal or for a document.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        Column::left("attack"),
        Column::right("rate"),
        Column::right("goodput"),
        Column::right("ping p99"),
        Column::right("lost"),
        Column::right("memory"),
        Column::right("CPU"),
        Column::left("result"),
    ]);
    for row in rows {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ping = row.ping_p99_ratio.map(|ratio| {
            let with = human::duration(row.ping_p99_with_ns.unwrap_or_default());
            format!("{} × ({with})", human::number(ratio))
        });
        let percent = |share: f64| format!("{} %", human::number((share * 1000.0).round() / 10.0));
        table.row([
            row.attack.clone(),
            format!("{}/s {}", human::number(row.rate_per_second), row.unit),
            or_dash(row.goodput_share.map(percent)),
            or_dash(ping),
            or_dash(row.ping_lost_with.map(percent)),
            format!(
                "{} (+{})",
                human::bytes(row.memory_peak_bytes),
                human::bytes(row.memory_grown_bytes)
            ),
            percent(row.cpu_with),
            if row.passed() { "passed".to_owned() } else { "FAILED".to_owned() },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_or_does_not() {
        let least = |measured| Check::new("goodput", measured, Bound::AtLeast(0.8)).passed;
        assert!(least(0.8) && least(1.0) && !least(0.79) && !least(f64::NAN));
        let most = |measured| Check::new("ping", measured, Bound::AtMost(3.0)).passed;
        assert!(most(3.0) && !most(3.1) && !most(f64::NAN));
        assert_eq!(
            Check::new("goodput", 0.5, Bound::AtLeast(0.8)).text(),
            "goodput 0.5, at least 0.8"
        );
    }

    #[test]
    fn an_attack_that_does_too_little_fails_in_a_sentence() {
        let mut row = Row::default();
        row.must_reach("resets a second", 600.0, Bound::AtLeast(500.0));
        assert!(row.passed() && row.notes.is_empty());
        for measured in [400.0, 0.0, f64::NAN] {
            let mut row = row.clone();
            row.must_reach("resets a second", measured, Bound::AtLeast(500.0));
            assert!(!row.passed());
            let said = "this was no attack: resets a second";
            assert!(row.notes[0].starts_with(said) && row.notes[0].contains("at least 500"));
        }
    }

    #[test]
    fn a_row_passes_if_all_checks_do_and_survives_json() {
        let mut row =
            Row { attack: "flood".to_owned(), goodput_share: Some(0.9), ..Row::default() };
        assert!(row.passed());
        row.checks.push(Check::new("goodput", 0.9, Bound::AtLeast(0.8)));
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
        row.checks.push(Check::new("ping", f64::INFINITY, Bound::AtMost(3.0)));
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
        assert!(!row.passed());
        let text = table(&[row]).to_text();
        assert!(text.contains("FAILED") && text.contains("90 %"), "{text}");
    }
}
