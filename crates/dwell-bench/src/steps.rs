//! `./x bench steps`: a link whose rate changes, behind a router where no relay feels it.

use std::collections::VecDeque;
use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_base::time::{duration_ns, parse_duration_ns};
use dwell_lab::lab::{Lab, Shape};
use dwell_report::Table;
use dwell_report::status::PeerStatus;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, Security};
use super::link_rate::LinkRate;
use super::options::{Protection, Records, Rounds, Variants, Watch, seconds};
use super::pinger::Pinger;
use super::record::{Bench, OnlyPlace, Run};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, Row, figure, ms, percent};
use super::trial;
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Load, Source, Workload};

const AFTER_HELP: &str = "\
Examples:
  ./x bench steps                                     three schemes, with and without reports
  ./x bench steps --scheme packet --rate 50mbit,10mbit --seconds 5
  ./x bench steps --workload half --json steps.jsonl

Between the relays is a router that shapes what it passes on to the first rate, then to the second
and so on, under the load of one download; the relays' own devices are fast. With the rate `auto`
they report to each other what arrives, and when; with `local` they know only what their own device
does, and with `configured` each rate is written in their configuration as soon as the link has it, as a bound for what
finding it can bring. `found` is the rate that the sending relay believes in, `after` when it came within 10 % of the link's
to stay, while that did not count yet, and `used` when nine tenths of the link were first in use for half a second;
`ping` is a ping beside the download,
`beyond` the queue on the way as the sending relay sees it. `off` is no tunnel at all.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure how a changing link behind a router is found
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("scheme", |arg| arg.default_value("none,packet,edge")))]
#[command(mut_arg("runs", |arg| arg.default_value("1")))]
#[command(mut_arg("seconds", |arg| {
    arg.default_value("4").help("Seconds for which each rate is then measured")
}))]
pub(super) struct Steps {
    #[command(flatten)]
    variants: Variants,
    /// Ways in which the relays find the rate
    #[arg(long, value_name = "HOW,...", default_value = "local,auto", value_delimiter = ',')]
    relay_rate: Vec<Belief>,
    /// The link's rates, one after the other
    #[arg(long, value_name = "RATE,...", default_value = "20mbit,5mbit,12mbit")]
    #[arg(value_delimiter = ',')]
    rate: Vec<Rate>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Workload to send
    #[arg(long, value_name = "WORKLOAD", default_value = "text")]
    workload: Workload,
    /// After each change of the rate this passes before it counts
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    settle: f64,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    rounds: Rounds,
    /// Congestion control of the sender's TCP; one that keeps queues short (bbr) may leave none
    /// that could be found
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion_control: String,
    #[command(flatten)]
    protection: Protection,
    /// Seed of the traffic
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    records: Records,
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    rates_bps: Vec<u64>,
    #[serde(default)]
    delay_ns: u64,
    workload: Workload,
    settle_seconds: f64,
    seconds: f64,
    congestion_control: String,
    security: Security,
    seed: u64,
}

/// The measurements, a phase for each rate of the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Phases {
    phases: Vec<Phase>,
}

/// The measurements while the link had one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Phase {
    link_bps: u64,
    window_ns: u64,
    /// The rate of arrival for the application.
    goodput_bps: f64,
    /// The rate that the router forwarded towards the receiver, all headers included.
    carried_bps: f64,
    ping_p50_ns: Option<u64>,
    ping_p99_ns: Option<u64>,
    /// The sending relay's estimate at the end.
    found_bps: Option<u64>,
    /// From the change of the rate until the estimate stayed near it; none if it did not before it counts.
    #[serde(default)]
    followed_ns: Option<u64>,
    /// From the change of the rate until so much of it was carried for half a second as counts as used; none likewise.
    #[serde(default)]
    used_ns: Option<u64>,
    beyond_ns: Option<u64>,
    /// Packets that were sent, and that were compressed, in the window.
    sent_packets: Option<u64>,
    compressed_packets: Option<u64>,
}

/// A contender, and the way in which its relays find the rate; none without relays.
struct Climber(Contender, Option<Belief>);

impl fmt::Display for Climber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(contender, belief) = self;
        match belief {
            None => contender.fmt(f),
            Some(Belief::Auto) => write!(f, "{contender} auto"),
            Some(Belief::Local) => write!(f, "{contender} local"),
            Some(Belief::Configured) => write!(f, "{contender} configured"),
        }
    }
}

impl Bench for Steps {
    const NAME: &'static str = "steps";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Phases;

    fn line(_place: &OnlyPlace, Phases { phases }: &Phases) -> String {
        let shown = |phase: &Phase| {
            let found = sheet::shown(phase.found_bps.map(|bps| bps as f64 / 1e6), figure);
            let goodput = figure(phase.goodput_bps / 1e6);
            let link = Rate::clamped_bps(phase.link_bps);
            format!("{link}: found {found}, goodput {goodput}")
        };
        phases.iter().map(shown).collect::<Vec<_>>().join("; ")
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + "\n" + &table(runs).to_text()
    }
}

/// Pings are rare enough not to be noticed.
const PING_PAUSE: Duration = Duration::from_millis(50);
/// The relay's estimate is looked at this often.
const GLANCE: Duration = Duration::from_millis(50);
/// It is near the link's rate if it deviates by less.
const NEAR: f64 = 0.1;
/// It is in use if it carried all but this part for so long.
const USED_FOR: Duration = Duration::from_millis(500);
/// Starting and ending a tunnel.
const AROUND: Duration = Duration::from_secs(2);

impl Steps {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.workload != Workload::File, "only ./x bench link sends files");
        let conditions = self.conditions();
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let mut all = vec![Climber(Contender::Off, None)];
        for contender in self.variants.all(self.protection.security)? {
            let with = |&belief| Climber(contender.clone(), Some(belief));
            all.extend(self.relay_rate.iter().map(with));
        }
        let first = self.rate.first().copied().context("there is no rate")?;
        let mut bed = Bed::routed(lab, first, self.delay)?;
        bed.set_congestion_control(&self.congestion_control)?;
        let programs = Programs::usual()?;
        let length = (self.rounds.runs, self.planned());
        let is_interrupted = || bed.check().is_err();
        series.here(&all, length, is_interrupted, |Climber(contender, belief)| {
            self.shape(&bed, first)?;
            let belief = belief.unwrap_or(Belief::Auto);
            trial::through(&bed, contender, (belief, &programs), |tunnel| {
                self.climb(&bed, tunnel, belief)
            })
        })
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            rates_bps: self.rate.iter().map(|rate| rate.as_bps()).collect(),
            delay_ns: self.delay,
            workload: self.workload,
            settle_seconds: self.settle,
            seconds: self.watch.seconds,
            congestion_control: self.congestion_control.clone(),
            security: self.protection.security,
            seed: self.seed,
        }
    }

    fn planned(&self) -> Duration {
        let phase = Duration::from_secs_f64(self.settle + self.watch.seconds);
        phase * self.rate.len() as u32 + AROUND
    }

    /// One download through all rates.
    fn climb(&self, bed: &Bed<'_>, tunnel: &mut Tunnel, belief: Belief) -> anyhow::Result<Phases> {
        let rate = LinkRate(self.rate.first().copied());
        let source = Source::seeded(self.seed);
        let content = Content::new(self.workload, rate, self.planned(), &source)?;
        let load = Load::start(bed, tunnel, &content)?;
        let begin = Instant::now();
        let mut written = self.rate.first().copied();
        let phase = |&rate: &Rate| {
            self.shape(bed, rate)?;
            if let (Belief::Configured, Tunnel::Dwell(relays)) = (belief, &mut *tunnel) {
                relays.set_rate(written.replace(rate).unwrap_or(rate), rate)?;
            }
            self.watch(bed, tunnel, &load, rate)
        };
        let phases: anyhow::Result<Vec<Phase>> = self.rate.iter().map(phase).collect();
        let delivery = load.finish([begin, Instant::now()]);
        let phases = phases?;
        ensure!(delivery?.is_verified, "what arrived is not what was sent");
        Ok(Phases { phases })
    }

    fn shape(&self, bed: &Bed<'_>, rate: Rate) -> anyhow::Result<()> {
        let router = bed.pair.router.as_ref().context("there is no router")?;
        Ok(router.shape(&Shape::new(rate))?)
    }

    /// Lets the time pass that does not count; returns when in it the relay's estimate came near the
    /// link's rate to stay, and when the link was in use.
    fn settle(
        &self,
        bed: &Bed<'_>,
        tunnel: &Tunnel,
        rate: Rate,
    ) -> anyhow::Result<[Option<u64>; 2]> {
        let router = bed.pair.router.as_ref().context("there is no router")?;
        let (begin, mut near_since, mut used_since) = (Instant::now(), None, None);
        let mut carried = VecDeque::new();
        while begin.elapsed() < Duration::from_secs_f64(self.settle) {
            bed.sleep(GLANCE)?;
            carried.push_back((Instant::now(), router.bytes_to_ingress()?));
            if used_since.is_none() && is_used(&mut carried, rate) {
                used_since = Some(begin.elapsed().saturating_sub(USED_FOR));
            }
            let peer = tunnel.status()?.and_then(|status| status.peers.into_iter().next());
            let off = |bps: u64| bps as f64 / rate.as_bps() as f64 - 1.0;
            let is_near =
                peer.and_then(|peer| peer.rate_bps).is_some_and(|bps| off(bps).abs() < NEAR);
            near_since = is_near.then(|| near_since.unwrap_or_else(|| begin.elapsed()));
        }
        Ok([near_since, used_since].map(|since| since.map(duration_ns)))
    }

    /// Measures while the link has one rate.
    fn watch(
        &self,
        bed: &Bed<'_>,
        tunnel: &Tunnel,
        load: &Load,
        rate: Rate,
    ) -> anyhow::Result<Phase> {
        let [followed_ns, used_ns] = self.settle(bed, tunnel, rate)?;
        let router = bed.pair.router.as_ref().context("there is no router")?;
        let pinger = Pinger::start(&bed.pair.client, PING_PAUSE)?;
        let peer = || -> anyhow::Result<Option<PeerStatus>> {
            Ok(tunnel.status()?.and_then(|status| status.peers.into_iter().next()))
        };
        let (from_peer, from) = (peer()?, Instant::now());
        let (bytes, carried) = (load.received_bytes(), router.bytes_to_ingress()?);
        bed.sleep(Duration::from_secs_f64(self.watch.seconds))?;
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
            link_bps: rate.as_bps(),
            window_ns: duration_ns(window),
            goodput_bps: bps(bytes),
            carried_bps: bps(carried),
            ping_p50_ns: pings.quantile_ns(0.5),
            ping_p99_ns: pings.quantile_ns(0.99),
            found_bps: to_peer.as_ref().and_then(|peer| peer.rate_bps),
            followed_ns,
            used_ns,
            beyond_ns: to_peer.as_ref().and_then(|peer| peer.beyond_ns),
            sent_packets: between(|peer| peer.tx.sent.packets),
            compressed_packets: between(|peer| peer.tx.compressed.packets),
        })
    }
}

/// Returns true if the router carried nearly as much of late as the link carries; forgets what is longer ago.
fn is_used(carried: &mut VecDeque<(Instant, u64)>, rate: Rate) -> bool {
    let Some(&(now, bytes)) = carried.back() else { return false };
    while carried.get(1).is_some_and(|&(at, _)| now.duration_since(at) >= USED_FOR) {
        carried.pop_front();
    }
    let Some(&(from, before)) = carried.front() else { return false };
    let span = now.duration_since(from);
    let all = rate.bytes_in_ns(duration_ns(span)) as f64;
    span >= USED_FOR && bytes.saturating_sub(before) as f64 >= all * (1.0 - NEAR)
}

/// A row for each phase of each run.
fn table(runs: &[Run<Steps>]) -> Table {
    let rows = runs.iter().flat_map(|run| {
        let row = |phase| Row { name: run.contender.clone(), runs: vec![phase] };
        run.measured.phases.iter().map(row)
    });
    let mbps = |name: &str, value: fn(&Phase) -> Option<f64>| {
        Figure::new(name, Of::Median, figure, move |phase| value(phase).map(|bps| bps / 1e6))
    };
    let ns = |name: &str, value: fn(&Phase) -> Option<u64>| {
        Figure::new(name, Of::Median, ms, move |phase| value(phase).map(|ns| ns as f64))
    };
    let share = |name: &str, value: fn(&Phase) -> Option<f64>| {
        Figure::new(name, Of::Median, percent, value)
    };
    let rate = |bps: f64| Rate::clamped_bps(bps as u64).to_string();
    sheet::table(
        "contender",
        rows,
        vec![
            Figure::new("link", Of::Median, rate, |phase: &Phase| Some(phase.link_bps as f64)),
            mbps("found Mbit/s", |phase| phase.found_bps.map(|bps| bps as f64)),
            ns("after ms", |phase| phase.followed_ns),
            ns("used ms", |phase| phase.used_ns),
            mbps("goodput Mbit/s", |phase| Some(phase.goodput_bps)),
            share("/link", |phase| Some(phase.goodput_bps / phase.link_bps as f64)),
            share("carried", |phase| Some(phase.carried_bps / phase.link_bps as f64)),
            ns("ping p50 ms", |phase| phase.ping_p50_ns),
            ns("p99", |phase| phase.ping_p99_ns),
            ns("beyond ms", |phase| phase.beyond_ns),
            share("compressed", |phase| {
                let sent = phase.sent_packets.filter(|&sent| sent > 0)?;
                Some(phase.compressed_packets? as f64 / sent as f64)
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_phase_is_part_of_a_record_and_a_row() {
        let phase = Phase {
            link_bps: 5_000_000,
            window_ns: 4_000_000_000,
            goodput_bps: 8e6,
            carried_bps: 4.9e6,
            ping_p50_ns: Some(60_000_000),
            ping_p99_ns: None,
            found_bps: Some(5_100_000),
            followed_ns: Some(700_000_000),
            used_ns: Some(1_200_000_000),
            beyond_ns: Some(9_000_000),
            sent_packets: Some(100),
            compressed_packets: Some(90),
        };
        let conditions = Conditions {
            rates_bps: vec![5_000_000],
            delay_ns: 0,
            workload: Workload::Text,
            settle_seconds: 3.0,
            seconds: 4.0,
            congestion_control: "cubic".to_owned(),
            security: Security::Psk,
            seed: 1,
        };
        let phases = Phases { phases: vec![phase] };
        let packet = &Variants {
            scheme: vec!["packet".into()],
            codec: vec!["zstd:1".into()],
            with: Vec::new(),
            like: Vec::new(),
        };
        let packet = packet.all(Security::Psk).unwrap().remove(0);
        let name = Climber(packet, Some(Belief::Auto)).to_string();
        let run = record::<Steps>(conditions, OnlyPlace {}, (&name, 0), phases);
        let json = serde_json::to_string(&run).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Run<Steps>>(&json).ok().as_ref(), Some(&run));
        let text = Steps::report(&[run]);
        for expected in ["packet/zstd:1 auto", "5 Mbit/s", "5.10", "160.0 %", "98.0 %", "90.0 %"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
