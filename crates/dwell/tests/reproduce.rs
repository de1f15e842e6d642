//! The papers' figures with few and short runs: every run still gives the numbers that it gave when
//! `golden/reproduce-quick.tsv` was written, to the bit.
//!
//! A line of that file is a run: scenario, values of the point, seed, packets that the sources sent,
//! and all numbers of its metrics and series in ascending order. Names are left out on purpose: a
//! metric may be renamed or added, and a parameter too, but no number may change or disappear. If
//! one has to, say why in the commit, and write the file again:
//!
//! ```text
//! DWELL_GOLDEN=write cargo test -p dwell --test reproduce
//! ```

// Nothing here is for others, and clippy takes a test's functions for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The identity of a run: scenario, values of its point, seed and packets of the sources.
type Run = String;
/// The numbers of a run as JSON writes them, with every digit.
type Numbers = BTreeSet<String>;

fn add_numbers(value: &Value, numbers: &mut Numbers) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| add_numbers(value, numbers)),
        Value::Object(fields) => fields.values().for_each(|value| add_numbers(value, numbers)),
        Value::Number(number) => {
            numbers.insert(number.to_string());
        }
        _ => {}
    }
}

/// Returns the values of a point, without the names of the parameters, in one order.
fn point(run: &Value) -> String {
    let mut values: Vec<String> =
        run["point"].as_object().unwrap().values().map(Value::to_string).collect();
    values.sort();
    values.join(" ")
}

fn read_results(path: &Path) -> BTreeMap<Run, Numbers> {
    let text = fs::read_to_string(path).unwrap();
    let run = |line: &str| {
        let run: Value = serde_json::from_str(line).unwrap();
        let name = run["scenario"].as_str().unwrap();
        let key =
            [name, &point(&run), &run["seed"].to_string(), &run["source_packets"].to_string()];
        let mut numbers = Numbers::new();
        add_numbers(&run["metrics"], &mut numbers);
        add_numbers(&run["series"], &mut numbers);
        (key.join("\t"), numbers)
    };
    text.lines().map(run).collect()
}

fn read_golden(text: &str) -> BTreeMap<Run, Numbers> {
    let run = |line: &str| {
        let (key, numbers) = line.rsplit_once('\t').unwrap();
        (key.to_owned(), numbers.split(' ').map(str::to_owned).collect())
    };
    text.lines().map(run).collect()
}

fn write_golden(path: &Path, results: &BTreeMap<Run, Numbers>) {
    let ascending = |numbers: &Numbers| {
        let mut numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        numbers.sort_by(|a, b| {
            let value = |text: &str| text.parse::<f64>().unwrap();
            value(a).total_cmp(&value(b)).then(a.cmp(b))
        });
        numbers.join(" ")
    };
    let lines = results.iter().map(|(key, numbers)| format!("{key}\t{}\n", ascending(numbers)));
    fs::write(path, lines.collect::<String>()).unwrap();
}

#[test]
fn every_number_of_the_papers_scenarios_is_as_it_was() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reproduce-quick.tsv");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproduce-quick");
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(["sim", "reproduce", "all", "--quick", "--out"]).arg(&out);
    let output = command.env_remove("DWELL_LOG").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::metadata(out.join("report.html")).unwrap().len() > 10_000);

    let results = read_results(&out.join("results.jsonl"));
    if std::env::var_os("DWELL_GOLDEN").is_some_and(|value| value == "write") {
        write_golden(&golden, &results);
        println!("{} is written", golden.display());
        return;
    }
    let expected = read_golden(&fs::read_to_string(&golden).unwrap());
    assert!(expected.len() > 100, "the file of expected numbers is not whole");
    let runs = |of: &BTreeMap<Run, Numbers>| of.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(runs(&results), runs(&expected), "the runs differ");
    let mut differing = Vec::new();
    for (run, numbers) in &expected {
        let gone: Vec<_> = numbers.difference(&results[run]).collect();
        if !gone.is_empty() {
            differing.push(format!("{run}: {gone:?} are gone"));
        }
    }
    assert!(differing.is_empty(), "{} runs differ:\n{}", differing.len(), differing.join("\n"));
}
