//! One run: a tunnel, a load, and what was seen of them between two moments.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::time::duration_ns;
use dwell_lab::lab::topology::THIN_DEVICE;
use dwell_report::Status;
use dwell_report::status::TxStatus;

use super::bed::Bed;
use super::contender::Contender;
use super::link_rate::LinkRate;
use super::machine::cpu_ns;
use super::pinger::Pinger;
use super::record::{Measured, RelayAccounts};
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Load};

/// The lengths of the parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// From the first byte to the window.
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
}

/// A full packet on the link, in bits.
const PACKET_BITS: f64 = 1514.0 * 8.0;
/// A window is long enough for so many full packets ...
const WINDOW_PACKETS: f64 = 400.0;
/// ... and a warm-up is longer than half a second by so many: what is lost at the start of a
/// stream holds up what follows, and must be made good before the window.
const WARM_UP_PACKETS: f64 = 150.0;
/// For what is in queues to leave.
const CALM: Duration = Duration::from_millis(150);
/// After so long a contender should have learned what the traffic is like.
const FIRST_SECOND: Duration = Duration::from_secs(1);

impl Timing {
    /// At least this window; slow links need more.
    pub(super) fn new(rate: LinkRate, seconds: f64) -> Self {
        let packets = |count: f64| rate.bps().map_or(0.0, |bps| count * PACKET_BITS / bps as f64);
        Self {
            warm_up: Duration::from_secs_f64(0.5 + packets(WARM_UP_PACKETS)),
            window: Duration::from_secs_f64(seconds.max(packets(WINDOW_PACKETS))),
        }
    }

    /// About how long a run takes, with starting and ending a tunnel.
    pub(super) fn total(self) -> Duration {
        self.warm_up + self.window + Duration::from_millis(900)
    }
}

/// Starts a contender, does something with it, and stops it.
pub(super) fn through<T>(
    bed: &Bed<'_>,
    contender: &Contender,
    (belief, programs): (Belief, &Programs),
    measure: impl FnOnce(&mut Tunnel) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    bed.check()?;
    let mut tunnel = Tunnel::start(bed, contender, belief, programs)?;
    let measured = measure(&mut tunnel);
    tunnel.stop()?;
    measured
}

/// Carries a load through a tunnel and measures. The tunnel goes on.
pub(super) fn run(
    bed: &Bed<'_>,
    tunnel: &mut Tunnel,
    content: &Content,
    timing: Timing,
) -> anyhow::Result<Measured> {
    let load = Load::start(bed, tunnel, content)?;
    let seen = observe(bed, tunnel, &load, timing);
    let window = seen.as_ref().map_or([Instant::now(); 2], |seen| [seen.from.at, seen.to.at]);
    let delivery = load.finish(window);
    let (mut seen, delivery) = (seen?, delivery?);
    bed.sleep(CALM)?;
    // Whatever such a run measured is not what it should have measured.
    ensure!(delivery.is_verified, "what arrived is not what is sent");
    seen.measured.delay_p50_ns = delivery.delay_p50_ns;
    seen.measured.delay_p99_ns = delivery.delay_p99_ns;
    if let Some(bytes) = tunnel.carried_bytes(bed)? {
        ensure!(
            bytes >= seen.measured.application_bytes / 2,
            "the traffic did not pass the tunnel"
        );
    }
    Ok(seen.measured)
}

struct Seen {
    from: Snapshot,
    to: Snapshot,
    measured: Measured,
}

/// All counters at a moment.
struct Snapshot {
    at: Instant,
    count: u64,
    application_bytes: u64,
    link_bytes: u64,
    cpu_ns: Option<[u64; 2]>,
    own_cpu_ns: u64,
    status: Option<Status>,
    receiver: Option<Status>,
}

fn observe(
    bed: &Bed<'_>,
    tunnel: &mut Tunnel,
    load: &Load,
    timing: Timing,
) -> anyhow::Result<Seen> {
    let start = Instant::now();
    bed.sleep_until(start + timing.warm_up)?;
    let pinger = Pinger::start(&bed.pair.client, ping_pause(bed.rate))?;
    let from = Snapshot::take(bed, tunnel, load)?;
    let end = from.at + timing.window;
    bed.sleep_until(start + FIRST_SECOND.min(timing.warm_up + timing.window / 2))?;
    let first_second = tunnel.status()?;
    bed.sleep_until(end)?;
    let to = Snapshot::take(bed, tunnel, load)?;
    let pings = pinger.stop()?;
    let measured = Measured {
        window_ns: duration_ns(to.at - from.at),
        count: to.count - from.count,
        application_bytes: to.application_bytes - from.application_bytes,
        link_bytes: to.link_bytes.saturating_sub(from.link_bytes),
        ping_p50_ns: pings.quantile_ns(0.5),
        ping_p95_ns: pings.quantile_ns(0.95),
        ping_p99_ns: pings.quantile_ns(0.99),
        pings: pings.replies.len() as u64,
        pings_lost: pings.lost().unwrap_or(0),
        delay_p50_ns: None,
        delay_p99_ns: None,
        cpu_ns: spent_ns(from.cpu_ns, to.cpu_ns)?,
        own_cpu_ns: to.own_cpu_ns - from.own_cpu_ns,
        relay: match (&from.status, &first_second, &to.status) {
            (Some(from), Some(first_second), Some(to)) => accounts(from, first_second, to),
            _ => None,
        }
        .map(|accounts| with_losses(accounts, from.receiver.as_ref(), to.receiver.as_ref())),
    };
    Ok(Seen { from, to, measured })
}

/// The CPU time of both ends between two moments; none if it is not known.
fn spent_ns(from: Option<[u64; 2]>, to: Option<[u64; 2]>) -> anyhow::Result<Option<[u64; 2]>> {
    let Some((from, to)) = from.zip(to) else { return Ok(None) };
    let of = |end: usize| to[end].checked_sub(from[end]);
    let ends = of(0).zip(of(1)).map(|(out, inward)| [out, inward]);
    Ok(Some(ends.context("a process of the tunnel has ended while it was measured")?))
}

/// Pings must not be noticed: they take up half a percent of the link.
fn ping_pause(rate: LinkRate) -> Duration {
    const PING_BITS: f64 = 98.0 * 8.0;
    let pause = rate.bps().map_or(0.0, |bps| PING_BITS / (0.005 * bps as f64));
    Duration::from_secs_f64(pause.clamp(0.02, 0.2))
}

impl Snapshot {
    fn take(bed: &Bed<'_>, tunnel: &mut Tunnel, load: &Load) -> anyhow::Result<Self> {
        let (count, application_bytes) = (load.count(), load.received_bytes());
        // The other counters are of nearly the same moment; the count is what matters most.
        let at = Instant::now();
        Ok(Self {
            at,
            count,
            application_bytes,
            link_bytes: bed.pair.egress.tx_bytes(THIN_DEVICE)?,
            cpu_ns: tunnel.cpu_ns()?,
            own_cpu_ns: cpu_ns(std::process::id())?,
            status: tunnel.status()?,
            receiver: tunnel.receiver_status()?,
        })
    }
}

fn accounts(from: &Status, first_second: &Status, to: &Status) -> Option<RelayAccounts> {
    let [a, b, c] = [from, first_second, to].map(|status| status.peers.first());
    let (peer, a, b) = (c?, &a?.tx, &b?.tx);
    let c = &peer.tx;
    let between = |counter: fn(&TxStatus) -> u64| counter(c).saturating_sub(counter(a));
    let later = |counter: fn(&TxStatus) -> u64| counter(c).saturating_sub(counter(b));
    Some(RelayAccounts {
        arrived_packets: between(|tx| tx.arrived.packets),
        sent_packets: between(|tx| tx.sent.packets),
        sent_bytes: between(|tx| tx.sent.bytes),
        dropped_packets: between(|tx| tx.dropped_total().packets),
        send_errors: between(|tx| tx.send_errors.values().sum()),
        frames: between(|tx| tx.frames),
        link_bytes: between(|tx| tx.link_bytes),
        tried: between(|tx| tx.tried),
        compressed_packets: between(|tx| tx.compressed.packets),
        compressed_bytes: between(|tx| tx.compressed.bytes),
        compressed_to_bytes: between(|tx| tx.compressed_to_bytes),
        not_smaller: between(|tx| tx.not_smaller),
        compress_ns: between(|tx| tx.compress_ns),
        resent_datagrams: between(|tx| tx.resent_datagrams),
        later_arrived_packets: later(|tx| tx.arrived.packets),
        later_tried: later(|tx| tx.tried),
        believed_bps: peer.rate_bps,
        sojourn_p50_ns: c.sojourn.p50_ns,
        sojourn_p99_ns: c.sojourn.p99_ns,
        ..RelayAccounts::default()
    })
}

/// Adds the losses that the receiver saw between two moments.
fn with_losses(
    accounts: RelayAccounts,
    from: Option<&Status>,
    to: Option<&Status>,
) -> RelayAccounts {
    let rx = |status: Option<&Status>| {
        status.and_then(|status| status.peers.first()).map(|peer| peer.rx.clone())
    };
    let (Some(from), Some(to)) = (rx(from), rx(to)) else { return accounts };
    RelayAccounts {
        lost_datagrams: to.lost_datagrams.saturating_sub(from.lost_datagrams),
        recovered_datagrams: to.recovered_datagrams.saturating_sub(from.recovered_datagrams),
        unrecovered_datagrams: to.unrecovered_datagrams.saturating_sub(from.unrecovered_datagrams),
        gap_p99_ns: (to.contexts.gaps > 0).then_some(to.contexts.waited.p99_ns),
        ..accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_are_watched_for_longer() {
        let timing = |rate: &str| Timing::new(rate.parse().unwrap(), 2.0);
        assert!(timing("1mbit").window > Duration::from_secs(3));
        assert_eq!(timing("10mbit").window, Duration::from_secs(2));
        assert_eq!(timing("unlimited").warm_up, Duration::from_millis(500));
    }

    #[test]
    fn pings_take_up_little_of_a_slow_link() {
        let pause = |rate: &str| ping_pause(rate.parse().unwrap());
        assert!(pause("1mbit") > Duration::from_millis(150));
        assert_eq!(pause("100mbit"), Duration::from_millis(20));
    }

    #[test]
    fn accounts_are_of_the_window() {
        let status = |tried: u64, arrived: u64| {
            let mut status = Status::default();
            status.peers.push(dwell_report::status::PeerStatus::default());
            status.peers[0].tx.tried = tried;
            status.peers[0].tx.arrived.packets = arrived;
            status
        };
        let accounts = accounts(&status(10, 10), &status(15, 30), &status(16, 80)).unwrap();
        assert_eq!((accounts.tried, accounts.arrived_packets), (6, 70));
        assert_eq!((accounts.later_tried, accounts.later_arrived_packets), (1, 50));
    }
}
