//! The commands of a page, one after the other, on hosts with the names and addresses that it uses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::{self, Host, Lab, Process};
use dwell_testkit::pages::{self, Place};

use super::{DWELL, Directory, IN_LAB, SKIPPED, succeeds};

const PATIENCE: Duration = Duration::from_secs(10);
/// Where a configuration is on a machine of its own.
const ETC: &str = "/etc/dwell/";
/// How the lines begin that are pasted.
const PASTED: &str = "dwell3,";

/// Has the commands of a page run, in a process of its own.
pub(crate) fn in_lab(page: &str) -> anyhow::Result<ExitCode> {
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
    /// Its own files, with the programs that it calls in `bin`.
    directory: PathBuf,
    relay: Option<Process>,
}

/// The sites that pages name, what is their own on the network between them, and a host behind each.
const SITES: [(&str, &str, &str); 3] = [
    ("site-a", "203.0.113.10", "10.1.0.1/24"),
    ("site-b", "198.51.100.20", "10.2.0.1/24"),
    ("site-c", "192.0.2.30", "10.3.0.1/24"),
];
/// And some that reach nobody.
const ALONE: [&str; 2] = ["hub", "site-1"];

/// Runs the commands of a page on hosts with the addresses that it names.
pub(crate) fn through(page: &str) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(pages::path(page))?;
    let mut lab = lab::enter()?;
    let directory = Directory::new("walk")?;
    let mut sites = build_sites(&mut lab, &directory.0)?;
    let mut commands = 0;
    // What was printed last is what is pasted next.
    let mut printed = String::new();
    for found in pages::command_lines(&text) {
        let Place::Console(place) = &found.place else { continue };
        let paste = |word: &str| {
            let is_pasted = matches!(word, "LINE" | "ANSWER") || word.starts_with(PASTED);
            if is_pasted { printed.clone() } else { word.to_owned() }
        };
        let command: Vec<String> = found.text.split(' ').map(paste).collect();
        let site = sites.iter_mut().find(|site| site.host.name() == place);
        let site = site.with_context(|| format!("there is no {place}"))?;
        let said = site.does(&command.join(" "), &directory.0);
        let said = said.with_context(|| format!("{page}, line {}", found.line))?;
        said.trim().clone_into(&mut printed);
        commands += 1;
    }
    ensure!(commands >= 2, "only {commands} commands of {page} were found");
    if sites[0].relay.is_some() {
        let status = succeeds(sites[0].host.command(DWELL).args(["status", "site-a"]))?;
        ensure!(status.contains("site-b answers"), "site B is not up:\n{status}");
    }
    for site in &mut sites {
        if let Some(mut relay) = site.relay.take() {
            let exit = relay.stop()?;
            ensure!(exit.success(), "{}: the relay ended with {exit}", site.host.name());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the sites, with a cable from the first to each of the others that are linked.
fn build_sites(lab: &mut Lab, directory: &Path) -> anyhow::Result<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for (name, own, lan) in SITES {
        let site = Site::new(lab, name, directory)?;
        if let Some(first) = sites.first() {
            lab.veth((&first.host, &format!("wan-{name}")), (&site.host, "wan"))?;
            for (at, device, address, other) in [
                (&first.host, &*format!("wan-{name}"), SITES[0].1, own),
                (&site.host, "wan", own, SITES[0].1),
            ] {
                at.address(device, &format!("{address}/32"))?;
                at.output("ip", &["route", "add", other, "dev", device])?;
            }
        }
        site.host.output("ip", &["address", "add", lan, "dev", "lo"])?;
        sites.push(site);
    }
    for name in ALONE {
        sites.push(Site::new(lab, name, directory)?);
    }
    Ok(sites)
}

impl Site {
    fn new(lab: &mut Lab, name: &str, directory: &Path) -> anyhow::Result<Self> {
        let host = lab.host(name)?;
        let directory = directory.join(name);
        let bin = directory.join("bin");
        fs::create_dir_all(&bin)?;
        // On a machine of its own the file is at its usual place, and the node is the only one.
        let config = directory.join("relay.toml");
        let dwell = format!(
            "#!/bin/sh\ncase \"$*\" in\ninit*|join*|invite*|peer*|up*) exec '{DWELL}' \"$@\" --config '{}' ;;\n\
             verify) exec '{DWELL}' verify {name} ;;\n*) exec '{DWELL}' \"$@\" ;;\nesac\n",
            config.display()
        );
        for (program, text) in [("dwell", &*dwell), ("sudo", "#!/bin/sh\nexec \"$@\"\n")] {
            let path = bin.join(program);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { host, directory, relay: None })
    }

    fn shell(&self, line: &str, directory: &Path) -> Command {
        let line = line.replace(ETC, &format!("{}/", self.directory.display()));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.host.command("sh");
        command.args(["-c", &line]).current_dir(directory).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", self.directory.join("bin").display()));
        command
    }

    /// Does what a line of the page says, and returns what it prints.
    fn does(&mut self, line: &str, directory: &Path) -> anyhow::Result<String> {
        let stays = line.contains("dwell up") || line.contains("dwell join --up");
        if stays && self.relay.is_none() {
            return self.starts(line, directory);
        }
        // The relays need a moment to find each other.
        let end = Instant::now() + PATIENCE;
        loop {
            match succeeds(&mut self.shell(line, directory)) {
                Ok(said) => return Ok(said),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Starts a relay. One that joins as well prints its line first, unless it is given the answer to its own.
    fn starts(&mut self, line: &str, directory: &Path) -> anyhow::Result<String> {
        let out = self.directory.join("out");
        let mut command = self.shell(&format!("exec {line}"), directory);
        self.relay = Some(Process::spawn(command.stdout(fs::File::create(&out)?))?);
        let end = Instant::now() + PATIENCE;
        while line.contains(",offer,") {
            let said = fs::read_to_string(&out)?;
            if said.ends_with('\n') {
                return Ok(said);
            }
            ensure!(Instant::now() < end, "it prints no line: {line}");
            sleep(Duration::from_millis(50));
        }
        Ok(String::new())
    }
}
