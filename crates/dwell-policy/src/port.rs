//! One output port: the queues in front of a link, and the compressor beside them.
//!
//! This file is what all schemes share: events, admission, accounts. How packets wait, and
//! which of them are compressed, is the matter of the port's *store*: [`serial`] for single packets,
//! [`blocks`] for packets that are compressed together where they stand, [`chunks`] for packets that
//! are held back to fill frames, [`flows`] for a queue for each flow and compression behind them.

mod blocks;
mod chunks;
mod common;
mod flows;
mod mixer;
mod serial;
#[cfg(test)]
pub(crate) mod shorthand;

use dwell_base::Instant;

use crate::account::{Accounts, DropReason};
use crate::action::{Action, Frame, JobId};
use crate::config::{ConfigError, PortConfig, StoreKind};
use crate::estimate::{Estimate, Estimates, Learned, Ratio};
use crate::event::{Event, LostBatch};
use crate::packet::{ClassKey, Packet, PacketId};
use blocks::Blocks;
use chunks::Chunks;
use common::Common;
use flows::Flows;
use serial::Serial;

/// The storage of waiting packets, by the kind of scheme.
#[derive(Clone, Debug)]
enum Store {
    Serial(Serial),
    Blocks(Box<Blocks>),
    Chunks(Box<Chunks>),
    Flows(Box<Flows>),
}

impl Store {
    fn new(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Serial => Self::Serial(Serial::new()),
            StoreKind::Batches(gather) => Self::Blocks(Box::new(Blocks::new(gather))),
            StoreKind::Frames => Self::Chunks(Box::new(Chunks::new())),
            StoreKind::Flows(gather) => Self::Flows(Box::new(Flows::new(gather))),
        }
    }

    fn kind(&self) -> StoreKind {
        match self {
            Self::Serial(_) => StoreKind::Serial,
            Self::Blocks(store) => StoreKind::Batches(store.gather()),
            Self::Chunks(_) => StoreKind::Frames,
            Self::Flows(store) => StoreKind::Flows(store.gather()),
        }
    }
}

/// Does the same with the store, whatever its kind.
macro_rules! on_store {
    ($store:expr, $name:ident => $body:expr) => {
        match $store {
            Store::Serial($name) => $body,
            Store::Blocks($name) => $body,
            Store::Chunks($name) => $body,
            Store::Flows($name) => $body,
        }
    };
}

/// The decision core of one output port.
///
/// After every event, and at [`Port::next_deadline`], the driver calls [`Port::poll`] until it
/// returns `None`.
#[derive(Clone, Debug)]
pub struct Port {
    common: Common,
    store: Store,
}

impl Port {
    /// An empty port whose link is idle.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: PortConfig) -> Result<Self, ConfigError> {
        let mut port = Self { common: Common::new(), store: Store::new(StoreKind::Serial) };
        port.configure(config)?;
        Ok(port)
    }

    /// Takes a new configuration, with its link's rate, without losing a packet or what was learned.
    ///
    /// # Errors
    /// If the configuration makes no sense, or if packets wait that another kind of scheme has
    /// queued ([`ConfigError::Occupied`]); the port then goes on as it was.
    pub fn configure(&mut self, config: PortConfig) -> Result<(), ConfigError> {
        config.check()?;
        let kind = StoreKind::of(&config.scheme);
        if kind != self.store.kind() && !self.is_empty() {
            return Err(ConfigError::Occupied);
        }
        self.common.configure(config);
        if kind != self.store.kind() {
            self.store = Store::new(kind);
            self.common.forget_job_time();
        }
        on_store!(&mut self.store, store => store.recount(&self.common));
        Ok(())
    }

    /// Forgets what was learned about ratio and time: another codec compresses from now on.
    pub fn forget_estimates(&mut self) {
        if let Estimates::Learned(config) = self.common.config.estimates {
            self.common.learned = Some(Box::new(Learned::new(config)));
        }
    }

    /// Takes in what happened. After it, the driver calls [`Port::poll`] until it returns `None`.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Arrive(packet) => self.arrive(now, &packet),
            Event::Compressed { job, outcome, took_ns } => {
                let common = &mut self.common;
                let known = common.end_job(job);
                debug_assert!(known, "{job:?} is not under way");
                if !known {
                    return;
                }
                match &mut self.store {
                    Store::Serial(store) => store.compressed(common, outcome, took_ns),
                    Store::Blocks(store) => store.compressed(common, outcome, took_ns),
                    Store::Chunks(store) => store.compressed(common, outcome, took_ns),
                    Store::Flows(store) => store.compressed(common, (now, job), outcome, took_ns),
                }
            }
            Event::Lost(batch) => self.put_back(now, &batch),
            Event::LinkReady => self.common.link_idle = true,
            Event::LinkBusy => self.common.link_idle = false,
            Event::Link(link) => {
                self.common.config.rate = link.rate;
                if link.starved_ns > 0 {
                    self.common.cpu_share.starved(now, link.starved_ns);
                }
                if link.cpu_limit != self.common.link.cpu_limit {
                    self.common.limit_cpu(now, link.cpu_limit);
                }
                self.common.link = link;
            }
        }
    }

    #[inline]
    fn arrive(&mut self, now: Instant, packet: &Packet) {
        let common = &mut self.common;
        common.accounts.arrived.add(packet.bytes);
        if let Some(reason) = on_store!(&self.store, store => store.over_limit(common, packet)) {
            common.accounts.drop(reason, packet.bytes);
            common.dropped.push_back((packet.id, reason));
            return;
        }
        common.accounts.held.add(packet.bytes);
        on_store!(&mut self.store, store => store.arrive(common, now, packet));
    }

    fn put_back(&mut self, now: Instant, batch: &LostBatch<'_>) {
        let common = &mut self.common;
        for packet in batch.packets {
            common.accounts.put_back.add(packet.original_bytes);
        }
        let taken = on_store!(&mut self.store, store => store.put_back(common, now, batch));
        for packet in batch.packets {
            if taken {
                common.accounts.held.add(packet.original_bytes);
            } else {
                common.accounts.drop(DropReason::PutBack, packet.original_bytes);
                common.dropped.push_back((packet.id, DropReason::PutBack));
            }
        }
    }

    /// The next thing to do, if any. To be called after every event until it returns `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if let Some(drop) = self.common.next_drop() {
            return Some(drop);
        }
        on_store!(&mut self.store, store => store.poll(&mut self.common, now))
    }

    /// When [`Port::poll`] must be called though nothing happened: because a packet must not be
    /// held back any longer, or a batch is to be begun for a link that will have sent all else. `None`
    /// if there is no such time.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.store {
            Store::Serial(_) | Store::Blocks(_) => None, // they hold nothing back
            Store::Flows(store) => store.next_deadline(self.common.link_idle),
            // While the link is busy no time makes a difference.
            Store::Chunks(store) => store.next_deadline().filter(|_| self.common.link_idle),
        }
    }

    /// True if a link that becomes ready will be given a frame, now or, if packets are held back,
    /// later. False while all that waits is being compressed, or behind what is.
    #[inline]
    pub fn can_send(&self) -> bool {
        match &self.store {
            Store::Serial(store) => store.waiting().1 > 0,
            Store::Blocks(store) => store.can_send(),
            Store::Flows(store) => store.can_send(),
            Store::Chunks(store) => store.waiting().1 > 0,
        }
    }

    /// The frame of the last [`Action::Send`].
    #[inline]
    pub fn frame(&self) -> &Frame {
        &self.common.frame
    }

    /// The packets of a job under way, in their order; none if it is not.
    #[inline]
    pub fn batch(&self, job: JobId) -> &[PacketId] {
        self.common.batch_of(job).unwrap_or_default()
    }

    /// The packets of each job under way.
    pub fn batches(&self) -> impl Iterator<Item = &[PacketId]> {
        self.common.batches()
    }

    /// Drops everything that waits, and hands each packet to `free`, with those whose drops were not
    /// reported yet. What is being compressed stays until it comes out.
    pub fn clear(&mut self, mut free: impl FnMut(PacketId, DropReason)) {
        for (id, reason) in self.common.dropped.drain(..) {
            free(id, reason);
        }
        self.common.marked.clear();
        let mut free = |id| free(id, DropReason::Cleared);
        on_store!(&mut self.store, store => store.clear(&mut self.common, &mut free));
    }

    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.common.accounts
    }

    /// The configuration, with the present rate.
    pub fn config(&self) -> &PortConfig {
        &self.common.config
    }

    /// True if nothing is in the port.
    pub fn is_empty(&self) -> bool {
        self.common.accounts.held.packets == 0
    }

    /// Returns the most jobs that there may be at the same time: by the configuration, if the scheme makes use of more than one.
    pub fn jobs_max(&self) -> usize {
        match &self.store {
            Store::Flows(store) => store.jobs_max(),
            _ => 1,
        }
    }

    /// True if a job is under way.
    pub fn is_compressing(&self) -> bool {
        self.common.batches().next().is_some()
    }

    /// Returns the number of packets that wait for the CPU, and of units (packets, or blocks that
    /// were compressed) that wait for the link.
    #[inline]
    pub fn waiting(&self) -> (usize, usize) {
        on_store!(&self.store, store => store.waiting())
    }

    /// Returns the bytes that wait for the link, as they count on it; without the packet that is
    /// being transmitted.
    pub fn backlog_bytes(&self) -> u64 {
        self.common.backlog_bytes(on_store!(&self.store, store => store.units_bytes()))
    }

    /// Returns the time that a packet which reaches the relay queue now waits for the link, in
    /// nanoseconds; zero while the rate is unknown.
    pub fn waiting_ns(&self) -> u64 {
        self.common.config.rate.map_or(0, |rate| rate.transmission_ns(self.backlog_bytes()))
    }

    /// Returns the port's estimate for a packet of `bytes` of this flow.
    pub fn estimate(&mut self, flow: u64, class: ClassKey, bytes: u32) -> Estimate {
        self.common.estimate(flow, class, bytes)
    }

    /// Returns the learned estimates of each class: ratio, picoseconds per byte, and true if it is
    /// being left alone.
    pub fn learned_classes(&self) -> impl Iterator<Item = (ClassKey, Ratio, u32, bool)> {
        self.common.learned.iter().flat_map(|learned| learned.classes())
    }

    /// Verifies the invariants by counting everything again; for tests and simulations, after
    /// each event and the polls that it asks for.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn assert_invariants(&self) {
        let (common, accounts) = (&self.common, self.accounts());
        let held = on_store!(&self.store, store => store.count(common));
        assert_eq!(held, accounts.held, "held is miscounted");
        assert!(accounts.balance(), "accounts don't balance: {accounts:?}");
        let waiting = on_store!(&self.store, store => store.waiting());
        let packets_max = on_store!(&self.store, store => store.packets_max(common));
        // What comes back from the compressor may be one more than an arrival would find room for,
        // and what was put back has room of its own.
        let room = if accounts.put_back.packets > 0 { 2 } else { 1 };
        assert!(waiting.0 + waiting.1 <= packets_max * room, "over the limit");
    }
}

#[cfg(test)]
mod tests;
