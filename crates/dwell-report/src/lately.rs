//! What happened lately, in a few lines of a status.

use std::fmt::Write as _;

use crate::human;
use crate::status::{EventStatus, Status};

/// Events of the last hour, ...
const LATELY_NS: u64 = 3_600_000_000_000;
/// ... and so many of them, the latest ones.
const EVENTS_SHOWN_MAX: usize = 3;

/// Returns the latest events, the oldest first, or nothing if there are none. `now_unix_ns` is the time in
/// nanoseconds since 1970.
pub(crate) fn lately(status: &Status, now_unix_ns: u64) -> String {
    let is_of_interest = |event: &&EventStatus| {
        let is_shown_elsewhere = match &*event.kind {
            // As long as they last they stand above, with what helps.
            "problem" => lasts(status, event),
            "configuration" => status.configuration.refused.is_some(),
            _ => false,
        };
        !is_shown_elsewhere && now_unix_ns.saturating_sub(event.at_unix_ns) <= LATELY_NS
    };
    let mut latest: Vec<_> =
        status.events.iter().rev().filter(is_of_interest).take(EVENTS_SHOWN_MAX).collect();
    latest.reverse();
    let mut out = String::new();
    for event in latest {
        let begin = if out.is_empty() { "\nlately:\n" } else { "" };
        let ago = human::duration(now_unix_ns.saturating_sub(event.at_unix_ns));
        let first = event.text.lines().next().unwrap_or_default();
        // Writing to a string can't fail.
        let _ = writeln!(out, "{begin}  {ago} ago: {first}");
    }
    out
}

/// Returns true if a problem that began with an event is one still: what is known of it may have changed.
fn lasts(status: &Status, event: &EventStatus) -> bool {
    let of_node = [(&status.name, &status.problems)];
    let of_peers = status.peers.iter().map(|peer| (&peer.name, &peer.problems));
    of_node.into_iter().chain(of_peers).any(|(name, problems)| {
        problems
            .iter()
            .any(|problem| event.text.starts_with(&format!("{name}: {}: ", problem.problem)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ProblemStatus;

    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    fn event(seconds_ago: u64, kind: &str, text: &str) -> EventStatus {
        EventStatus {
            at_unix_ns: NOW_NS - seconds_ago * 1_000_000_000,
            kind: kind.to_owned(),
            text: text.to_owned(),
            ..EventStatus::default()
        }
    }

    #[test]
    fn the_last_three_of_an_hour_are_shown() {
        let mut status = Status { name: "a".into(), ..Status::default() };
        assert_eq!(lately(&status, NOW_NS), "");
        status.problems.push(ProblemStatus {
            problem: "no_answer".to_owned(),
            for_ns: 0,
            why: "of now".to_owned(),
            remedy: String::new(),
        });
        status.events = vec![
            event(3_601, "up", "too old"),
            event(600, "up", "one too many"),
            event(90, "restarted", "hub began again: it was restarted"),
            event(60, "problem", "a: no_answer: it stands above"),
            event(30, "solved", "hub: path_mtu is over"),
            event(5, "configuration", "the configuration file was refused: relay.toml\nmore"),
        ];
        let expected = "\nlately:\n  1 min 30 s ago: hub began again: it was restarted\n  \
                        30.00 s ago: hub: path_mtu is over\n  \
                        5.00 s ago: the configuration file was refused: relay.toml\n";
        assert_eq!(lately(&status, NOW_NS), expected);
        status.configuration.refused = Some("relay.toml".to_owned());
        assert!(!lately(&status, NOW_NS).contains("refused"), "that is said above");
        assert_eq!(lately(&status, NOW_NS + 2 * LATELY_NS), "");
        status.problems.clear();
        assert!(lately(&status, NOW_NS).contains("no_answer"), "nothing else says what is over");
        // The clock was set back since.
        assert!(lately(&status, NOW_NS - LATELY_NS).contains("0 ns ago: hub began again"));
    }
}
