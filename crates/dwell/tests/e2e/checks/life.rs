//! Starting, reloading, stopping, dying and coming back.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelaySettings, Relays};
use dwell_report::status::PeerState;
use rustix::process::Signal;

use crate::site::{
    self, DWELL, SERVERS, Site, balanced, edit, is_tunnelled, is_up, kill, launch, reload,
    tunnel_routes, wait_until,
};
use crate::web::Web;

const TO_SERVER: &str = "10.2.0.0/24";
const TO_CLIENT: &str = "10.1.0.0/24";

pub(super) fn bad_config(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    site.kill_both()?;
    let good = fs::read_to_string(site.relays.ingress.config())?;
    for (change, to, complaint) in [
        ("scheme = \"packet\"", "scheme = \"pocket\"", "pocket"),
        ("[node]", "[node", "bad.toml:3: this is not TOML"),
        ("rate = \"10000000bit\"", "rate = 10", "rate"),
        ("pair.psk", "none.psk", "none.psk"),
        ("offload = true", "ofload = true", "ofload"),
    ] {
        ensure!(good.contains(change), "{change} is not in {good}");
        let path = site.directory.join("bad.toml");
        fs::write(&path, good.replace(change, to))?;
        let mut command = site.pair.ingress.command(DWELL);
        let output = command.arg("relay").arg("--config").arg(&path).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
        ensure!(said.contains(complaint) && said.contains("bad.toml"), "{to}: {said}");
        ensure!(!has_tun(&site.pair.ingress), "{to}: a TUN is left");
    }
    Ok(())
}

fn has_tun(host: &dwell_lab::lab::Host) -> bool {
    host.output("ip", &["link", "show", "dwell0"]).is_ok()
}

/// With routes that are withdrawn while a peer is not up.
fn open() -> RelaySettings {
    RelaySettings { extra: "on_dead = \"open\"".to_owned(), ..site::settings() }
}

/// A relay alone that is open does no harm, and is joined by its peer whenever that comes.
pub(super) fn unreachable_peer(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &open())?;
    let web = Web::start(&site, 200_000, 100_000)?;
    site.kill_both()?;
    let config = site.relays.ingress.config().to_owned();
    let mut ingress = launch(&site.pair.ingress, &config, &site.directory.join("alone.log"))?;
    wait_until("the relay starts", || Ok(site.relays.ingress.status().is_ok()))?;
    web.fetch_all(&site.pair.client)?;
    let peer = &site.relays.ingress.status()?.peers[0];
    ensure!(peer.state != PeerState::Up, "up without a peer");
    ensure!(peer.tx.arrived.packets == 0, "something went into the tunnel: {peer:#?}");
    ensure!(tunnel_routes(&site.pair.ingress)?.is_empty(), "routes to nobody");
    ensure!(ingress.try_wait()?.is_none(), "the relay ended");
    let config = site.relays.egress.config().to_owned();
    let _egress = launch(&site.pair.egress, &config, &site.directory.join("late.log"))?;
    come_together(&site)?;
    web.fetch_all(&site.pair.client)?;
    let tx = &site.relays.ingress.status()?.peers[0].tx;
    ensure!(tx.sent.packets > 0, "the tunnel is not used: {tx:#?}");
    Ok(())
}

/// Both are up, and their routes are there.
pub(super) fn come_together(site: &Site) -> anyhow::Result<()> {
    let Relays { ingress, egress } = &site.relays;
    wait_until("the relays find each other", || {
        let alive = ingress.status().is_ok() && egress.status().is_ok();
        Ok(alive
            && is_up(ingress)?
            && is_up(egress)?
            && is_tunnelled(&site.pair.ingress, TO_SERVER)?
            && is_tunnelled(&site.pair.egress, TO_CLIENT)?)
    })
}

pub(super) fn reload_under_load(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings { scheme: "none".to_owned(), ..site::settings() };
    let mut site = Site::thin(lab, &settings)?;
    let web = Web::start(&site, 2_000_000, 1_000)?;
    let mut download = web.begin(&site.pair.client, SERVERS[0], "text")?;
    download.reach(200_000)?;
    let before = site.statuses()?;
    for relay in [&mut site.relays.egress, &mut site.relays.ingress] {
        let rate = ("rate = \"10000000bit\"", "rate = \"9mbit\"");
        let prefix = ("prefixes = [", "prefixes = [\"10.99.0.0/16\", ");
        edit(relay, &[("scheme = \"none\"", "scheme = \"packet\""), rate, prefix])?;
        reload(relay, "configuration taken")?;
    }
    let between = site.statuses()?;
    ensure!(download.bytes() < 2_000_000, "the download was over before the reload");
    // A configuration that can't be: the present one stays.
    let good = fs::read_to_string(site.relays.egress.config())?;
    fs::write(site.relays.egress.config(), "[node]\nrate = \"nonsense\"\n")?;
    reload(&mut site.relays.egress, "the old one stays")?;
    fs::write(site.relays.egress.config(), good)?;
    download.finish()?;
    let after = site.verify_lossless()?;
    for ((before, between), after) in before.iter().zip(&between).zip(&after) {
        let [before, between, after] = [before, between, after].map(|status| &status.peers[0]);
        let sent = [before, between, after].map(|peer| peer.tx.sent.packets);
        ensure!(sent.is_sorted(), "counters went back: {sent:?}");
        ensure!(between.scheme == "packet" && after.scheme == "packet", "{after:#?}");
        ensure!(after.rate_bps == Some(9_000_000), "{after:#?}");
    }
    ensure!(before[1].peers[0].tx.compressed.packets == 0, "compressed without being asked");
    ensure!(after[1].peers[0].tx.compressed.packets > 0, "not compressed after the reload");
    for (relay, host) in
        [(&site.relays.ingress, &site.pair.ingress), (&site.relays.egress, &site.pair.egress)]
    {
        ensure!(is_tunnelled(host, "10.99.0.0/16")?, "the new prefix has no route");
        let sessions = relay.log().matches("is up").count();
        ensure!(sessions <= 2, "the session was not kept: {}", relay.log());
    }
    Ok(())
}

pub(super) fn stop_under_load(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &open())?;
    let web = Web::start(&site, 1_000, 2_000_000)?;
    let mut download = web.begin(&site.pair.client, SERVERS[0], "random")?;
    download.reach(300_000)?;
    let socket = site.directory.join("relays/egress.sock");
    ensure!(socket.exists(), "no status socket");
    // The end that has a full queue.
    let relay = site.relays.egress.process();
    relay.signal(Signal::TERM)?;
    let Some(status) = relay.wait_timeout(Duration::from_secs(10))? else {
        bail!("SIGTERM does not stop the relay: {}", site.relays.egress.log())
    };
    ensure!(status.success(), "{status}: {}", site.relays.egress.log());
    ensure!(!has_tun(&site.pair.egress), "the TUN is left");
    ensure!(tunnel_routes(&site.pair.egress)?.is_empty(), "routes are left");
    ensure!(!socket.exists(), "the status socket is left");
    // It said that it goes: the other one need not wait for its patience to end.
    let ingress = &site.relays.ingress;
    wait_until("the other relay withdraws its routes", || {
        Ok(!is_up(ingress)? && tunnel_routes(&site.pair.ingress)?.is_empty())
    })?;
    ensure!(download.bytes() < 2_000_000, "the download was over too soon");
    download.finish()?;
    balanced(&ingress.status()?)?;
    ensure!(ingress.log().contains("other is down"), "{}", ingress.log());
    Ok(())
}

/// A relay dies without a word: the other one gives up on it, and the packets go the plain
/// way, until it is back.
pub(super) fn fail_open(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &open())?;
    impatient(&mut site)?;
    let web = Web::start(&site, 200_000, 3_000_000)?;
    let mut download = web.begin(&site.pair.client, SERVERS[0], "random")?;
    download.reach(300_000)?;
    kill(site.relays.egress.process())?;
    wait_until("the routes are withdrawn", || {
        Ok(!is_up(&site.relays.ingress)? && tunnel_routes(&site.pair.ingress)?.is_empty())
    })?;
    download.finish()?;
    ensure!(site.is_connected()?, "the plain way does not work");
    web.fetch_all(&site.pair.client)?;
    balanced(&site.relays.ingress.status()?)?;

    let config = site.relays.egress.config().to_owned();
    let _egress = launch(&site.pair.egress, &config, &site.directory.join("again.log"))?;
    come_together(&site)?;
    let sent = || Ok::<_, anyhow::Error>(site.relays.egress.status()?.peers[0].tx.sent.packets);
    let before = sent()?;
    web.fetch_all(&site.pair.client)?;
    ensure!(sent()? > before + 100, "the tunnel is not used again");
    site.settled()?.iter().try_for_each(balanced)
}

pub(super) fn fail_closed(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    impatient(&mut site)?;
    ensure!(site.is_connected()?, "no way through the tunnel");
    kill(site.relays.egress.process())?;
    // Somebody must want something: a silent peer owes nothing.
    wait_until("the peer is taken for dead", || {
        ensure!(!site.is_connected()?, "packets leave unprotected");
        Ok(!is_up(&site.relays.ingress)?)
    })?;
    ensure!(is_tunnelled(&site.pair.ingress, TO_SERVER)?, "the routes are withdrawn");
    ensure!(!site.is_connected()?, "packets leave unprotected");
    let status = site.relays.ingress.status()?;
    balanced(&status)?;
    let refused = status.peers[0].tx.send_errors["unconnected"];
    ensure!(refused > 0, "packets to nobody are not counted: {status:#?}");
    let config = site.relays.egress.config().to_owned();
    let _egress = launch(&site.pair.egress, &config, &site.directory.join("again.log"))?;
    come_together(&site)?;
    wait_until("the tunnel works again", || site.is_connected())
}

/// Lets both relays take a peer for dead after a second.
fn impatient(site: &mut Site) -> anyhow::Result<()> {
    for relay in [&mut site.relays.ingress, &mut site.relays.egress] {
        edit(relay, &[("offload = true", "offload = true\ndead_after = \"1s\"")])?;
        reload(relay, "configuration taken")?;
    }
    Ok(())
}

/// Somebody deletes the interface under the relay's hands.
pub(super) fn tun_deleted(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let web = Web::start(&site, 200_000, 2_000_000)?;
    let mut routes = tunnel_routes(&site.pair.ingress)?;
    routes.sort();
    for (host, relay) in [(&site.pair.ingress, 0), (&site.pair.egress, 1)] {
        let mut download = web.begin(&site.pair.client, SERVERS[0], "random")?;
        download.reach(300_000)?;
        host.output("ip", &["link", "del", "dwell0"])?;
        download.finish()?;
        let relay = [&site.relays.ingress, &site.relays.egress][relay];
        ensure!(relay.log().contains("was deleted"), "not noticed: {}", relay.log());
        wait_until("the interface is back", || Ok(has_tun(host)))?;
    }
    wait_until("the routes are back", || {
        let mut now = tunnel_routes(&site.pair.ingress)?;
        now.sort();
        Ok(now == routes)
    })
    .with_context(|| site.relays.ingress.log())?;
    for relay in [&mut site.relays.ingress, &mut site.relays.egress] {
        ensure!(relay.process().try_wait()?.is_none(), "the relay ended: {}", relay.log());
    }
    let before = site.statuses()?;
    web.fetch_all(&site.pair.client)?;
    let after = site.settled()?;
    for (before, after) in before.iter().zip(&after) {
        balanced(after)?;
        let [before, after] = [before, after].map(|s| (s.tun.rx_packets, s.tun.tx_packets));
        ensure!(after.0 > before.0 + 50 && after.1 > before.1 + 50, "the TUN is not used again");
    }
    Ok(())
}

/// Checks what an operator sees of two relays that work.
pub(super) fn commands(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let run = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = Command::new(DWELL).args(arguments).output()?;
        ensure!(output.status.success(), "dwell {arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let socket = site.directory.join("relays/ingress.sock").display().to_string();
    let config = site.relays.ingress.config().display().to_string();
    ensure!(
        run(&["status", "--socket", &socket])?.contains("other"),
        "the peer is not in the status"
    );
    let json: serde_json::Value =
        serde_json::from_str(&run(&["status", "--json", "--socket", &socket])?)?;
    ensure!(json["peers"][0]["state"] == "up", "{json:#}");
    run(&["check", &config])?;
    // A second relay with the same configuration does not disturb the first.
    let mut command = site.pair.ingress.command(DWELL);
    let second = command.args(["relay", "--config", &config]).output()?;
    ensure!(second.status.code() == Some(1), "two relays in one: {second:?}");
    ensure!(site.is_connected()? && is_up(&site.relays.ingress)?, "the first one is disturbed");
    let relay = &mut site.relays.ingress;
    relay.process().signal(Signal::USR1)?;
    wait_until("a report is logged", || Ok(relay.log().contains("bytes saved")))?;
    Ok(())
}
