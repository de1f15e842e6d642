//! `./x bench tcpcomp`: what TCPComp does to streams, without a network and a clock.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_base::{Instant, Rng};
use dwell_codec::{CodecSpec, Compressor};
use dwell_figures::chart::{Axis, Chart, Role, Series};
use dwell_lab::corpus;
use dwell_stream::{Compressors, Config, Sender, SenderStats, Strategy};

use super::stream::table_of_numbers;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  ./x bench tcpcomp
  ./x bench tcpcomp --output tcpcomp    also each table as CSV, and charts as SVG
  ./x bench tcpcomp --codec zstd:3

It sends nothing: `./x bench stream --part units` measures the time over a link.";

/// Show what TCPComp makes of texts and films: segments, efficiency, failures, estimates
///
/// The tables and figures of Wang et al., sections 3.2.1, 4.3, 4.4 and 4.5, with data that are here.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TcpComp {
    /// The codec; the papers' Zip is deflate
    #[arg(long, default_value = "deflate:6")]
    codec: CodecSpec,
    /// A file to look at as well
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Write CSV files and charts into this directory, which is made if need be
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// A segment less the header of a unit.
const UNIT_BYTES: usize = 1446;
/// Units that table 1 is made of, at most.
const TABLE_1_UNITS: usize = 10_000;
/// The paper's table 1 on texts, films and sound.
const TABLE_1_PAPER: &str = "1.57 to 2.43 for three texts, 0.997 to 1.262 for three films, 0.987 to 1.038 for \
three sounds";
/// The length of the content that is measured.
const MADE_BYTES: usize = 1 << 20;
/// The length of a turn in the mixture of text and film.
const TURN_BYTES: usize = 128 << 10;

/// Repetitions of the film that is here: long enough for the back-off.
const FILM_REPEATS: usize = 4;
/// As much as blocks have at most.
const WHOLE_BYTES: usize = 64 << 10;

/// Bytes with a name.
struct Data {
    name: String,
    bytes: Vec<u8>,
    /// The number of times the same content is repeated: more show nothing new.
    repeats: usize,
}

/// A unit that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unit {
    /// Its place in the stream.
    at: u64,
    /// original / compressed as it was estimated, from the unit's length, and as it was; 1 if
    /// compressing failed.
    estimated: f64,
    was: f64,
}

/// A file with a table or a figure.
struct Sheet {
    name: &'static str,
    heading: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    chart: Option<Chart>,
    /// True if it is too long for a terminal.
    long: bool,
}

impl TcpComp {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut data = corpora();
        for path in &self.file {
            let bytes =
                fs::read(path).with_context(|| format!("{} can't be read", path.display()))?;
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            data.push(Data { name, bytes, repeats: 1 });
        }
        let sheets = [
            factors(&data, self.codec)?,
            comparison(&data, self.codec)?,
            sweep(&data, self.codec)?,
            estimates(&data, self.codec)?,
        ];
        for sheet in &sheets {
            terminal::print(&sheet.text())?;
            if let Some(directory) = &self.output {
                sheet.write(directory)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Two books, a film, their mixture; and, as the paper has a genome, digits of pi and a page, what
/// is like these to a compressor.
fn corpora() -> Vec<Data> {
    let mut rng = Rng::from_seed(1);
    let mut letters = |of: &[u8]| -> Vec<u8> {
        (0..MADE_BYTES).map(|_| of[rng.below(of.len() as u64) as usize]).collect()
    };
    let turns = corpus::BOOK.chunks(TURN_BYTES).zip(corpus::VIDEO.chunks(TURN_BYTES));
    let hybrid = turns.flat_map(|(text, film)| [text, film]).flatten().copied().collect();
    let named = |name: &str, bytes: Vec<u8>| Data { name: name.to_owned(), bytes, repeats: 1 };
    vec![
        named("novel", corpus::BOOK.clone()),
        named("alice", corpus::ALICE.to_vec()),
        named("hybrid", hybrid),
        Data { repeats: FILM_REPEATS, ..named("film", corpus::VIDEO.repeat(FILM_REPEATS)) },
        named("bases", letters(b"acgt")),
        named("digits", letters(b"0123456789")),
    ]
}

/// Table 1: the 95 % confidence interval of the mean factor of units of 1446 bytes.
fn factors(data: &[Data], codec: CodecSpec) -> anyhow::Result<Sheet> {
    let mut rows = Vec::new();
    for data in data {
        let factors = unit_factors(&data.bytes[..data.bytes.len() / data.repeats], codec)?;
        let (mean, half) = interval(&factors);
        let number = |value: f64| format!("{value:.4}");
        rows.push(vec![
            data.name.clone(),
            factors.len().to_string(),
            number(mean),
            number(mean - half),
            number(mean + half),
        ]);
    }
    Ok(Sheet {
        name: "factors",
        heading: format!(
            "Factors of units of {UNIT_BYTES} bytes, {codec}, 95 % (table 1: {TABLE_1_PAPER})"
        ),
        header: ["data", "units", "mean", "from", "to"].map(str::to_owned).to_vec(),
        rows,
        chart: None,
        long: false,
    })
}

fn unit_factors(bytes: &[u8], codec: CodecSpec) -> anyhow::Result<Vec<f64>> {
    let mut compressor = Compressor::new(codec, None)?;
    let mut dst = vec![0; 2 * UNIT_BYTES];
    let mut factors = Vec::new();
    for unit in bytes.chunks_exact(UNIT_BYTES).take(TABLE_1_UNITS) {
        let len = compressor.compress(unit, &mut dst)?.unwrap_or(unit.len());
        factors.push(unit.len() as f64 / len as f64);
    }
    Ok(factors)
}

/// The mean, and how far it may be wrong (95 %).
fn interval(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, 1.96 * (variance / n).sqrt())
}

/// Figures 6 to 12: the three schemes.
fn comparison(data: &[Data], codec: CodecSpec) -> anyhow::Result<Sheet> {
    let mut rows = Vec::new();
    for data in data {
        let plain = send(&config(Strategy::Plain, codec), &data.bytes)?.0.segments;
        let mut without = config(Strategy::TcpComp, codec);
        without.tcpcomp.backoff = false;
        for (name, config) in [
            ("plain", config(Strategy::Plain, codec)),
            ("kernel-level", config(Strategy::KernelLevel, codec)),
            ("tcpcomp", config(Strategy::TcpComp, codec)),
            ("tcpcomp without back-off", without),
        ] {
            let (stats, _) = send(&config, &data.bytes)?;
            let fewer = 100.0 * (stats.segments as f64 / plain as f64 - 1.0);
            rows.push(vec![
                format!("{} {name}", data.name),
                stats.segments.to_string(),
                format!("{fewer:+.1} %"),
                format!("{:.3}", stats.efficiency()),
                stats.failures.to_string(),
            ]);
        }
        rows.push(whole(data, plain, codec)?);
    }
    let header = ["data", "segments", "to plain", "efficiency", "failures"];
    Ok(Sheet {
        name: "schemes",
        heading: format!(
            "Segments of 1448 bytes, {codec} (the paper has for text −43.58 % to plain and −43.74 % \
             to kernel-level; for the others about as many). \"whole\": without segments, in blocks \
             of 64 KiB, the most that there is to be had"
        ),
        header: header.map(str::to_owned).to_vec(),
        rows,
        chart: None,
        long: false,
    })
}

/// The paper's maximum: what the codec makes of the data when no segment cuts them short.
fn whole(data: &Data, plain: u64, codec: CodecSpec) -> anyhow::Result<Vec<String>> {
    const SEGMENT_BYTES: u64 = 1448;
    let mut compressor = Compressor::new(codec, None)?;
    let mut dst = vec![0; WHOLE_BYTES];
    let mut bytes = 0;
    for block in data.bytes.chunks(WHOLE_BYTES) {
        bytes += compressor.compress(block, &mut dst)?.unwrap_or(block.len()) as u64;
    }
    let segments = bytes.div_ceil(SEGMENT_BYTES);
    Ok(vec![
        format!("{} whole", data.name),
        segments.to_string(),
        format!("{:+.1} %", 100.0 * (segments as f64 / plain as f64 - 1.0)),
        format!("{:.3}", data.bytes.len() as f64 / bytes as f64),
        "-".to_owned(),
    ])
}

/// Figure 4: the target from 100 to 1600 bytes.
fn sweep(data: &[Data], codec: CodecSpec) -> anyhow::Result<Sheet> {
    let mut rows = Vec::new();
    let axis = Axis::linear("target").unit("B");
    let mut chart = Chart::new("Efficiency by target", axis, Axis::linear("efficiency"))
        .caption("The best target is a little less than a segment. Wang et al., figure 4.");
    let mut best = String::new();
    for data in data {
        let mut line = Series::line(&data.name).role(Role::Ours);
        let mut least: Option<(u64, usize)> = None;
        for target_len in (100..=1600).step_by(50) {
            let mut config = config(Strategy::TcpComp, codec);
            config.tcpcomp.target_len = target_len;
            let (stats, _) = send(&config, &data.bytes)?;
            line = line.point(target_len as f64, stats.efficiency());
            least = least.into_iter().chain([(stats.segments, target_len)]).min();
            rows.push(vec![
                data.name.clone(),
                target_len.to_string(),
                stats.segments.to_string(),
                format!("{:.4}", stats.efficiency()),
                stats.failures.to_string(),
            ]);
        }
        if let Some((segments, target)) = least {
            // Writing to a string can't fail.
            let _ = write!(best, "\n  {}: {target} B, {segments} segments", data.name);
        }
        chart = chart.series(line);
    }
    let header = ["data", "target, B", "segments", "efficiency", "failures"];
    Ok(Sheet {
        name: "targets",
        heading: format!(
            "The target with the fewest segments, of 100 to 1600 bytes, {codec} (the paper finds \
             1400):{best}"
        ),
        header: header.map(str::to_owned).to_vec(),
        rows,
        chart: Some(chart),
        long: true,
    })
}

/// Figure 5: estimated factors and true ones, along the mixture.
fn estimates(data: &[Data], codec: CodecSpec) -> anyhow::Result<Sheet> {
    let mut rows = Vec::new();
    let mut chart = None;
    let mut errors = String::new();
    for data in data {
        let (_, units) = send(&config(Strategy::TcpComp, codec), &data.bytes)?;
        let wrong = units.iter().map(|unit| (unit.estimated / unit.was - 1.0).abs());
        let wrong = 100.0 * wrong.sum::<f64>() / units.len().max(1) as f64;
        let _ = write!(errors, "\n  {}: {} units, {wrong:.1} %", data.name, units.len());
        let row = |unit: &Unit| {
            let [estimated, was] = [unit.estimated, unit.was].map(|value| format!("{value:.4}"));
            vec![data.name.clone(), unit.at.to_string(), estimated, was]
        };
        rows.extend(units.iter().map(row));
        if data.name == "hybrid" {
            chart = Some(estimate_chart(&units));
        }
    }
    Ok(Sheet {
        name: "estimates",
        heading: format!(
            "Estimated factors and true ones, {codec}: how far they are apart on average (figure 5)\
             {errors}"
        ),
        header: ["data", "at, B", "estimated", "true"].map(str::to_owned).to_vec(),
        rows,
        chart,
        long: true,
    })
}

fn estimate_chart(units: &[Unit]) -> Chart {
    let line = |name, value: fn(&Unit) -> f64| {
        units.iter().fold(Series::line(name), |line, unit| line.point(unit.at as f64, value(unit)))
    };
    let (x, y) = (Axis::linear("place in the stream").unit("B"), Axis::linear("factor"));
    Chart::new("Estimated and true factors of units", x, y)
        .caption(
            "Text and film in turns of 128 KiB; failed units are shown with a factor of 1. Wang et \
             al., figure 5.",
        )
        .series(line("true", |unit| unit.was))
        .series(line("estimated", |unit| unit.estimated))
}

fn config(strategy: Strategy, codec: CodecSpec) -> Config {
    let mut config = Config::new(strategy);
    config.codec = codec;
    config
}

/// Sends data over a transport that takes everything at once, and notes each unit that is tried.
fn send(config: &Config, data: &[u8]) -> anyhow::Result<(SenderStats, Vec<Unit>)> {
    let target_len = config.tcpcomp.target_len.min(UNIT_BYTES) as f64;
    let mut sender = Sender::new(config)?;
    let (mut compress, now, mut rest) = (Compressors::new(), Instant::ZERO, data);
    let mut units = Vec::new();
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        while !sender.wire(now).is_empty() {
            let len = sender.wire(now).len();
            sender.wrote(now, len);
        }
        let at = sender.stats().framed_bytes;
        if let Some(compressing) = sender.compress(&mut compress, || now) {
            let len = compressing.original_len as f64;
            // The last unit is as long as what is left.
            if at + (compressing.original_len as u64) < data.len() as u64 {
                let was =
                    compressing.compressed_len.map_or(1.0, |compressed| len / compressed as f64);
                units.push(Unit { at, estimated: len / target_len, was });
            }
        }
    }
    Ok((sender.stats().clone(), units))
}

impl Sheet {
    fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.heading);
        if !self.long {
            let mut table = table_of_numbers(&self.header);
            for row in &self.rows {
                table.row(row.clone());
            }
            let _ = write!(text, "\n{}", table.to_text());
        }
        if let Some(chart) = &self.chart {
            let _ = write!(text, "\n{}", chart.to_text(80));
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = String::new();
        for row in [&self.header].into_iter().chain(&self.rows) {
            let cells: Vec<String> =
                row.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let reported = || format!("{} can't be written into", directory.display());
        fs::create_dir_all(directory).with_context(reported)?;
        fs::write(directory.join(format!("{}.csv", self.name)), self.csv())
            .with_context(reported)?;
        if let Some(chart) = &self.chart {
            let path = directory.join(format!("{}.svg", self.name));
            fs::write(path, chart.to_svg()).with_context(reported)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CodecSpec {
        "deflate:6".parse().unwrap()
    }

    #[test]
    fn all_sheets_can_be_made() {
        let data: Vec<Data> = corpora()
            .into_iter()
            .map(|data| Data { bytes: data.bytes[..150_000].to_vec(), repeats: 1, ..data })
            .collect();
        for sheet in
            [factors, comparison, sweep, estimates].map(|make| make(&data, spec()).unwrap())
        {
            assert!(!sheet.rows.is_empty() && sheet.text().contains('\n'), "{}", sheet.name);
            assert!(sheet.rows.iter().all(|row| row.len() == sheet.header.len()));
            let csv = sheet.csv();
            assert_eq!(csv.lines().count(), sheet.rows.len() + 1, "{}", sheet.name);
        }
    }

    #[test]
    fn estimates_follow_what_is() {
        let (stats, units) = send(&config(Strategy::TcpComp, spec()), &corpus::BOOK).unwrap();
        assert!(units.len() > 200 && stats.efficiency() > 1.7);
        let near = units.iter().filter(|unit| (unit.estimated / unit.was - 1.0).abs() < 0.2);
        assert!(near.count() * 10 > units.len() * 8);
    }

    #[test]
    fn an_interval_is_that_of_the_mean() {
        let (mean, half) = interval(&[1.0, 2.0, 3.0, 4.0]);
        assert!(
            (mean - 2.5).abs() < 1e-12 && (half - 1.96 * (5.0_f64 / 12.0).sqrt()).abs() < 1e-12
        );
    }
}
