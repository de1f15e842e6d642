//! `--write-config`: a relay's configuration out of a verdict.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use dwell_base::time::format_duration_exact_ns;
use dwell_policy::{ClassKey, Objective, Select};
use dwell_relay::config::{Config, Endpoint, Secret};
use dwell_report::human;
use dwell_trace::replay::class::{DeadlineClass, parse_class_key};
use dwell_trace::replay::report::ReplayReport;
use dwell_trace::replay::{Settings, WITH_DICTIONARIES};
use dwell_trace::verdict::Verdict;

use crate::commands::whole_file::replace;
use dwell_cli::terminal;

/// No more exceptions than these are written.
const EXCEPTIONS_MAX: usize = 32;
/// Ports from here on are clients' own and name no service (RFC 6335, section 6).
const DYNAMIC_PORT_MIN: u16 = 49_152;

/// A configuration for this site.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A configuration")]
pub(super) struct Site {
    /// Write a relay's configuration with the best scheme to this file
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,
    /// The other relay's address, for the configuration
    #[arg(long, value_name = "HOST:PORT", requires = "write_config")]
    endpoint: Option<Endpoint>,
    /// The file with the key that both relays share, for the configuration
    #[arg(long, value_name = "FILE", requires = "write_config")]
    psk_file: Option<PathBuf>,
}

impl Site {
    /// Writes the configuration, if one is wanted.
    pub(super) fn write(
        &self,
        settings: &Settings,
        report: &ReplayReport,
        verdict: &Verdict,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.write_config else { return Ok(()) };
        let (text, open) = self.text(settings, report, verdict);
        check(&text, path)?;
        replace(path, &text)?;
        let path = path.display();
        terminal::note(&format!("wrote {path}: try it with `dwell check {path}`"));
        if !open.is_empty() {
            terminal::note(&format!(
                "what only you know is marked FILL IN there: {}",
                open.join(", ")
            ));
        }
        Ok(())
    }

    /// The text, and what is left to be filled in.
    fn text(
        &self,
        settings: &Settings,
        report: &ReplayReport,
        verdict: &Verdict,
    ) -> (String, Vec<&'static str>) {
        let mut open = Vec::new();
        let mut text = String::new();
        for line in verdict.to_text().lines() {
            let _ = writeln!(text, "# {}", line.trim());
        }
        text.push_str(
            "# What keys mean and which others there are: `dwell check --sample`.\n\n\
             [node]\n# Addresses of the relay's interface, if it is to have any of its own.\n\
             # addresses = [\"10.77.0.1/30\"]\n\n[[peer]]\nname = \"peer\"\n",
        );
        match &self.endpoint {
            Some(endpoint) => {
                let _ = writeln!(text, "endpoint = \"{endpoint}\"");
            }
            None => {
                open.push("endpoint");
                text.push_str("# FILL IN where the other relay listens, at one end of the two.\n");
                text.push_str("# endpoint = \"198.51.100.7:7733\"\n");
            }
        }
        prefixes(&mut text, settings, &mut open);
        self.security(&mut text, settings, &mut open);
        link(&mut text, settings, verdict);
        exceptions(&mut text, settings, report);
        settings.classes.iter().for_each(|class| deadline(&mut text, class));
        (text, open)
    }

    fn security(&self, text: &mut String, settings: &Settings, open: &mut Vec<&'static str>) {
        if !settings.link.sealed {
            text.push_str("security = \"none\"\n");
            return;
        }
        let path = match &self.psk_file {
            Some(path) => path.display().to_string(),
            None => {
                open.push("psk_file");
                text.push_str(
                    "# FILL IN: `dwell genpsk --out FILE` makes one; both ends need it.\n",
                );
                "/etc/dwell/peer.psk".to_owned()
            }
        };
        let _ = writeln!(text, "psk_file = {}", quoted(&path));
    }
}

fn prefixes(text: &mut String, settings: &Settings, open: &mut Vec<&'static str>) {
    let mut list: Vec<String> =
        settings.destinations.iter().map(|net| format!("\"{}\"", net.trunc())).collect();
    list.dedup();
    if list.is_empty() {
        open.push("prefixes");
        text.push_str(
            "# FILL IN what is behind the other relay (`--destination` writes it here).\n",
        );
        list.push("\"192.0.2.0/24\"".to_owned());
    }
    let _ = writeln!(text, "prefixes = [{}]", list.join(", "));
}

fn link(text: &mut String, settings: &Settings, verdict: &Verdict) {
    let best = verdict.best.as_ref().map_or("packet", |best| &best.scheme);
    let (scheme, has_dictionary) = match best.strip_suffix(WITH_DICTIONARIES) {
        Some(scheme) => (scheme, true),
        None => (best, false),
    };
    let limit = &settings.limit;
    let _ = write!(
        text,
        "scheme = \"{scheme}\"\ncodec = \"{}\"\nrate = \"{:#}\"\n\
         queue_time = \"{}\"\nqueue_packets = {}\nqueue_bytes = {}\n\
         link_overhead = {}\ncompress_min = {}\npoor_ratio = {:.6}\n",
        settings.codec,
        settings.link.rate,
        format_duration_exact_ns(limit.time_ns),
        limit.packets,
        limit.bytes,
        settings.link.overhead_bytes,
        settings.compress_bytes_min,
        settings.poor_ratio.as_f64(),
    );
    if has_dictionary {
        text.push_str(
            "# FILL IN the file with the dictionaries (`dwell trace train --out` writes it as all.dict).\n\
             # dictionary = \"all.dict\"\n",
        );
    }
    let best = settings.schemes.iter().find(|(name, _)| name == scheme);
    match best.map(|(_, scheme)| scheme.select) {
        Some(Select::Waiting { bytes_max, .. }) => {
            let _ = writeln!(text, "block_bytes = {bytes_max}");
        }
        Some(Select::Backlog { packets, .. }) => {
            let _ = writeln!(text, "block_packets = {packets}");
        }
        Some(Select::Slack { .. }) => objective(text, settings.objective),
        _ => {}
    }
    if !settings.columnar {
        text.push_str("columnar = false\n");
    }
}

/// What `auto` is to save, if that is not time.
fn objective(text: &mut String, objective: Objective) {
    if let Objective::Bytes { max_wait_ns, cpu_ppm } = objective {
        let percent = f64::from(cpu_ppm) / 1e4;
        let gather_time = format_duration_exact_ns(max_wait_ns);
        let _ = writeln!(
            text,
            "objective = \"bytes\"\ngather_time = \"{gather_time}\"\ncpu = \"{percent}%\""
        );
    }
}

/// A class with a deadline, if relays can say what it is known by: protocols and ports that must
/// hold together are something else than any of them.
fn deadline(text: &mut String, class: &DeadlineClass) {
    let name = |protocol| match protocol {
        6 => Some("tcp"),
        17 => Some("udp"),
        _ => None,
    };
    let (mut protocols, mut ports) = (Vec::new(), Vec::new());
    for service in &class.services {
        let Some(protocol) = name(service.protocol) else { return };
        match &service.ports {
            None => protocols.push(format!("\"{protocol}\"")),
            Some(range) => {
                ports.push(format!("\"{protocol}/{}-{}\"", range.start(), range.end()));
            }
        }
    }
    if !protocols.is_empty() && !ports.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n[[class]]\nname = {}", quoted(&class.name));
    if let Some(dscp) = class.dscp {
        let _ = writeln!(text, "dscp = [{dscp}]");
    }
    for (key, list) in [("protocols", protocols), ("ports", ports)] {
        if !list.is_empty() {
            let _ = writeln!(text, "{key} = [{}]", list.join(", "));
        }
    }
    let _ = writeln!(text, "max_wait = \"{}\"", format_duration_exact_ns(class.wait_ns_max));
}

/// Writes the exceptions: those that were asked for, and the services that turned out to be poor.
fn exceptions(text: &mut String, settings: &Settings, report: &ReplayReport) {
    let poor = settings.poor_ratio.as_f64();
    let mut classes: Vec<(ClassKey, Option<f64>)> =
        settings.exceptions.iter().map(|&class| (class, None)).collect();
    // The scheme that compresses everything has learned the most.
    let learned = report
        .lanes
        .iter()
        .max_by_key(|lane| lane.tx().tried)
        .map_or(&[][..], |lane| &lane.peer.classes);
    for status in learned.iter().filter(|status| status.ratio >= poor) {
        let Ok(class) = parse_class_key(&status.class) else { continue };
        let is_service = (1..DYNAMIC_PORT_MIN).contains(&class.port());
        if is_service && classes.iter().all(|(known, _)| *known != class) {
            classes.push((class, Some(status.ratio)));
        }
    }
    classes.truncate(EXCEPTIONS_MAX);
    if classes.is_empty() {
        return;
    }
    text.push_str(
        "# Never compressed: what the capture showed to be not worth it.\nexceptions = [\n",
    );
    for (class, ratio) in classes {
        let why =
            ratio.map_or_else(String::new, |r| format!("  # ratio {}", human::ratio(Some(r))));
        let _ = writeln!(text, "  \"{class}\",{why}");
    }
    text.push_str("]\n");
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)).chars().collect(),
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

/// The relay's own reader must take it. Keys need not be there yet.
fn check(text: &str, path: &Path) -> anyhow::Result<()> {
    let any_secret = |_: &Path| Ok(Secret::new([0; Secret::BYTES]));
    Config::parse(text, &path.display().to_string(), &any_secret).map(|_| ()).map_err(|errors| {
        anyhow!("the configuration would not be valid, so it is not written: {errors}")
    })
}
