//! `./x bench ceiling`: how fast it is where nothing is slow and nothing can be compressed.

use std::process::ExitCode;
use std::time::Duration;

use dwell_lab::lab::Lab;
use dwell_report::Table;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, Security};
use super::flood::{self, Flooded};
use super::link_rate::LinkRate;
use super::options::{Knowledge, Records, Rounds, Variants, Watch};
use super::others::Others;
use super::record::{Bench, Measured, OnlyPlace, Run};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, Row, figure, percent};
use super::trial::{self, Timing};
use super::tunnel::Belief;
use super::workload::{Content, Source, Workload};

const AFTER_HELP: &str = "\
Examples:
  ./x bench ceiling --runs 3                                  dwell only, two minutes
  ./x bench ceiling --openvpn --wireguard-go ~/go/bin/wireguard

wireguard-go is built by `go install golang.zx2c4.com/wireguard@latest`.

A TCP stream of random bytes and a flood of 64-byte packets pass two sites and a plain cable.
All of it, kernel included, shares the cores of this machine: compare only what was measured
side by side. `busy` is the share of a core that each process takes: the sending tunnel, the
receiving tunnel, this program (which makes and checks the stream). What is left of the cores
is the kernel's or idle.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure throughput and packet rate with nothing to compress
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("seconds", |arg| {
    arg.help("Seconds for which a stream and each step of a flood are measured")
}))]
pub(super) struct Ceiling {
    #[command(flatten)]
    variants: Variants,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW,...", default_value = "psk,none", value_delimiter = ',')]
    security: Vec<Security>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    knowledge: Knowledge,
    #[command(flatten)]
    records: Records,
    #[command(flatten)]
    others: Others,
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    belief: Belief,
    seconds: f64,
}

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Peak {
    stream: Measured,
    flood: Flooded,
}

const CABLE: LinkRate = LinkRate(None);

impl Bench for Ceiling {
    const NAME: &'static str = "ceiling";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Peak;

    fn line(_place: &OnlyPlace, peak: &Peak) -> String {
        format!("{} Gbit/s, {} packets/s", figure(peak.gbps()), figure(peak.flood.per_second))
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + "\n" + &table(runs).to_text()
    }
}

impl Ceiling {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let belief = self.knowledge.relay_rate;
        let conditions = Conditions { belief, seconds: self.watch.seconds };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let mut contenders = vec![Contender::Off];
        for &security in &self.security {
            contenders.extend(self.variants.protected(security, true)?);
        }
        contenders.extend(self.others.contenders(&["gcm", "none"])?);
        let programs = self.others.programs()?;
        let bed = Bed::new(lab, CABLE, 0)?;
        let timing = Timing::new(CABLE, self.watch.seconds);
        let content = Content::new(Workload::Random, CABLE, timing.total(), &Source::seeded(1))?;
        let step = Duration::from_secs_f64(self.watch.seconds);
        let length = (self.rounds.runs, timing.total() + step * (flood::STEPS_MAX - 2));
        let is_interrupted = || bed.check().is_err();
        series.here(&contenders, length, is_interrupted, |contender| {
            let belief = self.knowledge.relay_rate;
            trial::through(&bed, contender, (belief, &programs), |tunnel| {
                let stream = trial::run(&bed, tunnel, &content, timing)?;
                let flood = flood::climb(&bed, tunnel, timing.window)?;
                Ok(Peak { stream, flood })
            })
        })
    }
}

impl Peak {
    fn gbps(&self) -> f64 {
        self.stream.per_second() * 8e-9
    }

    /// Of the window's time.
    fn share(&self, cpu_ns: u64) -> Option<f64> {
        Some(cpu_ns as f64 / self.stream.window_ns.max(1) as f64)
    }
}

fn table(runs: &[Run<Ceiling>]) -> Table {
    let rows = runner::rows(runs, &OnlyPlace {});
    let speed = |peak: &Peak| Some(peak.gbps());
    let packets = |peak: &Peak| Some(peak.flood.per_second / 1e3);
    let off = sheet::base(&rows, "off", speed);
    let busy = |row: &Row<'_, Peak>| {
        let of = |value: &dyn Fn(&Peak) -> Option<f64>| sheet::shown(row.median(value), percent);
        let end = |end: usize| of(&|peak| peak.share(peak.stream.cpu_ns?[end]));
        let own = of(&|peak| peak.share(peak.stream.own_cpu_ns));
        format!("{}, {}, {own}", end(0), end(1))
    };
    sheet::table(
        "contender",
        rows,
        vec![
            Figure::new("Gbit/s", Of::Median, figure, speed),
            Figure::new("min..max", Of::Span, figure, speed),
            Figure::new("/off", Of::Against(off), percent, speed),
            Figure::of_both("CPU s/GB out, in", figure, |peak: &Peak, end| {
                Some(peak.stream.cpu_ns?[end] as f64 / peak.stream.application_bytes as f64)
            }),
            Figure::cell("busy out, in, own", busy),
            Figure::new("kpackets/s", Of::Median, figure, packets),
            Figure::new("min..max", Of::Span, figure, packets),
            Figure::of_both("CPU µs/packet out, in", figure, |peak: &Peak, end| {
                Some(peak.flood.cpu_ns_per_packet?[end] / 1e3)
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn cpu_time_is_reported_per_byte_and_per_packet() {
        let stream = Measured {
            window_ns: 1_000_000_000,
            count: 500_000_000,
            application_bytes: 500_000_000,
            cpu_ns: Some([250_000_000, 500_000_000]),
            own_cpu_ns: 100_000_000,
            ..Measured::default()
        };
        let flood = Flooded { per_second: 50_000.0, cpu_ns_per_packet: Some([2e3, 4e3]) };
        let conditions = Conditions { belief: Belief::Auto, seconds: 1.0 };
        let who = ("none sealed", 0);
        let run = record::<Ceiling>(conditions, OnlyPlace {}, who, Peak { stream, flood });
        let text = Ceiling::report(&[run]);
        let row = text.lines().last().unwrap_or_default();
        for expected in ["4.00", "0.50, 1.00", "25.0 %, 50.0 %, 10.0 %", "50.0", "2.00, 4.00"] {
            assert!(row.contains(expected), "{expected} is not in {row}");
        }
    }
}
