//! How many of the papers' numbers come out, as a page in Markdown.

use std::fmt::Write as _;

use dwell_figures::claims::{Agreement, Claim, summary};
use dwell_report::table::{Column, Table};

use super::claims::claims;
use super::evaluation::Evaluation;

/// The order of the columns.
const AGREEMENTS: [(Agreement, &str); 5] = [
    (Agreement::Within, "within the interval"),
    (Agreement::Near, "within 5 %"),
    (Agreement::Off, "off"),
    (Agreement::Uncertain, "too uncertain"),
    (Agreement::Incomparable, "in words"),
];

/// Returns a page: the counts by paper and figure, and each number that is off with what is known about it.
pub fn tally(evaluations: &[Evaluation<'_>], command: &str) -> String {
    let mut counts = Table::new(
        [Column::left("paper"), Column::left("figure"), Column::left("scenario")]
            .into_iter()
            .chain(AGREEMENTS.map(|(_, name)| Column::right(name))),
    );
    let mut off = Table::new([
        Column::left("where"),
        Column::left("quantity"),
        Column::right("paper"),
        Column::right("here"),
        Column::right("independent program"),
        Column::left("what is known, what was tried"),
    ]);
    let mut all = Vec::new();
    for evaluation in evaluations {
        let claims = claims(evaluation);
        if claims.is_empty() {
            continue;
        }
        let about = &evaluation.scenario.about;
        let head = [about.paper.clone(), about.figure.clone(), evaluation.scenario.id.clone()];
        counts.row(head.into_iter().chain(numbers(&claims)));
        claims
            .iter()
            .filter(|one| one.agreement() == Agreement::Off)
            .for_each(|one| off.row(row(one)));
        all.extend(claims);
    }
    let total = ["all", "", ""].map(str::to_owned);
    counts.row(total.into_iter().chain(numbers(&all)));
    let runs: usize = evaluations.iter().map(Evaluation::done).sum();
    let mut text = format!(
        "# The papers' numbers and ours\n\n`{command}` has made this page, of {runs} runs. A number is \"within the interval\" \
         if the paper's value, as far as its digits go, is within our 95 % interval; numbers that papers take from one run \
         may be off by chance. {}.\n\n## How many\n\n{}",
        summary(&all),
        counts.to_markdown()
    );
    if !off.is_empty() {
        let _ = write!(text, "\n## What is off\n\n{}", off.to_markdown());
    }
    text
}

fn numbers(claims: &[Claim]) -> impl Iterator<Item = String> + use<'_> {
    AGREEMENTS.iter().map(|(wanted, _)| {
        claims.iter().filter(|claim| claim.agreement() == *wanted).count().to_string()
    })
}

fn row(claim: &Claim) -> [String; 6] {
    let unit = if claim.unit.is_empty() { String::new() } else { format!(" [{}]", claim.unit) };
    [
        format!("{} {}", claim.paper, claim.place),
        format!("{}{unit}", claim.quantity),
        claim.paper_value.to_string(),
        claim.show_ours(),
        claim.reference.map_or_else(String::new, dwell_report::human::number),
        claim.comment.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use crate::results::fixture::{CODE, scenario, store};

    use super::*;

    #[test]
    fn a_tally_counts_each_claim_once_and_lists_what_is_off() {
        let mut scenario = scenario();
        let store = store(&scenario);
        let of = |scenario: &crate::scenario::Scenario| {
            tally(&[Evaluation::new(scenario, &store, CODE)], "dwell sim reproduce test")
        };
        let text = of(&scenario);
        assert!(
            text.contains("`dwell sim reproduce test` has made this page, of 6 runs."),
            "{text}"
        );
        let line = |text: &str, begin: &str| {
            let found = text.lines().find(|line| line.starts_with(begin)).map(str::to_owned);
            let cells: Vec<String> =
                found.unwrap().split('|').map(|cell| cell.trim().to_owned()).collect();
            cells[cells.len() - 6..cells.len() - 1].join(" ")
        };
        let counted: u32 = line(&text, "| all").split(' ').map(|n| n.parse::<u32>().unwrap()).sum();
        assert_eq!(counted, 4, "{text}");
        assert_eq!(line(&text, "| Somebody 2026"), line(&text, "| all"));
        assert!(!text.contains("What is off"), "{text}");

        // A number that two runs with 1 and 2 can't mean.
        scenario.papers[0].value = Some((1e6, 1e6));
        scenario.papers[0].comment = "nothing helps".to_owned();
        let text = of(&scenario);
        assert!(text.contains("What is off") && text.contains("nothing helps"), "{text}");
        assert_eq!(line(&text, "| all").split(' ').nth(2), Some("1"), "{text}");
    }
}
