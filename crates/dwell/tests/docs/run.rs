//! The command lines beside and within the text of pages, of which those that take seconds and touch nothing but their own directory
//! are run here; each of the others has a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use dwell_testkit::pages::{self, CommandLine, Place};

use super::commands::OTHERS;
use super::{DWELL, Directory, pages};

/// The reader's captures: their names in the pages, and what stands for them.
const CAPTURES: [(&str, &str); 5] = [
    ("site.pcap", "redis-django.pcapng.gz"),
    ("later.pcap", "redis-django.pcapng.gz"),
    ("office.pcap", "tls-repeated-certificates.pcap"),
    ("monday/1.pcapng.gz", "smb2-small-files.pcap.gz"),
    ("captures/1.pcap", "nfs-write.pcap"),
];

/// What a reader has done before, where a page does not say how in one line.
const BEFORE: [&str; 4] = [
    "dwell trace analyze site.pcap --out monday.json",
    "dwell trace analyze office.pcap --out tuesday.json",
    "dwell sim list --show shimamura/fig-8 > mine.toml",
    "dwell sim run mine.toml --quick --out out",
];

/// The command lines that are run, in this order, and what is run in place of those that name files of the reader's, are the
/// beginning of a line, or take long as they are.
const RUN: [(&str, &str); 50] = [
    ("./x demo --help", "dwell demo --help"),
    ("dwell top --help", ""),
    ("dwell check --sample", ""),
    ("dwell genkey --out private.key", ""),
    ("dwell genkey --out FILE", "dwell genkey --out other.key"),
    ("dwell pubkey private.key", ""),
    ("dwell pubkey /etc/dwell/private.key", "dwell pubkey private.key"),
    ("dwell genpsk --out proxy.psk", ""),
    ("dwell genpsk --out /etc/dwell/ab.psk", "dwell genpsk --out ab.psk"),
    ("dwell genpsk --out /etc/dwell/web.password", "dwell genpsk --out web.password"),
    ("dwell trace analyze site.pcap", ""),
    ("dwell trace analyze office.pcap", ""),
    ("dwell trace analyze monday/*.pcapng.gz --html monday.html --exceptions exceptions.toml", ""),
    ("dwell trace analyze /srv/captures", "dwell trace analyze captures"),
    (
        "dwell trace analyze big.pcap.zst --no-codecs",
        "dwell trace analyze monday/1.pcapng.gz --no-codecs",
    ),
    ("dwell trace analyze --no-codecs", "dwell trace analyze site.pcap --no-codecs"),
    (
        "dwell trace analyze CAPTURE --exceptions FILE",
        "dwell trace analyze site.pcap --exceptions list.toml",
    ),
    ("dwell trace analyze --exceptions", "dwell trace analyze site.pcap --exceptions again.toml"),
    ("dwell trace analyze --json", "dwell trace analyze site.pcap --json"),
    ("dwell trace analyze --out", "dwell trace analyze site.pcap --out analysis.json"),
    ("dwell trace merge monday.json tuesday.json --html week.html", ""),
    ("dwell trace replay site.pcap --rate 5mbit", ""),
    ("dwell trace replay office.pcap --rate 5mbit", ""),
    ("dwell trace replay site.pcap --rate 5mbit --inside 10.1.0.0/16", ""),
    ("dwell trace replay site.pcap --rate 5mbit --source 10.1.0.0/16", ""),
    ("dwell trace replay CAPTURE --rate RATE", "dwell trace replay site.pcap --rate 1mbit"),
    ("dwell trace replay --json", "dwell trace replay site.pcap --rate 5mbit --json"),
    (
        "dwell trace replay --exceptions",
        "dwell trace replay site.pcap --rate 5mbit --exceptions list.toml",
    ),
    (
        "dwell trace replay --objective bytes",
        "dwell trace replay site.pcap --rate 5mbit --objective bytes",
    ),
    (
        "dwell trace replay --rate 2mbit --scheme none,auto --objective bytes --codec zstd:3 --speed …",
        "dwell trace replay site.pcap --rate 2mbit --scheme none,auto --objective bytes --codec zstd:3 --speed 2",
    ),
    (
        "dwell trace replay --compress-cost 3000,4",
        "dwell trace replay site.pcap --rate 5mbit --compress-cost 3000,4",
    ),
    ("dwell trace train site.pcap --out dictionaries", ""),
    ("dwell trace replay later.pcap --rate 512kbit --dictionary dictionaries/all.dict", ""),
    ("dwell sim list", ""),
    ("dwell sim list --show worked/lte", ""),
    ("dwell sim list --show shimamura/fig-8 > mine.toml", ""),
    ("dwell sim run mine.toml", "dwell sim run mine.toml --quick"),
    ("dwell sim run FILE", "dwell sim run mine.toml --quick"),
    (
        "dwell sim run scenarios/shimamura/fig-8.toml",
        "dwell sim run scenarios/shimamura/fig-8.toml --quick",
    ),
    ("dwell sim run shimamura/fig-8", "dwell sim run shimamura/fig-8 --quick"),
    ("dwell sim run shimamura/fig-8 --set compress.ratio=0.9 --replications 3", ""),
    (
        "dwell sim run shimamura/fig-9 --quick --json --set 'scheme.preset=[\"packet\",\"auto\"]'",
        "",
    ),
    ("dwell sim run shimamura/fig-7 --quick --json --set scheme.preset=auto", ""),
    (
        "dwell sim run yoshino/fig-3 --quick --json --set scheme.preset=auto --set compress.ratio=0.6 --set compress.time=300us",
        "",
    ),
    (
        "dwell sim run sawabe/fig-12 --quick --json --set scheme.preset=auto --set compress.ratio=1 --set compress.time=1us",
        "",
    ),
    ("dwell sim run worked/lte --out lte", ""),
    ("dwell sim run worked/lte --precision call.delay_p99_s=0.05", ""),
    ("dwell sim report DIR --scenario mine.toml", "dwell sim report out --scenario mine.toml"),
    ("dwell sim trace worked/lte --quick --out lte.pcapng --windows lte.csv", ""),
    (
        "dwell sim reproduce shimamura/fig-10",
        "dwell sim reproduce shimamura/fig-10 --quick --out fig-10",
    ),
];

/// How command lines begin that are not run here, and why; the longest beginning counts.
const NOT_RUN: [(&str, &str); 36] = [
    (
        "./x attack",
        "minutes to hours on namespaces of its own; each attack has tests in crates/dwell-attack",
    ),
    (
        "./x bench",
        "measures for minutes to hours; what it takes is looked at in crates/dwell-bench",
    ),
    ("./x demo", "half a minute: tests/demo_lab does it shorter"),
    ("./x docs", "builds all of the documentation: a part of ./x test"),
    ("./x fuzz", "minutes for each target, and another compiler"),
    ("./x install", "builds the library for C: a part of ./x test --all"),
    ("./x lint", "a part of ./x test"),
    ("./x python", "builds Python's package: a part of ./x test --all"),
    ("./x release", "builds for each processor: some ten minutes each"),
    (
        "./x screenshots",
        "writes to docs/figures; the browser's part is e2e, long_a_browser_shows_the_web_page",
    ),
    ("./x site", "builds mdBook, if that is missing"),
    ("./x soak", "days of virtual time; ./x test has an hour of it"),
    ("./x test", "this is a part of it"),
    ("./x validate", "needs ns-2 or ns-3, and takes up to hours"),
    ("dwell check FILE", "docs, every_example_checks, with each example"),
    ("dwell doctor --out report.txt", "asks a relay: e2e, checks/doctor"),
    ("dwell init", "writes /etc/dwell: tests/pairing, and the pages whose blocks are run"),
    (
        "dwell join",
        "needs another machine's line: tests/pairing, and the pages whose blocks are run",
    ),
    ("dwell lab --relays", "a shell of the reader's: tests/demo_lab"),
    ("dwell proxy", "stays until it is stopped: tests/proxy"),
    ("dwell recv", "waits for the other end: tests/proxy, transfers"),
    ("dwell relay", "stays until it is stopped: all of e2e"),
    ("dwell relay --journal", "stays until it is stopped: e2e, checks/schemes"),
    ("dwell relay --config FILE --journal", "stays until it is stopped: e2e, checks/schemes"),
    ("dwell send", "waits for the other end: tests/proxy, transfers"),
    ("dwell sim journal FILE", "a journal of a relay's: e2e, checks/schemes"),
    ("dwell sim reproduce all --out results", "hours; tests/reproduce has the quick variant"),
    ("dwell sim reproduce all --quick", "half a minute: tests/reproduce"),
    ("dwell sim run yoshino/ties", "minutes; tests/reproduce has the quick variant"),
    ("dwell sim reproduce sawabe/table-4", "minutes; tests/reproduce has the quick variant"),
    ("dwell sim run --on", "needs the package for Python, which tests it"),
    ("dwell sim run mine.toml --shard", "needs the package for Python, which tests it"),
    (
        "dwell sim run shimamura/fig-8 --on",
        "needs a cluster; the package for Python tests its engines",
    ),
    ("dwell status", "asks a relay: docs, the_quick_start_works, and e2e"),
    ("dwell trace analyze --on", "needs the package for Python, which tests it"),
    (
        "dwell trace analyze /archive --on",
        "needs a cluster; the package for Python tests its engines",
    ),
];

/// Options whose value is a file or directory that is written.
const WRITES: [&str; 4] = ["--out", "--html", "--windows", ">"];

/// Runs what can be run, in a directory of its own.
pub(crate) fn all() -> anyhow::Result<ExitCode> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (page, text) in pages()? {
        if OTHERS.iter().any(|other| page == Path::new(other)) {
            continue;
        }
        for line in pages::command_lines(&text).iter().filter(|line| is_typed(line)) {
            let text = line.text.strip_prefix("sudo ").unwrap_or(&line.text).to_owned();
            found.entry(text).or_insert_with(|| format!("{}, line {}", page.display(), line.line));
        }
    }
    let reasons = judge(&found)?;
    let directory = Directory::new("run")?;
    prepare(&directory.0)?;
    let begun = Instant::now();
    for line in BEFORE {
        run(line, &directory.0)?;
    }
    for (line, instead) in RUN {
        let place = &found[line];
        let what = if instead.is_empty() { line } else { instead };
        run(what, &directory.0).with_context(|| format!("{place}: {line}"))?;
    }
    println!("  run: {} command lines, in {:.0?}", RUN.len(), begun.elapsed());
    for (why, lines) in reasons {
        println!("  not run: {lines} of {why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A sentence that has only the name of a command means the command, and no line to type.
fn is_typed(line: &CommandLine) -> bool {
    let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    match line.place {
        Place::Indented => true,
        Place::Sentence => !line.text.split(' ').skip(1).all(is_name),
        Place::Console(_) | Place::Shell => false,
    }
}

/// Every line is run, or there is a reason; and nothing is in these lists that no page has. Returns the
/// reasons, with the number of lines that have each.
fn judge(found: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, usize>> {
    let (mut reasons, mut used) = (BTreeMap::new(), BTreeSet::new());
    for (line, place) in found {
        if RUN.iter().any(|(known, _)| known == line) {
            continue;
        }
        let begins = |(known, _): &&(&str, &str)| {
            line.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let reason = NOT_RUN.iter().filter(begins).max_by_key(|(known, _)| known.len());
        let (known, why) =
            reason.with_context(|| format!("{place}: is it run, or why not? {line}"))?;
        used.insert(*known);
        *reasons.entry(format!("`{known}` ({why})")).or_default() += 1;
    }
    let unused: Vec<&str> =
        RUN.iter().map(|(line, _)| *line).filter(|line| !found.contains_key(*line)).collect();
    ensure!(unused.is_empty(), "no page has these: {unused:#?}");
    let unused: Vec<&str> =
        NOT_RUN.iter().map(|(line, _)| *line).filter(|line| !used.contains(line)).collect();
    ensure!(unused.is_empty(), "no page has what begins so: {unused:#?}");
    Ok(reasons)
}

/// The files that the reader has.
fn prepare(directory: &Path) -> anyhow::Result<()> {
    for name in ["bin", "monday", "captures"] {
        fs::create_dir(directory.join(name))?;
    }
    symlink(DWELL, directory.join("bin/dwell"))?;
    symlink(pages::path("scenarios"), directory.join("scenarios"))?;
    for (name, capture) in CAPTURES {
        let from = pages::path("data/captures").join(capture);
        fs::copy(&from, directory.join(name)).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

/// Runs a line as a shell does. It succeeds, and says something or writes what it was to write.
fn run(line: &str, directory: &Path) -> anyhow::Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(directory).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", directory.join("bin").display()));
    let output = command.output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
    let words: Vec<&str> = line.split(' ').collect();
    let written = words.windows(2).filter(|pair| WRITES.contains(&pair[0])).map(|pair| pair[1]);
    let mut writes = 0;
    for name in written {
        let path = directory.join(name);
        let is_there = fs::metadata(&path).is_ok_and(|it| it.is_dir() || it.len() > 0);
        ensure!(is_there, "{line}: it writes no {name}\n{out}{err}");
        writes += 1;
    }
    ensure!(writes > 0 || !out.trim().is_empty(), "{line}: it says nothing\n{err}");
    Ok(())
}
