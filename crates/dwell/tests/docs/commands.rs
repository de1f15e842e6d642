//! Every command line of the documentation is one that the program takes; and which blocks of a terminal are run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use dwell_testkit::pages::{self, CommandLine, Place};

use super::{DWELL, pages};

/// Pages whose blocks of commands are run, and by which test.
const RUN: [(&str, &str); 5] = [
    ("README.md", "docs, the_quick_start_works"),
    ("docs/pairing.md", "docs, pairing_works_as_its_page_has_it"),
    (
        "docs/proxy.md",
        "e2e, checks/proxy: the pair and its rules for TPROXY; transfers: tests/proxy",
    ),
    ("docs/security.md", "docs, keys_are_made_as_their_page_has_it"),
    ("docs/tutorial.md", "docs, the_tutorial_works"),
];

/// Pages whose blocks are not run, and why.
const NOT_RUN: [(&str, &str); 1] = [(
    "docs/relay.md",
    "the routes in it are the reader's; those of a relay are looked at in e2e, checks/routes",
)];

/// Labels of the wire format, which are no commands, and what was called otherwise once.
pub(crate) const OTHERS: [&str; 2] = ["docs/wire.md", "CHANGELOG.md"];

/// What stands for a value of the reader's, and one that the program could be given.
const PLACEHOLDERS: [(&str, &str); 9] = [
    ("RATE", "1mbit"),
    ("N", "1"),
    ("HOST", "192.0.2.1"),
    ("HOST:PORT", "192.0.2.1:7733"),
    ("KEY", "0123456789abcdef"),
    ("SHELL", "bash"),
    ("METRIC=SHARE", "call.delay_p99_s=0.05"),
    ("auto,ppm,…", "auto,ppm"),
    ("3/16", "3/16"),
];

/// All command lines are ones that the program would accept, and all blocks are run, or not for a reason.
pub(crate) fn are_accepted() -> anyhow::Result<ExitCode> {
    let subcommands = subcommands_of_x()?;
    let (mut accepted, mut errors) = (BTreeMap::<&str, usize>::new(), Vec::new());
    let mut blocks = BTreeSet::new();
    for (page, text) in pages()? {
        for found in pages::command_lines(&text) {
            let is_block = matches!(found.place, Place::Console(_) | Place::Shell);
            if is_block {
                blocks.insert(page.display().to_string());
            }
            match look(&page, &found, &subcommands)? {
                Ok(()) => {
                    let what = if is_block { "in blocks" } else { "beside the text or within it" };
                    *accepted.entry(what).or_default() += 1;
                }
                Err(why) => errors.push(format!(
                    "{}, line {}: {}\n  {why}",
                    page.display(),
                    found.line,
                    found.text
                )),
            }
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    println!("command lines that are accepted: {accepted:?}");
    ensure!(accepted.values().sum::<usize>() > 200, "command lines are missing");
    say_what_is_run(&blocks)?;
    Ok(ExitCode::SUCCESS)
}

fn say_what_is_run(blocks: &BTreeSet<String>) -> anyhow::Result<()> {
    for (verb, list) in [("run", &RUN[..]), ("not run", &NOT_RUN[..])] {
        for (page, why) in list {
            println!("  {verb}: {page} ({why})");
            ensure!(blocks.contains(*page), "{page} has no blocks of commands: leave it out");
        }
    }
    let is_known = |page: &&String| RUN.iter().chain(&NOT_RUN).any(|(known, _)| page == known);
    match blocks.iter().find(|page| !is_known(page)) {
        Some(page) => anyhow::bail!("are the commands of {page} run, and if not, why?"),
        None => Ok(()),
    }
}

/// The first words that `./x` takes.
fn subcommands_of_x() -> anyhow::Result<BTreeSet<String>> {
    let script = fs::read_to_string(pages::path("x"))?;
    let functions =
        script.lines().filter_map(|line| line.strip_prefix("do_")?.strip_suffix("() {"));
    let mut names: BTreeSet<String> = functions.map(str::to_owned).collect();
    ensure!(names.len() > 10, "./x does little: {names:?}");
    names.insert("help".to_owned());
    Ok(names)
}

/// What is wrong with a command line, if anything is.
fn look(
    page: &Path,
    found: &CommandLine,
    subcommands: &BTreeSet<String>,
) -> anyhow::Result<Result<(), String>> {
    if let Some(words) = found.words_of("./x") {
        let first = words.first().map_or("help", String::as_str);
        if !subcommands.contains(first) {
            return Ok(Err(format!("./x has no {first}")));
        }
        // What `./x bench` and `./x attack` take is looked at beside those programs.
        return if first == "demo" { accepts(&words, found) } else { Ok(Ok(())) };
    }
    match found.words_of("dwell") {
        Some(words) if !OTHERS.iter().any(|other| page == Path::new(other)) => {
            accepts(&words, found)
        }
        _ => Ok(Ok(())),
    }
}

/// Asks the program for its help after these words: it looks at them first.
fn accepts(words: &[String], found: &CommandLine) -> anyhow::Result<Result<(), String>> {
    let value = |word: &String| {
        let known = PLACEHOLDERS.iter().find(|(name, _)| name == word);
        known.map_or_else(|| word.clone(), |(_, value)| (*value).to_owned())
    };
    let words = words.iter().filter(|word| *word != "…" && *word != "--").map(value);
    let mut command = Command::new(DWELL);
    command.args(words).arg("--help").stdin(Stdio::null());
    let output = command.output().context("the program can't be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    // A sentence may name an option without its value.
    let is_named = found.place == Place::Sentence && said.contains("a value is required for");
    let is_accepted = is_named || output.status.success();
    Ok(if is_accepted { Ok(()) } else { Err(said.lines().next().unwrap_or_default().to_owned()) })
}
