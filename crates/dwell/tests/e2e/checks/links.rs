//! Links that lose, double, reorder and damage.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::ensure;
use dwell_base::Rate;
use dwell_report::status::RxStatus;
use dwell_testkit::corpus;
use dwell_testkit::emulator::Direction;
use dwell_testkit::lab::Lab;
use dwell_testkit::link::LinkStats;
use dwell_testkit::relays::{RelayRate, RelaySettings};

use crate::site::{self, Site, balanced};
use crate::web::Web;

/// Faster than the relays send, so that nothing is lost for lack of room.
const HEALTHY: &str = "rate 30mbit delay 3ms queue 500ms";
const BAD: &str = "rate 30mbit delay 3ms queue 500ms loss 1% reorder 2% duplicate 1% corrupt 0.5%";
/// A gap is taken for a loss once so many numbers came after it.
const WINDOW_DATAGRAMS: usize = 2_200;

pub(super) fn bad_link(lab: &mut Lab, sealed: bool) -> anyhow::Result<()> {
    let rate = RelayRate::Fixed(Rate::from_mbps(20));
    let settings = RelaySettings { sealed, rate, ..site::settings() };
    // The handshake, and what hosts ask each other first, shall not count.
    let site = Site::emulated(lab, HEALTHY, &settings)?;
    let web = Web::start(&site, 400_000, 400_000)?;
    for (direction, seed) in [(Direction::There, 1), (Direction::Back, 2)] {
        site.link()?.set(direction, BAD.parse::<dwell_testkit::LinkSpec>()?.with_seed(seed));
    }
    web.fetch_all(&site.pair.client)?;
    for direction in [Direction::There, Direction::Back] {
        site.link()?.set(direction, HEALTHY.parse()?);
    }
    site.settled()?;
    push_out_of_window(&site)?;
    let [ingress, egress] = site.settled()?;
    balanced(&ingress)?;
    balanced(&egress)?;
    let stats = site.link()?.stats();
    verify(&ingress.peers[0].rx, &stats.back, true)?;
    verify(&egress.peers[0].rx, &stats.there, false)?;
    println!("{}", stats.back);
    Ok(())
}

/// Sends enough from the server to the client that every gap becomes a loss: datagrams that
/// do not shrink, and of which no two fit into one.
fn push_out_of_window(site: &Site) -> anyhow::Result<()> {
    let receiver = site.pair.client.run(|| UdpSocket::bind("10.1.0.2:9"))??;
    let sender = site.pair.server.run(|| UdpSocket::bind("10.2.0.2:0"))??;
    let noise = corpus::incompressible(750, 7);
    for _ in 0..WINDOW_DATAGRAMS / 5 {
        for _ in 0..5 {
            sender.send_to(&noise, "10.1.0.2:9")?;
        }
        // Slower than the relay's rate: it must not drop them itself.
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(receiver);
    Ok(())
}

fn verify(rx: &RxStatus, link: &LinkStats, is_window_empty: bool) -> anyhow::Result<()> {
    let what = || format!("{link}\n{rx:#?}");
    ensure!(link.dropped_queue == 0, "the link had no room: {}", what());
    ensure!(link.dropped_loss > 0 && link.duplicated > 0 && link.corrupted > 0, "{}", what());
    // A damaged datagram fails its UDP checksum: the relay never sees it. Of two copies one
    // may be damaged, and the other is then no duplicate. A few frames are not dwell's.
    let slack = link.corrupted + 5;
    ensure!(rx.replayed <= link.duplicated, "more replays than duplicates: {}", what());
    ensure!(rx.replayed + slack >= link.duplicated, "duplicates not counted: {}", what());
    ensure!(rx.lost_datagrams <= link.dropped_loss + link.corrupted, "too many lost: {}", what());
    if is_window_empty {
        let seen = rx.lost_datagrams + 5;
        ensure!(seen >= link.dropped_loss, "losses not counted: {}", what());
    }
    let impossible = rx.malformed + rx.decode_failed + rx.not_allowed + rx.auth_failed;
    ensure!(impossible == 0, "damage got through: {}", what());
    Ok(())
}
