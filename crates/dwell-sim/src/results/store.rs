//! Results as text: a line of JSON for each run.

use std::collections::BTreeMap;
use std::fmt;

use super::record::{Run, RunRecord, Task};

/// Runs that are done, by their keys.
#[derive(Clone, Debug, Default)]
pub struct Store {
    records: BTreeMap<String, RunRecord>,
    last_code: Option<String>,
}

/// A line of results that is no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its number, from 1.
    pub line: usize,
    /// Its text, without its line end.
    pub text: String,
    /// The problem with it: `is only half written`.
    pub reason: String,
}

/// `line 3 is only half written`
impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} {}", self.line, self.reason)
    }
}

impl Store {
    /// Reads stored results. Lines that are no runs, as the last one after a crash, are left out
    /// and returned.
    pub fn parse(text: &str) -> (Self, Vec<Dropped>) {
        let mut store = Self::default();
        let mut dropped = Vec::new();
        let last = text.lines().count();
        let is_cut = !text.is_empty() && !text.ends_with('\n');
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str::<RunRecord>(line) {
                Ok(record) => store.put(record),
                Err(error) => dropped.push(Dropped {
                    line: index + 1,
                    text: line.to_owned(),
                    reason: match is_cut && index + 1 == last {
                        true => "is only half written".to_owned(),
                        false => format!("is no run ({error})"),
                    },
                }),
            }
        }
        (store, dropped)
    }

    /// Adds a run, in place of one with the same key; series that only that one has of the same
    /// run, for other figures, stay.
    pub fn put(&mut self, mut record: RunRecord) {
        self.last_code = Some(record.code.clone());
        if let Some(before) = self.records.remove(&record.key) {
            for (name, points) in before.series {
                record.series.entry(name).or_insert(points);
            }
        }
        self.records.insert(record.key.clone(), record);
    }

    /// Adds all runs of another store, in place of those with the same keys.
    pub fn extend(&mut self, other: Self) {
        other.records.into_values().for_each(|record| self.put(record));
    }

    /// Returns the run with this key.
    pub fn get(&self, key: &str) -> Option<&RunRecord> {
        self.records.get(key)
    }

    /// Returns the version of the code of the run that was added last.
    pub fn last_code(&self) -> Option<&str> {
        self.last_code.as_deref()
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns true if this run is done, with all the series that figures need of it.
    pub fn has(&self, run: &Run<'_>) -> bool {
        self.get(&run.key).is_some_and(|record| run.is_covered_by(record))
    }

    /// Returns the runs as text: first those that are none of these tasks, by key, then those that
    /// are, in the order of the tasks. The text is the same whatever order they were run in.
    pub fn to_text(&self, tasks: &[Task<'_>], code: &str) -> String {
        let keys: Vec<String> = tasks.iter().map(|task| task.key(code)).collect();
        let mut left: std::collections::BTreeSet<&str> = keys.iter().map(String::as_str).collect();
        let others = self.records.iter().filter(|(key, _)| !left.contains(key.as_str()));
        let mut out: String = others.map(|(_, record)| line(record)).collect();
        for key in &keys {
            if let Some(record) = self.get(key)
                && left.remove(key.as_str())
            {
                out.push_str(&line(record));
            }
        }
        out
    }
}

/// Returns a run as a line of JSON, with its line end.
pub fn line(record: &RunRecord) -> String {
    // Strings, numbers and maps with strings as keys can always be written. A value that is no
    // number becomes null, and is left out with a note when it is read.
    let mut line = serde_json::to_string(record).unwrap_or_default();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str) -> RunRecord {
        RunRecord {
            key: key.to_owned(),
            scenario: "s".to_owned(),
            point: BTreeMap::new(),
            seed: 1,
            code: "c".to_owned(),
            source_packets: 0,
            metrics: BTreeMap::from([("x".to_owned(), 0.1 + 0.2)]),
            series: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = line(&record("a")) + &line(&record("b"));
        let (store, notes) = Store::parse(&text);
        assert_eq!((store.len(), notes.len()), (2, 0));
        assert_eq!(store.get("a"), Some(&record("a")));
        assert_eq!(store.to_text(&[], "c"), text);
    }

    #[test]
    fn numbers_are_read_to_the_last_bit() {
        // A fast reader gives ...295 for the first.
        let values = [0.000_218_145_000_805_152_97, 0.000_209_174_767_355_412, 0.1 + 0.2];
        let metrics = values.iter().enumerate().map(|(n, value)| (n.to_string(), *value)).collect();
        let record = RunRecord { metrics, ..record("a") };
        let (store, _) = Store::parse(&line(&record));
        assert_eq!(store.get("a"), Some(&record));
    }

    #[test]
    fn what_other_figures_wanted_stays() {
        let with = |name: &str| RunRecord {
            series: BTreeMap::from([(name.to_owned(), vec![(0.0, 1.0)])]),
            ..record("a")
        };
        let (store, _) =
            Store::parse(&(line(&with("x")) + &line(&with("y")) + &line(&record("a"))));
        assert_eq!(store.len(), 1);
        assert!(store.get("a").unwrap().series.keys().eq(["x", "y"]));
    }

    #[test]
    fn stores_add_up() {
        let (mut store, _) = Store::parse(&(line(&record("a")) + &line(&record("b"))));
        let with = RunRecord {
            series: BTreeMap::from([("x".to_owned(), vec![(0.0, 1.0)])]),
            ..record("b")
        };
        let (other, _) = Store::parse(&(line(&with) + &line(&record("c"))));
        store.extend(other);
        assert_eq!(store.len(), 3);
        assert!(store.get("b").unwrap().series.contains_key("x"));
    }

    #[test]
    fn lines_that_are_no_runs_are_returned() {
        let text = line(&record("a")) + &line(&record("b"));
        let (store, dropped) = Store::parse(&text[..text.len() - 10]);
        assert_eq!((store.len(), dropped.len()), (1, 1));
        assert_eq!(dropped[0].to_string(), "line 2 is only half written");
        assert!(text.contains(&dropped[0].text));
        let (store, dropped) = Store::parse(&format!("nonsense\n{text}more nonsense\n"));
        assert_eq!((store.len(), dropped.len()), (2, 2));
        assert_eq!((dropped[0].line, dropped[0].text.as_str()), (1, "nonsense"));
        // It has its line end: nothing is missing from it.
        assert!(dropped[1].to_string().starts_with("line 4 is no run"), "{dropped:?}");
    }
}
