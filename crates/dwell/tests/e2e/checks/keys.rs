//! Relays that know each other's public keys, and what they may do on their machine.

use std::net::UdpSocket;
use std::process::Command;

use anyhow::{Context, ensure};
use dwell_lab::lab::{Lab, Process};
use dwell_lab::relays::RelaySettings;
use dwell_report::status::Problem;
use dwell_testkit::raw::Sniffer;

use crate::site::{self, DWELL, EGRESS, INGRESS, Site, edit, is_up, kill, launch, wait_until};
use crate::web::Web;

fn keyed() -> RelaySettings {
    RelaySettings { keyed: true, ..site::settings() }
}

pub(super) fn downloads(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &keyed())?;
    Web::start(&site, 400_000, 200_000)?.fetch_all(&site.pair.client)?;
    for status in site.verify_lossless()? {
        ensure!(status.peers[0].security == "keys", "{status:#?}");
    }
    Ok(())
}

pub(super) fn wrong_key(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::emulated(lab, "delay 1ms", &keyed())?;
    site.kill_both()?;
    // The ingress has got another key, and the egress, which waits to be contacted, has not been
    // reported: what it sends can only be answers.
    let key = site.directory.join("relays/ingress.key");
    std::fs::remove_file(&key)?;
    let made = Command::new(DWELL).arg("genkey").arg("--out").arg(&key).output()?;
    ensure!(made.status.success(), "{made:?}");
    edit(&site.relays.egress, &[(&format!("endpoint = \"{INGRESS}\"\n"), "")])?;
    let mut sniffer = Sniffer::on(&site.pair.ingress)?;
    let log = |name: &str| site.directory.join(name);
    let (ingress, egress) = (&site.relays.ingress, &site.relays.egress);
    let _egress = launch(&site.pair.egress, egress.config(), &log("egress.log"))?;
    let _ingress = launch(&site.pair.ingress, ingress.config(), &log("ingress.log"))?;
    wait_until("initiations of an unknown key are counted", || {
        Ok(egress.status().is_ok_and(|status| status.drops["unknown_key"] >= 2))
    })?;
    wait_until("both say what they know", || {
        let (calls, is_called) = (ingress.status()?, egress.status()?);
        let is_silent = calls.peers[0].problems.iter().any(|found| found.is(Problem::NoAnswer));
        Ok(is_silent && is_called.problems.iter().any(|found| found.is(Problem::UnknownPeer)))
    })?;
    ensure!(!is_up(ingress)? && !is_up(egress)?, "a session without knowing each other");
    let seen = sniffer.seen();
    ensure!(seen.iter().any(|datagram| datagram.from == INGRESS), "nothing was seen at all");
    let answers = seen.iter().filter(|datagram| datagram.from == EGRESS).count();
    ensure!(answers == 0, "{answers} answers to an unknown key");
    Ok(())
}

/// A line of a thread's status.
fn line<'t>(status: &'t str, key: &str) -> anyhow::Result<&'t str> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("no {key} in {status}"))?.trim())
}

/// Starts the egress with a name server at 127.0.0.1.
fn launch_with_silent_resolver(site: &Site) -> anyhow::Result<Process> {
    const SCRIPT: &str =
        "mount --bind \"$1\" /etc/resolv.conf && exec \"$2\" relay --config \"$3\"";
    let resolver = site.directory.join("resolv.conf");
    std::fs::write(&resolver, "nameserver 127.0.0.1\noptions timeout:30 attempts:2\n")?;
    let mut command = site.pair.egress.command("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(&resolver).arg(DWELL);
    command.arg(site.relays.egress.config());
    command.stderr(std::fs::File::create(site.directory.join("nobody.log"))?);
    Ok(Process::spawn(&mut command)?)
}

pub(super) fn privileges(lab: &mut Lab) -> anyhow::Result<()> {
    const NET_ADMIN: u64 = 1 << 12;
    // A codec that takes so long that the worker thread is needed.
    let settings = RelaySettings { codec: "zstd:19".to_owned(), ..keyed() };
    let mut site = Site::thin(lab, &settings)?;
    Web::start(&site, 40_000, 20_000)?.fetch_all(&site.pair.client)?;
    // One of them becomes somebody else.
    kill(site.relays.egress.process())?;
    for key in ["egress.key", "egress.toml"] {
        let file = site.directory.join("relays").join(key);
        std::os::unix::fs::chown(file, Some(65_534), Some(65_534))?;
    }
    edit(&site.relays.egress, &[("[node]\n", "[node]\nuser = \"nobody\"\n")])?;
    // Its peer's name is looked up as long as this lasts.
    edit(&site.relays.egress, &[(&format!("\"{INGRESS}\""), "\"ingress.invalid:7733\"")])?;
    let _silent = site.pair.egress.run(|| UdpSocket::bind("127.0.0.1:53"))??;
    let nobody = launch_with_silent_resolver(&site)?;
    wait_until("the relay of another user is up", || {
        Ok(is_up(&site.relays.ingress)?
            && site.relays.egress.status().is_ok()
            && is_up(&site.relays.egress)?)
    })?;
    for (pid, uid) in [(site.relays.ingress.process().id(), None), (nobody.id(), Some("65534"))] {
        let mut names = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            let status = std::fs::read_to_string(task.path().join("status"))?;
            let set = |key: &str| -> anyhow::Result<u64> {
                Ok(u64::from_str_radix(line(&status, key)?, 16)?)
            };
            names.push(line(&status, "Name")?.to_owned());
            // Only the thread that drives the relay changes routes and the interface.
            let is_main = task.file_name().to_string_lossy() == pid.to_string();
            let expected = if is_main { NET_ADMIN } else { 0 };
            ensure!(set("CapEff")? == expected, "{status}");
            ensure!(set("CapPrm")? == expected, "{status}");
            ensure!(set("CapInh")? == 0 && set("CapAmb")? == 0, "{status}");
            ensure!(set("CapBnd")? & !NET_ADMIN == 0, "{status}");
            ensure!(line(&status, "NoNewPrivs")? == "1", "{status}");
            ensure!(line(&status, "Seccomp")? == "2", "{status}");
            if let Some(uid) = uid {
                let all = line(&status, "Uid")?.split_whitespace().all(|id| id == uid);
                ensure!(all && line(&status, "Groups")?.is_empty(), "{status}");
            }
        }
        let looks_up = names.iter().any(|name| name == "dwell-resolve");
        ensure!(looks_up || uid.is_none(), "no name is being looked up: {names:?}");
        // Nobody but root may look into what is not dumpable.
        use std::os::unix::fs::MetadataExt as _;
        ensure!(std::fs::metadata(format!("/proc/{pid}/mem"))?.uid() == 0, "it can be dumped");
    }
    Ok(())
}
