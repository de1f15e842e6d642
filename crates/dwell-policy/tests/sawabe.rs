//! Section 7 of Sawabe, Tsukamoto and Oie, "Efficient QoS-aware Packet Chunking Scheme for M2M
//! Cloud Services", on the core itself: one link of 10 Gbit/s that takes no more than 5 million
//! frames a second, and three classes of Poisson traffic.
//!
//! The expected values are the paper's, of Tables III and IV, where it is reproduced; the
//! tolerances are the spread of single runs as short as these.

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rng};
use dwell_policy::{
    Action, ClassKey, ClassTimers, Event, FrameCost, Packet, PacketId, Port, PortConfig, Pull,
    PullPolicy, QueueLimit, Scheme,
};

/// Table II: bytes and acceptable waiting time.
const CLASSES: [(u32, u64); 3] =
    [(40, 50 * MICRO_NS), (200, 100 * MICRO_NS), (1500, 200 * MICRO_NS)];
const MTU: u32 = 9000;
const BYTES_PER_NS: f64 = 1.25;
const FRAMES_PER_S: u64 = 5_000_000;

/// 10 Gbit/s, but not more than the frames that the router can forward.
fn transmission_ns(link_bytes: u64) -> u64 {
    (link_bytes * 4).div_ceil(5).max(SECOND_NS / FRAMES_PER_S)
}

/// One class of Poisson traffic.
struct Source {
    rng: Rng,
    at_ns: f64,
}

impl Source {
    fn advance(&mut self, class: usize, load: f64) {
        let share = load / CLASSES.len() as f64;
        self.at_ns += self.rng.exponential(f64::from(CLASSES[class].0) / (BYTES_PER_NS * share));
    }
}

/// The outcomes of packets that arrived in the window.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    sent: u64,
    late: u64,
}

impl Class {
    fn late_percent(&self) -> f64 {
        100.0 * self.late as f64 / self.sent as f64
    }
}

struct World {
    port: Port,
    sources: [Source; 3],
    /// Load outside and inside of the window.
    load: (f64, f64),
    window_ns: std::ops::Range<u64>,
    free_at_ns: Option<u64>,
    /// Packets of the window that are still in the port.
    inside: u64,
    classes: [Class; 3],
    next_id: u32,
}

impl World {
    fn new(scheme: Scheme, load: (f64, f64), window_ns: std::ops::Range<u64>, seed: u64) -> Self {
        let chunked = scheme != Scheme::none();
        let port = Port::new(PortConfig {
            scheme,
            limit: QueueLimit::packets(u32::MAX),
            frame: if chunked { FrameCost::FREE_CHUNKS } else { FrameCost::FREE },
            ..PortConfig::default()
        })
        .expect("the paper's router is a possible configuration");
        let mut world = Self {
            port,
            sources: [0, 1, 2].map(|n| Source { rng: Rng::stream(seed, n), at_ns: 0.0 }),
            load,
            window_ns,
            free_at_ns: None,
            inside: 0,
            classes: [Class::default(); 3],
            next_id: 0,
        };
        for class in 0..CLASSES.len() {
            world.sources[class].advance(class, load.0);
        }
        world
    }

    /// Runs until all that arrived in the window has left, or until `end_ns`.
    fn run(mut self, end_ns: u64) -> Self {
        loop {
            let (class, arrival_ns) = self.next_arrival();
            let deadline_ns = self.port.next_deadline().map(Instant::as_ns);
            let wake_ns = self.free_at_ns.or(deadline_ns);
            let now_ns = wake_ns.map_or(arrival_ns, |wake_ns| wake_ns.min(arrival_ns));
            let over = now_ns >= self.window_ns.end && self.inside == 0;
            if over || now_ns >= end_ns {
                return self;
            }
            // A transmission's end and a timer go before an arrival.
            if wake_ns == Some(now_ns) {
                if self.free_at_ns.take().is_some() {
                    self.port.handle(Instant::from_ns(now_ns), Event::LinkReady);
                }
            } else {
                self.arrive(class, now_ns);
            }
            self.drain(now_ns);
        }
    }

    fn next_arrival(&self) -> (usize, u64) {
        let at = |class: usize| (class, self.sources[class].at_ns as u64);
        [at(1), at(2)].into_iter().fold(at(0), |a, b| if b.1 < a.1 { b } else { a })
    }

    fn arrive(&mut self, class: usize, now_ns: u64) {
        let (bytes, max_wait_ns) = CLASSES[class];
        let id = PacketId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let (source, flow) = (ClassKey::new(17, 9), class as u64);
        let packet = Packet {
            id,
            bytes,
            source,
            destination: source,
            flow,
            group: 0,
            max_wait_ns,
            batch_bytes_max: u32::MAX,
            looks_random: false,
            takes_mark: false,
            compressed: false,
        };
        self.port.handle(Instant::from_ns(now_ns), Event::Arrive(packet));
        let inside = self.window_ns.contains(&now_ns);
        self.inside += u64::from(inside);
        self.sources[class].advance(class, if inside { self.load.1 } else { self.load.0 });
    }

    fn drain(&mut self, now_ns: u64) {
        while let Some(action) = self.port.poll(Instant::from_ns(now_ns)) {
            assert_eq!(action, Action::Send);
            let frame = self.port.frame();
            self.free_at_ns = Some(now_ns + transmission_ns(frame.link_bytes));
            for unit in &frame.units {
                if self.window_ns.contains(&(now_ns - unit.sojourn_ns)) {
                    self.inside -= 1;
                    let class = CLASSES.iter().position(|class| class.0 == unit.bytes);
                    let class = class.expect("a size of Table II");
                    self.classes[class].sent += 1;
                    self.classes[class].late += u64::from(unit.sojourn_ns > CLASSES[class].1);
                }
            }
        }
    }
}

fn chutq(policy: PullPolicy, eager: bool, clamp_ns: u64) -> Scheme {
    let pull = Pull { policy, eager, clamp_ns, hold: false };
    Scheme::chutq(ClassTimers::TABLE_II, pull, MTU)
}

fn chumq() -> Scheme {
    Scheme::chumq(ClassTimers::TABLE_II, MTU)
}

/// Table III: frames sent against those that the router can forward, and Gbit/s, at Λ = 0.9.
fn table_iii(scheme: Scheme) -> (f64, f64) {
    let span_ns = 100 * MILLI_NS;
    let world = World::new(scheme, (0.9, 0.9), 0..span_ns, 1).run(span_ns);
    let accounts = world.port.accounts();
    let seconds = span_ns as f64 / SECOND_NS as f64;
    let eta = accounts.frames as f64 / (FRAMES_PER_S as f64 * seconds);
    (eta, accounts.link_bytes as f64 * 8.0 / 1e9 / seconds)
}

/// Table IV: percent of packets that are late, of those that arrive in the 0.2 s of overload,
/// Λ = 1.2 between times of 0.8. The times before are cut short.
fn table_iv(scheme: Scheme) -> [f64; 3] {
    let window_ns = 2 * MILLI_NS..202 * MILLI_NS;
    let world = World::new(scheme, (0.8, 1.2), window_ns, 1).run(u64::MAX);
    world.port.assert_invariants();
    world.classes.map(|class| class.late_percent())
}

#[track_caller]
fn near(ours: f64, paper: f64, tolerance: f64) {
    assert!((ours - paper).abs() <= tolerance, "ours {ours}, the paper's {paper} ± {tolerance}");
}

#[track_caller]
fn all_near(ours: [f64; 3], paper: [f64; 3], tolerance: [f64; 3]) {
    for class in 0..3 {
        let off = (ours[class] - paper[class]).abs();
        assert!(off <= tolerance[class], "ours {ours:?}, the paper's {paper:?} ± {tolerance:?}");
    }
}

#[test]
fn table_iii_without_chunks_the_router_forwards_two_in_five_bytes() {
    let (eta, gbps) = table_iii(Scheme::none());
    near(eta, 0.902, 0.002);
    near(gbps, 3.52, 0.03);
}

#[test]
fn table_iii_chunks_need_a_fortieth_of_the_frames() {
    for (scheme, paper) in [(Scheme::basicq(MTU), 0.026), (chumq(), 0.025)] {
        let (eta, gbps) = table_iii(scheme);
        near(eta, paper, 0.0005);
        near(gbps, 8.97, 0.05);
    }
}

#[test]
fn table_iv_basicq_helps_nobody() {
    all_near(table_iv(Scheme::basicq(MTU)), [99.88, 99.76, 99.55], [0.07; 3]);
}

#[test]
fn table_iv_chumq_helps_those_with_little_time() {
    all_near(table_iv(chumq()), [20.42, 38.33, 99.84], [0.3, 1.0, 0.05]);
}

#[test]
fn table_iv_tpf_gives_up_the_small_packets() {
    all_near(table_iv(chutq(PullPolicy::Tpf, false, 0)), [99.90, 0.0, 0.0], [0.07, 0.01, 0.01]);
}

/// The paper's numbers take a tie rule that is ours: below 10 µs all are equally urgent. By the
/// letter all classes reach zero together, and which of them collapses is chance.
#[test]
fn table_iv_dcf_gives_up_the_files() {
    let scheme = chutq(PullPolicy::Dcf, false, 10 * MICRO_NS);
    all_near(table_iv(scheme), [0.0, 0.0, 99.79], [0.01, 0.01, 0.05]);
}
