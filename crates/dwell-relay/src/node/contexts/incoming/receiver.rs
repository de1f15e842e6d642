//! One context of what comes from a peer.

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::{Base, CodecId, ContextDecoder, ContextDictionary};
use dwell_wire::record::BLOCK_PACKETS_MAX;
use dwell_wire::{ContextBody, ContextRecord, ContextReport, Start, StartBase};

use super::Origin;
use crate::node::contexts::begin::name_of;
use crate::node::contexts::counts::IncomingCounts;

/// The shortest IP packet.
const PACKET_BYTES_MIN: usize = 20;
/// That a generation is lost is said so often; then only if more of it comes.
const LOST_REPORTS_MAX: u32 = 8;

/// The first number of a context.
const NUMBER_MIN: u64 = 1;

/// A record that came too early.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) came_at: Instant,
    /// The datagram that it was first sent in; zero if that is not known any more.
    pub(crate) datagram: u64,
    /// The most packets that may be taken out of it.
    pub(crate) packets: usize,
    generation: u8,
    number: u16,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Raw(Vec<u8>),
    Batch { start: Option<Start>, is_columnar: bool, original_len: u16, data: Vec<u8> },
}

impl Held {
    pub(super) fn new(now: Instant, record: &ContextRecord<'_>, origin: Origin) -> Self {
        let (content, packets_max) = match record.body {
            ContextBody::Raw(packet) => (Content::Raw(packet.to_vec()), 1),
            ContextBody::Batch { start, is_columnar, original_len, data } => {
                let most = usize::from(original_len) / PACKET_BYTES_MIN + 1;
                let data = data.to_vec();
                let content = Content::Batch { start, is_columnar, original_len, data };
                (content, most.min(BLOCK_PACKETS_MAX))
            }
        };
        Self {
            came_at: now,
            datagram: origin.datagram,
            packets: packets_max.min(origin.packets),
            generation: record.generation,
            number: record.number,
            content,
        }
    }

    /// The bytes that it takes.
    pub(super) fn len(&self) -> usize {
        match &self.content {
            Content::Raw(data) | Content::Batch { data, .. } => data.len(),
        }
    }

    /// The record as it came.
    pub(crate) fn record(&self, context: u8) -> ContextRecord<'_> {
        let body = match &self.content {
            Content::Raw(packet) => ContextBody::Raw(packet),
            &Content::Batch { start, is_columnar, original_len, ref data } => {
                ContextBody::Batch { start, is_columnar, original_len, data }
            }
        };
        ContextRecord { context, generation: self.generation, number: self.number, body }
    }

    fn begins(&self) -> bool {
        matches!(self.content, Content::Batch { start: Some(_), .. })
    }
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The packet of the record.
    Raw,
    /// This many bytes of packets, rearranged or not.
    Batch {
        len: usize,
        is_columnar: bool,
    },
    Nothing,
}

/// One context.
#[derive(Debug)]
pub(super) struct Receiver {
    decoder: ContextDecoder,
    /// The latest generation of which something was opened.
    generation: Option<u8>,
    /// The one that the ring is of: the latest that has begun.
    ring_generation: Option<u8>,
    /// It can go on.
    is_live: bool,
    /// The number of the next record to be opened.
    pub(super) next: u64,
    pub(super) held: BTreeMap<u64, Held>,
    reported_at: Instant,
    /// There is something to report.
    has_moved: bool,
    /// That the generation is lost is to be said at once.
    must_say_lost: bool,
    /// The number of times that it was said.
    said_lost: u32,
}

impl Receiver {
    pub(super) fn new(ring_log: u8) -> Self {
        Self {
            decoder: ContextDecoder::new(ring_log),
            generation: None,
            ring_generation: None,
            is_live: false,
            next: NUMBER_MIN,
            held: BTreeMap::new(),
            reported_at: Instant::ZERO,
            has_moved: false,
            must_say_lost: false,
            said_lost: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.decoder.memory_bytes()
    }

    /// Returns true if the generation is newer than the latest one.
    fn is_newer(&self, generation: u8) -> bool {
        self.generation.is_none_or(|old| generation.wrapping_sub(old).cast_signed() > 0)
    }

    /// The first record that is held, if one is missing before it.
    pub(super) fn first_held(&self) -> Option<&Held> {
        let (&number, first) = self.held.first_key_value()?;
        (number > self.next && !self.skips_to(first)).then_some(first)
    }

    /// While nothing can be decoded, what is missing before this record is of no use, since no
    /// generation can begin with it.
    fn skips_to(&self, held: &Held) -> bool {
        !self.is_live && (held.begins() || !self.is_newer(held.generation))
    }

    pub(super) fn is_ready(&self) -> bool {
        let first = self.held.first_key_value();
        first.is_some_and(|(&number, held)| number == self.next || self.skips_to(held))
    }

    /// Takes the first of the records that are held, whose turn it is.
    pub(super) fn take_ready(&mut self, counts: &mut IncomingCounts) -> Option<Held> {
        let (number, held) = self.held.pop_first()?;
        counts.missing += number - self.next;
        self.next = number;
        Some(held)
    }

    /// Goes on without what is missing before the first record that is held.
    pub(super) fn give_up(&mut self, counts: &mut IncomingCounts) {
        let Some((&first, _)) = self.held.first_key_value() else { return };
        if first == self.next {
            return;
        }
        counts.given_up += 1;
        counts.missing += first - self.next;
        self.next = first;
        if self.is_live {
            self.lose(counts);
        }
    }

    /// The generation can't go on: the peer must be notified.
    pub(super) fn lose(&mut self, counts: &mut IncomingCounts) {
        counts.lost += u64::from(self.is_live);
        self.is_live = false;
        self.must_say_lost = true;
        self.said_lost = 0;
    }

    /// More came of a generation: the peer may not know that it can't go on.
    pub(super) fn hears_again(&mut self, generation: u8) {
        if !self.is_live && self.generation == Some(generation) {
            self.said_lost = self.said_lost.min(LOST_REPORTS_MAX - 1);
        }
    }

    /// Opens the record whose turn it is.
    pub(super) fn open(
        &mut self,
        record: &ContextRecord<'_>,
        dictionary: Option<&ContextDictionary>,
        out: &mut [u8],
        counts: &mut IncomingCounts,
    ) -> Opened {
        self.next += 1;
        self.has_moved = true;
        let ContextBody::Batch { start, is_columnar, original_len, data } = record.body else {
            counts.raw += 1;
            return Opened::Raw;
        };
        match start {
            Some(start) if self.is_newer(record.generation) => {
                self.begin(record.generation, (start, dictionary), counts);
            }
            None if self.is_newer(record.generation) => {
                // Its beginning was given up.
                self.generation = Some(record.generation);
                self.lose(counts);
            }
            _ => {}
        }
        if !self.is_live || self.generation != Some(record.generation) {
            counts.dead += 1;
            self.hears_again(record.generation);
            return Opened::Nothing;
        }
        let len = usize::from(original_len);
        let decoded = self.decoder.decode(data, &mut out[..len]);
        if decoded.is_err() {
            counts.damaged += 1;
            self.lose(counts);
            return Opened::Nothing;
        }
        counts.batches += 1;
        counts.bytes_in += data.len() as u64;
        counts.bytes_out += len as u64;
        Opened::Batch { len, is_columnar }
    }

    fn begin(
        &mut self,
        generation: u8,
        (start, dictionary): (Start, Option<&ContextDictionary>),
        counts: &mut IncomingCounts,
    ) {
        self.generation = Some(generation);
        let has_begun = match start.base {
            _ if start.codec != CodecId::Zstd as u8 => false,
            StartBase::Ring { offset, len } => {
                self.decoder.begin(start.window_log, Base { offset, len }).is_ok()
            }
            // By its name, so that what was sent before a change is never decoded with other bytes.
            StartBase::Dictionary { name, len } => dictionary
                .filter(|dictionary| name_of(dictionary).short() == name)
                .is_some_and(|it| self.decoder.begin_from(start.window_log, it, len).is_ok()),
        };
        if has_begun {
            let is_from_dictionary = matches!(start.base, StartBase::Dictionary { .. });
            counts.from_dictionary += u64::from(is_from_dictionary);
            counts.generations += 1;
            self.ring_generation = Some(generation);
            self.is_live = true;
            (self.must_say_lost, self.said_lost) = (false, 0);
        } else {
            counts.no_base += 1;
            self.lose(counts);
        }
    }

    /// Returns the time at which a report is due, if they are to be so far apart; that a generation is
    /// lost may be said from `lost_at` on.
    pub(super) fn report_at(&self, report_ns: u64, lost_at: Instant) -> Instant {
        if self.must_say_lost {
            return lost_at;
        }
        let repeats =
            !self.is_live && self.generation.is_some() && self.said_lost < LOST_REPORTS_MAX;
        if repeats {
            let apart_ns = report_ns.saturating_mul(2) << self.said_lost.min(4);
            return self.reported_at + apart_ns.min(2 * SECOND_NS);
        }
        if self.has_moved { self.reported_at + report_ns } else { Instant::FAR_FUTURE }
    }

    /// The report that goes out now.
    pub(super) fn report(&mut self, now: Instant, context: u8) -> ContextReport {
        let is_lost = !self.is_live && self.generation.is_some();
        self.said_lost += u32::from(is_lost);
        (self.must_say_lost, self.has_moved) = (false, false);
        self.reported_at = now;
        // An offset means something in the generation that it is reported of.
        let has_begun = self.generation == self.ring_generation;
        ContextReport {
            context,
            generation: self.generation.unwrap_or(0),
            is_lost,
            next_number: self.next,
            ring_offset: if has_begun { self.decoder.offset() } else { 0 },
        }
    }
}
