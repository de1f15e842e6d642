//! `./x bench transfers`: `dwell send` against what people send files with.

mod contender;
mod content;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::ByteSize;
use dwell_base::time::{duration_ns, parse_duration_ns};
use dwell_lab::lab::Lab;
use dwell_lab::lab::topology::THIN_DEVICE;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::link_rate::LinkRate;
use super::options::{Records, Rounds};
use super::peers::pipe::Gate;
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::{machine, program};
use contender::{Contender, Site};
use content::{Content, Kind};

const AFTER_HELP: &str = "\
Examples:
  ./x bench transfers --runs 1                                    every kind at five rates: about half an hour
  ./x bench transfers --content sql,tree --rate 5mbit,100mbit     a corner of it
  ./x bench transfers --rate unlimited --delay 0ms --json runs.jsonl
  ./x bench transfers --file backup.sql --rate 20mbit             a file of yours
  ./x bench transfers --contender dwell,adapt,long,rsync,ssh,plain --rate 20mbit --delay 0ms,20ms,150ms
  ./x bench transfers --send=--memory-max=0                       with options for `dwell send`

Each cell is a kind of files, a rate and a delay. In each, `dwell send` to `dwell recv` (encrypted, verified, on the
disk), `zstd --adapt` and `zstd -T0 --long=27` (through a TCP connection of their own, in the clear; trees with tar)
take turns, and if they are named `rsync -az` and `ssh -C` (fetched by the receiver, logging in included), plain
TCP and TLS. Time is from the start of the sender until both ends have ended; what arrived is compared then. Files are
made here, the same for the same seed (but for `program`, which is the dwell that is measured),
and cut so that they take no longer than --longest uncompressed. `of best` is
the figure of dwell against the best of the others: below 1 it is the better one.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure `dwell send` against zstd in a pipe, rsync and ssh
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Transfers {
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(
        long,
        value_name = "RATE,...",
        value_delimiter = ',',
        default_value = "5mbit,20mbit,100mbit,500mbit,unlimited"
    )]
    rate: Vec<LinkRate>,
    /// Delays of the link, each way
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "0ms,10ms")]
    #[arg(value_parser = parse_duration_ns)]
    delay: Vec<u64>,
    /// What is sent
    #[arg(
        long,
        value_name = "KIND,...",
        value_delimiter = ',',
        default_value = "sql,logs,json,program,tree,small,package"
    )]
    content: Vec<Kind>,
    /// A file of yours, in place of these
    #[arg(long, value_name = "FILE", conflicts_with = "content")]
    file: Option<PathBuf>,
    /// The length of all files of a kind
    #[arg(long, value_name = "SIZE", default_value = "20MB")]
    size: ByteSize,
    /// They are cut to what takes this long uncompressed
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration_ns)]
    longest: u64,
    /// Who takes part
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "dwell,adapt,long"
    )]
    contender: Vec<Contender>,
    /// An option for `dwell send`, with its value after `=`; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    send: Vec<String>,
    /// Begins the random numbers of which files are made
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    bytes: u64,
    longest_ns: u64,
    seed: u64,
    /// More options of `dwell send`.
    send: Vec<String>,
}

/// A link, and what is sent over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(rename = "rate_bps")]
    rate: LinkRate,
    delay_ns: u64,
    /// The kind, or the name of a file.
    content: String,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sent {
    took_ns: u64,
    /// Bytes of files.
    bytes: u64,
    /// Bytes on the link towards the receiver, headers included.
    link_bytes: u64,
    /// CPU time of all programs at both ends.
    cpu_ns: u64,
    /// The most memory that each of them had, together, as far as it was looked at: each tenth of a second.
    #[serde(default)]
    peak_bytes: u64,
}

impl Bench for Transfers {
    const NAME: &'static str = "transfers";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Sent;

    fn place(place: &Place) -> String {
        format!("{}, {} ms, {}", place.rate, place.delay_ns as f64 / 1e6, place.content)
    }

    fn line(_place: &Place, sent: &Sent) -> String {
        let (seconds, megabytes) = (sent.took_ns as f64 / 1e9, sent.link_bytes as f64 / 1e6);
        format!("{seconds:.3} s, {megabytes:.3} MB")
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + &table::report(runs)
    }
}

/// The time between runs in which the ends of connections leave the link.
const SETTLING: Duration = Duration::from_millis(50);

impl Transfers {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            bytes: self.size.0,
            longest_ns: self.longest,
            seed: self.seed,
            send: self.send.clone(),
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        self.contender.iter().try_for_each(|who| program::ensure_installed(who.programs()))?;
        let places = self.places()?;
        let missing = |series: &Series<Self>, place: &Place| {
            series.missing(place, &self.contender, self.rounds.runs)
        };
        let parts = places.iter().map(|place| (missing(series, place), self.takes(place)));
        let parts: Vec<_> = parts.collect();
        series.plan(parts);
        for &rate in &self.rate {
            for &delay in &self.delay {
                let here = |place: &&Place| (place.rate, place.delay_ns) == (rate, delay);
                let here: Vec<_> = places.iter().filter(here).collect();
                if here.iter().any(|place| missing(series, place) > 0) {
                    self.at(lab, (rate, delay), &here, series)?;
                }
            }
        }
        Ok(())
    }

    fn places(&self) -> anyhow::Result<Vec<Place>> {
        let contents = match &self.file {
            Some(file) => {
                let name =
                    file.file_name().with_context(|| format!("{} is no file", file.display()))?;
                vec![name.to_string_lossy().into_owned()]
            }
            None => self.content.iter().map(|kind| kind.name().to_owned()).collect(),
        };
        let mut places = Vec::new();
        for &rate in &self.rate {
            for &delay_ns in &self.delay {
                for content in &contents {
                    places.push(Place { rate, delay_ns, content: content.clone() });
                }
            }
        }
        Ok(places)
    }

    /// The bytes that are sent over a link of this rate.
    fn bytes(&self, rate: LinkRate) -> u64 {
        let most =
            rate.bps().map_or(f64::INFINITY, |bps| bps as f64 / 8.0 * self.longest as f64 / 1e9);
        self.size.0.min(most as u64)
    }

    /// How long a run takes at most, about.
    fn takes(&self, place: &Place) -> Duration {
        let seconds =
            place.rate.bps().map_or(0.5, |bps| 8.0 * self.bytes(place.rate) as f64 / bps as f64);
        SETTLING + Duration::from_secs_f64(seconds / 2.0)
    }

    /// All rounds over one link.
    fn at(
        &self,
        lab: &mut Lab,
        (rate, delay): (LinkRate, u64),
        places: &[&Place],
        series: &mut Series<Self>,
    ) -> anyhow::Result<()> {
        let bed = match rate.0 {
            // A cable has no delay of its own.
            None if delay > 0 => Bed::emulated(lab, rate, delay, (0.0, 0.0))?,
            _ => Bed::new(lab, rate, delay)?,
        };
        // Whoever comes first must not pay for finding its neighbours.
        drop(Gate::open(&bed)?.cross()?);
        let site = Site::open(&bed.lab.directory().join("transfers"))?;
        for place in places {
            let content = match (&self.file, Kind::named(&place.content)) {
                (Some(file), _) => Content::copy_of(file, &site.source)?,
                (None, Some(kind)) => {
                    Content::make(kind, self.bytes(rate), self.seed, &site.source)?
                }
                (None, None) => continue,
            };
            let length = (self.rounds.runs, self.takes(place));
            let is_over = || bed.check().is_err();
            series.rounds(place, &self.contender, length, is_over, |contender| {
                self.send(&bed, *contender, &content, &site)
            })?;
        }
        Ok(())
    }

    fn send(
        &self,
        bed: &Bed<'_>,
        contender: Contender,
        content: &Content,
        site: &Site,
    ) -> anyhow::Result<Sent> {
        site.clear()?;
        bed.sleep(SETTLING)?;
        let mut transfer = contender::Transfer::prepare(bed, contender, content, site, &self.send)?;
        let cpu_ns = || machine::family_cpu_ns(&[std::process::id()]);
        let (link_before, cpu_before) = (bed.pair.egress.tx_bytes(THIN_DEVICE)?, cpu_ns());
        let begin = Instant::now();
        transfer.start()?;
        let peak_bytes = transfer.wait(bed)?;
        let took = begin.elapsed();
        // Whoever served gathers what its children took when they have ended, and must not be ended before.
        bed.sleep(SETTLING)?;
        let cpu_ns = cpu_ns().saturating_sub(cpu_before);
        drop(transfer);
        bed.sleep(SETTLING)?;
        let link_bytes = bed.pair.egress.tx_bytes(THIN_DEVICE)? - link_before;
        content.verify(&site.target).with_context(|| format!("through {contender}"))?;
        let (took_ns, bytes) = (duration_ns(took), content.bytes);
        Ok(Sent { took_ns, bytes, link_bytes, cpu_ns, peak_bytes })
    }
}
