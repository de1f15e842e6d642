//! The most that a link and two relays' processors carry, by the linear programme, with the costs and ratios that were measured
//! beside it.
//!
//! What a contender costs and leaves is counted for a byte that the application received, with all that the relays do with it,
//! their work in the kernel included: of `none`, raw bytes; of the others, what they compressed, if that was most of it, without
//! what raw bytes beside it cost. So a point is a codec with a way to use it, and what no contender did is not in the programme.

use dwell_base::Rate;
use dwell_policy::method::{Bound, CodecPoint};

use super::record::Measured;
use super::sheet::{Row, figure};

/// Of a contender that compressed less than this part nothing is known of what is compressed.
const COMPRESSED_PART_MIN: f64 = 0.5;

/// What a byte costs the sending and the receiving relay, in nanoseconds of a processor, and the bytes on the link for it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    ends_ns: [f64; 2],
    ratio: f64,
}

/// The best mixture of what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    /// Bytes a second for the application.
    pub(super) rate: f64,
    /// What goes how, by contenders, and its part of the bytes.
    pub(super) parts: Vec<(String, f64)>,
}

impl Best {
    /// Finds it for a link of this rate, and relays that each have `quota` of a processor; none if `none` did not run.
    pub(super) fn of(rows: &[Row<'_, Measured>], link: Option<Rate>, quota: f64) -> Option<Self> {
        let raw = point_of(rows.iter().find(|row| row.name == "none")?, None)?;
        let names = rows.iter().filter(|row| row.name != "none");
        let others = names.filter_map(|row| Some((row.name.clone(), point_of(row, Some(raw))?)));
        let points: Vec<_> = std::iter::once(("none".to_owned(), raw)).chain(others).collect();
        let link = link.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 / 8.0);
        // Each end has a programme of its own: no mixture carries more than the lower one.
        let of_end = |end: usize| {
            let own =
                |(_, it): &(String, Point)| CodecPoint::new(it.ends_ns[end] / quota, it.ratio);
            Bound::of(link, &points.iter().map(own).collect::<Vec<_>>())
        };
        let bound = [0, 1].map(of_end).into_iter().min_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let named = points.into_iter().map(|(name, _)| name).zip(bound.shares);
        Some(Self { rate: bound.rate, parts: named.filter(|it| it.1 > 0.0).collect() })
    }

    pub(super) fn mbps(&self) -> f64 {
        self.rate * 8.0 / 1e6
    }

    /// Returns it as a line of a report.
    pub(super) fn line(&self) -> String {
        let part = |(name, part): &(String, f64)| format!("{:.0} % as {name}", 100.0 * part);
        let parts = self.parts.iter().map(part).collect::<Vec<_>>().join(", ");
        format!("bound {} Mbit/s: {parts}\n", figure(self.mbps()))
    }
}

fn point_of(row: &Row<'_, Measured>, raw: Option<Point>) -> Option<Point> {
    let all = Point {
        ends_ns: [
            row.median(|run| Some(run.cpu_ns?[0] as f64 / bytes(run)?))?,
            row.median(|run| Some(run.cpu_ns?[1] as f64 / bytes(run)?))?,
        ],
        ratio: row.median(|run| Some(run.link_bytes as f64 / bytes(run)?))?,
    };
    let Some(raw) = raw else { return Some(all) };
    let compressed = row.median(|run| {
        let relay = run.relay.as_ref()?;
        Some(relay.compressed_bytes as f64 / relay.sent_bytes.max(1) as f64)
    })?;
    let part = compressed.min(1.0);
    // What is left of it without the raw bytes.
    let own = |all: f64, raw: f64| ((all - (1.0 - part) * raw) / part).max(0.0);
    (part >= COMPRESSED_PART_MIN).then(|| Point {
        ends_ns: [0, 1].map(|end| own(all.ends_ns[end], raw.ends_ns[end])),
        ratio: own(all.ratio, raw.ratio),
    })
}

fn bytes(run: &Measured) -> Option<f64> {
    (run.application_bytes > 0).then_some(run.application_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::super::record::RelayAccounts;
    use super::*;

    /// A second in which so many bytes arrived that cost so much at each end, a part of them compressed.
    fn run(mb: u64, cost_ns: [u64; 2], link_part: f64, compressed: u64) -> Measured {
        let application_bytes = 1_000_000 * mb;
        let relay = RelayAccounts {
            sent_bytes: application_bytes,
            compressed_bytes: application_bytes * compressed / 100,
            ..RelayAccounts::default()
        };
        Measured {
            window_ns: 1_000_000_000,
            application_bytes,
            link_bytes: (application_bytes as f64 * link_part) as u64,
            cpu_ns: Some(cost_ns.map(|ns| ns * application_bytes)),
            relay: Some(relay),
            ..Measured::default()
        }
    }

    fn best(runs: &[(&str, Measured)], mbit: u64, quota: f64) -> Option<Best> {
        let rows: Vec<_> = runs
            .iter()
            .map(|(name, run)| Row { name: String::from(*name), runs: vec![run] })
            .collect();
        Best::of(&rows, Rate::from_bps(mbit * 1_000_000), quota)
    }

    #[test]
    fn a_thin_link_compresses_all_and_a_fast_one_what_there_is_time_for() {
        let runs = [
            ("off", Measured::default()),
            ("none", run(10, [10, 8], 1.1, 0)),
            ("packet/zstd:1", run(1, [25, 9], 0.8, 20)),
            ("auto/zstd:1", run(10, [30, 12], 0.5, 100)),
        ];
        let thin = best(&runs, 8, 0.25).unwrap();
        assert_eq!(thin.line(), "bound 16.0 Mbit/s: 100 % as auto/zstd:1\n");
        // 25 MB/s of raw bytes are what a quarter of a processor sends.
        let fast = best(&runs, 8_000, 0.25).unwrap();
        assert_eq!((fast.mbps(), fast.parts.len()), (200.0, 1));
        assert!(fast.line().ends_with(": 100 % as none\n"), "{}", fast.line());
        // Between them both limits are reached.
        let between = best(&runs, 120, 0.25).unwrap();
        assert!(between.parts.len() == 2 && between.mbps() > 8.0 * 15.0 / 1.1, "{between:?}");
        let [raw, compressed] = [between.parts[0].1, between.parts[1].1];
        assert!((between.rate * (raw * 10.0 + compressed * 30.0) / 0.25e9 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_raw_bytes_cost_is_not_taken_for_the_cost_of_compressed_ones() {
        let raw = run(10, [10, 8], 1.1, 0);
        let mixed = run(10, [20, 10], 0.8, 50);
        let row = |run| Row { name: String::new(), runs: vec![run] };
        let raw = point_of(&row(&raw), None).unwrap();
        let point = point_of(&row(&mixed), Some(raw)).unwrap();
        assert_eq!(point.ends_ns, [30.0, 12.0]);
        assert!((point.ratio - 0.5).abs() < 1e-9, "{point:?}");
    }

    #[test]
    fn the_receiver_can_be_the_limit_and_without_raw_bytes_nothing_is_known() {
        let runs = [("none", run(10, [10, 40], 1.1, 0))];
        assert_eq!(best(&runs, 8_000, 0.5).unwrap().mbps(), 100.0);
        assert_eq!(best(&runs[..0], 8_000, 0.5), None);
    }
}
