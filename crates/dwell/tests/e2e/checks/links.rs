//! Links that lose, double, reorder and damage.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use dwell_base::Rate;
use dwell_lab::emulator::Direction;
use dwell_lab::lab::{Lab, Process};
use dwell_lab::link::LinkStats;
use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_report::status::{RecentLoss, RxStatus};

use crate::site::{self, SERVERS, Site, balanced, wait_until};
use crate::web::Web;

/// Faster than the relays send, so that nothing is lost for lack of room.
const HEALTHY: &str = "rate 30mbit delay 3ms queue 500ms";
const BAD: &str = "rate 30mbit delay 3ms queue 500ms loss 1% reorder 2% duplicate 1% corrupt 0.5%";
/// The time after which a datagram is lost: 4 s, and some more.
const LOST_AFTER: Duration = Duration::from_millis(4_500);
/// Loses four in ten, and nothing else.
const LOSSY: &str = "delay 5ms loss 40%";

pub(super) fn bad_link(lab: &mut Lab, sealed: bool) -> anyhow::Result<()> {
    let rate = RelayRate::Fixed(Rate::from_mbps(20));
    let settings = RelaySettings { sealed, rate, ..site::settings() };
    // The handshake, and what hosts ask each other first, shall not count.
    let site = Site::emulated(lab, HEALTHY, &settings)?;
    let web = Web::start(&site, 400_000, 400_000)?;
    for (direction, seed) in [(Direction::There, 1), (Direction::Back, 2)] {
        site.link()?.set(direction, BAD.parse::<dwell_lab::LinkSpec>()?.with_seed(seed));
    }
    web.fetch_all(&site.pair.client)?;
    for direction in [Direction::There, Direction::Back] {
        site.link()?.set(direction, HEALTHY.parse()?);
    }
    site.settled()?;
    // What comes last shows what is missing before it.
    site.ping(&["-c", "5", "-i", "0.05", "-W", "2", SERVERS[0]])?;
    std::thread::sleep(LOST_AFTER);
    let [ingress, egress] = site.settled()?;
    balanced(&ingress)?;
    balanced(&egress)?;
    let stats = site.link()?.stats();
    // The other direction has acknowledgements only: too few for one in two hundred to be sure.
    ensure!(stats.back.corrupted > 0, "nothing was damaged: {}", stats.back);
    verify(&ingress.peers[0].rx, &stats.back)?;
    verify(&egress.peers[0].rx, &stats.there)?;
    println!("{}", stats.back);
    Ok(())
}

/// 0 % was reported for minutes while four in ten were lost. Status, metrics and the peer's reports say the
/// same.
pub(super) fn loss(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings {
        extra: "[metrics]\nlisten = \"127.0.0.1:9478\"".into(),
        ..site::settings()
    };
    let site = Site::emulated(lab, "delay 5ms", &settings)?;
    for (direction, seed) in [(Direction::There, 1), (Direction::Back, 2)] {
        site.link()?.set(direction, LOSSY.parse::<dwell_lab::LinkSpec>()?.with_seed(seed));
    }
    let mut pings = site.pair.client.command("ping");
    pings.args(["-n", "-q", "-i", "0.02", SERVERS[0]]).stdout(Stdio::null());
    let _pings = Process::spawn(&mut pings)?;
    let near = |ppm: u64| (250_000..550_000).contains(&ppm);
    wait_until("both ends tell of the loss", || {
        let statuses = site.statuses()?;
        let reported = statuses.iter().flat_map(|it| [it.peers[0].rx.loss, it.peers[0].tx.loss]);
        let reported: Vec<u64> = reported.flatten().map(|loss| loss.ppm).collect();
        Ok(reported.len() == 4 && reported.into_iter().all(near))
    })?;
    let scraped = site.pair.ingress.output("curl", &["-s", "http://127.0.0.1:9478/metrics"])?;
    for direction in ["in", "out"] {
        let name = format!("dwell_loss_ratio{{peer=\"other\",direction=\"{direction}\"}} ");
        let line = scraped.lines().find_map(|line| line.strip_prefix(&name));
        let ratio: f64 = line.with_context(|| format!("no {name}in\n{scraped}"))?.parse()?;
        ensure!(near((ratio * 1e6) as u64), "{name}{ratio}");
    }
    for direction in [Direction::There, Direction::Back] {
        site.link()?.set(direction, "delay 5ms".parse()?);
    }
    wait_until("the loss is over", || {
        let losses = site.statuses()?.map(|it| (it.peers[0].rx.loss, it.peers[0].tx.loss));
        let none = |loss: Option<RecentLoss>| loss.is_some_and(|loss| loss.lost == 0);
        Ok(losses.into_iter().all(|(rx, tx)| none(rx) && none(tx)))
    })?;
    Ok(())
}

fn verify(rx: &RxStatus, link: &LinkStats) -> anyhow::Result<()> {
    let what = || format!("{link}\n{rx:#?}");
    ensure!(link.dropped_queue == 0, "the link had no room: {}", what());
    ensure!(link.dropped_loss > 0 && link.duplicated > 0, "{}", what());
    // A damaged datagram fails its UDP checksum: the relay never sees it. Of two copies one
    // may be damaged, and the other is then no duplicate. A few frames are not dwell's.
    let slack = link.corrupted + 5;
    ensure!(rx.replayed <= link.duplicated, "more replays than duplicates: {}", what());
    ensure!(rx.replayed + slack >= link.duplicated, "duplicates not counted: {}", what());
    ensure!(rx.lost_datagrams <= link.dropped_loss + link.corrupted, "too many lost: {}", what());
    let seen = rx.lost_datagrams + rx.recovered_datagrams + 5;
    ensure!(seen >= link.dropped_loss, "losses not counted: {}", what());
    let impossible = rx.malformed + rx.decode_failed + rx.not_allowed + rx.auth_failed;
    ensure!(impossible == 0, "damage got through: {}", what());
    Ok(())
}
