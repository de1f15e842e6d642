//! Every scheme that a relay can run, over a link that loses, doubles, reorders and damages.

use std::time::Duration;

use anyhow::ensure;
use dwell_base::Rate;
use dwell_lab::LinkSpec;
use dwell_lab::emulator::Direction;
use dwell_lab::lab::{Lab, Process};

use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_relay::config::SCHEMES;
use dwell_testkit::stream::{Spacing, Stream, StreamSpec};
use rustix::process::Signal;

use crate::harness::has_ipv6;
use crate::site::{DWELL, PATIENCE, Site, balanced, edit, is_up, wait_until};
use crate::web::Web;

/// Faster than the relays send, so that nothing is lost for lack of room.
const HEALTHY: &str = "rate 30mbit delay 3ms queue 500ms";
const BAD: &str = "rate 30mbit delay 3ms queue 500ms loss 1% reorder 2% duplicate 1% corrupt 0.5%";
/// The classes whose packets may be held back; other schemes don't look at them.
const CLASSES: &str = "\n\n[[class]]\nname = \"patient\"\nports = [\"udp/9000-9004\"]\n\
    max_wait = \"100ms\"\n\n[[class]]\nname = \"urgent\"\nports = [\"udp/9005-9009\"]\n\
    max_wait = \"30ms\"";
/// The checks are called so, and by the scheme.
const PREFIX: &str = "a_bad_link_with_";

/// No scheme has been forgotten.
pub(super) fn all_are_there(_: &mut Lab) -> anyhow::Result<()> {
    for scheme in SCHEMES {
        let name = format!("{PREFIX}{}", scheme.replace(['-', '+'], "_"));
        let is_there = super::ALL.iter().any(|(known, _)| *known == name);
        ensure!(is_there, "there is no check {name}");
    }
    Ok(())
}

pub(super) fn over_a_bad_link(lab: &mut Lab, scheme: &str) -> anyhow::Result<()> {
    let settings = RelaySettings {
        scheme: scheme.to_owned(),
        keyed: true,
        rate: RelayRate::Fixed(Rate::from_mbps(5)),
        extra: CLASSES.to_owned(),
        ..RelaySettings::default()
    };
    // What comes before the first packets shall not take long.
    let site = Site::emulated(lab, HEALTHY, &settings)?;
    let web = Web::start(&site, 200_000, 100_000)?;
    let set = |spec: &str| -> anyhow::Result<()> {
        for (direction, seed) in [(Direction::There, 1), (Direction::Back, 2)] {
            site.link()?.set(direction, spec.parse::<LinkSpec>()?.with_seed(seed));
        }
        Ok(())
    };
    set(BAD)?;
    let streams = streams(&site)?;
    web.fetch_all(&site.pair.client)?;
    set(HEALTHY)?;
    for stream in streams {
        let tally = stream.finish(Duration::from_millis(500))?;
        ensure!(tally.altered == 0, "{} datagrams were altered", tally.altered);
        ensure!(tally.duplicates == 0, "{} datagrams came twice", tally.duplicates);
        // At most 2 % are lost on the link, but perhaps many at once.
        ensure!(tally.lost() < tally.sent / 4, "{} of {} lost", tally.lost(), tally.sent);
    }
    verify(&site, scheme)
}

/// Repeats the decisions of real relays' cores from their journals.
pub(super) fn decisions_are_repeated(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings {
        rate: RelayRate::Fixed(Rate::from_mbps(5)),
        extra: CLASSES.to_owned(),
        ..RelaySettings::default()
    };
    let mut site = Site::emulated(lab, HEALTHY, &settings)?;
    let web = Web::start(&site, 200_000, 100_000)?;
    let mut before = "packet".to_owned();
    for scheme in ["packet", "edge", "chutq-dcf+cea"] {
        let directory = site.directory.join(scheme);
        for relay in [&mut site.relays.ingress, &mut site.relays.egress] {
            stop(relay.process())?;
            let schemes = [&before, scheme].map(|name| format!("scheme = \"{name}\""));
            edit(relay, &[(schemes[0].as_str(), schemes[1].as_str())])?;
            relay.keep_journals(directory.join(relay.name()));
            relay.restart(None)?;
        }
        scheme.clone_into(&mut before);
        wait_until("both are up", || {
            let relays = [&site.relays.ingress, &site.relays.egress];
            Ok(relays.into_iter().all(|relay| is_up(relay).unwrap_or(false)))
        })?;
        let streams = streams(&site)?;
        web.fetch_all(&site.pair.client)?;
        for stream in streams {
            stream.finish(Duration::from_millis(500))?;
        }
        for relay in [&mut site.relays.ingress, &mut site.relays.egress] {
            stop(relay.process())?;
            let mut command = std::process::Command::new(DWELL);
            command.args(["sim", "journal", "--json"]);
            for file in std::fs::read_dir(directory.join(relay.name()))? {
                command.arg(file?.path());
            }
            let output = command.output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{scheme}: {error}");
            let repeated: serde_json::Value = serde_json::from_str(text.trim())?;
            ensure!(repeated["actions"].as_u64() > Some(100), "{scheme}: {text}");
            println!("{scheme}: {}", text.trim());
            relay.restart(None)?;
        }
    }
    Ok(())
}

fn stop(process: &mut Process) -> anyhow::Result<()> {
    process.signal(Signal::TERM)?;
    ensure!(process.wait_timeout(PATIENCE)?.is_some(), "it does not stop");
    Ok(())
}

/// Small datagrams of both classes each way, half of them over IPv6, if there is any.
fn streams(site: &Site) -> anyhow::Result<Vec<Stream>> {
    let (client, server) = (&site.pair.client, &site.pair.server);
    let mut ways = vec![(client, server, "10.2.0.2"), (server, client, "10.1.0.2")];
    if has_ipv6() {
        ways.extend([(client, server, "[fd00:2::2]"), (server, client, "[fd00:1::2]")]);
    }
    let mut streams = Vec::new();
    for (number, (from, to, address)) in ways.into_iter().enumerate() {
        let family = number as u16 / 2;
        for (port, per_second) in [(9000 + family, 150.0), (9005 + family, 80.0)] {
            let spec = StreamSpec {
                to: format!("{address}:{port}").parse()?,
                payload_bytes: 90,
                spacing: Spacing::Poisson(per_second, u64::from(port)),
            };
            streams.push(Stream::start(from, to, spec)?);
        }
    }
    Ok(streams)
}

fn verify(site: &Site, scheme: &str) -> anyhow::Result<()> {
    let settled = site.settled()?;
    for (from, to) in [(0, 1), (1, 0)] {
        balanced(&settled[from])?;
        let (tx, rx) = (&settled[from].peers[0].tx, &settled[to].peers[0].rx);
        let what = || format!("{tx:#?}\n{rx:#?}");
        let impossible = rx.malformed + rx.decode_failed + rx.not_allowed + rx.auth_failed;
        ensure!(impossible == 0, "damage got through: {}", what());
        ensure!(rx.packets.packets <= tx.sent.packets, "packets out of nothing: {}", what());
        ensure!(rx.raw + rx.compressed == rx.packets.packets, "rx does not add up: {}", what());
        let written = settled[to].tun.tx_packets + settled[to].drops["tun_refused"];
        ensure!(written == rx.packets.packets, "the TUN got {written}: {}", what());
    }
    let stats = site.link()?.stats();
    for link in [stats.there, stats.back] {
        ensure!(link.dropped_loss > 0 && link.duplicated > 0, "the link was good: {link}");
    }
    // The servers' relay has most to send, and the longer queue.
    let tx = &settled[1].peers[0].tx;
    let fills = ["basicq", "chumq", "chutq"].iter().any(|family| scheme.starts_with(family));
    if fills {
        ensure!(tx.frames < tx.sent.packets, "no datagram held several packets: {tx:#?}");
    } else if scheme != "none" {
        ensure!(tx.compressed.packets > 0, "nothing was compressed: {tx:#?}");
    }
    if ["flow", "service", "host-pair", "edge"].contains(&scheme) {
        ensure!(
            settled[0].peers[0].rx.blocks > 0,
            "no block arrived: {:#?}",
            settled[0].peers[0].rx
        );
    }
    println!("{} of {} compressed, {} frames", tx.compressed.packets, tx.sent.packets, tx.frames);
    Ok(())
}
