//! Results as a page: a section for each scenario.

use dwell_figures::page::{Block, Page, Provenance, Section};

use super::charts::chart;
use super::claims::claims;
use super::evaluation::Evaluation;
use super::tables::table;

/// Returns a page with all results of these scenarios.
pub fn page(evaluations: &[Evaluation<'_>], provenance: Provenance) -> Page {
    let has_claims = evaluations.iter().any(|evaluation| !evaluation.scenario.papers.is_empty());
    let mut sections: Vec<Section> =
        has_claims.then(|| overview(evaluations)).into_iter().collect();
    sections.extend(evaluations.iter().map(section));
    let title = match evaluations {
        _ if has_claims => "Simulated, beside what the papers say".to_owned(),
        [only] => only.scenario.about.title.clone(),
        _ => "Simulated".to_owned(),
    };
    Page { title, provenance, sections }
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
        about.note,
        in_shells(&scenario.found_by)
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

/// Returns a word as it is written in a shell's command line.
fn in_shells(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use crate::results::fixture::{CODE, scenario, store};

    use super::*;

    #[test]
    fn a_page_has_all_claims_first_and_then_a_section_for_each_scenario() {
        let scenario = scenario();
        let store = store(&scenario);
        let evaluation = Evaluation::new(&scenario, &store, CODE);
        let page = page(&[evaluation], Provenance::default());
        let [overview, section] = &page.sections[..] else { panic!("{:?}", page.sections) };
        let [Block::Prose(_), Block::Claims(all)] = &overview.blocks[..] else {
            panic!("{:?}", overview.blocks)
        };
        assert_eq!(all.len(), 4);

        assert_eq!(section.title, "Somebody 2026 Fig. 1: A test");
        let [Block::Prose(note), charts @ .., Block::Claims(claims), Block::Folded(..)] =
            &section.blocks[..]
        else {
            panic!("{:?}", section.blocks)
        };
        assert_eq!(note, "What to know.\n\n`dwell sim run x.toml` runs it again.");
        assert_eq!(claims.len(), 4);
        let titles: Vec<&str> = charts
            .iter()
            .map(|block| if let Block::Chart(chart) = block { &*chart.title } else { "" })
            .collect();
        assert_eq!(titles, ["Discards", "Delays by time", "How late"]);

        let html = page.to_html();
        // One for each width of a screen.
        assert_eq!(html.matches("<svg ").count(), 2 * 3);
        assert!(html.contains("its point was not run: it is rare"));
    }

    #[test]
    fn a_command_can_be_copied() {
        let entry = crate::library::find("worked/lte")[0];
        assert_eq!(in_shells(&entry.read(&Default::default()).unwrap().found_by), "worked/lte");
        assert_eq!(in_shells("a b/it's.toml"), r"'a b/it'\''s.toml'");
    }

    #[test]
    fn a_scenario_that_no_paper_speaks_of_has_no_claims() {
        let mut scenario = scenario();
        scenario.papers.clear();
        scenario.about = crate::scenario::About { title: "Mine".to_owned(), ..Default::default() };
        let store = store(&scenario);
        let page = page(&[Evaluation::new(&scenario, &store, CODE)], Provenance::default());
        let section = &page.sections[0];
        assert_eq!((page.title.as_str(), section.title.as_str()), ("Mine", "Mine"));
        assert!(!section.blocks.iter().any(|block| matches!(block, Block::Claims(_))));
    }
}
