//! `./x bench loss`: what a link that loses packets leaves of goodput and delay, and what sending
//! lost blocks again brings.

use std::process::ExitCode;

use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_cli::values::probability;
use dwell_lab::lab::Lab;
use dwell_report::Table;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, makes_blocks};
use super::link_rate::LinkRate;
use super::options::{Records, Usual, Variants};
use super::peers::Peer;
use super::record::{Bench, Measured, RelayAccounts, Run, Terms};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, Row, figure, percent, time, whole};
use super::tunnel::Programs;
use super::workload::{Content, Source, Workload};

const AFTER_HELP: &str = "\
Examples:
  ./x bench loss                                          ten minutes
  ./x bench loss --loss 0,1% --scheme packet,edge --runs 3
  ./x bench loss --congestion-control bbr --json loss.jsonl

A download of text goes over an emulated link that loses packets by chance, each way; a ping goes
beside it. Schemes that make blocks take part twice: as usual, and with `retransmit = false`, called
`once`. Where blocks are sent again, `missed` are the datagrams that the receiver waited for: `recovered`
those that came late or again, `given up` those that did not. `resent` are those that were sent again.
`gap p99` is how long batches with history waited for one that was missing before them.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure goodput and delay over a link that loses packets
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("scheme", |arg| arg.default_value("none,packet,edge")))]
#[command(mut_arg("seconds", |arg| arg.default_value("5")))]
#[command(mut_arg("security", |arg| arg.default_value("keys")))]
pub(super) struct Loss {
    /// Shares of the packets that are lost, each way
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = probability)]
    #[arg(default_value = "0,0.1%,1%,3%")]
    loss: Vec<f64>,
    /// The share of the packets that are overtaken by later ones, each way
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    reorder: f64,
    #[command(flatten)]
    variants: Variants,
    /// Leave out the runs in which nothing is sent again
    #[arg(long)]
    only_again: bool,
    /// Rate of the link
    #[arg(long, default_value = "10mbit")]
    rate: Rate,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration_ns)]
    delay: u64,
    #[command(flatten)]
    usual: Usual,
    /// Other programs that compress: pipe, ssh-w, ssh-l, vtun, vtun:lzo
    #[arg(long, value_name = "PEER,...", value_delimiter = ',', help_heading = "Others")]
    peer: Vec<Peer>,
    #[command(flatten)]
    records: Records,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lossy {
    rate_bps: u64,
    /// The share of packets lost, each way.
    loss: f64,
    /// The share of packets that are overtaken.
    #[serde(default)]
    reorder: f64,
}

impl Bench for Loss {
    const NAME: &'static str = "loss";
    type Conditions = Terms;
    type Place = Lossy;
    type Measured = Measured;

    fn place(place: &Lossy) -> String {
        let rate = Rate::clamped_bps(place.rate_bps);
        let lost = format!("{rate}, {} % lost", place.loss * 100.0);
        match place.reorder {
            0.0 => lost,
            reorder => format!("{lost}, {} % overtaken", reorder * 100.0),
        }
    }

    fn line(_place: &Lossy, measured: &Measured) -> String {
        format!("{} Mbit/s", figure(measured.mbps()))
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        for place in runner::places(runs) {
            let table = table(runs, place).to_text();
            text.push_str(&format!("\n{}\n\n{table}", Self::place(place)));
        }
        text
    }
}

impl Loss {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let terms = self.usual.terms((self.delay, self.rate), 1);
        self.records.run::<Self>(terms, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        self.peer.iter().try_for_each(|peer| peer.ensure_installed())?;
        let contenders = self.contenders()?;
        let rate = LinkRate(Some(self.rate));
        let timing = self.usual.timing(rate);
        let content = Content::new(Workload::Text, rate, timing.total(), &Source::seeded(1))?;
        let programs = Programs::usual()?;
        let places = self.loss.iter().map(|&loss| Lossy {
            rate_bps: self.rate.as_bps(),
            loss,
            reorder: self.reorder,
        });
        let places: Vec<Lossy> = places.collect();
        let length = (self.usual.rounds.runs, |_: &Lossy| timing.total());
        let all = |_: &Lossy| contenders.clone();
        series.everywhere(&places, all, length, |series, place| {
            let mut bed = Bed::emulated(lab, rate, self.delay, (place.loss, place.reorder))?;
            let who = (place, &contenders[..]);
            self.usual.trials(series, who, (&mut bed, &programs), (&content, timing))
        })
    }

    fn contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let mut contenders = vec![Contender::Off];
        for contender in self.variants.all(self.usual.protection.security)? {
            let once = match &contender {
                Contender::Dwell(dwell) if makes_blocks(&dwell.scheme) && !self.only_again => {
                    let mut once = dwell.clone();
                    once.retransmit = false;
                    Some(Contender::Dwell(once))
                }
                _ => None,
            };
            contenders.push(contender);
            contenders.extend(once);
        }
        contenders.extend(self.peer.iter().copied().map(Contender::Peer));
        Ok(contenders)
    }
}

fn table(runs: &[Run<Loss>], place: &Lossy) -> Table {
    let rows = runner::rows(runs, place);
    let mbps = |run: &Measured| Some(run.mbps());
    let off = sheet::base(&rows, "off", mbps);
    let ns = |name: &str, value: fn(&Measured) -> Option<u64>| {
        Figure::new(name, Of::Median, time, move |run| value(run).map(|ns| ns as f64))
    };
    let count = |name: &str, value: fn(&RelayAccounts) -> Option<u64>| {
        Figure::new(name, Of::Median, whole, move |run: &Measured| {
            run.relay.as_ref().and_then(value).map(|count| count as f64)
        })
    };
    sheet::table(
        "contender",
        rows,
        vec![
            Figure::new("Mbit/s", Of::Median, figure, mbps),
            Figure::new("min..max", Of::Span, figure, mbps),
            Figure::new("/off", Of::Against(off), percent, mbps),
            ns("ping p50", |run| run.ping_p50_ns),
            ns("ping p95", |run| run.ping_p95_ns),
            Figure::new("gap p99", Of::Median, time, |run: &Measured| {
                run.relay.as_ref().and_then(|relay| relay.gap_p99_ns).map(|ns| ns as f64)
            }),
            Figure::new("pings lost", Of::Median, percent, |run: &Measured| {
                let sent = run.pings + run.pings_lost;
                (sent > 0).then(|| run.pings_lost as f64 / sent as f64)
            }),
            // Nobody waits where nothing is sent again. What the receiver counts as lost, in any case,
            // is known a whole window of datagrams later, and so not of this run.
            Figure::cell("missed", |row: &Row<'_, Measured>| {
                let missed = row.median(|run: &Measured| {
                    let relay = run.relay.as_ref()?;
                    Some((relay.recovered_datagrams + relay.unrecovered_datagrams) as f64)
                });
                sheet::shown(missed.filter(|_| waits(&row.name)), whole)
            }),
            count("resent", |relay| Some(relay.resent_datagrams)),
            count("recovered", |relay| Some(relay.recovered_datagrams)),
            count("given up", |relay| Some(relay.unrecovered_datagrams)),
        ],
    )
}

/// Returns true if this contender sends blocks, and again when they are lost.
fn waits(contender: &str) -> bool {
    let scheme = contender.split(['/', ' ']).next().unwrap_or_default();
    makes_blocks(scheme) && !contender.ends_with(" once")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::record::tests::record;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        loss: Loss,
    }

    #[test]
    fn only_blocks_are_sent_once_or_again() {
        let line = ["loss", "--scheme", "none,edge,packet", "--codec", "lz4"];
        let loss = Line::parse_from(line).loss;
        let names: Vec<String> =
            loss.contenders().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["off", "none", "edge/lz4", "edge/lz4 once", "packet/lz4"]);
        let waiting: Vec<&str> = names.iter().map(String::as_str).filter(|it| waits(it)).collect();
        assert_eq!(waiting, ["edge/lz4"]);
        let loss = Line::parse_from(line.into_iter().chain(["--only-again"])).loss;
        assert_eq!(loss.contenders().unwrap().len(), names.len() - 1);
    }

    #[test]
    fn defaults_are_those_of_this_bench() {
        let loss = Line::parse_from(["loss"]).loss;
        assert_eq!(loss.variants.scheme, ["none", "packet", "edge"]);
        assert_eq!((loss.usual.rounds.runs, loss.usual.watch.seconds), (5, 5.0));
        assert_eq!(loss.usual.protection.security.name(), "keys");
    }

    #[test]
    fn rows_are_medians_by_loss_and_contender() {
        let run = |loss: f64, name: &str, count, resent| {
            let measured = Measured {
                window_ns: 1_000_000_000,
                count,
                pings: 99,
                pings_lost: 1,
                ping_p50_ns: Some(20_000_000),
                relay: (name != "off").then(|| RelayAccounts {
                    resent_datagrams: resent,
                    recovered_datagrams: 21,
                    unrecovered_datagrams: 12,
                    lost_datagrams: 4,
                    ..RelayAccounts::default()
                }),
                ..Measured::default()
            };
            let conditions = crate::record::tests::terms();
            record::<Loss>(
                conditions,
                Lossy { rate_bps: 10_000_000, loss, reorder: 0.0 },
                (name, 0),
                measured,
            )
        };
        let runs = [
            run(0.01, "off", 1_000_000, 0),
            run(0.01, "edge/lz4", 500_000, 3),
            run(0.01, "edge/lz4", 750_000, 5),
            run(0.01, "edge/lz4", 1_000_000, 9),
            run(0.01, "edge/lz4 once", 500_000, 0),
            run(0.0, "edge/lz4", 9_000_000, 77),
        ];
        let text = table(&runs, &runs[0].place).to_text();
        let row = text.lines().find(|line| line.starts_with("edge/lz4 ")).unwrap_or_default();
        for cell in ["6.00", "4.00..8.00", "75.0 %", "20.0 ms", "1.0 %", " 33 ", " 5 "] {
            assert!(row.contains(cell), "{cell} is not in\n{text}");
        }
        let once = text.lines().find(|line| line.contains(" once")).unwrap_or_default();
        assert!(!once.is_empty() && !once.contains("33"), "nobody waits\n{text}");
    }
}
