//! `dwell trace replay`: what schemes would make of a capture.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use dwell_base::time::{MILLI_NS, parse_duration_ns};
use dwell_base::{ByteSize, Rate};
use dwell_codec::{CodecSpec, DICTIONARY_FILES_LEN_MAX};
use dwell_drive::BlockConfig;
use dwell_figures::page::Provenance;
use dwell_policy::{ClassKey, LearnedConfig, Objective, PRESETS, QueueLimit, Ratio, Scheme};
use dwell_relay::config::{SCHEMES, parse_exceptions};
use dwell_relay::io::clock::Clock;
use dwell_report::human;
use dwell_trace::Sides;
use dwell_trace::document::OfReplay;
use dwell_trace::replay::class::{DeadlineClass, parse_class_key};
use dwell_trace::replay::compress::{Cost, Dictionaries, GivenCost};
use dwell_trace::replay::link::{Link, PATH_MTU_MIN};
use dwell_trace::replay::report::ReplayReport;
use dwell_trace::replay::{self, Settings, view};
use dwell_trace::verdict::{Question, Verdict};
use ipnet::IpNet;

use super::captures::Captures;
use super::survey::Survey;
use super::write_config::Site;
use crate::commands::interrupt::{self, INTERRUPTED};
use crate::commands::whole_file::replace;
use dwell_cli::terminal;

/// Far more than the longest list has.
const EXCEPTIONS_BYTES_MAX: u64 = 1 << 20;

const AFTER_HELP: &str = "\
Examples:
  dwell trace replay site.pcap --rate 5mbit
      all schemes over a link of 5 Mbit/s, and whether dwell would help
  dwell trace replay site.pcap --rate 5mbit --inside 10.1.0.0/16
      the same, and this site is one side of the link
  dwell trace replay /srv/captures --rate 2mbit --scheme none,packet --codec lz4 --speed 2
      two schemes, another codec, twice the traffic
  dwell trace replay site.pcap --rate 512kbit --class voice:dscp=46:20ms
      which packets of a class would wait for longer than they may
  dwell trace replay site.pcap --rate 5mbit --compress-cost 3000,4 --json
      a given cost of compressing: the same numbers on every machine
  dwell trace replay site.pcap --rate 5mbit --cost-per-mb 0.08 --write-config relay.toml
      what it saves, and a configuration that does it

A capture has both directions, and a link a queue for each: both are assessed, and the verdict is
that of the busier one. docs/replay.md explains how they are distinguished, what is modelled and
what is not.

Exit codes:
  0    the capture was replayed
  1    it, or some of several, could not be read, or a file not be written
  2    the command line is wrong
  130  it was interrupted; what was read until then is shown";

/// Replay captures over a link, with each scheme, and say whether dwell would help
///
/// The decision core of the relay runs in virtual time, and compresses the real packets with real
/// codecs. Sources don't react: what TCP would have done about drops is not replayed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Replay {
    /// Captures (pcap, pcapng; plain or compressed), or directories of them, merged by time; "-" is
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Rate of the link
    #[arg(long)]
    rate: Rate,
    /// The schemes, separated by commas; "all" for every one, "relay" for those that relays can
    /// run (in a list, "all" is the scheme of that name)
    #[arg(long, value_name = "NAMES", default_value = "all", value_parser = schemes)]
    scheme: Schemes,
    /// Codec that compresses packets
    #[arg(long, default_value = "zstd:1")]
    codec: CodecSpec,
    /// Time to compress, in nanoseconds: for a packet, and for each of its bytes; without
    /// it, it is measured here
    #[arg(long, value_name = "NS,NS")]
    compress_cost: Option<GivenCost>,
    /// Packets arrive this many times faster than they were captured
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Prefixes on the near side of the link; without them, found from the capture
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', conflicts_with_all = ["source", "destination"])]
    inside: Vec<IpNet>,
    /// One direction only: packets from these prefixes
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    source: Vec<IpNet>,
    /// One direction only: packets to these prefixes
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    destination: Vec<IpNet>,
    /// A class of packets and how long they may wait, as in voice:dscp=46:20ms or
    /// telemetry:udp/5683:100ms; may be given several times
    #[arg(long, value_name = "NAME:MATCH:TIME")]
    class: Vec<DeadlineClass>,
    /// Classes that are never compressed, separated by commas, as in tcp/443,udp/443
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', value_parser = parse_class_key)]
    except: Vec<ClassKey>,
    /// Leave the classes alone that are in this list, which `dwell trace analyze --exceptions`
    /// has written
    #[arg(long, value_name = "FILE")]
    exceptions: Option<PathBuf>,
    /// Dictionaries, made by `dwell trace train`; may be given several times. Schemes are shown with
    /// and without. Those with contexts (auto) use them as relays do; for others relays have none, so the
    /// verdict does not count on them there
    #[arg(long, value_name = "FILE")]
    dictionary: Vec<PathBuf>,
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    path: PathArgs,
    /// Price of a megabyte on the link, in any currency
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    cost_per_mb: Option<f64>,
    #[command(flatten)]
    out: OutArgs,
    #[command(flatten)]
    site: Site,
}

/// Limits of the queue, and the choice of packets to compress.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The port")]
struct PortArgs {
    /// Time on the link that the queue may hold [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    queue_time: Option<u64>,
    /// Number of packets that the queue may hold [default: 2000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    queue_packets: Option<u32>,
    /// Number of bytes that the queue may hold [default: 4MiB]
    #[arg(long, value_name = "SIZE")]
    queue_bytes: Option<ByteSize>,
    /// The most bytes of packets in a block
    #[arg(long, value_name = "BYTES", default_value_t = BlockConfig::default().bytes, value_parser = clap::value_parser!(u32).range(1_500..=60_000))]
    block_bytes: u32,
    /// Number of packets in each block, in place of as many as wait
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=64))]
    block_packets: Option<u32>,
    /// Leave the headers of a block's packets as they are (`columnar = false` of a relay)
    #[arg(long)]
    no_columnar: bool,
    /// Packets of fewer bytes are not compressed
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    compress_min: u32,
    /// A result at or above this ratio (compressed / original) is not worth its time
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    poor_ratio: Option<Ratio>,
    /// What the scheme auto is to save: time, or bytes
    #[arg(long, value_name = "WHAT", value_parser = ["time", "bytes"], default_value = "time")]
    objective: String,
    /// With --objective bytes: how long packets of no class wait for company
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "20ms")]
    gather_time: u64,
}

/// The cost of a datagram on the path.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The path")]
struct PathArgs {
    /// Bytes that a packet costs on the link below its IP header
    #[arg(long, value_name = "BYTES", default_value_t = 14, value_parser = clap::value_parser!(u32).range(0..=1000))]
    link_overhead: u32,
    /// The longest IP packet that the path takes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(i64::from(PATH_MTU_MIN)..))]
    path_mtu: u16,
    /// Datagrams are not encrypted, as inside WireGuard or IPsec
    #[arg(long)]
    plain: bool,
    /// Datagrams go over IPv6
    #[arg(long)]
    ipv6: bool,
}

/// The options that say what is written, and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct OutArgs {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write a line for each scheme to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Schemes(Vec<String>);

fn schemes(text: &str) -> Result<Schemes, String> {
    let names = match text {
        "all" => PRESETS.map(str::to_owned).to_vec(),
        "relay" => SCHEMES.map(str::to_owned).to_vec(),
        list => names(list),
    };
    for (n, name) in names.iter().enumerate() {
        Scheme::preset(name).map_err(|error| error.to_string())?;
        if names[..n].contains(name) {
            return Err(format!("scheme \"{name}\" is there twice"));
        }
    }
    Ok(Schemes(names))
}

/// Splits a list at its commas, but not at those of `edge(5,5)`.
fn names(list: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let parts = list.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth <= 0
    });
    parts.map(|name| name.trim().to_owned()).collect()
}

fn ratio(text: &str) -> Result<Ratio, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.01..=1.0).contains(number));
    let ppm = number.map(|number| Ratio::from_ppm((number * 1e6).round() as u32));
    ppm.ok_or_else(|| format!("a ratio is a number from 0.01 to 1, not \"{text}\""))
}

fn amount(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
    number.ok_or_else(|| format!("a cost is a number such as 0.08, not \"{text}\""))
}

/// The monotonic clock. The thread's CPU time would leave out what others take from us, but to
/// ask for it costs as much as compressing a small packet.
pub(super) struct Monotonic;

impl dwell_trace::Clock for Monotonic {
    fn now_ns(&mut self) -> u64 {
        Clock::now().as_ns()
    }
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = interrupt::stop_flag()?;
        let mut settings = self.settings()?;
        settings.dictionaries = read_dictionaries(&self.dictionary)?;
        if let Some(path) = &self.exceptions {
            settings.exceptions.extend(read_exceptions(path)?);
            settings.exceptions.sort_unstable();
            settings.exceptions.dedup();
        }
        let given = self.compress_cost;
        let cost = || given.map_or_else(|| Cost::Measured(Box::new(Monotonic)), Cost::Given);
        settings.check()?;
        let mut survey = Survey::of(&self.files, self.sides(), &stop)?;
        settings.sides = Arc::new(std::mem::replace(&mut survey.sides, Sides::one_way()));
        let mut replay = replay::Replay::new(settings.clone(), cost)?;
        let mut captures = Captures::open(survey, stop)?;
        captures.each(|input| replay.packet(input));
        let is_any_left_out = captures.complain();
        let report = replay.finish(env!("CARGO_PKG_VERSION"));
        let question = Question::about_relays(self.cost_per_mb);
        let frames = (captures.merge.frames(), captures.merge.not_ip());
        let mut document = OfReplay::new(&report, &question, frames);
        document.is_interrupted = captures.is_interrupted();
        self.write(&report, &document.verdict)?;
        self.site.write(&settings, &report, &document.verdict)?;
        if self.out.json {
            terminal::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        } else {
            terminal::print(&text(&document))?;
        }
        if captures.is_interrupted() {
            terminal::note("interrupted: this is what was read until then");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(if is_any_left_out { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The sides of the link, if the command line states them.
    fn sides(&self) -> Option<Sides> {
        match (self.inside.is_empty(), self.source.is_empty() && self.destination.is_empty()) {
            (false, _) => Some(Sides::inside(self.inside.clone())),
            (true, false) => Some(Sides::one_way()),
            (true, true) => None,
        }
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let limit = QueueLimit::default();
        let (port, path) = (&self.port, &self.path);
        let link = Link {
            rate: self.rate,
            overhead_bytes: path.link_overhead,
            path_mtu: path.path_mtu,
            sealed: !path.plain,
            v6: path.ipv6,
        };
        Ok(Settings {
            schemes: self.schemes()?,
            codec: self.codec,
            limit: QueueLimit {
                packets: port.queue_packets.unwrap_or(limit.packets),
                bytes: port.queue_bytes.map_or(limit.bytes, |size| size.0),
                time_ns: port.queue_time.map_or(limit.time_ns, |ns| ns.max(MILLI_NS)),
                ..limit
            },
            compress_bytes_min: port.compress_min,
            columnar: !port.no_columnar,
            poor_ratio: port.poor_ratio.unwrap_or(LearnedConfig::default().poor_ratio),
            objective: match port.objective.as_str() {
                "bytes" => {
                    Objective::Bytes { max_wait_ns: port.gather_time, cpu_ppm: Objective::CPU_PPM }
                }
                _ => Objective::Time,
            },
            exceptions: self.except.clone(),
            classes: self.class.clone(),
            sources: self.source.clone(),
            destinations: self.destination.clone(),
            speed: self.speed,
            ..Settings::new(link)
        })
    }

    /// The schemes as a relay runs them.
    fn schemes(&self) -> anyhow::Result<Vec<(String, Scheme)>> {
        let (bytes, packets) = (self.port.block_bytes, self.port.block_packets);
        let blocks = BlockConfig { bytes, packets, ..BlockConfig::default() };
        blocks.schemes(&self.scheme.0).map_err(|error| anyhow!(error))
    }

    fn write(&self, report: &ReplayReport, verdict: &Verdict) -> anyhow::Result<()> {
        if let Some(path) = &self.out.csv {
            replace(path, &view::records(report).to_csv())?;
        }
        if let Some(path) = &self.out.html {
            let provenance = Provenance {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                command: terminal::command_line(),
                settings: vec![
                    ("Codec".to_owned(), self.codec.to_string()),
                    ("Cost of compressing".to_owned(), self.cost_in_words()),
                ],
                ..Provenance::default()
            };
            let page = view::page(report, verdict, provenance).to_html();
            replace(path, &page).context("the page is not written")?;
        }
        Ok(())
    }

    fn cost_in_words(&self) -> String {
        match self.compress_cost {
            Some(cost) => {
                let byte_ns = cost.byte_ps as f64 / 1e3;
                format!("given: {} ns for a packet and {byte_ns} ns for a byte", cost.unit_ns)
            }
            None => "measured on this machine".to_owned(),
        }
    }
}

/// Reads a list as relays read it.
fn read_exceptions(path: &Path) -> anyhow::Result<Vec<ClassKey>> {
    let reported = || path.display().to_string();
    let mut text = String::new();
    let file = File::open(path).with_context(reported)?;
    file.take(EXCEPTIONS_BYTES_MAX).read_to_string(&mut text).with_context(reported)?;
    parse_exceptions(&text).map_err(|error| anyhow!(error)).with_context(reported)
}

/// Reads dictionaries for the classes that they are for, and joined for contexts.
fn read_dictionaries(paths: &[PathBuf]) -> anyhow::Result<Dictionaries> {
    let files = paths.iter().map(|path| {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(DICTIONARY_FILES_LEN_MAX as u64 + 1).read_to_end(&mut bytes))
            .with_context(|| name.clone())?;
        Ok((name, bytes))
    });
    let files: Vec<_> = files.collect::<anyhow::Result<_>>()?;
    Dictionaries::read(files).map_err(|error| anyhow!(error))
}

fn text(document: &OfReplay<'_>) -> String {
    let (report, verdict, not_ip) = (document.report, &document.verdict, document.not_ip_frames);
    let mut text = view::directions(report);
    text.push_str(&view::summary(report));
    if not_ip > 0 {
        text.push_str(&format!("  {} without an IP packet\n", human::counted(not_ip, "frame")));
    }
    text.push('\n');
    text.push_str(&view::lanes(report).to_text());
    for sentence in view::alike(report) {
        text.push_str(&format!("{sentence}\n"));
    }
    for table in [view::drops(report), view::deadlines(report)].into_iter().flatten() {
        text.push('\n');
        text.push_str(&table.to_text());
    }
    text.push('\n');
    text.push_str(&verdict.to_text());
    if let Some(table) = verdict.to_table() {
        text.push('\n');
        text.push_str(&table.to_text());
    }
    if let Some(line) = view::other_direction(report, document.other_verdict.as_ref()) {
        text.push_str(&format!("\n{line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_names_or_groups_of_them() {
        assert_eq!(schemes("all").unwrap().0.len(), PRESETS.len());
        assert_eq!(schemes("relay").unwrap().0, SCHEMES);
        assert_eq!(schemes("none, edge").unwrap().0, ["none", "edge"]);
        assert_eq!(schemes("flow(7,2),edge").unwrap().0, ["flow(7,2)", "edge"]);
        assert!(schemes("none,none").unwrap_err().contains("twice"));
        assert!(schemes("fast").unwrap_err().contains("\"fast\""));
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        assert!(ratio("0.9").is_ok() && ratio("1.1").is_err() && ratio("nan").is_err());
        assert!(amount("0.08").is_ok() && amount("-1").is_err() && amount("much").is_err());
    }
}
