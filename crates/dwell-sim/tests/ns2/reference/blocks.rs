//! The network of `validate/dumbbell.tcl` with schemes that compress blocks, as points of the scenario of the paper's
//! Fig. 3, with ns-2's start times; ns-2's runs of it, and its packets.

use dwell_sim::library;
use dwell_sim::scenario::{Options, Point, Setting, Value};
use dwell_sim::world::{Seen, Sighting, What, World};
use thiserror::Error;

/// The schemes that take blocks of `m` packets, by the beginning of their names in files (`flow5`): the label of one in the scenario.
const SCHEMES: [(&str, &str); 2] = [("flow", "Flow, m = 5"), ("edge", "Edge, m = 5")];

/// What blocks of `m` packets are compressed to; `validate/blocks-line.sh` has the same.
const RATIOS: [(&str, f64); 6] =
    [("2", 0.8), ("3", 0.7), ("5", 0.6), ("7", 0.557), ("10", 0.5), ("20", 0.42)];

/// Returns the label in the scenario of a scheme with this name in files, and the settings that it needs.
fn scheme(name: &str) -> Option<(&'static str, Vec<String>)> {
    match name {
        "none" => return Some(("Nocomp", Vec::new())),
        "packet" => return Some(("Packet", Vec::new())),
        _ => {}
    }
    let (kind, label) = SCHEMES.iter().find(|(kind, _)| name.starts_with(kind))?;
    let m = &name[kind.len()..];
    let (_, ratio) = RATIOS.iter().find(|(known, _)| *known == m)?;
    Some((label, vec![format!("scheme.m={m}"), format!("compress.ratio={ratio}")]))
}

/// The networks by their names in files, and what they change in the scenario; `validate/blocks-line.sh` has the
/// same for ns-2.
const CASES: [(&str, &[&str]); 13] = [
    ("paper", &[]),
    ("buffers20", &["topology.buffer_packets=20"]),
    ("buffers23", &["topology.buffer_packets=23"]),
    ("buffers100", &["topology.buffer_packets=100", "topology.core_delay=\"9ms\""]),
    ("buffers120", &["topology.buffer_packets=120"]),
    (
        "rates",
        &[
            "topology.access_rate=\"83mbit\"",
            "topology.edge_rate=\"70mbit\"",
            "topology.core_rate=\"110mbit\"",
        ],
    ),
    (
        "delays",
        &[
            "topology.access_delay=\"700us\"",
            "topology.edge_delay=\"1300us\"",
            "topology.core_delay=\"23100us\"",
            "topology.resend_after=\"50ms\"",
        ],
    ),
    ("sizes", &["traffic.packet_bytes=576", "scheme.n=8"]),
    ("buffers35", &["topology.buffer_packets=35"]),
    ("buffers200", &["topology.buffer_packets=200", "topology.core_delay=\"15ms\""]),
    (
        "slow",
        &[
            "topology.access_rate=\"20mbit\"",
            "topology.edge_rate=\"12mbit\"",
            "topology.core_rate=\"17mbit\"",
            "topology.access_delay=\"3100us\"",
            "topology.edge_delay=\"7700us\"",
            "topology.core_delay=\"11300us\"",
            "topology.resend_after=\"30ms\"",
        ],
    ),
    ("lead2", &["scheme.n=2"]),
    (
        "mixed",
        &[
            "topology.buffer_packets=64",
            "topology.edge_rate=\"90mbit\"",
            "topology.core_rate=\"155mbit\"",
            "traffic.packet_bytes=1000",
            "scheme.n=7",
        ],
    ),
];

/// A reason why ns-2's runs can't be compared.
#[derive(Debug, Error)]
pub enum BlocksError {
    /// A line of another form.
    #[error("\"{0}\" is not {1}")]
    Form(String, &'static str),
    /// A network, a scheme or a setting that is not there.
    #[error("there is no {0}")]
    Unknown(String),
    /// The network can't be simulated.
    #[error(transparent)]
    Plan(#[from] dwell_sim::plan::PlanError),
}

/// What is run: a network with a scheme and a number of flows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The name of the network.
    pub network: String,
    /// The name of the scheme.
    pub scheme: String,
    /// The number of flows.
    pub flows: usize,
}

/// Throughput and compressions of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Throughput.
    pub mbps: f64,
    /// Number of compressions.
    pub compressions: f64,
}

/// The precision with which ns-2's script prints Mbit/s.
const DIGITS: f64 = 1e-4;

impl Run {
    /// Returns true if both are the same run, as far as ns-2's script says.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.mbps - other.mbps).abs() < DIGITS && self.compressions == other.compressions
    }
}

/// Reads a line `NETWORK SCHEME FLOWS SEED MBPS COMPRESSIONS` of ns-2.
///
/// # Errors
/// If it has another form.
pub fn parse_run(line: &str) -> Result<(Case, u64, Run), BlocksError> {
    let form = || BlocksError::Form(line.to_owned(), "NETWORK SCHEME FLOWS SEED MBPS COMPRESSIONS");
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [network, scheme, flows, seed, mbps, compressions] = words[..] else {
        return Err(form());
    };
    let number = |word: &str| word.parse::<f64>().map_err(|_| form());
    let flows = flows.parse().map_err(|_| form())?;
    let case = Case { network: network.to_owned(), scheme: scheme.to_owned(), flows };
    let run = Run { mbps: number(mbps)?, compressions: number(compressions)? };
    Ok((case, seed.parse().map_err(|_| form())?, run))
}

impl Case {
    /// Returns the case here, with these further settings.
    ///
    /// # Errors
    /// If there is no such network, scheme or setting.
    pub fn point(&self, settings: &[&str]) -> Result<Point, BlocksError> {
        let unknown = |what: String| BlocksError::Unknown(what);
        let network = CASES.iter().find(|(name, _)| *name == self.network);
        let (_, changes) =
            network.ok_or_else(|| unknown(format!("network \"{}\"", self.network)))?;
        let scheme = scheme(&self.scheme);
        let (label, of_scheme) =
            scheme.ok_or_else(|| unknown(format!("scheme \"{}\"", self.scheme)))?;
        let flows = format!("topology.flows={}", self.flows);
        let all = [flows.as_str(), "traffic.random=\"ns-2\""].into_iter();
        let all = all.chain(of_scheme.iter().map(String::as_str));
        let settings = all.chain(changes.iter().copied()).chain(settings.iter().copied());
        let settings: Result<Vec<Setting>, BlocksError> = settings
            .map(|one| one.parse().map_err(|_| unknown(format!("setting {one}"))))
            .collect();
        let options = Options { settings: settings?, is_quick: false };
        let [entry] = library::find("yoshino/fig-3")[..] else {
            return Err(unknown("scenario yoshino/fig-3".to_owned()));
        };
        let scenario =
            entry.read(&options).map_err(|errors| unknown(format!("point: {errors}")))?;
        let has_label = |point: &Point| matches!(point.value("label"), Some(Value::Text(text)) if text.as_str() == label);
        let point = scenario.points.into_iter().find(has_label);
        point.ok_or_else(|| unknown(format!("point {label}")))
    }
}

/// Runs a point here.
///
/// # Errors
/// If the network can't be simulated.
pub fn measure(point: &Point, seed: u64) -> Result<Run, BlocksError> {
    let metrics = World::new(&point.plan, seed)?.run().metrics();
    let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    Ok(Run { mbps: get("throughput_bps") / 1e6, compressions: get("compressions") })
}

/// A packet or a block that leaves an ingress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaving {
    /// The number of the ingress, from 0.
    pub ingress: usize,
    /// When: here a whole number of nanoseconds, in ns-2 what 15 digits of seconds say.
    pub at_ns: f64,
    /// The flow of its first packet.
    pub flow: usize,
    /// The number of its first packet.
    pub number: u64,
    /// Its size.
    pub bytes: u32,
}

/// What the last of 15 digits may be off, in nanoseconds.
const DIGITS_NS: f64 = 1e-4;

impl Leaving {
    /// Returns true if both are the same, with the time to the nanosecond.
    pub fn is_same(&self, other: &Self) -> bool {
        let apart_ns = (self.at_ns - other.at_ns).abs();
        apart_ns <= 0.5 + DIGITS_NS && Self { at_ns: other.at_ns, ..*self } == *other
    }
}

/// Reads a line `INGRESS TIME_S FLOW NUMBER BYTES`, as `validate/packets.awk` writes it.
///
/// # Errors
/// If it has another form.
pub fn parse_leaving(line: &str) -> Result<Leaving, BlocksError> {
    let read = || {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [ingress, at_s, flow, number, bytes] = words[..] else { return None };
        let at_s: f64 = at_s.parse().ok().filter(|&s: &f64| (0.0..1e6).contains(&s))?;
        Some(Leaving {
            ingress: ingress.parse().ok()?,
            at_ns: at_s * 1e9,
            flow: flow.parse().ok()?,
            number: number.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    };
    read().ok_or_else(|| BlocksError::Form(line.to_owned(), "INGRESS TIME_S FLOW NUMBER BYTES"))
}

/// Runs a point here, and shows each packet and block that leaves an ingress.
///
/// # Errors
/// If the network can't be simulated.
pub fn leaving(point: &Point, seed: u64, mut see: impl FnMut(Leaving)) -> Result<(), BlocksError> {
    let links = &point.plan.links;
    let ingress: Vec<Option<usize>> =
        links.iter().map(|link| (0..3).find(|n| link.name == format!("in{}", n + 1))).collect();
    World::new(&point.plan, seed)?.run_observed(|sighting| {
        if let Sighting::Packet(Seen { at_ns, link, flow, bytes, what, .. }) = *sighting
            && let Some(ingress) = ingress[link]
            && let What::Segment { number, .. } = what
        {
            see(Leaving { ingress, at_ns: at_ns as f64, flow, number, bytes });
        }
    });
    Ok(())
}
