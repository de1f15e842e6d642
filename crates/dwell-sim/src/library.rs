//! The scenarios of the papers, and worked ones beyond them, which are built into the program.

use dwell_base::FileErrors;

use crate::scenario::{Options, Scenario};

/// A scenario as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: the paper's and the figure's, `shimamura/fig-8`.
    pub id: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! entries {
    ($($id:literal),* $(,)?) => {
        &[$(Entry {
            id: $id,
            text: include_str!(concat!("../../../scenarios/", $id, ".toml")),
        }),*]
    };
}

/// All of them, in the order of the papers.
pub const ENTRIES: &[Entry] = entries![
    "shimamura/fig-3",
    "shimamura/fig-4",
    "shimamura/fig-4-scaled",
    "shimamura/fig-5",
    "shimamura/fig-5-scaled",
    "shimamura/fig-6",
    "shimamura/fig-6-scaled",
    "shimamura/fig-7",
    "shimamura/table-3",
    "shimamura/fig-8",
    "shimamura/fig-9",
    "shimamura/fig-10",
    "shimamura/eq-3",
    "yoshino/fig-3",
    "yoshino/fig-4",
    "yoshino/fig-5",
    "yoshino/fig-6",
    "yoshino/fig-7",
    "yoshino/ties",
    "sawabe/table-3",
    "sawabe/fig-8",
    "sawabe/fig-9",
    "sawabe/fig-10",
    "sawabe/table-4",
    "sawabe/fig-11",
    "sawabe/fig-12",
    "sawabe/fig-13",
    "sawabe/table-6",
    "sawabe/table-7",
    "sawabe/table-8",
    "sawabe/table-9",
];

/// Worked scenarios: links and traffic that the papers don't have.
pub const WORKED: &[Entry] = entries![
    "worked/lte",
    "worked/satellite",
    "worked/lora-gateway",
    "worked/bursty-loss",
    "worked/hub",
    "worked/transfers",
    "worked/outage",
    "worked/jitter",
    "worked/marks",
    "worked/windows",
    "worked/branch-office",
];

/// Returns all of both.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(WORKED)
}

impl Entry {
    /// Reads the scenario.
    ///
    /// # Errors
    /// Returns everything that is wrong with it: only settings can be, and files that it does not
    /// name.
    pub fn read(&self, options: &Options) -> Result<Scenario, FileErrors> {
        let none = |name: &str| Err(format!("{name} is not part of the program"));
        let file = format!("{}.toml", self.id);
        let scenario = Scenario::parse(self.text, &file, self.id, options, &none)?;
        Ok(Scenario { found_by: self.id.to_owned(), ..scenario })
    }
}

/// Returns the scenarios that a word selects: `all`, a paper (`shimamura`), or a figure of one
/// (`shimamura/fig-8`); `worked` selects the worked ones, which `all` does not. None if there are none.
pub fn find(word: &str) -> Vec<Entry> {
    let paper = format!("{word}/");
    let is_meant = |entry: &&Entry| entry.id == word || entry.id.starts_with(&paper);
    match word {
        "all" => ENTRIES.to_vec(),
        _ => all().filter(is_meant).copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read() {
        for entry in all() {
            for is_quick in [false, true] {
                let scenario = entry.read(&Options { is_quick, ..Options::default() });
                let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
                assert!(!scenario.points.is_empty(), "{}", entry.id);
                let is_worked = WORKED.contains(entry);
                assert_eq!(scenario.about.paper.is_empty(), is_worked, "{}", entry.id);
            }
        }
    }

    #[test]
    fn every_value_of_a_paper_has_a_point() {
        for entry in ENTRIES {
            let scenario = entry.read(&Options::default()).unwrap();
            for paper in &scenario.papers {
                let point = scenario.points.iter().find(|point| point.meets(&paper.only));
                let point = point.unwrap_or_else(|| panic!("{}: {}", entry.id, paper.quantity));
                let other = point.elsewhere(&paper.against);
                assert!(
                    scenario.points.iter().any(|point| point.meets(&other)),
                    "{}: {}",
                    entry.id,
                    paper.quantity
                );
            }
        }
    }

    #[test]
    fn words_find_papers_and_figures() {
        assert_eq!(find("all").len(), ENTRIES.len());
        assert_eq!(find("shimamura/fig-8").len(), 1);
        assert!(find("shimamura").len() > 5);
        assert_eq!(find("worked").len(), WORKED.len());
        assert!(find("fig").is_empty());
    }
}
