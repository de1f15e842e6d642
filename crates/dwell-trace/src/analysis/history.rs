//! The ratio of packets that refer to those before them, by the scope of their history.

use dwell_codec::content::{ContentClass, classify_packet};
use dwell_codec::{CodecError, CodecSpec, Compressor, SRC_LEN_MAX};
use dwell_drive::{gather, group_key};
use dwell_policy::{Gather, History};
use serde::{Deserialize, Serialize};

use super::Settings;
use super::batch::{Batch, InBatch};
use super::bound::Running;
use super::compress::Clock;
use super::record::{Analysis, Sums};
use crate::contexts::{CONTEXTS_MAX, Contexts};

/// Packets of a group are put together until they have about this many bytes.
pub const RECORD_BYTES: usize = 1_400;

/// The results of history, by its scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histories {
    /// The packets that were measured.
    pub packets: Sums,
    /// Those of them that look random, and go as they are.
    pub random: Sums,
    /// The results of records of [`RECORD_BYTES`], in the order of [`History::ALL`].
    pub records: Vec<HistorySums>,
    /// The results of packets one by one, in the order of [`History::ALL`].
    pub singles: Vec<HistorySums>,
}

/// The results of one scope, without the packets that look random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySums {
    /// Contexts that began, those of groups that had lost theirs to others included.
    pub contexts: u64,
    /// Records, or packets.
    pub batches: u64,
    /// Bytes of the results.
    pub compressed: u64,
    /// Time, in nanoseconds.
    pub ns: u64,
}

impl HistorySums {
    fn add(&mut self, other: &Self) {
        self.contexts = self.contexts.saturating_add(other.contexts);
        self.batches = self.batches.saturating_add(other.batches);
        self.compressed = self.compressed.saturating_add(other.compressed);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl Histories {
    /// Adds the sums of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        self.packets.merge(&other.packets);
        self.random.merge(&other.random);
        for (sums, others) in
            [(&mut self.records, &other.records), (&mut self.singles, &other.singles)]
        {
            if sums.len() < others.len() {
                sums.resize(others.len(), HistorySums::default());
            }
            sums.iter_mut().zip(others).for_each(|(sums, other)| sums.add(other));
        }
    }

    /// Returns the results of records and of packets one by one, if they were measured.
    pub fn of(&self, history: History) -> Option<[&HistorySums; 2]> {
        let at = History::ALL.iter().position(|&other| other == history)?;
        Some([self.records.get(at)?, self.singles.get(at)?])
    }

    /// Returns compressed / original of one scope, with what looks random as it is.
    pub fn ratio(&self, sums: &HistorySums) -> Option<f64> {
        let bytes = sums.compressed.saturating_add(self.random.bytes) as f64;
        (self.packets.bytes > 0).then(|| bytes / self.packets.bytes as f64)
    }

    /// Returns the time for each byte that was compressed, in nanoseconds.
    pub fn byte_ns(&self, sums: &HistorySums) -> Option<f64> {
        let bytes = self.packets.bytes.saturating_sub(self.random.bytes);
        (bytes > 0).then(|| sums.ns as f64 / bytes as f64)
    }
}

/// Compresses packets that refer to earlier ones, so that it has to see all batches of a capture in
/// their order, before the [`Analyzer`](super::Analyzer) does.
pub struct HistoryAnalyzer<C> {
    clock: C,
    lines: Vec<Line>,
    running: Option<Running>,
    analysis: Analysis,
}

impl<C: Clock> HistoryAnalyzer<C> {
    /// Makes the compressors.
    ///
    /// # Errors
    /// If the build lacks the codec or the level, or the codec has no contexts.
    pub fn new(settings: &Settings, clock: C) -> Result<Self, CodecError> {
        let kinds = [RECORD_BYTES, 0].map(|bytes| History::ALL.map(|history| (history, bytes)));
        let lines = settings.context_codec.into_iter().flat_map(|codec| {
            let kinds = kinds.as_flattened().iter();
            kinds.map(move |&(history, bytes_max)| Line::new(codec, history, bytes_max))
        });
        let lines = lines.collect::<Result<_, _>>()?;
        let running = settings.has_bound().then(Running::new).transpose()?;
        Ok(Self { clock, lines, running, analysis: Analysis::new(settings.clone()) })
    }

    /// Measures the packets of the next batch, and notes in it the least that history makes of them.
    ///
    /// # Errors
    /// If a library fails in a way that it should not.
    pub fn batch(&mut self, batch: &mut Batch) -> Result<(), CodecError> {
        if batch.number == 0 {
            self.begin()?;
        }
        if let Some(running) = &mut self.running {
            running.batch(batch)?;
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        let histories = &mut self.analysis.histories;
        for packet in batch.iter().filter(|packet| packet.bytes.len() <= SRC_LEN_MAX) {
            histories.packets.add(packet.bytes.len() as u64);
            if classify_packet(packet.payload()) == ContentClass::Random {
                histories.random.add(packet.bytes.len() as u64);
                continue;
            }
            for line in &mut self.lines {
                line.packet(&packet, &mut self.clock)?;
            }
        }
        Ok(())
    }

    /// Begins another capture: nothing refers to those before it.
    fn begin(&mut self) -> Result<(), CodecError> {
        for line in &mut self.lines {
            line.end(&mut self.clock)?;
        }
        self.running.as_mut().map_or(Ok(()), Running::begin)
    }

    /// Returns the sums of all batches.
    ///
    /// # Errors
    /// If a library fails in a way that it should not.
    pub fn finish(mut self) -> Result<Analysis, CodecError> {
        self.begin()?;
        let (records, singles): (Vec<Line>, Vec<Line>) =
            self.lines.into_iter().partition(|line| line.bytes_max > 0);
        let sums = |lines: Vec<Line>| lines.iter().map(Line::sums).collect();
        self.analysis.histories.records = sums(records);
        self.analysis.histories.singles = sums(singles);
        Ok(self.analysis)
    }
}

/// One scope, with records of one length.
struct Line {
    history: History,
    /// Records end before they are longer than this, if they have more than one packet.
    bytes_max: usize,
    codec: Codec,
    sums: HistorySums,
    /// What waits for its record to be full; that of the group used last is the last.
    open: Vec<Record>,
    spare: Vec<Record>,
    joined: Vec<u8>,
}

/// Returns the group of a packet. Without history records are those of pairs of hosts.
fn key(history: History, packet: &InBatch<'_>) -> u64 {
    // What goes over no link has no direction, and a context of its own.
    let edge = packet.direction.index().map_or(2, |direction| direction as u64);
    group_key(history.gather().unwrap_or(Gather::HostPair), packet.info, 0, edge)
}

/// How a line compresses.
enum Codec {
    Alone(Box<Compressor>, Vec<u8>),
    Referring(Contexts),
}

/// Packets of a group, one behind the other.
#[derive(Default)]
struct Record {
    group: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Line {
    fn new(codec: CodecSpec, history: History, bytes_max: usize) -> Result<Self, CodecError> {
        let alone = |codec| -> Result<Codec, CodecError> {
            let compressor = Box::new(Compressor::new(codec, None)?);
            Ok(Codec::Alone(compressor, vec![0; 2 * SRC_LEN_MAX]))
        };
        let codec = match (history, Contexts::of(codec)) {
            (History::Off, _) => alone(codec)?,
            (_, Some(contexts)) => Codec::Referring(contexts),
            (_, None) => return Err(CodecError::NoHistory(codec.id)),
        };
        Ok(Self {
            history,
            bytes_max,
            codec,
            sums: HistorySums::default(),
            open: Vec::new(),
            spare: Vec::new(),
            joined: Vec::new(),
        })
    }

    fn sums(&self) -> HistorySums {
        let contexts = match &self.codec {
            Codec::Alone(..) => 0,
            Codec::Referring(contexts) => contexts.begun(),
        };
        HistorySums { contexts, ..self.sums }
    }

    fn packet(&mut self, packet: &InBatch<'_>, clock: &mut impl Clock) -> Result<(), CodecError> {
        let group = key(self.history, packet);
        let mut record = self.open(group, clock)?;
        if record.bytes.len() + packet.bytes.len() > self.bytes_max {
            self.compress(&mut record, clock)?;
        }
        record.bytes.extend_from_slice(packet.bytes);
        record.ends.push(record.bytes.len());
        if record.bytes.len() >= self.bytes_max {
            self.compress(&mut record, clock)?;
        }
        self.open.push(record);
        Ok(())
    }

    /// Takes out the record of a group; too many others end that of the group that had a packet the
    /// longest time ago.
    fn open(&mut self, group: u64, clock: &mut impl Clock) -> Result<Record, CodecError> {
        if let Some(at) = self.open.iter().position(|record| record.group == group) {
            return Ok(self.open.remove(at));
        }
        if self.open.len() >= CONTEXTS_MAX {
            let mut oldest = self.open.remove(0);
            self.compress(&mut oldest, clock)?;
            self.spare.push(oldest);
        }
        Ok(Record { group, ..self.spare.pop().unwrap_or_default() })
    }

    /// Compresses a record, and empties it.
    fn compress(&mut self, record: &mut Record, clock: &mut impl Clock) -> Result<(), CodecError> {
        if record.ends.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(0).chain(record.ends.iter().copied());
        let packets = starts.zip(&record.ends).map(|(start, &end)| &record.bytes[start..end]);
        let start_ns = clock.now_ns();
        gather(packets, record.ends.len() > 1, &mut self.joined);
        let len = match &mut self.codec {
            Codec::Alone(compressor, out) => {
                let len = compressor.compress(&self.joined, out)?;
                len.unwrap_or(record.bytes.len()).min(record.bytes.len())
            }
            Codec::Referring(contexts) => contexts.compress(record.group, &self.joined)?,
        };
        self.sums.ns += clock.now_ns().saturating_sub(start_ns);
        self.sums.batches += 1;
        self.sums.compressed += len as u64;
        record.bytes.clear();
        record.ends.clear();
        Ok(())
    }

    /// Ends all records and contexts.
    fn end(&mut self, clock: &mut impl Clock) -> Result<(), CodecError> {
        while let Some(mut record) = self.open.pop() {
            self.compress(&mut record, clock)?;
            self.spare.push(record);
        }
        if let Codec::Referring(contexts) = &mut self.codec {
            contexts.clear();
        }
        Ok(())
    }
}
