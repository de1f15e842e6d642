//! The sentences that stand first in a status: whether the tunnels are up, what they save, what passes now,
//! and what is compressed or not, and why.

use std::fmt::Write as _;

use crate::human;
use crate::status::{PeerState, PeerStatus, RateSource, Saved, SavingsStatus, Status};

/// Peers that are described one by one; of more, only those with something to say.
const PEERS_MAX: usize = 8;
/// Classes and reasons in a line.
const LISTED_MAX: usize = 4;

/// Answers what an operator asks first. Ends with a line end.
pub fn answer(status: &Status) -> String {
    let mut out = states(status);
    if let Some(why) = about_the_file(status) {
        out = out + &why + "\n";
    }
    if status.peers.is_empty() {
        return out;
    }
    out += &savings(&status.savings);
    for peer in status.peers.iter().take(PEERS_MAX) {
        out += &traffic(peer);
        out += &compression(peer);
    }
    if let Some(more) = status.peers.len().checked_sub(PEERS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "and {more} more peers, see below");
    }
    out
}

/// Returns what is wrong with the configuration file, if something is: a line for each.
pub(crate) fn about_the_file(status: &Status) -> Option<String> {
    let refused = status.configuration.refused.as_ref().map(|why| {
        format!("the configuration file was refused, and the one before is in force: {why}")
    });
    let waits = status.configuration.waits_for_restart.as_ref();
    let waits =
        waits.map(|keys| format!("{keys}: what the configuration file says now needs a restart"));
    let said: Vec<String> = refused.into_iter().chain(waits).collect();
    (!said.is_empty()).then(|| said.join("\n"))
}

/// Returns which peers are up, and which are not.
fn states(status: &Status) -> String {
    let name = &status.name;
    let up = |peer: &&PeerStatus| peer.state == PeerState::Up;
    let count = status.peers.iter().filter(up).count();
    let mut out = match (count, status.peers.len()) {
        (_, 0) => return format!("{name} has no peers: `dwell invite` prints a line for one\n"),
        (1, 1) => {
            let peer = &status.peers[0];
            let time = human::duration(peer.state_for_ns);
            return format!("{name} is up: {} answers, for {time} now\n", peer.name);
        }
        (up, all) if up == all => return format!("{name} is up: all {all} peers answer\n"),
        (0, _) => format!("{name} is not up\n"),
        (up, all) => format!("{name} is up in part: {up} of {all} peers answer\n"),
    };
    for peer in status.peers.iter().filter(|peer| !up(peer)).take(PEERS_MAX) {
        let time = human::duration(peer.state_for_ns);
        let problems: Vec<_> = peer.problems.iter().map(|problem| &*problem.problem).collect();
        let why = match (problems.is_empty(), peer.endpoint.is_some()) {
            (false, _) => format!("{}, see below", problems.join(", ")),
            (true, true) => "no answer yet".to_owned(),
            (true, false) => {
                "it has not contacted this node, which knows no endpoint of it".to_owned()
            }
        };
        let _ = writeln!(out, "{} does not answer, for {time} now: {why}", peer.name);
    }
    out
}

fn savings(savings: &SavingsStatus) -> String {
    let days = human::count(savings.total_days);
    let (begin, end) = match (savings.kept, savings.total_days) {
        (false, _) => ("since the start", String::new()),
        (true, 0..=1) => ("in all", String::new()),
        (true, _) => ("in all", format!(" in {days} days")),
    };
    let SavingsStatus { today, days_30, total, .. } = savings;
    let mut parts = vec![format!("today {}", saved(*today))];
    if savings.kept {
        parts.push(format!("30 days {}", saved(*days_30)));
    }
    parts.push(format!("{begin} {}{end}", saved(*total)));
    if let Some(cost) = savings.cost_per_gb {
        let money = |saved: &Saved| saved.net_bytes() as f64 / 1e9 * cost;
        parts.push(format!(
            "{:.2} {} of it today, {:.2} in all",
            money(today),
            savings.currency,
            money(total)
        ));
    }
    format!("saved on the links from here: {}\n", parts.join("; "))
}

/// Bytes of which a share is shown. After a few pings it would be large, negative and of no meaning.
const SHARED_BYTES_MIN: u64 = 100_000;

/// `900.0 MB (45.0 %)`; negative if dwell costs more than it saves.
fn saved(saved: Saved) -> String {
    let net = saved.net_bytes();
    let sign = if net < 0 { "-" } else { "" };
    let bytes = human::bytes(net.unsigned_abs());
    match saved.plain_bytes {
        0 => format!("{sign}{bytes}"),
        plain @ ..SHARED_BYTES_MIN => format!("{sign}{bytes} of {}", human::bytes(plain)),
        plain => format!("{sign}{bytes} ({sign}{})", human::share(net.unsigned_abs(), plain)),
    }
}

fn traffic(peer: &PeerStatus) -> String {
    let Some(recent) = &peer.recent else { return String::new() };
    let name = &peer.name;
    let used = match (recent.utilisation_ppm, peer.rate_bps) {
        (Some(ppm), Some(rate)) => {
            format!(", {} of its {}", human::share(ppm, 1_000_000), human::rate(rate))
        }
        _ => ", whose rate is not known".to_owned(),
    };
    let p99 = peer.tx.sojourn.p99_ns_if_any().map(human::duration);
    let p99 = p99.map_or_else(String::new, |p99| format!(", 1 in 100 longer than {p99}"));
    format!(
        "to {name}: {} on the link{used}, for {} of packets; who comes now waits {}{p99}\n\
         from {name}: {} on the link, for {} of packets\n",
        human::rate(recent.link_bps),
        human::rate(recent.offered_bps),
        human::duration(peer.waiting_ns),
        human::rate(recent.received_link_bps),
        human::rate(recent.received_bps),
    )
}

/// Below this a link that drops datagrams is not busy by its configured rate, ...
const BUSY_PPM: u64 = 600_000;
/// ... and this is more than chance loses on most paths.
const LOSS_PPM: u64 = 20_000;
/// Fewer datagrams prove nothing.
const DATAGRAMS_MIN: u64 = 200;

/// Why a configured rate looks like more than the link carries, and what helps: full sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateDoubt {
    /// The facts.
    pub why: String,
    /// The advice.
    pub remedy: String,
}

/// Returns the doubt if a configured rate looks like more than the link carries: it drops, and should not be
/// busy. Nothing would wait here then, and nothing be compressed.
pub fn rate_doubt(peer: &PeerStatus) -> Option<RateDoubt> {
    let rate_bps = peer.rate_bps.filter(|_| peer.rate_source == RateSource::Configured)?;
    let used_ppm = peer.recent?.utilisation_ppm?;
    let loss =
        peer.tx.loss.filter(|loss| loss.ppm > LOSS_PPM && loss.datagrams >= DATAGRAMS_MIN)?;
    // Traffic that does not slow down keeps the link busy, and most of it is lost.
    let arrived_ppm = used_ppm * (1_000_000 - loss.ppm.min(1_000_000)) / 1_000_000;
    let though = match (used_ppm < BUSY_PPM, arrived_ppm < BUSY_PPM) {
        (true, _) => format!("though its link is only {} busy", human::share(used_ppm, 1_000_000)),
        (false, true) => format!("and only {} arrive", human::share(arrived_ppm, 1_000_000)),
        (false, false) => return None,
    };
    let why = format!(
        "{} of the datagrams to it are lost, {though} by the configured rate of {}: that looks like more than \
         the link carries. What is too much is lost on the path, and too little waits here to be compressed.",
        human::share(loss.lost, loss.datagrams),
        human::rate(rate_bps)
    );
    let remedy = "Write under rate what the link really carries, or rate = \"auto\". If it is right, look for what loses \
         datagrams on the path.";
    Some(RateDoubt { why, remedy: remedy.to_owned() })
}

/// Returns what is compressed and what is not, and why.
fn compression(peer: &PeerStatus) -> String {
    let (tx, name) = (&peer.tx, &peer.name);
    if tx.sent.packets == 0 {
        return String::new();
    }
    let mut classes: Vec<_> = peer.classes.iter().filter(|class| !class.backing_off).collect();
    classes.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let classes = classes.iter().filter(|class| class.ratio < 1.0).take(LISTED_MAX);
    let classes: Vec<_> = classes.map(|it| format!("{} to {:.2}", it.class, it.ratio)).collect();
    let learned = match classes.is_empty() {
        true => String::new(),
        false => format!(", best {}", classes.join(", ")),
    };
    let share = human::share(tx.compressed.packets, tx.sent.packets.max(tx.compressed.packets));
    let mut out = format!(
        "compressed for {name}: {share} of the packets, to {}{learned}\n",
        human::ratio(tx.compressed_ratio())
    );
    let mut reasons: Vec<(&str, u64)> =
        tx.bypassed.iter().map(|(reason, &count)| (explained(reason), count)).collect();
    reasons.push(("they did not become smaller", tx.not_smaller));
    reasons.retain(|(_, count)| *count > 0);
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let reasons: Vec<_> = reasons
        .iter()
        .take(LISTED_MAX)
        .map(|(reason, count)| format!("{} as {reason}", human::count(*count)))
        .collect();
    if !reasons.is_empty() {
        let _ = writeln!(out, "not compressed for {name}: {}", reasons.join("; "));
    }
    out
}

/// Returns the meaning of a reason for which packets are not compressed, as the end of a sentence.
pub fn explained(reason: &str) -> &str {
    match reason {
        "scheme" => "the scheme compresses nothing",
        "already_compressed" => "they came compressed",
        "exception" => "they are exceptions",
        "too_small" => "they are too small",
        "no_time" => "the link got to them first",
        "back_off" => "their flows do not shrink",
        "no_block" => "no block came together",
        "sparse" => "they came alone, or rarely",
        "random" => "they look encrypted or compressed",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;
    use crate::status::{ProblemStatus, RecentLoss, RecentTraffic};

    #[test]
    fn the_answer_of_a_node_that_works() {
        let expected = "\
site-a is up: hub answers, for 50 min 0 s now
saved on the links from here: today 900.0 MB (45.0 %); 30 days 8.0 GB (40.0 %); in all 40.0 GB (40.0 %) in 120 days; \
4.05 EUR of it today, 180.00 in all
to hub: 4.40 Mbit/s on the link, 44.0 % of its 10 Mbit/s, for 8 Mbit/s of packets; who comes now waits 7.2 ms, \
1 in 100 longer than 90.0 ms
from hub: 1 Mbit/s on the link, for 2 Mbit/s of packets
";
        let said = answer(&example());
        assert!(said.starts_with(expected), "{said}");
        assert!(
            said.contains("not compressed for hub: 150 as the link got to them first; 5 as"),
            "{said}"
        );
    }

    #[test]
    fn whoever_is_not_up_is_named_with_the_reason() {
        let peer = |name: &str, state, endpoint: Option<&str>, problem: Option<&str>| PeerStatus {
            name: name.to_owned(),
            state,
            state_for_ns: 180_000_000_000,
            endpoint: endpoint.map(str::to_owned),
            problems: problem
                .map(|problem| ProblemStatus { problem: problem.to_owned(), ..Default::default() })
                .into_iter()
                .collect(),
            ..PeerStatus::default()
        };
        let at = Some("192.0.2.1:7733");
        let mut status = Status {
            name: "a".to_owned(),
            peers: vec![
                peer("b", PeerState::Up, at, None),
                peer("c", PeerState::Connecting, at, Some("port_closed")),
                peer("d", PeerState::Down, None, None),
            ],
            ..Status::default()
        };
        let said = answer(&status);
        let expected = "\
a is up in part: 1 of 3 peers answer
c does not answer, for 3 min 0 s now: port_closed, see below
d does not answer, for 3 min 0 s now: it has not contacted this node, which knows no endpoint of it
";
        assert!(said.starts_with(expected), "{said}");
        status.peers.truncate(1);
        status.peers[0].state = PeerState::Down;
        assert!(
            answer(&status).starts_with("a is not up\nb does not answer"),
            "{}",
            answer(&status)
        );
        status.peers.clear();
        assert!(answer(&status).contains("dwell invite"));
        status.configuration.refused = Some("relay.toml:3: no".to_owned());
        assert!(
            answer(&status).contains("was refused, and the one before is in force: relay.toml:3")
        );
    }

    #[test]
    fn losses_are_shown_as_such() {
        let of = |plain_bytes, taken_bytes| saved(Saved { plain_bytes, taken_bytes });
        assert_eq!(of(100_000, 104_000), "-4.0 kB (-4.0 %)");
        assert_eq!(of(4_000, 4_800), "-800 B of 4.0 kB");
        assert_eq!(saved(Saved::default()), "0 B");
        let status = SavingsStatus { kept: false, total_days: 1, ..SavingsStatus::default() };
        assert_eq!(
            savings(&status),
            "saved on the links from here: today 0 B; since the start 0 B\n"
        );
        let unknown = PeerStatus {
            recent: Some(RecentTraffic { link_bps: 8, ..Default::default() }),
            ..PeerStatus::default()
        };
        assert!(traffic(&unknown).contains("whose rate is not known"));
    }

    #[test]
    fn a_rate_that_is_ten_times_too_high_is_doubted() {
        let mut peer = PeerStatus {
            rate_bps: Some(100_000_000),
            rate_source: RateSource::Configured,
            recent: Some(RecentTraffic { utilisation_ppm: Some(100_000), ..Default::default() }),
            ..PeerStatus::default()
        };
        assert_eq!(rate_doubt(&peer), None);
        peer.tx.loss = RecentLoss::of(1_000, 40);
        let said = rate_doubt(&peer).unwrap().why;
        assert!(said.starts_with("4.0 % of the datagrams to it are lost"), "{said}");
        assert!(said.contains("10.0 % busy") && said.contains("100 Mbit/s"), "{said}");
        let busy = RecentTraffic { utilisation_ppm: Some(950_000), ..Default::default() };
        assert_eq!(rate_doubt(&PeerStatus { recent: Some(busy), ..peer.clone() }), None);
        let mut flooded = PeerStatus { recent: Some(busy), ..peer.clone() };
        flooded.tx.loss = RecentLoss::of(1_000, 900);
        let said = rate_doubt(&flooded).unwrap().why;
        assert!(said.contains("lost, and only 9.5 % arrive by the configured rate"), "{said}");
        let measured = PeerStatus { rate_source: RateSource::Measured, ..peer.clone() };
        assert_eq!(rate_doubt(&measured), None);
        peer.tx.loss = RecentLoss::of(50, 40);
        assert_eq!(rate_doubt(&peer), None, "too few to say anything");
    }

    #[test]
    fn every_reason_is_explained() {
        for reason in dwell_policy::Bypass::ALL {
            assert_ne!(explained(reason.name()), reason.name());
        }
    }
}
