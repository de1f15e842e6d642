//! `./x bench hub`: what a hub with many peers carries, and what loud ones cost the quiet ones.

pub(super) mod star;
mod streams;

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::Lab;
use dwell_report::{Table, human};
use serde::{Deserialize, Serialize};

use super::bed::Interrupted;
use super::machine::cpu_ns;
use super::options::{Records, Rounds, Watch};
use super::pinger::Pinger;
use super::record::{Bench, OnlyPlace, Run};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, figure, ms, percent};
use star::{HUB_IN_TUNNEL, Hosts, Star, in_tunnel};
use streams::Streams;

const AFTER_HELP: &str = "\
Examples:
  ./x bench hub                                            one peer on one core, two on two
  ./x bench hub --case 1/0/1,1/0/2 --hosts 2               one peer with two contexts
  ./x bench hub --case 8/2 --rate auto --uplink 20mbit     eight that share a slow link
  ./x bench hub --case 0/20,8/20 --rate 10mbit             20 quiet peers, alone and beside 8 loud ones
  ./x bench hub --case 0/190,10/190 --codec zstd:3 --rate 2mbit --every 500ms --seconds 10
  ./x bench hub --case 60/140 --codec zstd:3 --rate 1mbit --every 500ms --hub-with 'history_memory = \"64MiB\"'

A case is LOUD/QUIET or LOUD/QUIET/CORES. The hub sends text by TCP to each loud peer, as much as goes
through (*each* to *to*: the least and the most of one of them); each quiet one pings the hub, by default 20 times a second. The links are cables: what limits is the rate that
the relays have in their configuration, and the processors. The hub runs on so many of these (with as
many threads), if that is said; the peers, the streams and the kernel run on all of them, so that with no more
processors than the hub's they take a part of its time.

The pings are those of all quiet peers together; with some hundred relays on two processors their own processes
are what they wait for, unless they are few: `--every 500ms`.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure a hub with many peers
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Hub {
    /// Numbers of peers and of the hub's cores
    #[arg(long, value_name = "CASE,...", value_delimiter = ',', default_value = "1/0/1,2/0/2")]
    case: Vec<Setting>,
    /// The relays' scheme
    #[arg(long, default_value = "auto")]
    scheme: String,
    /// Their codec
    #[arg(long, default_value = "zstd:19")]
    codec: String,
    /// The rate of each link, in the relays' configuration
    #[arg(long, default_value = "10mbit")]
    rate: String,
    /// More keys for the relays' `[defaults]`: `contexts_max = 2; context_window = "256KiB"`
    #[arg(long, value_name = "KEYS", default_value = "")]
    with: String,
    /// More keys for the hub's `[node]`: `history_memory = "64MiB"`
    #[arg(long, value_name = "KEYS", default_value = "")]
    hub_with: String,
    /// Hosts behind each loud peer, with a stream to each: as many pairs of hosts, and contexts
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    hosts: u8,
    /// A slow link that all peers share: the hub's own device
    #[arg(long, value_name = "RATE")]
    uplink: Option<Rate>,
    /// Time between two pings of a quiet peer
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration_ns)]
    every: u64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    records: Records,
}

/// How many peers there are of each kind, and the processors of the hub, if it has not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    loud: usize,
    quiet: usize,
    cores: Option<usize>,
}

/// With one host behind each.
const fn one() -> u8 {
    1
}

impl Setting {
    /// So many peers that send nothing by themselves.
    pub(super) fn quiet(quiet: usize) -> Self {
        Self { loud: 0, quiet, cores: None }
    }

    fn spokes(self) -> usize {
        self.loud + self.quiet
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = text.split('/').map(str::parse).collect();
        let (loud, quiet, cores) = match numbers.as_deref() {
            Ok(&[loud, quiet]) => (loud, quiet, None),
            Ok(&[loud, quiet, cores]) if cores > 0 => (loud, quiet, Some(cores)),
            _ => return Err("write LOUD/QUIET or LOUD/QUIET/CORES: 2/0/1, 8/20".to_owned()),
        };
        if !(1..=star::SPOKES_MAX).contains(&(loud + quiet)) {
            return Err(format!("write 1 to {} peers", star::SPOKES_MAX));
        }
        Ok(Self { loud, quiet, cores })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loud, {} quiet", self.loud, self.quiet)?;
        match self.cores {
            None => Ok(()),
            Some(1) => f.write_str(", 1 core"),
            Some(cores) => write!(f, ", {cores} cores"),
        }
    }
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    scheme: String,
    codec: String,
    rate: String,
    with: String,
    #[serde(default)]
    hub_with: String,
    #[serde(default = "one")]
    hosts: u8,
    #[serde(default)]
    uplink_bps: Option<u64>,
    every_ns: u64,
    seconds: f64,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    window_ns: u64,
    application_bytes: u64,
    /// Of one stream, the least and the most.
    #[serde(default)]
    least_bytes: u64,
    #[serde(default)]
    most_bytes: u64,
    hub_cpu_ns: u64,
    /// The most that the hub's contexts took, looked at each half second, ...
    history_bytes: u64,
    /// ... and how many were given up for others.
    #[serde(default)]
    evicted: u64,
    /// Of all pings of quiet peers, if there are any.
    ping_p50_ns: Option<u64>,
    ping_p99_ns: Option<u64>,
    pings_lost: u64,
}

/// Streams find their rate, contexts fill.
const WARM_UP: Duration = Duration::from_secs(3);
/// Of a run, besides.
const AROUND: Duration = Duration::from_secs(3);
/// So often it is looked how much memory contexts take.
const LOOK: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(50);

impl Bench for Hub {
    const NAME: &'static str = "hub";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Carried;

    fn line(_place: &OnlyPlace, carried: &Carried) -> String {
        let ping = carried
            .ping_p99_ns
            .map_or_else(String::new, |ns| format!(", ping p99 {}", human::duration(ns)));
        format!("{} Mbit/s{ping}", figure(carried.mbps()))
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + "\n" + &table(runs).to_text()
    }
}

impl Hub {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            scheme: self.scheme.clone(),
            codec: self.codec.clone(),
            rate: self.rate.clone(),
            with: self.with.clone(),
            hub_with: self.hub_with.clone(),
            hosts: self.hosts,
            uplink_bps: self.uplink.map(|rate| rate.as_bps()),
            every_ns: self.every,
            seconds: self.watch.seconds,
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let most = self.case.iter().map(|it| it.spokes()).max().unwrap_or(0);
        let interrupted = lab.interrupted();
        let hosts = Hosts::build(lab, most)?;
        if let Some(rate) = self.uplink {
            hosts.slow_down(rate)?;
        }
        let window = Duration::from_secs_f64(self.watch.seconds);
        let is_interrupted = || interrupted.load(std::sync::atomic::Ordering::Relaxed);
        let length = (self.rounds.runs, WARM_UP + window + AROUND);
        series.here(&self.case, length, is_interrupted, |&setting| {
            let of_node = self.hub_with.replace(';', "\n");
            let mut star = hosts.start((setting, self.hosts), &self.defaults(), (&of_node, ""))?;
            let times = (window, Duration::from_nanos(self.every));
            carry(&mut star, (setting, self.hosts), times, &is_interrupted)
        })
    }

    fn defaults(&self) -> String {
        let Self { scheme, codec, rate, with, .. } = self;
        let with = with.replace(';', "\n");
        format!("scheme = \"{scheme}\"\ncodec = \"{codec}\"\nrate = \"{rate}\"\n{with}")
    }
}

fn carry(
    star: &mut Star<'_>,
    (setting, behind): (Setting, u8),
    (window, every): (Duration, Duration),
    is_interrupted: &impl Fn() -> bool,
) -> anyhow::Result<Carried> {
    let hosts = star.hosts;
    let spokes = hosts.spokes.iter().enumerate().take(setting.loud);
    let of_each = usize::from(behind);
    let each = |(n, host)| {
        (0..behind).map(move |at| (n * of_each + usize::from(at), host, in_tunnel(n, at)))
    };
    let loud: Vec<_> = spokes.flat_map(each).collect();
    let streams = Streams::start(&hosts.hub, &loud)?;
    sleep(WARM_UP, is_interrupted)?;
    let pingers: Result<Vec<_>, _> = hosts.spokes[setting.loud..setting.spokes()]
        .iter()
        .map(|host| Pinger::start_to(host, every, &HUB_IN_TUNNEL.to_string()))
        .collect();
    let (pingers, hub) = (pingers?, star.hub.process().id());
    let (began, before, cpu) = (Instant::now(), streams.received_bytes(), cpu_ns(hub)?);
    let mut history_bytes = 0;
    while began.elapsed() < window {
        sleep(LOOK.min(window.saturating_sub(began.elapsed())), is_interrupted)?;
        history_bytes = star.status()?.history.memory_bytes.max(history_bytes);
    }
    let window_ns = began.elapsed().as_nanos() as u64;
    let after = streams.received_bytes();
    let each: Vec<_> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let application_bytes = each.iter().sum();
    let hub_cpu_ns = cpu_ns(hub)? - cpu;
    let evicted = star.status()?.history.evicted;
    let (mut round_trips_ns, mut pings_lost) = (Vec::new(), 0);
    for pinger in pingers {
        let pings = pinger.stop()?;
        round_trips_ns.extend(pings.sorted_ns());
        // The last may still have been on its way.
        pings_lost += pings.lost().unwrap_or(0).saturating_sub(1);
    }
    streams.finish()?;
    round_trips_ns.sort_unstable();
    ensure!(setting.quiet == 0 || !round_trips_ns.is_empty(), "no ping was answered");
    ensure!(setting.loud == 0 || application_bytes > 0, "nothing came through the tunnels");
    Ok(Carried {
        window_ns,
        application_bytes,
        least_bytes: each.iter().min().copied().unwrap_or_default(),
        most_bytes: each.iter().max().copied().unwrap_or_default(),
        hub_cpu_ns,
        history_bytes,
        evicted,
        ping_p50_ns: quantile(&round_trips_ns, 0.5),
        ping_p99_ns: quantile(&round_trips_ns, 0.99),
        pings_lost,
    })
}

fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// Sleeps, unless it is interrupted.
pub(super) fn sleep(time: Duration, is_interrupted: &impl Fn() -> bool) -> Result<(), Interrupted> {
    let end = Instant::now() + time;
    loop {
        if is_interrupted() {
            return Err(Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(GLANCE));
    }
}

impl Carried {
    fn mbps(&self) -> f64 {
        self.of_each(self.application_bytes)
    }

    fn of_each(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e3 / self.window_ns.max(1) as f64
    }
}

fn table(runs: &[Run<Hub>]) -> Table {
    let rows = runner::rows(runs, &OnlyPlace {});
    let speed = |it: &Carried| Some(it.mbps());
    let first = rows.first().and_then(|row| row.median(speed)).filter(|&speed| speed > 0.0);
    sheet::table(
        "peers",
        rows,
        vec![
            Figure::new("Mbit/s", Of::Median, figure, speed),
            Figure::new("min..max", Of::Span, figure, speed),
            Figure::new("each", Of::Median, figure, |it: &Carried| {
                Some(it.of_each(it.least_bytes))
            }),
            Figure::new("to", Of::Median, figure, |it: &Carried| Some(it.of_each(it.most_bytes))),
            Figure::new("/first", Of::Against(first), percent, speed),
            Figure::new("hub's CPU", Of::Median, percent, |it: &Carried| {
                Some(it.hub_cpu_ns as f64 / it.window_ns.max(1) as f64)
            }),
            Figure::new("contexts", Of::Most, figure, |it: &Carried| {
                Some(it.history_bytes as f64 / 1e6)
            })
            .unit("MB"),
            Figure::new("given up", Of::Sum, sheet::whole, |it: &Carried| Some(it.evicted as f64)),
            Figure::new("ping p50", Of::Median, ms, |it: &Carried| Some(it.ping_p50_ns? as f64)),
            Figure::new("ping p99", Of::Median, ms, |it: &Carried| Some(it.ping_p99_ns? as f64)),
            Figure::new("lost", Of::Sum, sheet::whole, |it: &Carried| Some(it.pings_lost as f64)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let read = |text: &str| text.parse::<Setting>();
        assert_eq!(read("2/0/1"), Ok(Setting { loud: 2, quiet: 0, cores: Some(1) }));
        assert_eq!(read("8/20").map(|it| it.to_string()), Ok("8 loud, 20 quiet".to_owned()));
        for wrong in ["", "2", "0/0", "1/2/0", "1/2/3/4", "a/1", "200/200", "-1/2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cases_are_compared_with_the_first() {
        let carried = |mbit: u64| Carried {
            window_ns: 1_000_000_000,
            application_bytes: mbit * 125_000,
            least_bytes: mbit * 60_000,
            most_bytes: mbit * 65_000,
            hub_cpu_ns: 1_500_000_000,
            history_bytes: 3_000_000,
            evicted: 0,
            ping_p50_ns: None,
            ping_p99_ns: None,
            pings_lost: 0,
        };
        let text = String::new();
        let conditions = Conditions {
            scheme: text.clone(),
            codec: text.clone(),
            rate: text.clone(),
            with: text.clone(),
            hub_with: text,
            hosts: 1,
            uplink_bps: None,
            every_ns: 0,
            seconds: 1.0,
        };
        let run = |who, mbit| record::<Hub>(conditions.clone(), OnlyPlace {}, who, carried(mbit));
        let text = Hub::report(&[run(("one", 0), 40), run(("two", 0), 70)]);
        let row = text.lines().last().unwrap_or_default();
        for expected in ["two", "70.0", "175.0 %", "150.0 %", "3.00"] {
            assert!(row.contains(expected), "{expected} is not in {row}");
        }
    }
}
