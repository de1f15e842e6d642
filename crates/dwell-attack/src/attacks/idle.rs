//! Thousands of clients of a proxy that say hardly anything.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::lab::LabError;

use super::proxy::{
    CROWD_PORT, LINK_MBPS, Proxies, note_counts, raise_descriptors, reach, status, traffic,
};
use crate::context::{Context, Timing};
use crate::crowd::{Crowd, Echo};
use crate::honest::{PORTS, Pings};
use crate::phases::{Ending, Limits, Switch, alternate_with};
use crate::row::{Bound, Check, Row};
use crate::site::{INGRESS, OUTER, SERVER, Site, at};
use crate::watch::{Watched, softirq_seconds};

const IDLE_CLIENTS: usize = 10_000;

type Lingering = thread::JoinHandle<Result<(), LabError>>;

/// The cost of a single byte on the link there, and of its echo back, with Ethernet's headers: a
/// segment of 101 bytes (14 of Ethernet, 20 of IP, 32 of TCP, 22 of TLS, 12 of the stream's block),
/// and there another one of 66 that acknowledges the echo.
const IDLE_LINK_BYTES: u64 = 101 + 66;

/// The share of the link there that is left when idle clients send this many bytes a second. Each has a
/// connection of its own, so that no two of these bytes can share a segment.
fn left_by_idle(per_second: f64) -> f64 {
    let taken_bps = per_second * (IDLE_LINK_BYTES * 8) as f64;
    (1.0 - taken_bps / (LINK_MBPS * 1_000_000) as f64).max(0.0)
}

/// The usage until a moment.
struct Usage {
    at: Instant,
    /// Seconds of a processor: the ingress', the egress', and this program's, which is all else: clients,
    /// server, honest traffic.
    cpu: [f64; 3],
    softirq: f64,
    /// Bytes on the link, there and back.
    link: [u64; 2],
}

impl Usage {
    fn now(site: &Site, proxies: &Proxies) -> anyhow::Result<Self> {
        let ids = [proxies.ingress.id(), proxies.egress.id(), std::process::id()];
        let mut cpu = [0.0; 3];
        for (cpu, id) in cpu.iter_mut().zip(ids) {
            *cpu = Watched(id).cpu_seconds()?;
        }
        Ok(Self {
            at: Instant::now(),
            cpu,
            softirq: softirq_seconds()?,
            link: [site.good.tx_bytes(OUTER)?, site.hub.tx_bytes(OUTER)?],
        })
    }

    fn since(&self, before: &Self) -> String {
        let seconds = (self.at - before.at).as_secs_f64();
        let core = |at: usize| (self.cpu[at] - before.cpu[at]) / seconds;
        let mbps = |at: usize| (self.link[at] - before.link[at]) as f64 * 8e-6 / seconds;
        format!(
            "cores: {:.2} ingress, {:.2} egress, {:.2} clients, server and honest traffic; {:.2} of \
             softirq among these and others; link: {:.2} Mbit/s there, {:.2} back",
            core(0),
            core(1),
            core(2),
            (self.softirq - before.softirq) / seconds,
            mbps(0),
            mbps(1),
        )
    }
}

/// Clients that say hardly anything, for as long as they like.
pub(super) fn idle(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let descriptors = raise_descriptors(3 * IDLE_CLIENTS as u64);
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let limits = ["--streams-max", "12000", "--memory-max", "20GiB"];
    let proxies = Proxies::start(&site, context, (&limits, &limits))?;
    // All that both take, but for the honest streams. With a hard limit of 20,000 descriptors an
    // egress takes 9,200: (20,000 - 512 for handshakes - 1,024 for connections without a stream - 64) / 2.
    let room = status(&site, "ingress")?.streams.max.min(status(&site, "egress")?.streams.max);
    let count = IDLE_CLIENTS.min(usize::try_from(room)?.saturating_sub(PORTS.len()));
    let _echo = Echo::start(&site.server, SERVER, CROWD_PORT)?;
    for host in [&site.client, &site.good, &site.hub] {
        host.sysctl("net/ipv4/ip_local_port_range", "10000 65000")?;
    }
    let traffic = traffic(&site, Pings::Tcp)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let mut held: Option<Lingering> = None;
    let (mut tally, mut before, mut after) = (None, None, None);
    let timing = Timing { rounds: 1, ..context.timing() };
    let measured =
        alternate_with(timing, &traffic, Watched(proxies.ingress.id()), &switch, |on| {
            if let Some(thread) = held.take() {
                let joined = thread.join().map_err(|_| anyhow::anyhow!("the crowd panicked"))?;
                joined.context("the crowd")?;
                after = Some(Usage::now(&site, &proxies)?);
            }
            if on {
                let open =
                    || Crowd::open(at(INGRESS, CROWD_PORT), count, 500.0, Duration::from_secs(30));
                let mut crowd = site.client.run(open)??;
                let opened = crowd.tally();
                tally = Some(opened);
                let switch = switch.clone();
                held = Some(site.client.spawn_thread(move || {
                    while switch.is_on() {
                        switch.done(crowd.linger(), 0);
                    }
                })?);
                before = Some(Usage::now(&site, &proxies)?);
            }
            Ok(())
        })?;
    switch.end();
    drop(traffic);
    let tally = tally.context("no crowd was opened")?;
    let mut row = measured.row(name, "proxy", "bytes");
    let [sent, _] = measured.rate();
    let left = left_by_idle(sent);
    // Some 30 kB for each: both sockets' state, and what a stream holds when nothing moves.
    let limits = Limits { goodput: 0.8 * left, memory_mb: 1_000.0, ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    let slow = (count / 2) as f64;
    reach(&mut row, context, "bytes of idle clients a second", sent, slow);
    row.notes.push(format!(
        "what these bytes take of the link leaves honest streams {:.0} % of it at most",
        left * 100.0
    ));
    if let Some((before, after)) = before.zip(after) {
        row.notes.push(after.since(&before));
    }
    row.checks.push(Check::new(
        "clients served",
        tally.served as f64,
        Bound::AtLeast(count as f64),
    ));
    row.notes.push(format!(
        "{count} clients, every second one of which sends a byte a second; {} were served, {} \
         broken, after {:.1} s",
        tally.served, tally.broken, tally.seconds
    ));
    if count < IDLE_CLIENTS {
        row.notes.push(format!(
            "this system allows {descriptors} descriptors, with which a proxy takes {room} streams"
        ));
    }
    note_counts(&mut row, &site);
    Ok(row)
}
