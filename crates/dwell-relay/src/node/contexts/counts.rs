//! Counters of contexts.

use std::collections::BTreeMap;

use dwell_report::Histogram;
use dwell_report::status::{RxContexts, TxContexts};
use dwell_wire::StartBase;

use super::begin::Generation;
use super::choice::Mode;

/// Why a generation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is the first one of its group.
    First,
    /// The peer can't go on with the one before.
    Lost,
    /// A record of the one before can't be sent again, or could not be sent.
    Unsendable,
    /// The queue was dropped.
    Dropped,
    /// Level or window have changed.
    Reconfigured,
    /// Another codec carries more.
    Picked,
    /// The codec failed.
    Failed,
    /// The context was not used for long.
    Idle,
    /// The node's memory was needed for others.
    Memory,
    /// Batches are to stand alone from now on, or to refer to those before.
    Switched,
    /// The peer has confirmed more, so that there is a newer base for batches that stand alone.
    Advanced,
}

impl Reason {
    const ALL: [(Self, &'static str); 11] = [
        (Self::First, "first"),
        (Self::Lost, "lost"),
        (Self::Unsendable, "unsendable"),
        (Self::Dropped, "dropped"),
        (Self::Reconfigured, "reconfigured"),
        (Self::Picked, "picked"),
        (Self::Failed, "failed"),
        (Self::Idle, "idle"),
        (Self::Memory, "memory"),
        (Self::Switched, "switched"),
        (Self::Advanced, "advanced"),
    ];
}

/// Counters of what is sent through contexts.
#[derive(Clone, Debug, Default)]
pub(super) struct OutgoingCounts {
    generations: [u64; Reason::ALL.len()],
    /// Of these, those that began from nothing, ...
    pub(super) cold: u64,
    /// ... and from the dictionary.
    from_dictionary: u64,
    /// Of these, those whose batches stand alone.
    acknowledged: u64,
    /// Of these, those with a model.
    with_model: u64,
    pub(super) batches: u64,
    pub(super) alone: u64,
    pub(super) raw: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Batches whose generation ended before they were sent, so that their packets went raw.
    pub(super) undone: u64,
    /// Packets of generations that were lost which were encoded a second time.
    pub(super) encoded_again: u64,
    /// Batches that did without a context: all were in use, ...
    pub(super) crowded_out: u64,
    /// ... or the next generation had to wait.
    pub(super) paused: u64,
    pub(super) evicted: u64,
    /// Times that the peer had forgotten all.
    pub(super) restarts: u64,
    /// Reports that can't be true.
    pub(super) false_reports: u64,
}

impl OutgoingCounts {
    pub(super) fn began(&mut self, reason: Reason, generation: &Generation) {
        self.generations[reason as usize] += 1;
        self.cold += u64::from(generation.base.len == 0);
        self.from_dictionary += u64::from(generation.dictionary.is_some());
        self.acknowledged += u64::from(generation.is_alone());
        self.with_model += u64::from(generation.model().is_some());
    }

    /// Returns the number of times that there was a newer base.
    pub(super) fn advanced(&self) -> u64 {
        self.generations[Reason::Advanced as usize]
    }

    /// Returns true if no batch was ever to enter a context.
    pub(super) fn is_nothing(&self) -> bool {
        self.generations == [0; Reason::ALL.len()] && self.crowded_out == 0
    }

    pub(super) fn status(&self, mode: Mode, (open, memory_bytes): (usize, usize)) -> TxContexts {
        let by_reason =
            |(reason, name): (Reason, &str)| (name.to_owned(), self.generations[reason as usize]);
        let without = [("crowded_out", self.crowded_out), ("paused", self.paused)];
        TxContexts {
            open: open as u64,
            memory_bytes: memory_bytes as u64,
            kept_bytes: 0,
            generations: Reason::ALL.map(by_reason).into(),
            cold_starts: self.cold,
            dictionary_starts: self.from_dictionary,
            mode: mode.name().to_owned(),
            acknowledged_generations: self.acknowledged,
            model_generations: self.with_model,
            codecs: BTreeMap::new(),
            codec_without_context: None,
            batches: self.batches,
            alone_batches: self.alone,
            raw: self.raw,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            undone_batches: self.undone,
            encoded_again_packets: self.encoded_again,
            without_context: without.map(|(name, count)| (name.to_owned(), count)).into(),
            evicted: self.evicted,
            restarts: self.restarts,
            false_reports: self.false_reports,
        }
    }
}

/// Counters of what is received through contexts.
#[derive(Clone, Debug, Default)]
pub(super) struct IncomingCounts {
    pub(super) batches: u64,
    /// Of these, those that stand alone; and generations of such.
    pub(super) alone: u64,
    pub(super) acknowledged: u64,
    /// Generations with a model.
    pub(super) with_model: u64,
    pub(super) raw: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) generations: u64,
    /// Of these, those that began from the dictionary.
    pub(super) from_dictionary: u64,
    /// Times that records waited for one that was missing.
    pub(super) gaps: u64,
    /// Of these, those that were waited for in vain.
    pub(super) given_up: u64,
    /// Numbers that were given up.
    pub(super) missing: u64,
    /// Generations that could not go on.
    pub(super) lost: u64,
    /// Raw packets that came after they were given up, and were delivered all the same.
    pub(super) late_raw: u64,
    /// Records that were dropped: they came after they were given up or twice, ...
    pub(super) late: u64,
    /// ... are of a generation that can't go on, ...
    pub(super) dead: u64,
    /// ... found no room to wait in, ...
    pub(super) crowded_out: u64,
    /// ... are of a context that was not offered or a session that means others, ...
    pub(super) refused: u64,
    /// ... begin a generation from what is not there, ...
    pub(super) no_base: u64,
    /// ... or can't be decoded.
    pub(super) damaged: u64,
    /// The times that records waited for a missing one.
    pub(super) waited: Option<Box<Histogram>>,
}

impl IncomingCounts {
    /// A generation began.
    pub(super) fn began_from(&mut self, base: StartBase) {
        self.generations += 1;
        self.from_dictionary += u64::from(matches!(base, StartBase::Dictionary { .. }));
    }

    pub(super) fn waited(&mut self, ns: u64) {
        self.waited.get_or_insert_default().record(ns);
    }

    /// Returns true if no record ever came.
    pub(super) fn is_nothing(&self) -> bool {
        self.raw + self.batches + self.dead + self.gaps + self.refused + self.lost == 0
    }

    pub(super) fn status(&self, open: usize, memory_bytes: usize, held_bytes: usize) -> RxContexts {
        let dropped = [
            ("late", self.late),
            ("dead_generation", self.dead),
            ("crowded_out", self.crowded_out),
            ("refused", self.refused),
            ("no_base", self.no_base),
            ("damaged", self.damaged),
        ];
        RxContexts {
            open: open as u64,
            memory_bytes: memory_bytes as u64,
            held_bytes: held_bytes as u64,
            batches: self.batches,
            alone_batches: self.alone,
            raw: self.raw,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            generations: self.generations,
            dictionary_starts: self.from_dictionary,
            acknowledged_generations: self.acknowledged,
            model_generations: self.with_model,
            gaps: self.gaps,
            gaps_given_up: self.given_up,
            missing_records: self.missing,
            lost_generations: self.lost,
            late_raw: self.late_raw,
            dropped: dropped.map(|(name, count)| (name.to_owned(), count)).into(),
            waited: self.waited.as_ref().map(|waited| waited.summary()).unwrap_or_default(),
        }
    }
}
