//! Shorthand for tests: events as calls, and actions with the packets that they are about.

use dwell_base::{Instant, Rate};

use super::Port;
use crate::account::DropReason;
use crate::action::{Action, JobId};
use crate::event::{Event, LinkState, LostBatch, Outcome};
use crate::packet::{Packet, PacketId};

/// The outcome of a packet's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Admission {
    Queued,
    Dropped(DropReason),
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Compress this packet alone.
    Compress(PacketId),
    /// Compress the packets of [`Port::batch`] together.
    CompressBatch,
    Send,
    Drop(PacketId, DropReason),
    Mark(PacketId),
}

impl Port {
    pub(crate) fn arrive_one(&mut self, now: Instant, packet: Packet) -> Admission {
        let before = self.common.dropped.len();
        self.handle(now, Event::Arrive(packet));
        // Others may have made room for it: their reports stay.
        let dropped = &mut self.common.dropped;
        let own = (before..dropped.len()).find(|&at| dropped[at].0 == packet.id);
        let report = own.and_then(|at| dropped.remove(at));
        report.map_or(Admission::Queued, |(_, reason)| Admission::Dropped(reason))
    }

    pub(crate) fn lose(&mut self, now: Instant, batch: LostBatch<'_>) -> Admission {
        let before = self.common.dropped.len();
        self.handle(now, Event::Lost(batch));
        match self.admission(before, batch.packets.len()) {
            Admission::Queued if batch.packets.is_empty() => {
                Admission::Dropped(DropReason::PutBack)
            }
            admission => admission,
        }
    }

    /// Takes back the reports of what was just dropped.
    fn admission(&mut self, before: usize, packets: usize) -> Admission {
        let dropped = self.common.dropped.split_off(before);
        assert!(dropped.is_empty() || dropped.len() == packets, "dropped in part");
        dropped.front().map_or(Admission::Queued, |&(_, reason)| Admission::Dropped(reason))
    }

    /// The job of which this is the first packet came out of the compressor.
    pub(crate) fn compressed(&mut self, id: PacketId, outcome: Outcome, took_ns: u64) {
        let is_it = |job: &JobId| self.batch(*job).first() == Some(&id);
        let job = self.common.job_ids().find(is_it).expect("a job of this packet");
        self.handle(Instant::ZERO, Event::Compressed { job, outcome, took_ns });
    }

    /// The same at this time, after a millisecond.
    pub(crate) fn finish(&mut self, now: Instant, id: PacketId, outcome: Outcome) {
        let is_it = |job: &JobId| self.batch(*job).first() == Some(&id);
        let job = self.common.job_ids().find(is_it).expect("a job of this packet");
        self.handle(now, Event::Compressed { job, outcome, took_ns: 1_000_000 });
    }

    /// The packets of the job that began last; none if no job is under way.
    pub(crate) fn last_batch(&self) -> &[PacketId] {
        self.common.job_ids().max().map_or(&[], |job| self.batch(job))
    }

    pub(crate) fn link_ready(&mut self) {
        self.handle(Instant::ZERO, Event::LinkReady);
    }

    pub(crate) fn link_busy(&mut self) {
        self.handle(Instant::ZERO, Event::LinkBusy);
    }

    pub(crate) fn set_rate(&mut self, rate: Option<Rate>) {
        self.handle(Instant::ZERO, Event::Link(LinkState { rate, ..self.common.link }));
    }

    pub(crate) fn set_burst_bytes(&mut self, burst_bytes: u64) {
        let link = LinkState { burst_bytes, ..self.common.link };
        self.handle(Instant::ZERO, Event::Link(link));
    }

    pub(crate) fn set_ahead(&mut self, ahead_bytes: u64, takes_all: bool) {
        let link = LinkState { ahead_bytes, takes_all, ..self.common.link };
        self.handle(Instant::ZERO, Event::Link(link));
    }

    pub(crate) fn ask(&mut self, now: Instant) -> Option<Wanted> {
        Some(match self.poll(now)? {
            Action::Compress(job) => {
                assert_eq!(job.packets as usize, self.last_batch().len());
                match self.last_batch() {
                    &[id] => Wanted::Compress(id),
                    _ => Wanted::CompressBatch,
                }
            }
            Action::Send => Wanted::Send,
            Action::Drop(id, reason) => Wanted::Drop(id, reason),
            Action::Mark(id) => Wanted::Mark(id),
        })
    }
}
