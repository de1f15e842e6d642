//! Two relays in virtual time whose link, load and content change at known moments, with `codec = "auto"`.
//!
//! One sends to the other, always more than the link takes unless the load is light. Compressing takes as long on a
//! modelled processor as is assumed of each codec; what it leaves is really compressed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate, Rng};
use dwell_relay::config::{Config, ReadSecretError, Secret};
use dwell_relay::node::Node;
use dwell_relay::trust::RandomSource;
use dwell_testkit::LinkSpec;
use dwell_testkit::virtual_net::{self, DirectionId, NodeId, Outbox, VirtualNet};

use crate::modelled::World;

/// What was delivered is counted for so long at a time.
pub(crate) const WINDOW_NS: u64 = 50 * MILLI_NS;
/// A mean over so many windows, ...
const MEAN_WINDOWS: usize = 5;
/// ... that is not below this part of what is delivered in the end, has converged.
const CONVERGED: f64 = 0.9;
/// The end of a phase, by which the rest of it is judged.
const END_NS: u64 = 2 * SECOND_NS;
/// A phase lasts so long.
pub(crate) const PHASE_NS: u64 = 8 * SECOND_NS;
/// The traffic begins when the nodes have found each other.
const START_NS: u64 = SECOND_NS;
const PAYLOAD_BYTES: usize = 1_372;
const LETTERS: u64 = 26;
const BOOK: &[u8] = include_bytes!("../../../../data/text/book1.txt");
const ADDRESSES: [&str; 2] = ["192.0.2.1:7733", "192.0.2.2:7733"];

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A book, with other letters each time that it begins again.
    Prose,
    /// Measurements with a few digits that are new.
    Records,
    /// What no codec makes smaller.
    Noise,
}

/// What does not change for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// What its beginning changes.
    pub(crate) what: &'static str,
    /// The link's rate, in Mbit/s.
    pub(crate) mbit: u64,
    /// What is offered, in Mbit/s.
    pub(crate) offered_mbit: u64,
    /// What is sent.
    pub(crate) content: Content,
}

impl Phase {
    const fn new(what: &'static str, mbit: u64, offered_mbit: u64, content: Content) -> Self {
        Self { what, mbit, offered_mbit, content }
    }
}

/// What is shown: a start, and steps of the rate, the content and the load.
pub(crate) const PHASES: [Phase; 11] = [
    Phase::new("start", 10, 80, Content::Prose),
    Phase::new("rate down", 2, 80, Content::Prose),
    Phase::new("rate up", 50, 240, Content::Prose),
    Phase::new("rate down", 10, 80, Content::Prose),
    Phase::new("records", 10, 160, Content::Records),
    Phase::new("noise", 10, 80, Content::Noise),
    Phase::new("prose", 10, 80, Content::Prose),
    Phase::new("light load", 10, 5, Content::Prose),
    Phase::new("full load", 10, 80, Content::Prose),
    Phase::new("rate far up", 200, 600, Content::Prose),
    Phase::new("rate far down", 1, 40, Content::Prose),
];

/// What was seen of a phase.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) phase: Phase,
    /// What is delivered in the end, in Mbit/s.
    pub(crate) mbit: f64,
    /// From when on the mean of the windows is never again clearly below that, in milliseconds; none if it is as
    /// unsteady as that in the end.
    pub(crate) converged_ms: Option<u64>,
    /// What was delivered in the first second, as a part of what it is in the end.
    pub(crate) first_second: f64,
    /// When codecs were changed, in milliseconds, and to which.
    pub(crate) codecs: Vec<(u64, String)>,
    /// Bits a second delivered in each window.
    pub(crate) windows: Vec<f64>,
}

/// One node.
struct End {
    node: Node,
    world: World,
    source: Option<Source>,
    delivered_bytes: u64,
}

/// What sends.
struct Source {
    rng: Rng,
    content: Content,
    spacing_ns: u64,
    next_at: Instant,
    /// The place in the book, and its letters.
    at: usize,
    letters: [u8; 256],
}

impl Source {
    fn new(seed: u64) -> Self {
        let letters = std::array::from_fn(|byte| byte as u8);
        let (spacing_ns, next_at) = (SECOND_NS, Instant::FAR_FUTURE);
        let rng = Rng::stream(seed, 9);
        Self { rng, content: Content::Prose, spacing_ns, next_at, at: 0, letters }
    }

    fn packet(&mut self) -> Vec<u8> {
        let mut payload = vec![0; PAYLOAD_BYTES];
        match self.content {
            Content::Prose => self.prose(&mut payload),
            Content::Records => self.records(&mut payload),
            Content::Noise => self.rng.fill(&mut payload),
        }
        let udp_bytes = (8 + PAYLOAD_BYTES) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend((20 + udp_bytes).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 9]);
        packet.extend([0x13, 0x88, 0x1b, 0x58]);
        packet.extend(udp_bytes.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        packet
    }

    fn prose(&mut self, payload: &mut [u8]) {
        for byte in payload {
            if self.at == BOOK.len() {
                self.at = 0;
                for from in 0..LETTERS {
                    let to = from + self.rng.below(LETTERS - from);
                    let letter = |at: u64| usize::from(b'a') + at as usize;
                    self.letters.swap(letter(from), letter(to));
                }
            }
            *byte = self.letters[usize::from(BOOK[self.at])];
            self.at += 1;
        }
    }

    fn records(&mut self, payload: &mut [u8]) {
        let mut text = String::new();
        while text.len() < payload.len() {
            let (unit, value) = (self.rng.below(40), 20_000 + self.rng.below(700));
            text += &format!(
                "{{\"unit\":\"u{unit:03}\",\"kelvin_thousandths\":{value},\"ok\":true}}\n"
            );
        }
        payload.copy_from_slice(&text.as_bytes()[..payload.len()]);
    }
}

impl End {
    fn new(side: usize, seed: u64, config: &Config, share: f64) -> Result<Self, String> {
        let endpoint = address(1 - side);
        let node = Node::new(config, &[Some(endpoint)], &mut random(side, seed))
            .map_err(|error| error.to_string())?;
        let source = (side == 0).then(|| Source::new(seed));
        Ok(Self { node, world: World::new(share), source, delivered_bytes: 0 })
    }

    fn settle(&mut self, out: &mut Outbox) {
        self.node.pump_all(&mut self.world);
        while self.node.is_behind() {
            self.node.take_turns(&mut self.world);
            self.node.pump_all(&mut self.world);
        }
        self.delivered_bytes +=
            self.world.delivered.drain(..).map(|packet| packet.len() as u64).sum::<u64>();
        self.world.sent.drain(..).for_each(|(_, datagram)| out.send(0, &datagram));
    }

    /// The codec of the context, if there is one.
    fn codec(&self) -> Option<String> {
        let peer = self.node.status(self.world.now).peers.remove(0);
        peer.tx.contexts.codecs.into_keys().next()
    }
}

impl virtual_net::Node for End {
    fn receive(&mut self, now: Instant, _: usize, datagram: &[u8], out: &mut Outbox) {
        self.world.now = now;
        let source = self.node.endpoint(0).unwrap_or_else(|| address(0));
        let mut bytes = datagram.to_vec();
        self.node.take_turns(&mut self.world);
        self.node.datagram(&mut self.world, Some(0), source, &mut bytes);
        self.settle(out);
    }

    fn handle_deadline(&mut self, now: Instant, out: &mut Outbox) {
        self.world.now = now;
        self.world.hand_over(&mut self.node);
        if let Some(source) = self.source.as_mut().filter(|source| now >= source.next_at) {
            let mut packet = source.packet();
            source.next_at = source.next_at + source.spacing_ns;
            self.node.packet(&mut self.world, &mut packet);
        }
        self.node.timers(&mut self.world);
        self.settle(out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let done_at = self.world.processor.next_deadline();
        let next_at = self.source.as_ref().map(|source| source.next_at);
        [done_at, next_at].into_iter().flatten().chain([self.node.deadline()]).min()
    }
}

struct Run {
    net: VirtualNet<End>,
    ends: [NodeId; 2],
    links: [DirectionId; 2],
    codec: String,
    seed: u64,
}

/// Goes through the phases, with this codec configured and a processor of which so much may be had.
pub(crate) fn run(
    phases: &[Phase],
    codec: &str,
    share: f64,
    seed: u64,
) -> Result<Vec<Seen>, String> {
    let Some(first) = phases.first() else { return Ok(Vec::new()) };
    let mut net = VirtualNet::new();
    let mut end = |side| {
        let config = config(side, first.mbit, codec)?;
        Ok::<_, String>(net.add(End::new(side, seed, &config, share)?))
    };
    let ends = [end(0)?, end(1)?];
    let links = net.connect((ends[0], 0), (ends[1], 0), link(first.mbit), link(first.mbit));
    let mut run = Run { net, ends, links, codec: codec.to_owned(), seed };
    run.go_to(Instant::from_ns(START_NS))?;
    phases.iter().map(|&phase| run.phase(phase)).collect()
}

impl Run {
    fn go_to(&mut self, at: Instant) -> Result<(), String> {
        self.net.run_until(at).map_err(|error| error.to_string())
    }

    fn phase(&mut self, phase: Phase) -> Result<Seen, String> {
        self.change(phase)?;
        let start = self.net.now();
        let (mut windows, mut codecs) = (Vec::new(), Vec::<(u64, String)>::new());
        let mut before = self.net.node(self.ends[1]).delivered_bytes;
        let mut codec = self.net.node(self.ends[0]).codec();
        for window in 1..=PHASE_NS / WINDOW_NS {
            self.go_to(start + window * WINDOW_NS)?;
            let delivered = self.net.node(self.ends[1]).delivered_bytes;
            windows.push((delivered - before) as f64 * 8e9 / WINDOW_NS as f64);
            before = delivered;
            let present = self.net.node(self.ends[0]).codec();
            if present != codec {
                codecs.push((window * WINDOW_NS / MILLI_NS, present.clone().unwrap_or_default()));
                codec = present;
            }
        }
        Ok(Seen::new(phase, windows, codecs))
    }

    /// The link, the relays' configuration and the source change.
    fn change(&mut self, phase: Phase) -> Result<(), String> {
        let Self { net, ends, links, codec, seed } = self;
        links.iter().for_each(|&it| net.set_link(it, link(phase.mbit)));
        for (side, &id) in ends.iter().enumerate() {
            let config = config(side, phase.mbit, codec)?;
            net.with_node(id, |end, now, out| {
                end.world.now = now;
                if let Some(source) = &mut end.source {
                    source.content = phase.content;
                    source.spacing_ns = 8_000 * PAYLOAD_BYTES as u64 / phase.offered_mbit;
                    source.next_at = now;
                }
                let endpoint = Some(address(1 - side));
                let mut random = random(side, *seed + 100);
                let done = end.node.reconfigure(&config, &[endpoint], &mut random);
                end.settle(out);
                done.map_err(|error| error.to_string())
            })?;
        }
        Ok(())
    }
}

impl Seen {
    fn new(phase: Phase, windows: Vec<f64>, codecs: Vec<(u64, String)>) -> Self {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let last = windows.len() - (END_NS / WINDOW_NS) as usize;
        let bps = mean(&windows[last..]);
        let low = |of: &[f64]| mean(of) < CONVERGED * bps;
        let converged = windows.windows(MEAN_WINDOWS).rposition(low).map_or(0, |at| at + 1);
        let converged_ms = (converged as u64) * WINDOW_NS / MILLI_NS;
        let first = &windows[..(SECOND_NS / WINDOW_NS) as usize];
        Self {
            phase,
            mbit: bps / 1e6,
            converged_ms: (converged < last).then_some(converged_ms),
            first_second: mean(first) / bps,
            codecs,
            windows,
        }
    }
}

fn link(mbit: u64) -> LinkSpec {
    LinkSpec::new().with_rate(Rate::clamped_bps(mbit * 1_000_000)).with_delay_ns(5 * MILLI_NS)
}

fn address(side: usize) -> SocketAddr {
    ADDRESSES[side].parse().unwrap_or_else(|_| SocketAddr::from(([192, 0, 2, 1], 7733)))
}

/// The relay's rate is a little lower than the link's, so that the queue is where it sees it.
fn config(side: usize, mbit: u64, codec: &str) -> Result<Config, String> {
    let (own, other, kbit) = (side + 1, 2 - side, mbit * 970);
    let text = format!(
        "[node]\naddresses = [\"10.{own}.0.1/16\"]\n[[peer]]\nname = \"other\"\n\
         endpoint = \"192.0.2.{other}:7733\"\nprefixes = [\"10.{other}.0.0/16\"]\n\
         rate = \"{kbit}kbit\"\nscheme = \"auto\"\ncodec = \"{codec}\"\npsk_file = \"5\"\n",
    );
    let read = |_: &Path| -> Result<Secret, ReadSecretError> { Ok(Secret::new([5; 32])) };
    Config::parse(&text, "timelines.toml", &read).map_err(|error| error.to_string())
}

fn random(side: usize, seed: u64) -> impl FnMut() -> RandomSource {
    let mut calls = 0;
    move || {
        calls += 1;
        let mut rng = Rng::stream(seed ^ calls, 7 + side as u64);
        Box::new(move |bytes: &mut [u8]| rng.fill(bytes))
    }
}

/// Returns how often each codec was taken up.
pub(crate) fn taken_up(seen: &[Seen]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (_, codec) in seen.iter().flat_map(|it| &it.codecs) {
        *counts.entry(codec.as_str()).or_default() += 1;
    }
    counts
}
