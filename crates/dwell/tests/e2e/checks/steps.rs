//! A slow link behind a router, whose rate changes.

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_lab::lab::{Lab, Shape};
use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_report::status::PeerStatus;

use crate::site::{self, SERVERS, Site, wait_until};
use crate::web::Web;

/// The relays find a link that they don't feel, and its changes: what waits waits where it is
/// compressed.
pub(super) fn found(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings { rate: RelayRate::Auto, ..site::settings() };
    let site = Site::routed(lab, Rate::from_mbps(20), &settings)?;
    let web = Web::start(&site, 40_000_000, 1_000)?;
    let download = web.begin(&site.pair.client, SERVERS[0], "text")?;
    let router = site.pair.router.as_ref().context("there is a router")?;
    // A TCP that keeps queues short may leave none at 20 Mbit/s, so that there is nothing to find.
    for mbps in [5, 12] {
        router.shape(&Shape::new(Rate::from_mbps(mbps)))?;
        let compressed = sender(&site)?.tx.compressed.packets;
        let near = |bps: u64| bps.abs_diff(mbps * 1_000_000) < mbps * 150_000;
        wait_until(&format!("{mbps} Mbit/s are found"), || {
            let peer = sender(&site)?;
            let more = peer.tx.compressed.packets > compressed + 50;
            Ok(peer.bottleneck_bps.is_some_and(near) && more)
        })?;
    }
    drop(download);
    Ok(())
}

/// Without reports nothing waits in the relays, and nothing is compressed.
pub(super) fn not_found(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings { rate: RelayRate::Local, ..site::settings() };
    let site = Site::routed(lab, Rate::from_mbps(20), &settings)?;
    let web = Web::start(&site, 4_000_000, 1_000)?;
    web.fetch_all(&site.pair.client)?;
    let peer = sender(&site)?;
    ensure!(peer.bottleneck_bps.is_none(), "{peer:#?}");
    let share = peer.tx.compressed.packets * 100 / peer.tx.sent.packets.max(1);
    ensure!(share < 20, "{share} % were compressed: {:#?}", peer.tx);
    Ok(())
}

/// The relay in front of the server, which sends.
fn sender(site: &Site) -> anyhow::Result<PeerStatus> {
    site.relays.egress.status()?.peers.into_iter().next().context("it has a peer")
}
