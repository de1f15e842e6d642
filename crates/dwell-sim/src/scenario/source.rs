//! The source of a flow: the keys of `[traffic]` and of the flows of a graph.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_base::Rate;

use crate::plan::{OnOff, RandomSource, Recording, TcpStart, Traffic};
use crate::tcp::{Flavour, Like, Reading, TcpConfig, WINDOW_MAX};

use super::error::Errors;
use super::lines;
use super::section::Section;
use super::tree::Value;
use super::value;

/// The kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// ns-2's exponential source.
    OnOff,
    /// Poisson arrivals.
    Poisson,
    /// Equal distances.
    Cbr,
    /// Packets as recorded.
    Trace,
    /// TCP with endless data.
    Tcp,
}

impl Kind {
    const ALL: [(&'static str, Self); 5] = [
        ("on-off", Self::OnOff),
        ("poisson", Self::Poisson),
        ("cbr", Self::Cbr),
        ("trace", Self::Trace),
        ("tcp", Self::Tcp),
    ];

    /// The keys that a source of this kind has, beside `kind`.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::OnOff => &["packet_bytes", "rate", "on", "off", "random"],
            Self::Poisson => &["packet_bytes", "rate", "steps"],
            Self::Cbr => &["packet_bytes", "rate", "start"],
            Self::Trace => &["file", "contents", "direction", "mtu"],
            Self::Tcp => &[
                "packet_bytes",
                "flavour",
                "window",
                "delayed_ack",
                "ecn",
                "like",
                "bytes",
                "rto_min",
                "read_rate",
                "read_every",
                "announced",
                "start",
                "start_until",
                "random",
            ],
        }
    }

    /// Returns where a key belongs, if it is that of another kind.
    pub(super) fn elsewhere(key: &str) -> Option<String> {
        let kinds: Vec<String> = Self::ALL
            .iter()
            .filter(|(_, kind)| kind.keys().contains(&key))
            .map(|(name, _)| format!("kind = \"{name}\""))
            .collect();
        (!kinds.is_empty()).then(|| format!("it belongs to {}", kinds.join(" and ")))
    }
}

/// The files that a scenario names. A function that returns texts has no captures.
pub trait Files {
    /// Reads a file as text; of a capture, the times and sizes of its packets.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    fn text(&self, name: &str) -> Result<String, String>;

    /// Reads the packets of a capture.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    fn recording(&self, name: &str, selection: &Selection) -> Result<Recording, String>;
}

impl<F: Fn(&str) -> Result<String, String>> Files for F {
    fn text(&self, name: &str) -> Result<String, String> {
        self(name)
    }

    fn recording(&self, _: &str, _: &Selection) -> Result<Recording, String> {
        Err("captures can't be read here".to_owned())
    }
}

/// The packets of a capture that a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Those of one direction of the captured link, 0 or 1, as an analysis finds them; all without.
    pub direction: Option<usize>,
    /// Longer ones are cut as their sender would have.
    pub mtu_bytes: usize,
}

/// Files that a scenario names, each read once.
pub(super) struct Inputs<'f> {
    files: &'f dyn Files,
    texts: BTreeMap<String, Arc<str>>,
    recordings: Vec<(String, Selection, Recording)>,
}

impl<'f> Inputs<'f> {
    pub(super) fn new(files: &'f dyn Files) -> Self {
        Self { files, texts: BTreeMap::new(), recordings: Vec::new() }
    }

    fn recording(&mut self, name: &str, selection: Selection) -> Result<Recording, String> {
        let known = self.recordings.iter().find(|it| it.0 == name && it.1 == selection);
        if let Some((.., recording)) = known {
            return Ok(recording.clone());
        }
        let recording = self.files.recording(name, &selection)?;
        if recording.times().is_empty() {
            return Err("it has no such packet".to_owned());
        }
        self.recordings.push((name.to_owned(), selection, recording.clone()));
        Ok(recording)
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Arc<str>, String> {
        if let Some(text) = self.texts.get(name) {
            return Ok(text.clone());
        }
        let text: Arc<str> = self.files.text(name)?.into();
        self.texts.insert(name.to_owned(), text.clone());
        Ok(text)
    }
}

/// Reads the `kind`.
pub(super) fn kind(section: &Section<'_>, errors: &mut Errors) -> Option<Kind> {
    section.need("kind", "\"poisson\"", errors, |found| value::one_of(found, &Kind::ALL))
}

/// Reads a source; `more` are keys of the section that are not the source's.
pub(super) fn read(
    section: &Section<'_>,
    more: &[&str],
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Traffic> {
    let kind = kind(section, errors)?;
    let keys: Vec<&str> = [&["kind"], kind.keys(), more].concat();
    section.refuse_unknown_but(&keys, Kind::elsewhere, errors);
    match kind {
        Kind::OnOff => on_off(section, errors),
        Kind::Poisson => poisson(section, errors),
        Kind::Cbr => cbr(section, errors),
        Kind::Trace => trace(section, inputs, errors),
        Kind::Tcp => tcp(section, errors),
    }
}

fn packet_bytes(section: &Section<'_>, errors: &mut Errors) -> Option<u32> {
    section.need("packet_bytes", "500", errors, value::packet_bytes)
}

fn rate(section: &Section<'_>, errors: &mut Errors) -> Option<Rate> {
    section.need("rate", "\"60mbit\"", errors, value::rate)
}

fn on_off(section: &Section<'_>, errors: &mut Errors) -> Option<Traffic> {
    let packet_bytes = packet_bytes(section, errors);
    let rate = rate(section, errors);
    let on = section.need("on", "\"250us\"", errors, value::some_time_ns);
    let off = section.need("off", "\"50us\"", errors, value::time_ns);
    let random = random(section, errors);
    Some(Traffic::OnOff(OnOff {
        packet_bytes: packet_bytes?,
        rate: rate?,
        on_ns: on? as f64,
        off_ns: off? as f64,
        random,
    }))
}

/// Reads how the receiver's program reads.
fn reading(section: &Section<'_>, config: &TcpConfig, errors: &mut Errors) -> Option<Reading> {
    let rate = section.get("read_rate", errors, value::rate);
    let every_ns = section.get("read_every", errors, value::some_time_ns);
    let announced_packets =
        section.get("announced", errors, |v| value::whole32(v, 1..=config.window_packets));
    let Some(rate) = rate else {
        if every_ns.is_some() {
            section.fail(
                "read_every",
                "says how often `read_rate` is made up for: set that, too",
                errors,
            );
        }
        if announced_packets.is_some() {
            let message = "says how much of its room a slow reader tells of: set `read_rate`, too";
            section.fail("announced", message, errors);
        }
        return None;
    };
    let data = config.segment_bytes.saturating_sub(config.header_bytes).max(1);
    let packet_ns = rate.transmission_ns(u64::from(data)).max(1);
    let every_ns = every_ns.unwrap_or(packet_ns);
    Some(Reading { packet_ns, every_ns, announced_packets })
}

/// Reads where random numbers come from. The number of a stream follows from the flow's place.
fn random(section: &Section<'_>, errors: &mut Errors) -> RandomSource {
    let sources = [("own", RandomSource::Own), ("ns-2", RandomSource::Ns2 { stream: 0 })];
    section.or("random", RandomSource::Own, errors, |found| value::one_of(found, &sources))
}

fn poisson(section: &Section<'_>, errors: &mut Errors) -> Option<Traffic> {
    let packet_bytes = packet_bytes(section, errors);
    let rate = rate(section, errors);
    let mut steps = vec![(0, rate?.as_bps() as f64)];
    if section.has("steps") {
        let later = section
            .list("steps", STEPS_EXAMPLE, errors, |found| step(found, "rate", value::rate))?;
        steps.extend(later.into_iter().map(|(at_ns, rate)| (at_ns, rate.as_bps() as f64)));
    }
    rising(section, &steps, errors)?;
    Some(Traffic::Poisson { packet_bytes: packet_bytes?, steps })
}

const STEPS_EXAMPLE: &str = "[{ at = \"1.3s\", rate = \"12gbit\" }]";

/// One step: `{ at = "1.3s", KEY = … }`.
pub(super) fn step<T>(
    found: &Value,
    key: &str,
    read: impl Fn(&Value) -> Result<T, String>,
) -> Result<(u64, T), String> {
    let Value::Table(table) = found else {
        return Err(format!(
            "a step is a table such as {{ at = \"1.3s\", {key} = … }}, not {}",
            found.described()
        ));
    };
    if let Some((other, _)) = table.iter().find(|(name, _)| *name != "at" && *name != key) {
        return Err(format!("a step has the keys `at` and `{key}`, not `{other}`"));
    }
    let part = |name: &str| {
        let missing = || format!("a step needs `{name}`, as in {{ at = \"1.3s\", {key} = … }}");
        table.get(name).map(|located| &located.value).ok_or_else(missing)
    };
    Ok((value::time_ns(part("at")?)?, read(part(key)?)?))
}

/// Returns true if the steps come in order of time.
pub(super) fn rising<T>(
    section: &Section<'_>,
    steps: &[(u64, T)],
    errors: &mut Errors,
) -> Option<()> {
    // The first one is what there is without any.
    if section.has("steps") && steps.len() < 2 {
        section.fail("steps", "there is no step in it: add one, or leave the key out", errors);
        return None;
    }
    if steps.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        return Some(());
    }
    section.fail("steps", "their times `at` must rise, beginning after \"0s\"", errors);
    None
}

fn cbr(section: &Section<'_>, errors: &mut Errors) -> Option<Traffic> {
    let packet_bytes = packet_bytes(section, errors);
    let rate = rate(section, errors);
    let start_ns = section.or("start", 0, errors, value::time_ns);
    Some(Traffic::Cbr { packet_bytes: packet_bytes?, rate: rate?, start_ns })
}

fn trace(section: &Section<'_>, inputs: &mut Inputs<'_>, errors: &mut Errors) -> Option<Traffic> {
    let name = section.need("file", "\"packets.csv\"", errors, value::text)?;
    let read = match section.or("contents", false, errors, value::truth) {
        true => {
            let selection = selection(section, errors);
            inputs.recording(&name, selection).map(Traffic::Recorded)
        }
        false => {
            for key in ["direction", "mtu"].into_iter().filter(|key| section.has(key)) {
                section.fail(key, "belongs to packets with contents = true", errors);
            }
            inputs.text(&name).and_then(|text| packets(&text)).map(|it| Traffic::Trace(it.into()))
        }
    };
    match read {
        Ok(traffic) => Some(traffic),
        Err(message) => {
            section.fail("file", format!("{name}: {message}"), errors);
            None
        }
    }
}

fn selection(section: &Section<'_>, errors: &mut Errors) -> Selection {
    let directions = [("both", None), ("forward", Some(0)), ("backward", Some(1))];
    let direction =
        section.or("direction", None, errors, |found| value::one_of(found, &directions));
    let mtu = section.or("mtu", MTU_MAX, errors, |v| value::whole32(v, MTU_MIN..=MTU_MAX));
    Selection { direction, mtu_bytes: mtu as usize }
}

/// The least that a packet may be cut to: IPv6 must fit.
const MTU_MIN: u32 = 1280;
/// The longest IP packet.
const MTU_MAX: u32 = 65_535;

/// Lines of `time in seconds, size in bytes`.
fn packets(text: &str) -> Result<Vec<(u64, u32)>, String> {
    let mut out: Vec<(u64, u32)> = Vec::new();
    for (line_number, line) in lines::data(text) {
        let Some((time_ns, bytes)) = packet(line) else {
            return Err(format!(
                "line {line_number} is no packet: write its time in seconds, a comma and its \
                 size in bytes, as in 0.000125,500"
            ));
        };
        if out.last().is_some_and(|&(before, _)| time_ns < before) {
            return Err(format!("line {line_number} is earlier than the one before: sort by time"));
        }
        out.push((time_ns, bytes));
    }
    if out.is_empty() {
        return Err("there is no packet in it".to_owned());
    }
    Ok(out)
}

fn packet(line: &str) -> Option<(u64, u32)> {
    let (time, bytes) = line.split_once(',')?;
    let seconds: f64 = time.trim().parse().ok()?;
    let bytes: u32 = bytes.split(',').next()?.trim().parse().ok()?;
    let is_sound = (0.0..1e6).contains(&seconds) && (1..=65_535).contains(&bytes);
    is_sound.then(|| ((seconds * 1e9).round() as u64, bytes))
}

/// The flavours of TCP, by their names in scenarios.
const FLAVOURS: [(&str, Flavour); 4] = [
    ("sack1", Flavour::Sack1),
    ("newreno", Flavour::NewReno),
    ("cubic", Flavour::Cubic),
    ("bbr", Flavour::Bbr),
];

/// What CUBIC, BBR and `CoDel` may be like.
pub(super) const LIKES: [(&str, Like); 3] =
    [("rfc", Like::Rfc), ("linux", Like::Linux), ("ns-3", Like::Ns3)];

/// The most bytes of a transfer.
const TRANSFER_MAX: u64 = 1 << 40;

fn tcp(section: &Section<'_>, errors: &mut Errors) -> Option<Traffic> {
    let flavour =
        section.or("flavour", Flavour::Sack1, errors, |found| value::one_of(found, &FLAVOURS));
    let mut config = TcpConfig::of(flavour);
    let bytes = section.get("packet_bytes", errors, value::packet_bytes);
    config.segment_bytes = bytes.unwrap_or(config.segment_bytes);
    let window = section.get("window", errors, |v| value::whole32(v, 1..=WINDOW_MAX));
    config.window_packets = window.unwrap_or(config.window_packets);
    config.delayed_ack_ns = section.get("delayed_ack", errors, value::some_time_ns);
    config.ecn = section.or("ecn", false, errors, value::truth);
    config.like = section.or("like", Like::Rfc, errors, |found| value::one_of(found, &LIKES));
    if let Some(least_ns) = section.get("rto_min", errors, value::some_time_ns) {
        config.rto_min_ns = least_ns;
        config.rto_max_ns = config.rto_max_ns.max(least_ns);
    }
    let bytes = section.get("bytes", errors, |v| value::whole(v, 1..=TRANSFER_MAX));
    config.reading = reading(section, &config, errors);
    let data = config.segment_bytes.saturating_sub(config.header_bytes).max(1);
    // Packet 0 is the SYN.
    config.packets = bytes.map(|bytes| bytes.div_ceil(u64::from(data)) + u64::from(config.syn));
    let from_ns = section.or("start", 0, errors, value::time_ns);
    let until_ns = section.or("start_until", from_ns, errors, value::time_ns);
    if until_ns < from_ns {
        section.fail("start_until", "must not be earlier than `start`", errors);
        return None;
    }
    if let Err(error) = config.check() {
        section.fail_whole(error.to_string(), errors);
        return None;
    }
    let random = random(section, errors);
    Some(Traffic::Tcp(config, TcpStart { between_ns: (from_ns, until_ns), random }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_times_and_sizes() {
        assert_eq!(
            packets("time,bytes\n0.5,100\n\n1.25, 200,extra\n"),
            Ok(vec![(500_000_000, 100), (1_250_000_000, 200)])
        );
        assert!(packets("1,100\n0.5,100\n").unwrap_err().contains("line 2 is earlier"));
        assert!(packets("0,100\nx,y\n").unwrap_err().contains("line 2 is no packet"));
        // A first line that begins with a number is no heading.
        assert!(packets("0,0\n0,1\n").unwrap_err().contains("line 1 is no packet"));
        for bad in ["0.5;100\n", "1.0 100\n2,100\n"] {
            assert!(
                packets(bad).is_err_and(|error| error.contains("line 1 is no packet")),
                "{bad}"
            );
        }
        assert!(packets("time,bytes\n").unwrap_err().contains("no packet in it"));
    }

    #[test]
    fn keys_of_other_kinds_are_recognised() {
        assert_eq!(Kind::elsewhere("on"), Some("it belongs to kind = \"on-off\"".to_owned()));
        assert_eq!(Kind::elsewhere("onn"), None);
    }
}
