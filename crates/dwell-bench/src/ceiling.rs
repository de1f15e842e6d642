//! `./x bench ceiling`: how fast it is where nothing is slow and nothing can be compressed.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use dwell_lab::lab::{self, Lab};
use dwell_report::{Column, Table, human};

use super::Outcome;
use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants};
use super::flood::{self, Flooded};
use super::link::seconds;
use super::link_rate::LinkRate;
use super::others::Others;
use super::record::{Journal, Measured, Origin};
use super::report::{figure, percent};
use super::runner::{Runner, turns};
use super::statistics::Summary;
use super::trial::{self, Timing};
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Workload};
use dwell_cli::terminal;
use dwell_cli::values::{codec, schemes};

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
pub(super) struct Ceiling {
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    codec: Vec<String>,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW,...", default_value = "psk,none", value_delimiter = ',')]
    security: Vec<Security>,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds for which a stream and each step of a flood are measured
    #[arg(long, default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Knowledge that relays have of the link
    #[arg(long, value_name = "HOW", default_value = "auto")]
    relay_rate: Belief,
    #[command(flatten)]
    others: Others,
}

/// One run.
#[derive(Clone, Debug)]
struct Peak {
    stream: Measured,
    flood: Flooded,
}

type Runs = HashMap<String, Vec<Peak>>;

const CABLE: LinkRate = LinkRate(None);

impl Ceiling {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut contenders = vec![Contender::Off];
        for &security in &self.security {
            contenders.extend(dwell_variants(&self.scheme, &self.codec, security, true));
        }
        contenders.extend(self.others.contenders(&["gcm", "none"])?);
        let programs = self.others.programs()?;
        let mut lab = lab::enter()?;
        let (runs, outcome) = self.rounds(&mut lab, &contenders, &programs)?;
        let head = format!("\n{}\n\n", Origin::this().line());
        terminal::print(&(head + &table(&contenders, &runs).to_text()))?;
        Ok(outcome.exit_code())
    }

    fn rounds(
        &self,
        lab: &mut Lab,
        contenders: &[Contender],
        programs: &Programs,
    ) -> anyhow::Result<(Runs, Outcome)> {
        let mut runs = Runs::new();
        let bed = Bed::new(lab, CABLE, 0)?;
        let timing = Timing::new(CABLE, self.seconds);
        let content = Content::new(Workload::Random, CABLE, timing.total(), 1);
        let step = Duration::from_secs_f64(self.seconds);
        let planned = timing.total() + step * (flood::STEPS_MAX - 2);
        let count = contenders.len() * self.runs as usize;
        let mut runner = Runner::new(count, planned * count as u32, Journal::none());
        for round in 0..self.runs {
            for contender in turns(contenders, round) {
                let what = format!("{contender}, round {}", round + 1);
                let found = self.climb(&bed, contender, programs, &content, timing);
                let run = (what.as_str(), planned);
                if let Some(peak) = runner.take(run, found, || bed.check().is_err(), line) {
                    runs.entry(contender.to_string()).or_default().push(peak);
                } else if runner.is_over() {
                    return Ok((runs, runner.outcome()));
                }
            }
        }
        Ok((runs, runner.outcome()))
    }

    fn climb(
        &self,
        bed: &Bed<'_>,
        contender: &Contender,
        programs: &Programs,
        content: &Content,
        timing: Timing,
    ) -> anyhow::Result<Peak> {
        bed.check()?;
        let mut tunnel = Tunnel::start(bed, contender, self.relay_rate, programs)?;
        let stream = trial::run(bed, &mut tunnel, content, timing);
        let flood = stream.and_then(|stream| {
            let flood = flood::climb(bed, &mut tunnel, timing.window)?;
            Ok(Peak { stream, flood })
        });
        tunnel.stop()?;
        flood
    }
}

fn line(peak: &Peak) -> String {
    let gbps = peak.stream.per_second() * 8e-9;
    format!("{} Gbit/s, {} packets/s", figure(gbps), figure(peak.flood.per_second))
}

fn table(contenders: &[Contender], runs: &Runs) -> Table {
    let mut table = Table::new([
        Column::left("contender"),
        Column::right("Gbit/s"),
        Column::right("min..max"),
        Column::right("/off"),
        Column::right("CPU s/GB out, in"),
        Column::right("busy out, in, own"),
        Column::right("kpackets/s"),
        Column::right("min..max"),
        Column::right("CPU µs/packet out, in"),
    ]);
    let of = |name: &str, value: &dyn Fn(&Peak) -> Option<f64>| {
        Summary::of(runs.get(name)?.iter().filter_map(value))
    };
    let speed = |peak: &Peak| Some(peak.stream.per_second() * 8e-9);
    let off = of("off", &speed);
    for contender in contenders {
        let name = contender.to_string();
        let Some(gbps) = of(&name, &speed) else { continue };
        let packets = of(&name, &|peak| Some(peak.flood.per_second / 1e3));
        let median = |value: &dyn Fn(&Peak) -> Option<f64>| of(&name, value).map(|s| s.median);
        let both = |show: fn(f64) -> String, value: &dyn Fn(&Peak, usize) -> Option<f64>| {
            let end = |end| median(&|peak| value(peak, end)).map_or_else(nothing, show);
            format!("{}, {}", end(0), end(1))
        };
        let own = median(&|peak| share(peak, peak.stream.own_cpu_ns));
        table.row([
            name.clone(),
            figure(gbps.median),
            span(&gbps),
            percent(off.map(|off| gbps.median / off.median)),
            both(figure, &|peak, end| {
                Some(peak.stream.cpu_ns?[end] as f64 / peak.stream.application_bytes as f64)
            }),
            format!(
                "{}, {}",
                both(|busy| percent(Some(busy)), &|peak, end| share(
                    peak,
                    peak.stream.cpu_ns?[end]
                )),
                percent(own)
            ),
            packets.map_or_else(nothing, |packets| figure(packets.median)),
            packets.map_or_else(nothing, |packets| span(&packets)),
            both(figure, &|peak, end| Some(peak.flood.cpu_ns_per_packet?[end] / 1e3)),
        ]);
    }
    table
}

/// Of the window's time.
fn share(peak: &Peak, cpu_ns: u64) -> Option<f64> {
    Some(cpu_ns as f64 / peak.stream.window_ns.max(1) as f64)
}

fn span(summary: &Summary) -> String {
    format!("{}..{}", figure(summary.min), figure(summary.max))
}

fn nothing() -> String {
    human::NOTHING.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let runs = Runs::from([("none sealed".to_owned(), vec![Peak { stream, flood }])]);
        let none = dwell_variants(&["none".into()], &[], Security::Psk, true);
        let text = table(&none, &runs).to_text();
        let row = text.lines().last().unwrap_or_default();
        for expected in ["4.00", "0.50, 1.00", "25.0 %, 50.0 %, 10.0 %", "50.0", "2.00, 4.00"] {
            assert!(row.contains(expected), "{expected} is not in {row}");
        }
    }
}
