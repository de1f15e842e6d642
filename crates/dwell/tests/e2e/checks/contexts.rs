//! Batches that refer to those before them, over a link that loses and reorders.

use anyhow::ensure;
use dwell_base::Rate;
use dwell_lab::LinkSpec;
use dwell_lab::emulator::Direction;
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_report::status::Status;

use crate::site::{Site, balanced, is_up, wait_until};
use crate::web::Web;

/// Faster than the relays send, so that nothing is lost for lack of room.
const HEALTHY: &str = "rate 30mbit delay 10ms queue 500ms";
const BAD: &str = "rate 30mbit delay 10ms queue 500ms loss 1% reorder 1% duplicate 1%";

fn settings(scheme: &str, history: &str) -> RelaySettings {
    RelaySettings {
        scheme: scheme.to_owned(),
        codec: "zstd:3".to_owned(),
        keyed: true,
        rate: RelayRate::Fixed(Rate::from_mbps(10)),
        extra: format!("history = \"{history}\""),
        ..RelaySettings::default()
    }
}

/// Files come whole over a bad link, and most of them in contexts.
pub(super) fn downloads(lab: &mut Lab, scheme: &str, history: &str) -> anyhow::Result<()> {
    let site = Site::emulated(lab, HEALTHY, &settings(scheme, history))?;
    let web = Web::start(&site, 2_000_000, 200_000)?;
    for (direction, seed) in [(Direction::There, 1), (Direction::Back, 2)] {
        site.link()?.set(direction, BAD.parse::<LinkSpec>()?.with_seed(seed));
    }
    web.fetch_all(&site.pair.client)?;
    for direction in [Direction::There, Direction::Back] {
        site.link()?.set(direction, HEALTHY.parse()?);
    }
    let [ingress, egress] = site.settled()?;
    for status in [&ingress, &egress] {
        balanced(status)?;
    }
    // The files come from the egress.
    let (tx, rx) = (&egress.peers[0].tx, &ingress.peers[0].rx);
    let (sent, came) = (&tx.contexts, &rx.contexts);
    ensure!(sent.batches > 100 && came.batches > 100, "{sent:#?}\n{came:#?}");
    ensure!(sent.bytes_in > 2 * sent.bytes_out, "nothing was gained: {sent:#?}");
    ensure!(came.gaps > 0, "nothing was lost: {came:#?}");
    ensure!(came.dropped["damaged"] == 0 && came.gaps_given_up <= came.gaps, "{came:#?}");
    let impossible = rx.malformed + rx.decode_failed + rx.not_allowed + rx.auth_failed;
    ensure!(impossible == 0, "damage got through: {rx:#?}");
    println!("{sent:?}\n{came:?}");
    Ok(())
}

/// Either end is killed in the middle of a download and comes back with nothing: what is downloaded
/// then comes in contexts again.
pub(super) fn restarts(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::emulated(lab, HEALTHY, &settings("host-pair", "host-pair"))?;
    let web = Web::start(&site, 1_000_000, 100_000)?;
    web.fetch_all(&site.pair.client)?;
    for ingress in [true, false] {
        let relays = &mut site.relays;
        let relay = if ingress { &mut relays.ingress } else { &mut relays.egress };
        relay.kill()?;
        relay.restart(None)?;
        wait_until("both are up", || {
            let relays = [&site.relays.ingress, &site.relays.egress];
            Ok(relays.into_iter().all(|relay| is_up(relay).unwrap_or(false)))
        })?;
        let before = batches(&site.statuses()?);
        web.fetch_all(&site.pair.client)?;
        let after = batches(&site.statuses()?);
        ensure!(after > before + 20, "no contexts after the restart: {before}, then {after}");
    }
    Ok(())
}

/// Batches that the ingress has decoded.
fn batches(statuses: &[Status; 2]) -> u64 {
    statuses[0].peers[0].rx.contexts.batches
}
