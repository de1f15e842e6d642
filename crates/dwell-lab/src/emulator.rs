//! Runs two [`LinkModel`]s in real time between two TAP devices.
//!
//! One thread reads frames as soon as they come, so that nothing is lost in the devices'
//! own small rings, and sleeps until the next frame is due, with the kernel's finest timers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::lab::LabError;
use crate::link::{LinkModel, LinkSpec, LinkStats};
use crate::sys;

/// A TAP device of the host on whose thread it was created.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Creates the device in the network namespace of the calling thread.
    pub fn create(name: &str) -> Result<Self, LabError> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(LabError::tun)?;
        sys::make_tap(&file, name).map_err(LabError::io(format!("create the device {name}")))?;
        Ok(Self(file))
    }
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second.
    There,
    /// From the second end to the first.
    Back,
}

/// The counters of an [`EmulatedLink`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatorStats {
    /// From the first end to the second.
    pub there: LinkStats,
    /// From the second end to the first.
    pub back: LinkStats,
    /// Frames that the link delivered but the device did not take, because it was down.
    pub refused: u64,
    /// The largest delay of a frame beyond the model's: large values mean that the machine has no
    /// time for the link, and that measurements over it are void.
    pub late_max_ns: u64,
    /// The same, summed over all frames; see [`Self::late_mean_ns`].
    pub late_total_ns: u64,
}

impl EmulatorStats {
    /// Returns the mean delay of frames beyond the model's.
    pub fn late_mean_ns(&self) -> u64 {
        self.late_total_ns / (self.there.delivered + self.back.delivered).max(1)
    }
}

/// A running link between two hosts; dropping it removes its devices.
#[derive(Debug)]
pub struct EmulatedLink {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Readable when there is a command.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    stats: EmulatorStats,
    specs: [LinkSpec; 2],
    orders: Vec<(Direction, LinkSpec)>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not make plain numbers wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only if the counter is full, and then the bell rings anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl EmulatedLink {
    /// Starts to forward frames between two devices, in both directions.
    pub fn start(taps: [Tap; 2], specs: [LinkSpec; 2]) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = State { specs: specs.clone(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), bell });
        let engine = Engine {
            taps,
            models: specs.map(LinkModel::new),
            spare: Vec::new(),
            buffer: vec![0; FRAME_MAX_BYTES],
            stats: EmulatorStats::default(),
            origin: std::time::Instant::now(),
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new().name("link".into()).spawn(move || engine.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the counters, as of the last time that a frame moved.
    pub fn stats(&self) -> EmulatorStats {
        self.shared.lock().stats
    }

    /// Returns the present properties of one direction.
    pub fn spec(&self, direction: Direction) -> LinkSpec {
        self.shared.lock().specs[direction as usize].clone()
    }

    /// Changes one direction from now on (at the latest a few hundred microseconds on).
    /// Times of rate steps count from the start of the link.
    pub fn set(&self, direction: Direction, spec: LinkSpec) {
        let mut state = self.shared.lock();
        state.specs[direction as usize] = spec.clone();
        state.orders.push((direction, spec));
        drop(state);
        self.shared.ring();
    }

    /// Loses everything in both directions (`true`), or behaves as specified again.
    ///
    /// The devices stay up: the hosts are not notified, as with most real links.
    pub fn cut(&self, is_cut: bool) {
        for direction in [Direction::There, Direction::Back] {
            let mut state = self.shared.lock();
            let mut spec = state.specs[direction as usize].clone();
            if is_cut {
                spec.loss = 1.0;
            }
            state.orders.push((direction, spec));
            drop(state);
        }
        self.shared.ring();
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was printed; its devices are gone either way.
            let _ = thread.join();
        }
    }
}

/// The length of the longest frame, whatever the MTU.
const FRAME_MAX_BYTES: usize = 65_536 + 18;
/// The most frames that are read before some are written, so that neither side starves.
const READ_BATCH: usize = 64;
/// The most used buffers that are kept.
const SPARE_MAX: usize = 1024;

/// The thread's side.
struct Engine {
    taps: [Tap; 2],
    /// There (read from the first device) and back.
    models: [LinkModel<Vec<u8>>; 2],
    spare: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    stats: EmulatorStats,
    origin: std::time::Instant,
    shared: Arc<Shared>,
}

impl Engine {
    fn run(mut self) {
        // Timers otherwise fire up to 50 µs late. Without this the link is just less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // A real link does not wait for the hosts' processors either.
        sys::prefer_this_thread();
        let mut readable = [true; 2];
        while self.take_orders() {
            for (direction, is_readable) in readable.iter_mut().enumerate() {
                // A device that gave less than a batch is empty; poll will show when it is not.
                *is_readable = *is_readable && self.read(direction);
            }
            for direction in 0..2 {
                self.deliver(direction);
            }
            if !readable.contains(&true) {
                readable = self.sleep();
            }
        }
    }

    fn now(&self) -> Instant {
        let ns = self.origin.elapsed().as_nanos();
        Instant::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Publishes the counters and executes commands; returns false if it is time to stop.
    fn take_orders(&mut self) -> bool {
        self.stats.there = self.models[0].stats();
        self.stats.back = self.models[1].stats();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.stats = self.stats;
        for (direction, spec) in state.orders.drain(..) {
            let now = self.now();
            self.models[direction as usize].set_spec(now, spec);
        }
        !state.stop
    }

    /// Reads frames; returns true if there may be more.
    fn read(&mut self, direction: usize) -> bool {
        for _ in 0..READ_BATCH {
            // An error means "nothing there", or that the device is gone.
            let Ok(len) = self.taps[direction].0.read(&mut self.buffer) else { return false };
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.extend_from_slice(&self.buffer[..len]);
            let now = self.now();
            self.models[direction].push(now, len, frame);
        }
        true
    }

    fn deliver(&mut self, direction: usize) {
        let mut now = self.now();
        while let Some(mut delivered) = self.models[direction].pop(now) {
            let mut frame = std::mem::take(&mut delivered.packet);
            delivered.damage(&mut frame);
            if self.taps[1 - direction].0.write(&frame).is_err() {
                self.stats.refused += 1;
            }
            now = self.now();
            let late_ns = now.since_ns(delivered.at);
            self.stats.late_max_ns = self.stats.late_max_ns.max(late_ns);
            self.stats.late_total_ns += late_ns;
            if self.spare.len() < SPARE_MAX {
                frame.clear();
                self.spare.push(frame);
            }
        }
    }

    /// Sleeps until a frame comes, is due, or there is a command; returns which devices have
    /// frames.
    fn sleep(&self) -> [bool; 2] {
        let due = self.models.iter().filter_map(LinkModel::next_delivery).min();
        let timeout = due.map(|due| {
            let ns = due.since_ns(self.now());
            Timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as i64 }
        });
        let mut fds = [
            PollFd::new(&self.taps[0].0, PollFlags::IN),
            PollFd::new(&self.taps[1].0, PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        // Interrupted or not, the loop checks everything again.
        let _ = poll(&mut fds, timeout.as_ref());
        if !fds[2].revents().is_empty() {
            let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
        }
        [fds[0].revents().contains(PollFlags::IN), fds[1].revents().contains(PollFlags::IN)]
    }
}
