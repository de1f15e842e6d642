//! `./x bench faults`: how long it takes until traffic goes on after something went wrong.

mod record;
mod run;
mod table;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_lab::corpus;
use dwell_lab::lab::Lab;
use dwell_testkit::faults::{Fault, FaultTiming};

use self::record::{Cause, Circumstances};
use self::run::Scene;
use super::contender::Security;
use super::download::Body;
use super::options::{Records, Rounds};
use super::runner::Series;
use dwell_cli::values::{codec, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench faults                                      all faults, keys and psk: 20 minutes
  ./x bench faults --fault link-down --security keys    one of them
  ./x bench faults --fault kill-egress,address --runs 1 --json faults.jsonl

Two relays carry a TCP download whose every byte is compared, and 200 numbered datagrams a second
each way, over an emulated link; no packet can go past the relays. Then one of these happens:

  kill-ingress, kill-egress   kill -9 of a relay, which is started again after --restart
  freeze                      a relay is stopped for --outage and goes on, like a machine asleep
  link-down                   the link loses everything for --outage
  address                     a relay's address changes
  log-full                    the disk that a relay logs to is full
  log-closed, log-unread      the pipe that it logs to is closed, or nobody reads it
  reload                      both relays get another scheme and codec, four times

`resumes` is the time from the moment when nothing is wrong any more (the relay is started again,
the link carries, the address is there) until a datagram arrives that was sent after it; `silence`
the longest time without an arrival since the beginning. Download and ingress are the clients'.

Exit codes:
  0    traffic went on after every fault, and nothing was altered
  1    it did not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure how soon traffic goes on after a fault
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
pub(super) struct Faults {
    /// Faults to cause
    #[arg(long, value_name = "FAULT,...", value_delimiter = ',')]
    #[arg(default_values_t = Fault::ALL)]
    fault: Vec<Fault>,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW,...", default_value = "keys,psk", value_delimiter = ',')]
    security: Vec<Security>,
    /// The relays' scheme
    #[arg(long, default_value = "edge", value_parser = schemes())]
    scheme: String,
    /// The codec and its level
    #[arg(long, default_value = "zstd:1", value_parser = codec)]
    codec: String,
    /// Rate of the link, each way
    #[arg(long, default_value = "10mbit")]
    rate: Rate,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// From the end of a relay until it is started again
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration_ns)]
    restart: u64,
    /// Time that the link is down, or a relay frozen
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration_ns)]
    outage: u64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// Of a run, beside the fault itself.
const AROUND: Duration = Duration::from_secs(9);
/// The length of the file that is downloaded over and over.
const BODY_BYTES: usize = 4 << 20;

impl Faults {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let circumstances = self.circumstances();
        self.records.run::<Self>(circumstances, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let part = |(fault, security): (Fault, Security)| {
            let place = Cause { fault: fault.name().to_owned() };
            (series.missing(&place, &[security.name()], self.rounds.runs), self.takes(fault))
        };
        let parts: Vec<_> = self.pairs().map(part).collect();
        series.plan(parts);
        let body = Body::from(std::sync::Arc::new(corpus::half_and_half(BODY_BYTES, 1)));
        for round in 0..self.rounds.runs {
            for (fault, security) in self.pairs() {
                let place = Cause { fault: fault.name().to_owned() };
                let turn = (&place, security.name().to_owned(), round);
                let interrupted = lab.interrupted();
                let is_interrupted = || interrupted.load(Ordering::Relaxed);
                series.run(turn, self.takes(fault), is_interrupted, || {
                    self.scene(fault, security, &body).play(lab)
                })?;
            }
        }
        Ok(())
    }

    fn pairs(&self) -> impl Iterator<Item = (Fault, Security)> {
        let of = |&fault| self.security.iter().map(move |&security| (fault, security));
        self.fault.iter().flat_map(of)
    }

    /// About how long a run takes.
    fn takes(&self, fault: Fault) -> Duration {
        let timing = self.timing();
        AROUND
            + match fault {
                Fault::KillIngress | Fault::KillEgress => timing.restart,
                Fault::Freeze | Fault::LinkDown => timing.outage,
                _ => Duration::from_secs(2),
            }
    }

    fn timing(&self) -> FaultTiming {
        let [restart, outage] = [self.restart, self.outage].map(Duration::from_nanos);
        FaultTiming { restart, outage }
    }

    fn scene<'a>(&'a self, fault: Fault, security: Security, body: &'a Body) -> Scene<'a> {
        Scene {
            fault,
            security,
            timing: self.timing(),
            scheme: &self.scheme,
            codec: &self.codec,
            rate: self.rate,
            delay_ns: self.delay,
            body,
        }
    }

    fn circumstances(&self) -> Circumstances {
        Circumstances {
            scheme: self.scheme.clone(),
            codec: self.codec.clone(),
            rate_bps: self.rate.as_bps(),
            delay_ns: self.delay,
            restart_ns: self.restart,
            outage_ns: self.outage,
        }
    }
}
