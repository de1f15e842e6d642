//! `./x bench link`: goodput over a link, contender against contender.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::ArgPredicate;
use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_cli::terminal;
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, with_block_packets};
use super::file::NamedFile;
use super::link_rate::LinkRate;
use super::options::{Records, Usual, Variants};
use super::others::Others;
use super::peers::Peer;
use super::record::{Bench, Measured, Run, Terms};
use super::report;
use super::results::Results;
use super::runner::{self, Series};
use super::sheet::{figure, shown, time};
use super::workload::{Content, Source, Workload};

const AFTER_HELP: &str = "\
Examples:
  ./x bench link --rate 10mbit --workload text --runs 3    two minutes
  ./x bench link --rate 10mbit --workload many --scheme packet,flow,edge --block-packets 5,10
                                                             blocks of several packets
  ./x bench link --rate 10mbit --file site.tar --scheme edge,auto --codec zstd:6
                                                             a file of yours
  ./x bench link --rate 10mbit --file site.tar --scheme edge,auto --codec zstd:6 \\
      --peer pipe,ssh-w,ssh-l,vtun                           and what others make of it
  ./x bench link --json runs.jsonl                         the whole matrix
  ./x bench link --json runs.jsonl --resume --openvpn      OpenVPN in addition
  ./x bench link --json runs.jsonl --report                only print what is in the file

For each rate and workload every contender runs once a round, each round in another order:
what disturbs the machine for a while disturbs all of them. `off` is no tunnel at all. With the scheme `none`
among them, `/bound` is of the most that the link and a processor for each relay carry by the linear programme
(docs/schemes.md), with what the contenders cost and leave; what a contender's tunnel can't do is not in it.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure goodput and delay over a slow link
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("scheme", |arg| arg.default_value("none,all,packet")))]
#[command(mut_arg("codec", |arg| arg.default_value("lz4,zstd:1")))]
#[command(mut_arg("seconds", |arg| {
    arg.help("Seconds for which each run is measured, after a warm-up; slow links need more")
}))]
pub(super) struct Link {
    #[command(flatten)]
    variants: Variants,
    /// Numbers of packets in each block, for schemes of blocks, beside as many as wait
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=64))]
    block_packets: Vec<u32>,
    /// Workloads to send
    #[arg(long, value_name = "WORKLOAD,...", default_value = "text,random,half,telemetry")]
    #[arg(value_delimiter = ',', requires_if("file", "file"))]
    #[arg(default_value_if("file", ArgPredicate::IsPresent, "file"))]
    workload: Vec<Workload>,
    /// File to send, for the workloads `file` and `ten`; it begins again when it ends
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    #[arg(default_value = "1mbit,5mbit,10mbit,50mbit,100mbit,500mbit,unlimited")]
    rate: Vec<LinkRate>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Faster links have no delay: its emulator would be what limits them
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    delay_up_to: Rate,
    #[command(flatten)]
    usual: Usual,
    /// Seed of texts, random bytes and messages
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    others: Others,
    /// Other programs that compress: pipe (zstd --adapt for each TCP connection), ssh-w (a tunnel of
    /// ssh -C), ssh-l (TCP connections forwarded by ssh -C), vtun (zlib), vtun:lzo
    #[arg(long, value_name = "PEER,...", value_delimiter = ',', help_heading = "Others")]
    peer: Vec<Peer>,
    #[command(flatten)]
    records: Records,
}

/// A place in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(rename = "rate_bps")]
    pub(super) rate: LinkRate,
    pub(super) workload: Workload,
}

/// The variants of OpenVPN that take part if none are named.
const OPENVPN_USUAL: [&str; 6] = ["gcm", "gcm+lz4", "gcm+lzo", "none", "none+lz4", "none+lzo"];

impl Bench for Link {
    const NAME: &'static str = "link";
    type Conditions = Terms;
    type Place = Place;
    type Measured = Measured;

    fn place(place: &Place) -> String {
        format!("{}, {}", place.rate, place.workload.name())
    }

    fn line(place: &Place, measured: &Measured) -> String {
        let (unit, one) = place.workload.unit();
        let ping = shown(measured.ping_p50_ns.map(|ns| ns as f64), time);
        format!("{} {unit}, ping {ping}", figure(measured.per_second() / one))
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        let Some(first) = runs.first() else { return text };
        let terms = &first.conditions;
        text += &format!(
            "{} each way up to {}, none beyond; relays' rate {:?}, security {:?}, TCP {}, seed {}\n",
            dwell_base::time::format_duration_ns(terms.delay_ns),
            Rate::clamped_bps(terms.delay_max_bps),
            terms.belief,
            terms.security,
            terms.congestion_control,
            terms.seed,
        );
        if let Some(NamedFile { name, bytes }) = &terms.file {
            text += &format!("file: {name}, {bytes} bytes\n");
        }
        text + &report::link(&Results::new(runs))
            + "Everything that arrived was what had been sent.\n"
    }
}

impl Link {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut terms = self.usual.terms((self.delay, self.delay_up_to), self.seed);
        terms.file = self.file.as_deref().map(NamedFile::at).transpose()?;
        self.records.run::<Self>(terms, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let contenders = self.contenders()?;
        let programs = self.others.programs()?;
        let takes = |place: &Place| self.usual.timing(place.rate).total();
        let length = (self.usual.rounds.runs, takes);
        let source = self.source()?;
        let who = |place: &Place| able(&contenders, place.workload);
        series.everywhere(&self.places(), who, length, |series, &place| {
            let Place { rate, workload } = place;
            let has_delay = rate.bps().is_some_and(|bps| bps <= self.delay_up_to.as_bps());
            let mut bed = Bed::new(lab, rate, if has_delay { self.delay } else { 0 })?;
            let timing = self.usual.timing(rate);
            let content = Content::new(workload, rate, timing.total() * 2, &source)?;
            let who = (&place, &who(&place)[..]);
            self.usual.trials(series, who, (&mut bed, &programs), (&content, timing))
        })
    }

    fn contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let mut contenders = vec![Contender::Off];
        let variants = self.variants.all(self.usual.protection.security)?;
        contenders.extend(with_block_packets(variants, &self.block_packets));
        contenders.extend(self.others.contenders(&OPENVPN_USUAL)?);
        self.peer.iter().try_for_each(|peer| peer.ensure_installed())?;
        contenders.extend(self.peer.iter().copied().map(Contender::Peer));
        for &workload in &self.workload {
            let unable = contenders.iter().filter(|contender| !contender.carries(workload));
            let names: Vec<String> = unable.map(ToString::to_string).collect();
            if !names.is_empty() {
                let (workload, names) = (workload.name(), names.join(", "));
                terminal::note(&format!("{workload}: without {names}: TCP connections only"));
            }
        }
        Ok(contenders)
    }

    fn source(&self) -> anyhow::Result<Source> {
        let read = |path: &PathBuf| NamedFile::at(path)?.read(path);
        Ok(Source { seed: self.seed, file: self.file.as_ref().map(read).transpose()? })
    }

    fn places(&self) -> Vec<Place> {
        let of = |&rate| self.workload.iter().map(move |&workload| Place { rate, workload });
        self.rate.iter().flat_map(of).collect()
    }
}

/// Those that can carry a workload.
fn able(contenders: &[Contender], workload: Workload) -> Vec<Contender> {
    contenders.iter().filter(|contender| contender.carries(workload)).cloned().collect()
}
