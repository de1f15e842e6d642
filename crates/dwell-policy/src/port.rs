//! One output port: the queues in front of a link, and the press beside them.
//!
//! The model is Fig. 1 of Shimamura et al.: packets wait in the CPU queue until the CPU
//! takes them, are pressed or not, and wait in the relay queue until the link takes them.
//! Both queues are first in, first out, so order is kept.

use std::collections::VecDeque;

use dwell_base::{Instant, Rate};

use crate::account::{Accounts, Bypass, Count, DropReason};
use crate::action::{Action, Frame, FrameUnit};
use crate::backoff::BackOffConfig;
use crate::config::{ConfigError, PortConfig, Press, Skip};
use crate::estimate::{Estimate, Estimates, Learned, Ratio};
use crate::packet::{ClassKey, Packet, PacketId};
use crate::press::waiting_time_suffices;

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a dropped packet's storage is the driver's to free"]
pub enum Admission {
    /// The port has it.
    Queued,
    /// It was dropped; no action will speak of it.
    Dropped(DropReason),
}

/// What came out of the press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet became smaller: this many bytes without any header.
    Smaller(u32),
    /// It did not become smaller; the original is to be sent.
    NotSmaller,
    /// The codec failed; the original is to be sent.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    original_bytes: u32,
    bytes: u32,
    class: ClassKey,
    flow: u64,
    arrived: Instant,
    bypass: Option<Bypass>,
    pressed_here: bool,
    pressed_before: bool,
}

/// The decision core of one output port.
///
/// After every event the driver calls [`Port::poll`] until it returns `None`. The schemes so
/// far hold no packet back, so that a port never needs to be woken by time alone.
#[derive(Clone, Debug)]
pub struct Port {
    config: PortConfig,
    exceptions: Vec<ClassKey>,
    cpu_queue: VecDeque<Entry>,
    in_press: Option<Entry>,
    relay_queue: VecDeque<Entry>,
    /// Bytes waiting in the CPU queue.
    cpu_bytes: u64,
    /// Bytes waiting in the relay queue, headers of units included.
    relay_bytes: u64,
    link_idle: bool,
    frame: Frame,
    learned: Option<Box<Learned>>,
    accounts: Accounts,
}

impl Port {
    /// An empty port whose link is idle.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: PortConfig) -> Result<Self, ConfigError> {
        let mut port = Self {
            exceptions: Vec::new(),
            cpu_queue: VecDeque::with_capacity(256),
            in_press: None,
            relay_queue: VecDeque::with_capacity(256),
            cpu_bytes: 0,
            relay_bytes: 0,
            link_idle: true,
            frame: Frame::default(),
            learned: None,
            accounts: Accounts::default(),
            config: PortConfig::default(),
        };
        port.configure(config)?;
        Ok(port)
    }

    /// Takes a new configuration without losing a packet or what was learned.
    ///
    /// # Errors
    /// If the configuration makes no sense; the port then goes on as it was.
    pub fn configure(&mut self, config: PortConfig) -> Result<(), ConfigError> {
        config.check()?;
        match (config.estimates, &mut self.learned) {
            (Estimates::Fixed(_), learned) => *learned = None,
            (Estimates::Learned(l), Some(learned)) => learned.set_config(l),
            (Estimates::Learned(l), none) => *none = Some(Box::new(Learned::new(l))),
        }
        self.exceptions.clone_from(&config.exceptions);
        self.exceptions.sort_unstable();
        self.config = config;
        self.relay_bytes = self.relay_queue.iter().map(|e| self.unit_bytes(e)).sum();
        Ok(())
    }

    /// Forgets what was learned about ratio and time: another codec presses from now on.
    pub fn forget_estimates(&mut self) {
        if let Estimates::Learned(config) = self.config.estimates {
            self.learned = Some(Box::new(Learned::new(config)));
        }
    }

    /// The link's rate was measured or told anew.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.config.rate = rate;
    }

    /// Event: a packet arrived.
    pub fn arrive(&mut self, now: Instant, packet: Packet) -> Admission {
        self.accounts.arrived.add(packet.bytes);
        if let Some(reason) = self.over_limit(packet.bytes) {
            self.accounts.drop(reason, packet.bytes);
            return Admission::Dropped(reason);
        }
        self.accounts.held.add(packet.bytes);
        self.cpu_bytes += u64::from(packet.bytes);
        self.cpu_queue.push_back(Entry {
            id: packet.id,
            original_bytes: packet.bytes,
            bytes: packet.bytes,
            class: packet.service(),
            flow: packet.flow,
            arrived: now,
            bypass: self.fixed_bypass(&packet),
            pressed_here: false,
            pressed_before: packet.pressed,
        });
        Admission::Queued
    }

    /// Event: the packet of the last [`Action::Press`] came out after `took_ns`.
    ///
    /// A report about any other packet is the driver's mistake and is ignored.
    pub fn pressed(&mut self, id: PacketId, outcome: Outcome, took_ns: u64) {
        let Some(mut entry) = self.in_press.take_if(|entry| entry.id == id) else {
            debug_assert!(false, "{id:?} is not in the press");
            return;
        };
        let press = &mut self.accounts.press;
        press.took_ns += took_ns;
        let to_bytes = match outcome {
            Outcome::Smaller(bytes) if self.config.frame.gains(bytes, entry.bytes) => {
                press.pressed.add(entry.bytes);
                press.pressed_to_bytes += u64::from(bytes);
                entry.pressed_here = true;
                bytes
            }
            Outcome::Smaller(_) | Outcome::NotSmaller => {
                press.not_smaller += 1;
                entry.bytes
            }
            Outcome::Failed => {
                press.failed += 1;
                entry.bytes
            }
        };
        let back_off = self.back_off();
        if let Some(learned) = &mut self.learned {
            let sizes = (entry.bytes, to_bytes);
            learned.record((entry.flow, entry.class), sizes, took_ns, &back_off);
        }
        entry.bytes = to_bytes;
        self.push_relay(entry);
    }

    /// Event: the link can take a frame.
    pub fn link_ready(&mut self) {
        self.link_idle = true;
    }

    /// Takes the readiness back: the link can't take a frame after all.
    pub fn link_busy(&mut self) {
        self.link_idle = false;
    }

    /// The next thing to do, if any. To be called after every event until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        loop {
            // The link first: what it takes now is on the wire, and no longer ahead of the
            // packets that the press decides about.
            if self.link_idle && !self.relay_queue.is_empty() {
                self.fill_frame(now);
                self.link_idle = false;
                return Some(Action::Send);
            }
            if self.in_press.is_some() {
                return None;
            }
            let entry = self.cpu_queue.pop_front()?;
            self.cpu_bytes -= u64::from(entry.bytes);
            if let Some(reason) = self.bypass(&entry) {
                self.accounts.bypass(reason);
                self.push_relay(entry);
            } else {
                self.accounts.press.tried += 1;
                self.in_press = Some(entry);
                return Some(Action::Press(entry.id));
            }
        }
    }

    /// The frame of the last [`Action::Send`].
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Drops everything that waits, and hands each packet to `free`. A packet in the press
    /// stays until it comes out.
    pub fn clear(&mut self, mut free: impl FnMut(PacketId)) {
        for entry in self.cpu_queue.drain(..).chain(self.relay_queue.drain(..)) {
            self.accounts.held.remove(entry.original_bytes);
            self.accounts.drop(DropReason::Cleared, entry.original_bytes);
            free(entry.id);
        }
        self.cpu_bytes = 0;
        self.relay_bytes = 0;
    }

    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The configuration, with the present rate.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// True if nothing is in the port.
    pub fn is_empty(&self) -> bool {
        self.accounts.held.packets == 0
    }

    /// True if a packet is in the press.
    pub fn is_pressing(&self) -> bool {
        self.in_press.is_some()
    }

    /// Packets waiting in the CPU queue and in the relay queue.
    pub fn waiting(&self) -> (usize, usize) {
        (self.cpu_queue.len(), self.relay_queue.len())
    }

    /// What waits for the link, in bytes on the link; the packet on the wire not counted.
    pub fn backlog_bytes(&self) -> u64 {
        let frame = &self.config.frame;
        if frame.units_bytes_max == 0 || frame.frame_bytes == 0 {
            return self.relay_bytes;
        }
        let frames = self.relay_bytes.div_ceil(u64::from(frame.units_bytes_max));
        self.relay_bytes + frames * u64::from(frame.frame_bytes)
    }

    /// How long a packet that reaches the relay queue now waits for the link, in nanoseconds;
    /// zero while the rate is unknown.
    pub fn waiting_ns(&self) -> u64 {
        self.config.rate.map_or(0, |rate| rate.transmission_ns(self.backlog_bytes()))
    }

    /// What the port expects of a packet of `bytes` of this flow.
    pub fn estimate(&mut self, flow: u64, class: ClassKey, bytes: u32) -> Estimate {
        let back_off = self.back_off();
        match (&mut self.learned, self.config.estimates) {
            (Some(learned), _) => learned.estimate(flow, class, bytes, &back_off),
            (None, Estimates::Fixed(estimate)) => estimate,
            (None, Estimates::Learned(_)) => Estimate { ratio: Ratio::ONE, cost_ns: 0 },
        }
    }

    /// How long the packet in the press is expected to take, in nanoseconds; zero if there is
    /// none.
    pub fn press_cost_ns(&mut self) -> u64 {
        let Some(entry) = self.in_press else { return 0 };
        self.estimate(entry.flow, entry.class, entry.bytes).cost_ns
    }

    /// What was learned of each class: ratio, picoseconds per byte, and whether it is being
    /// left alone.
    pub fn learned_classes(&self) -> impl Iterator<Item = (ClassKey, Ratio, u32, bool)> {
        self.learned.iter().flat_map(|learned| learned.classes())
    }

    /// Verifies the invariants by counting everything anew; for tests and simulations, after
    /// each event and the polls that it asks for.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn assert_invariants(&self) {
        let mut held = Count::default();
        let queued = self.cpu_queue.iter().chain(&self.in_press).chain(&self.relay_queue);
        for entry in queued {
            held.add(entry.original_bytes);
            assert!(!(entry.pressed_here && entry.pressed_before), "pressed twice");
        }
        assert_eq!(held, self.accounts.held, "held is miscounted");
        assert!(self.accounts.balance(), "accounts don't balance: {:?}", self.accounts);
        let cpu: u64 = self.cpu_queue.iter().map(|e| u64::from(e.bytes)).sum();
        let relay: u64 = self.relay_queue.iter().map(|e| self.unit_bytes(e)).sum();
        assert_eq!((cpu, relay), (self.cpu_bytes, self.relay_bytes), "bytes are miscounted");
        assert!(!self.link_idle || self.relay_queue.is_empty(), "the link idles for nothing");
        assert!(self.in_press.is_some() || self.cpu_queue.is_empty(), "the CPU idles");
        let waiting = self.cpu_queue.len() + self.relay_queue.len();
        // What comes back from the press may be one more than an arrival would find room for.
        assert!(waiting <= self.config.limit.packets as usize, "over the limit");
    }

    fn over_limit(&self, bytes: u32) -> Option<DropReason> {
        let waiting = self.cpu_queue.len() + self.relay_queue.len();
        if waiting == 0 {
            return None;
        }
        let limit = &self.config.limit;
        if waiting + 1 >= limit.packets as usize {
            return Some(DropReason::QueuePackets);
        }
        let by_time = match self.config.rate {
            Some(rate) if limit.time_ns < u64::MAX => {
                rate.bytes_in_ns(limit.time_ns).max(limit.time_floor_bytes)
            }
            _ => u64::MAX,
        };
        let after = self.cpu_bytes + self.relay_bytes + u64::from(bytes);
        (after > limit.bytes.min(by_time)).then_some(DropReason::QueueBytes)
    }

    /// The reasons against pressing that don't depend on the queue.
    fn fixed_bypass(&self, packet: &Packet) -> Option<Bypass> {
        let listed = |class| self.exceptions.binary_search(&class).is_ok();
        if packet.pressed {
            Some(Bypass::AlreadyPressed)
        } else if self.exceptions.is_empty() {
            None
        } else {
            (listed(packet.source) || listed(packet.destination)).then_some(Bypass::Exception)
        }
    }

    /// Why the packet at the head of the CPU queue is not to be pressed, if so.
    fn bypass(&mut self, entry: &Entry) -> Option<Bypass> {
        let press = self.config.scheme.press;
        if press == Press::Never {
            return Some(Bypass::Scheme);
        }
        if entry.bypass.is_some() {
            return entry.bypass;
        }
        if entry.bytes < self.config.press_bytes_min {
            return Some(Bypass::TooSmall);
        }
        if press == Press::WaitingTime && !self.has_time(entry) {
            return Some(Bypass::NoTime);
        }
        let Skip::BackOff(config) = self.config.scheme.skip else { return None };
        let learned = self.learned.as_mut()?;
        (!learned.may_try(entry.flow, entry.class, &config)).then_some(Bypass::BackOff)
    }

    fn has_time(&mut self, entry: &Entry) -> bool {
        let Some(rate) = self.config.rate else { return false };
        let estimate = self.estimate(entry.flow, entry.class, entry.bytes);
        waiting_time_suffices(self.backlog_bytes(), entry.bytes, estimate, rate)
    }

    fn back_off(&self) -> BackOffConfig {
        match self.config.scheme.skip {
            Skip::BackOff(config) => config,
            Skip::None => BackOffConfig::default(),
        }
    }

    fn unit_bytes(&self, entry: &Entry) -> u64 {
        let frame = &self.config.frame;
        let header = if entry.pressed_here || entry.pressed_before {
            frame.pressed_unit_bytes
        } else {
            frame.raw_unit_bytes
        };
        u64::from(entry.bytes) + u64::from(header)
    }

    fn push_relay(&mut self, entry: Entry) {
        self.relay_bytes += self.unit_bytes(&entry);
        self.relay_queue.push_back(entry);
    }

    fn fill_frame(&mut self, now: Instant) {
        let limits = self.config.frame;
        let (mut units_bytes, mut frame) = (0, std::mem::take(&mut self.frame));
        frame.units.clear();
        while let Some(entry) = self.relay_queue.front() {
            let unit_bytes = self.unit_bytes(entry);
            let fits = units_bytes + unit_bytes <= u64::from(limits.units_bytes_max);
            let room = fits && frame.units.len() < limits.units_max as usize;
            if !room && !frame.units.is_empty() {
                break;
            }
            units_bytes += unit_bytes;
            frame.units.push(FrameUnit {
                id: entry.id,
                bytes: entry.bytes,
                original_bytes: entry.original_bytes,
                pressed_here: entry.pressed_here,
                sojourn_ns: now.since_ns(entry.arrived),
            });
            self.accounts.held.remove(entry.original_bytes);
            self.accounts.sent.add(entry.original_bytes);
            self.relay_queue.pop_front();
            if unit_bytes > u64::from(limits.unit_bytes_named) {
                break;
            }
        }
        frame.link_bytes = units_bytes + u64::from(limits.frame_bytes);
        self.relay_bytes -= units_bytes;
        self.accounts.frames += 1;
        self.accounts.link_bytes += frame.link_bytes;
        self.frame = frame;
    }
}

impl crate::config::FrameCost {
    /// True if sending `pressed` bytes as a pressed unit is smaller than `raw` bytes raw.
    fn gains(&self, pressed: u32, raw: u32) -> bool {
        u64::from(pressed) + u64::from(self.pressed_unit_bytes)
            < u64::from(raw) + u64::from(self.raw_unit_bytes)
    }
}

#[cfg(test)]
mod tests;
