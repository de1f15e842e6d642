//! Faults in the middle of the work: traffic resumes without help, and nothing is altered.
//! `./x bench faults` measures how long it takes.

use std::time::Duration;

use anyhow::{Context, ensure};
use dwell_lab::lab::Lab;
use dwell_lab::relays::RelaySettings;
use dwell_testkit::faults::{Fault, FaultTiming, Trap};
use dwell_testkit::stream::{Spacing, Stream, StreamSpec};

use crate::harness::has_ipv6;
use crate::site::{self, SERVERS, Site, balanced, is_up, wait_until};
use crate::web::Web;

/// Faster than the relays send.
const LINK: &str = "rate 30mbit delay 3ms queue 500ms";
/// Longer than a relay waits for its peer.
const TIMING: FaultTiming =
    FaultTiming { restart: Duration::from_millis(300), outage: Duration::from_secs(7) };
const CALM: Duration = Duration::from_millis(500);

pub(super) fn survives(lab: &mut Lab, fault: Fault, keyed: bool) -> anyhow::Result<()> {
    let settings = RelaySettings { scheme: "edge".to_owned(), keyed, ..site::settings() };
    let mut site = Site::emulated(lab, LINK, &settings)?;
    let mut trap = Trap::set(lab, fault, TIMING, &mut site.relays)?;
    let web = Web::start(&site, 1_000, 6_000_000)?;
    let streams = streams(&site)?;
    let mut download = web.begin(&site.pair.client, SERVERS[0], "random")?;
    download.reach(300_000)?;
    let pids = pids(&mut site);
    let struck = trap.strike(&site.pair, &mut site.relays)?;
    let log = || format!("{}\n{}", site.relays.ingress.log(), site.relays.egress.log());
    wait_until("both directions carry packets again", || {
        Ok(streams.iter().all(|stream| stream.has_resumed_after(struck.cleared)))
    })
    .with_context(log)?;
    download.finish().with_context(log)?;
    let mut said = Vec::new();
    for stream in streams {
        let tally = stream.finish(CALM)?;
        ensure!(tally.altered == 0, "{} datagrams were altered", tally.altered);
        ensure!(tally.duplicates == 0, "{} datagrams came twice", tally.duplicates);
        said.push(format!("{} of {} lost", tally.lost(), tally.sent));
    }
    println!("{}", said.join(", "));
    aftermath(&mut site, fault, pids)
}

/// A stream each way: one over IPv6, if there is any.
fn streams(site: &Site) -> anyhow::Result<[Stream; 2]> {
    let (client, server) = (&site.pair.client, &site.pair.server);
    let there = if has_ipv6() { "[fd00:2::2]:9000" } else { "10.2.0.2:9000" };
    let spec = |to: &str| -> anyhow::Result<StreamSpec> {
        Ok(StreamSpec { to: to.parse()?, payload_bytes: 120, spacing: Spacing::Even(200.0) })
    };
    Ok([
        Stream::start(client, server, spec(there)?)?,
        Stream::start(server, client, spec("10.1.0.2:9000")?)?,
    ])
}

fn pids(site: &mut Site) -> [u32; 2] {
    [site.relays.ingress.process().id(), site.relays.egress.process().id()]
}

/// Both relays are as they should be after it.
fn aftermath(site: &mut Site, fault: Fault, before: [u32; 2]) -> anyhow::Result<()> {
    for status in site.settled()? {
        balanced(&status)?;
        let rx = &status.peers[0].rx;
        ensure!(rx.malformed + rx.decode_failed + rx.not_allowed == 0, "{rx:#?}");
    }
    ensure!(is_up(&site.relays.ingress)? && is_up(&site.relays.egress)?, "a relay is not up");
    for relay in [&mut site.relays.ingress, &mut site.relays.egress] {
        ensure!(relay.process().try_wait()?.is_none(), "a relay ended: {}", relay.log());
    }
    let after = pids(site);
    let expected = match fault {
        Fault::KillIngress => [after[0], before[1]],
        Fault::KillEgress => [before[0], after[1]],
        _ => before,
    };
    ensure!(after == expected, "a relay is another process: {before:?}, {after:?}");
    let [ingress, egress] = site.statuses()?;
    if fault == Fault::Address {
        let endpoint = egress.peers[0].endpoint.as_deref();
        ensure!(endpoint == Some("10.0.0.9:7733"), "the peer is at {endpoint:?}");
    }
    if fault == Fault::Reload {
        for peer in [&ingress.peers[0], &egress.peers[0]] {
            let taken = (peer.scheme.as_str(), peer.codec.as_str());
            ensure!(taken == ("edge", "zstd:3"), "the last configuration is not taken: {peer:#?}");
            ensure!(peer.rx.lost_datagrams == 0, "a reload loses datagrams: {:#?}", peer.rx);
        }
    }
    Ok(())
}
