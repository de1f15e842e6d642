//! The papers' claims beside our results.

use dwell_figures::claims::{Agreement, Claim, PaperValue as Stated};

use crate::scenario::{Over, PaperValue, Scenario};

use super::evaluation::Evaluation;
use super::summary::Summary;

/// Returns all claims of a scenario about points that it has, in the order of the file (the quick
/// variant has fewer points). Claims about points without runs are included, with a comment.
pub fn claims(evaluation: &Evaluation<'_>) -> Vec<Claim> {
    let scenario = evaluation.scenario;
    let has_point = |paper: &&PaperValue| {
        let point = scenario.points.iter().find(|point| point.meets(&paper.only));
        point.is_some_and(|point| {
            let other = point.elsewhere(&paper.against);
            scenario.points.iter().any(|point| point.meets(&other))
        })
    };
    let papers = scenario.papers.iter().filter(has_point);
    papers.map(|paper| claim(paper, scenario, evaluation)).collect()
}

fn claim(paper: &PaperValue, scenario: &Scenario, evaluation: &Evaluation<'_>) -> Claim {
    let ours = ours(paper, evaluation);
    let mut comment = paper.comment.clone();
    if ours.is_none() {
        let missing = match evaluation.find(&paper.only) {
            Some(_) => "no run has a value for it",
            None => "its point was not run",
        };
        comment = [missing, &comment].join(": ").trim_end_matches(": ").to_owned();
    }
    let ends = ours.as_ref().and_then(|summary| ends(summary, paper.over));
    let claim = Claim {
        paper: scenario.about.paper.clone(),
        place: paper.place.clone(),
        quantity: paper.quantity.clone(),
        unit: paper.unit.clone(),
        paper_value: match (paper.value, &paper.says) {
            (Some((low, high)), _) if low == high => Stated::Number(low),
            (Some((low, high)), _) => Stated::Range(low, high),
            (None, text) => Stated::Text(text.clone()),
        },
        precision: paper.precision,
        ours: ours.map_or(f64::NAN, |summary| summary.over(paper.over)),
        low: ends.map(|(low, _)| low),
        high: ends.map(|(_, high)| high),
        ends_are_of_runs: paper.over != Over::Mean,
        reference: paper.reference,
        comment,
    };
    shorter(claim, scenario)
}

/// Says of a number that is off, if it is of the quick variant.
fn shorter(claim: Claim, scenario: &Scenario) -> Claim {
    match &scenario.quick {
        Some(quick) if claim.agreement() == Agreement::Off => {
            let comment = format!("quick ({quick}): {}", claim.comment);
            Claim { comment: comment.trim_end_matches(": ").to_owned(), ..claim }
        }
        _ => claim,
    }
}

fn ours(paper: &PaperValue, evaluation: &Evaluation<'_>) -> Option<Summary> {
    let (point, runs) = evaluation.find(&paper.only)?;
    if paper.against.is_empty() {
        Evaluation::summary(point, runs, &paper.metric)
    } else {
        evaluation.change(point, runs, &paper.metric, &paper.against)
    }
}

/// The interval of a mean, or for a maximum the range of the runs.
fn ends(summary: &Summary, over: Over) -> Option<(f64, f64)> {
    match over {
        Over::Mean => summary.interval(),
        Over::Min | Over::Max => (summary.count > 1).then_some((summary.min, summary.max)),
    }
}

#[cfg(test)]
mod tests {
    use crate::results::fixture::{self, CODE, store};

    use super::*;

    #[test]
    fn ours_stands_beside_what_the_paper_says() {
        let scenario = fixture::scenario();
        let store = store(&scenario);
        let claims = claims(&Evaluation::new(&scenario, &store, CODE));
        let [mean, largest, change, missing] = &claims[..] else { panic!("{claims:?}") };

        assert_eq!((mean.paper.as_str(), mean.place.as_str()), ("Somebody 2026", "Section 1"));
        assert_eq!((mean.ours, &mean.paper_value), (1.5, &Stated::Number(1.6)));
        let (low, high) = (mean.low.unwrap(), mean.high.unwrap());
        assert!(low < 1.0 && high > 2.0, "two runs show little: {low} to {high}");
        assert_eq!(mean.agreement(), Agreement::Uncertain);

        assert_eq!((largest.ours, largest.low, largest.high), (0.5, Some(0.4), Some(0.5)));
        assert_eq!(largest.paper_value, Stated::Text("very little".to_owned()));
        assert_eq!(largest.agreement(), Agreement::Incomparable);

        assert_eq!(change.ours.round(), -70.0);

        assert!(missing.ours.is_nan() && missing.low.is_none());
        assert_eq!(missing.comment, "its point was not run: it is rare");
        assert_eq!(missing.agreement(), Agreement::Incomparable);
    }

    #[test]
    fn what_is_off_in_the_quick_variant_says_that_it_is_that() {
        let mut scenario = fixture::quick();
        let quick = Some("measure 1s for 20s".to_owned());
        scenario.papers[0].value = Some((1e6, 1e6));
        scenario.quick.clone_from(&quick);
        let store = store(&scenario);
        let comments = |scenario: &Scenario| -> Vec<String> {
            let claims = claims(&Evaluation::new(scenario, &store, CODE));
            claims.into_iter().map(|claim| claim.comment).collect()
        };
        assert_eq!(comments(&scenario), ["quick (measure 1s for 20s)", "", ""]);
        scenario.quick = None;
        assert_eq!(comments(&scenario), ["", "", ""]);
    }

    #[test]
    fn the_quick_variant_says_nothing_about_points_that_it_does_not_have() {
        let scenario = fixture::quick();
        let store = store(&scenario);
        let claims = claims(&Evaluation::new(&scenario, &store, CODE));
        let quantities: Vec<&str> = claims.iter().map(|claim| claim.quantity.as_str()).collect();
        assert_eq!(quantities, ["discards", "the largest", "change"]);
    }
}
