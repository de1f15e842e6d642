//! `./x bench`: measures dwell against nothing at all and against others, in a lab.
//!
//! A [`contender`] becomes a [`tunnel`] in a [`bed`]; a [`trial`] sends a [`workload`] through
//! it and returns the measurements as a [`record`]. [`results`] are what the [`report`] and the
//! [`verdict`] are made of.

mod bed;
mod bound;
mod burst;
mod carriers;
mod ceiling;
mod certificate;
mod chain;
mod contender;
mod deadlines;
mod download;
mod ends;
mod fairness;
mod faults;
mod file;
mod flood;
mod http;
mod hub;
mod idle;
mod like;
mod link;
mod link_path;
mod link_rate;
mod loss;
mod machine;
mod messages;
mod openvpn;
mod options;
mod others;
mod peers;
mod picture;
mod pinger;
mod program;
mod record;
mod replay;
mod report;
mod requests;
mod results;
mod runner;
mod services;
mod sheet;
mod statistics;
mod steps;
mod stream;
mod tcpcomp;
mod transfers;
mod trial;
mod tunnel;
mod verdict;
mod watching;
mod weak;
mod wireguard;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dwell_cli::failure;

const AFTER_HELP: &str = "\
Examples:
  ./x bench link --rate 10mbit --workload text,random   goodput on a link of 10 Mbit/s
  ./x bench link --json runs.jsonl                      the whole matrix, for an hour
  ./x bench link --json runs.jsonl --resume             go on where it was interrupted
  ./x bench idle --openvpn                              what a tunnel adds to a ping
  ./x bench ceiling --openvpn                           how fast it is with nothing to compress
  ./x bench replay site.pcap                            whether `dwell trace replay` is right
  ./x bench steps --scheme packet,edge                  a link that changes, behind a router
  ./x bench stream --quick                              compressed TCP streams
  ./x bench http                                        requests and answers through proxies
  ./x bench services                                    PostgreSQL and Redis through proxies
  ./x bench fairness                                    small requests beside a greedy stream
  ./x bench burst                                       ten thousand connections at once
  ./x bench loss                                        a link that loses packets
  ./x bench faults --security keys                      how soon traffic goes on after a fault
  ./x bench deadlines                                   packets held back, and those too late
  ./x bench chain                                       which relay of a chain compresses how much
  ./x bench hub                                         a hub with many peers
  ./x bench watching                                    what the web page and `dwell top` cost
  ./x bench weak                                        relays with a quota of processor time
  ./x bench transfers                                   files, against zstd through a connection
  ./x bench tcpcomp                                     segments that TCPComp saves
  ./x bench picture                                     draw the documents' pictures again

It needs neither root nor a network: both sites are namespaces of this machine. Measure on a
machine that does nothing else. docs/benchmarks.md says how it is done and how to read it.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure dwell against nothing at all and against others
#[derive(Debug, Parser)]
#[command(name = "./x bench", version, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true, infer_subcommands = false)]
struct Bench {
    #[command(subcommand)]
    what: What,
    /// The program to measure [default: `dwell` beside this program]
    #[arg(long, value_name = "PROGRAM", global = true)]
    dwell: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    Link(link::Link),
    Idle(idle::Idle),
    Hub(hub::Hub),
    Http(http::Http),
    Services(services::Services),
    Fairness(fairness::Fairness),
    Burst(burst::Burst),
    Watching(watching::Watching),
    Weak(Box<weak::Weak>),
    Ceiling(ceiling::Ceiling),
    Replay(replay::Replay),
    Steps(steps::Steps),
    Stream(Box<stream::Stream>),
    Loss(loss::Loss),
    Faults(faults::Faults),
    Deadlines(deadlines::Deadlines),
    Chain(chain::Chain),
    Transfers(transfers::Transfers),
    #[command(name = "tcpcomp")]
    TcpComp(tcpcomp::TcpComp),
    Picture(picture::Picture),
}

/// It was interrupted: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    // A wrong command line ends the program here, with exit code 2.
    failure::exit_code("dwell-bench", Bench::parse().run())
}

impl Bench {
    /// Must be called before there are threads: the first thing is to enter a lab.
    fn run(self) -> anyhow::Result<ExitCode> {
        program::choose(self.dwell.as_deref())?;
        match self.what {
            What::Link(command) => command.run(),
            What::Idle(command) => command.run(),
            What::Hub(command) => command.run(),
            What::Http(command) => command.run(),
            What::Services(command) => command.run(),
            What::Fairness(command) => command.run(),
            What::Burst(command) => command.run(),
            What::Watching(command) => command.run(),
            What::Weak(command) => command.run(),
            What::Ceiling(command) => command.run(),
            What::Replay(command) => command.run(),
            What::Steps(command) => command.run(),
            What::Stream(command) => command.run(),
            What::Loss(command) => command.run(),
            What::Faults(command) => command.run(),
            What::Deadlines(command) => command.run(),
            What::Chain(command) => command.run(),
            What::Transfers(command) => command.run(),
            What::TcpComp(command) => command.run(),
            What::Picture(command) => command.run(),
        }
    }
}

/// The end of a series of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    failed: usize,
    is_interrupted: bool,
}

impl Outcome {
    fn exit_code(self) -> ExitCode {
        if self.is_interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.failed > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Takes note of an error. False if it was the user who wanted to stop.
    fn goes_on_after(&mut self, error: &anyhow::Error, what: &str, check: bool) -> bool {
        if error.is::<bed::Interrupted>() || check {
            self.is_interrupted = true;
            return false;
        }
        self.failed += 1;
        dwell_cli::terminal::complain("dwell-bench", &format!("{what}: {error:#}"));
        true
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Bench::command().debug_assert();
    }

    #[test]
    fn every_bench_has_examples() {
        for bench in Bench::command().get_subcommands() {
            let name = bench.get_name();
            let help = bench.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("./x bench {name}")), "{name} has no examples");
            assert!(bench.get_about().is_some(), "{name} does not say what it is for");
        }
    }
    /// Command lines of the documentation: asked for help after its words, it looks at them first.
    #[test]
    fn every_command_line_of_the_pages_is_accepted() {
        let (mut seen, mut wrong) = (0, Vec::new());
        for (page, text) in dwell_testkit::pages::pages().unwrap() {
            for found in dwell_testkit::pages::command_lines(&text) {
                let words = found.words_of("./x").unwrap_or_default();
                let [bench, words @ ..] = &words[..] else { continue };
                // These two are programs of their own.
                if bench != "bench" || words.iter().any(|word| word == "codec" || word == "sim") {
                    continue;
                }
                let words = words.iter().filter(|word| *word != "…");
                let mut words: Vec<_> = words.map(|word| word.trim_end_matches(",…")).collect();
                // `./x` has one that is meant if none is named.
                let is_named = Bench::command()
                    .get_subcommands()
                    .any(|named| Some(&named.get_name()) == words.first());
                if !is_named {
                    words.insert(0, "link");
                }
                let line = ["./x bench"].into_iter().chain(words).chain(["--help"]);
                let error = Bench::try_parse_from(line).unwrap_err();
                // A sentence may name an option without its value.
                let is_named = found.place == dwell_testkit::pages::Place::Sentence
                    && error.to_string().contains("a value is required for");
                if error.kind() != ErrorKind::DisplayHelp && !is_named {
                    wrong.push(format!("{}, line {}: {error}", page.display(), found.line));
                }
                seen += 1;
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(seen > 50, "only {seen} command lines were found");
    }
}
