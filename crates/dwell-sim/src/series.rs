//! Series of a run by their names: time lines and distributions.
//!
//! Of a group G by time of sending: `G.delay_mean_s`, `G.delay_max_s`, `G.discard`, `G.late_share`, `G.offered_bps`,
//! `G.goodput_bps`, and `G.throughput_bps` by the time of the acknowledgement. Of a link L with a port, a managed
//! queue, a rate that varies, or that is observed: `L.queue_mean`, `L.rate_bps`, `L.dropped`. Distributions, as
//! numbers of values by value: `G.delay_s`, `G.excess_s`, `G.completion_s`, `L.wait_s`.

use crate::distribution::Distribution;
use crate::outcome::{Bin, GroupOutcome, LinkBin, Outcome, Tally};
use crate::plan::{Plan, Queue};

/// Pairs of x and y.
pub type Points = Vec<(f64, f64)>;

/// The value of a bin, whose width in seconds is given.
type OfBin<B> = fn(&B, f64) -> Option<f64>;

/// The time lines of groups.
const OF_GROUPS: [(&str, OfBin<Bin>); 7] = [
    ("delay_mean_s", |bin, _| share(bin.delay_sum_ns, bin.delivered).map(|ns| ns / 1e9)),
    ("delay_max_s", |bin, _| (bin.delivered > 0).then(|| bin.delay_max_ns as f64 / 1e9)),
    ("discard", |bin, _| share(bin.dropped, bin.sent)),
    ("late_share", |bin, _| share(bin.late, bin.delivered)),
    ("offered_bps", |bin, width_s| Some(bin.sent_bytes as f64 * 8.0 / width_s)),
    ("goodput_bps", |bin, width_s| Some(bin.delivered_bytes as f64 * 8.0 / width_s)),
    ("throughput_bps", |bin, width_s| Some(bin.acknowledged_bytes as f64 * 8.0 / width_s)),
];

/// The time lines of links.
const OF_LINKS: [(&str, OfBin<LinkBin>); 3] = [
    ("queue_mean", |bin, width_s| Some(bin.waiting_area as f64 / 1e9 / width_s)),
    ("rate_bps", |bin, width_s| Some(bin.sent_bytes as f64 * 8.0 / width_s)),
    ("dropped", |bin, _| Some(bin.dropped as f64)),
];

/// The distributions of groups and links.
const DISTRIBUTIONS: [&str; 3] = ["delay_s", "excess_s", "completion_s"];
const WAITS: &str = "wait_s";

/// Returns the series of a run by its name; none if there is none of this name.
pub fn series(outcome: &Outcome, bin_ns: Option<u64>, name: &str) -> Option<Points> {
    let (owner, quantity) = name.rsplit_once('.')?;
    if let Some(group) = outcome.groups.iter().find(|group| group.name == owner) {
        return of_group(group, quantity, bin_ns);
    }
    if let Some(port) = outcome.ports.iter().find(|port| port.name == owner) {
        return of_link(&port.bins, quantity, bin_ns?);
    }
    let link = outcome.links.iter().find(|link| link.name == owner)?;
    match quantity == WAITS {
        true => Some(distribution(&link.waits, &link.wait)),
        false => of_link(&link.bins, quantity, bin_ns?),
    }
}

/// Checks that runs of this plan have a series of this name.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check(plan: &Plan, name: &str) -> Result<(), String> {
    let unknown = || {
        let lines = OF_GROUPS.iter().map(|(name, _)| *name);
        let of_groups: Vec<&str> = lines.chain(DISTRIBUTIONS).collect();
        let lines = OF_LINKS.iter().map(|(name, _)| *name);
        let of_links: Vec<&str> = lines.chain([WAITS]).collect();
        format!(
            "there is no series \"{name}\": name a group of flows and one of {}, or a link with a port or \
             `observe = true` and one of {}",
            of_groups.join(", "),
            of_links.join(", ")
        )
    };
    let (owner, quantity) = name.rsplit_once('.').ok_or_else(unknown)?;
    let is_group = plan.groups.iter().any(|group| group.name == owner);
    let link = plan.links.iter().find(|link| link.name == owner);
    let is_port = link.is_some_and(|link| matches!(link.queue, Queue::Port(_)));
    let is_seen = link.is_some_and(|link| {
        let is_managed = matches!(link.queue, Queue::Managed(_));
        is_managed || link.medium.is_observed || link.medium.variation.is_some()
    });
    let is_line = (is_group && OF_GROUPS.iter().any(|(known, _)| *known == quantity))
        || ((is_port || is_seen) && OF_LINKS.iter().any(|(known, _)| *known == quantity));
    if is_line && plan.bin_ns.is_none() {
        return Err(format!(
            "\"{name}\" is a time line: say how wide its bins are, as in bin = \"100ms\""
        ));
    }
    let is_distribution = (is_group && DISTRIBUTIONS.contains(&quantity))
        || (!is_port && is_seen && quantity == WAITS);
    if is_line || is_distribution { Ok(()) } else { Err(unknown()) }
}

fn of_group(group: &GroupOutcome, quantity: &str, bin_ns: Option<u64>) -> Option<Points> {
    match quantity {
        "excess_s" => Some(excess(group)),
        "delay_s" => Some(distribution(&group.delays, &group.delay)),
        "completion_s" => Some(distribution(&group.completions, &group.completion)),
        _ => {
            let (_, value) = OF_GROUPS.iter().find(|(known, _)| *known == quantity)?;
            Some(line(&group.bins, bin_ns?, *value))
        }
    }
}

fn of_link(bins: &[LinkBin], quantity: &str, bin_ns: u64) -> Option<Points> {
    let (_, value) = OF_LINKS.iter().find(|(known, _)| *known == quantity)?;
    Some(line(bins, bin_ns, *value))
}

/// Values by the middle of their bins, in seconds.
fn line<B>(bins: &[B], bin_ns: u64, value: OfBin<B>) -> Points {
    let width_s = bin_ns as f64 / 1e9;
    let middle_s = |index: usize| (index as f64 + 0.5) * width_s;
    let bins = bins.iter().enumerate();
    bins.filter_map(|(index, bin)| Some((middle_s(index), value(bin, width_s)?))).collect()
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

fn distribution(values: &Distribution, tally: &Tally) -> Points {
    values.recorded(tally).map(|(ns, count)| (ns as f64 / 1e9, count as f64)).collect()
}

/// The packets in time, at zero, and by how much the others were late.
fn excess(group: &GroupOutcome) -> Points {
    let in_time = group.delivered.saturating_sub(group.late);
    let late = distribution(&group.excesses, &group.excess);
    std::iter::once((0.0, in_time as f64)).chain(late).collect()
}

#[cfg(test)]
mod tests {
    use crate::distribution::ERROR_MAX;

    use super::*;

    #[test]
    fn excesses_of_any_length_are_distinguished() {
        let mut group = GroupOutcome { name: "late".into(), delivered: 9, ..Default::default() };
        let excesses_ns = [50, 1_234, 9_000_000, 20_000_000, 3_000_000_000, 5_000_000_000];
        for ns in excesses_ns {
            group.late += 1;
            group.excess.add(ns);
            group.excesses.record(ns);
        }
        let outcome = Outcome { groups: vec![group], ..Outcome::default() };
        let points = series(&outcome, None, "late.excess_s").unwrap();
        assert_eq!((points.len(), points[0]), (7, (0.0, 3.0)));
        for (&(s, count), ns) in points[1..].iter().zip(excesses_ns) {
            let exact_s = ns as f64 / 1e9;
            assert!((s - exact_s).abs() <= exact_s * ERROR_MAX && count == 1.0, "{s} for {ns} ns");
        }
        // The ends are exact.
        assert_eq!((points[1].0, points[6].0), (50e-9, 5.0));
    }
}
