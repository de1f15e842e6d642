//! `./x bench link`: goodput over a link, contender against contender.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use dwell_base::Rate;
use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::{self, Lab};

use super::Outcome;
use super::bed::Bed;
use super::contender::{Contender, Security, dwell_variants, with_block_packets};
use super::link_rate::LinkRate;
use super::machine;
use super::options::seconds;
use super::others::Others;
use super::record::{Journal, LinkRun, Measured, Origin, Place, Terms, unix_seconds};
use super::report;
use super::results::Results;
use super::trial::{self, Timing};
use super::tunnel::{Belief, Programs, Tunnel};
use super::workload::{Content, Workload};
use dwell_cli::progress::Progress;
use dwell_cli::terminal;
use dwell_cli::values::{codec, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench link --rate 10mbit --workload text --runs 3    two minutes
  ./x bench link --rate 10mbit --workload many --scheme packet,flow,edge --block-packets 5,10
                                                             blocks of several packets
  ./x bench link --json runs.jsonl                         the whole matrix
  ./x bench link --json runs.jsonl --resume --openvpn      OpenVPN in addition
  ./x bench link --json runs.jsonl --report                only print what is in the file

For each rate and workload every contender runs once a round, each round in another order:
what disturbs the machine for a while disturbs all of them. `off` is no tunnel at all.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure goodput and delay over a slow link
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Link {
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,all,packet")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// Codecs, for the schemes that compress
    #[arg(long, value_name = "CODEC,...", default_value = "lz4,zstd:1")]
    #[arg(value_delimiter = ',', value_parser = codec)]
    codec: Vec<String>,
    /// Numbers of packets in each block, for schemes of blocks, beside as many as wait
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=64))]
    block_packets: Vec<u32>,
    /// Workloads to send
    #[arg(long, value_name = "WORKLOAD,...", default_value = "text,random,half,telemetry")]
    #[arg(value_delimiter = ',')]
    workload: Vec<Workload>,
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
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds for which each run is measured, after a warm-up; slow links need more
    #[arg(long, default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Knowledge that relays have of the link
    #[arg(long, value_name = "HOW", default_value = "auto")]
    relay_rate: Belief,
    /// Congestion control of the sender's TCP: cubic, bbr, reno; the machine's usual
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Protection of dwell's datagrams
    #[arg(long, value_name = "HOW", default_value = "psk")]
    security: Security,
    /// Seed of texts, random bytes and messages
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    others: Others,
    /// Write each run to this file as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    json: Option<PathBuf>,
    /// Leave out runs that are in the file already
    #[arg(long, requires = "json", help_heading = "Records")]
    resume: bool,
    /// Only print what is in the file
    #[arg(long, requires = "json", help_heading = "Records")]
    report: bool,
}

/// The variants of OpenVPN that take part if none are named.
const OPENVPN_USUAL: [&str; 6] = ["gcm", "gcm+lz4", "gcm+lzo", "none", "none+lz4", "none+lzo"];

impl Link {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.report {
            let (_, runs) = Journal::open::<LinkRun>(self.json.as_deref(), true)?;
            let (runs, failed) = verified(runs);
            print(&runs, failed)?;
            return Ok(Outcome { failed, is_interrupted: false }.exit_code());
        }
        let mut contenders = vec![Contender::Off];
        let variants = dwell_variants(&self.scheme, &self.codec, self.security, false);
        contenders.extend(with_block_packets(variants, &self.block_packets));
        contenders.extend(self.others.contenders(&OPENVPN_USUAL)?);
        let programs = self.others.programs()?;
        let mut lab = lab::enter()?;
        let (journal, before) = Journal::open::<LinkRun>(self.json.as_deref(), self.resume)?;
        let mut matrix = Matrix {
            origin: Origin::this(),
            terms: self.terms(),
            contenders,
            programs,
            rounds: self.runs,
            done: HashSet::new(),
            runs: Vec::new(),
            journal,
            outcome: Outcome::default(),
        };
        matrix.take_over(verified(before).0)?;
        matrix.fill(&mut lab, &self.fields())?;
        print(&matrix.runs, matrix.outcome.failed)?;
        Ok(matrix.outcome.exit_code())
    }

    fn terms(&self) -> Terms {
        Terms {
            delay_ns: self.delay,
            delay_max_bps: self.delay_up_to.as_bps(),
            belief: self.relay_rate,
            congestion_control: self
                .congestion_control
                .clone()
                .unwrap_or_else(machine::congestion_control),
            security: self.security,
            seconds: self.seconds,
            seed: self.seed,
        }
    }

    fn fields(&self) -> Vec<(LinkRate, Workload)> {
        let workloads = |&rate| self.workload.iter().map(move |&workload| (rate, workload));
        self.rate.iter().flat_map(workloads).collect()
    }
}

/// The runs of a file in which everything arrived as it was sent. The others count as failed:
/// they are named, and it is reported how many of them have not been done again.
fn verified(runs: Vec<LinkRun>) -> (Vec<LinkRun>, usize) {
    let (good, bad): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.measured.verified);
    let done: HashSet<_> = good.iter().map(|run| &run.place).collect();
    let bad: Vec<_> = bad.iter().filter(|run| !done.contains(&run.place)).collect();
    for run in &bad {
        if let Err(error) = run.measured.ensure_verified() {
            terminal::complain(
                "dwell-bench",
                &format!("{}, in the file: {error}", what(&run.place)),
            );
        }
    }
    let failed = bad.len();
    (good, failed)
}

/// The tables, without the runs that failed.
fn print(runs: &[LinkRun], failed: usize) -> anyhow::Result<()> {
    let what_failed = match failed {
        0 => "Everything that arrived was what had been sent.\n".to_owned(),
        1 => "1 run failed and is not in the tables.\n".to_owned(),
        _ => format!("{failed} runs failed and are not in the tables.\n"),
    };
    let Some(first) = runs.first() else {
        terminal::note("There are no runs.");
        return Ok(());
    };
    let (origin, terms) = (&first.origin, &first.terms);
    let head = format!(
        "\n{}\n{} each way up to {}, none beyond; relays' rate {:?}, \
         security {:?}, TCP {}, seed {}\n",
        origin.line(),
        dwell_base::time::format_duration_ns(terms.delay_ns),
        Rate::clamped_bps(terms.delay_max_bps),
        terms.belief,
        terms.security,
        terms.congestion_control,
        terms.seed,
    );
    terminal::print(&(head + &report::link(&Results::new(runs)) + &what_failed))?;
    Ok(())
}

/// The runs to do, and those that are done.
struct Matrix {
    origin: Origin,
    terms: Terms,
    contenders: Vec<Contender>,
    programs: Programs,
    rounds: u32,
    done: HashSet<Place>,
    runs: Vec<LinkRun>,
    journal: Journal,
    outcome: Outcome,
}

impl Matrix {
    /// Counts runs of a file as done.
    fn take_over(&mut self, before: Vec<LinkRun>) -> anyhow::Result<()> {
        for run in &before {
            ensure!(
                run.terms == self.terms && run.origin == self.origin,
                "the runs in the file were done otherwise ({:?}, {:?}); choose another file",
                run.terms,
                run.origin
            );
        }
        self.done = before.iter().map(|run| run.place.clone()).collect();
        self.runs = before;
        Ok(())
    }

    fn fill(&mut self, lab: &mut Lab, fields: &[(LinkRate, Workload)]) -> anyhow::Result<()> {
        let planned = |matrix: &Self, (rate, workload): (LinkRate, Workload)| {
            let missing = matrix.missing(rate, workload).count();
            (missing, Timing::new(rate, matrix.terms.seconds).total() * missing as u32)
        };
        let plan = fields.iter().map(|&field| planned(self, field));
        let (runs, time) = plan.fold((0, Duration::ZERO), |a, b| (a.0 + b.0, a.1 + b.1));
        let mut progress = Progress::new(runs, time);
        for &(rate, workload) in fields {
            if self.missing(rate, workload).next().is_some() {
                self.fill_field(lab, rate, workload, &mut progress)?;
            }
            if self.outcome.is_interrupted {
                break;
            }
        }
        Ok(())
    }

    /// Returns the contenders that have still to run, with their rounds, in the order of running.
    fn missing(
        &self,
        rate: LinkRate,
        workload: Workload,
    ) -> impl Iterator<Item = (u32, &Contender)> {
        let count = self.contenders.len();
        (0..self.rounds)
            .flat_map(move |round| (0..count).map(move |at| (round, (at + round as usize) % count)))
            .map(|(round, at)| (round, &self.contenders[at]))
            .filter(move |(round, contender)| {
                !self.done.contains(&place(rate, workload, contender, *round))
            })
    }

    fn fill_field(
        &mut self,
        lab: &mut Lab,
        rate: LinkRate,
        workload: Workload,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let has_delay = rate.bps().is_some_and(|bps| bps <= self.terms.delay_max_bps);
        let mut bed = Bed::new(lab, rate, if has_delay { self.terms.delay_ns } else { 0 })?;
        bed.set_congestion_control(&self.terms.congestion_control)?;
        let timing = Timing::new(rate, self.terms.seconds);
        let content = Content::new(workload, rate, timing.total() * 2, self.terms.seed);
        let missing: Vec<_> =
            self.missing(rate, workload).map(|(round, who)| (round, who.clone())).collect();
        for (round, contender) in missing {
            let place = place(rate, workload, &contender, round);
            let what = what(&place);
            match self.run_one(&bed, &contender, &content, timing) {
                Ok(measured) => {
                    progress.done(timing.total(), &line(&what, workload, &measured));
                    self.add(place, &contender, measured)?;
                }
                Err(error) => {
                    let is_interrupted = bed.check().is_err();
                    if !self.outcome.goes_on_after(&error, &what, is_interrupted) {
                        return Ok(());
                    }
                    progress.done(timing.total(), &format!("{what}: failed"));
                }
            }
        }
        Ok(())
    }

    fn run_one(
        &self,
        bed: &Bed<'_>,
        contender: &Contender,
        content: &Content,
        timing: Timing,
    ) -> anyhow::Result<Measured> {
        bed.check()?;
        let mut tunnel = Tunnel::start(bed, contender, self.terms.belief, &self.programs)?;
        let measured = trial::run(bed, &mut tunnel, content, timing);
        tunnel.stop()?;
        measured
    }

    fn add(
        &mut self,
        place: Place,
        contender: &Contender,
        measured: Measured,
    ) -> anyhow::Result<()> {
        let run = LinkRun {
            at_unix_seconds: unix_seconds(),
            origin: self.origin.clone(),
            terms: self.terms.clone(),
            place,
            scheme: contender.scheme().map(str::to_owned),
            codec: contender.codec().map(str::to_owned),
            measured,
        };
        self.journal.add(&run)?;
        self.done.insert(run.place.clone());
        self.runs.push(run);
        Ok(())
    }
}

fn place(rate: LinkRate, workload: Workload, contender: &Contender, round: u32) -> Place {
    Place { rate, workload, contender: contender.to_string(), round }
}

/// Returns the name of a run.
fn what(Place { rate, workload, contender, round }: &Place) -> String {
    format!("{rate}, {}, {contender}, round {}", workload.name(), round + 1)
}

fn line(what: &str, workload: Workload, measured: &Measured) -> String {
    let (unit, one) = workload.unit();
    let ping = measured.ping_p50_ns.map(dwell_report::human::duration);
    format!(
        "{what}: {} {unit}, ping {}",
        report::figure(measured.per_second() / one),
        ping.as_deref().unwrap_or(dwell_report::human::NOTHING),
    )
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{run, terms};
    use super::*;

    fn matrix() -> Matrix {
        let some = run("10mbit", Workload::Text, "off", 0, 1);
        Matrix {
            origin: some.origin,
            terms: terms(),
            contenders: dwell_variants(
                &["none".into(), "packet".into()],
                &["lz4".into()],
                Security::Psk,
                false,
            )
            .into_iter()
            .chain([Contender::Off])
            .collect(),
            programs: Programs { dwell: "dwell".into(), wireguard_go: "wireguard-go".into() },
            rounds: 2,
            done: HashSet::new(),
            runs: Vec::new(),
            journal: Journal::open::<LinkRun>(None, false).unwrap().0,
            outcome: Outcome::default(),
        }
    }

    fn names(matrix: &Matrix) -> Vec<String> {
        let missing = matrix.missing("10mbit".parse().unwrap(), Workload::Text);
        missing.map(|(round, contender)| format!("{round} {contender}")).collect()
    }

    #[test]
    fn every_round_begins_with_another() {
        let expected = ["0 none", "0 packet/lz4", "0 off", "1 packet/lz4", "1 off", "1 none"];
        assert_eq!(names(&matrix()), expected);
    }

    #[test]
    fn what_is_in_the_file_is_not_run_again() {
        let mut matrix = matrix();
        let before = ["none", "off"].map(|name| run("10mbit", Workload::Text, name, 0, 1));
        matrix.take_over(before.to_vec()).unwrap();
        assert_eq!(names(&matrix), ["0 packet/lz4", "1 packet/lz4", "1 off", "1 none"]);
        let mut other = run("10mbit", Workload::Text, "off", 0, 1);
        other.terms.seconds = 9.0;
        assert!(matrix.take_over(vec![other]).is_err());
    }

    #[test]
    fn a_run_that_delivered_something_else_has_failed_and_is_done_again() {
        let good = |name, round| run("10mbit", Workload::Text, name, round, 1);
        let bad = |name, round| {
            let mut run = good(name, round);
            run.measured.verified = false;
            run
        };
        assert!(good("off", 0).measured.ensure_verified().is_ok());
        assert!(bad("off", 0).measured.ensure_verified().is_err());
        // One of the two was done again.
        let file = vec![good("none", 0), bad("off", 0), bad("packet/lz4", 0), good("off", 0)];
        let (runs, failed) = verified(file);
        assert_eq!((&runs[..], failed), (&[good("none", 0), good("off", 0)][..], 1));
        let mut matrix = matrix();
        matrix.take_over(runs).unwrap();
        assert_eq!(names(&matrix), ["0 packet/lz4", "1 packet/lz4", "1 off", "1 none"]);
    }
}
