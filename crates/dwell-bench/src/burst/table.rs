//! The tables, a row for each contender.

use super::super::record::Run;
use super::super::runner;
use super::super::sheet::{self, Figure, Of, figure, whole};
use super::{Arrived, Burst};

pub(super) fn report(runs: &[Run<Burst>]) -> String {
    let mut text = String::new();
    for place in runner::places(runs) {
        let rows = runner::rows(runs, place);
        text +=
            &format!("\n{}\n\n{}", place.link, sheet::table("through", rows, figures()).to_text());
    }
    text
}

fn figures<'a>() -> Vec<Figure<'a, Arrived>> {
    let seconds = |ns: u64| Some(ns as f64 / 1e9);
    let kb = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1e3);
    vec![
        Figure::new("answered", Of::Median, whole, |it: &Arrived| Some(f64::from(it.answered))),
        Figure::new("all", Of::Median, figure, move |it: &Arrived| seconds(it.took_ns)).unit("s"),
        Figure::new("least..most", Of::Span, figure, move |it: &Arrived| seconds(it.took_ns))
            .unit("s"),
        Figure::new("first byte", Of::Median, figure, move |it: &Arrived| {
            seconds(it.first_byte_p50_ns)
        })
        .unit("s"),
        Figure::new("p99", Of::Median, figure, move |it: &Arrived| seconds(it.first_byte_p99_ns))
            .unit("s"),
        Figure::new("longest", Of::Most, figure, move |it: &Arrived| seconds(it.first_byte_max_ns))
            .unit("s"),
        Figure::new("open", Of::Median, whole, |it: &Arrived| Some(f64::from(it.held))),
        Figure::of_both("at most, out, in", figure, move |it: &Arrived, end| {
            kb(it.each(it.peak_bytes, end))
        })
        .unit("kB each"),
        Figure::of_both("idle, out, in", figure, move |it: &Arrived, end| {
            kb(it.each(it.idle_bytes, end))
        })
        .unit("kB each"),
        Figure::of_both("CPU out, in", figure, |it: &Arrived, end| {
            it.cpu_ns.map(|ns| ns[end] as f64 / 1e9)
        })
        .unit("s"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Conditions, Place};
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn memory_is_what_came_for_each_connection() {
        let conditions = Conditions { connections: 10, held: 5, idle_ns: 1, proxy: Vec::new() };
        let arrived = Arrived {
            answered: 10,
            held: 5,
            took_ns: 2_000_000_000,
            first_byte_p50_ns: 1_000_000_000,
            first_byte_p99_ns: 1_500_000_000,
            first_byte_max_ns: 1_900_000_000,
            before_bytes: Some([1_000_000, 2_000_000]),
            peak_bytes: Some([1_300_000, 2_400_000]),
            idle_bytes: Some([1_100_000, 2_150_000]),
            cpu_ns: Some([500_000_000, 250_000_000]),
        };
        let place = Place { link: "unlimited".parse().unwrap() };
        let text = report(&[record::<Burst>(conditions, place, ("dwell proxy", 0), arrived)]);
        let row = text.lines().find(|line| line.contains("dwell proxy")).unwrap_or_default();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected =
            "dwell proxy 10 2.00 2.00..2.00 1.00 1.50 1.90 5 60.0, 80.0 20.0, 30.0 0.50, 0.25";
        assert_eq!(row.join(" "), expected, "{text}");
    }
}
