//! The accounts of every packet, in order.

use std::sync::Arc;

use dwell_base::Rate;

use super::Settings;
use super::batch::{Batch, Counted};
use super::blocks::is_chosen;
use super::directions::Directions;
use super::hash::NumberMap;
use super::pairs::Pair;
use super::record::{Analysis, FileRecord, Flows, Sums, size_class};
use super::timing::Stopwatch;
use super::ways::Ways;
use crate::capture::{Capture, Format, Packet};
use crate::datagram::Datagram;
use crate::fingerprint::Fingerprint;
use crate::link::NotIp;
use crate::replay::content::{Composition, Sorter};
use crate::sides::{Direction, Ends, Sides};

/// The most flows of a capture that are distinguished; each takes some 40 bytes.
pub const FLOWS_MAX: usize = 1 << 20;
/// The most frames read for a batch: captures can be without IP, and the caller wants to show
/// progress, and to stop.
pub(super) const BATCH_FRAMES: usize = 1 << 16;
/// The most distinguished reasons why frames hold no IP packet.
const REASONS_MAX: usize = 1000;

/// Reads captures, one after the other, and keeps account of them.
pub struct Accounts {
    rates: Vec<Rate>,
    analysis: Analysis,
    file: Option<OpenFile>,
    sides: Arc<Sides>,
    /// In place of the sides, if they are found from the capture that is being read.
    ways: Option<Ways>,
    /// More ways than are distinguished: what was counted is worth nothing.
    is_beyond: bool,
    /// None if nothing is compressed, so that the bytes of packets are not needed.
    sorter: Option<Sorter>,
}

/// A capture that is being read.
struct OpenFile {
    record: FileRecord,
    stopwatch: Stopwatch,
    flows: NumberMap<(u64, u64)>,
    flows_beyond: u64,
    batches: u64,
    fingerprint: Fingerprint,
}

impl Accounts {
    /// Creates empty accounts.
    pub fn new(settings: &Settings) -> Self {
        let analysis = Analysis::new(settings.clone());
        let sorter = (!settings.codecs.is_empty()).then(Sorter::default);
        let this = Self {
            rates: settings.rates.clone(),
            analysis,
            file: None,
            sides: Arc::new(Sides::one_way()),
            ways: None,
            is_beyond: false,
            sorter,
        };
        this.with_sides(Arc::new(Sides::one_way()))
    }

    /// Counts by the direction of packets between these sides; without this, all of them go in one.
    #[must_use]
    pub fn with_sides(mut self, sides: Arc<Sides>) -> Self {
        self.analysis.directions = Directions::new(&sides);
        Self { sides, ..self }
    }

    /// Finds the sides of one capture while it is read, so that it is read once; [`found`](Self::found) then ends it. None
    /// if what is measured needs the directions of packets before the last one was read: history and the bound do.
    pub fn finding_sides(settings: &Settings) -> Option<Self> {
        let needs_them = settings.has_bound() || settings.context_codec.is_some();
        (!needs_them).then(|| Self { ways: Some(Ways::default()), ..Self::new(settings) })
    }

    /// Returns the analysis of a capture, whose sides were known or are found now. `content`: from
    /// [`Analyzer::finish_ways`](super::Analyzer::finish_ways). None if the sides were to be found, and there are more than
    /// [`WAYS_MAX`](super::WAYS_MAX) ways between hosts: whoever has looked for them before can read it again.
    pub fn found(mut self, content: &[Composition]) -> Option<Analysis> {
        if self.is_beyond {
            return None;
        }
        let ways = self.ways.take();
        let mut analysis = self.finish();
        if let Some(ways) = ways {
            analysis.directions = ways.directions(content);
        }
        Some(analysis)
    }

    /// Returns true if it is not worth while to read on: [`found`](Self::found) will have nothing.
    pub fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    /// Begins another capture; `name` is its name in reports.
    pub fn begin(&mut self, name: &str, format: Format) {
        self.end();
        let format = match format {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        };
        self.file = Some(OpenFile {
            record: FileRecord::new(name, format),
            stopwatch: Stopwatch::new(&self.rates),
            flows: NumberMap::default(),
            flows_beyond: 0,
            batches: 0,
            fingerprint: Fingerprint::default(),
        });
    }

    /// Reads on, until a batch is full, 65,536 frames have been read or the capture ends; returns
    /// true if there may be more. The batch is for the [`Analyzer`](super::Analyzer) that
    /// compresses its packets.
    pub fn fill<R: std::io::Read>(&mut self, capture: &mut Capture<R>, batch: &mut Batch) -> bool {
        batch.clear();
        if let Some(file) = &mut self.file {
            (batch.with_blocks, batch.number) = (is_chosen(file.batches), file.batches);
            file.batches += 1;
        }
        for _ in 0..BATCH_FRAMES {
            let Some(packet) = capture.next_packet() else {
                self.broken_off(capture);
                return false;
            };
            let Some((datagram, counted)) = self.count(&packet) else { continue };
            let sorter = self.sorter.as_mut();
            let begun = sorter.map(|sorter| sorter.see(datagram.bytes, &datagram.info));
            if batch.push(&datagram, counted, begun) {
                break;
            }
        }
        true
    }

    /// Reads at most `packets` packets, for their accounts only; returns true if there may be more.
    pub fn skim<R: std::io::Read>(&mut self, capture: &mut Capture<R>, packets: u64) -> bool {
        for _ in 0..packets {
            let Some(packet) = capture.next_packet() else {
                self.broken_off(capture);
                return false;
            };
            self.count(&packet);
        }
        true
    }

    /// Ends the present capture, at its end or before. `why` is the damage, if there was any.
    pub fn end_with(&mut self, why: Option<String>) {
        if let Some(file) = &mut self.file
            && why.is_some()
        {
            file.record.trouble = why;
        }
        self.end();
    }

    /// Returns the analysis of all captures.
    pub fn finish(mut self) -> Analysis {
        self.end();
        self.analysis
    }

    fn broken_off<R: std::io::Read>(&mut self, capture: &Capture<R>) {
        if let (Some(file), Some(trouble)) = (&mut self.file, capture.trouble()) {
            file.record.trouble = Some(trouble.to_string());
        }
    }

    /// Counts a packet; returns the IP packet, if it is one, and what it was counted under.
    #[inline]
    fn count<'c>(&mut self, packet: &Packet<'c>) -> Option<(Datagram<'c>, Counted)> {
        let file = self.file.as_mut()?;
        file.record.frames.add(u64::from(packet.wire_len));
        file.record.captured_bytes += packet.data.len() as u64;
        file.record.see_link(packet.link);
        file.fingerprint.see(packet);
        if (packet.data.len() as u64) < u64::from(packet.wire_len) {
            file.record.cut_frames += 1;
        }
        let datagram = match Datagram::find(packet, 0) {
            Ok(datagram) => datagram,
            Err(reason) => {
                self.analysis.count_other(reason, u64::from(packet.wire_len), REASONS_MAX);
                return None;
            }
        };
        let info = &datagram.info;
        let bytes = info.total_len as u64;
        file.record.ip.add(bytes);
        if !datagram.is_whole() {
            file.record.cut_packets += 1;
            file.record.missing_bytes += bytes.saturating_sub(datagram.bytes.len() as u64);
        }
        let traffic = &mut self.analysis;
        traffic.fragments += u64::from(info.fragment);
        traffic.protocols.entry((info.version, info.protocol)).or_default().add(bytes);
        traffic.packet_bytes.record(bytes);
        let size = &mut traffic.sizes[size_class(info.total_len)];
        size.packets += 1;
        size.bytes += bytes;
        let pair = traffic.pairs.count(Pair::of(info), bytes);
        let is_full = file.flows.len() >= FLOWS_MAX;
        match file.flows.get_mut(&info.flow_hash) {
            Some((packets, sum)) => {
                *packets += 1;
                *sum += bytes;
            }
            None if is_full => file.flows_beyond += 1,
            None => {
                file.flows.insert(info.flow_hash, (1, bytes));
            }
        }
        if let Some(at_ns) = packet.timestamp_ns {
            file.stopwatch.record(at_ns, bytes);
        }
        let ends = Ends::of(packet);
        if let Some(ways) = &mut self.ways {
            let way = ways.count(ends, info);
            self.is_beyond |= way.is_none();
            return Some((datagram, Counted { pair, direction: Direction::Neither, way }));
        }
        let direction = self.sides.direction(&ends, info);
        match direction.index() {
            Some(direction) => {
                let sums = &mut traffic.directions.sums[direction];
                sums.packets += 1;
                sums.bytes += bytes;
            }
            None => traffic.directions.neither.add(bytes),
        }
        Some((datagram, Counted { pair, direction, way: None }))
    }

    fn end(&mut self) {
        let Some(file) = self.file.take() else { return };
        let (timing, timeline) = file.stopwatch.finish();
        self.analysis.timing.merge(&timing);
        let mut flows = Flows {
            flows: file.flows.len() as u64,
            packets_beyond: file.flows_beyond,
            ..Flows::default()
        };
        for (packets, bytes) in file.flows.into_values() {
            flows.packets.record(packets);
            flows.bytes.record(bytes);
        }
        self.analysis.flows.merge(&flows);
        let fingerprint = file.fingerprint.to_string();
        self.analysis.files.push(FileRecord { timeline, fingerprint, ..file.record });
    }
}

impl Analysis {
    #[cold]
    fn count_other(&mut self, reason: NotIp, bytes: u64, reasons_max: usize) {
        let mut reason = reason.to_string();
        if self.others.len() >= reasons_max && !self.others.contains_key(&reason) {
            "other reasons".clone_into(&mut reason);
        }
        let sums: &mut Sums = self.others.entry(reason).or_default();
        sums.add(bytes);
    }
}
