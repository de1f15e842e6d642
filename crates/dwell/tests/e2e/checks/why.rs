//! The reasons that a relay gives for a peer that does not answer, and for a path that swallows packets.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use dwell_lab::lab::Lab;
use dwell_report::status::{PeerStatus, Problem};

use super::mistakes;
use crate::harness::require;
use crate::site::{self, DWELL, SERVERS, Site, is_up, kill, launch, wait_until};

/// Returns true if a peer has this problem.
fn has(peer: &PeerStatus, problem: Problem) -> bool {
    peer.problems.iter().any(|found| found.is(problem))
}

/// Nobody listens at the other end, as if a router had the port and forwarded nothing: its kernel says so, and so does
/// the relay, in all places.
pub(super) fn closed_port(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["curl"])?;
    let mut site = mistakes::site(lab)?;
    site.kill_both()?;
    let log = site.directory.join("alone.log");
    let _ingress = launch(&site.pair.ingress, site.relays.ingress.config(), &log)?;
    let ingress = &site.relays.ingress;
    wait_until("the relay starts", || Ok(ingress.status().is_ok()))?;
    wait_until("the closed port is named", || {
        Ok(has(&ingress.status()?.peers[0], Problem::PortClosed))
    })
    .with_context(|| format!("{:#?}", ingress.status()))?;
    let socket = site.directory.join("relays/ingress.sock");
    let shown = Command::new(DWELL).args(["status", "--socket"]).arg(&socket).output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for part in ["port_closed for", "10.0.0.2:7733", "Start the relay there"] {
        ensure!(shown.contains(part), "{part} is not in {shown}");
    }
    let forward = "have it forward this UDP port";
    ensure!(shown.contains(forward) && fs::read_to_string(&log)?.contains(forward), "{shown}");
    let page = mistakes::page_of(&site)?;
    let problem = &page["peers"][0]["problems"][0];
    ensure!(problem["problem"] == "port_closed", "{page:#}");
    ensure!(problem["remedy"].as_str().is_some_and(|text| text.contains(forward)), "{page:#}");
    let late = site.directory.join("late.log");
    let _egress = launch(&site.pair.egress, site.relays.egress.config(), &late)?;
    wait_until("the relays find each other", || is_up(ingress))?;
    ensure!(ingress.status()?.peers[0].problems.is_empty(), "{:#?}", ingress.status()?.peers);
    let said = fs::read_to_string(&log)?;
    let count = |text: &str| said.matches(text).count();
    ensure!(count("port_closed: Nobody listens") == 1, "one warning: {said}");
    ensure!(count("port_closed is over") == 1, "{said}");
    Ok(())
}

/// A firewall drops long packets, and nobody says so.
pub(super) fn black_hole(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["nft"])?;
    let mut site = Site::thin(lab, &site::settings())?;
    let rules = site.directory.join("rules.nft");
    let text = "table inet swallow {\n chain arriving {\n  type filter hook prerouting priority raw;\n  \
                udp dport 7733 meta length > 1400 drop\n }\n}\n";
    fs::write(&rules, text)?;
    let loaded = site.pair.egress.command("nft").arg("-f").arg(&rules).output()?;
    ensure!(loaded.status.success(), "nft: {loaded:?}");
    kill(site.relays.ingress.process())?;
    let log = site.directory.join("again.log");
    let _again = launch(&site.pair.ingress, site.relays.ingress.config(), &log)?;
    let ingress = &site.relays.ingress;
    wait_until("the relay starts", || Ok(ingress.status().is_ok()))?;
    let peer = || Ok::<_, anyhow::Error>(ingress.status()?.peers.remove(0));
    wait_until("the path is called narrow", || Ok(has(&peer()?, Problem::PathMtu)))
        .with_context(|| format!("{:#?}", ingress.status()))?;
    wait_until("what passes is known", || {
        Ok(!peer()?.problems.iter().any(|found| found.why.contains("For now")))
    })?;
    // IPv4 and UDP take 28 of the 1400 bytes, the sealed datagram and its record 24.
    let mtu = peer()?.mtu;
    ensure!((1_344..=1_348).contains(&mtu), "an MTU of {mtu}: {:#?}", peer()?);
    ensure!(ingress.status()?.tun.mtu == mtu, "the interface has another MTU");
    let full = (mtu - 28).to_string();
    let (summary, said) = site.ping(&["-c", "3", "-W", "2", "-s", &full, SERVERS[0]])?;
    ensure!(!summary.replies.is_empty(), "full packets do not pass: {said}");
    let said = fs::read_to_string(&log)?;
    ensure!(said.matches("path_mtu: Datagrams of").count() == 1, "one warning: {said}");
    ensure!(
        site.relays.egress.status()?.peers[0].problems.is_empty(),
        "the way back takes everything: {:#?}",
        site.relays.egress.status()?.peers
    );
    Ok(())
}
