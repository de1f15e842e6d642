//! The record of a run, a line of JSON, alike for all benches.
//!
//! Field names are the format, with units in them, as in the status of a relay.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use dwell_base::share;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::contender::Security;
use super::file::NamedFile;
use super::machine::Machine;
use super::tunnel::Belief;

/// The program and machine that a result holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) version: String,
    pub(super) machine: Machine,
}

impl Origin {
    pub(super) fn this() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), machine: Machine::this() }
    }

    /// Returns the line above tables.
    pub(super) fn line(&self) -> String {
        format!("dwell {} on {}", self.version, self.machine.line())
    }
}

/// A part of a record.
pub(super) trait Part: Clone + Debug + PartialEq + Serialize + DeserializeOwned {}

impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned> Part for T {}

/// A bench, by what its records have of their own.
pub(super) trait Bench: Sized {
    /// As on the command line.
    const NAME: &'static str;
    /// What all runs of a series have in common: runs may be compared if these are the same.
    type Conditions: Part;
    /// What differs between the parts of a series, in each of which all contenders run.
    type Place: Part;
    /// What a run found.
    type Measured: Part;

    /// Returns a place in words, for the names of its runs; nothing if there is only one.
    fn place(_place: &Self::Place) -> String {
        String::new()
    }

    /// Returns what a run found in a line.
    fn line(place: &Self::Place, measured: &Self::Measured) -> String;

    /// Returns everything that there is to say of these runs, for a terminal.
    fn report(runs: &[Run<Self>]) -> String;
}

/// The only place of a bench without others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct OnlyPlace {}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record<C, P, M> {
    /// The name of the bench.
    pub(super) bench: String,
    pub(super) at_unix_seconds: u64,
    #[serde(flatten)]
    pub(super) origin: Origin,
    pub(super) conditions: C,
    pub(super) place: P,
    pub(super) contender: String,
    /// From 0.
    pub(super) round: u32,
    pub(super) measured: M,
}

/// A run of a bench.
pub(super) type Run<B> =
    Record<<B as Bench>::Conditions, <B as Bench>::Place, <B as Bench>::Measured>;

/// The conditions of a run: runs may be compared if these are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The link's delay each way.
    pub(super) delay_ns: u64,
    /// Links faster than this have none.
    pub(super) delay_max_bps: u64,
    pub(super) belief: Belief,
    /// The congestion control of the sender's TCP.
    pub(super) congestion_control: String,
    pub(super) security: Security,
    pub(super) seconds: f64,
    pub(super) seed: u64,
    /// The file that is sent, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<NamedFile>,
}

/// The measurements between two moments of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) window_ns: u64,
    /// Bytes of downloads, or messages, that arrived.
    pub(super) count: u64,
    /// Bytes that arrived for the application.
    pub(super) application_bytes: u64,
    /// The bytes that the sender put on the link, Ethernet headers included.
    pub(super) link_bytes: u64,
    pub(super) ping_p50_ns: Option<u64>,
    #[serde(default)]
    pub(super) ping_p95_ns: Option<u64>,
    pub(super) ping_p99_ns: Option<u64>,
    pub(super) pings: u64,
    pub(super) pings_lost: u64,
    /// Of messages, one way.
    pub(super) delay_p50_ns: Option<u64>,
    pub(super) delay_p99_ns: Option<u64>,
    /// CPU time of the tunnel at the sending and at the receiving end.
    pub(super) cpu_ns: Option<[u64; 2]>,
    /// CPU time of this program, which sends and receives, and emulates delay.
    pub(super) own_cpu_ns: u64,
    /// The sending relay's accounts.
    pub(super) relay: Option<RelayAccounts>,
}

/// The sending relay's accounts of the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RelayAccounts {
    pub(super) arrived_packets: u64,
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) dropped_packets: u64,
    /// Datagrams that the operating system did not take.
    pub(super) send_errors: u64,
    pub(super) frames: u64,
    pub(super) link_bytes: u64,
    pub(super) tried: u64,
    pub(super) compressed_packets: u64,
    pub(super) compressed_bytes: u64,
    pub(super) compressed_to_bytes: u64,
    pub(super) not_smaller: u64,
    pub(super) compress_ns: u64,
    /// Datagrams that were sent again.
    #[serde(default)]
    pub(super) resent_datagrams: u64,
    /// By the receiving relay: datagrams that never came in time, those of them that came when
    /// they were sent again, and those that did not.
    #[serde(default)]
    pub(super) lost_datagrams: u64,
    #[serde(default)]
    pub(super) recovered_datagrams: u64,
    #[serde(default)]
    pub(super) unrecovered_datagrams: u64,
    /// By the receiving relay: how long batches waited for one that was missing before them.
    #[serde(default)]
    pub(super) gap_p99_ns: Option<u64>,
    /// Since the first second of the run.
    pub(super) later_arrived_packets: u64,
    pub(super) later_tried: u64,
    /// The rate that it took the link to have, at the end.
    pub(super) believed_bps: Option<u64>,
    /// From a packet's arrival to its sending, since the relay's start.
    pub(super) sojourn_p50_ns: u64,
    pub(super) sojourn_p99_ns: u64,
}

impl Measured {
    /// [`Self::count`] per second.
    pub(super) fn per_second(&self) -> f64 {
        self.count as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    /// The same in Mbit/s, of downloads.
    pub(super) fn mbps(&self) -> f64 {
        self.per_second() * 8e-6
    }

    /// Returns the bytes on the link for a byte of the application.
    pub(super) fn link_bytes_per_byte(&self) -> Option<f64> {
        share(self.link_bytes, self.application_bytes)
    }
}

impl RelayAccounts {
    /// Of packets that were compressed: compressed / original.
    pub(super) fn compressed_ratio(&self) -> Option<f64> {
        share(self.compressed_to_bytes, self.compressed_bytes)
    }

    /// Of all packets sent, compressed or not, without what the relay adds.
    pub(super) fn sent_ratio(&self) -> Option<f64> {
        let saved = self.compressed_bytes.saturating_sub(self.compressed_to_bytes);
        share(self.sent_bytes.saturating_sub(saved), self.sent_bytes)
    }

    /// The share of packets that were given to the compressor.
    pub(super) fn tried_share(&self) -> Option<f64> {
        share(self.tried, self.arrived_packets)
    }

    /// The same after the first second.
    pub(super) fn later_tried_share(&self) -> Option<f64> {
        share(self.later_tried, self.later_arrived_packets)
    }
}

/// Now, for records.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A file of records, one a line; or none.
#[derive(Debug, Default)]
pub(super) struct Journal(Option<File>);

impl Journal {
    /// Opens it. A file that exists is only added to, and only if asked to resume; the runs
    /// that are in it come along.
    pub(super) fn open<T: for<'de> Deserialize<'de>>(
        path: Option<&Path>,
        resume: bool,
    ) -> anyhow::Result<(Self, Vec<T>)> {
        let Some(path) = path else { return Ok((Self::default(), Vec::new())) };
        let shown = path.display();
        let before = match File::open(path) {
            Ok(file) if resume => {
                read(file).with_context(|| format!("{shown} can't be resumed"))?
            }
            Ok(_) => anyhow::bail!("{shown} exists: add --resume, or choose another name"),
            Err(_) => Vec::new(),
        };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("{shown} can't be written"))?;
        Ok((Self(Some(file)), before))
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(record)? + "\n";
        file.write_all(line.as_bytes()).context("a record can't be written")
    }
}

fn read<T: for<'de> Deserialize<'de>>(file: File) -> anyhow::Result<Vec<T>> {
    let mut records = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        let record = serde_json::from_str(&line)
            .with_context(|| format!("line {} is no record of this kind", number + 1))?;
        records.push(record);
    }
    ensure!(records.len() < 10_000_000, "too many records");
    Ok(records)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::link::{Link, Place};
    use crate::workload::Workload;

    /// A run of any bench; machine and time are invented.
    pub(crate) fn record<B: Bench>(
        conditions: B::Conditions,
        place: B::Place,
        (contender, round): (&str, u32),
        measured: B::Measured,
    ) -> Run<B> {
        let machine = Machine { cores: 2, cpu: "cpu".into(), kernel: "6".into() };
        Record {
            bench: B::NAME.to_owned(),
            at_unix_seconds: 0,
            origin: Origin { version: "0".into(), machine },
            conditions,
            place,
            contender: contender.to_owned(),
            round,
            measured,
        }
    }

    /// A run with this result; everything else is invented.
    pub(crate) fn run(
        rate: &str,
        workload: Workload,
        contender: &str,
        round: u32,
        per_second: u64,
    ) -> Run<Link> {
        let place = Place { rate: rate.parse().unwrap(), workload };
        let measured = Measured {
            window_ns: 1_000_000_000,
            count: per_second,
            application_bytes: per_second,
            link_bytes: 1_000_000,
            ..Measured::default()
        };
        record::<Link>(terms(), place, (contender, round), measured)
    }

    pub(crate) fn terms() -> Terms {
        Terms {
            delay_ns: 5_000_000,
            delay_max_bps: 100_000_000,
            belief: Belief::Auto,
            congestion_control: "cubic".into(),
            security: Security::Psk,
            seconds: 2.0,
            seed: 1,
            file: None,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for rate in ["10mbit", "unlimited"] {
            let mut run = run(rate, Workload::Text, "packet/lz4", 3, 5);
            run.measured.relay = Some(RelayAccounts::default());
            run.measured.cpu_ns = Some([1, 2]);
            let line = serde_json::to_string(&run).unwrap();
            assert!(!line.contains('\n') && line.contains("\"rate_bps\""), "{line}");
            assert_eq!(serde_json::from_str::<Run<Link>>(&line).unwrap(), run);
        }
    }

    #[test]
    fn a_journal_is_never_overwritten_and_resumes() {
        let path = std::env::temp_dir().join(format!("dwell-journal-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (mut journal, before) = Journal::open::<Run<Link>>(Some(&path), false).unwrap();
        assert!(before.is_empty());
        let one = run("10mbit", Workload::Half, "off", 0, 7);
        journal.add(&one).unwrap();
        assert!(Journal::open::<Run<Link>>(Some(&path), false).is_err());
        let (_, before) = Journal::open::<Run<Link>>(Some(&path), true).unwrap();
        assert_eq!(before, [one]);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Journal::open::<Run<Link>>(Some(&path), true).is_err());
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn ratios_are_compressed_by_original() {
        let accounts = RelayAccounts {
            arrived_packets: 10,
            tried: 5,
            later_arrived_packets: 8,
            later_tried: 2,
            sent_bytes: 1000,
            compressed_bytes: 500,
            compressed_to_bytes: 250,
            ..RelayAccounts::default()
        };
        assert_eq!(accounts.compressed_ratio(), Some(0.5));
        assert_eq!(accounts.sent_ratio(), Some(0.75));
        assert_eq!(accounts.tried_share(), Some(0.5));
        assert_eq!(accounts.later_tried_share(), Some(0.25));
        assert_eq!(RelayAccounts::default().compressed_ratio(), None);
    }
}
