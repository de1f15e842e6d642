//! Others change a relay's routes: those that are removed come back, and those that lead past
//! the tunnel are named.

use std::process::Command;

use anyhow::{Context, ensure};
use dwell_lab::lab::{Host, Lab};
use dwell_lab::relays::Relay;
use dwell_report::status::PeerState;

use super::closed::{none_pass, refused};
use crate::harness::has_ipv6;
use crate::site::{self, DWELL, Site, edit, reload, tunnel_routes, wait_until};

/// Runs `ip` on a host; what can't be done need not be.
fn ip(host: &Host, arguments: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let _ = host.output("ip", &arguments);
}

/// All routes of the relay, those that refuse too.
fn all(host: &Host) -> anyhow::Result<Vec<String>> {
    let mut all = tunnel_routes(host)?;
    all.extend(refused(host)?);
    all.sort();
    Ok(all)
}

pub(super) fn come_back(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &site::settings())?;
    let host = &site.pair.ingress;
    let wanted = all(host)?;
    ensure!(wanted.len() == if has_ipv6() { 8 } else { 4 }, "{wanted:?}");
    let back = |what: &str| {
        wait_until(&format!("routes are back after {what}"), || Ok(all(host)? == wanted))
            .with_context(|| site.relays.ingress.log())
    };
    for what in [
        "route del 10.2.0.0/24 dev dwell0",
        "-6 route del fd00:2::/64 dev dwell0",
        "route del unreachable 10.2.0.0/24 metric 51",
        "route flush proto 77",
    ] {
        ip(host, what);
        back(what)?;
    }
    ensure!(site.relays.ingress.log().contains("removed the routes to 10.2.0.0/24"), "not logged");
    replaced(&site, &back)?;
    // Another program that insists: the relay does too, but neither works nor logs itself to death.
    for _ in 0..40 {
        ip(host, "route del 10.2.0.0/24 dev dwell0");
    }
    back("forty times")?;
    let complaints = site.relays.ingress.log().matches("removed the routes").count();
    ensure!(complaints < 20, "{complaints} complaints");
    // The kernel says nothing of the routes of an interface that is taken down.
    ip(host, "link set dwell0 down");
    none_pass(&site, "while the interface is down")?;
    wait_until("the status says that it is down", || {
        let problems = site.relays.ingress.status()?.problems;
        Ok(problems.iter().any(|problem| problem.problem == "interface_down"))
    })?;
    ip(host, "link set dwell0 up");
    back("the interface was down")?;
    wait_until("packets pass", || site.is_connected())?;
    wait_until("that is over", || Ok(site.relays.ingress.status()?.problems.is_empty()))
}

/// Another program's routes in the place of the relay's: the kernel reports only that they were added,
/// and later that routes of another program were removed.
fn replaced(site: &Site, back: &dyn Fn(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (host, relay) = (&site.pair.ingress, &site.relays.ingress);
    for (other, said) in [
        ("10.2.0.0/24 via 10.0.0.2 metric 50", "instead of the tunnel"),
        ("10.2.0.0/24 via 10.0.0.2 metric 51", "in the place of the unreachable one"),
    ] {
        ip(host, &format!("route replace {other}"));
        wait_until(&format!("{other} is named"), || Ok(detours(relay)?.contains(said)))
            .with_context(|| relay.log())?;
        ip(host, &format!("route del {other}"));
        back(other)?;
        wait_until("packets pass again", || site.is_connected())?;
        wait_until("that is over", || Ok(detours(relay)?.is_empty()))?;
    }
    // One that refuses as ours does, whose owner removes it later.
    ip(host, "route replace prohibit 10.2.0.0/24 metric 51");
    wait_until("it is there", || Ok(refused(host)?.iter().all(|it| it != "10.2.0.0/24")))?;
    ip(host, "route del prohibit 10.2.0.0/24 metric 51");
    back("another program's refusal")
}

/// Returns what a relay says of the path of its peer's packets; it is up all the time.
fn detours(relay: &Relay) -> anyhow::Result<String> {
    let status = relay.status()?;
    let peer = &status.peers[0];
    ensure!(peer.state == PeerState::Up, "{peer:#?}");
    let bypassed = peer.problems.iter().filter(|problem| problem.problem == "bypassed");
    Ok(bypassed.map(|problem| format!("{} {}\n", problem.why, problem.remedy)).collect())
}

/// Returns what `dwell check` says to the relay's configuration on its host.
fn check(host: &Host, relay: &Relay) -> anyhow::Result<String> {
    let mut command: Command = host.command(DWELL);
    let output = command.arg("check").arg(relay.config()).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(super) fn are_named_if_they_win(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let host = site.pair.ingress.clone();
    ensure!(check(&host, &site.relays.ingress)?.is_empty(), "it warns of nothing");
    for (routes, said) in [
        // Of the same prefix with a smaller metric; what is found is reported with its remedy.
        (&["10.2.0.0/24 via 10.0.0.2"][..], "its metric 0 is not larger"),
        (&["10.2.0.0/24 via 10.0.0.2 metric 20"], "write metric = 19 for \"other\""),
        // More specific ones that cover it.
        (&["10.2.0.0/25 via 10.0.0.2", "10.2.0.128/25 via 10.0.0.2"], "it is more specific"),
    ] {
        routes.iter().for_each(|route| ip(&host, &format!("route add {route}")));
        wait_until(&format!("{routes:?} is named"), || {
            Ok(detours(&site.relays.ingress)?.contains(said))
        })
        .with_context(|| site.relays.ingress.log())?;
        let checked = check(&host, &site.relays.ingress)?;
        ensure!(checked.contains(said), "check does not say \"{said}\": {checked}");
        routes.iter().for_each(|route| ip(&host, &format!("route del {route}")));
        wait_until("that is over", || Ok(detours(&site.relays.ingress)?.is_empty()))?;
    }
    // A part of a prefix may well be elsewhere.
    ip(&host, "route add 10.2.0.0/25 via 10.0.0.2");
    ensure!(check(&host, &site.relays.ingress)?.is_empty(), "a part is no detour");
    mistaken_prefixes(&mut site, &host)
}

/// Checks the mistakes of a configuration that stand beside good prefixes.
fn mistaken_prefixes(site: &mut Site, host: &Host) -> anyhow::Result<()> {
    ip(host, "route add default via 10.0.0.2");
    let mut present = "prefixes = [".to_owned();
    for (prefix, said) in [
        ("10.1.0.0/24", "is the network of an interface of this machine"),
        ("10.77.0.1/32", "is an address of this machine itself"),
        ("0.0.0.0/0", "[\"0.0.0.0/1\", \"128.0.0.0/1\"]"),
    ] {
        let wanted = format!("prefixes = [\"{prefix}\", ");
        edit(&site.relays.ingress, &[(&present, &wanted)])?;
        present = wanted;
        reload(&mut site.relays.ingress, "configuration taken")?;
        wait_until(&format!("{prefix} is named"), || {
            Ok(detours(&site.relays.ingress)?.contains(said))
        })
        .with_context(|| site.relays.ingress.log())?;
        let checked = check(host, &site.relays.ingress)?;
        ensure!(checked.contains(said), "check does not say \"{said}\": {checked}");
        ensure!(site.is_connected()?, "the other prefixes suffer");
    }
    // The peer's own address in the tunnel: its datagrams go round in circles.
    edit(&site.relays.ingress, &[(&present, "prefixes = [\"10.0.0.2/32\", ")])?;
    reload(&mut site.relays.ingress, "configuration taken")?;
    wait_until("the circle is named, with the way out of it", || {
        let status = site.relays.ingress.status()?;
        let mut problems = status.peers[0].problems.iter();
        let found = problems.find(|problem| problem.problem == "endpoint_in_tunnel");
        Ok(found.is_some_and(|problem| problem.remedy.contains("ip route add 10.0.0.2 dev thin0")))
    })
    .with_context(|| site.relays.ingress.log())
}
