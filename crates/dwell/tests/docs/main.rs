//! The documentation's links, examples and command lines, and what its pages tell operators to do, as one would do it.
//!
//! These run in a lab, which must be entered before there are threads: so this is a
//! program with its own main function that starts itself again for these checks. Arguments are
//! parts of the names of the checks to run.

// Nothing here is for others.
#![allow(missing_docs)]

mod commands;
mod figures;
mod run;
mod versions;
mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::LabError;

const DWELL: &str = env!("CARGO_BIN_EXE_dwell");
const README: &str = include_str!("../../../../README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
const SKIPPED: u8 = 77;
/// The argument by which this program starts itself, before the page whose commands it runs.
const IN_LAB: &str = "--in-lab";

type Check = (&'static str, fn() -> anyhow::Result<ExitCode>);

const ALL: [Check; 16] = [
    ("every_link_leads_somewhere", links_lead_somewhere),
    ("every_anchor_is_a_heading", anchors_are_headings),
    ("every_page_is_linked", pages_are_linked),
    ("every_crate_has_a_page", crates_have_pages),
    ("the_readme_is_short", readme_is_short),
    ("the_readme_links_the_examples", readme_links_examples),
    ("every_example_checks", examples_check),
    ("monitoring_knows_what_there_is", monitoring_agrees),
    ("the_version_is_the_same_everywhere", versions::agree),
    ("figures_have_commands", figures::have_commands),
    ("every_command_is_accepted", commands::are_accepted),
    ("every_command_is_run_or_has_a_reason", run::all),
    ("the_quick_start_works", || walk::in_lab("README.md")),
    ("the_tutorial_works", || walk::in_lab("docs/tutorial.md")),
    ("pairing_works_as_its_page_has_it", || walk::in_lab("docs/pairing.md")),
    ("keys_are_made_as_their_page_has_it", || walk::in_lab("docs/security.md")),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, page] = &arguments[..]
        && flag == IN_LAB
    {
        return walk::through(page).unwrap_or_else(|error| {
            eprintln!("{error:#}");
            let forbidden = error.downcast_ref().is_some_and(LabError::is_not_permitted);
            if forbidden { ExitCode::from(SKIPPED) } else { ExitCode::FAILURE }
        });
    }
    // Options are for the usual harness (cargo passes them on to every test program).
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = ALL.iter().filter(|(name, _)| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    });
    if arguments.iter().any(|word| word == "--list") {
        wanted.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, act) in wanted {
        let (count, verdict) = match act() {
            Ok(code) if code == ExitCode::SUCCESS => (&mut passed, "ok".to_owned()),
            Ok(_) => (&mut skipped, "skipped: this machine permits no lab, see above".to_owned()),
            Err(error) => (&mut failed, format!("FAILED\n{error:#}")),
        };
        *count += 1;
        println!("test {name} ... {verdict}");
    }
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn example(name: &str) -> anyhow::Result<String> {
    let path = Path::new(EXAMPLES).join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The pages of the project: their paths from its root, and their texts.
fn pages() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let pages = dwell_testkit::pages::pages()?;
    ensure!(pages.len() >= 10, "pages are missing: {}", pages.len());
    Ok(pages)
}

/// Returns the targets of a page's links within the project, without anchors.
fn targets(page: &Path, text: &str) -> Vec<PathBuf> {
    let directory = page.parent().unwrap_or(Path::new(""));
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links
        .map(|(link, _)| link.split_once('#').map_or(link, |(file, _)| file))
        .filter(|file| !file.is_empty() && !file.contains("://"))
        .map(|file| directory.join(file))
        .collect()
}

fn links_lead_somewhere() -> anyhow::Result<ExitCode> {
    let mut links = 0;
    for (page, text) in pages()? {
        for target in targets(&page, &text) {
            let there = Path::new(ROOT).join(&target);
            ensure!(there.exists(), "{} links to {}", page.display(), target.display());
            links += 1;
        }
    }
    ensure!(links > 30, "only {links} links were found");
    Ok(ExitCode::SUCCESS)
}

/// Links into a page name a heading of it, as GitHub makes anchors of headings.
fn anchors_are_headings() -> anyhow::Result<ExitCode> {
    let mut anchors = 0;
    for (page, text) in pages()? {
        for (link, _) in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let Some((file, anchor)) = link.split_once('#') else { continue };
            let elsewhere = link.contains("://") || !(file.is_empty() || file.ends_with(".md"));
            if elsewhere {
                continue;
            }
            let target = match file {
                "" => Path::new(ROOT).join(&page),
                file => Path::new(ROOT).join(&page).with_file_name("").join(file),
            };
            let there =
                fs::read_to_string(&target).with_context(|| target.display().to_string())?;
            let found = there
                .lines()
                .filter(|line| line.starts_with('#'))
                .any(|line| anchor_of(line.trim_start_matches('#').trim()) == anchor);
            ensure!(found, "{} links to {link}, which is no heading there", page.display());
            anchors += 1;
        }
    }
    ensure!(anchors > 20, "only {anchors} anchors were found");
    Ok(ExitCode::SUCCESS)
}

/// Returns the anchor of a heading: small letters, digits, hyphens for spaces.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A reader finds each page of docs/ from the two where reading begins.
fn pages_are_linked() -> anyhow::Result<ExitCode> {
    let pages = pages()?;
    let first = |page: &Path| ["README.md", "ARCHITECTURE.md"].iter().any(|name| page == *name);
    let linked: Vec<PathBuf> = pages
        .iter()
        .filter(|(page, _)| first(page))
        .flat_map(|(page, text)| targets(page, text))
        .collect();
    for (page, _) in pages.iter().filter(|(page, _)| page.starts_with("docs")) {
        ensure!(linked.contains(page), "neither README nor ARCHITECTURE: {}", page.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Each crate says what it is, what it is not, and where to begin.
fn crates_have_pages() -> anyhow::Result<ExitCode> {
    let crates = dwell_testkit::pages::crates()?;
    ensure!(crates.len() >= 15, "crates are missing: {}", crates.len());
    for directory in crates {
        let page = Path::new(ROOT).join(&directory).join("README.md");
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        ensure!(text.starts_with(&format!("# {name}\n")), "{} has another title", page.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn readme_is_short() -> anyhow::Result<ExitCode> {
    const LINES_MAX: usize = 160;
    let lines = README.lines().count();
    ensure!(lines <= LINES_MAX, "README.md has {lines} lines: move some to docs/");
    Ok(ExitCode::SUCCESS)
}

/// The quick start writes its files itself; whoever writes them by hand finds examples.
fn readme_links_examples() -> anyhow::Result<ExitCode> {
    for name in ["site-a.toml", "site-b.toml"] {
        let link = format!("(docs/examples/{name})");
        ensure!(README.contains(&link), "README.md does not link {name}");
    }
    Ok(ExitCode::SUCCESS)
}

fn examples_check() -> anyhow::Result<ExitCode> {
    let directory = Directory::new("examples")?;
    let mut names = Vec::new();
    for entry in fs::read_dir(EXAMPLES)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Beside the configurations there is a program, which the tests of dwell-codec run.
        if !name.ends_with(".toml") {
            continue;
        }
        let text = example(&name)?;
        fs::write(directory.0.join(&name), &text)?;
        for (setting, maker) in [("psk_file", "genpsk"), ("private_key_file", "genkey")] {
            let values =
                text.lines().filter_map(|line| line.strip_prefix(setting)?.split('"').nth(1));
            for key in values.map(|name| directory.0.join(name)) {
                if !key.exists() {
                    succeeds(Command::new(DWELL).arg(maker).arg("--out").arg(key))?;
                }
            }
        }
        names.push(name);
    }
    ensure!(names.len() >= 4, "examples are missing: {names:?}");
    for name in names {
        succeeds(Command::new(DWELL).arg("check").arg(directory.0.join(name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names of metrics in a text, without what a histogram adds to its own.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.split(|c| !is_name(c)).filter(|word| word.starts_with("dwell_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect()
}

/// Alerts and dashboard ask for metrics that there are, all alerts are tested and documented, and no
/// panel covers another.
fn monitoring_agrees() -> anyhow::Result<ExitCode> {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).context(path.to_owned());
    let (rules, tests) =
        (read("monitoring/dwell.rules.yml")?, read("monitoring/dwell.rules.test.yml")?);
    let (dashboard, page) =
        (read("monitoring/grafana-dashboard.json")?, read("docs/monitoring.md")?);
    let source = read("crates/dwell-report/src/metrics.rs")?;
    let known = metrics(&source);
    for (name, text) in [("the alerts", &rules), ("the dashboard", &dashboard)] {
        let unknown: Vec<_> = metrics(text).difference(&known).copied().collect();
        ensure!(unknown.is_empty(), "{name}: there are no metrics {unknown:?}");
    }
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        ensure!(page.contains(&format!("| `{alert}` |")), "docs/monitoring.md: {alert} is missing");
        let test = format!("alertname: {alert}\n        exp_alerts:");
        ensure!(tests.contains(&test), "no test expects {alert}");
    }
    for metric in ["dwell_peer_problem", "dwell_problem", "dwell_loss_ratio"] {
        ensure!(metrics(&dashboard).contains(metric), "the dashboard does not show {metric}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard)?;
    let panels = dashboard["panels"].as_array().context("the dashboard has no panels")?;
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let number = |at: &str| panel["gridPos"][at].as_u64().with_context(|| format!("no {at}"));
        let (x, y, w, h) = (number("x")?, number("y")?, number("w")?, number("h")?);
        let is_alone = (x..x + w).all(|x| (y..y + h).all(|y| x < 24 && cells.insert((x, y))));
        ensure!(is_alone && ids.insert(panel["id"].as_u64()), "a panel is in the way: {panel}");
    }
    Ok(ExitCode::SUCCESS)
}

fn succeeds(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(out)
}

/// A directory of the check's own, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("dwell-docs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
