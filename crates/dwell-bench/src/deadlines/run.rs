//! One run: a source for each class, two relays, and what was late.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_base::time::MILLI_NS;
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};
use dwell_report::Status;
use dwell_testkit::stream::{Spacing, Stream, StreamSpec, Tally};
use serde::{Deserialize, Serialize};

use super::super::bed::Bed;
use super::super::machine;
use super::super::program;
use super::classes::{Class, ClassSet, HEADER_BYTES};

/// The subject of a run.
pub(super) struct Trial<'a> {
    pub(super) classes: ClassSet,
    pub(super) scheme: &'a str,
    pub(super) load: f64,
    pub(super) rate: Rate,
    pub(super) overhead_bytes: u32,
    pub(super) realtime: bool,
    pub(super) window: Duration,
    pub(super) seed: u64,
}

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The packets that the relay sent in the window.
    pub(super) sent_packets: u64,
    pub(super) datagrams: u64,
    pub(super) dropped_packets: u64,
    /// The relay's estimate of the one-way delay to its peer.
    pub(super) one_way_ns: Option<u64>,
    /// The mean lateness of the sources.
    pub(super) sources_late_ns: u64,
    /// CPU time in the window that a hypervisor gave to others.
    #[serde(default)]
    pub(super) stolen_ns: u64,
    pub(super) classes: Vec<ClassResult>,
}

/// The counts of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassResult {
    pub(super) name: String,
    pub(super) max_wait_ns: u64,
    /// For how long a packet could be held back: W.
    pub(super) deadline_ns: u64,
    /// By the relay's account, of what it sent in the window.
    pub(super) sent: u64,
    /// Sent later than W, as the paper counts.
    pub(super) past_deadline: u64,
    /// Sent too late for `max_wait`.
    pub(super) late: u64,
    pub(super) excess_mean_ns: u64,
    /// Since the relay's start.
    pub(super) excess_max_ns: u64,
    /// By the receiver's, of what its source sent in the window: packets that came, and those of
    /// them that took longer than `max_wait`.
    pub(super) received: u64,
    pub(super) received_late: u64,
    pub(super) received_excess_mean_ns: u64,
    pub(super) received_excess_max_ns: u64,
}

impl Measured {
    pub(super) fn datagrams_per_hundred(&self) -> f64 {
        100.0 * self.datagrams as f64 / self.sent_packets.max(1) as f64
    }
}

impl ClassResult {
    pub(super) fn late_percent(&self) -> f64 {
        100.0 * self.late as f64 / self.sent.max(1) as f64
    }

    pub(super) fn past_deadline_percent(&self) -> f64 {
        100.0 * self.past_deadline as f64 / self.sent.max(1) as f64
    }

    pub(super) fn received_late_percent(&self) -> f64 {
        100.0 * self.received_late as f64 / self.received.max(1) as f64
    }
}

/// Before an overload, and while nothing is watched.
const CALM_LOAD: f64 = 0.8;
const WARM_UP: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(1800);

impl Trial<'_> {
    pub(super) fn run(&self, bed: &Bed<'_>) -> anyhow::Result<Measured> {
        bed.check()?;
        let mut relays = Relays::start(bed.lab, &bed.pair, &program::dwell()?, &self.settings())?;
        if self.realtime {
            for relay in [&mut relays.ingress, &mut relays.egress] {
                hurry(relay.process().id())?;
            }
        }
        let steady = self.sources(bed, self.calm(), 0)?;
        let watched = self.watch(bed, &relays);
        // What the overload left behind must leave.
        let drain = Duration::from_secs_f64((self.load - 1.0).max(0.0) * 5.0);
        bed.sleep(drain.min(Duration::from_secs(3)))?;
        let mut tallies = finish(steady, self.grace())?;
        let Watched { moments, statuses, stolen_ns, extra } = watched?;
        tallies.extend(extra);
        relays.stop()?;
        for (_, tally) in &tallies {
            ensure!(tally.altered == 0, "{} packets were altered", tally.altered);
            ensure!(tally.duplicates == 0, "{} packets came twice", tally.duplicates);
        }
        let measured = measured(self.classes, &statuses, &tallies, moments)?;
        Ok(Measured { stolen_ns, ..measured })
    }

    /// The load outside of the window.
    fn calm(&self) -> f64 {
        if self.load > 1.0 { CALM_LOAD } else { self.load }
    }

    /// Returns the time in which packets may still arrive. Those that an overload leaves in queues take longer: what
    /// did not come by then would not be counted as received at all.
    fn grace(&self) -> Duration {
        GRACE + self.window.mul_f64((self.load - 1.0).max(0.0))
    }

    fn settings(&self) -> RelaySettings {
        let classes: String = self.classes.classes().iter().map(Class::config).collect();
        RelaySettings {
            scheme: self.scheme.to_owned(),
            codec: "lz4".to_owned(),
            rate: RelayRate::Fixed(self.rate),
            keyed: true,
            extra: format!(
                "link_overhead = {}\nchunk_compress = false\nqueue_time = \"5s\"\n\
                 queue_packets = 500000\nqueue_bytes = \"64MiB\"\n\n{classes}",
                self.overhead_bytes
            ),
            ..RelaySettings::default()
        }
    }

    /// Sources of all classes for this load, on the ports with this offset.
    fn sources(&self, bed: &Bed<'_>, load: f64, offset: u16) -> anyhow::Result<Vec<Source>> {
        let bps = load * self.rate.as_bps() as f64;
        let source = |class: &'static Class| -> anyhow::Result<Source> {
            let seed = self.seed * 100 + u64::from(class.port + offset);
            let spec = StreamSpec {
                to: ([10, 2, 0, 2], class.port + offset).into(),
                payload_bytes: class.packet_bytes - HEADER_BYTES,
                spacing: Spacing::Poisson(self.classes.per_second(class, bps), seed),
            };
            Ok((class, Stream::start(&bed.pair.client, &bed.pair.server, spec)?))
        };
        self.classes.classes().iter().map(source).collect()
    }

    fn watch(&self, bed: &Bed<'_>, relays: &Relays) -> anyhow::Result<Watched> {
        bed.sleep(WARM_UP)?;
        let before = relays.ingress.status()?;
        let stolen_ns = machine::stolen_ns();
        let from = Instant::now();
        let more = self.load - self.calm();
        let extra = if more > 0.0 { self.sources(bed, more, 1)? } else { Vec::new() };
        bed.sleep_until(from + self.window)?;
        let after = relays.ingress.status()?;
        let stolen_ns = machine::stolen_ns().saturating_sub(stolen_ns);
        let moments = [from, from + self.window];
        let extra = finish(extra, self.grace())?;
        Ok(Watched { moments, statuses: [before, after], stolen_ns, extra })
    }
}

type Source = (&'static Class, Stream);

/// The observations in the window.
struct Watched {
    moments: [Instant; 2],
    statuses: [Status; 2],
    stolen_ns: u64,
    extra: Vec<(&'static Class, Tally)>,
}

/// Gives a process real-time priority, all its threads.
fn hurry(process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("chrt");
    command.args(["--all-tasks", "--rr", "--pid", "10", &process.to_string()]);
    let output = command.output().context("chrt can't be started: is util-linux installed?")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no real-time priority for the relays: {}", said.trim());
    Ok(())
}

fn finish(sources: Vec<Source>, grace: Duration) -> anyhow::Result<Vec<(&'static Class, Tally)>> {
    let threads: Vec<_> = sources
        .into_iter()
        .map(|(class, stream)| (class, std::thread::spawn(move || stream.finish(grace))))
        .collect();
    let mut tallies = Vec::new();
    for (class, thread) in threads {
        let tally = thread.join().map_err(|_| anyhow::anyhow!("a source panicked"))??;
        tallies.push((class, tally));
    }
    Ok(tallies)
}

fn measured(
    set: ClassSet,
    [before, after]: &[Status; 2],
    tallies: &[(&'static Class, Tally)],
    [from, to]: [Instant; 2],
) -> anyhow::Result<Measured> {
    let peer = |status: &Status| status.peers.first().cloned().context("the relay has no peer");
    let (before, after) = (peer(before)?, peer(after)?);
    let mut classes = Vec::new();
    for class in set.classes() {
        let named = |peer: &dwell_report::status::PeerStatus| {
            peer.deadlines.iter().find(|it| it.class == class.name).cloned()
        };
        let a = named(&before).unwrap_or_default();
        let b = named(&after).with_context(|| format!("the relay has no class {}", class.name))?;
        let excess_ns = |it: &dwell_report::status::DeadlineStatus| it.excess_mean_ns * it.late;
        let late = b.late - a.late;
        let of_class = tallies.iter().filter(|(of, _)| of.name == class.name);
        let delays: Vec<u64> = of_class
            .flat_map(|(_, tally)| tally.sent_between(from, to))
            .map(dwell_testkit::stream::Arrival::delay_ns)
            .collect();
        ensure!(!delays.is_empty(), "no packet of the class {} arrived", class.name);
        let max_wait_ns = class.max_wait_ms * MILLI_NS;
        let over = delays.iter().filter_map(|delay_ns| delay_ns.checked_sub(max_wait_ns + 1));
        let over: Vec<u64> = over.collect();
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        classes.push(ClassResult {
            name: class.name.to_owned(),
            max_wait_ns,
            deadline_ns: b.deadline_ns,
            sent: b.packets - a.packets,
            past_deadline: b.past_deadline - a.past_deadline,
            late,
            excess_mean_ns: mean(excess_ns(&b).saturating_sub(excess_ns(&a)), late),
            excess_max_ns: b.excess_max_ns,
            received: delays.len() as u64,
            received_late: over.len() as u64,
            received_excess_mean_ns: mean(over.iter().sum(), over.len() as u64),
            received_excess_max_ns: over.iter().copied().max().unwrap_or(0),
        });
    }
    Ok(Measured {
        sent_packets: after.tx.sent.packets - before.tx.sent.packets,
        datagrams: after.tx.frames - before.tx.frames,
        dropped_packets: after.tx.dropped_total().packets - before.tx.dropped_total().packets,
        one_way_ns: after.one_way_ns,
        sources_late_ns: tallies.iter().map(|(_, tally)| tally.late_mean_ns).max().unwrap_or(0),
        stolen_ns: 0,
        classes,
    })
}
