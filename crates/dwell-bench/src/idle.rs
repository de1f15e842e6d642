//! `./x bench idle`: what a tunnel adds to a ping on a link that carries nothing else.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::{self, Lab};
use dwell_report::{Column, Table, human};

use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants};
use super::link_rate::LinkRate;
use super::others::Others;
use super::pinger::Pinger;
use super::record::{Journal, Origin};
use super::runner::{Runner, turns};
use super::statistics::Summary;
use super::tunnel::{Belief, Programs, Tunnel};
use dwell_cli::terminal;
use dwell_cli::values::{codec, schemes};

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
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    codec: Vec<String>,
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "10mbit,100mbit")]
    rate: Vec<LinkRate>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration_ns)]
    delay: u64,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Number of pings in each
    #[arg(long, value_name = "COUNT", default_value = "300")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pings: u32,
    /// Knowledge that relays have of the link
    #[arg(long, value_name = "HOW", default_value = "auto")]
    relay_rate: Belief,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW", default_value = "psk")]
    security: Security,
    #[command(flatten)]
    others: Others,
}

/// Between two pings.
const PAUSE: Duration = Duration::from_millis(5);
/// Of a run, besides the pings.
const AROUND: Duration = Duration::from_millis(800);

/// One run.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    p50_ns: u64,
    p99_ns: u64,
    lost: u64,
    /// Packets that the sending relay had at the end.
    held: Option<u64>,
}

type Runs = HashMap<(LinkRate, String), Vec<Quiet>>;

impl Idle {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut contenders = vec![Contender::Off];
        contenders.extend(dwell_variants(&self.scheme, &self.codec, self.security, false));
        contenders.extend(self.others.contenders(&["gcm", "none"])?);
        let programs = self.others.programs()?;
        let mut lab = lab::enter()?;
        let count = self.rate.len() * contenders.len() * self.runs as usize;
        let mut runner = Runner::new(count, self.planned() * count as u32, Journal::none());
        let mut runs = Runs::new();
        for &rate in &self.rate {
            if !runner.is_over() {
                let plan = Plan { idle: &self, contenders: &contenders, programs: &programs, rate };
                plan.run(&mut lab, &mut runs, &mut runner)?;
            }
        }
        terminal::print(&self.report(&contenders, &runs))?;
        Ok(runner.outcome().exit_code())
    }

    fn planned(&self) -> Duration {
        PAUSE * self.pings + AROUND
    }

    fn report(&self, contenders: &[Contender], runs: &Runs) -> String {
        let mut text = format!("\n{}\n", Origin::this().line());
        for &rate in &self.rate {
            let table = table(contenders, rate, runs);
            text.push_str(&format!("\n{rate}, idle\n\n{}", table.to_text()));
        }
        text
    }
}

/// All rounds at one rate.
struct Plan<'a> {
    idle: &'a Idle,
    contenders: &'a [Contender],
    programs: &'a Programs,
    rate: LinkRate,
}

impl Plan<'_> {
    fn run(&self, lab: &mut Lab, runs: &mut Runs, runner: &mut Runner) -> anyhow::Result<()> {
        let bed = Bed::new(lab, self.rate, self.idle.delay)?;
        for round in 0..self.idle.runs {
            for contender in turns(self.contenders, round) {
                let what = format!("{}, {contender}, round {}", self.rate, round + 1);
                let found = self.ping(&bed, contender);
                let line = |quiet: &Quiet| human::duration(quiet.p50_ns);
                let run = (what.as_str(), self.idle.planned());
                if let Some(quiet) = runner.take(run, found, || bed.check().is_err(), line) {
                    runs.entry((self.rate, contender.to_string())).or_default().push(quiet);
                } else if runner.is_over() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn ping(&self, bed: &Bed<'_>, contender: &Contender) -> anyhow::Result<Quiet> {
        bed.check()?;
        let tunnel = Tunnel::start(bed, contender, self.idle.relay_rate, self.programs)?;
        let quiet = self.ping_through(bed, &tunnel);
        tunnel.stop()?;
        quiet
    }

    fn ping_through(&self, bed: &Bed<'_>, tunnel: &Tunnel) -> anyhow::Result<Quiet> {
        // The first packets look for addresses.
        let first = Pinger::start(&bed.pair.client, PAUSE)?;
        bed.sleep(PAUSE * 20)?;
        first.stop()?;
        let pinger = Pinger::start(&bed.pair.client, PAUSE)?;
        bed.sleep(PAUSE * self.idle.pings)?;
        let held = tunnel.status()?.and_then(|status| Some(status.peers.first()?.tx.held.packets));
        let pings = pinger.stop()?;
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|share| pings.quantile_ns(share));
        let (Some(p50_ns), Some(p99_ns)) = (p50_ns, p99_ns) else {
            anyhow::bail!("no ping was answered");
        };
        // The last may still have been on its way.
        let lost = pings.lost().unwrap_or(0).saturating_sub(1);
        Ok(Quiet { p50_ns, p99_ns, lost, held })
    }
}

fn table(contenders: &[Contender], rate: LinkRate, runs: &Runs) -> Table {
    let mut table = Table::new([
        Column::left("contender"),
        Column::right("median").unit("µs"),
        Column::right("min..max"),
        Column::right("difference").unit("µs"),
        Column::right("p99").unit("µs"),
        Column::right("lost"),
        Column::right("waited"),
    ]);
    let of = |name: &str, value: fn(&Quiet) -> u64| {
        let runs = runs.get(&(rate, name.to_owned()))?;
        Summary::of(runs.iter().map(|quiet| value(quiet) as f64 / 1e3))
    };
    let off = of("off", |quiet| quiet.p50_ns);
    for contender in contenders {
        let name = contender.to_string();
        let (Some(p50), Some(p99)) = (of(&name, |q| q.p50_ns), of(&name, |q| q.p99_ns)) else {
            continue;
        };
        let runs = &runs[&(rate, name.clone())];
        let difference = off.map(|off| format!("{:+.0}", p50.median - off.median));
        let held = runs.iter().filter_map(|quiet| quiet.held).max();
        table.row([
            name,
            format!("{:.0}", p50.median),
            format!("{:.0}..{:.0}", p50.min, p50.max),
            difference.unwrap_or_else(|| human::NOTHING.to_owned()),
            format!("{:.0}", p99.median),
            runs.iter().map(|quiet| quiet.lost).sum::<u64>().to_string(),
            held.map_or_else(|| human::NOTHING.to_owned(), |held| held.to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_to_no_tunnel() {
        let rate: LinkRate = "10mbit".parse().unwrap();
        let quiet = |p50_ns, held| Quiet { p50_ns, p99_ns: 2 * p50_ns, lost: 0, held };
        let runs = Runs::from([
            ((rate, "off".to_owned()), vec![quiet(100_000, None), quiet(102_000, None)]),
            ((rate, "none".to_owned()), vec![quiet(150_000, Some(0)), quiet(160_000, Some(3))]),
        ]);
        let none = dwell_variants(&["none".into()], &[], Security::Psk, false);
        let contenders = [vec![Contender::Off], none].concat();
        let text = table(&contenders, rate, &runs).to_text();
        let row = text.lines().last().unwrap_or_default();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["none", "155", "150..160", "+54", "310", "0", "3"]);
    }
}
