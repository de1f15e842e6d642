//! `./x bench http`: what a pair of proxies makes of requests and answers.

pub(super) mod content;
mod table;
pub(super) mod web;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::ByteSize;
use dwell_base::time::{duration_ns, parse_duration_ns};
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::carriers::{Carrier, Carriers};
use super::link_rate::LinkRate;
use super::options::{Records, Rounds, seconds};
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::statistics::rank;
use super::tunnel;
use content::{Body, Kind};
use web::{Bodies, Pace, Server};

const AFTER_HELP: &str = "\
Examples:
  ./x bench http                                              three rates, JSON and images: three minutes
  ./x bench http --rate 5mbit --size 100KB --content json     one corner of it
  ./x bench http --rate 1mbit,5mbit,20mbit,100mbit --content json,html,image --seconds 2 --json runs.jsonl
  ./x bench http --proxy=--strategy=all                       with options for both proxies

Each cell is a kind and length of answers, over connections that are kept or new for each, by one
client or several at once. In each, requests go directly, through a pair of proxies with a shared
key, and through `ssh -C -L`, one after the other, while the others wait. All answers differ, and every byte is
compared. `bytes` are those on the link in both directions, headers included, against those of the answers' bodies.
`of best` is the proxies' figure against the better of the two others.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure HTTP through a pair of proxies, against plain TCP and `ssh -C -L`
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Http {
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(
        long,
        value_name = "RATE,...",
        value_delimiter = ',',
        default_value = "5mbit,20mbit,100mbit"
    )]
    rate: Vec<LinkRate>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Lengths of answers
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1kB,10kB,100kB,1MB"
    )]
    size: Vec<ByteSize>,
    /// What answers are made of
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "json,image")]
    content: Vec<Kind>,
    /// Clients at once
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_value = "1,8")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: Vec<u32>,
    /// Seconds for which each contender is asked in each cell
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    seconds: f64,
    /// Cells are left out in which one answer for each client would take longer than this, uncompressed
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration_ns)]
    longest: u64,
    /// An option for both proxies, with its value after `=`; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    proxy: Vec<String>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// Who takes part.
const CARRIERS: [Carrier; 3] = [Carrier::Plain, Carrier::Proxy, Carrier::Ssh];
/// The port of the server.
const PORT: u16 = 8000;
/// The fewest answers for each client in a cell.
const ANSWERS_MIN: usize = 3;
/// The time that the ends of connections have to leave the link, in which nothing is asked.
const SETTLING: Duration = Duration::from_millis(20);

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    /// The link's delay each way.
    delay_ns: u64,
    seconds: f64,
    /// More options of the proxies.
    proxy: Vec<String>,
}

/// What is asked for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    /// The length of each answer's body.
    pub(crate) bytes: usize,
    /// True if each request has a connection of its own.
    pub(crate) is_new: bool,
    pub(crate) at_once: u32,
}

/// A link, and what is asked for over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(rename = "rate_bps")]
    rate: LinkRate,
    #[serde(flatten)]
    cell: Cell,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    answers: u64,
    answer_p50_ns: u64,
    answer_p99_ns: u64,
    /// Bytes of the answers' bodies.
    body_bytes: u64,
    /// Bytes on the link, in both directions.
    link_bytes: u64,
}

impl Asked {
    /// Bytes on the link for each of a body.
    fn link_share(&self) -> f64 {
        self.link_bytes as f64 / self.body_bytes.max(1) as f64
    }
}

impl Bench for Http {
    const NAME: &'static str = "http";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Asked;

    fn place(place: &Place) -> String {
        format!("{}, {}", place.rate, place.cell.name())
    }

    fn line(_place: &Place, asked: &Asked) -> String {
        let ms = asked.answer_p50_ns as f64 / 1e6;
        format!("{ms:.1} ms, {:.2} bytes for each", asked.link_share())
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + &table::report(runs)
    }
}

impl Cell {
    fn name(self) -> String {
        let connections = if self.is_new { "new" } else { "kept" };
        let Self { kind, bytes, at_once, .. } = self;
        format!("{} of {}, {connections}, {at_once} at once", kind.name(), ByteSize(bytes as u64))
    }
}

impl Http {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions =
            Conditions { delay_ns: self.delay, seconds: self.seconds, proxy: self.proxy.clone() };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        CARRIERS.iter().try_for_each(|carrier| carrier.ensure_installed())?;
        let bodies = |&kind: &Kind| (kind, Body::new(kind, 1));
        let bodies: Arc<Bodies> = Arc::new(self.content.iter().map(bodies).collect());
        let missing = |series: &Series<Self>, place: &Place| {
            series.missing(place, &CARRIERS, self.rounds.runs)
        };
        let all: Vec<Place> = self.rate.iter().flat_map(|&rate| self.places(rate)).collect();
        let parts: Vec<_> =
            all.iter().map(|place| (missing(series, place), self.takes(place))).collect();
        series.plan(parts);
        for &rate in &self.rate {
            let places = self.places(rate);
            if places.iter().any(|place| missing(series, place) > 0) {
                self.at(lab, rate, &places, &bodies, series)?;
            }
        }
        Ok(())
    }

    /// All cells of a link that don't take too long.
    fn places(&self, rate: LinkRate) -> Vec<Place> {
        let mut places = Vec::new();
        for &kind in &self.content {
            for &ByteSize(bytes) in &self.size {
                for &at_once in &self.at_once {
                    for is_new in [false, true] {
                        let cell = Cell { kind, bytes: bytes as usize, is_new, at_once };
                        places.push(Place { rate, cell });
                    }
                }
            }
        }
        places.retain(|place| place.raw_ns() <= self.longest);
        places
    }

    /// How long a run takes at most, about.
    fn takes(&self, place: &Place) -> Duration {
        let least = Duration::from_nanos(place.raw_ns() * ANSWERS_MIN as u64);
        SETTLING + Duration::from_secs_f64(self.seconds).max(least)
    }

    /// All rounds over one link.
    fn at(
        &self,
        lab: &mut Lab,
        rate: LinkRate,
        places: &[Place],
        bodies: &Arc<Bodies>,
        series: &mut Series<Self>,
    ) -> anyhow::Result<()> {
        let bed = Bed::new(lab, rate, self.delay)?;
        let listener = bed.listen(tunnel::server(PORT))?;
        let _server = Server::start(listener, Arc::clone(bodies)).context("no server")?;
        let carriers = Carriers::start(&bed, &CARRIERS, &[PORT], &self.proxy)?;
        let mut number = 0;
        for place in places {
            let length = (self.rounds.runs, self.takes(place));
            let is_over = || bed.check().is_err();
            series.rounds(place, &CARRIERS, length, is_over, |carrier| {
                let asked = self.ask(&bed, *carrier, place.cell, bodies, number)?;
                number += asked.answers;
                Ok(asked)
            })?;
        }
        carriers.stop()
    }

    fn ask(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        cell: Cell,
        bodies: &Arc<Bodies>,
        first: u64,
    ) -> anyhow::Result<Asked> {
        bed.sleep(SETTLING)?;
        let before = bed.link_bytes()?;
        let time = Duration::from_secs_f64(self.seconds);
        let pace = Pace { time, least: ANSWERS_MIN, pause: Duration::ZERO };
        let bodies = Arc::clone(bodies);
        let ask = move || web::ask(carrier.address(PORT), cell, pace, &bodies, first);
        let asked = bed.pair.client.spawn_thread(ask)?;
        let answers = asked.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        let answers = answers.with_context(|| format!("through {carrier}"))?;
        bed.sleep(SETTLING)?;
        let link_bytes = bed.link_bytes()? - before;
        ensure!(answers.is_verified, "an answer through {carrier} was wrong");
        let mut took: Vec<u64> = answers.took.into_iter().map(duration_ns).collect();
        took.sort_unstable();
        let [p50, p99] = [0.5, 0.99].map(|share| rank(&took, share).unwrap_or_default());
        let answers = took.len() as u64;
        Ok(Asked {
            answers,
            answer_p50_ns: p50,
            answer_p99_ns: p99,
            body_bytes: answers * cell.bytes as u64,
            link_bytes,
        })
    }
}

impl Place {
    /// The time that an answer for each client takes, uncompressed.
    fn raw_ns(&self) -> u64 {
        let bits = 8 * self.cell.bytes as u64 * u64::from(self.cell.at_once);
        self.rate.bps().map_or(0, |bps| (bits as f64 / bps as f64 * 1e9) as u64)
    }
}
