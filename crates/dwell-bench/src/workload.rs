//! Workloads, and how they are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use dwell_lab::corpus;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::download::{Body, Downloads};
use super::link_rate::LinkRate;
use super::messages::{Delivery, Messages, Script};
use super::requests::Requests;
use super::tunnel::Tunnel;

/// The traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Workload {
    /// One download of English prose
    Text,
    /// One download of random bytes
    Random,
    /// Both at once, on a connection each
    Half,
    /// Twenty downloads at once, each of other prose
    Many,
    /// Ten downloads at once: of the file from different places on, or else of prose
    Ten,
    /// One download of prose and random bytes in turns of 256 KiB
    Alternating,
    /// One download of the file that `--file` names
    File,
    /// One download of prose; beside it requests of 300 bytes, each answered by 1,000 of prose
    Requests,
    /// Short UDP messages, three times as many as the link carries
    Telemetry,
    /// The same, eight times as many as the link carries
    Overload,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Random => "random",
            Self::Half => "half",
            Self::Many => "many",
            Self::Ten => "ten",
            Self::Alternating => "alternating",
            Self::File => "file",
            Self::Requests => "requests",
            Self::Telemetry => "telemetry",
            Self::Overload => "overload",
        }
    }

    /// Returns the load in capacities of the link, if it is of messages.
    pub(super) const fn overload(self) -> Option<f64> {
        match self {
            Self::Telemetry => Some(3.0),
            Self::Overload => Some(8.0),
            _ => None,
        }
    }

    /// Returns the unit of [`Load::count`] per second in tables, and the counts that make one.
    pub(super) fn unit(self) -> (&'static str, f64) {
        match self {
            _ if self.overload().is_some() => ("messages/s", 1.0),
            _ => ("Mbit/s", 1e6 / 8.0),
        }
    }
}

/// The length of a download before it begins again.
const BODY_BYTES: usize = 16 << 20;
/// Of many downloads: how many, and how much of each is made.
const MANY: u64 = 20;
const MANY_BODY_BYTES: usize = 1 << 20;
/// Of the same at different places.
const TEN: usize = 10;
/// The length of a turn of prose, and of random bytes.
const TURN_BYTES: usize = 256 << 10;

/// What contents are made of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) seed: u64,
    /// The bytes of a file.
    pub(super) file: Option<Arc<Vec<u8>>>,
}

impl Source {
    /// Without a file.
    pub(super) const fn seeded(seed: u64) -> Self {
        Self { seed, file: None }
    }
}

/// The content of a workload, made once for all runs.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bodies(Vec<Body>),
    /// A download, and what is answered with pieces of the other.
    Requests(Body, Arc<Vec<u8>>),
    Script(Arc<Script>),
}

impl Content {
    /// Enough for runs of this length.
    ///
    /// # Errors
    /// If the workload is a file and there is none.
    pub(super) fn new(
        workload: Workload,
        rate: LinkRate,
        time: Duration,
        source: &Source,
    ) -> anyhow::Result<Self> {
        let seed = source.seed;
        let text = || Arc::new(corpus::text(BODY_BYTES, seed));
        let random = || Arc::new(corpus::incompressible(BODY_BYTES, seed));
        let bodies = match workload {
            Workload::Text => vec![text().into()],
            Workload::Random => vec![random().into()],
            Workload::Half => vec![text().into(), random().into()],
            Workload::Many => {
                let other = |n| Arc::new(corpus::text(MANY_BODY_BYTES, seed.wrapping_add(n)));
                (0..MANY).map(|n| other(n).into()).collect()
            }
            Workload::Ten => {
                Body::at_places(&source.file.clone().unwrap_or_else(text), TEN).collect()
            }
            Workload::Alternating => vec![Arc::new(alternating(BODY_BYTES, seed)).into()],
            Workload::File => {
                vec![source.file.clone().context("the workload `file` needs a file")?.into()]
            }
            Workload::Requests => {
                let answers = corpus::text(MANY_BODY_BYTES, seed.wrapping_add(1));
                return Ok(Self::Requests(text().into(), Arc::new(answers)));
            }
            Workload::Telemetry | Workload::Overload => {
                let times = workload.overload().unwrap_or(1.0);
                return Ok(Self::Script(Arc::new(Script::new((rate, times), time, seed))));
            }
        };
        Ok(Self::Bodies(bodies))
    }
}

/// Prose and random bytes in turn: with a whole number of pairs of them it goes on so when it begins
/// again.
fn alternating(len: usize, seed: u64) -> Vec<u8> {
    let text = corpus::text(len / 2, seed);
    let random = corpus::incompressible(len / 2, seed);
    let turns = text.chunks(TURN_BYTES).zip(random.chunks(TURN_BYTES));
    turns.flat_map(|(text, random)| [text, random]).flatten().copied().collect()
}

/// A workload under way.
#[derive(Debug)]
pub(super) enum Load {
    Downloads(Downloads),
    Requests(Downloads, Requests),
    Messages(Messages),
}

impl Load {
    /// Starts it through a tunnel, and waits until something has arrived.
    pub(super) fn start(bed: &Bed<'_>, tunnel: &Tunnel, content: &Content) -> anyhow::Result<Self> {
        let load = match content {
            Content::Bodies(bodies) => {
                Self::Downloads(Downloads::start(bed, bodies, tunnel.entrance())?)
            }
            Content::Requests(bulk, answers) => {
                let entrance = tunnel.entrance();
                let bulk = Downloads::start(bed, std::slice::from_ref(bulk), entrance)?;
                match Requests::start(bed, answers, entrance) {
                    Ok(requests) => Self::Requests(bulk, requests),
                    Err(error) => {
                        let _ = bulk.finish();
                        return Err(error);
                    }
                }
            }
            Content::Script(script) => Self::Messages(Messages::start(bed, script)?),
        };
        match load.wait(bed, tunnel.patience()) {
            Ok(()) => Ok(load),
            Err(error) => {
                // The first error tells more.
                let _ = load.finish([Instant::now(); 2]);
                Err(error)
            }
        }
    }

    fn wait(&self, bed: &Bed<'_>, patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        while !self.has_started() {
            anyhow::ensure!(Instant::now() < end, "nothing arrives");
            bed.sleep(Duration::from_millis(2))?;
        }
        Ok(())
    }

    fn has_started(&self) -> bool {
        match self {
            Self::Downloads(downloads) => downloads.have_started(),
            Self::Requests(bulk, requests) => bulk.have_started() && requests.answered() > 0,
            Self::Messages(messages) => messages.received() > 0,
        }
    }

    /// Bytes of downloads, or messages, that have arrived.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Downloads(downloads) | Self::Requests(downloads, _) => downloads.received_bytes(),
            Self::Messages(messages) => messages.received(),
        }
    }

    /// Bytes that have arrived for the application.
    pub(super) fn received_bytes(&self) -> u64 {
        match self {
            Self::Downloads(downloads) | Self::Requests(downloads, _) => downloads.received_bytes(),
            Self::Messages(messages) => messages.received_bytes(),
        }
    }

    /// Ends it. Delays are of what arrived in the window.
    pub(super) fn finish(self, window: [Instant; 2]) -> anyhow::Result<Delivery> {
        match self {
            Self::Downloads(downloads) => {
                let is_verified = downloads.finish()?;
                Ok(Delivery { is_verified, delay_p50_ns: None, delay_p99_ns: None })
            }
            Self::Requests(bulk, requests) => {
                let (bulk, requests) = (bulk.finish(), requests.finish(window)?);
                Ok(Delivery { is_verified: bulk? && requests.is_verified, ..requests })
            }
            Self::Messages(messages) => messages.finish(window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(workload: Workload, source: &Source) -> Vec<Body> {
        let rate = LinkRate(None);
        match Content::new(workload, rate, Duration::from_secs(1), source).unwrap() {
            Content::Bodies(bodies) => bodies,
            Content::Requests(..) | Content::Script(_) => panic!("{workload:?} is a download"),
        }
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for workload in Workload::value_variants() {
            let value = workload.to_possible_value().unwrap();
            assert_eq!(value.get_name(), workload.name());
        }
    }

    #[test]
    fn prose_and_random_bytes_alternate_beyond_the_end() {
        let bytes = alternating(BODY_BYTES, 1);
        assert_eq!(bytes.len(), BODY_BYTES);
        let turns: Vec<bool> =
            bytes.chunks(TURN_BYTES).map(|turn| turn.iter().all(u8::is_ascii)).collect();
        assert_eq!(turns.len() % 2, 0);
        assert!(turns.iter().enumerate().all(|(at, &is_prose)| is_prose == (at % 2 == 0)));
    }

    #[test]
    fn a_file_is_sent_from_its_beginning_or_from_ten_places() {
        let file = Arc::new((0..=99).collect::<Vec<u8>>());
        let source = Source { seed: 1, file: Some(Arc::clone(&file)) };
        assert_eq!(bodies(Workload::File, &source), [Body::from(file)]);
        let ten = bodies(Workload::Ten, &source);
        let first: Vec<u8> = ten.iter().map(|body| body.bytes[body.from]).collect();
        assert_eq!(first, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        let none = Source::seeded(1);
        assert_eq!(bodies(Workload::Ten, &none).len(), 10);
        let error = Content::new(Workload::File, LinkRate(None), Duration::ZERO, &none);
        assert!(error.unwrap_err().to_string().contains("needs a file"));
    }
}
