//! `./x bench weak`: relays on processors of which little may be had.

mod quota;

use std::process::ExitCode;

use anyhow::Context as _;
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::bound::Best;
use super::contender::{Contender, dwell_variants};
use super::link_rate::LinkRate;
use super::options::{Records, Usual};
use super::record::{Bench, Measured, Run, Terms};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, figure, ms, percent};
use super::tunnel::Programs;
use super::workload::{Content, Source, Workload};
use quota::Quotas;

const AFTER_HELP: &str = "\
Examples:
  ./x bench weak                                       all quotas and rates
  ./x bench weak --quota 25 --rate 200mbit --runs 3    one cell of the table
  ./x bench weak --json weak.jsonl                     with all that is measured of each run

Each relay is in a control group of its own, which may use so many hundredths of a processor in each 100 ms (a
router's processor, or a container's share); everything else has the rest of the machine. Their work in the
kernel, for packets that they read and send, counts. `CPU out, in` is what the two relays used.

The bound is the most that link and quota carry by the linear programme (docs/schemes.md), with what the
contenders were measured to cost and leave in the same cell. --json keeps what it is made of.

It needs root of the machine: users may not make such groups.

Exit codes:
  0    all runs are done
  1    some are not, or there are no control groups that limit processor time
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure relays with a quota of processor time
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
#[command(mut_arg("seconds", |arg| arg.default_value("4")))]
#[command(mut_arg("relay_rate", |arg| arg.default_value("configured")))]
pub(super) struct Weak {
    /// Hundredths of a processor that each relay may use
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "10,25,50")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=400))]
    quota: Vec<u32>,
    /// Rates of the link
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    #[arg(default_value = "2mbit,10mbit,50mbit,200mbit")]
    rate: Vec<LinkRate>,
    /// Workload to send
    #[arg(long, value_name = "WORKLOAD", default_value = "text")]
    workload: Workload,
    #[command(flatten)]
    usual: Usual,
    /// Seed of the traffic
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    records: Records,
}

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    quota_percent: u32,
    #[serde(rename = "rate_bps")]
    rate: LinkRate,
    workload: Workload,
}

impl Bench for Weak {
    const NAME: &'static str = "weak";
    type Conditions = Terms;
    type Place = Place;
    type Measured = Measured;

    fn place(place: &Place) -> String {
        format!("{} % of a processor, {}", place.quota_percent, place.rate)
    }

    fn line(_place: &Place, measured: &Measured) -> String {
        format!("{} Mbit/s", figure(measured.mbps()))
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        for place in runner::places(runs) {
            let rows = runner::rows(runs, place);
            let goodput = |run: &Measured| Some(run.mbps());
            let none = sheet::base(&rows, "none", goodput);
            let best = Best::of(&rows, place.rate.0, f64::from(place.quota_percent) / 100.0);
            let bound = best.as_ref().map(Best::mbps);
            let figures = vec![
                Figure::new("Mbit/s", Of::Median, figure, goodput),
                Figure::new("min..max", Of::Span, figure, goodput),
                Figure::new("/none", Of::Against(none), percent, goodput),
                Figure::new("/bound", Of::Against(bound), percent, goodput),
                Figure::of_both("CPU out, in", percent, |run: &Measured, end| {
                    Some(run.cpu_ns?[end] as f64 / run.window_ns.max(1) as f64)
                }),
                Figure::new("tried", Of::Median, percent, |run: &Measured| {
                    run.relay.as_ref()?.tried_share()
                }),
                Figure::new("ping p50", Of::Median, ms, |run: &Measured| {
                    Some(run.ping_p50_ns? as f64)
                }),
                Figure::new("ping p99", Of::Median, ms, |run: &Measured| {
                    Some(run.ping_p99_ns? as f64)
                }),
            ];
            let table = sheet::table("contender", rows, figures).to_text();
            text += &format!("\n{}\n\n{table}", Self::place(place));
            if let Some(best) = best {
                text += &best.line();
            }
        }
        text
    }
}

impl Weak {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let fastest = dwell_base::Rate::clamped_bps(u64::MAX);
        let terms = self.usual.terms((0, fastest), self.seed);
        self.records.run::<Self>(terms, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let quotas = Quotas::new()?;
        let places = self.places();
        let contenders = self.contenders();
        let length =
            (self.usual.rounds.runs, |place: &Place| self.usual.timing(place.rate).total());
        let source = Source::seeded(self.seed);
        series.everywhere(
            &places,
            |_| contenders.clone(),
            length,
            |series, place| {
                let mut bed = Bed::new(lab, place.rate, 0)?;
                let timing = self.usual.timing(place.rate);
                let content =
                    Content::new(place.workload, place.rate, timing.total() * 2, &source)?;
                let usual = Programs::usual()?;
                let program = std::fs::read_link(&usual.dwell)
                    .context("the program to measure can't be found")?;
                let dwell = bed.lab.directory().join("dwell-with-quota");
                quotas.wrap(&program, place.quota_percent, &dwell)?;
                let programs = Programs { dwell, ..usual };
                let who = (place, &contenders[..]);
                let done =
                    self.usual.trials(series, who, (&mut bed, &programs), (&content, timing));
                quotas.clean();
                done
            },
        )
    }

    /// Nothing at all, nothing compressed, packets one by one, batches with the fastest codec that is usual, and what
    /// the relay picks.
    fn contenders(&self) -> Vec<Contender> {
        let security = self.usual.protection.security;
        let of = |scheme: &str, codec: &str| {
            dwell_variants(&[scheme.to_owned()], &[codec.to_owned()], security, false)
        };
        let all =
            [of("none", ""), of("packet", "zstd:1"), of("auto", "zstd:1"), of("auto", "auto")];
        std::iter::once(Contender::Off).chain(all.into_iter().flatten()).collect()
    }

    fn places(&self) -> Vec<Place> {
        let of = |&quota_percent: &u32| {
            let place = move |&rate| Place { quota_percent, rate, workload: self.workload };
            self.rate.iter().map(place)
        };
        self.quota.iter().flat_map(of).collect()
    }
}
