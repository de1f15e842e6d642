//! `./x bench watching`: what it costs that somebody looks at a relay.

mod flows;
mod viewers;

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_cli::terminal;
use dwell_lab::lab::Lab;
use dwell_report::Table;
use serde::{Deserialize, Serialize};

use super::hub::star::{Hosts, SPOKES_MAX, Setting, Star};
use super::hub::{self};
use super::machine::cpu_ns;
use super::options::{Records, Rounds, Watch};
use super::record::{Bench, OnlyPlace, Run};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, percent};
use flows::Flows;
use viewers::{Page, Top, WEB_KEYS};

const AFTER_HELP: &str = "\
Examples:
  ./x bench watching                              1,000 flows to 20 peers, seen by the page, by top, and by both
  ./x bench watching --viewer page --peers 100 --flows 5000
  ./x bench watching --every 20ms --seconds 20    with ten times the packets

A hub sends small datagrams of so many flows to so many peers. Each run takes the processor time of its relay first while
nobody looks, and then while somebody does, and of `dwell top` itself; what a browser needs to draw the page is
not in it. What is counted while somebody looks ends 15 seconds after that, so that each run waits for it first.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure what the web page and `dwell top` cost
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Watching {
    /// Who looks
    #[arg(long, value_name = "VIEWER,...", value_delimiter = ',', default_value = "page,top,both")]
    viewer: Vec<Viewer>,
    /// The number of peers
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=SPOKES_MAX as i64))]
    peers: u16,
    /// The number of flows, spread over the peers
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    flows: u32,
    /// Time between two datagrams of a flow
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    #[arg(value_parser = dwell_base::time::parse_duration_ns)]
    every: u64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    records: Records,
}

/// Who looks at the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Viewer {
    /// A browser that shows the web page
    Page,
    /// `dwell top`
    Top,
    /// A browser and `dwell top` at once
    Both,
}

impl Viewer {
    fn looks_at_page(self) -> bool {
        self != Self::Top
    }

    fn runs_top(self) -> bool {
        self != Self::Page
    }
}

impl fmt::Display for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Page => "page",
            Self::Top => "top",
            Self::Both => "page and top",
        })
    }
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    peers: u16,
    flows: u32,
    every_ns: u64,
    seconds: f64,
}

/// What a run found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cost {
    window_ns: u64,
    /// Packets that the hub sent in the window in which somebody looked.
    packets: u64,
    /// Flows that the hub's status named then.
    named: u64,
    /// The relay's processor time while nobody looked, ...
    alone_cpu_ns: u64,
    /// ... while somebody did, ...
    watched_cpu_ns: u64,
    /// ... and that of `dwell top`.
    top_cpu_ns: u64,
}

impl Cost {
    /// The share of a core that looking takes, here and in the relay.
    fn share(&self) -> f64 {
        let more = self.watched_cpu_ns as f64 - self.alone_cpu_ns as f64;
        (more + self.top_cpu_ns as f64) / self.window_ns.max(1) as f64
    }
}

/// What is counted while somebody looks has ended after this.
const FORGOTTEN: Duration = Duration::from_secs(16);
/// The first look costs more than the next.
const SETTLED: Duration = Duration::from_secs(2);

impl Bench for Watching {
    const NAME: &'static str = "watching";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Cost;

    fn line(_place: &OnlyPlace, cost: &Cost) -> String {
        format!("{} of a core", percent(cost.share()))
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + "\n" + &table(runs).to_text()
    }
}

impl Watching {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            peers: self.peers,
            flows: self.flows,
            every_ns: self.every,
            seconds: self.watch.seconds,
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let interrupted = lab.interrupted();
        let is_interrupted = || interrupted.load(std::sync::atomic::Ordering::Relaxed);
        let hosts = Hosts::build(lab, self.peers.into())?;
        let setting = Setting::quiet(self.peers.into());
        let mut star = hosts.start((setting, 1), "rate = \"100mbit\"\n", ("", WEB_KEYS))?;
        let flows = Flows::start(&hosts, self.flows, Duration::from_nanos(self.every))?;
        let window = Duration::from_secs_f64(self.watch.seconds);
        let length = (self.rounds.runs, FORGOTTEN + window + SETTLED + window);
        series.here(&self.viewer, length, is_interrupted, |&viewer| {
            cost(&mut star, viewer, window, &is_interrupted)
        })?;
        if let Err(error) = flows.finish() {
            terminal::complain("dwell-bench", &format!("not all datagrams were sent: {error:#}"));
        }
        Ok(())
    }
}

fn cost(
    star: &mut Star<'_>,
    viewer: Viewer,
    window: Duration,
    is_interrupted: &impl Fn() -> bool,
) -> anyhow::Result<Cost> {
    let hub = star.hub.process().id();
    hub::sleep(FORGOTTEN, is_interrupted)?;
    let begun_cpu = cpu_ns(hub)?;
    hub::sleep(window, is_interrupted)?;
    let alone_cpu_ns = cpu_ns(hub)? - begun_cpu;

    let page = viewer.looks_at_page().then(|| Page::open(&star.hosts.hub)).transpose()?;
    let top = viewer.runs_top().then(|| Top::start(&star.hub)).transpose()?;
    hub::sleep(SETTLED, is_interrupted)?;
    let top_cpu = || top.as_ref().map_or(Ok(0), Top::cpu_ns);
    let (sent, begun) = (star.status()?.tun.rx_packets, Instant::now());
    let (begun_cpu, begun_top) = (cpu_ns(hub)?, top_cpu()?);
    hub::sleep(window, is_interrupted)?;
    let (watched_cpu_ns, top_cpu_ns) = (cpu_ns(hub)? - begun_cpu, top_cpu()? - begun_top);
    let window_ns = begun.elapsed().as_nanos() as u64;
    let status = star.status()?;
    if let Some(page) = page {
        ensure!(page.close()? > 1, "the page showed nothing new");
    }
    ensure!(!status.flows.is_empty(), "the hub names no flows");
    Ok(Cost {
        window_ns,
        packets: status.tun.rx_packets - sent,
        named: status.flows.len() as u64,
        alone_cpu_ns,
        watched_cpu_ns,
        top_cpu_ns,
    })
}

fn table(runs: &[Run<Watching>]) -> Table {
    let of_core = |ns: u64, cost: &Cost| Some(ns as f64 / cost.window_ns.max(1) as f64);
    sheet::table(
        "who looks",
        runner::rows(runs, &OnlyPlace {}),
        vec![
            Figure::new("relay alone", Of::Median, percent, move |it: &Cost| {
                of_core(it.alone_cpu_ns, it)
            }),
            Figure::new("watched", Of::Median, percent, move |it: &Cost| {
                of_core(it.watched_cpu_ns, it)
            }),
            Figure::new("top itself", Of::Median, percent, move |it: &Cost| {
                of_core(it.top_cpu_ns, it)
            }),
            Figure::new("of a core", Of::Median, percent, |it: &Cost| Some(it.share())),
            Figure::new("min..max", Of::Span, percent, |it: &Cost| Some(it.share())),
            Figure::new("packets/s", Of::Median, sheet::whole, |it: &Cost| {
                Some(it.packets as f64 * 1e9 / it.window_ns.max(1) as f64)
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn what_looking_costs_is_more_than_the_relay_alone() {
        let cost = |top_cpu_ns| Cost {
            window_ns: 1_000_000_000,
            packets: 5_000,
            named: 64,
            alone_cpu_ns: 100_000_000,
            watched_cpu_ns: 104_000_000,
            top_cpu_ns,
        };
        let conditions = Conditions { peers: 20, flows: 1_000, every_ns: 1, seconds: 1.0 };
        let run = |who, cost| record::<Watching>(conditions.clone(), OnlyPlace {}, who, cost);
        let text = Watching::report(&[run(("page", 0), cost(0)), run(("top", 0), cost(3_000_000))]);
        let row = text.lines().last().unwrap_or_default();
        for expected in ["top", "10.0 %", "10.4 %", "0.3 %", "0.7 %", "5000"] {
            assert!(row.contains(expected), "{expected} is not in {row}");
        }
    }
}
