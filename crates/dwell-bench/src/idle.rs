//! `./x bench idle`: what a tunnel adds to a ping on a link that carries nothing else.

use std::process::ExitCode;
use std::time::Duration;

use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::Lab;
use dwell_report::{Table, human};
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::contender::{Contender, Security};
use super::link_rate::LinkRate;
use super::options::{Knowledge, Protection, Records, Rounds, Variants};
use super::others::Others;
use super::pinger::Pinger;
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::sheet::{self, Figure, Of, whole};
use super::trial;
use super::tunnel::{Belief, Programs, Tunnel};

const AFTER_HELP: &str = "\
Examples:
  ./x bench idle                         off, none and packet on 10 and 100 Mbit/s
  ./x bench idle --openvpn --runs 9      with OpenVPN

The medians are of each round's median; the difference is to `off`. `waited` are packets that
the sending relay still had after the pings: there must be none.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure what a tunnel adds to a ping on an idle link
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Idle {
    #[command(flatten)]
    variants: Variants,
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "10mbit,100mbit")]
    rate: Vec<LinkRate>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration_ns)]
    delay: u64,
    #[command(flatten)]
    rounds: Rounds,
    /// Number of pings in each
    #[arg(long, value_name = "COUNT", default_value = "300")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pings: u32,
    #[command(flatten)]
    knowledge: Knowledge,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    records: Records,
    #[command(flatten)]
    others: Others,
}

/// Between two pings.
const PAUSE: Duration = Duration::from_millis(5);
/// Of a run, besides the pings.
const AROUND: Duration = Duration::from_millis(800);

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    /// The link's delay each way.
    delay_ns: u64,
    belief: Belief,
    security: Security,
    pings: u32,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    #[serde(rename = "rate_bps")]
    rate: LinkRate,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quiet {
    ping_p50_ns: u64,
    ping_p99_ns: u64,
    pings_lost: u64,
    /// Packets that the sending relay had at the end.
    held_packets: Option<u64>,
}

impl Bench for Idle {
    const NAME: &'static str = "idle";
    type Conditions = Conditions;
    type Place = Link;
    type Measured = Quiet;

    fn place(place: &Link) -> String {
        place.rate.to_string()
    }

    fn line(_place: &Link, quiet: &Quiet) -> String {
        human::duration(quiet.ping_p50_ns)
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        for place in runner::places(runs) {
            let table = table(runs, place).to_text();
            text.push_str(&format!("\n{}, idle\n\n{table}", place.rate));
        }
        text
    }
}

impl Idle {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = self.conditions();
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let mut contenders = vec![Contender::Off];
        contenders.extend(self.variants.all(self.protection.security)?);
        contenders.extend(self.others.contenders(&["gcm", "none"])?);
        let programs = self.others.programs()?;
        let links: Vec<Link> = self.rate.iter().map(|&rate| Link { rate }).collect();
        let length = (self.rounds.runs, |_: &Link| self.planned());
        let all = |_: &Link| contenders.clone();
        series.everywhere(&links, all, length, |series, link| {
            self.at(lab, link.rate, (&contenders, &programs), series)
        })
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            delay_ns: self.delay,
            belief: self.knowledge.relay_rate,
            security: self.protection.security,
            pings: self.pings,
        }
    }

    fn planned(&self) -> Duration {
        PAUSE * self.pings + AROUND
    }

    /// All rounds at one rate.
    fn at(
        &self,
        lab: &mut Lab,
        rate: LinkRate,
        (contenders, programs): (&[Contender], &Programs),
        series: &mut Series<Self>,
    ) -> anyhow::Result<()> {
        let bed = Bed::new(lab, rate, self.delay)?;
        let length = (self.rounds.runs, self.planned());
        series.rounds(
            &Link { rate },
            contenders,
            length,
            || bed.check().is_err(),
            |contender| {
                let belief = self.knowledge.relay_rate;
                trial::through(&bed, contender, (belief, programs), |tunnel| {
                    self.ping_through(&bed, tunnel)
                })
            },
        )
    }

    fn ping_through(&self, bed: &Bed<'_>, tunnel: &Tunnel) -> anyhow::Result<Quiet> {
        // The first packets look for addresses.
        let first = Pinger::start(&bed.pair.client, PAUSE)?;
        bed.sleep(PAUSE * 20)?;
        first.stop()?;
        let pinger = Pinger::start(&bed.pair.client, PAUSE)?;
        bed.sleep(PAUSE * self.pings)?;
        let status = tunnel.status()?;
        let held_packets = status.and_then(|status| Some(status.peers.first()?.tx.held.packets));
        let pings = pinger.stop()?;
        let [p50, p99] = [0.5, 0.99].map(|share| pings.quantile_ns(share));
        let (Some(ping_p50_ns), Some(ping_p99_ns)) = (p50, p99) else {
            anyhow::bail!("no ping was answered");
        };
        // The last may still have been on its way.
        let pings_lost = pings.lost().unwrap_or(0).saturating_sub(1);
        Ok(Quiet { ping_p50_ns, ping_p99_ns, pings_lost, held_packets })
    }
}

fn table(runs: &[Run<Idle>], place: &Link) -> Table {
    let rows = runner::rows(runs, place);
    let p50 = |quiet: &Quiet| Some(quiet.ping_p50_ns as f64 / 1e3);
    let off = sheet::base(&rows, "off", p50);
    sheet::table(
        "contender",
        rows,
        vec![
            Figure::new("median", Of::Median, whole, p50).unit("µs"),
            Figure::new("min..max", Of::Span, whole, p50),
            Figure::new("difference", Of::Beyond(off), |us| format!("{us:+.0}"), p50).unit("µs"),
            Figure::new("p99", Of::Median, whole, |quiet: &Quiet| {
                Some(quiet.ping_p99_ns as f64 / 1e3)
            })
            .unit("µs"),
            Figure::new("lost", Of::Sum, whole, |quiet: &Quiet| Some(quiet.pings_lost as f64)),
            Figure::new("waited", Of::Most, whole, |quiet: &Quiet| {
                Some(quiet.held_packets? as f64)
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn the_difference_is_to_no_tunnel() {
        let link = Link { rate: "10mbit".parse().unwrap() };
        let conditions =
            Conditions { delay_ns: 0, belief: Belief::Auto, security: Security::Psk, pings: 300 };
        let run = |who, p50_ns, held_packets| {
            let quiet =
                Quiet { ping_p50_ns: p50_ns, ping_p99_ns: 2 * p50_ns, pings_lost: 0, held_packets };
            record::<Idle>(conditions.clone(), link, who, quiet)
        };
        let runs = [
            run(("off", 0), 100_000, None),
            run(("none", 0), 150_000, Some(0)),
            run(("none", 1), 160_000, Some(3)),
            run(("off", 1), 102_000, None),
        ];
        let text = Idle::report(&runs);
        let row = text.lines().last().unwrap_or_default();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["none", "155", "150..160", "+54", "310", "0", "3"]);
    }
}
