//! `[scheme]`: a point of the core's design space, by the name of a preset and its parameters.
//!
//! | preset | parameters |
//! |---|---|
//! | `none` | |
//! | `all`, `packet` (Shimamura et al.) | `compressed_pass` |
//! | `auto` (as in relays) | `objective`, `gather_time`, `cpu` |
//! | `flow`, `service`, `host-pair`, `edge` (as in relays) | `block_bytes` |
//! | `packet(m,n)`, `flow(m,n)`, `service(m,n)`, `host-pair(m,n)`, `edge(m,n)` (Yoshino et al.) | `m`, `n`, `slots`, `place`, `unfinished`, `put_back`, `order` |
//! | `basicq`, `chumq`, `chutq-dcf`, `chutq-tpf`, `chutq-cef` (Sawabe et al.), with `+cea` | `mtu`, `timers`, `eager`, `clamp`, `chunk_compress` |
//!
//! A parameter that the preset does not have is left alone, so that a sweep can go through
//! presets of different kinds; one that no preset has is an error.

use dwell_policy::{
    BlockOrder, BlockPlace, BlockRules, BlockSlots, ClassTimers, FrameCost, Gather, Objective,
    Pull, PullPolicy, Queue, Scheme, Unfinished,
};

use super::error::Errors;
use super::section::Section;
use super::tree::{Table, Value};
use super::value;

const KEYS: [&str; 19] = [
    "preset",
    "compressed_pass",
    "m",
    "n",
    "slots",
    "place",
    "unfinished",
    "put_back",
    "order",
    "mtu",
    "timers",
    "eager",
    "clamp",
    "hold",
    "block_bytes",
    "chunk_compress",
    "objective",
    "gather_time",
    "cpu",
];

/// The frame that `auto` fills with what waits.
const FILLED_BYTES: u32 = 1500;
/// A jumbo frame, as in Sawabe et al.
const MTU_BYTES: u32 = 9000;

/// The kinds of schemes, each with what only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    All,
    Packet,
    /// Flow queueing and batches in contexts, as in relays.
    Auto,
    /// What waits, as in relays.
    Waiting(Gather),
    /// By the length of the queue.
    Backlog(Gather),
    BasiCq,
    ChuMq {
        fill: bool,
    },
    ChuTq {
        policy: PullPolicy,
        fill: bool,
    },
}

const PRESETS: [(&str, Kind); 22] = [
    ("auto", Kind::Auto),
    ("none", Kind::None),
    ("all", Kind::All),
    ("packet", Kind::Packet),
    ("flow", Kind::Waiting(Gather::Flow)),
    ("service", Kind::Waiting(Gather::Service)),
    ("host-pair", Kind::Waiting(Gather::HostPair)),
    ("edge", Kind::Waiting(Gather::Edge)),
    ("packet(m,n)", Kind::Backlog(Gather::Packet)),
    ("flow(m,n)", Kind::Backlog(Gather::Flow)),
    ("service(m,n)", Kind::Backlog(Gather::Service)),
    ("host-pair(m,n)", Kind::Backlog(Gather::HostPair)),
    ("edge(m,n)", Kind::Backlog(Gather::Edge)),
    ("basicq", Kind::BasiCq),
    ("chumq", Kind::ChuMq { fill: false }),
    ("chumq+cea", Kind::ChuMq { fill: true }),
    ("chutq-dcf", Kind::ChuTq { policy: PullPolicy::Dcf, fill: false }),
    ("chutq-dcf+cea", Kind::ChuTq { policy: PullPolicy::Dcf, fill: true }),
    ("chutq-tpf", Kind::ChuTq { policy: PullPolicy::Tpf, fill: false }),
    ("chutq-tpf+cea", Kind::ChuTq { policy: PullPolicy::Tpf, fill: true }),
    ("chutq-cef", Kind::ChuTq { policy: PullPolicy::Cef, fill: false }),
    ("chutq-cef+cea", Kind::ChuTq { policy: PullPolicy::Cef, fill: true }),
];

/// The contents of `[scheme]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SchemePart {
    kind: Kind,
    compressed_pass: bool,
    block_bytes: u32,
    chunk_compress: bool,
    block_packets: u32,
    lead_packets: u32,
    blocks: BlockRules,
    mtu_bytes: Option<u32>,
    timers_ns: Option<Vec<u64>>,
    eager: bool,
    clamp_ns: u64,
    /// Overrides the preset's choice of holding a chunk open.
    hold: Option<bool>,
    saves_bytes: bool,
    gather_ns: u64,
    /// The share of one CPU.
    cpu: f64,
}

impl Default for SchemePart {
    fn default() -> Self {
        Self {
            kind: Kind::None,
            compressed_pass: false,
            block_bytes: Scheme::BATCH_BYTES_MAX,
            chunk_compress: false,
            block_packets: 1,
            lead_packets: 5,
            blocks: BlockRules::PAPER,
            mtu_bytes: None,
            timers_ns: None,
            eager: false,
            clamp_ns: 0,
            hold: None,
            saves_bytes: false,
            gather_ns: Objective::MAX_WAIT_NS,
            cpu: f64::from(Objective::CPU_PPM) / 1e6,
        }
    }
}

/// Reads `[scheme]`. Without it nothing is compressed.
pub(super) fn read(tree: &Table, errors: &mut Errors) -> Option<SchemePart> {
    let mut part = SchemePart::default();
    if tree.get("scheme").is_none() {
        return Some(part);
    }
    let section = Section::of(tree, "scheme", errors)?;
    section.refuse_unknown(&KEYS, errors);
    part.kind =
        section.need("preset", "\"packet\"", errors, |found| value::one_of(found, &PRESETS))?;
    part.compressed_pass = section.or("compressed_pass", false, errors, value::truth);
    part.block_bytes = section.or("block_bytes", part.block_bytes, errors, value::packet_bytes);
    part.chunk_compress = section.or("chunk_compress", false, errors, value::truth);
    part.block_packets = section.or("m", 1, errors, |v| value::whole32(v, 1..=10_000));
    part.lead_packets = section.or("n", 5, errors, |v| value::whole32(v, 0..=1_000_000));
    part.blocks = block_rules(&section, errors);
    part.mtu_bytes = section.get("mtu", errors, value::packet_bytes);
    part.timers_ns = timers(&section, errors);
    part.eager = section.or("eager", false, errors, value::truth);
    part.clamp_ns = section.or("clamp", 0, errors, value::time_ns);
    part.hold = section.get("hold", errors, value::truth);
    part.saves_bytes = section.or("objective", false, errors, |found| {
        value::one_of(found, &[("time", false), ("bytes", true)])
    });
    part.gather_ns = section.or("gather_time", part.gather_ns, errors, value::some_time_ns);
    part.cpu = section.or("cpu", part.cpu, errors, |found| value::number(found, 0.01..=1.0));
    Some(part)
}

/// Reads the parameters that Yoshino et al. leave open.
fn block_rules(section: &Section<'_>, errors: &mut Errors) -> BlockRules {
    let paper = BlockRules::PAPER;
    let place = |found: &Value| {
        value::one_of(found, &[("front", BlockPlace::Front), ("tail", BlockPlace::Tail)])
    };
    BlockRules {
        slots: section.or("slots", paper.slots, errors, |found| {
            value::one_of(found, &[("one", BlockSlots::One), ("per-packet", BlockSlots::PerPacket)])
        }),
        place: section.or("place", paper.place, errors, place),
        put_back: section.or("put_back", paper.put_back, errors, place),
        unfinished: section.or("unfinished", paper.unfinished, errors, |found| {
            value::one_of(found, &[("pass", Unfinished::Pass), ("wait", Unfinished::Wait)])
        }),
        order: section.or("order", paper.order, errors, |found| {
            value::one_of(found, &[("loose", BlockOrder::Loose), ("strict", BlockOrder::Strict)])
        }),
    }
}

fn timers(section: &Section<'_>, errors: &mut Errors) -> Option<Vec<u64>> {
    let timers = section.list("timers", "[\"50us\", \"100us\"]", errors, value::some_time_ns)?;
    if let Err(error) = ClassTimers::new(&timers) {
        section.fail("timers", error.to_string(), errors);
    }
    Some(timers)
}

impl SchemePart {
    /// Returns true if it ever compresses anything.
    pub(super) fn compresses(&self) -> bool {
        match self.kind {
            Kind::None => false,
            Kind::All | Kind::Packet | Kind::Auto | Kind::Waiting(_) | Kind::Backlog(_) => true,
            Kind::BasiCq | Kind::ChuMq { .. } | Kind::ChuTq { .. } => self.chunk_compress,
        }
    }

    /// Returns true if batches may refer to those before them.
    pub(super) fn has_contexts(&self) -> bool {
        self.kind == Kind::Auto
    }

    /// Returns the number of packets that the link sends while a block is being compressed, for
    /// schemes that go by the length of the queue.
    pub(super) fn lead(&self) -> Option<u32> {
        matches!(self.kind, Kind::Backlog(_)).then_some(self.lead_packets)
    }

    /// Returns the scheme, for flows that can be held back for these times. They are the classes'
    /// timers, unless the scenario gives others.
    pub(super) fn scheme(&self, max_waits_ns: &[u64], errors: &mut Errors) -> Option<Scheme> {
        let queue = if self.compressed_pass { Queue::CpuAndLink } else { Queue::One };
        let scheme = match self.kind {
            Kind::None => Scheme::none(),
            Kind::All => Scheme { queue, ..Scheme::all() },
            Kind::Packet => Scheme { queue, ..Scheme::packet() },
            Kind::Auto => Scheme::auto(Gather::HostPair),
            Kind::Waiting(gather) => Scheme::waiting(gather, self.block_bytes),
            // A single packet is a block of one, whatever the blocks of other schemes are.
            Kind::Backlog(Gather::Packet) => {
                Scheme::backlog(Gather::Packet, 1, self.lead_packets).with_rules(self.blocks)
            }
            Kind::Backlog(gather) => Scheme::backlog(gather, self.block_packets, self.lead_packets)
                .with_rules(self.blocks),
            Kind::BasiCq => Scheme::basicq(self.chunk_bytes()),
            Kind::ChuMq { fill } => {
                let chumq = Scheme::chumq(self.classes(max_waits_ns, errors)?, self.chunk_bytes());
                if fill { chumq.with_cea() } else { chumq }
            }
            Kind::ChuTq { policy, fill } => {
                let hold = self.hold.unwrap_or(fill);
                let pull = Pull { policy, eager: self.eager, clamp_ns: self.clamp_ns, hold };
                let timers = self.classes(max_waits_ns, errors)?;
                let chutq = Scheme::chutq(timers, pull, self.chunk_bytes());
                if fill { chutq.with_cea() } else { chutq }
            }
        };
        Some(if self.chunk_compress { scheme.with_compressed_frames() } else { scheme })
    }

    fn classes(&self, max_waits_ns: &[u64], errors: &mut Errors) -> Option<ClassTimers> {
        let timers = self.timers_ns.clone().unwrap_or_else(|| {
            let mut waits: Vec<u64> = max_waits_ns.iter().copied().filter(|&ns| ns > 0).collect();
            waits.sort_unstable();
            waits.dedup();
            waits
        });
        match ClassTimers::new(&timers) {
            Ok(timers) => Some(timers),
            Err(error) => {
                let message = format!("{error}: give `timers`, or classes of traffic a `hold`");
                errors.add(None, Some("[scheme]".to_owned()), message);
                None
            }
        }
    }

    /// Returns what the scheme is to save.
    pub(super) fn objective(&self) -> Objective {
        match self.kind {
            Kind::Auto if self.saves_bytes => Objective::Bytes {
                max_wait_ns: self.gather_ns,
                cpu_ppm: (self.cpu * 1e6).round() as u32,
            },
            _ => Objective::Time,
        }
    }

    /// The most bytes of a chunk.
    fn chunk_bytes(&self) -> u32 {
        self.mtu_bytes.unwrap_or(MTU_BYTES)
    }

    const fn filled(units_bytes_max: u32) -> FrameCost {
        FrameCost { units_bytes_max, units_max: u32::MAX, ..FrameCost::FREE }
    }

    /// Returns the overhead of frames: one unit each, but for schemes that fill them.
    pub(super) fn frame(&self) -> FrameCost {
        match self.kind {
            Kind::None | Kind::All | Kind::Packet | Kind::Waiting(_) | Kind::Backlog(_) => {
                FrameCost::FREE
            }
            Kind::Auto => Self::filled(self.mtu_bytes.unwrap_or(FILLED_BYTES)),
            Kind::BasiCq | Kind::ChuMq { .. } | Kind::ChuTq { .. } => {
                Self::filled(self.chunk_bytes())
            }
        }
    }
}
