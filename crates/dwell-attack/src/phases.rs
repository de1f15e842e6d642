//! Honest traffic without and with an attack, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_testkit::stalls::StallWatch;

use crate::context::{Context, Timing};
use crate::honest::Traffic;
use crate::row::{Bound, Check, Row};
use crate::watch::Watched;

/// Turns an attack on and off, and counts what it does. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_on: AtomicBool,
    is_over: AtomicBool,
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Switch {
    /// Returns true if it is time to attack.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Returns true if it is time to end.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Turns it on or off.
    pub(crate) fn set(&self, is_on: bool) {
        self.0.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.set(false);
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Adds to what was done: things, and their bytes.
    pub(crate) fn done(&self, count: u64, bytes: u64) {
        self.0.count.fetch_add(count, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn counts(&self) -> [u64; 2] {
        [&self.0.count, &self.0.bytes].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Ends the attack however its owner ends.
pub(crate) struct Ending<'a>(pub(crate) &'a Switch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One phase.
#[derive(Clone, Debug)]
struct Phase {
    from: Instant,
    to: Instant,
    /// There and back.
    bytes: [u64; 2],
    done: [u64; 2],
    cpu_seconds: f64,
    broken: u64,
}

impl Phase {
    fn seconds(&self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }

    fn cores(&self) -> f64 {
        self.cpu_seconds / self.seconds()
    }

    fn bps(&self, direction: usize) -> f64 {
        self.bytes[direction] as f64 * 8.0 / self.seconds()
    }
}

/// All phases.
#[derive(Debug)]
pub(crate) struct Measured {
    without: Vec<Phase>,
    with: Vec<Phase>,
    pings: [Vec<Option<u64>>; 2],
    stalled_share: f64,
    memory_before: u64,
    memory_peak: u64,
}

/// Measures honest traffic without the attack, with it, and so on; the last phase is without it.
pub(crate) fn alternate(
    timing: Timing,
    traffic: &Traffic,
    watched: Watched,
    switch: &Switch,
) -> anyhow::Result<Measured> {
    alternate_with(timing, traffic, watched, switch, |_| Ok(()))
}

/// The same; `prepare` is called at the beginning of each phase, after the switch was set.
pub(crate) fn alternate_with(
    timing: Timing,
    traffic: &Traffic,
    watched: Watched,
    switch: &Switch,
    mut prepare: impl FnMut(bool) -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let mut phase = |is_on: bool| {
        switch.set(is_on);
        prepare(is_on)?;
        phase(timing, traffic, watched, switch)
    };
    traffic.wait_until_it_flows()?;
    thread::sleep(Duration::from_millis(500));
    let stalls = StallWatch::start();
    let start = Instant::now();
    let memory_before = watched.resident_bytes()?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..timing.rounds {
        without.push(phase(false)?);
        with.push(phase(true)?);
    }
    without.push(phase(false)?);
    let stalled_share = stalls.stop().as_secs_f64() / start.elapsed().as_secs_f64();
    // The last pings are known once their time is over.
    thread::sleep(traffic.ping_patience() + Duration::from_millis(200));
    let pings = [&without, &with].map(|phases| {
        let of = |phase: &Phase| traffic.pings(phase.from, phase.to);
        phases.iter().flat_map(of).map(|ping| ping.rtt_ns).collect()
    });
    let memory_peak = watched.peak_bytes()?;
    Ok(Measured { without, with, pings, stalled_share, memory_before, memory_peak })
}

fn phase(
    timing: Timing,
    traffic: &Traffic,
    watched: Watched,
    switch: &Switch,
) -> anyhow::Result<Phase> {
    thread::sleep(timing.settle);
    let begin = (Instant::now(), traffic.bytes(), switch.counts());
    let (cpu, broken) = (watched.cpu_seconds()?, traffic.broken());
    thread::sleep(timing.phase);
    let (from, bytes, done) = begin;
    let difference = |now: [u64; 2], before: [u64; 2]| [now[0] - before[0], now[1] - before[1]];
    Ok(Phase {
        from,
        to: Instant::now(),
        bytes: difference(traffic.bytes(), bytes),
        done: difference(switch.counts(), done),
        cpu_seconds: watched.cpu_seconds()? - cpu,
        broken: traffic.broken() - broken,
    })
}

impl Measured {
    /// Returns the goodput of the worse direction, against the median phase without the attack, or the first if that had more:
    /// what lasts after the attack would make up for what it does otherwise.
    pub(crate) fn goodput_share(&self) -> f64 {
        let share = |direction: usize| {
            let without = || self.without.iter().map(|phase| phase.bps(direction));
            let first = without().next().unwrap_or(0.0);
            let without = median(without().collect()).max(first);
            mean(self.with.iter().map(|phase| phase.bps(direction))) / without.max(1.0)
        };
        share(0).min(share(1))
    }

    fn quantile_ns(&self, with: bool, share: f64) -> Option<u64> {
        let mut rtts: Vec<u64> = self.pings[usize::from(with)].iter().flatten().copied().collect();
        rtts.sort_unstable();
        let rank = (share * rtts.len() as f64).ceil() as usize;
        rtts.get(rank.saturating_sub(1)).copied()
    }

    /// Returns the ratio of the last phase, after the attack, to the first one: the worse
    /// direction.
    fn recovered(&self) -> f64 {
        let bps = |phase: Option<&Phase>, direction| phase.map_or(f64::NAN, |p| p.bps(direction));
        let share = |direction| {
            bps(self.without.last(), direction) / bps(self.without.first(), direction).max(1.0)
        };
        share(0).min(share(1))
    }

    /// The 99th percentile with the attack over that without; infinite if nothing is answered.
    pub(crate) fn ping_p99_ratio(&self) -> f64 {
        match (self.quantile_ns(false, 0.99), self.quantile_ns(true, 0.99)) {
            (Some(without), Some(with)) => with as f64 / without.max(1) as f64,
            _ => f64::INFINITY,
        }
    }

    fn lost(&self, with: bool) -> f64 {
        let pings = &self.pings[usize::from(with)];
        pings.iter().filter(|rtt| rtt.is_none()).count() as f64 / pings.len().max(1) as f64
    }

    /// Pings without an answer with the attack, beyond those without it.
    pub(crate) fn lost_more(&self) -> f64 {
        (self.lost(true) - self.lost(false)).max(0.0)
    }

    /// Returns the attack's rate: things and bytes a second.
    pub(crate) fn rate(&self) -> [f64; 2] {
        let seconds: f64 = self.with.iter().map(Phase::seconds).sum();
        [0, 1].map(|at| self.with.iter().map(|phase| phase.done[at]).sum::<u64>() as f64 / seconds)
    }

    /// Returns the attack's total while it was measured: things, and bytes.
    pub(crate) fn total(&self) -> [f64; 2] {
        [0, 1].map(|at| self.with.iter().map(|phase| phase.done[at]).sum::<u64>() as f64)
    }

    /// The row of an attack on `target` that counts in `unit`.
    pub(crate) fn row(&self, attack: &str, target: &str, unit: &str) -> Row {
        let [rate, bytes] = self.rate();
        let broken = |phases: &[Phase]| phases.iter().map(|phase| phase.broken).sum::<u64>();
        let cores = |phases: &[Phase]| mean(phases.iter().map(Phase::cores));
        Row {
            attack: attack.to_owned(),
            target: target.to_owned(),
            unit: unit.to_owned(),
            rate_per_second: rate,
            rate_bps: (bytes > 0.0).then_some(bytes * 8.0),
            goodput_share: Some(self.goodput_share()),
            ping_p99_ratio: Some(self.ping_p99_ratio()).filter(|ratio| ratio.is_finite()),
            ping_p99_without_ns: self.quantile_ns(false, 0.99),
            ping_p99_with_ns: self.quantile_ns(true, 0.99),
            ping_lost_without: Some(self.lost(false)),
            ping_lost_with: Some(self.lost(true)),
            memory_peak_bytes: self.memory_peak,
            memory_grown_bytes: self.memory_peak.saturating_sub(self.memory_before),
            cpu_without: cores(&self.without),
            cpu_with: cores(&self.with),
            stalled_share: self.stalled_share,
            checks: Vec::new(),
            notes: vec![format!(
                "honest streams that broke: {} without, {} with",
                broken(&self.without),
                broken(&self.with)
            )],
        }
    }

    /// Returns true if the attack was one: of the `per_second` that it means to do, it reached half
    /// at least.
    pub(crate) fn rate_check(&self, context: &Context, per_second: f64) -> Check {
        Check::new("attacks a second", self.rate()[0], context.rate(per_second / 2.0))
    }

    /// The usual bounds: on goodput, on pings, and on memory that it grew by.
    pub(crate) fn usual_checks(&self, context: &Context, limits: Limits) -> Vec<Check> {
        let grown = self.memory_peak.saturating_sub(self.memory_before) as f64 / MEGABYTE;
        let cores = mean(self.with.iter().map(Phase::cores));
        let of_cores = limits.cores.map(|most| Check::new("cores", cores, Bound::AtMost(most)));
        let checks = vec![
            Check::new("goodput share", self.goodput_share(), context.goodput(limits.goodput)),
            Check::new("ping p99 ratio", self.ping_p99_ratio(), context.ping(limits.ping)),
            Check::new("pings lost more", self.lost_more(), context.lost(limits.lost)),
            Check::new("goodput afterwards", self.recovered(), context.goodput(AFTERWARDS)),
            Check::new("memory grown, MB", grown, Bound::AtMost(limits.memory_mb)),
        ];
        checks.into_iter().chain(of_cores).collect()
    }
}

/// An attack must not last beyond its end: this share of the goodput before it is there again.
const AFTERWARDS: f64 = 0.6;
const MEGABYTE: f64 = 1e6;

/// The limits of what honest traffic may suffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The least share of goodput.
    pub(crate) goodput: f64,
    /// The most that the 99th percentile of pings is multiplied by.
    pub(crate) ping: f64,
    /// The largest share of pings that are lost more.
    pub(crate) lost: f64,
    /// The attacked process may grow by at most this.
    pub(crate) memory_mb: f64,
    /// It may use at most so many processors; none if that is not limited.
    pub(crate) cores: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { goodput: 0.8, ping: 3.0, lost: 0.05, memory_mb: 32.0, cores: None }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { f64::NAN } else { sum / f64::from(count) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians() {
        assert!((median(vec![3.0, 1.0, 9.0]) - 3.0).abs() < 1e-9);
        assert!((median(vec![1.0, 2.0]) - 1.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan() && mean(std::iter::empty()).is_nan());
    }

    fn phase(from: Instant, bps: [u64; 2], done: u64) -> Phase {
        let to = from + Duration::from_secs(1);
        let bytes = bps.map(|bps| bps / 8);
        Phase { from, to, bytes, done: [done, 0], cpu_seconds: 0.5, broken: 0 }
    }

    #[test]
    fn the_worse_direction_counts_and_no_answer_is_no_good_answer() {
        let now = Instant::now();
        let mut measured = Measured {
            without: vec![phase(now, [8000, 16000], 0), phase(now, [8000, 16000], 0)],
            with: vec![phase(now, [8000, 4000], 50)],
            pings: [vec![Some(10); 100], vec![Some(30); 100]],
            stalled_share: 0.0,
            memory_before: 1,
            memory_peak: 5,
        };
        assert!((measured.goodput_share() - 0.25).abs() < 1e-9);
        assert!((measured.ping_p99_ratio() - 3.0).abs() < 1e-9);
        assert!((measured.rate()[0] - 50.0).abs() < 1e-9);
        let row = measured.row("a", "relay", "things");
        assert_eq!((row.memory_grown_bytes, row.rate_bps), (4, None));
        measured.pings[1] = vec![None; 100];
        assert!(measured.ping_p99_ratio().is_infinite());
        assert!((measured.lost_more() - 1.0).abs() < 1e-9);
    }
}
