//! `./x bench loss`: what a link that loses packets leaves of goodput and delay, and what sending
//! lost blocks again brings.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::{self, Lab};
use dwell_report::{Column, Table, human};
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants, makes_blocks};
use super::link::seconds;
use super::link_rate::LinkRate;
use super::machine;
use super::record::{Journal, Measured, Origin, RelayAccounts, Terms, unix_seconds};
use super::report::{figure, percent};
use super::runner::{Runner, turns};
use super::statistics::Summary;
use super::trial::{self, Timing};
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Workload};
use dwell_cli::terminal;
use dwell_cli::values::{codec, probability, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench loss                                          ten minutes
  ./x bench loss --loss 0,1% --scheme packet,edge --runs 3
  ./x bench loss --congestion-control bbr --json loss.jsonl

A download of text goes over an emulated link that loses packets by chance, each way; a ping goes
beside it. Schemes that make blocks take part twice: as usual, and with `retransmit = false`, called
`once`. Where blocks are sent again, `missed` are the datagrams that the receiver waited for: `recovered`
those that came late or again, `given up` those that did not. `resent` are those that were sent again.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure goodput and delay over a link that loses packets
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Loss {
    /// Shares of the packets that are lost, each way
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = probability)]
    #[arg(default_value = "0,0.1%,1%,3%")]
    loss: Vec<f64>,
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet,edge")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    codec: Vec<String>,
    /// Rate of the link
    #[arg(long, default_value = "10mbit")]
    rate: Rate,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds for which each run is measured, after a warm-up
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: f64,
    /// Knowledge that relays have of the link
    #[arg(long, value_name = "HOW", default_value = "auto")]
    relay_rate: Belief,
    /// Congestion control of the sender's TCP: cubic, bbr, reno; the machine's usual
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW", default_value = "keys")]
    security: Security,
    /// Write each run to this file as a line of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LossRun {
    at_unix_seconds: u64,
    #[serde(flatten)]
    origin: Origin,
    #[serde(flatten)]
    terms: Terms,
    rate_bps: u64,
    /// The share of packets lost, each way.
    loss: f64,
    contender: String,
    round: u32,
    #[serde(flatten)]
    measured: Measured,
}

/// By loss, in its bits, and contender.
type Runs = HashMap<(u64, String), Vec<Measured>>;

impl Loss {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let contenders = self.contenders();
        let mut lab = lab::enter()?;
        let (journal, _) = Journal::open::<LossRun>(self.json.as_deref(), false)?;
        let count = contenders.len() * self.loss.len() * self.runs as usize;
        let mut runner = Runner::new(count, self.timing().total() * count as u32, journal);
        let mut runs = Runs::new();
        for &loss in &self.loss {
            if !runner.is_over() {
                self.rounds(&mut lab, loss, &contenders, (&mut runner, &mut runs))?;
            }
        }
        let mut text = format!("\n{}\n", Origin::this().line());
        for &loss in &self.loss {
            let table = table(&contenders, loss, &runs);
            text.push_str(&format!("\n{}, {} lost\n\n{}", self.rate, shown(loss), table.to_text()));
        }
        terminal::print(&text)?;
        Ok(runner.outcome().exit_code())
    }

    fn contenders(&self) -> Vec<Contender> {
        let mut contenders = vec![Contender::Off];
        for contender in dwell_variants(&self.scheme, &self.codec, self.security, false) {
            let once = match &contender {
                Contender::Dwell(dwell) if makes_blocks(&dwell.scheme) => {
                    let mut once = dwell.clone();
                    once.retransmit = false;
                    Some(Contender::Dwell(once))
                }
                _ => None,
            };
            contenders.push(contender);
            contenders.extend(once);
        }
        contenders
    }

    fn timing(&self) -> Timing {
        Timing::new(LinkRate(Some(self.rate)), self.seconds)
    }

    fn congestion_control(&self) -> String {
        self.congestion_control.clone().unwrap_or_else(machine::congestion_control)
    }

    fn rounds(
        &self,
        lab: &mut Lab,
        loss: f64,
        contenders: &[Contender],
        (runner, runs): (&mut Runner, &mut Runs),
    ) -> anyhow::Result<()> {
        let rate = LinkRate(Some(self.rate));
        let mut bed = Bed::emulated(lab, rate, self.delay, loss)?;
        bed.set_congestion_control(&self.congestion_control())?;
        let timing = self.timing();
        let content = Content::new(Workload::Text, rate, timing.total(), 1);
        for round in 0..self.runs {
            for contender in turns(contenders, round) {
                let what = format!("{} lost, {contender}, round {}", shown(loss), round + 1);
                let found = self.measure(&bed, contender, &content, timing);
                let line =
                    |found: &Measured| format!("{} Mbit/s", figure(found.per_second() * 8e-6));
                let run = (what.as_str(), timing.total());
                if let Some(measured) = runner.take(run, found, || bed.check().is_err(), line) {
                    runner.write(&self.record(loss, contender, round, &measured))?;
                    let place = (loss.to_bits(), contender.to_string());
                    runs.entry(place).or_default().push(measured);
                } else if runner.is_over() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        bed: &Bed<'_>,
        contender: &Contender,
        content: &Content,
        timing: Timing,
    ) -> anyhow::Result<Measured> {
        bed.check()?;
        let mut tunnel = Tunnel::start(bed, contender, self.relay_rate, &Programs::usual()?)?;
        let measured = trial::run(bed, &mut tunnel, content, timing);
        tunnel.stop()?;
        measured
    }

    fn record(&self, loss: f64, contender: &Contender, round: u32, measured: &Measured) -> LossRun {
        LossRun {
            at_unix_seconds: unix_seconds(),
            origin: Origin::this(),
            terms: Terms {
                delay_ns: self.delay,
                delay_max_bps: self.rate.as_bps(),
                belief: self.relay_rate,
                congestion_control: self.congestion_control(),
                security: self.security,
                seconds: self.seconds,
                seed: 1,
            },
            rate_bps: self.rate.as_bps(),
            loss,
            contender: contender.to_string(),
            round,
            measured: measured.clone(),
        }
    }
}

/// `0.1 %`
fn shown(loss: f64) -> String {
    format!("{} %", loss * 100.0)
}

fn table(contenders: &[Contender], loss: f64, runs: &Runs) -> Table {
    let mut table = Table::new([
        Column::left("contender"),
        Column::right("Mbit/s"),
        Column::right("least..most"),
        Column::right("/off"),
        Column::right("ping p50"),
        Column::right("ping p95"),
        Column::right("pings lost"),
        Column::right("missed"),
        Column::right("resent"),
        Column::right("recovered"),
        Column::right("given up"),
    ]);
    let of = |name: &str, value: &dyn Fn(&Measured) -> Option<f64>| {
        Summary::of(runs.get(&(loss.to_bits(), name.to_owned()))?.iter().filter_map(value))
    };
    let mbps = |run: &Measured| Some(run.per_second() * 8e-6);
    let off = of("off", &mbps);
    for contender in contenders {
        let name = contender.to_string();
        let Some(speed) = of(&name, &mbps) else { continue };
        let time = |value: fn(&Measured) -> Option<u64>| {
            let median = of(&name, &|run| value(run).map(|ns| ns as f64)).map(|s| s.median);
            median.map_or_else(nothing, |ns| human::duration(ns as u64))
        };
        let count = |value: fn(&RelayAccounts) -> u64| {
            let median = of(&name, &|run| run.relay.as_ref().map(|relay| value(relay) as f64));
            median.map_or_else(nothing, |summary| format!("{:.0}", summary.median))
        };
        let pings_lost = of(&name, &|run| {
            let sent = run.pings + run.pings_lost;
            (sent > 0).then(|| run.pings_lost as f64 / sent as f64)
        });
        // Nobody waits where nothing is sent again. What the receiver counts as lost, in any case, is
        // known a whole window of datagrams later, and so not of this run.
        let waits = matches!(contender, Contender::Dwell(dwell)
            if dwell.retransmit && makes_blocks(&dwell.scheme));
        let missed = match waits {
            true => count(|relay| relay.recovered_datagrams + relay.unrecovered_datagrams),
            false => nothing(),
        };
        table.row([
            name.clone(),
            figure(speed.median),
            format!("{}..{}", figure(speed.min), figure(speed.max)),
            percent(off.map(|off| speed.median / off.median)),
            time(|run| run.ping_p50_ns),
            time(|run| run.ping_p95_ns),
            percent(pings_lost.map(|share| share.median)),
            missed,
            count(|relay| relay.resent_datagrams),
            count(|relay| relay.recovered_datagrams),
            count(|relay| relay.unrecovered_datagrams),
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

    fn loss(scheme: &[&str]) -> Loss {
        Loss {
            loss: vec![0.0, 0.01],
            scheme: scheme.iter().map(|&name| name.to_owned()).collect(),
            codec: vec!["lz4".into()],
            rate: Rate::from_mbps(10),
            delay: 0,
            runs: 1,
            seconds: 1.0,
            relay_rate: Belief::Auto,
            congestion_control: None,
            security: Security::Keys,
            json: None,
        }
    }

    #[test]
    fn only_blocks_are_sent_once_or_again() {
        let names: Vec<String> = loss(&["none", "edge", "packet"])
            .contenders()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["off", "none", "edge/lz4", "edge/lz4 once", "packet/lz4"]);
    }

    #[test]
    fn rows_are_medians_by_loss_and_contender() {
        let run = |count, resent| Measured {
            window_ns: 1_000_000_000,
            count,
            pings: 99,
            pings_lost: 1,
            ping_p50_ns: Some(20_000_000),
            relay: Some(RelayAccounts {
                resent_datagrams: resent,
                recovered_datagrams: 21,
                unrecovered_datagrams: 12,
                lost_datagrams: 4,
                ..RelayAccounts::default()
            }),
            ..Measured::default()
        };
        let place = |loss: f64, name: &str| (loss.to_bits(), name.to_owned());
        let runs = Runs::from([
            (place(0.01, "off"), vec![Measured { relay: None, ..run(1_000_000, 0) }]),
            (place(0.01, "edge/lz4"), vec![run(500_000, 3), run(750_000, 5), run(1_000_000, 9)]),
            (place(0.01, "edge/lz4 once"), vec![run(500_000, 0)]),
            (place(0.0, "edge/lz4"), vec![run(9_000_000, 77)]),
        ]);
        let text = table(&loss(&["edge"]).contenders(), 0.01, &runs).to_text();
        let row = text.lines().find(|line| line.starts_with("edge/lz4 ")).unwrap_or_default();
        for cell in ["6.00", "4.00..8.00", "75.0 %", "20.0 ms", "1.0 %", " 33 ", " 5 "] {
            assert!(row.contains(cell), "{cell} is not in\n{text}");
        }
        let once = text.lines().find(|line| line.contains(" once")).unwrap_or_default();
        assert!(!once.is_empty() && !once.contains("33"), "nobody waits\n{text}");
    }
}
