//! One scheme's replay: the decision core, a link and a compressor in virtual time.

use std::sync::Arc;

use dwell_base::{Instant, Rate};
use dwell_drive::{Driven, Slab, World, drain};
use dwell_policy::{
    Action, Bypass, ClassKey, ConfigError, DropReason, Event, FrameUnit, Job as PortJob, JobId,
    Objective, Outcome, Packet, PacketId, Port, PortConfig,
};
use dwell_report::Histogram;

use super::batches::Batches;
use super::compress::Compress;
use super::timeline::Timeline;

const NEVER_NS: u64 = u64::MAX;

/// An arriving packet, with all properties that any scheme needs.
#[derive(Clone, Debug)]
pub struct Arriving {
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// Its class by source port.
    pub source: ClassKey,
    /// Its class by destination port.
    pub destination: ClassKey,
    /// A hash of its flow.
    pub flow: u64,
    /// A hash of its service: destination address, port and protocol.
    pub service: u64,
    /// A hash of its pair of hosts.
    pub hosts: u64,
    /// Its class with a deadline, if it is of one.
    pub class: Option<u8>,
    /// True if its payload looks random.
    pub looks_random: bool,
}

/// The parts of a lane.
pub struct LaneSetup {
    /// The port.
    pub port: PortConfig,
    /// The rate of the link.
    pub rate: Rate,
    /// The compressor; unused by schemes that compress nothing.
    pub compress: Box<dyn Compress>,
    /// The longest that packets of each class with a deadline may wait, in nanoseconds.
    pub waits_ns_max: Vec<u64>,
    /// True if the headers of a block's packets are rearranged in columns, as in relays.
    pub columnar: bool,
    /// The contexts of the peer, if long transfers get one each where that gains, as in relays with
    /// `history = "auto"`; zero for a fixed scope.
    pub chosen_contexts: usize,
}

/// The counts of a class with a deadline.
#[derive(Clone, Debug, Default)]
pub struct ClassTally {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that waited for longer than they may.
    pub late: u64,
    /// The time by which they were late, in nanoseconds.
    pub excess: Histogram,
    /// The queueing delay of its packets, in nanoseconds.
    pub wait: Histogram,
}

/// One scheme's replay.
///
/// Time goes from event to event: the end of a transmission, the end of a compression, a deadline
/// of the port, an arrival; simultaneous events happen in this order, as in the simulator.
pub struct Lane {
    holds: bool,
    timer_ns: u64,
    world: Virtual,
}

/// The port of a lane, and what is around it.
struct Virtual {
    port: Driven,
    batches: Batches,
    rate: Rate,
    keeps_bytes: bool,
    waits_ns_max: Vec<u64>,
    now_ns: u64,
    transmitter_ns: u64,
    compress_ns: u64,
    compressing: Option<(JobId, Outcome, u64)>,
    packets: Slab<Held>,
    result: LaneResult,
}

/// The result of a lane, beside the accounts of its port.
#[derive(Clone, Debug, Default)]
pub struct LaneResult {
    /// The delay from arrival to the beginning of the transmission.
    pub wait: Histogram,
    /// The delay from arrival to the end of the transmission.
    pub delay: Histogram,
    /// The results by class with a deadline.
    pub classes: Vec<ClassTally>,
    /// The events over time.
    pub timeline: Timeline,
    /// The time for which the link was busy, in nanoseconds.
    pub busy_ns: u64,
    /// The time of the last event.
    pub end_ns: u64,
}

impl Lane {
    /// Creates a lane at time zero.
    ///
    /// # Errors
    /// If the port's configuration makes no sense.
    pub fn new(setup: LaneSetup) -> Result<Self, ConfigError> {
        let scheme = setup.port.scheme;
        let holds = scheme.has_deadlines() || setup.port.objective != Objective::Time;
        let classes = setup.waits_ns_max.iter().map(|_| ClassTally::default()).collect();
        let LaneSetup { compress, columnar, chosen_contexts, .. } = setup;
        let batches = Batches::new(scheme.gather(), compress, columnar, chosen_contexts);
        Ok(Self {
            holds,
            timer_ns: NEVER_NS,
            world: Virtual {
                port: Driven::new(setup.port)?,
                batches,
                rate: setup.rate,
                keeps_bytes: scheme.compresses(),
                waits_ns_max: setup.waits_ns_max,
                now_ns: 0,
                transmitter_ns: NEVER_NS,
                compress_ns: NEVER_NS,
                compressing: None,
                packets: Slab::default(),
                result: LaneResult { classes, ..LaneResult::default() },
            },
        })
    }

    /// Keeps a journal of what the core is given and decides.
    pub fn keep_journal(&mut self) {
        self.world.port.keep_journal();
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.world.port
    }

    /// Handles an arriving packet. Times must not go back; one that does counts as the latest.
    pub fn arrive(&mut self, at_ns: u64, packet: &Arriving) {
        self.run_until(at_ns);
        self.world.now_ns = self.world.now_ns.max(at_ns);
        let bytes = packet.bytes.len() as u32;
        let class =
            packet.class.filter(|&class| usize::from(class) < self.world.waits_ns_max.len());
        let id = self.world.packets.insert(Held {
            flow: packet.flow,
            bytes: self.world.keeps_bytes.then(|| Arc::clone(&packet.bytes)),
            service: packet.source.min(packet.destination),
            class,
        });
        let group = self.world.batches.group_of(self.world.now(), packet);
        let arrival = Packet {
            id,
            bytes,
            source: packet.source,
            destination: packet.destination,
            flow: packet.flow,
            group,
            max_wait_ns: Batches::max_wait_ns(packet, &self.world.waits_ns_max),
            batch_bytes_max: u32::MAX,
            looks_random: packet.looks_random,
            takes_mark: false,
            compressed: false,
        };
        self.world.result.timeline.at(self.world.now_ns).arrived_bytes += u64::from(bytes);
        if let Some(class) = class {
            self.world.result.classes[usize::from(class)].arrived += 1;
        }
        self.world.handle(Event::Arrive(arrival));
        self.pump();
    }

    /// Processes all events until `at_ns`.
    pub fn run_until(&mut self, at_ns: u64) {
        loop {
            let next_ns = self.world.transmitter_ns.min(self.world.compress_ns).min(self.timer_ns);
            if next_ns > at_ns || next_ns == NEVER_NS {
                return;
            }
            self.world.now_ns = self.world.now_ns.max(next_ns);
            if self.world.transmitter_ns == next_ns {
                self.world.transmitter_ns = NEVER_NS;
                self.world.handle(Event::LinkReady);
                self.pump();
            } else if self.world.compress_ns == next_ns {
                self.world.compress_ns = NEVER_NS;
                if let Some((job, outcome, took_ns)) = self.world.compressing.take() {
                    self.world.handle(Event::Compressed { job, outcome, took_ns });
                }
                self.pump();
            } else {
                self.pump();
                // Whatever the port says, time goes on.
                self.timer_ns = self.timer_ns.max(next_ns + 1);
            }
        }
    }

    /// Lets all waiting packets leave, and returns the port and the result.
    pub fn finish(mut self) -> (Driven, LaneResult) {
        self.run_until(NEVER_NS - 1);
        self.world.result.end_ns = self.world.now_ns;
        (self.world.port, self.world.result)
    }

    fn pump(&mut self) {
        drain(&mut self.world);
        if self.holds {
            self.timer_ns = self.world.port.next_deadline().map_or(NEVER_NS, Instant::as_ns);
        }
        #[cfg(test)]
        self.world.port.assert_invariants();
    }
}

impl Virtual {
    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }

    fn handle(&mut self, event: Event<'_>) {
        self.port.handle(self.now(), event);
    }
}

impl World for Virtual {
    fn poll(&mut self) -> Option<Action> {
        self.port.poll(self.now())
    }

    fn compress(&mut self, job: PortJob) {
        let port = &self.port;
        let Some(&first) = port.batch(job.id).first() else { return };
        let packets = &self.packets;
        let bytes = |&id: &PacketId| packets.get(id).bytes.as_deref().unwrap_or_default();
        let first = (packets.get(first).service, packets.get(first).flow);
        let what = (&job, &port.config().frame);
        let now = Instant::from_ns(self.now_ns);
        let batch = port.batch(job.id).iter().map(bytes);
        let (outcome, took_ns) = self.batches.compress(now, batch, what, first);
        self.compressing = Some((job.id, outcome, took_ns));
        self.compress_ns = self.now_ns.saturating_add(took_ns);
    }

    fn send(&mut self) {
        let frame = self.port.frame();
        let link_bytes = frame.link_bytes;
        let transmission_ns = self.rate.transmission_ns(link_bytes);
        let mut book = Book {
            packets: &mut self.packets,
            result: &mut self.result,
            waits_ns_max: &self.waits_ns_max,
            now_ns: self.now_ns,
            transmission_ns,
        };
        book.frame(link_bytes);
        let mut followers = &frame.followers[..];
        for &FrameUnit { id, sojourn_ns, followers: count, bypass, original_bytes, .. } in
            &frame.units
        {
            if bypass == Some(Bypass::NoTime) {
                self.batches.passed_raw(book.packets.get(id).flow, original_bytes);
            }
            book.sent(id, sojourn_ns);
            let (own, others) = followers.split_at(count as usize);
            own.iter().for_each(|packet| book.sent(packet.id, packet.sojourn_ns));
            followers = others;
        }
        self.transmitter_ns = self.now_ns.saturating_add(transmission_ns);
    }

    fn dropped(&mut self, id: PacketId, _: DropReason) {
        let held = self.packets.remove(id);
        self.result.timeline.at(self.now_ns).dropped += 1;
        if let Some(class) = held.class {
            self.result.classes[usize::from(class)].dropped += 1;
        }
    }
}

/// The accounts of the packets of a frame.
struct Book<'a> {
    packets: &'a mut Slab<Held>,
    result: &'a mut LaneResult,
    waits_ns_max: &'a [u64],
    now_ns: u64,
    transmission_ns: u64,
}

impl Book<'_> {
    fn frame(&mut self, link_bytes: u64) {
        self.result.busy_ns += self.transmission_ns;
        self.result.timeline.at(self.now_ns).link_bytes += link_bytes;
    }

    fn sent(&mut self, id: PacketId, wait_ns: u64) {
        let held = self.packets.remove(id);
        let delay_ns = wait_ns.saturating_add(self.transmission_ns);
        self.result.wait.record(wait_ns);
        self.result.delay.record(delay_ns);
        let bin = self.result.timeline.at(self.now_ns);
        bin.sent += 1;
        bin.delay_sum_ns = bin.delay_sum_ns.saturating_add(delay_ns);
        bin.delay_ns_max = bin.delay_ns_max.max(delay_ns);
        let Some(class) = held.class.map(usize::from) else { return };
        let tally = &mut self.result.classes[class];
        tally.wait.record(wait_ns);
        if wait_ns > self.waits_ns_max[class] {
            tally.late += 1;
            tally.excess.record(wait_ns - self.waits_ns_max[class]);
        }
    }
}

/// A packet in the port.
#[derive(Clone, Debug, Default)]
struct Held {
    flow: u64,
    bytes: Option<Arc<[u8]>>,
    service: ClassKey,
    class: Option<u8>,
}
