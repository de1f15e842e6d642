//! The demo's result: a table and some sentences, or a JSON document.

use std::fmt::Write as _;

use dwell_base::share;
use dwell_base::time::format_duration_ns;
use dwell_report::{Column, Table, human};
use serde::Serialize;

use super::PLAIN;
use super::measure::{Download, Ping};
use super::picture;

/// Schemes whose goodput differs by no more than this share are level: another run could turn them around.
const LEVEL: f64 = 0.03;
/// Goodput in relation to that without dwell is as much between these two, ...
const SLOWER: f64 = 0.99;
const FASTER: f64 = 1.01;
/// ... and bytes on the link, which vary less, are as many between these.
const FEWER: f64 = 0.995;
const MORE: f64 = 1.005;

/// The version of the JSON document.
pub(super) const SCHEMA: u32 = 1;

/// The JSON document of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) schema: u32,
    pub(super) version: &'static str,
    /// False if it was interrupted or failed.
    pub(super) complete: bool,
    pub(super) link_rate_bps: u64,
    pub(super) link_delay_ns: u64,
    pub(super) link_loss: f64,
    pub(super) codec: String,
    pub(super) relay_rate: String,
    pub(super) file_bytes: u64,
    /// The ping with nothing else on the link.
    pub(super) idle: Vec<Idle>,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
pub(super) struct Idle {
    /// `None` is without dwell.
    pub(super) scheme: Option<String>,
    pub(super) ping: Ping,
}

/// A download.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// `None` is without dwell.
    pub(super) scheme: Option<String>,
    pub(super) file: &'static str,
    /// `link_data_bytes` in relation to the same file without dwell.
    pub(super) link_relative: Option<f64>,
    /// `goodput_bps` in relation to the same file without dwell.
    pub(super) goodput_relative: Option<f64>,
    #[serde(flatten)]
    pub(super) download: Download,
}

impl Summary {
    pub(super) fn add(&mut self, scheme: Option<String>, file: &'static str, download: Download) {
        let plain = self.plain(file).map(|run| &run.download);
        let relative = |value: fn(&Download) -> u64| {
            plain.map_or(Some(1.0), |plain| share(value(&download), value(plain)))
        };
        let link_relative = relative(|download| download.link_data_bytes);
        let goodput_relative = relative(|download| download.goodput_bps);
        self.runs.push(Run { scheme, file, link_relative, goodput_relative, download });
    }

    /// Returns true if all was done, and every byte arrived.
    pub(super) fn is_good(&self) -> bool {
        self.complete && self.all_equal()
    }

    fn all_equal(&self) -> bool {
        let size = self.file_bytes;
        self.runs.iter().all(|run| run.download.equal && run.download.bytes == size)
    }

    fn plain(&self, file: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.scheme.is_none() && run.file == file)
    }

    fn with_dwell(&self, file: &str) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.scheme.is_some() && run.file == file)
    }

    pub(super) fn introduction(&self) -> String {
        let loss = match self.link_loss {
            0.0 => String::new(),
            loss => format!(", {} % loss", loss * 100.0),
        };
        format!(
            "client ── ingress ══ {}, {}{loss} each way ══ egress ── server\n\
             files: English prose (text) and random bytes (random), {} each\n\
             relays: {}, rate {}\n\n",
            human::rate(self.link_rate_bps),
            format_duration_ns(self.link_delay_ns),
            human::bytes(self.file_bytes),
            self.codec,
            self.relay_rate,
        )
    }

    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        for file in self.files() {
            let runs: Vec<&Run> = self.runs.iter().filter(|run| run.file == file).collect();
            // Writing to a string can't fail.
            let _ = writeln!(out, "{}", self.table(file, &runs).to_text());
            let _ = writeln!(out, "{}", picture::lines(&runs));
        }
        if !self.runs.is_empty() {
            out.push_str(LEGEND);
            out.push('\n');
        }
        for sentence in self.balance().into_iter().chain(self.sentences()) {
            let _ = writeln!(out, "{}", wrapped(&sentence));
        }
        out
    }

    /// In the order of their first download.
    pub(super) fn files(&self) -> Vec<&'static str> {
        let mut files = Vec::new();
        for run in &self.runs {
            if !files.contains(&run.file) {
                files.push(run.file);
            }
        }
        files
    }

    pub(super) fn table(&self, file: &str, runs: &[&Run]) -> Table {
        let unit = Unit::of(self.link_rate_bps);
        let mut table = Table::new([
            Column::left(file),
            Column::right(unit.name),
            Column::right("gain"),
            Column::right("on link"),
            Column::right("ratio"),
            Column::right("compressed"),
            Column::right("ping"),
            Column::right("p99"),
            Column::right("CPU"),
        ]);
        for run in runs {
            table.row(run.cells(&unit));
        }
        table
    }

    /// Returns the meaning of the figures in sentences, for better or worse.
    pub(super) fn sentences(&self) -> Vec<String> {
        let each = self.files().into_iter().filter_map(|file| self.about(file));
        each.chain(self.about_ping()).chain([self.about_equality()]).collect()
    }

    /// Returns the text's download of the scheme that relays have by default, or else of the fastest.
    fn shown(&self) -> Option<&Run> {
        let default = self.with_dwell("text").find(|run| run.name() == "auto");
        default.or_else(|| self.with_dwell("text").max_by_key(|run| run.download.goodput_bps))
    }

    /// Returns two sentences: what was gained, and what was lost. None if nothing ran with dwell.
    pub(super) fn balance(&self) -> Vec<String> {
        let Some(text) = self.shown() else { return Vec::new() };
        let name = text.name();
        let gain = text.goodput_relative.filter(|gain| *gain >= FASTER);
        let fewer = text.link_relative.filter(|bytes| *bytes < FEWER);
        let gained = match (gain, fewer) {
            (Some(gain), Some(bytes)) => format!(
                "text came {gain:.2} times as fast with \"{name}\", and the link carried {} fewer bytes for it",
                percent(1.0 - bytes)
            ),
            (Some(gain), None) => format!("text came {gain:.2} times as fast with \"{name}\""),
            (None, Some(bytes)) => format!(
                "the link carried {} fewer bytes for text with \"{name}\", which came no faster",
                percent(1.0 - bytes)
            ),
            (None, None) => format!("nothing by \"{name}\" on this link"),
        };
        let mut lost = Vec::new();
        let random = self.with_dwell("random").find(|run| run.name() == name);
        lost.extend(random.and_then(lost_of_random));
        let idle = |scheme: Option<&str>| {
            self.idle.iter().find(|idle| idle.scheme.as_deref() == scheme)?.ping.p50_ns
        };
        if let Some(more_ns) =
            idle(Some(name)).zip(idle(None)).and_then(|(with, plain)| with.checked_sub(plain))
        {
            lost.push(format!(
                "a ping on the idle link took {:.2} ms longer",
                more_ns as f64 / 1e6
            ));
        }
        let costs =
            [Some(text), random].into_iter().flatten().filter_map(|run| run.download.relays);
        let cpu_ns: u64 = costs.map(|cost| cost.cpu_ns).sum();
        lost.push(format!("the two relays took {:.2} s of processor time", cpu_ns as f64 / 1e9));
        vec![format!("Gained: {gained}."), format!("Lost: {}.", lost.join("; "))]
    }

    /// Goodput and bytes of a file: the best scheme against no dwell. Of several that are level it is the one that
    /// [`Self::balance`] is about, if that is one of them.
    fn about(&self, file: &str) -> Option<String> {
        let fastest_bps = self.with_dwell(file).map(|run| run.download.goodput_bps).max()?;
        let is_level =
            |run: &&Run| run.download.goodput_bps as f64 >= fastest_bps as f64 * (1.0 - LEVEL);
        let level: Vec<&Run> = self.with_dwell(file).filter(is_level).collect();
        let shown = self
            .shown()
            .and_then(|shown| level.iter().copied().find(|run| run.scheme == shown.scheme));
        let fastest = level.iter().copied().max_by_key(|run| run.download.goodput_bps);
        let best = shown.or(fastest)?;
        let (gain, bytes) = (best.goodput_relative?, best.link_relative?);
        let others = level.iter().filter(|run| run.scheme != best.scheme);
        let others: Vec<String> = others.map(|run| format!("\"{}\"", run.name())).collect();
        let which = match (self.with_dwell(file).count(), &others[..]) {
            (1, _) => String::new(),
            (_, []) => ", the best scheme,".to_owned(),
            (_, others) => {
                format!(", level with {} (within {}),", others.join(" and "), percent(LEVEL))
            }
        };
        let speed = match gain {
            FASTER.. => format!("{gain:.2} times as fast as without dwell"),
            SLOWER..FASTER => "as fast as without dwell".to_owned(),
            _ => format!("slower by {} than without dwell", percent(1.0 - gain)),
        };
        let nothing_compressed = best.download.relays.is_some_and(|cost| cost.compressed == 0);
        let bytes = match bytes {
            ..FEWER => format!("{} fewer bytes on the link", percent(1.0 - bytes)),
            FEWER..MORE => "as many bytes on the link".to_owned(),
            _ if nothing_compressed && self.link_loss == 0.0 => {
                format!("{} more bytes on the link, the relays' headers", percent(bytes - 1.0))
            }
            _ => format!("{} more bytes on the link", percent(bytes - 1.0)),
        };
        let (file, name) = (capitalised(file), best.name());
        Some(format!("{file}: with \"{name}\"{which} {speed}, and {bytes}."))
    }

    fn about_ping(&self) -> Option<String> {
        let idle = |with: bool| {
            let idle = self.idle.iter().filter(move |idle| idle.scheme.is_some() == with);
            range(idle.filter_map(|idle| idle.ping.p50_ns))
        };
        let busy = |file: &'static str, with: bool| {
            let runs = self.runs.iter();
            let runs = runs.filter(move |run| run.file == file && run.scheme.is_some() == with);
            range(runs.filter_map(|run| run.download.ping.p50_ns))
        };
        let (plain, with_dwell) = (idle(false)?, idle(true)?);
        let mut text =
            format!("Ping, median: on the idle link {plain} without dwell, {with_dwell} with it");
        for file in self.files() {
            if let (Some(plain), Some(with_dwell)) = (busy(file, false), busy(file, true)) {
                // Writing to a string can't fail.
                let _ = write!(text, "; beside {file} {plain} without, {with_dwell} with it");
            }
        }
        Some(text + ".")
    }

    fn about_equality(&self) -> String {
        let count = self.runs.len();
        let wrong: Vec<String> = self
            .runs
            .iter()
            .filter(|run| !run.download.equal)
            .map(|run| format!("{} ({})", run.file, run.name()))
            .collect();
        let rest = if self.complete { "" } else { " The demo did not run to its end." };
        match &wrong[..] {
            [] if count == 0 => format!("Nothing was downloaded.{rest}"),
            [] if count == 1 => format!("The download arrived byte for byte as it was sent.{rest}"),
            [] => format!("All {count} downloads arrived byte for byte as they were sent.{rest}"),
            _ => format!("NOT AS THEY WERE SENT arrived: {}.{rest}", wrong.join(", ")),
        }
    }
}

const LEGEND: &str = "\
gain: goodput / that without dwell. on link: what the server's end of the link
  sent, by its device's counter, all headers and pings included. ratio: that /
  the file. compressed: of all packets. ping: median, and p99, during the
  download. CPU: of both relays together.
";

/// The unit of goodput: that of the link.
struct Unit {
    name: &'static str,
    bps: f64,
}

impl Unit {
    fn of(link_rate_bps: u64) -> Self {
        let (name, bps) = match link_rate_bps {
            1_000_000_000.. => ("Gbit/s", 1e9),
            1_000_000.. => ("Mbit/s", 1e6),
            _ => ("kbit/s", 1e3),
        };
        Self { name, bps }
    }
}

impl Run {
    pub(super) fn name(&self) -> &str {
        self.scheme.as_deref().unwrap_or(PLAIN)
    }

    fn cells(&self, unit: &Unit) -> [String; 9] {
        let Download { goodput_bps, link_data_bytes, link_ratio, ping, relays, .. } =
            &self.download;
        let nothing = || human::NOTHING.to_owned();
        let with_dwell = |value: Option<f64>| value.filter(|_| self.scheme.is_some());
        [
            self.name().to_owned(),
            format!("{:.2}", *goodput_bps as f64 / unit.bps),
            with_dwell(self.goodput_relative).map_or_else(nothing, |gain| format!("{gain:.2}")),
            human::bytes(*link_data_bytes),
            human::ratio(Some(*link_ratio)),
            relays.map_or_else(nothing, |cost| human::share(cost.compressed, cost.packets)),
            ping.p50_ns.map_or_else(nothing, milliseconds),
            ping.p99_ns.map_or_else(nothing, milliseconds),
            relays.map_or_else(nothing, |cost| format!("{:.2} s", cost.cpu_ns as f64 / 1e9)),
        ]
    }
}

fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 99.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// `40.1 ms`, or `40.1 to 47.3 ms`.
fn range(values: impl Iterator<Item = u64> + Clone) -> Option<String> {
    let (least, most) = (values.clone().min()?, values.max()?);
    let (least, most) = (milliseconds(least), milliseconds(most));
    Some(if least == most { most } else { format!("{} to {most}", least.trim_end_matches(" ms")) })
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The width that fits most terminals.
const WIDTH: usize = 80;

/// In lines that fit most terminals; all but the first are indented.
fn wrapped(sentence: &str) -> String {
    const STAYS: &str = "\u{a0}";
    let mut out = String::new();
    let mut column = 0;
    // A number stays with its unit.
    let sentence = [" %", " ms"].iter().fold(sentence.to_owned(), |sentence, unit| {
        sentence.replace(unit, &unit.replace(' ', STAYS))
    });
    for word in sentence.split(' ') {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > WIDTH {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out.replace(STAYS, " ")
}

/// Returns what random bytes lost, if they came slower or took more bytes.
fn lost_of_random(run: &Run) -> Option<String> {
    let share = run.goodput_relative.filter(|share| *share < SLOWER);
    let slower = share.map(|share| format!("random bytes came {} slower", percent(1.0 - share)));
    let more = run.link_relative.filter(|bytes| *bytes >= MORE);
    let more =
        more.map(|bytes| format!("{} more bytes on the link for headers", percent(bytes - 1.0)));
    match (slower, more) {
        (Some(slower), Some(more)) => Some(format!("{slower}, with {more}")),
        (None, Some(more)) => Some(format!("random bytes came with {more}")),
        (slower, None) => slower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::measure::RelayCost;

    fn download(goodput_bps: u64, link_data_bytes: u64, relays: Option<RelayCost>) -> Download {
        Download {
            bytes: 1000,
            equal: true,
            duration_ns: 1,
            first_byte_ns: 1,
            goodput_bps,
            link_data_bytes,
            link_back_bytes: 1,
            link_ratio: link_data_bytes as f64 / 1000.0,
            ping: Ping { replies: 1, lost: 0, p50_ns: Some(50_000_000), p99_ns: Some(123_400_000) },
            course: vec![picture::Moment { at_ns: 1, bytes: 1000 }],
            relays,
        }
    }

    fn cost(compressed: u64) -> Option<RelayCost> {
        Some(RelayCost {
            packets: 100,
            bytes: 1040,
            restored_bytes: 1040,
            tried: 100,
            compressed,
            cpu_ns: 120_000_000,
        })
    }

    fn summary() -> Summary {
        let mut summary = Summary {
            schema: SCHEMA,
            version: "1",
            complete: true,
            link_rate_bps: 10_000_000,
            link_delay_ns: 20_000_000,
            link_loss: 0.0,
            codec: "zstd:1".to_owned(),
            relay_rate: "auto".to_owned(),
            file_bytes: 1000,
            idle: Vec::new(),
            runs: Vec::new(),
        };
        summary.add(None, "text", download(9_000_000, 1050, None));
        summary.add(None, "random", download(9_000_000, 1050, None));
        summary.add(Some("all".to_owned()), "text", download(13_500_000, 700, cost(90)));
        summary.add(Some("all".to_owned()), "random", download(8_700_000, 1092, cost(0)));
        summary
    }

    #[test]
    fn sentences_tell_gains_and_losses() {
        let expected = [
            "Text: with \"all\" 1.50 times as fast as without dwell, and 33 % fewer bytes on the \
             link.",
            "Random: with \"all\" slower by 3.3 % than without dwell, and 4.0 % more bytes on the \
             link, the relays' headers.",
            "All 4 downloads arrived byte for byte as they were sent.",
        ];
        assert_eq!(summary().sentences(), expected);
    }

    #[test]
    fn schemes_that_are_level_are_called_so() {
        let mut all = summary();
        all.add(Some("auto".to_owned()), "text", download(13_200_000, 690, cost(90)));
        all.add(Some("auto".to_owned()), "random", download(8_960_000, 1052, cost(0)));
        let [text, random, _] = &all.sentences()[..] else { panic!("three sentences") };
        let expected =
            "Text: with \"auto\", level with \"all\" (within 3.0 %), 1.47 times as fast as";
        assert!(text.starts_with(expected), "{text}");
        let expected = "Random: with \"auto\", level with \"all\" (within 3.0 %), as fast as without dwell, and as many";
        assert!(random.starts_with(expected), "{random}");
        let [gained, lost] = &all.balance()[..] else { panic!("two sentences") };
        assert!(gained.contains("1.47 times as fast with \"auto\""), "{gained}");
        assert!(!lost.contains("slower"), "{lost}");
        all.add(Some("mix".to_owned()), "text", download(14_000_000, 690, cost(90)));
        let text = &all.sentences()[0];
        assert!(text.starts_with("Text: with \"mix\", the best scheme, 1.56 times"), "{text}");
    }

    #[test]
    fn two_sentences_say_what_was_gained_and_lost() {
        let mut all = summary();
        let ping = |ns| Ping { replies: 1, lost: 0, p50_ns: Some(ns), p99_ns: None };
        all.idle.push(Idle { scheme: None, ping: ping(40_100_000) });
        all.idle.push(Idle { scheme: Some("all".to_owned()), ping: ping(40_400_000) });
        let expected = [
            "Gained: text came 1.50 times as fast with \"all\", and the link carried 33 % fewer bytes for it.",
            "Lost: random bytes came 3.3 % slower, with 4.0 % more bytes on the link for headers; a ping on the \
             idle link took 0.30 ms longer; the two relays took 0.24 s of processor time.",
        ];
        assert_eq!(all.balance(), expected);
        all.runs.truncate(2);
        assert_eq!(all.balance(), [""; 0], "nothing with dwell");
    }

    #[test]
    fn the_page_and_the_lines_show_every_run() {
        let summary = summary();
        let page = picture::page(&summary, "dwell demo --html a.html");
        assert!(page.contains("<svg") && page.contains("Gained: text came"), "{page}");
        for file in ["text", "random"] {
            assert!(page.contains(&format!("Goodput of the download of {file}")), "{page}");
        }
        let runs: Vec<&Run> = summary.runs.iter().collect();
        let lines = picture::lines(&runs);
        assert_eq!(lines.lines().count(), 5, "{lines}");
        assert!(lines.contains('█'), "{lines}");
    }

    #[test]
    fn a_file_that_changed_on_its_way_is_named_and_bad() {
        let mut summary = summary();
        assert!(summary.is_good());
        summary.runs[2].download.equal = false;
        assert!(!summary.is_good());
        let last = summary.sentences().pop().unwrap_or_default();
        assert_eq!(last, "NOT AS THEY WERE SENT arrived: text (all).");
    }

    #[test]
    fn each_file_has_a_table_that_fits_a_terminal() {
        let text = summary().to_text();
        let expected = "\
text     Mbit/s  gain  on link  ratio  compressed     ping     p99     CPU
without    9.00     -   1.1 kB  1.050           -  50.0 ms  123 ms       -
all       13.50  1.50    700 B  0.700      90.0 %  50.0 ms  123 ms  0.12 s
";
        assert!(text.starts_with(expected), "{text}");
        let text = summary().introduction() + &text;
        let width = text.lines().map(|line| line.chars().count()).max();
        assert!(width <= Some(WIDTH), "{width:?} columns");
    }
}
