//! The verdict on the runs, against what is promised and what the papers say.

use std::fmt::Write as _;

use super::record::Setting;
use super::results::{Results, is_mixing};
use super::table::heading;

/// Hull mixing carries at least this share of what the best simple strategy does.
const OF_BEST_MIN: f64 = 0.98;
/// And of the bound of all codecs.
const OF_BOUND_MIN: f64 = 0.9;
/// Mixing in one thread stays within 6 % of the Estimated Maximum.
const OF_ESTIMATE_MIN: f64 = 0.94;
/// The number of the worst that are named.
const NAMED: usize = 8;

/// The share of something that is reached in a field.
struct Share {
    share: f64,
    what: String,
}

/// Everything that there are runs for.
pub(super) fn all(fields: &[Results<'_>]) -> String {
    let mut text = String::from("\nVerdict\n");
    for (title, min, shares) in [
        (
            "hull, of the best of raw, all compressed and mixing with one codec",
            OF_BEST_MIN,
            hull_of_best(fields),
        ),
        ("hull, of the bound of all codecs", OF_BOUND_MIN, hull_of(fields, |f| f.bound(None))),
        (
            "hull, of that bound with the cost of sending",
            OF_BOUND_MIN,
            hull_of(fields, |f| f.bound_with_sending()),
        ),
        ("mix, of the Estimated Maximum", OF_ESTIMATE_MIN, mix_of_estimate(fields)),
        ("switch, of the better of raw and all compressed", 1.0, switch_of_better(fields)),
    ] {
        text.push_str(&reported(title, min, shares));
    }
    text.push_str(&blocks(fields));
    text.push_str(&units(fields));
    text
}

/// Returns how many reach what is promised, and which ones miss it most.
fn reported(title: &str, min: f64, mut shares: Vec<Share>) -> String {
    if shares.is_empty() {
        return String::new();
    }
    shares.sort_by(|a, b| a.share.total_cmp(&b.share));
    let reach = shares.iter().filter(|share| share.share >= min).count();
    let middle = shares[shares.len() / 2].share;
    let mut text = format!(
        "\n{title}: {reach} of {} at {min} or more; least {:.3}, median {middle:.3}\n",
        shares.len(),
        shares[0].share,
    );
    for Share { share, what } in shares.iter().take_while(|it| it.share < min).take(NAMED) {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {share:.3}  {what}");
    }
    text
}

fn hull_of_best(fields: &[Results<'_>]) -> Vec<Share> {
    let of = |field: &Results<'_>| {
        let (hull, (name, best)) = (field.goodput("hull")?, field.best_simple()?);
        let other = field.goodput(name)?;
        let overlap = if hull.high >= other.low { "; their middle halves overlap" } else { "" };
        let what = format!("{}: {name} is better{overlap}", heading(field));
        Some(Share { share: hull.median / best, what })
    };
    fields.iter().filter_map(of).collect()
}

fn hull_of(fields: &[Results<'_>], bound: impl Fn(&Results<'_>) -> Option<f64>) -> Vec<Share> {
    let of = |field: &Results<'_>| {
        Some(Share { share: field.rate_of("hull")? / bound(field)?, what: heading(field) })
    };
    fields.iter().filter_map(of).collect()
}

fn mix_of_estimate(fields: &[Results<'_>]) -> Vec<Share> {
    each(fields, is_mixing, |field, contender| field.bound(Some(field.codec_of(contender)?)))
}

fn switch_of_better(fields: &[Results<'_>]) -> Vec<Share> {
    each(
        fields,
        |contender| contender.starts_with("switch/"),
        |field, contender| {
            let all = contender.replace("switch/", "all/");
            let better = field.best_of(|it| it == all || it == "raw" || it == "plain");
            better.filter(|_| field.rate_of(&all).is_some()).map(|(_, best)| best)
        },
    )
}

/// For all contenders of a kind what they reach of something, in all fields that are as usual.
fn each(
    fields: &[Results<'_>],
    takes_part: impl Fn(&str) -> bool,
    whole: impl Fn(&Results<'_>, &str) -> Option<f64>,
) -> Vec<Share> {
    let mut shares = Vec::new();
    for field in fields.iter().filter(|field| field.setting == Setting::default()) {
        for contender in field.contenders().into_iter().filter(|it| takes_part(it)) {
            if let (Some(rate), Some(whole)) = (field.rate_of(contender), whole(field, contender)) {
                let what = format!("{contender}: {}", heading(field));
                shares.push(Share { share: rate / whole, what });
            }
        }
    }
    shares
}

/// Which block length was best for each contender.
fn blocks(fields: &[Results<'_>]) -> String {
    let mut text = String::new();
    for field in fields {
        let same = |other: &&Results<'_>| {
            let at = |f: &Results<'_>| {
                (f.setting.buffer_bytes, f.setting.competing, f.setting.delay_ns, f.rate)
            };
            at(other) == at(field) && other.workload == field.workload
        };
        let of: Vec<_> = fields.iter().filter(same).collect();
        let is_first = of.first().is_some_and(|first| std::ptr::eq(*first, field));
        if of.len() < 2 || !is_first {
            continue;
        }
        for contender in field.contenders().into_iter().filter(|&it| it != "plain") {
            let rates = of.iter().filter_map(|f| Some((f.rate_of(contender)?, f.setting)));
            let best = rates.max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, setting)) = best
                && of.iter().filter(|f| f.rate_of(contender).is_some()).count() > 1
            {
                let (kib, what) = (setting.block_bytes >> 10, field.workload);
                let _ = writeln!(text, "  {kib} KiB  {contender}: {what}, {}", field.rate);
            }
        }
    }
    if text.is_empty() { text } else { format!("\nthe best block length\n{text}") }
}

/// Returns the savings of TCPComp.
fn units(fields: &[Results<'_>]) -> String {
    let mut text = String::new();
    for field in fields {
        let Some(ours) = field.contenders().into_iter().find(|it| it.starts_with("tcpcomp/"))
        else {
            continue;
        };
        let kernel = ours.replace("tcpcomp/", "kernel-level/");
        let segments = |contender: &str| {
            field.account(contender, |s| dwell_base::share(s.tcp_segments, s.framed_bytes))
        };
        let each = field.account(ours, |s| dwell_base::share(s.tcp_segments, s.segments));
        let efficiency = |contender: &str| field.account(contender, |s| Some(s.efficiency));
        let of = |figure: &dyn Fn(&str) -> Option<f64>, other: &str| {
            let share = figure(ours).zip(figure(other)).map(|(a, b)| 100.0 * (a / b - 1.0));
            share.map_or_else(|| "?".to_owned(), |percent| format!("{percent:+.1} %"))
        };
        let time = |contender: &str| field.rate_of(contender).map(f64::recip);
        let failures = field.account(ours, |s| Some(s.failures as f64)).unwrap_or(0.0);
        let _ = writeln!(
            text,
            "  {}: segments {} against plain, {} against kernel-level, {:.3} for each unit; efficiency \
             {:.2}, {:.2} of kernel-level; time {} against plain, {} against kernel-level; {failures:.0} failures",
            heading(field),
            of(&segments, "plain"),
            of(&segments, &kernel),
            each.unwrap_or(0.0),
            efficiency(ours).unwrap_or(0.0),
            efficiency(&kernel).unwrap_or(0.0),
            of(&time, "plain"),
            of(&time, &kernel),
        );
    }
    if text.is_empty() { text } else { format!("\nTCPComp\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::super::results::{self, tests::run};
    use super::*;

    fn verdict(runs: &[super::super::record::StreamRun]) -> String {
        all(&results::fields(runs))
    }

    #[test]
    fn what_is_missed_is_named() {
        let good = [run("plain", 100), run("mix/deflate", 140), run("hull", 160)];
        let text = verdict(&good);
        assert!(text.contains("one codec: 1 of 1 at 0.98"), "{text}");
        assert!(text.contains("Estimated Maximum: 1 of 1 at 0.94"), "{text}");
        assert!(!text.contains("is better"), "{text}");
        let bad = [run("plain", 100), run("all/lz4", 160), run("hull", 150), run("switch/lz4", 80)];
        let text = verdict(&bad);
        assert!(text.contains("one codec: 0 of 1 at 0.98 or more; least 0.938"), "{text}");
        assert!(text.contains("0.938  text, 100 Mbit/s: all/lz4 is better\n"), "{text}");
        assert!(text.contains("0.500  switch/lz4: text, 100 Mbit/s"), "{text}");
    }

    #[test]
    fn segments_are_compared() {
        let mut runs =
            [run("plain", 100), run("tcpcomp/deflate", 57), run("kernel-level/deflate", 100)];
        for run in &mut runs {
            if let Some(stream) = &mut run.measured.transfer.stream {
                stream.framed_bytes = 1000;
                stream.tcp_segments = stream.segments;
            }
        }
        let text = verdict(&runs);
        assert!(text.contains("segments -43.0 % against plain"), "{text}");
    }

    #[test]
    fn the_best_block_is_named_once() {
        let mut long = run("mix/lz4", 120);
        long.place.setting.block_bytes = 32 << 10;
        let text = verdict(&[run("mix/lz4", 110), long]);
        assert!(text.contains("\n  32 KiB  mix/lz4: text, 100 Mbit/s\n"), "{text}");
    }
}
