//! `./x bench burst`: ten thousand connections at once, and what idle ones cost.

mod crowd;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::time::{duration_ns, parse_duration_ns};
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::carriers::{self, Carrier, Carriers};
use super::ends::Ends;
use super::link_path::LinkPath;
use super::machine::{Memory, memory};
use super::options::{Records, Rounds};
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::services::redis;
use super::statistics::rank;
use crowd::Crowd;

const AFTER_HELP: &str = "\
Examples:
  ./x bench burst                                          ten thousand, over a plain cable: two minutes
  ./x bench burst --connections 2000 --held 2000           fewer
  ./x bench burst --link 20mbit/10ms --contender plain,proxy --json burst.jsonl
  ./x bench burst --proxy=--pool=1000                      with options for both proxies

A client connects so many times at once to a Redis server, asks on each connection as soon as it is open (PING), and
waits for all answers. So many connections stay open with nothing to do; each answer beyond that number closes the one that was
answered first. `first byte` is from the connection's beginning to its answer. Memory is what processes of the
carrier have resident: at most since their start, and after --idle with nothing to do, less what they had before, for each connection that
is open. All that are open are asked again after that. The carrier is started for each run. A process may open so many files as
`ulimit -Hn` says: proxies need two for each connection.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure a burst of connections, and the memory of idle ones, through proxies, plain, stunnel and HAProxy
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Burst {
    /// Links: a rate, or `unlimited` for a plain cable, and a delay each way after `/`
    #[arg(long, value_name = "LINK,...", value_delimiter = ',', default_value = "unlimited")]
    link: Vec<LinkPath>,
    /// Connections
    #[arg(long, value_name = "COUNT", default_value = "10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=18_000))]
    connections: u32,
    /// Connections that stay open
    #[arg(long, value_name = "COUNT", default_value = "9000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=18_000))]
    held: u32,
    /// The time with nothing to do after which memory is looked at
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration_ns)]
    idle: u64,
    /// Who takes part
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(default_value = "plain,proxy,stunnel,haproxy")]
    contender: Vec<Carrier>,
    /// An option for both proxies, with its value after `=`; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    proxy: Vec<String>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// What a run takes beside the idle time, about.
const AROUND: Duration = Duration::from_secs(8);
/// Local ports for connections to one address: nearly all there are, but for those at which carriers listen.
const PORTS: &str = "1024 65000";

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    connections: u32,
    held: u32,
    idle_ns: u64,
    /// More options of the proxies.
    proxy: Vec<String>,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(flatten)]
    link: LinkPath,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrived {
    answered: u32,
    /// Connections that were open in the end, and answered again.
    held: u32,
    /// From the first connection to the last first answer.
    took_ns: u64,
    first_byte_p50_ns: u64,
    first_byte_p99_ns: u64,
    first_byte_max_ns: u64,
    /// Of the carrier at the server's and at the client's end, before, at most, and idle.
    before_bytes: Option<[u64; 2]>,
    peak_bytes: Option<[u64; 2]>,
    idle_bytes: Option<[u64; 2]>,
    /// CPU time of both ends for the burst.
    cpu_ns: Option<[u64; 2]>,
}

impl Arrived {
    /// Memory of one end for each connection that is held.
    fn each(&self, bytes: Option<[u64; 2]>, end: usize) -> Option<f64> {
        let grown = bytes?[end].saturating_sub(self.before_bytes?[end]);
        Some(grown as f64 / f64::from(self.held.max(1)))
    }
}

impl Bench for Burst {
    const NAME: &'static str = "burst";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Arrived;

    fn place(place: &Place) -> String {
        place.link.to_string()
    }

    fn line(_place: &Place, arrived: &Arrived) -> String {
        let [p50, p99] =
            [arrived.first_byte_p50_ns, arrived.first_byte_p99_ns].map(|ns| ns as f64 / 1e9);
        format!("{} answered, first byte {p50:.2} s, p99 {p99:.2} s", arrived.answered)
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        if let Some(run) = runs.first() {
            let Conditions { connections, held, .. } = run.conditions;
            text += &format!("{connections} connections at once, {held} of which stay open\n");
        }
        text + &table::report(runs)
    }
}

impl Burst {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            connections: self.connections,
            held: self.held,
            idle_ns: self.idle,
            proxy: self.proxy.clone(),
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        self.contender.iter().try_for_each(|carrier| carrier.ensure_installed())?;
        redis::ensure_installed()?;
        crowd::allow_files(self.connections)?;
        let takes = AROUND + Duration::from_nanos(self.idle);
        let places: Vec<_> = self.link.iter().map(|&link| Place { link }).collect();
        let length = (self.rounds.runs, |_: &Place| takes);
        series.everywhere(
            &places,
            |_| self.contender.clone(),
            length,
            |series, place| {
                let bed = place.link.bed(lab)?;
                for host in [&bed.pair.client, &bed.pair.ingress, &bed.pair.egress] {
                    host.sysctl("net/ipv4/ip_local_port_range", PORTS)?;
                    host.sysctl("net/ipv4/ip_local_reserved_ports", carriers::PORTS_BETWEEN)?;
                    // Ends of connections of the run before keep no ports from this one.
                    host.sysctl("net/ipv4/tcp_tw_reuse", "1")?;
                }
                let is_over = || bed.check().is_err();
                series.rounds(
                    place,
                    &self.contender,
                    (self.rounds.runs, takes),
                    is_over,
                    |&carrier| {
                        let _server = redis::start(&bed)?;
                        let carriers =
                            Carriers::start(&bed, &[carrier], &[redis::PORT], &self.proxy)?;
                        let arrived = self.arrive(&bed, carrier, carriers.ends(carrier));
                        carriers.stop()?;
                        arrived
                    },
                )
            },
        )
    }

    fn arrive(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        ends: Option<&Ends>,
    ) -> anyhow::Result<Arrived> {
        let memory = || -> anyhow::Result<Option<[Memory; 2]>> {
            let both = |ends: &Ends| Ok([memory(ends.sender.id())?, memory(ends.receiver.id())?]);
            ends.map(both).transpose()
        };
        let bytes = |both: Option<[Memory; 2]>, of: fn(Memory) -> u64| both.map(|it| it.map(of));
        let (before, cpu_before) = (memory()?, ends.map(Ends::cpu_ns));
        let (address, connections, held) =
            (carrier.address(redis::PORT), self.connections, self.held);
        let come = move || Crowd::come(address, connections, held);
        let come = bed.pair.client.spawn_thread(come)?;
        let crowd = come.join().map_err(|_| anyhow::anyhow!("the clients panicked"))??;
        let mut crowd = crowd.with_context(|| format!("through {carrier}"))?;
        let cpu_ns = ends.map(Ends::cpu_ns).zip(cpu_before);
        bed.sleep(Duration::from_nanos(self.idle))?;
        let after = memory()?;
        let again = crowd.ask_again().with_context(|| format!("again through {carrier}"))?;
        ensure!(again == crowd.held(), "{again} of {} idle ones were answered", crowd.held());
        let mut first: Vec<u64> = crowd.took.iter().copied().map(duration_ns).collect();
        first.sort_unstable();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|it| rank(&first, it).unwrap_or_default());
        Ok(Arrived {
            answered: first.len() as u32,
            held: again as u32,
            took_ns: duration_ns(crowd.lasted),
            first_byte_p50_ns: p50,
            first_byte_p99_ns: p99,
            first_byte_max_ns: max,
            before_bytes: bytes(before, |it| it.resident_bytes),
            peak_bytes: bytes(after, |it| it.peak_bytes),
            idle_bytes: bytes(after, |it| it.resident_bytes),
            cpu_ns: cpu_ns.map(|(now, then)| [now[0] - then[0], now[1] - then[1]]),
        })
    }
}
