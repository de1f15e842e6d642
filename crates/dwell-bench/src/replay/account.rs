//! The accounts of packets, by a relay and by the replay.

use anyhow::Context as _;
use dwell_report::status::TxStatus;
use dwell_report::{Column, Status, Table, human};
use serde::{Deserialize, Serialize};

use crate::sheet::Row;
use crate::statistics::median;

/// The account of the packets that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(super) arrived_packets: u64,
    pub(super) sent_packets: u64,
    pub(super) dropped_packets: u64,
    pub(super) saved_bytes: u64,
    pub(super) link_bytes: u64,
}

impl Account {
    pub(super) fn of(tx: &TxStatus) -> Self {
        Self {
            arrived_packets: tx.arrived.packets,
            sent_packets: tx.sent.packets,
            dropped_packets: tx.dropped_total().packets,
            saved_bytes: tx.saved_bytes(),
            link_bytes: tx.link_bytes,
        }
    }

    /// Returns the difference of two states of a relay with one peer.
    pub(super) fn between(before: &Status, after: &Status) -> anyhow::Result<Self> {
        let of = |status: &Status| Some(Self::of(&status.peers.first()?.tx));
        let (before, after) = of(before).zip(of(after)).context("the relay has no peer")?;
        Ok(Self {
            arrived_packets: after.arrived_packets - before.arrived_packets,
            sent_packets: after.sent_packets - before.sent_packets,
            dropped_packets: after.dropped_packets - before.dropped_packets,
            saved_bytes: after.saved_bytes - before.saved_bytes,
            link_bytes: after.link_bytes - before.link_bytes,
        })
    }
}

/// The two, for one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    pub(super) replayed: Account,
    /// The same with packets that were moved.
    pub(super) shaken: Vec<Account>,
    pub(super) relayed: Account,
    /// For how long the machine stood still while the relay sent.
    pub(super) stalled_ms: f64,
}

impl Agreement {
    pub(super) fn in_a_word(&self) -> String {
        let of = |of: fn(&Account) -> u64| {
            difference(of(&self.replayed) as f64, of(&self.relayed) as f64)
        };
        format!("drops {}, savings {}", of(|a| a.dropped_packets), of(|a| a.saved_bytes))
    }
}

type Field = (&'static str, fn(&Account) -> u64);

const FIELDS: [Field; 5] = [
    ("packets arrived", |account| account.arrived_packets),
    ("packets sent", |account| account.sent_packets),
    ("packets dropped", |account| account.dropped_packets),
    ("bytes saved", |account| account.saved_bytes),
    ("bytes on the link", |account| account.link_bytes),
];

/// All runs of each scheme: medians, and how far apart the two are in all runs together.
pub(super) fn report(rows: &[Row<'_, Agreement>]) -> String {
    let mut table = Table::new([
        Column::left("scheme"),
        Column::left("what"),
        Column::right("replay"),
        Column::right("moved"),
        Column::right("relay"),
        Column::right("min..max"),
        Column::right("apart"),
        Column::right("moved apart"),
    ]);
    for Row { name: scheme, runs } in rows {
        let runs = || runs.iter();
        for (what, of) in FIELDS {
            let replayed = || runs().map(|run| of(&run.replayed));
            let relayed = || runs().map(|run| of(&run.relayed));
            let middle = |values: &mut dyn Iterator<Item = u64>| {
                let value = median(values.map(|value| value as f64));
                value.map_or_else(|| human::NOTHING.to_owned(), |value| format!("{value:.0}"))
            };
            let Some(range) = range(relayed()) else { continue };
            let shaken = || runs().flat_map(|run| &run.shaken).map(of);
            table.row([
                scheme.clone(),
                what.to_owned(),
                middle(&mut replayed()),
                self::range(shaken()).unwrap_or_else(|| human::NOTHING.to_owned()),
                middle(&mut relayed()),
                range,
                apart(replayed(), relayed()),
                apart(shaken(), relayed()),
            ]);
        }
    }
    let mut text = table.to_text();
    text.push_str(
        "\nmedians and ranges; `apart` is how far the mean of the replays is from that of the relays: of \
         those of what arrived, and of those whose packets were moved\n",
    );
    let all = rows.iter().flat_map(|row| &row.runs);
    if let Some(stalled_ms) = all.map(|run| run.stalled_ms).reduce(f64::max) {
        text.push_str(&format!("the machine stood still for up to {stalled_ms:.0} ms in a run\n"));
    }
    text
}

fn range(values: impl Iterator<Item = u64> + Clone) -> Option<String> {
    Some(format!("{}..{}", values.clone().min()?, values.max()?))
}

/// Returns the distance of the mean of replays from the mean of runs.
fn apart(replayed: impl Iterator<Item = u64>, relayed: impl Iterator<Item = u64>) -> String {
    match mean(replayed).zip(mean(relayed)) {
        Some((replayed, relayed)) => difference(replayed, relayed),
        None => human::NOTHING.to_owned(),
    }
}

fn mean(values: impl Iterator<Item = u64>) -> Option<f64> {
    let values: Vec<u64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<u64>() as f64 / values.len() as f64)
}

/// Returns the distance of the replay from the relay.
fn difference(replayed: f64, relayed: f64) -> String {
    if relayed <= 0.0 {
        return if replayed <= 0.0 { human::NOTHING.to_owned() } else { "all".to_owned() };
    }
    format!("{:+.1} %", (replayed / relayed - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_runs_together_are_compared() {
        let account = |dropped_packets| Account { dropped_packets, ..Account::default() };
        let run = |replayed, relayed| Agreement {
            replayed: account(replayed),
            shaken: vec![account(replayed - 2), account(replayed + 8)],
            relayed: account(relayed),
            stalled_ms: replayed as f64,
        };
        let runs = [run(10, 8), run(12, 12), run(8, 16)];
        let text = report(&[Row { name: "edge".to_owned(), runs: runs.iter().collect() }]);
        let row = text.lines().find(|line| line.contains("dropped")).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells[3..], ["10", "6..20", "12", "8..16", "-16.7", "%", "+8.3", "%"]);
        assert!(text.ends_with("the machine stood still for up to 12 ms in a run\n"), "{text}");
        assert_eq!(difference(0.0, 0.0), human::NOTHING);
        assert_eq!(run(10, 8).in_a_word(), format!("drops +25.0 %, savings {}", human::NOTHING));
    }
}
