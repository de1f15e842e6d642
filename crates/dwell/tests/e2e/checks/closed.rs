//! Nothing leaves past a tunnel that is closed: before its peer answers, and when a relay is dead.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::ensure;
use dwell_lab::lab::{Host, Lab};
use dwell_report::status::PeerState;
use rustix::process::Signal;

use super::life::come_together;
use crate::harness::has_ipv6;
use crate::site::{
    self, DWELL, Site, edit, is_tunnelled, kill, launch, reload, tunnel_routes, wait_until,
};

const TO_SERVER: &str = "10.2.0.0/24";
const MORE: &str = "10.99.0.0/16";
/// A datagram crosses the lab in less.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns whether the server's host gets a datagram of the client, over IPv4 and IPv6. A datagram needs
/// no answer, so that nothing but the way there counts.
fn passes(site: &Site) -> anyhow::Result<Vec<bool>> {
    let servers: &[&str] =
        if has_ipv6() { &["10.2.0.2:9999", "[fd00:2::2]:9999"] } else { &["10.2.0.2:9999"] };
    servers.iter().map(|server| arrives(&site.pair.client, &site.pair.server, server)).collect()
}

fn arrives(from: &Host, to: &Host, at: &str) -> anyhow::Result<bool> {
    let at: SocketAddr = at.parse()?;
    let receiver = to.run(|| UdpSocket::bind(at))??;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = from.run(|| UdpSocket::bind(any))??;
    // An unreachable route may have been reported for the datagram before.
    let _ = sender.send_to(b"in the clear", at);
    let _ = sender.send_to(b"in the clear", at);
    match receiver.recv(&mut [0; 64]) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn none_pass(site: &Site, when: &str) -> anyhow::Result<()> {
    let passed = passes(site)?;
    ensure!(!passed.contains(&true), "datagrams leave in the clear {when}: {passed:?}");
    Ok(())
}

/// Prefixes whose packets a host refuses on behalf of a relay.
pub(super) fn refused(host: &Host) -> anyhow::Result<Vec<String>> {
    let mut prefixes = Vec::new();
    for family in ["-4", "-6"] {
        let text = host.output("ip", &[family, "route", "show", "proto", "77"])?;
        let of_line = |line: &str| {
            let prefix = line.strip_prefix("unreachable ")?.split(' ').next()?;
            line.contains("metric 51").then(|| prefix.to_owned())
        };
        prefixes.extend(text.lines().filter_map(of_line));
    }
    prefixes.sort();
    Ok(prefixes)
}

/// With the default settings and a peer that isn't there.
pub(super) fn while_connecting(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    site.relays.stop()?;
    ensure!(passes(&site)?.iter().all(|passed| *passed), "there is no plain way to close");
    let config = site.relays.ingress.config().to_owned();
    let _ingress = launch(&site.pair.ingress, &config, &site.directory.join("alone.log"))?;
    wait_until("the relay starts", || {
        Ok(site.relays.ingress.status().is_ok() && is_tunnelled(&site.pair.ingress, TO_SERVER)?)
    })?;
    none_pass(&site, "while the peer is only connecting")?;
    let peer = &site.relays.ingress.status()?.peers[0];
    ensure!(peer.state != PeerState::Up, "up without a peer");
    ensure!(peer.tx.send_errors["unconnected"] > 0, "nothing came to the relay: {peer:#?}");
    let config = site.relays.egress.config().to_owned();
    let _egress = launch(&site.pair.egress, &config, &site.directory.join("late.log"))?;
    come_together(&site)?;
    wait_until("the tunnel works", || Ok(passes(&site)?.iter().all(|passed| *passed)))
}

/// SIGKILL takes the interface and its routes along: nothing passes all the same, until the relay
/// is back or was stopped in an orderly way.
pub(super) fn while_dead(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let host = site.pair.ingress.clone();
    let prefixes = refused(&host)?;
    ensure!(prefixes.len() == if has_ipv6() { 4 } else { 2 }, "{prefixes:?}");
    reload_prefixes(&mut site)?;

    kill(site.relays.ingress.process())?;
    ensure!(tunnel_routes(&host)?.is_empty(), "the interface outlives its relay");
    ensure!(refused(&host)?.len() == prefixes.len() + 1, "{:?}", refused(&host)?);
    none_pass(&site, "while the relay is dead")?;
    // What the next run does not have any more is removed by it.
    edit(&site.relays.ingress, &[(&format!("\"{MORE}\", "), "")])?;
    let config = site.relays.ingress.config().to_owned();
    let log = site.directory.join("again.log");
    let mut again = launch(&host, &config, &log)?;
    come_together(&site)?;
    let said = std::fs::read_to_string(&log)?;
    ensure!(said.contains("unreachable routes behind"), "not taken over: {said}");
    ensure!(refused(&host)? == prefixes, "{:?} instead of {prefixes:?}", refused(&host)?);
    wait_until("the tunnel works again", || site.is_connected())?;

    // A second one by mistake: what the first one needs stays.
    let mut command = host.command(DWELL);
    let second = command.args(["relay", "--config"]).arg(&config).output()?;
    ensure!(second.status.code() == Some(1), "two relays in one: {second:?}");
    ensure!(refused(&host)? == prefixes, "the second one removed {:?}", refused(&host)?);

    // Stopped in an orderly way they leave nothing, and packets go the plain way.
    again.signal(Signal::TERM)?;
    ensure!(again.wait_timeout(Duration::from_secs(10))?.is_some(), "SIGTERM does not stop it");
    site.relays.egress.process().stop()?;
    for host in [&site.pair.ingress, &site.pair.egress] {
        ensure!(refused(host)?.is_empty(), "routes are left: {:?}", refused(host)?);
    }
    ensure!(passes(&site)?.iter().all(|passed| *passed), "an orderly stop leaves a way closed");
    Ok(())
}

/// Unreachable routes follow the configuration.
fn reload_prefixes(site: &mut Site) -> anyhow::Result<()> {
    let host = site.pair.ingress.clone();
    let relay = &mut site.relays.ingress;
    let more = format!("prefixes = [\"{MORE}\", ");
    let is_there = |host: &Host| Ok::<_, anyhow::Error>(refused(host)?.iter().any(|p| p == MORE));
    edit(relay, &[("prefixes = [", &more)])?;
    reload(relay, "configuration taken")?;
    ensure!(is_there(&host)?, "a new prefix is not closed");
    edit(relay, &[(&more, "prefixes = [")])?;
    reload(relay, "configuration taken")?;
    ensure!(!is_there(&host)?, "a prefix that is gone is still closed");
    edit(relay, &[("prefixes = [", &more), ("[defaults]", "[defaults]\non_dead = \"open\"")])?;
    reload(relay, "configuration taken")?;
    ensure!(refused(&host)?.is_empty(), "closed though open: {:?}", refused(&host)?);
    edit(relay, &[("on_dead = \"open\"", "on_dead = \"closed\"")])?;
    reload(relay, "configuration taken")?;
    ensure!(is_there(&host)?, "not closed again: {}", relay.log());
    Ok(())
}
