//! `./x bench steps`: a link whose rate changes, behind a router where no relay feels it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::Rate;
use dwell_lab::lab::{self, Shape};
use dwell_report::status::PeerStatus;
use dwell_report::{Column, Table, human};
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants};
use super::link::seconds;
use super::link_rate::LinkRate;
use super::pinger::Pinger;
use super::record::{Journal, Origin, unix_seconds};
use super::report::{figure, percent};
use super::runner::{Runner, turns};
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Load, Workload};
use dwell_cli::terminal;
use dwell_cli::values::{codec, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench steps                                     three schemes, with and without reports
  ./x bench steps --scheme packet --rate 50mbit,10mbit --seconds 5
  ./x bench steps --workload half --json steps.jsonl

Between the relays is a router that shapes what it passes on to the first rate, then to the second
and so on, under the load of one download; the relays' own devices are fast. With the rate `auto`
they report to each other what arrives, and when; with `local` they know only what their own device
does. `found` is the rate that the sending relay believes in, `ping` a ping beside the download,
`beyond` the queue on the way as the sending relay sees it. `off` is no tunnel at all.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure how a changing link behind a router is found
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Steps {
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet,edge")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    codec: Vec<String>,
    /// Ways in which the relays find the rate
    #[arg(long, value_name = "HOW,...", default_value = "local,auto", value_delimiter = ',')]
    relay_rate: Vec<Belief>,
    /// The link's rates, one after the other
    #[arg(long, value_name = "RATE,...", default_value = "20mbit,5mbit,12mbit")]
    #[arg(value_delimiter = ',')]
    rate: Vec<Rate>,
    /// Workload to send
    #[arg(long, value_name = "WORKLOAD", default_value = "text")]
    workload: Workload,
    /// After each change of the rate this passes before it counts
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    settle: f64,
    /// Seconds for which each rate is then measured
    #[arg(long, default_value = "4", value_parser = seconds)]
    seconds: f64,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Congestion control of the sender's TCP; one that keeps queues short (bbr) may leave none
    /// that could be found
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion_control: String,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW", default_value = "psk")]
    security: Security,
    /// Seed of the traffic
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Write each phase to this file as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    json: Option<PathBuf>,
}

/// The measurements while the link had one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Phase {
    at_unix_seconds: u64,
    #[serde(flatten)]
    origin: Origin,
    contender: String,
    congestion_control: String,
    /// The way in which the relays find the rate; none without relays.
    relay_rate: Option<Belief>,
    round: u32,
    /// Of the phases of a run, from 0.
    phase: usize,
    link_bps: u64,
    window_ns: u64,
    settle_ns: u64,
    /// The rate of arrival for the application.
    goodput_bps: f64,
    /// The rate that the router forwarded towards the receiver, all headers included.
    carried_bps: f64,
    ping_p50_ns: Option<u64>,
    ping_p99_ns: Option<u64>,
    /// The sending relay's estimate at the end.
    found_bps: Option<u64>,
    beyond_ns: Option<u64>,
    /// Packets that were sent, and that were compressed, in the window.
    sent_packets: Option<u64>,
    compressed_packets: Option<u64>,
}

/// Pings are rare enough not to be noticed.
const PING_PAUSE: Duration = Duration::from_millis(50);
/// Starting and ending a tunnel.
const AROUND: Duration = Duration::from_secs(2);

impl Steps {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut runs = vec![(Contender::Off, None)];
        for contender in dwell_variants(&self.scheme, &self.codec, self.security, false) {
            runs.extend(self.relay_rate.iter().map(|&rate| (contender.clone(), Some(rate))));
        }
        let mut lab = lab::enter()?;
        let (journal, _) = Journal::open::<Phase>(self.json.as_deref(), false)?;
        let first = self.rate.first().copied().context("there is no rate")?;
        let mut bed = Bed::routed(&mut lab, first)?;
        bed.set_congestion_control(&self.congestion_control)?;
        let mut phases = Vec::new();
        let planned = self.planned();
        let count = runs.len() * self.runs as usize;
        let mut runner = Runner::new(count, planned * count as u32, journal);
        'all: for round in 0..self.runs {
            for (contender, belief) in turns(&runs, round) {
                let what = named(contender, *belief);
                let found = self.climb(&bed, contender, *belief, round);
                let line = |found: &Vec<Phase>| line(found);
                let run = (what.as_str(), planned);
                if let Some(found) = runner.take(run, found, || bed.check().is_err(), line) {
                    for phase in found {
                        runner.write(&phase)?;
                        phases.push(phase);
                    }
                } else if runner.is_over() {
                    break 'all;
                }
            }
        }
        let head = format!("\n{}\n\n", Origin::this().line());
        terminal::print(&(head + &table(&phases).to_text()))?;
        Ok(runner.outcome().exit_code())
    }

    fn planned(&self) -> Duration {
        let phase = Duration::from_secs_f64(self.settle + self.seconds);
        phase * self.rate.len() as u32 + AROUND
    }

    /// One download through all rates.
    fn climb(
        &self,
        bed: &Bed<'_>,
        contender: &Contender,
        belief: Option<Belief>,
        round: u32,
    ) -> anyhow::Result<Vec<Phase>> {
        bed.check()?;
        self.shape(bed, self.rate[0])?;
        let belief_or_auto = belief.unwrap_or(Belief::Auto);
        let tunnel = Tunnel::start(bed, contender, belief_or_auto, &Programs::usual()?)?;
        let rate = LinkRate(Some(self.rate[0]));
        let content = Content::new(self.workload, rate, self.planned(), self.seed);
        let load = Load::start(bed, &content)?;
        let begin = Instant::now();
        let mut phases = Vec::new();
        let mut watch = || -> anyhow::Result<()> {
            for (number, &rate) in self.rate.iter().enumerate() {
                self.shape(bed, rate)?;
                let phase = self.watch(bed, &tunnel, &load)?;
                let contender = contender.to_string();
                let link_bps = rate.as_bps();
                phases.push(Phase {
                    contender,
                    relay_rate: belief,
                    round,
                    phase: number,
                    link_bps,
                    ..phase
                });
            }
            Ok(())
        };
        let watched = watch();
        let delivery = load.finish([begin, Instant::now()]);
        tunnel.stop()?;
        watched?;
        anyhow::ensure!(delivery?.is_verified, "what arrived is not what was sent");
        Ok(phases)
    }

    fn shape(&self, bed: &Bed<'_>, rate: Rate) -> anyhow::Result<()> {
        let router = bed.pair.router.as_ref().context("there is no router")?;
        Ok(router.shape(&Shape::new(rate))?)
    }

    /// Measures while the link has one rate.
    fn watch(&self, bed: &Bed<'_>, tunnel: &Tunnel, load: &Load) -> anyhow::Result<Phase> {
        bed.sleep(Duration::from_secs_f64(self.settle))?;
        let router = bed.pair.router.as_ref().context("there is no router")?;
        let pinger = Pinger::start(&bed.pair.client, PING_PAUSE)?;
        let peer = || -> anyhow::Result<Option<PeerStatus>> {
            Ok(tunnel.status()?.and_then(|status| status.peers.into_iter().next()))
        };
        let (from_peer, from) = (peer()?, Instant::now());
        let (bytes, carried) = (load.received_bytes(), router.bytes_to_ingress()?);
        bed.sleep(Duration::from_secs_f64(self.seconds))?;
        let (to_peer, window) = (peer()?, from.elapsed());
        let (bytes, carried) =
            (load.received_bytes() - bytes, router.bytes_to_ingress()?.saturating_sub(carried));
        let pings = pinger.stop()?;
        let bps = |bytes: u64| bytes as f64 * 8.0 / window.as_secs_f64();
        let between = |count: fn(&PeerStatus) -> u64| {
            let (from, to) = (from_peer.as_ref()?, to_peer.as_ref()?);
            Some(count(to).saturating_sub(count(from)))
        };
        Ok(Phase {
            at_unix_seconds: unix_seconds(),
            origin: Origin::this(),
            contender: String::new(),
            congestion_control: self.congestion_control.clone(),
            relay_rate: None,
            round: 0,
            phase: 0,
            link_bps: 0,
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            settle_ns: Duration::from_secs_f64(self.settle).as_nanos() as u64,
            goodput_bps: bps(bytes),
            carried_bps: bps(carried),
            ping_p50_ns: pings.quantile_ns(0.5),
            ping_p99_ns: pings.quantile_ns(0.99),
            found_bps: to_peer.as_ref().and_then(|peer| peer.rate_bps),
            beyond_ns: to_peer.as_ref().and_then(|peer| peer.beyond_ns),
            sent_packets: between(|peer| peer.tx.sent.packets),
            compressed_packets: between(|peer| peer.tx.compressed.packets),
        })
    }
}

fn named(contender: &Contender, belief: Option<Belief>) -> String {
    shown(&contender.to_string(), belief)
}

fn shown(contender: &str, belief: Option<Belief>) -> String {
    match belief {
        None => contender.to_owned(),
        Some(Belief::Auto) => format!("{contender} auto"),
        Some(Belief::Local) => format!("{contender} local"),
        Some(Belief::Configured) => format!("{contender} configured"),
    }
}

fn line(phases: &[Phase]) -> String {
    let mbps = |phase: &Phase| {
        let found = phase.found_bps.map_or_else(nothing, |bps| figure(bps as f64 / 1e6));
        format!(
            "{}: found {found}, goodput {}",
            Rate::clamped_bps(phase.link_bps),
            figure(phase.goodput_bps / 1e6)
        )
    };
    phases.iter().map(mbps).collect::<Vec<_>>().join("; ")
}

fn table(phases: &[Phase]) -> Table {
    let mut table = Table::new([
        Column::left("contender"),
        Column::right("link"),
        Column::right("found Mbit/s"),
        Column::right("goodput Mbit/s"),
        Column::right("/link"),
        Column::right("carried"),
        Column::right("ping p50 ms"),
        Column::right("p99"),
        Column::right("beyond ms"),
        Column::right("compressed"),
    ]);
    for phase in phases {
        let ms = |ns: Option<u64>| ns.map_or_else(nothing, |ns| figure(ns as f64 / 1e6));
        let link = phase.link_bps as f64;
        let compressed = phase.compressed_packets.zip(phase.sent_packets);
        let share =
            compressed.filter(|&(_, sent)| sent > 0).map(|(some, all)| some as f64 / all as f64);
        table.row([
            shown(&phase.contender, phase.relay_rate),
            Rate::clamped_bps(phase.link_bps).to_string(),
            phase.found_bps.map_or_else(nothing, |bps| figure(bps as f64 / 1e6)),
            figure(phase.goodput_bps / 1e6),
            percent(Some(phase.goodput_bps / link)),
            percent(Some(phase.carried_bps / link)),
            ms(phase.ping_p50_ns),
            ms(phase.ping_p99_ns),
            ms(phase.beyond_ns),
            percent(share),
        ]);
    }
    table
}

fn nothing() -> String {
    human::NOTHING.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_a_record_and_a_row() {
        let phase = Phase {
            at_unix_seconds: 1,
            origin: Origin::this(),
            contender: "packet/zstd:1".to_owned(),
            congestion_control: "cubic".to_owned(),
            relay_rate: Some(Belief::Auto),
            round: 0,
            phase: 1,
            link_bps: 5_000_000,
            window_ns: 4_000_000_000,
            settle_ns: 3_000_000_000,
            goodput_bps: 8e6,
            carried_bps: 4.9e6,
            ping_p50_ns: Some(60_000_000),
            ping_p99_ns: None,
            found_bps: Some(5_100_000),
            beyond_ns: Some(9_000_000),
            sent_packets: Some(100),
            compressed_packets: Some(90),
        };
        let json = serde_json::to_string(&phase).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Phase>(&json).ok().as_ref(), Some(&phase));
        let text = table(&[phase]).to_text();
        for expected in ["packet/zstd:1 auto", "5 Mbit/s", "5.10", "160.0 %", "98.0 %", "90.0 %"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
