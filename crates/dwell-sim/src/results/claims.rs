//! What papers say, beside what we found.

use dwell_report::claims::{Claim, PaperValue as Stated};

use crate::scenario::{Over, PaperValue, Scenario};

use super::evaluation::Evaluation;
use super::summary::Summary;

/// All claims of a scenario about points that it has, in the order of the file (the quick variant
/// has fewer points). What has not been run is there too, with a comment.
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
    Claim {
        paper: scenario.about.paper.clone(),
        place: paper.place.clone(),
        quantity: paper.quantity.clone(),
        unit: paper.unit.clone(),
        paper_value: match (paper.value, &paper.says) {
            (Some(value), _) => Stated::Number(value),
            (None, text) => Stated::Text(text.clone()),
        },
        ours: ours.map_or(f64::NAN, |summary| summary.over(paper.over)),
        low: ends.map(|(low, _)| low),
        high: ends.map(|(_, high)| high),
        reference: paper.reference,
        comment,
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
