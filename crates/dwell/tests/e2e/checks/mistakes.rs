//! Usual mistakes: each ends in a sentence with the remedy, wherever somebody may look
//! (docs/troubleshooting.md has the table).

use std::process::Command;

use anyhow::{Context, ensure};
use dwell_lab::lab::Lab;
use dwell_lab::relays::RelaySettings;
use serde_json::Value;

use crate::harness::require;
use crate::site::{self, DWELL, Site, edit, is_up, kill, launch, reload, wait_until};

/// Two relays that know each other's public keys, with a page each.
pub(super) fn site(lab: &mut Lab) -> anyhow::Result<Site> {
    let extra = "\n[web]\nlisten = \"127.0.0.1:7780\"\n".to_owned();
    Site::thin(lab, &RelaySettings { extra, keyed: true, ..site::settings() })
}

/// What `dwell` says here, on both outputs.
fn said(command: &mut Command) -> anyhow::Result<(Option<i32>, String)> {
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

fn status_of(site: &Site) -> anyhow::Result<String> {
    let socket = site.relays.ingress.status_path();
    Ok(said(site.pair.ingress.command(DWELL).arg("status").arg("--socket").arg(socket))?.1)
}

/// What the ingress' page is sent first.
pub(super) fn page_of(site: &Site) -> anyhow::Result<Value> {
    let mut command = site.pair.ingress.command("curl");
    // The stream has no end: curl gives up.
    command.args(["-sN", "--max-time", "2", "http://127.0.0.1:7780/live"]);
    let live = String::from_utf8(command.output()?.stdout)?;
    let first = live.lines().find_map(|line| line.strip_prefix("data: "));
    Ok(serde_json::from_str(first.with_context(|| format!("no message: {live}"))?)?)
}

/// A relay that runs is given a file that can't be: what is wrong with it, and what helps, stands in the log, in the
/// status and on the page, until the file is mended; and the tunnel stays.
pub(super) fn refused_files(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["curl"])?;
    let mut site = site(lab)?;
    let config = site.relays.ingress.config().to_owned();
    let good = std::fs::read_to_string(&config)?;
    let line = |key: &str| -> anyhow::Result<String> {
        let found = good.lines().find(|line| line.starts_with(&format!("{key} = ")));
        Ok(found.with_context(|| format!("no {key} in {good}"))?.to_owned())
    };
    let prefixes = line("prefixes")?;
    let own = said(Command::new(DWELL).arg("pubkey").arg(config.with_file_name("ingress.key")))?.1;
    // What follows the prefixes is the other's then.
    let other = format!(
        "{prefixes}\npublic_key = \"Zy1j6hgjOc1uUhu4QmS0vhSUWhTHrsZ7vRriz3r2V2o=\"\n[[peer]]\nname = \"site-c\"\n{prefixes}"
    );
    for (line, changed, remedy) in [
        (line("rate")?, "rate = \"250KB\"".to_owned(), "write \"250kbit\" for bits per second, or"),
        (
            line("public_key")?,
            format!("public_key = \"{}\"", own.trim()),
            "this is the node's own key: write the one that `dwell pubkey` prints at the peer",
        ),
        (prefixes.clone(), other, "already: a prefix can have one peer only"),
        (
            line("endpoint")?,
            "endpoint = \"[2001:db8:b::20]:7733\"".to_owned(),
            "listen on an IPv6 address, for instance listen = \"[::]:7733\" under [node]",
        ),
    ] {
        edit(&site.relays.ingress, &[(&line, &changed)])?;
        let (code, checked) = said(Command::new(DWELL).arg("check").arg(&config))?;
        ensure!(code == Some(1) && checked.contains(remedy), "check, {changed}: {checked}");
        reload(&mut site.relays.ingress, "the old one stays")?;
        let log = site.relays.ingress.log();
        ensure!(log.contains(remedy), "log, {changed}: {log}");
        let status = status_of(&site)?;
        ensure!(
            status.contains("the configuration file was refused") && status.contains(remedy),
            "status, {changed}: {status}"
        );
        let page = page_of(&site)?;
        let about = page["configuration"].as_str().unwrap_or_default();
        ensure!(about.contains(remedy), "page, {changed}: {page:#}");
        std::fs::write(&config, &good)?;
        reload(&mut site.relays.ingress, "configuration taken")?;
        ensure!(page_of(&site)?["configuration"].is_null(), "it is mended");
        ensure!(is_up(&site.relays.ingress)?, "the tunnel does not stay");
    }
    Ok(())
}

/// What would keep a relay from starting: `check` says it, though the file is valid, in the words of `relay`.
pub(super) fn obstacles(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["setpriv"])?;
    let mut site = site(lab)?;
    let config = site.relays.ingress.config().to_owned();
    let host = site.pair.ingress.clone();
    let with = |prefix: &[&str], command: &str| {
        let words = ["timeout", "10", DWELL, command];
        let mut all = prefix.iter().chain(&words).copied();
        let mut it = host.command(all.next().unwrap_or(DWELL));
        it.args(all);
        if command == "relay" {
            it.arg("--config");
        }
        said(it.arg(&config))
    };
    let (code, checked) = with(&[], "check")?;
    ensure!(code == Some(0) && !checked.contains("CAP_NET_ADMIN"), "while it runs: {checked}");
    ensure!(!checked.contains("cannot create"), "its own interface is no obstacle: {checked}");
    site.kill_both()?;
    let (code, checked) = with(&[], "check")?;
    ensure!(code == Some(0) && !checked.contains("on this machine"), "nothing: {checked}");

    let without = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    let remedy = "needs CAP_NET_ADMIN: run as root, or give it to the program";
    let (code, checked) = with(&without, "check")?;
    ensure!(code == Some(0) && checked.contains("on this machine"), "the file is valid: {checked}");
    ensure!(checked.contains(remedy), "{checked}");
    let (code, ran) = with(&without, "relay")?;
    ensure!(code == Some(1) && ran.contains(remedy), "{ran}");

    host.output("ip", &["link", "add", "dwell0", "type", "veth", "peer", "name", "other0"])?;
    let remedy = "choose another name for \"tun\" in [node], or remove that interface (ip link delete dwell0)";
    let (code, checked) = with(&[], "check")?;
    ensure!(code == Some(0) && checked.contains("on this machine"), "the file is valid: {checked}");
    ensure!(checked.contains(remedy), "{checked}");
    let (code, ran) = with(&[], "relay")?;
    ensure!(code == Some(1) && ran.contains(remedy), "{ran}");
    Ok(())
}

/// One end is restarted: nothing helps or has to, but the other end says that it was so.
pub(super) fn restarted(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["curl"])?;
    let mut site = site(lab)?;
    kill(site.relays.egress.process())?;
    let config = site.relays.egress.config().to_owned();
    let _again = launch(&site.pair.egress, &config, &site.directory.join("again.log"))?;
    let words = "other began again: it was restarted";
    wait_until("the restart is noticed", || Ok(site.relays.ingress.log().contains(words)))
        .with_context(|| site.relays.ingress.log())?;
    let status = status_of(&site)?;
    let lately = status.split("\nlately:\n").nth(1).with_context(|| status.clone())?;
    ensure!(lately.contains(&format!(" ago: {words}")), "{status}");
    let page = page_of(&site)?;
    let events = page["events"].as_array().context("no events")?;
    let is_it = |event: &Value| event["text"].as_str().is_some_and(|text| text.contains(words));
    ensure!(events.iter().any(is_it), "{page:#}");
    Ok(())
}
