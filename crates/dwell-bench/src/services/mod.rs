//! `./x bench services`: PostgreSQL and Redis through a pair of proxies, and through others that encrypt.

mod orders;
mod postgres;
pub(super) mod redis;
mod table;
mod task;

use std::process::ExitCode;
use std::time::Duration;

use dwell_base::ByteSize;
use dwell_base::time::parse_duration_ns;
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::carriers::{Carrier, Carriers};
use super::link_path::LinkPath;
use super::options::{Records, Rounds, seconds};
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::statistics::rank;
use orders::Orders;
use task::{Service, Task};

const AFTER_HELP: &str = "\
Examples:
  ./x bench services --runs 1                                       every task over three links: three minutes
  ./x bench services --task point,copy-out --link 20mbit/10ms       a corner of it
  ./x bench services --json services.jsonl --runs 5
  ./x bench services --contender plain,proxy,ssh --link 5mbit/20ms
  ./x bench services --proxy=--strategy=raw                         with options for both proxies

PostgreSQL is asked by pgbench (one row, or 1,000 rows, of a table of orders for each query) and by psql (COPY out and
in), Redis by clients of this program: values of 100 bytes, one command at a time or 16 in advance, and values of 10 kB
of JSON. In each cell all contenders take turns, while the others wait: the client connects to the server itself
(`plain`), through a pair of proxies with a shared key, through a pair of stunnel (TLS with a shared key) and through a
pair of HAProxy (TLS with certificates). What COPY brings and every value is compared. Server and clients are on this
machine, too.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure PostgreSQL and Redis through a pair of proxies, against plain TCP, stunnel and HAProxy
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Services {
    /// Links: a rate, or `unlimited` for a plain cable, and a delay each way after `/`
    #[arg(long, value_name = "LINK,...", value_delimiter = ',')]
    #[arg(default_value = "unlimited,100mbit/1ms,20mbit/10ms")]
    link: Vec<LinkPath>,
    /// What is done
    #[arg(long, value_name = "TASK,...", value_delimiter = ',')]
    #[arg(default_values_t = Task::ALL)]
    task: Vec<Task>,
    /// Who takes part
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(default_value = "plain,proxy,stunnel,haproxy")]
    contender: Vec<Carrier>,
    /// Seconds for which each contender is asked in each cell; pgbench takes whole ones
    #[arg(long, default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// The length of the table, of which COPY moves all
    #[arg(long, value_name = "SIZE", default_value = "20MB")]
    size: ByteSize,
    /// It moves no more than what takes this long uncompressed
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration_ns)]
    longest: u64,
    /// An option for both proxies, with its value after `=`; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    proxy: Vec<String>,
    /// Begins the random numbers of which rows and values are made
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// The time that the ends of connections have to leave the link, in which nothing is asked.
const SETTLING: Duration = Duration::from_millis(30);
/// What a cell takes beside the time in which it is asked: a client starts, and what it did is checked.
const AROUND: Duration = Duration::from_millis(200);

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    seconds: f64,
    size_bytes: u64,
    longest_ns: u64,
    seed: u64,
    /// More options of the proxies.
    proxy: Vec<String>,
}

/// A link, and what is done over it by how many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(flatten)]
    link: LinkPath,
    task: Task,
    clients: u32,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Served {
    /// Transactions, commands or copies.
    count: u64,
    /// The time that they took, together.
    window_ns: u64,
    took_p50_ns: u64,
    took_p99_ns: u64,
    /// Bytes on the link, in both directions, headers included.
    link_bytes: u64,
    /// CPU time of the carrier at the server's and at the client's end, from before the clients connect.
    cpu_ns: Option<[u64; 2]>,
}

/// What clients have seen.
#[derive(Debug)]
struct Seen {
    count: u64,
    window: Duration,
    /// How long each took, or each batch of those that go in advance.
    took_ns: Vec<u64>,
}

impl Served {
    fn per_second(&self) -> f64 {
        self.count as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    fn link_bytes_each(&self) -> f64 {
        self.link_bytes as f64 / self.count.max(1) as f64
    }

    /// Of one end, for each that was done.
    fn cpu_each_ns(&self, end: usize) -> Option<f64> {
        self.cpu_ns.map(|both| both[end] as f64 / self.count.max(1) as f64)
    }
}

impl Bench for Services {
    const NAME: &'static str = "services";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Served;

    fn place(place: &Place) -> String {
        let Place { link, task, clients } = place;
        format!("{link}, {task} by {clients}")
    }

    fn line(_place: &Place, served: &Served) -> String {
        let ms = served.took_p50_ns as f64 / 1e6;
        format!("{:.1} a second, {ms:.2} ms", served.per_second())
    }

    fn report(runs: &[Run<Self>]) -> String {
        runner::head(runs) + &table::report(runs)
    }
}

impl Services {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            seconds: self.seconds,
            size_bytes: self.size.0,
            longest_ns: self.longest,
            seed: self.seed,
            proxy: self.proxy.clone(),
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        self.contender.iter().try_for_each(|carrier| carrier.ensure_installed())?;
        let is_asked = |service| self.task.iter().any(|task| task.service() == service);
        if is_asked(Service::Postgres) {
            postgres::ensure_installed()?;
        }
        if is_asked(Service::Redis) {
            redis::ensure_installed()?;
        }
        let orders = Orders::make(self.size.0 as usize, self.seed);
        let missing = |series: &Series<Self>, place: &Place| {
            series.missing(place, &self.contender, self.rounds.runs)
        };
        let all: Vec<Place> = self.link.iter().flat_map(|&link| self.places(link)).collect();
        let parts: Vec<_> =
            all.iter().map(|place| (missing(series, place), self.takes(place))).collect();
        series.plan(parts);
        for &link in &self.link {
            let places = self.places(link);
            if places.iter().any(|place| missing(series, place) > 0) {
                self.at(lab, link, &places, &orders, series)?;
            }
        }
        Ok(())
    }

    fn places(&self, link: LinkPath) -> Vec<Place> {
        let of =
            |&task: &Task| task.clients().iter().map(move |&clients| Place { link, task, clients });
        self.task.iter().flat_map(of).collect()
    }

    /// How long a run takes at most, about.
    fn takes(&self, place: &Place) -> Duration {
        let copy = Duration::from_nanos(if place.task.is_copy() { self.longest } else { 0 });
        AROUND + Duration::from_secs_f64(self.seconds).max(copy)
    }

    /// The bytes of rows that COPY moves over a link of this rate, at most.
    fn copied_bytes(&self, link: LinkPath) -> usize {
        let most =
            link.rate.bps().map_or(f64::INFINITY, |bps| bps as f64 / 8e9 * self.longest as f64);
        self.size.0.min(most as u64) as usize
    }

    /// All rounds over one link.
    fn at(
        &self,
        lab: &mut Lab,
        link: LinkPath,
        places: &[Place],
        orders: &Orders,
        series: &mut Series<Self>,
    ) -> anyhow::Result<()> {
        let bed = link.bed(lab)?;
        let copied = orders.rows_in(self.copied_bytes(link));
        let is_asked = |service| places.iter().any(|place| place.task.service() == service);
        let postgres = is_asked(Service::Postgres)
            .then(|| postgres::Server::start(&bed, orders, copied))
            .transpose()?;
        let redis =
            is_asked(Service::Redis).then(|| redis::Server::start(&bed, self.seed)).transpose()?;
        let ports =
            [postgres.as_ref().map(|_| postgres::PORT), redis.as_ref().map(|_| redis::PORT)];
        let ports: Vec<u16> = ports.into_iter().flatten().collect();
        let carriers = Carriers::start(&bed, &self.contender, &ports, &self.proxy)?;
        for place in places {
            let length = (self.rounds.runs, self.takes(place));
            let is_over = || bed.check().is_err();
            series.rounds(place, &self.contender, length, is_over, |&carrier| {
                let time = Duration::from_secs_f64(self.seconds);
                watch(&bed, carrier, &carriers, || match (&postgres, &redis) {
                    (Some(postgres), _) if place.task.service() == Service::Postgres => {
                        postgres.serve(&bed, carrier, (place.task, place.clients), time)
                    }
                    (_, Some(redis)) => {
                        redis.serve(&bed, carrier, (place.task, place.clients), time)
                    }
                    _ => anyhow::bail!("there is no server for {}", place.task),
                })
            })?;
        }
        carriers.stop()
    }
}

/// Counts what the link and the carrier have to do with it.
fn watch(
    bed: &Bed<'_>,
    carrier: Carrier,
    carriers: &Carriers,
    act: impl FnOnce() -> anyhow::Result<Seen>,
) -> anyhow::Result<Served> {
    let cpu_ns = || carriers.ends(carrier).map(super::ends::Ends::cpu_ns);
    bed.sleep(SETTLING)?;
    let before = (bed.link_bytes()?, cpu_ns());
    let mut seen = act()?;
    bed.sleep(SETTLING)?;
    seen.took_ns.sort_unstable();
    let [took_p50_ns, took_p99_ns] =
        [0.5, 0.99].map(|share| rank(&seen.took_ns, share).unwrap_or_default());
    let since =
        |now: [u64; 2], then: [u64; 2]| [0, 1].map(|end| now[end].saturating_sub(then[end]));
    Ok(Served {
        count: seen.count,
        window_ns: dwell_base::time::duration_ns(seen.window),
        took_p50_ns,
        took_p99_ns,
        link_bytes: bed.link_bytes()? - before.0,
        cpu_ns: cpu_ns().zip(before.1).map(|(now, then)| since(now, then)),
    })
}
