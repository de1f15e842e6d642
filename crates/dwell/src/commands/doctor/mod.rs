//! `dwell doctor`: gathers what somebody who helps would ask for, and says what looks wrong.

mod gather;
mod opinions;
mod redact;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use dwell_cli::progress::Progress;
use dwell_cli::terminal;
use dwell_relay::io::clock::Clock;
use dwell_report::status::PeerState;
use dwell_report::{Status, status_text};
use serde::Serialize;

use self::gather::{ConfigurationFile, MachineFacts, Probe, UdpCounters};
use self::opinions::Window;
use super::node::{named, relay_status, the_only_relay};
use super::site::DEFAULT_CONFIG;
use super::verify::findings::{self, Finding, Verdict};
use super::verify::machine::Machine;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell doctor                          the node that runs here, to the terminal
  sudo dwell doctor site-a --out report.txt  to a file, to send to somebody who helps
  sudo dwell doctor --json --seconds 30      for programs, counting for half a minute
  sudo dwell doctor --config ./relay.toml    of a relay that does not start

It begins with what looks wrong, in sentences, with what helps. Then come the configuration, the
status before and after the time in which it counts, the errors of the kernel, routes, interfaces,
and pings of several lengths to the peers.

Keys are not in it. Their files are read only to check the configuration, as `dwell check` does, and
nothing of them is written. The configuration is shown as it was understood, without comments, and
without what looks like a key or a password, but for public keys. Names, addresses and networks are:
look through it before you publish it.

Exit codes:
  0  nothing looks wrong, or only hints
  1  something does not work, or no node answers
  2  the command line is wrong";

/// Gather what a maintainer needs into one report, and say what looks wrong
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Doctor {
    /// The relay's name; may be left out if only one relay runs here
    #[arg(conflicts_with = "socket")]
    name: Option<String>,
    /// The node's status socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The configuration file, if no relay runs that names it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Count for SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Write the report to FILE, which only its owner may read
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// The version of the document that `--json` writes.
const SCHEMA: u32 = 1;

/// The report.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// The version of the program that made it.
    version: &'static str,
    findings: Vec<Finding>,
    machine: MachineFacts,
    configuration: Option<ConfigurationFile>,
    /// Before and after the time in which it counted; none if no node answers.
    status: Option<[Status; 2]>,
    udp: Option<[UdpCounters; 2]>,
    probes: Vec<Probe>,
    commands: Vec<gather::Output>,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let report = self.examine();
        let text = match self.json {
            true => serde_json::to_string_pretty(&report)? + "\n",
            false => text(&report),
        };
        match &self.out {
            None => terminal::print(&text)?,
            Some(path) => {
                write_private(path, &text)?;
                let summary: String = report.findings.iter().map(Finding::to_text).collect();
                terminal::print(&format!("{summary}\nThe report is in {}.\n", path.display()))?;
            }
        }
        let failed = report.findings.iter().any(|finding| finding.verdict == Verdict::Failed);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn examine(&self) -> Report {
        let mut findings = Vec::new();
        let socket = self.socket();
        let before = socket.as_ref().map_err(|error| format!("{error:#}"));
        let before =
            before.and_then(|socket| relay_status(socket).map_err(|error| format!("{error:#}")));
        let path = match (&self.config, &before) {
            (Some(path), _) => Some(path.clone()),
            (None, Ok(status)) => Some(PathBuf::from(&status.configuration.path)),
            (None, Err(_)) => Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists()),
        };
        let configuration = path.map(|path| ConfigurationFile::read(&path));
        if let Some(file) = &configuration {
            findings.extend(opinions::of_configuration(file));
        }
        let machine = MachineFacts::look();
        findings.extend(opinions::of_machine(&machine));
        let (mut status, mut udp, mut probes) = (None, None, Vec::new());
        match (socket, before) {
            (Ok(socket), Ok(before)) => {
                let udp_before = UdpCounters::read();
                self.count();
                let udp_after = UdpCounters::read();
                let after = relay_status(&socket).unwrap_or_else(|_| before.clone());
                udp = udp_before.zip(udp_after).map(|(before, after)| [before, after]);
                let window = Window { before: &before, after: &after, udp: udp.as_ref() };
                findings.extend(opinions::of_window(&window));
                probes = self.examine_peers(&socket, &after, &mut findings);
                status = Some([before, after]);
            }
            (_, Err(why)) | (Err(_), Ok(Status { version: why, .. })) => {
                findings.push(opinions::no_node(&why));
            }
        }
        if !findings.iter().any(|finding| finding.verdict != Verdict::Ok) {
            findings.push(opinions::nothing());
        }
        // The worst first.
        findings.sort_by_key(|finding| match finding.verdict {
            Verdict::Failed => 0,
            Verdict::Hint => 1,
            Verdict::Ok => 2,
        });
        let device = status.as_ref().map(|[_, after]| after.tun.name.clone());
        let version = env!("CARGO_PKG_VERSION");
        let commands = gather::commands(device.as_deref());
        Report {
            schema: SCHEMA,
            version,
            findings,
            machine,
            configuration,
            status,
            udp,
            probes,
            commands,
        }
    }

    fn socket(&self) -> anyhow::Result<PathBuf> {
        match (&self.socket, &self.name) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => Ok(named(name)),
            (None, None) => the_only_relay(),
        }
    }

    /// Waits while the counters go on, and says so.
    fn count(&self) {
        let second = Duration::from_secs(1);
        let mut progress = Progress::quiet(self.seconds.into(), second * self.seconds.into());
        terminal::note(&format!("counting for {} s", self.seconds));
        for _ in 0..self.seconds {
            std::thread::sleep(second);
            progress.done(second, "counting");
        }
    }

    /// Tries each peer as `dwell verify` does, and packets of more lengths.
    fn examine_peers(
        &self,
        socket: &Path,
        status: &Status,
        findings: &mut Vec<Finding>,
    ) -> Vec<Probe> {
        let machine = Machine::look();
        findings.extend(findings::of_node(status, &machine));
        let mut probes = Vec::new();
        for peer in status.peers.iter().take(gather::PEERS_MAX) {
            let mut pings = findings::Pings::default();
            if peer.state == PeerState::Up {
                terminal::note(&format!("pinging {}", peer.name));
                pings = super::verify::ping(peer, socket, status.tun.mtu);
                probes.extend(gather::probe(peer, status.tun.mtu, &pings));
            }
            findings.extend(findings::of_peer(peer, status, &pings, &machine));
        }
        probes
    }
}

/// The report for people.
fn text(report: &Report) -> String {
    let mut out = String::from("What looks wrong, and what helps\n\n");
    out.extend(report.findings.iter().map(Finding::to_text));
    let mut section = |title: &str, text: &str| {
        out += &format!("\n=== {title} ===\n{}\n", text.trim_end());
    };
    section("machine", &report.machine.to_text(report.version));
    if let Some(file) = &report.configuration {
        section(&format!("configuration: {}", file.path), &file.text);
    }
    if let Some([before, after]) = &report.status {
        let (window, rates) = opinions::rates(before, after);
        section(&format!("counted for {window}"), &rates);
        section("status", &status_text(after, Clock::unix_ns()));
        section("events", &gather::events(after));
    }
    if let Some([before, after]) = &report.udp {
        section("UDP of this machine, before and after", &format!("{before}\n{after}"));
    }
    if !report.probes.is_empty() {
        let lines: Vec<_> = report.probes.iter().map(Probe::to_text).collect();
        section("pings", &lines.join("\n"));
    }
    for output in &report.commands {
        section(&output.command, &output.text);
    }
    out
}

/// Writes a file that only its owner may read, whatever was there. Nothing is followed that somebody else may have put
/// there, and a device is not replaced.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let is_plain = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    anyhow::ensure!(
        is_plain && path.file_name().is_some(),
        "{} is not a plain file, or can't be looked at: name another one",
        path.display()
    );
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let why = || format!("{} can't be written", path.display());
    let mut options = OpenOptions::new();
    // It fails if there is anything of that name, a link too.
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new).with_context(why)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_worst_first_and_a_part_for_all_that_was_gathered() {
        let doctor = Doctor {
            name: None,
            socket: Some(PathBuf::from("/nowhere/dwell.sock")),
            config: Some(PathBuf::from("/nowhere/relay.toml")),
            seconds: 1,
            out: None,
            json: false,
        };
        let report = doctor.examine();
        assert_eq!(report.findings[0].verdict, Verdict::Failed);
        let said = text(&report);
        assert!(said.contains("=== machine ==="), "{said}");
        assert!(said.contains("=== configuration: /nowhere/relay.toml ==="), "{said}");
        assert!(said.contains("there is no socket /nowhere/dwell.sock"), "{said}");
        assert!(said.contains("there is no such file"), "{said}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], 1);
        assert!(json["findings"].as_array().is_some_and(|all| all.len() >= 2), "{json}");
    }

    #[test]
    fn a_report_is_private_whatever_was_there() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = std::env::temp_dir().join(format!("dwell-report-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("report.txt");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        write_private(&path, "first").unwrap();
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        write_private(&path, "second").unwrap();
        assert_eq!((mode(&path), &*std::fs::read_to_string(&path).unwrap()), (0o600, "second"));
        // Neither what a link leads to is written, nor what somebody put where the new file goes.
        let link = directory.join("link.txt");
        symlink(&path, &link).unwrap();
        assert!(write_private(&link, "third").unwrap_err().to_string().contains("plain file"));
        let other = directory.join("other.txt");
        let new = directory.join(format!(".other.txt.{}.new", std::process::id()));
        symlink(&path, &new).unwrap();
        assert!(write_private(&other, "fourth").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert!(!other.exists());
        for no_file in ["/dev/null", "/", "/nowhere/report.txt", ""] {
            assert!(write_private(Path::new(no_file), "fifth").is_err(), "{no_file}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
