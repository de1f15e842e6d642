//! A record that waits, with all that must be known of it when its turn comes.

use dwell_base::Instant;
use dwell_wire::{Alone, ContextBody, ContextRecord, Headers, Start};

use super::Origin;
use crate::node::allowance::Allowance;

/// A record that came too early, or while its context was decoding elsewhere.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) came_at: Instant,
    /// The datagram that it was first sent in; zero if that is not known any more.
    pub(crate) datagram: u64,
    /// The packets that its datagram may yet hold.
    pub(crate) packets_left: Allowance,
    pub(super) generation: u8,
    number: u16,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Raw(Vec<u8>),
    Batch {
        start: Option<Start>,
        alone: Option<Alone>,
        headers: Headers,
        original_len: u16,
        data: Vec<u8>,
    },
}

impl Held {
    pub(super) fn new(
        now: Instant,
        record: &ContextRecord<'_>,
        origin: Origin,
        packets_left: Allowance,
    ) -> Self {
        let content = match record.body {
            ContextBody::Raw(packet) => Content::Raw(packet.to_vec()),
            ContextBody::Batch { start, alone, headers, original_len, data } => {
                Content::Batch { start, alone, headers, original_len, data: data.to_vec() }
            }
        };
        Self {
            came_at: now,
            datagram: origin.datagram,
            packets_left,
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
            &Content::Batch { start, alone, headers, original_len, ref data } => {
                ContextBody::Batch { start, alone, headers, original_len, data }
            }
        };
        ContextRecord { context, generation: self.generation, number: self.number, body }
    }

    pub(super) fn begins(&self) -> bool {
        matches!(self.content, Content::Batch { start: Some(_), .. })
    }
}
