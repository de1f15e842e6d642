//! The numbers of papers beside ours.
//!
//! Every claim is shown with its deviation, as a difference and in percent, whatever it is; the
//! agreement only sorts them.

use std::fmt;

use serde::Serialize;

use dwell_report::human::{self, NOTHING};
use dwell_report::table::{Column, Table};

/// A number of a paper, and ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Claim {
    /// The paper: authors and year, in short.
    pub paper: String,
    /// The place in the paper: `Fig. 8`, `Table 3`, `5.2`.
    pub place: String,
    /// The quantity, and its subject.
    pub quantity: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// The paper's value.
    pub paper_value: PaperValue,
    /// Half a unit of the last digit that the paper writes: its 0.0003 stands for 0.00025 to 0.00035. Zero if
    /// its value is taken as exact.
    pub precision: f64,
    /// Our value, in the same unit.
    pub ours: f64,
    /// The lower end of ours: of the 95 % interval, or the least of the runs.
    pub low: Option<f64>,
    /// The upper end of ours.
    pub high: Option<f64>,
    /// The ends are the least and the largest of the runs, which is no confidence interval: they
    /// are shown, but the agreement does not use them.
    pub ends_are_of_runs: bool,
    /// The value of an independent program, in the same unit.
    pub reference: Option<f64>,
    /// The reason why they differ, or another remark.
    pub comment: String,
}

/// A value as a paper states it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PaperValue {
    /// A number.
    Number(f64),
    /// A range: what can be read from a figure, or "2 to 3 %".
    Range(f64, f64),
    /// Words that are no number, such as "almost none".
    Text(String),
}

/// The deviation of our value from the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// Ours less the paper's, in the unit of the claim. From a range, the distance to its
    /// nearer end; 0 in it.
    pub absolute: f64,
    /// The same as a share of the paper's value; none if that is zero.
    pub relative: Option<f64>,
}

/// The agreement of our value with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The paper's value is within our interval, or ours within the paper's range, as far as its digits go.
    Within,
    /// The deviation is 5 % of the paper's value at most.
    Near,
    /// Neither.
    Off,
    /// The paper's value is within our interval, but the interval is so wide, or our value so far
    /// off, that nearly any value would be within it.
    Uncertain,
    /// There are no two numbers to compare.
    Incomparable,
}

/// A claim with its deviation and agreement: the record for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssessedClaim<'a> {
    /// The claim.
    #[serde(flatten)]
    pub claim: &'a Claim,
    /// Our deviation; none if there are no two numbers.
    pub deviation: Option<Deviation>,
    /// The agreement.
    pub agreement: Agreement,
}

/// A deviation up to this share of the paper's value is [`Agreement::Near`].
pub const NEAR: f64 = 0.05;
/// If the deviation, or half our interval, is more than this share of the paper's value, a value
/// within the interval is only [`Agreement::Uncertain`].
pub const UNCERTAIN: f64 = 0.5;
/// The text for a number that is missing.
const NOT_RUN: &str = "not run";

impl Default for PaperValue {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Claim {
    /// Returns our deviation from the paper's value; none if there are no two numbers.
    pub fn deviation(&self) -> Option<Deviation> {
        let (low, high) = self.paper_value.ends()?;
        let nearest = self.ours.clamp(low, high);
        let absolute = self.ours - nearest;
        if !absolute.is_finite() {
            return None;
        }
        let relative = match nearest == 0.0 {
            true => (absolute == 0.0).then_some(0.0),
            false => Some(absolute / nearest.abs()),
        };
        Some(Deviation { absolute, relative })
    }

    /// Assesses the agreement.
    pub fn agreement(&self) -> Agreement {
        let (Some((low, high)), Some(deviation)) = (self.paper_value.ends(), self.deviation())
        else {
            return Agreement::Incomparable;
        };
        let is_near = deviation.relative.is_some_and(|share| share.abs() <= NEAR);
        let is_same = deviation.absolute.abs() <= self.precision;
        let (low, high) = (low - self.precision, high + self.precision);
        // NaN is within nothing.
        let (our_low, our_high) = self.interval().unwrap_or((self.ours, self.ours));
        let is_within = our_low.min(self.ours) <= high && low <= our_high.max(self.ours);
        match (is_same || is_within, is_near) {
            (true, _) if self.is_uncertain(deviation, low, high) => Agreement::Uncertain,
            (true, _) => Agreement::Within,
            (false, true) => Agreement::Near,
            (false, false) => Agreement::Off,
        }
    }

    /// Returns the ends of our interval, if it is a confidence interval.
    fn interval(&self) -> Option<(f64, f64)> {
        let has_ends = !self.ends_are_of_runs && (self.low.is_some() || self.high.is_some());
        has_ends.then(|| (self.low.unwrap_or(self.ours), self.high.unwrap_or(self.ours)))
    }

    /// Returns true if our value says too little about a paper's value from `low` to `high`. Of a
    /// range, the larger end counts.
    fn is_uncertain(&self, deviation: Deviation, low: f64, high: f64) -> bool {
        let Some((our_low, our_high)) = self.interval() else { return false };
        let share_max = UNCERTAIN * low.abs().max(high.abs());
        deviation.absolute.abs() > share_max || (our_high - our_low) / 2.0 > share_max
    }

    /// Adds deviation and agreement, for JSON.
    pub fn assessed(&self) -> AssessedClaim<'_> {
        AssessedClaim { claim: self, deviation: self.deviation(), agreement: self.agreement() }
    }

    /// Returns our value with its ends: `0.529 (0.52 to 0.54)`
    pub fn show_ours(&self) -> String {
        if self.ours.is_nan() {
            return NOT_RUN.to_owned();
        }
        let ours = human::number(self.ours);
        match (self.low, self.high) {
            (None, None) => ours,
            (low, high) if self.ends_are_of_runs => {
                format!("{ours} (runs {})", human::between(low, high))
            }
            (low, high) => format!("{ours} ({})", human::between(low, high)),
        }
    }

    /// `0.53 (ours +1.2 %)`
    fn show_reference(&self) -> String {
        let Some(reference) = self.reference else { return NOTHING.to_owned() };
        let paper_value = PaperValue::Number(reference);
        let against = Self { paper_value, ..self.clone() };
        match against.deviation().and_then(|deviation| deviation.relative) {
            Some(share) => format!("{} (ours {})", human::number(reference), percent(share)),
            None => human::number(reference),
        }
    }
}

impl PaperValue {
    /// Returns the least and the largest number that the value allows; none if it is text.
    fn ends(&self) -> Option<(f64, f64)> {
        let (a, b) = match *self {
            Self::Number(value) => (value, value),
            Self::Range(a, b) => (a, b),
            Self::Text(_) => return None,
        };
        (a.is_finite() && b.is_finite()).then_some((a.min(b), a.max(b)))
    }
}

impl fmt::Display for PaperValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => f.write_str(&human::number(*value)),
            Self::Range(a, b) => f.write_str(&human::between(Some(*a), Some(*b))),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// `+0.012 (+1.2 %)`
impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.absolute > 0.0 { "+" } else { "" };
        write!(f, "{sign}{}", human::number(self.absolute))?;
        match self.relative {
            Some(share) => write!(f, " ({})", percent(share)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Within => "= within interval",
            Self::Near => "~ within 5 %",
            Self::Off => "! off",
            Self::Uncertain => "? too uncertain",
            Self::Incomparable => "? no number",
        })
    }
}

/// Returns a table with a row for each claim: paper, ours, deviation, comment.
pub fn to_table(claims: &[Claim]) -> Table {
    let with_reference = claims.iter().any(|claim| claim.reference.is_some());
    let mut columns = vec![
        Column::left("source"),
        Column::left("quantity"),
        Column::right("paper"),
        Column::right("ours"),
        Column::right("deviation"),
        Column::left("agreement"),
    ];
    if with_reference {
        columns.push(Column::right("reference"));
    }
    columns.push(Column::left("comment"));
    let mut table = Table::new(columns);
    for claim in claims {
        let unit = if claim.unit.is_empty() { String::new() } else { format!(" [{}]", claim.unit) };
        let mut row = vec![
            format!("{} {}", claim.paper, claim.place).trim().to_owned(),
            format!("{}{unit}", claim.quantity),
            claim.paper_value.to_string(),
            claim.show_ours(),
            claim.deviation().map_or_else(|| NOTHING.to_owned(), |d| d.to_string()),
            claim.agreement().to_string(),
        ];
        if with_reference {
            row.push(claim.show_reference());
        }
        row.push(claim.comment.clone());
        table.row(row);
    }
    table
}

/// Returns the table and how many of them come out, for a terminal; nothing if there are none.
pub fn to_text(claims: &[Claim]) -> String {
    match claims.is_empty() {
        true => String::new(),
        false => format!("{}\n{}\n", to_table(claims).to_text(), summary(claims)),
    }
}

/// `12 claims: 6 within the interval, 3 within 5 %, 1 off, 1 too uncertain, 1 without a number`
pub fn summary(claims: &[Claim]) -> String {
    let count = |agreement| claims.iter().filter(|claim| claim.agreement() == agreement).count();
    format!(
        "{} claims: {} within the interval, {} within 5 %, {} off, {} too uncertain, {} \
         without a number",
        claims.len(),
        count(Agreement::Within),
        count(Agreement::Near),
        count(Agreement::Off),
        count(Agreement::Uncertain),
        count(Agreement::Incomparable),
    )
}

/// Formats a share as `+1.2 %`; a value that is not zero is not shown as zero.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        p if p < 0.05 => format!("{}<0.1 %", if share > 0.0 { "+" } else { "-" }),
        p if p < 1e4 => format!("{percent:+.1} %"),
        _ => format!("{}{} %", if share > 0.0 { "+" } else { "" }, human::number(percent)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(paper: f64, ours: f64) -> Claim {
        Claim { paper_value: PaperValue::Number(paper), ours, ..Claim::default() }
    }

    #[test]
    fn a_deviation_has_a_size_and_a_share() {
        let shown = |paper, ours| claim(paper, ours).deviation().map(|d| d.to_string());
        assert_eq!(shown(0.5, 0.51).as_deref(), Some("+0.01 (+2.0 %)"));
        assert_eq!(shown(-2.0, -3.0).as_deref(), Some("-1 (-50.0 %)"));
        assert_eq!(shown(0.0, 0.1).as_deref(), Some("+0.1"));
        assert_eq!(shown(0.0, 0.0).as_deref(), Some("0 (0 %)"));
        assert_eq!(shown(1e4, 10_001.0).as_deref(), Some("+1 (+<0.1 %)"));
        assert_eq!(shown(1e-9, 1.0).as_deref(), Some("+1 (+1e11 %)"));
        assert_eq!(shown(1.0, f64::NAN), None);
    }

    #[test]
    fn a_papers_number_says_no_more_than_its_digits() {
        let rounded = |precision, ours| Claim { precision, ..claim(0.0003, ours) }.agreement();
        assert_eq!(rounded(0.0, 0.000_26), Agreement::Off);
        assert_eq!(rounded(0.000_05, 0.000_26), Agreement::Within);
        assert_eq!(rounded(0.000_05, 0.000_24), Agreement::Off);
        let ours = Claim {
            precision: 0.000_05,
            low: Some(0.000_2),
            high: Some(0.000_255),
            ..claim(0.0003, 0.000_23)
        };
        assert_eq!(ours.agreement(), Agreement::Within);
    }

    #[test]
    fn agreement_is_not_flattered() {
        let between = |low, high, claim| Claim { low: Some(low), high: Some(high), ..claim };
        assert_eq!(claim(1.0, 1.04).agreement(), Agreement::Near);
        assert_eq!(claim(1.0, 1.06).agreement(), Agreement::Off);
        assert_eq!(claim(1.0, 1.0).agreement(), Agreement::Within);
        assert_eq!(between(0.9, 1.2, claim(1.0, 1.06)).agreement(), Agreement::Within);
        assert_eq!(between(1.01, 1.2, claim(1.0, 1.06)).agreement(), Agreement::Off);
        assert_eq!(between(f64::NAN, f64::NAN, claim(1.0, 1.06)).agreement(), Agreement::Off);
        assert_eq!(claim(0.0, 0.001).agreement(), Agreement::Off);
        assert_eq!(claim(1.0, f64::NAN).agreement(), Agreement::Incomparable);
        let words = Claim { paper_value: PaperValue::Text("few".into()), ..claim(0.0, 1.0) };
        assert_eq!(words.agreement(), Agreement::Incomparable);
    }

    #[test]
    fn a_wide_interval_is_no_agreement() {
        let between = |low, high, claim| Claim { low: Some(low), high: Some(high), ..claim };
        // Half the interval is more than half of the paper's value.
        assert_eq!(between(-0.4, 2.4, claim(1.0, 1.0)).agreement(), Agreement::Uncertain);
        assert_eq!(between(0.6, 1.4, claim(1.0, 1.0)).agreement(), Agreement::Within);
        // The deviation is.
        assert_eq!(between(0.9, 1.7, claim(1.0, 1.6)).agreement(), Agreement::Uncertain);
        assert_eq!(between(-9.0, 9.0, claim(-8.0, 0.0)).agreement(), Agreement::Uncertain);
        assert_eq!(between(-0.1, 0.3, claim(0.0, 0.1)).agreement(), Agreement::Uncertain);
        assert_eq!(between(0.0, 0.0, claim(0.0, 0.0)).agreement(), Agreement::Within);
    }

    #[test]
    fn a_range_of_runs_is_shown_but_is_no_interval() {
        let ours =
            Claim { low: Some(7.0), high: Some(9.0), ends_are_of_runs: true, ..claim(8.0, 9.0) };
        assert_eq!(ours.agreement(), Agreement::Off);
        assert_eq!(ours.show_ours(), "9 (runs 7 to 9)");
        assert_eq!(Claim { ours: 8.0, ..ours }.agreement(), Agreement::Within);
    }

    #[test]
    fn what_is_missing_was_not_run() {
        let text = to_table(&[claim(1.0, f64::NAN)]).to_text();
        assert!(text.contains("not run") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn ranges_are_measured_from_their_nearer_end() {
        let range =
            |ours| Claim { paper_value: PaperValue::Range(2.0, 4.0), ours, ..Claim::default() };
        assert_eq!(range(3.0).deviation(), Some(Deviation { absolute: 0.0, relative: Some(0.0) }));
        assert_eq!(range(5.0).deviation(), Some(Deviation { absolute: 1.0, relative: Some(0.25) }));
        assert_eq!(
            (range(3.0).agreement(), range(5.0).agreement()),
            (Agreement::Within, Agreement::Off)
        );
    }

    fn examples() -> [Claim; 2] {
        [
            Claim {
                paper: "Shimamura 2010".into(),
                place: "Fig. 8".into(),
                quantity: "discard, load 1.0".into(),
                unit: "%".into(),
                low: Some(1.1),
                high: Some(1.4),
                reference: Some(1.2),
                comment: "read from the figure".into(),
                ..claim(1.3, 1.25)
            },
            Claim { quantity: "delay".into(), unit: "ms".into(), ..claim(10.0, 12.0) },
        ]
    }

    #[test]
    fn claims_in_a_table() {
        let expected = "\
source                 quantity               paper                ours        deviation  agreement                  reference  comment
Shimamura 2010 Fig. 8  discard, load 1.0 [%]    1.3  1.25 (1.1 to 1.4)  -0.05 (-3.8 %)  = within interval  1.2 (ours +4.2 %)  read from the figure
                       delay [ms]                10                  12     +2 (+20.0 %)  ! off                            -
";
        let squeeze = |text: &str| {
            let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(line).collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&to_table(&examples()).to_text()), squeeze(expected));
        let text = "2 claims: 1 within the interval, 0 within 5 %, 1 off, 0 too uncertain, \
                    0 without a number";
        assert_eq!(summary(&examples()), text);
    }

    #[test]
    fn claims_as_json() {
        let json = serde_json::to_value(examples()[1].assessed()).unwrap();
        assert_eq!(json["paper_value"], 10.0);
        assert_eq!(json["deviation"]["relative"], 0.2);
        assert_eq!(json["agreement"], "off");
        assert!(json["low"].is_null());
    }

    proptest! {
        #[test]
        fn every_claim_is_reported(paper in any::<f64>(), to in any::<f64>(), ours in any::<f64>(),
            low in prop::option::of(any::<f64>())) {
            for paper_value in [PaperValue::Number(paper), PaperValue::Range(paper, to)] {
                let claim = Claim { paper_value, ours, low, ..Claim::default() };
                let known = paper.is_finite() && ours.is_finite();
                let is_number = matches!(claim.paper_value, PaperValue::Number(_));
                if known && is_number && (ours - paper).is_finite() {
                    prop_assert!(claim.deviation().is_some());
                }
                prop_assert_eq!(claim.deviation().is_none(), claim.agreement() == Agreement::Incomparable);
                prop_assert!(serde_json::to_string(&claim.assessed()).is_ok());
                prop_assert_eq!(to_table(&[claim]).to_text().lines().count(), 2);
            }
        }
    }
}
