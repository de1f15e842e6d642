//! Results as a page: a section for each scenario.

use dwell_report::page::{Block, Page, Provenance, Section};

use super::charts::chart;
use super::claims::claims;
use super::evaluation::Evaluation;
use super::tables::table;

/// A page with everything that there is about these scenarios.
pub fn page(evaluations: &[Evaluation<'_>], provenance: Provenance) -> Page {
    let mut sections = vec![overview(evaluations)];
    sections.extend(evaluations.iter().map(section));
    Page { title: "Simulated, beside what the papers say".to_owned(), provenance, sections }
}

/// All claims in one place.
fn overview(evaluations: &[Evaluation<'_>]) -> Section {
    let all = evaluations.iter().flat_map(claims).collect();
    let text = "Every number that the papers' texts state, beside ours. Deviations are shown \
                whatever they are; comments say what is known about them.";
    Section {
        title: "Papers and ours".to_owned(),
        blocks: vec![Block::Prose(text.to_owned()), Block::Claims(all)],
    }
}

fn section(evaluation: &Evaluation<'_>) -> Section {
    let scenario = evaluation.scenario;
    let about = &scenario.about;
    let place = [about.paper.as_str(), about.figure.as_str()].join(" ");
    let title = match place.trim() {
        "" => about.title.clone(),
        place => format!("{place}: {}", about.title),
    };
    let mut blocks = vec![Block::Prose(format!(
        "{}\n\n`dwell sim run {}` runs it again.",
        about.note, scenario.id
    ))];
    blocks.extend(scenario.figures.iter().map(|figure| Block::Chart(chart(figure, evaluation))));
    let claims = claims(evaluation);
    if !claims.is_empty() {
        blocks.push(Block::Claims(claims));
    }
    let means = Block::Table("Means of all runs".to_owned(), table(evaluation));
    blocks.push(Block::Folded("All points".to_owned(), vec![means]));
    Section { title, blocks }
}
