//! The documentation's links and examples, and the quick start of README.md and the tutorial as an operator would do
//! them.
//!
//! These run in a lab, which must be entered before there are threads: so this is a
//! program with its own main function that starts itself again for these checks. Arguments are
//! parts of the names of the checks to run.

// Nothing here is for others.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::{self, Host, Lab, LabError, Process};

const DWELL: &str = env!("CARGO_BIN_EXE_dwell");
const README: &str = include_str!("../../../README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
const PATIENCE: Duration = Duration::from_secs(10);
const SKIPPED: u8 = 77;
const TUTORIAL: &str = "docs/tutorial.md";
/// The argument by which this program starts itself, before the page whose commands it runs.
const IN_LAB: &str = "--in-lab";
/// Where a configuration is on a machine of its own.
const ETC: &str = "/etc/dwell/";

type Check = (&'static str, fn() -> anyhow::Result<ExitCode>);

const ALL: [Check; 10] = [
    ("every_link_leads_somewhere", links_lead_somewhere),
    ("every_anchor_is_a_heading", anchors_are_headings),
    ("every_page_is_linked", pages_are_linked),
    ("every_crate_has_a_page", crates_have_pages),
    ("the_readme_is_short", readme_is_short),
    ("the_readme_links_the_examples", readme_links_examples),
    ("every_example_checks", examples_check),
    ("monitoring_knows_what_there_is", monitoring_agrees),
    ("the_quick_start_works", || in_lab("README.md")),
    ("the_tutorial_works", || in_lab(TUTORIAL)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, page] = &arguments[..]
        && flag == IN_LAB
    {
        return walk_through(page).unwrap_or_else(|error| {
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

/// The fenced blocks of a page whose info string is `info`.
fn blocks<'a>(page: &'a str, info: &str) -> Vec<&'a str> {
    let mut blocks = Vec::new();
    for piece in page.split("\n```").skip(1).step_by(2) {
        if let Some((first, text)) = piece.split_once('\n')
            && first.trim() == info
        {
            blocks.push(text);
        }
    }
    blocks
}

fn example(name: &str) -> anyhow::Result<String> {
    let path = Path::new(EXAMPLES).join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The pages of the project: their paths from its root, and their texts.
fn pages() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    let crates = crates()?;
    let directories = ["", "docs", "data", "fuzz"].map(PathBuf::from);
    for directory in directories.iter().chain(&crates) {
        for entry in fs::read_dir(Path::new(ROOT).join(directory))? {
            let name = Path::new(directory).join(entry?.file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(Path::new(ROOT).join(&name))?;
                pages.push((name, text));
            }
        }
    }
    ensure!(pages.len() >= 10, "pages are missing: {}", pages.len());
    Ok(pages)
}

/// The directories of the crates, from the project's root.
fn crates() -> anyhow::Result<Vec<PathBuf>> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join("crates"))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            crates.push(Path::new("crates").join(entry.file_name()));
        }
    }
    Ok(crates)
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
    let crates = crates()?;
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

/// Has the commands of a page run, in a process of its own.
fn in_lab(page: &str) -> anyhow::Result<ExitCode> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args([IN_LAB, page]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        Some(code) if code == i32::from(SKIPPED) => {
            println!("{}", said.trim());
            Ok(ExitCode::from(SKIPPED))
        }
        _ => anyhow::bail!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stdout)),
    }
}

/// A site of a page: its router.
struct Site {
    host: Host,
    directory: PathBuf,
    relay: Option<Process>,
}

/// The sites that pages name, what is their own on the network between them, and a host behind each.
const SITES: [(&str, &str, &str); 3] = [
    ("site-a", "203.0.113.10", "10.1.0.1/24"),
    ("site-b", "198.51.100.20", "10.2.0.1/24"),
    ("site-c", "192.0.2.30", "10.3.0.1/24"),
];

/// Runs the commands of a page on hosts with the addresses that it names.
fn walk_through(page: &str) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(Path::new(ROOT).join(page))?;
    let mut lab = lab::enter()?;
    let directory = Directory::new("walk")?;
    let mut sites = build_sites(&mut lab, &directory.0)?;
    let mut commands = 0;
    // What was printed last is what is pasted next.
    let mut printed = String::new();
    for block in blocks(&text, "console") {
        for line in block.lines() {
            let Some((place, command)) = line.split_once("$ ") else { continue };
            let command = command.replace("LINE", &printed).replace("ANSWER", &printed);
            let site = sites.iter_mut().find(|site| site.host.name() == place);
            let said = site.with_context(|| format!("there is no {place}"))?.does(&command)?;
            said.trim().clone_into(&mut printed);
            commands += 1;
        }
    }
    ensure!(commands >= 9, "only {commands} commands of {page} were found");
    let status = succeeds(sites[0].host.command(DWELL).args(["status", "site-a"]))?;
    ensure!(status.contains("site-b answers"), "site B is not up:\n{status}");
    for site in &mut sites {
        if let Some(mut relay) = site.relay.take() {
            let exit = relay.stop()?;
            ensure!(exit.success(), "{}: the relay ended with {exit}", site.host.name());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the sites, with a cable from the first to each of the others.
fn build_sites(lab: &mut Lab, directory: &Path) -> anyhow::Result<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for (name, own, lan) in SITES {
        let host = lab.host(name)?;
        let directory = directory.join(name);
        fs::create_dir(&directory)?;
        if let Some(first) = sites.first() {
            lab.veth((&first.host, &format!("wan-{name}")), (&host, "wan"))?;
            for (at, device, address, other) in [
                (&first.host, &*format!("wan-{name}"), SITES[0].1, own),
                (&host, "wan", own, SITES[0].1),
            ] {
                at.address(device, &format!("{address}/32"))?;
                at.output("ip", &["route", "add", other, "dev", device])?;
            }
        }
        host.output("ip", &["address", "add", lan, "dev", "lo"])?;
        sites.push(Site { host, directory, relay: None });
    }
    Ok(sites)
}

impl Site {
    /// Does what a line of the page says, and returns what it prints.
    fn does(&mut self, line: &str) -> anyhow::Result<String> {
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let line = line.replace(ETC, &format!("{}/", self.directory.display()));
        let mut words = line.split_whitespace();
        let program = match words.next() {
            Some("dwell") => DWELL,
            other => other.unwrap_or_default(),
        };
        let mut command = self.host.command(program);
        command.args(words);
        // On a machine of its own the file is at its usual place.
        let has_file = ["init", "join", "invite", "peer", "up"];
        if has_file.iter().any(|name| line.starts_with(&format!("dwell {name}"))) {
            command.arg("--config").arg(self.directory.join("relay.toml"));
        }
        if line.starts_with("dwell up") && self.relay.is_none() {
            self.relay = Some(Process::spawn(&mut command)?);
            return Ok(String::new());
        }
        // The relays need a moment to find each other.
        let end = Instant::now() + PATIENCE;
        loop {
            match succeeds(&mut command) {
                Ok(said) => return Ok(said),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => sleep(Duration::from_millis(100)),
            }
        }
    }
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
