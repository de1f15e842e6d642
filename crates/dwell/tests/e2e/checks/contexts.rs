//! Batches that refer to those before them, over a link that loses and reorders.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::{Rate, Rng};
use dwell_lab::LinkSpec;
use dwell_lab::emulator::Direction;
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_report::status::Status;

use crate::harness::Skip;
use crate::site::{DWELL, SERVERS, Site, balanced, is_up, wait_until};
use crate::web::Web;

/// Faster than the relays send, so that nothing is lost for lack of room.
const HEALTHY: &str = "rate 30mbit delay 10ms queue 500ms";
const BAD: &str = "rate 30mbit delay 10ms queue 500ms loss 1% reorder 1% duplicate 1%";

/// Some three seconds in contexts.
const FILE_BYTES: u64 = 8_000_000;

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

/// Either end is killed at moments that the seed draws, in the middle of downloads, and is away for as
/// long as the seed says. Each end decodes from the first batch of the new session on: no generation is lost,
/// and none begins from what is not there. The files come whole.
pub(super) fn restarts_at_random(lab: &mut Lab, seed: u64, times: u32) -> anyhow::Result<()> {
    let mut rng = Rng::from_seed(seed);
    let mut site = Site::emulated(lab, HEALTHY, &settings("host-pair", "host-pair"))?;
    let web = Web::start(&site, FILE_BYTES as usize, 1_000)?;
    for turn in 0..times {
        let mut download = web.begin(&site.pair.client, SERVERS[0], "text")?;
        download.reach(rng.below(FILE_BYTES / 2))?;
        let is_ingress = rng.chance(0.5);
        let before = site.statuses()?;
        let relays = &mut site.relays;
        let relay = if is_ingress { &mut relays.ingress } else { &mut relays.egress };
        relay.kill()?;
        std::thread::sleep(Duration::from_millis(rng.below(400)));
        relay.restart(None)?;
        wait_until("both are up", || {
            let relays = [&site.relays.ingress, &site.relays.egress];
            Ok(relays.into_iter().all(|relay| is_up(relay).unwrap_or(false)))
        })?;
        // What has not come by then comes by the new session.
        let old = if is_ingress { 0 } else { batches(&before) };
        wait_until("batches decode again", || Ok(batches(&site.statuses()?) > old))?;
        let after = site.statuses()?;
        download.finish()?;
        for (end, (before, after)) in before.iter().zip(&after).enumerate() {
            let is_new = is_ingress == (end == 0);
            nothing_lost((!is_new).then_some(before), after)
                .with_context(|| format!("restart {turn}, ingress killed: {is_ingress}"))?;
        }
    }
    Ok(())
}

/// The path of an earlier program `dwell`, if there is one to be tested beside today's.
const OLDER: &str = "DWELL_OLDER";

/// Either end is an earlier program, and is replaced by today's in the middle of a download: files come whole each time,
/// and in contexts. Only today's end is asked how it fares: what an earlier one says may have another form.
pub(super) fn older_program(lab: &mut Lab) -> anyhow::Result<()> {
    let Some(older) = std::env::var_os(OLDER).map(PathBuf::from) else {
        return Err(Skip(format!("{OLDER} names no earlier program")).into());
    };
    let mut site = Site::emulated(lab, HEALTHY, &settings("host-pair", "host-pair"))?;
    let web = Web::start(&site, FILE_BYTES as usize, 100_000)?;
    for is_ingress in [true, false] {
        change_program(&mut site, is_ingress, &older)?;
        wait_until_fetched(&site, &web)?;
        let before = of_contexts(&site, is_ingress)?;
        for turn in 0..2 {
            let mut download = web.begin(&site.pair.client, SERVERS[0], "text")?;
            if turn == 1 {
                download.reach(FILE_BYTES / 4)?;
                let with_older = of_contexts(&site, is_ingress)?;
                ensure!(with_older.0 > before.0 + 20, "{before:?}, then {with_older:?}");
                change_program(&mut site, is_ingress, Path::new(DWELL))?;
            }
            download.finish()?;
        }
        let after = of_contexts(&site, is_ingress)?;
        ensure!(after.1 == before.1, "damaged, or without base: {before:?}, then {after:?}");
        println!("older ingress {is_ingress}: {before:?}, then {after:?}");
    }
    Ok(())
}

/// Waits until a short file comes: the end that went on may not have missed the other one, and what an earlier one says of
/// itself may have another form.
fn wait_until_fetched(site: &Site, web: &Web) -> anyhow::Result<()> {
    wait_until("a file comes", || Ok(web.fetch(&site.pair.client, SERVERS[0], "random").is_ok()))
}

/// One of the relays is killed and is another program from then on.
fn change_program(site: &mut Site, is_ingress: bool, program: &Path) -> anyhow::Result<()> {
    let relays = &mut site.relays;
    let relay = if is_ingress { &mut relays.ingress } else { &mut relays.egress };
    relay.kill()?;
    relay.set_program(program.to_owned());
    Ok(relay.restart(None)?)
}

/// Batches in both directions, and what could not be decoded, at the other end than this one.
fn of_contexts(site: &Site, is_ingress: bool) -> anyhow::Result<(u64, u64)> {
    let relays = [&site.relays.ingress, &site.relays.egress];
    let status = relays[usize::from(is_ingress)].status()?;
    let (tx, rx) = (&status.peers[0].tx.contexts, &status.peers[0].rx.contexts);
    let dropped = ["no_base", "damaged"].map(|why| rx.dropped.get(why).copied().unwrap_or(0));
    Ok((tx.batches + rx.batches, dropped.iter().sum()))
}

/// Since `before`, or since the beginning, no generation was lost, nothing damaged.
fn nothing_lost(before: Option<&Status>, after: &Status) -> anyhow::Result<()> {
    let of = |status: &Status| {
        let rx = &status.peers[0].rx.contexts;
        let dropped = ["no_base", "damaged"].map(|why| rx.dropped.get(why).copied().unwrap_or(0));
        [rx.lost_generations, dropped[0], dropped[1]]
    };
    let before = before.map_or([0; 3], of);
    ensure!(of(after) == before, "{before:?}, then {:#?}", after.peers[0].rx.contexts);
    Ok(())
}

/// Batches that the ingress has decoded.
fn batches(statuses: &[Status; 2]) -> u64 {
    statuses[0].peers[0].rx.contexts.batches
}
