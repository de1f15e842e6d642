//! `./x bench deadlines`: packets that are held back to fill datagrams, and those that are too
//! late. The tables of Sawabe et al., "Packet chunking with deadlines", from real relays.

mod classes;
mod run;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use dwell_base::Rate;
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use self::classes::ClassSet;
use self::run::{Measured, Trial};
use super::bed::Bed;
use super::link_rate::LinkRate;
use super::options::{Records, Rounds, Watch};
use super::record::{Bench, Run};
use super::runner::{Series, turns};
use dwell_cli::values::schemes;

const AFTER_HELP: &str = "\
Examples:
  ./x bench deadlines                                     a quarter of an hour
  ./x bench deadlines --scheme chumq,chutq-dcf --load 0.8 --runs 1
  ./x bench deadlines --mtu 9000 --rate 50mbit --json deadlines.jsonl
  ./x bench deadlines --classes ten --scheme chumq+cea,chutq-dcf+cea --rate 5mbit --mtu 4000 --load 0.85

Packets come at random moments. Unless set otherwise they are of three classes, each a third of the
load in bytes: 40 bytes that may take 5 ms, 200 bytes that may take 20 ms, and 1400 bytes that may take
100 ms. The sending relay is limited by --rate; a load above 1 begins in the middle of a load of 0.8, as in the paper, and
only what is sent meanwhile counts.

`datagrams` are those sent for a hundred packets. `after W` are packets that the relay sent later than
W = max_wait - (X + D), for which it may hold them back: what the paper counts; `late` those that it
sent later than that by more than a frame takes, which X has in reserve; `arrived late` those that took longer than
max_wait from the source to the receiver, by the clock that both hosts share. `sources late`: how
much later than due packets were sent on average; more than some 100 us mean that the machine had no
time for them, nor for the relays, and that the run says nothing. `stolen`: the share of the machine's
time that a hypervisor gave to others although it was wanted here.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure packets that are held back, and those that are too late
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
#[command(mut_arg("seconds", |arg| arg.default_value("3")))]
pub(super) struct Deadlines {
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", value_delimiter = ',', value_parser = schemes())]
    #[arg(
        default_value = "none,basicq,chumq,chumq+cea,chutq-dcf,chutq-tpf,chutq-cef,chutq-dcf+cea"
    )]
    scheme: Vec<String>,
    /// Which classes of packets there are
    #[arg(long, value_name = "SET", default_value = "three")]
    classes: ClassSet,
    /// Bytes of packets per second, by what the link carries
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', value_parser = load)]
    #[arg(default_value = "0.5,0.8,1.2")]
    load: Vec<f64>,
    /// The MTU of the link between the relays
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    #[arg(default_value = "1500,4000", value_parser = clap::value_parser!(u32).range(1500..=9000))]
    mtu: Vec<u32>,
    /// Rate of the link
    #[arg(long, default_value = "20mbit")]
    rate: Rate,
    /// Bytes that a datagram takes of the link below its IP header.
    /// 1000 make a link whose limit is its packets per second
    #[arg(long, value_name = "BYTES", default_value = "14")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    overhead: u32,
    /// Give the relays real-time priority, by chrt
    #[arg(long)]
    realtime: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    records: Records,
}

fn load(text: &str) -> Result<f64, String> {
    let is_sensible = |load: &f64| (0.01..=2.0).contains(load);
    let read = text.parse().ok().filter(is_sensible);
    read.ok_or_else(|| "use a number from 0.01 to 2".to_owned())
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    rate_bps: u64,
    overhead_bytes: u32,
    classes_of: ClassSet,
    realtime: bool,
    seconds: f64,
}

/// A link and its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    mtu: u32,
    load: f64,
}

impl Bench for Deadlines {
    const NAME: &'static str = "deadlines";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Measured;

    fn place(place: &Place) -> String {
        format!("MTU {}, load {}", place.mtu, place.load)
    }

    fn line(_place: &Place, measured: &Measured) -> String {
        let late = measured.classes.iter().map(|class| format!("{:.2}", class.late_percent()));
        let late = late.collect::<Vec<_>>().join(", ");
        let datagrams = measured.datagrams_per_hundred();
        format!("{datagrams:.2} datagrams for 100 packets, {late} % late")
    }

    fn report(runs: &[Run<Self>]) -> String {
        table::report(runs)
    }
}

/// Starting, warming up, draining and stopping.
const AROUND: Duration = Duration::from_millis(3200);

impl Deadlines {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = self.conditions();
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let missing = |series: &Series<Self>, mtu| -> usize {
            let of = |&load| series.missing(&Place { mtu, load }, &self.scheme, self.rounds.runs);
            self.load.iter().map(of).sum()
        };
        let parts = self.mtu.iter().map(|&mtu| (missing(series, mtu), self.takes()));
        let parts: Vec<_> = parts.collect();
        series.plan(parts);
        for &mtu in &self.mtu {
            if missing(series, mtu) > 0 {
                self.with_mtu(lab, mtu, series)?;
            }
        }
        Ok(())
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            rate_bps: self.rate.as_bps(),
            overhead_bytes: self.overhead,
            classes_of: self.classes,
            realtime: self.realtime,
            seconds: self.watch.seconds,
        }
    }

    fn takes(&self) -> Duration {
        AROUND + Duration::from_secs_f64(self.watch.seconds)
    }

    fn with_mtu(&self, lab: &mut Lab, mtu: u32, series: &mut Series<Self>) -> anyhow::Result<()> {
        let bed = Bed::new(lab, LinkRate(None), 0)?;
        for host in [&bed.pair.ingress, &bed.pair.egress] {
            host.mtu(dwell_lab::lab::topology::THIN_DEVICE, mtu)?;
        }
        for round in 0..self.rounds.runs {
            for &load in &self.load {
                for scheme in turns(&self.scheme, round) {
                    let trial = Trial {
                        classes: self.classes,
                        scheme,
                        load,
                        rate: self.rate,
                        overhead_bytes: self.overhead,
                        realtime: self.realtime,
                        window: Duration::from_secs_f64(self.watch.seconds),
                        seed: u64::from(round) + 1,
                    };
                    let turn = (&Place { mtu, load }, scheme.clone(), round);
                    let is_interrupted = || bed.check().is_err();
                    series.run(turn, self.takes(), is_interrupted, || trial.run(&bed))?;
                }
            }
        }
        Ok(())
    }
}
