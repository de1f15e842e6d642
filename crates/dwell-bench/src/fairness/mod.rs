//! `./x bench fairness`: what small requests wait beside a stream that takes all it can get.

mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::ByteSize;
use dwell_base::time::{duration_ns, parse_duration_ns};
use dwell_lab::corpus;
use dwell_lab::lab::Lab;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::carriers::{Carrier, Carriers};
use super::download::{self, Downloads};
use super::http::Cell;
use super::http::content::{Body, Kind};
use super::http::web::{self, Bodies, Pace, Server};
use super::link_path::LinkPath;
use super::options::{Records, Rounds, Tcp, Watch};
use super::record::{Bench, Run};
use super::runner::{self, Series};
use super::statistics::rank;
use super::tunnel;

const AFTER_HELP: &str = "\
Examples:
  ./x bench fairness --runs 1                             three minutes
  ./x bench fairness --greedy none,text --bottleneck here   a corner of it
  ./x bench fairness --congestion-control bbr --json fairness.jsonl
  ./x bench fairness --proxy=--strategy=raw               with options for both proxies

Clients with a connection each ask for 1 kB of JSON, and ask again some time after the answer; beside them goes nothing, or
one download without an end, of text or of random bytes. `here`, the slow link begins at the machine with the proxy;
`beyond`, behind a router that queues what is too much, for 100 ms. The carrier is started for each run. A request takes from its first byte to the
last byte of the answer, all of which are compared. `times alone` is the 99th percentile against that with nothing beside.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure what small requests wait beside one greedy stream, through proxies, plain and through `ssh -C -L`
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("seconds", |arg| arg.default_value("6")))]
pub(super) struct Fairness {
    /// Links: a rate, and a delay each way after `/`
    #[arg(long, value_name = "LINK,...", value_delimiter = ',', default_value = "20mbit/10ms")]
    link: Vec<LinkPath>,
    /// Where the slow link begins
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "here,beyond")]
    bottleneck: Vec<Bottleneck>,
    /// What goes beside the requests
    #[arg(
        long,
        value_name = "WHAT,...",
        value_delimiter = ',',
        default_value = "none,text,random"
    )]
    greedy: Vec<Greedy>,
    /// Clients
    #[arg(long, value_name = "COUNT", default_value = "100")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// The length of answers
    #[arg(long, value_name = "SIZE", default_value = "1kB")]
    size: ByteSize,
    /// The time from an answer to the next request
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration_ns)]
    pause: u64,
    /// Who takes part
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "plain,proxy,ssh")]
    contender: Vec<Carrier>,
    /// An option for both proxies, with its value after `=`; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    proxy: Vec<String>,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    records: Records,
}

/// Where the slow link begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bottleneck {
    /// At the machine with the proxy, whose kernel feels it
    Here,
    /// Behind a router, which queues for 100 ms
    Beyond,
}

/// What goes beside the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Greedy {
    /// Nothing: the requests are alone
    None,
    /// A download of English prose
    Text,
    /// A download of random bytes
    Random,
}

/// The port of the small requests.
const PORT: u16 = 8000;
/// The greedy stream has the link for so long before anything is asked.
const AHEAD: Duration = Duration::from_secs(1);
/// And must begin within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Its bytes begin again after this many.
const GREEDY_BYTES: usize = 16 << 20;
/// What a run takes beside the requests: carriers start and stop.
const AROUND: Duration = Duration::from_millis(1500);

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    clients: u32,
    answer_bytes: u64,
    pause_ns: u64,
    seconds: f64,
    congestion_control: String,
    /// More options of the proxies.
    proxy: Vec<String>,
}

/// A link, and what goes over it beside the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(flatten)]
    link: LinkPath,
    bottleneck: Bottleneck,
    greedy: Greedy,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waited {
    answers: u64,
    answer_p50_ns: u64,
    answer_p99_ns: u64,
    answer_max_ns: u64,
    window_ns: u64,
    /// Bytes of the greedy stream that arrived.
    greedy_bytes: u64,
    /// Bytes on the link, in both directions, headers included.
    link_bytes: u64,
    /// CPU time of the carrier at the server's and at the client's end.
    cpu_ns: Option<[u64; 2]>,
}

impl Waited {
    fn greedy_mbps(&self) -> f64 {
        self.greedy_bytes as f64 * 8e3 / self.window_ns.max(1) as f64
    }
}

impl Bench for Fairness {
    const NAME: &'static str = "fairness";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Waited;

    fn place(place: &Place) -> String {
        let Place { link, bottleneck, greedy } = place;
        format!("{link}, {} beside {}", bottleneck.name(), greedy.name())
    }

    fn line(_place: &Place, waited: &Waited) -> String {
        let [p50, p99] = [waited.answer_p50_ns, waited.answer_p99_ns].map(|ns| ns as f64 / 1e6);
        format!("{p50:.1} ms, p99 {p99:.1} ms, beside {:.1} Mbit/s", waited.greedy_mbps())
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        if let Some(run) = runs.first() {
            let Conditions { clients, congestion_control, .. } = &run.conditions;
            text += &format!("{clients} clients, TCP {congestion_control}\n");
        }
        text + &table::report(runs)
    }
}

impl Bottleneck {
    const fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Beyond => "beyond",
        }
    }
}

impl Greedy {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Text => "text",
            Self::Random => "random bytes",
        }
    }

    fn body(self) -> Option<download::Body> {
        let bytes = match self {
            Self::None => return None,
            Self::Text => corpus::text(GREEDY_BYTES, 1),
            Self::Random => corpus::incompressible(GREEDY_BYTES, 1),
        };
        Some(download::Body::from(Arc::new(bytes)))
    }
}

impl Fairness {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions {
            clients: self.clients,
            answer_bytes: self.size.0,
            pause_ns: self.pause,
            seconds: self.watch.seconds,
            congestion_control: self.tcp.congestion_control(),
            proxy: self.proxy.clone(),
        };
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        self.contender.iter().try_for_each(|carrier| carrier.ensure_installed())?;
        let bodies: Arc<Bodies> = Arc::new([(Kind::Json, Body::new(Kind::Json, 1))].into());
        let takes = AROUND + AHEAD + Duration::from_secs_f64(self.watch.seconds);
        let length = (self.rounds.runs, |_: &Place| takes);
        let places = self.places()?;
        series.everywhere(
            &places,
            |_| self.contender.clone(),
            length,
            |series, place| {
                let mut bed = match place.bottleneck {
                    Bottleneck::Here => place.link.bed(lab)?,
                    Bottleneck::Beyond => {
                        let rate =
                            place.link.rate.0.context("an unlimited link has no bottleneck")?;
                        Bed::routed(lab, rate, place.link.delay_ns)?
                    }
                };
                bed.set_congestion_control(&self.tcp.congestion_control())?;
                let bed = &bed;
                let server = Server::start(bed.listen(tunnel::server(PORT))?, Arc::clone(&bodies));
                let _server = server.context("no server")?;
                let greedy = place.greedy.body();
                let is_over = || bed.check().is_err();
                series.rounds(
                    place,
                    &self.contender,
                    (self.rounds.runs, takes),
                    is_over,
                    |&carrier| self.through(bed, carrier, greedy.as_ref(), &bodies),
                )
            },
        )
    }

    fn places(&self) -> anyhow::Result<Vec<Place>> {
        let mut places = Vec::new();
        for &link in &self.link {
            ensure!(link.rate.bps().is_some(), "an unlimited link has no bottleneck");
            for &bottleneck in &self.bottleneck {
                let place = |&greedy: &Greedy| Place { link, bottleneck, greedy };
                places.extend(self.greedy.iter().map(place));
            }
        }
        Ok(places)
    }

    /// Starts a carrier, and the greedy stream through it, asks, and stops all.
    fn through(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        greedy: Option<&download::Body>,
        bodies: &Arc<Bodies>,
    ) -> anyhow::Result<Waited> {
        // A download takes one connection only, which must not be that of who looks whether all is ready.
        let ports: Vec<u16> = download::ports().take(1).chain([PORT]).collect();
        let carriers = Carriers::start(bed, &[carrier], &ports, &self.proxy)?;
        let greedy: Vec<_> = greedy.into_iter().cloned().collect();
        let downloads = Downloads::start(bed, &greedy, carrier.entrance())?;
        let end = Instant::now() + PATIENCE;
        while !downloads.have_started() {
            ensure!(Instant::now() < end, "the greedy stream does not begin");
            bed.sleep(Duration::from_millis(10))?;
        }
        bed.sleep(AHEAD)?;
        let waited = self.ask(bed, carrier, &carriers, &downloads, bodies);
        ensure!(downloads.finish()?, "what the greedy stream brought is not what was sent");
        carriers.stop()?;
        waited
    }

    fn ask(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        carriers: &Carriers,
        downloads: &Downloads,
        bodies: &Arc<Bodies>,
    ) -> anyhow::Result<Waited> {
        let count = || -> anyhow::Result<(Instant, u64, u64, Option<[u64; 2]>)> {
            let cpu_ns = carriers.ends(carrier).map(super::ends::Ends::cpu_ns);
            Ok((Instant::now(), downloads.received_bytes(), bed.link_bytes()?, cpu_ns))
        };
        let bytes = self.size.0 as usize;
        let cell = Cell { kind: Kind::Json, bytes, is_new: false, at_once: self.clients };
        let time = Duration::from_secs_f64(self.watch.seconds);
        let pace = Pace { time, least: 2, pause: Duration::from_nanos(self.pause) };
        let (address, all) = (carrier.address(PORT), Arc::clone(bodies));
        let (from, greedy_before, link_before, cpu_before) = count()?;
        let ask = move || web::ask(address, cell, pace, &all, 0);
        let answers = bed.pair.client.spawn_thread(ask)?;
        let answers = answers.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        let (to, greedy_after, link_after, cpu_after) = count()?;
        let answers = answers.with_context(|| format!("through {carrier}"))?;
        ensure!(answers.is_verified, "an answer through {carrier} was wrong");
        let mut took: Vec<u64> = answers.took.into_iter().map(duration_ns).collect();
        took.sort_unstable();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|it| rank(&took, it).unwrap_or_default());
        let since = |now: [u64; 2], then: [u64; 2]| [now[0] - then[0], now[1] - then[1]];
        Ok(Waited {
            answers: took.len() as u64,
            answer_p50_ns: p50,
            answer_p99_ns: p99,
            answer_max_ns: max,
            window_ns: duration_ns(to - from),
            greedy_bytes: greedy_after - greedy_before,
            link_bytes: link_after - link_before,
            cpu_ns: cpu_after.zip(cpu_before).map(|(now, then)| since(now, then)),
        })
    }
}
