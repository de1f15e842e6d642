//! The keys of a link that say what befalls packets there, and of its managed queue.

use std::sync::Arc;

use crate::plan::{CoDel, Discipline, Jitter, Loss, Managed, Medium, Pie, Variation};
use crate::scenario::error::Errors;
use crate::scenario::lines;
use crate::scenario::section::Section;
use crate::scenario::source::{Inputs, LIKES, step};
use crate::scenario::tree::Value;
use crate::scenario::value;

/// The keys of a medium.
pub(super) const MEDIUM_KEYS: [&str; 8] = [
    "loss",
    "jitter",
    "jitter_kind",
    "rate_steps",
    "rate_repeat",
    "rate_file",
    "rate_walk",
    "observe",
];
/// The keys of managed queues.
pub(super) const QUEUE_KEYS: [&str; 8] =
    ["ecn", "target", "interval", "like", "quantum", "queues", "update", "burst"];

/// The kinds of managed queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedKind {
    CoDel,
    FqCoDel,
    Pie,
}

impl ManagedKind {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::CoDel => &["ecn", "target", "interval", "like"],
            Self::FqCoDel => &["ecn", "target", "interval", "like", "quantum", "queues"],
            Self::Pie => &["ecn", "target", "like", "update", "burst"],
        }
    }
}

/// Reports keys of managed queues that a queue of this kind does not have.
pub(super) fn refuse_others(kind: Option<ManagedKind>, link: &Section<'_>, errors: &mut Errors) {
    let own = kind.map_or(&[][..], ManagedKind::keys);
    for key in QUEUE_KEYS.iter().filter(|key| !own.contains(key)) {
        if link.has(key) {
            let message = "the queue of this link has no such key: it belongs to \"codel\", \
                           \"fq-codel\" or \"pie\" (docs/scenarios.md says which)";
            link.fail(key, message, errors);
        }
    }
}

/// Reads a managed queue.
pub(super) fn managed(
    kind: ManagedKind,
    packets: Option<u32>,
    link: &Section<'_>,
    errors: &mut Errors,
) -> Managed {
    let ecn = link.or("ecn", false, errors, value::truth);
    let time =
        |key, default, errors: &mut Errors| link.or(key, default, errors, value::some_time_ns);
    let codel = |errors: &mut Errors| {
        let default = CoDel::default();
        CoDel {
            target_ns: time("target", default.target_ns, errors),
            interval_ns: time("interval", default.interval_ns, errors),
            like: link.or("like", default.like, errors, |found| value::one_of(found, &LIKES)),
        }
    };
    let (discipline, most) = match kind {
        ManagedKind::CoDel => (Discipline::CoDel(codel(errors)), 1_000),
        ManagedKind::FqCoDel => {
            let codel = codel(errors);
            let quantum_bytes = link.or("quantum", 1_514, errors, value::packet_bytes);
            let queues = link.or("queues", 1_024, errors, |v| value::whole32(v, 1..=65_536));
            (Discipline::FqCoDel { codel, quantum_bytes, queues }, 10_240)
        }
        ManagedKind::Pie => {
            let default = Pie::default();
            let pie = Pie {
                target_ns: time("target", default.target_ns, errors),
                update_ns: time("update", default.update_ns, errors),
                burst_ns: link.or("burst", default.burst_ns, errors, value::time_ns),
                like: link.or("like", default.like, errors, |found| value::one_of(found, &LIKES)),
                ..default
            };
            (Discipline::Pie(pie), 1_000)
        }
    };
    Managed { packets: packets.unwrap_or(most), discipline, ecn }
}

/// Reads what befalls packets on a link.
pub(super) fn read(link: &Section<'_>, inputs: &mut Inputs<'_>, errors: &mut Errors) -> Medium {
    let medium = Medium {
        loss: link.get("loss", errors, loss),
        jitter: jitter(link, errors),
        variation: variation(link, inputs, errors),
        is_observed: link.or("observe", false, errors, value::truth),
    };
    if let Err(message) = crate::plan::medium::check(None, &medium) {
        link.fail_whole(message, errors);
    }
    medium
}

fn loss(found: &Value) -> Result<Loss, String> {
    let share = |value: &Value| value::number(value, 0.0..=1.0);
    let Value::Table(table) = found else { return share(found).map(Loss::Random) };
    const KEYS: [&str; 4] = ["to_bad", "to_good", "good", "bad"];
    if let Some((other, _)) = table.iter().find(|(name, _)| !KEYS.contains(name)) {
        return Err(format!("losses in bursts have `{}`, not `{other}`", KEYS.join("`, `")));
    }
    let part = |name: &str, default: Option<f64>| match (table.get(name), default) {
        (Some(located), _) => share(&located.value),
        (None, Some(default)) => Ok(default),
        (None, None) => {
            Err(format!("losses in bursts need `{name}`, as in {{ to_bad = 0.01, to_good = 0.3 }}"))
        }
    };
    let lost = (part("good", Some(0.0))?, part("bad", Some(1.0))?);
    Ok(Loss::Bursty { to_bad: part("to_bad", None)?, to_good: part("to_good", None)?, lost })
}

fn jitter(link: &Section<'_>, errors: &mut Errors) -> Option<Jitter> {
    let kinds = [("uniform", true), ("exponential", false)];
    let is_uniform = link.or("jitter_kind", true, errors, |found| value::one_of(found, &kinds));
    let ns = link.get("jitter", errors, value::some_time_ns)?;
    Some(if is_uniform { Jitter::Uniform(ns) } else { Jitter::Exponential(ns) })
}

fn variation(
    link: &Section<'_>,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Variation> {
    let given = ["rate_steps", "rate_file", "rate_walk"];
    let given: Vec<&str> = given.into_iter().filter(|key| link.has(key)).collect();
    if let [_, second, ..] = given[..] {
        link.fail(second, "a rate varies in one way only: remove one of the keys", errors);
        return None;
    }
    let repeat_ns = link.get("rate_repeat", errors, value::some_time_ns);
    let steps = match given.first().copied() {
        Some("rate_walk") => return link.get("rate_walk", errors, walk),
        Some("rate_steps") => {
            let example = "[{ at = \"1s\", rate = \"2mbit\" }]";
            link.list("rate_steps", example, errors, |found| step(found, "rate", bps))?
        }
        Some(key) => {
            let name = link.get(key, errors, value::text)?;
            match inputs.text(&name).and_then(|text| rates(&text)) {
                Ok(steps) => steps,
                Err(message) => {
                    link.fail(key, format!("{name}: {message}"), errors);
                    return None;
                }
            }
        }
        None if repeat_ns.is_some() => {
            link.fail(
                "rate_repeat",
                "there is nothing to repeat: add `rate_steps` or `rate_file`",
                errors,
            );
            return None;
        }
        None => return None,
    };
    if steps.is_empty() {
        link.fail("rate_steps", "there is no step in it: add one, or leave the key out", errors);
        return None;
    }
    // Until the first step the link has its own rate. A wrong one is reported where the link is read.
    let own = value::rate(&link.raw("rate")?.value).ok()?.as_bps();
    let first = steps.first().is_none_or(|&(at, _)| at > 0).then_some((0, own));
    let steps: Arc<[(u64, u64)]> = first.into_iter().chain(steps).collect();
    Some(Variation::Steps { steps, repeat_ns })
}

/// A rate that may be zero: an outage.
fn bps(found: &Value) -> Result<u64, String> {
    match found {
        Value::Text(text) if text.trim() == "0" => Ok(0),
        other => value::rate(other).map(|rate| rate.as_bps()),
    }
}

fn walk(found: &Value) -> Result<Variation, String> {
    let Value::Table(table) = found else {
        return Err(format!(
            "must be a table such as {{ sigma = 0.5 }}, not {}",
            found.described()
        ));
    };
    const KEYS: [&str; 5] = ["sigma", "step", "correlation", "least", "most"];
    if let Some((other, _)) = table.iter().find(|(name, _)| !KEYS.contains(name)) {
        return Err(format!("a rate that wanders has `{}`, not `{other}`", KEYS.join("`, `")));
    }
    let number = |name: &str, default: f64, range| match table.get(name) {
        Some(located) => value::number(&located.value, range),
        None => Ok(default),
    };
    let time = |name: &str, default: u64| match table.get(name) {
        Some(located) => value::some_time_ns(&located.value),
        None => Ok(default),
    };
    Ok(Variation::Walk {
        step_ns: time("step", 20_000_000)?,
        correlation_ns: time("correlation", 1_000_000_000)?,
        sigma: number("sigma", 0.5, 0.0..=5.0)?,
        bounds: (number("least", 0.05, 1e-6..=1.0)?, number("most", 4.0, 1.0..=1e6)?),
    })
}

/// Lines of `time in seconds, bits per second`.
fn rates(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (line_number, line) in lines::data(text) {
        let parsed = line.split_once(',').and_then(|(time, bps)| {
            let seconds: f64 = time.trim().parse().ok().filter(|s| (0.0..1e6).contains(s))?;
            let bps: f64 = bps.trim().parse().ok().filter(|bps| (0.0..1e13).contains(bps))?;
            Some(((seconds * 1e9).round() as u64, bps.round() as u64))
        });
        let Some(step) = parsed else {
            return Err(format!(
                "line {line_number} is no step: write its time in seconds, a comma and bits per second, as \
                 in 0.5,2000000"
            ));
        };
        if out.last().is_some_and(|&(before, _)| step.0 <= before) {
            return Err(format!("line {line_number} is not later than the one before"));
        }
        out.push(step);
    }
    if out.is_empty() {
        return Err("there is no step in it".to_owned());
    }
    Ok(out)
}
