//! The tables, a row for each contender in each cell, and the verdict.

use std::time::Duration;

use dwell_report::{Column, Table};

use super::super::carriers::Carrier;
use super::super::record::Run;
use super::super::runner;
use super::super::sheet::{Row, figure, nothing, shown};
use super::{Place, Served, Services};

/// From this round trip on the proxies are to have this share of what plain TCP has; below it, as much as the better of
/// those that encrypt and don't compress.
const FAR: Duration = Duration::from_millis(5);
const FAR_GOAL: f64 = 0.95;
const NEAR_GOAL: f64 = 1.0;

pub(super) fn report(runs: &[Run<Services>]) -> String {
    let places = runner::places(runs);
    let mut links = Vec::new();
    for place in &places {
        if !links.contains(&place.link) {
            links.push(place.link);
        }
    }
    let mut text = String::new();
    for link in links {
        let mut table = Table::new(columns());
        for place in places.iter().filter(|place| place.link == link) {
            let rows = runner::rows(runs, place);
            rows.iter().for_each(|row| table.row(cells(place, row, &rows)));
        }
        text.push_str(&format!("\n{link}\n\n{}", table.to_text()));
    }
    text + &verdict(runs, &places)
}

fn columns() -> Vec<Column> {
    let mut columns = vec![Column::left("task"), Column::right("clients"), Column::left("through")];
    columns.extend(["per second", "least..most", "/plain"].map(Column::right));
    columns.extend(["median", "p99"].map(|name| Column::right(name).unit("ms")));
    columns.push(Column::right("link").unit("B each"));
    columns.extend(["CPU out", "CPU in"].map(|name| Column::right(name).unit("us each")));
    columns
}

fn cells(place: &Place, row: &Row<'_, Served>, rows: &[Row<'_, Served>]) -> Vec<String> {
    let median = |value: fn(&Served) -> f64| shown(row.median(|run| Some(value(run))), figure);
    let span = row.summary(|run| Some(run.per_second()));
    let share = of(rows, Carrier::Plain).zip(of_row(row)).map(|(plain, own)| own / plain);
    let cpu = |end| shown(row.median(|run| run.cpu_each_ns(end)), |ns| figure(ns / 1e3));
    vec![
        place.task.to_string(),
        place.clients.to_string(),
        row.name.clone(),
        median(Served::per_second),
        span.map_or_else(nothing, |it| format!("{}..{}", figure(it.min), figure(it.max))),
        shown(share, figure),
        median(|run| run.took_p50_ns as f64 / 1e6),
        median(|run| run.took_p99_ns as f64 / 1e6),
        median(Served::link_bytes_each),
        cpu(0),
        cpu(1),
    ]
}

fn of_row(row: &Row<'_, Served>) -> Option<f64> {
    row.median(|run| Some(run.per_second()))
}

fn of(rows: &[Row<'_, Served>], carrier: Carrier) -> Option<f64> {
    let name = carrier.to_string();
    of_row(rows.iter().find(|row| row.name == name)?)
}

/// What the proxies have, as a share of what they are to be compared with.
fn share(place: &Place, rows: &[Row<'_, Served>]) -> Option<f64> {
    let other = match is_far(place) {
        true => of(rows, Carrier::Plain),
        false => {
            let both = [Carrier::Stunnel, Carrier::HaProxy];
            both.into_iter().filter_map(|one| of(rows, one)).max_by(f64::total_cmp)
        }
    };
    Some(of(rows, Carrier::Proxy)? / other?)
}

fn is_far(place: &Place) -> bool {
    place.link.round_trip() >= FAR
}

fn verdict(runs: &[Run<Services>], places: &[&Place]) -> String {
    let mut text = String::new();
    for (far, what, goal) in [
        (
            false,
            "below 5 ms of round trip: at least as many as the better of stunnel and HAProxy",
            NEAR_GOAL,
        ),
        (true, "from 5 ms of round trip on: at least 0.95 of plain TCP's", FAR_GOAL),
    ] {
        let here = places.iter().filter(|place| is_far(place) == far);
        let shares =
            here.filter_map(|place| Some((share(place, &runner::rows(runs, place))?, place)));
        let shares: Vec<_> = shares.collect();
        let Some((worst, at)) = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        let kept = shares.iter().filter(|(share, _)| *share >= goal).count();
        let at = <Services as super::Bench>::place(at);
        text.push_str(&format!(
            "\n{what} in {kept} of {} cells; {worst:.2} at worst ({at})\n",
            shares.len(),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Conditions;
    use super::super::task::Task;
    use super::*;
    use crate::record::tests::record;

    fn run(link: &str, who: Carrier, count: u64) -> Run<Services> {
        let conditions =
            Conditions { seconds: 1.0, size_bytes: 1, longest_ns: 1, seed: 1, proxy: Vec::new() };
        let place = Place { link: link.parse().unwrap(), task: Task::Point, clients: 8 };
        let served = Served {
            count,
            window_ns: 1_000_000_000,
            took_p50_ns: 1_500_000,
            took_p99_ns: 3_000_000,
            link_bytes: 500 * count,
            cpu_ns: (who != Carrier::Plain).then_some([10_000 * count, 20_000 * count]),
        };
        record::<Services>(conditions, place, (&who.to_string(), 0), served)
    }

    #[test]
    fn the_proxies_are_compared_with_what_they_replace() {
        use Carrier::{HaProxy, Plain, Proxy, Stunnel};
        let near = [(Plain, 2000), (Proxy, 900), (Stunnel, 800), (HaProxy, 1000)];
        let far = [(Plain, 100), (Proxy, 95), (Stunnel, 99), (HaProxy, 99)];
        let runs = |link, all: [(Carrier, u64); 4]| all.map(|(who, count)| run(link, who, count));
        let runs = [runs("unlimited", near), runs("20mbit/10ms", far)].concat();
        let text = report(&runs);
        let row = text.lines().find(|line| line.contains("dwell proxy")).unwrap_or_default();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected = "point 8 dwell proxy 900 900..900 0.45 1.50 3.00 500 10.0 20.0";
        assert_eq!(row.join(" "), expected, "{text}");
        assert!(text.contains("stunnel and HAProxy in 0 of 1 cells; 0.90 at worst"), "{text}");
        assert!(text.contains("plain TCP's in 1 of 1 cells; 0.95 at worst"), "{text}");
    }
}
