//! What is looked at. Nothing is changed. To check the configuration the files with keys are read as the relay does;
//! nothing of them is kept.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dwell_relay::config::Config;
use dwell_report::human;
use dwell_report::status::{PeerStatus, Status};
use serde::Serialize;

use super::super::verify::attempt;
use super::super::verify::findings::{NotSent, Pings};
use super::redact::{redact, redact_configuration};
use crate::memory;

/// Peers that are tried one after another; of a hub with more, those that the configuration names first.
pub(super) const PEERS_MAX: usize = 16;
/// What a command may print.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Lengths of packets between the shortest and the longest, where paths often end.
const LENGTHS: [u16; 4] = [576, 1_280, 1_400, 1_480];

/// The machine.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MachineFacts {
    pub(super) kernel: String,
    pub(super) distribution: String,
    pub(super) processors: usize,
    pub(super) memory_bytes: u64,
    /// Seconds since 1970 by its clock.
    pub(super) unix_s: u64,
    /// Settings of the kernel that matter.
    pub(super) settings: Vec<(String, String)>,
}

const SETTINGS: [&str; 6] = [
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/conf/all/rp_filter",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/tcp_congestion_control",
];

impl MachineFacts {
    pub(super) fn look() -> Self {
        let names = rustix::system::uname();
        let kernel = [names.sysname(), names.release(), names.version(), names.machine()]
            .map(|it| it.to_string_lossy().into_owned())
            .join(" ");
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let setting = |name: &str| {
            let value = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            Some((name.replace('/', "."), value.trim().to_owned()))
        };
        Self {
            kernel,
            distribution: pretty.unwrap_or("unknown").trim_matches('"').to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory::machine_bytes(),
            unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            settings: SETTINGS.iter().filter_map(|name| setting(name)).collect(),
        }
    }

    pub(super) fn to_text(&self, version: &str) -> String {
        let settings: Vec<_> =
            self.settings.iter().map(|(name, it)| format!("{name} = {it}")).collect();
        format!(
            "dwell {version}\n{}, {}\n{} processors, {} of memory\nclock: {} s since 1970\n{}",
            self.distribution,
            self.kernel,
            self.processors,
            human::bytes(self.memory_bytes),
            self.unix_s,
            settings.join("\n")
        )
    }
}

/// A configuration file, and what is wrong with it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ConfigurationFile {
    pub(super) path: String,
    /// Without anything that looks like a key.
    pub(super) text: String,
    /// All that is wrong with it, if it can't be used.
    pub(super) error: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl ConfigurationFile {
    pub(super) fn read(path: &Path) -> Self {
        const BYTES_MAX: usize = 1 << 20;
        let path_text = path.display().to_string();
        let text = match std::fs::read(path) {
            Ok(mut bytes) => {
                bytes.truncate(BYTES_MAX);
                redact_configuration(&String::from_utf8_lossy(&bytes))
            }
            Err(error) => format!("it can't be read: {error}"),
        };
        let (error, warnings) = match Config::load(path) {
            Ok(config) => (None, config.warnings()),
            Err(errors) => (Some(redact(&errors.to_string()).trim_end().to_owned()), Vec::new()),
        };
        Self { path: path_text, text, error, warnings }
    }
}

/// What the kernel counts of all UDP on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct UdpCounters {
    pub(super) in_datagrams: u64,
    pub(super) out_datagrams: u64,
    pub(super) no_ports: u64,
    pub(super) receive_buffer_errors: u64,
    pub(super) send_buffer_errors: u64,
}

impl UdpCounters {
    pub(super) fn read() -> Option<Self> {
        let (v4, v6) = ("/proc/net/snmp", "/proc/net/snmp6");
        let v6 = std::fs::read_to_string(v6).unwrap_or_default();
        Some(Self::parse(&std::fs::read_to_string(v4).ok()?, &v6))
    }

    /// Both families together.
    fn parse(v4: &str, v6: &str) -> Self {
        let mut lines = v4.lines().filter(|line| line.starts_with("Udp:"));
        let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let values: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let of = |name: &str| {
            let place = names.iter().position(|it| *it == name);
            let v4 = place.and_then(|at| values.get(at)?.parse::<u64>().ok()).unwrap_or(0);
            let line = v6.lines().find_map(|line| line.strip_prefix("Udp6")?.strip_prefix(name));
            v4 + line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        Self {
            in_datagrams: of("InDatagrams"),
            out_datagrams: of("OutDatagrams"),
            no_ports: of("NoPorts"),
            receive_buffer_errors: of("RcvbufErrors"),
            send_buffer_errors: of("SndbufErrors"),
        }
    }
}

impl fmt::Display for UdpCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in, {} out, {} to closed ports, {} and {} without room in buffers (in, out)",
            self.in_datagrams,
            self.out_datagrams,
            self.no_ports,
            self.receive_buffer_errors,
            self.send_buffer_errors
        )
    }
}

/// A ping through the tunnel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Probe {
    peer: String,
    packet_bytes: u16,
    /// None if there was no reply.
    round_trip_ns: Option<u64>,
    error: Option<String>,
}

impl Probe {
    fn of(peer: &str, len: u16, outcome: &Result<Option<Duration>, NotSent>) -> Self {
        let time = outcome.as_ref().ok().copied().flatten();
        let error = match outcome {
            Ok(_) => None,
            Err(NotSent::Failed(error) | NotSent::Forbidden(error)) => Some(error.clone()),
        };
        let round_trip_ns = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self { peer: peer.to_owned(), packet_bytes: len, round_trip_ns, error }
    }

    pub(super) fn to_text(&self) -> String {
        let outcome = match (self.round_trip_ns, &self.error) {
            (Some(ns), _) => human::duration(ns),
            (None, Some(error)) => error.clone(),
            (None, None) => "no reply".to_owned(),
        };
        format!("{}, {} bytes: {outcome}", self.peer, self.packet_bytes)
    }
}

/// Pings a peer with packets of several lengths, if it answers short ones.
pub(super) fn probe(peer: &PeerStatus, mtu: u32, pings: &Pings) -> Vec<Probe> {
    let (Some(address), Some(short)) = (pings.address, &pings.short) else { return Vec::new() };
    let mut probes = vec![Probe::of(&peer.name, 84, short)];
    let Some(full) = &pings.full else { return probes };
    let most = u16::try_from(mtu.min(peer.mtu)).unwrap_or(u16::MAX);
    // Only where the longest don't pass it matters which do.
    if !matches!(full, Ok(Some(_))) {
        for len in LENGTHS.into_iter().filter(|len| *len < most) {
            probes.push(Probe::of(&peer.name, len, &attempt(address, len)));
        }
    }
    probes.push(Probe::of(&peer.name, pings.full_len, full));
    probes
}

/// What happened lately, a line each.
pub(super) fn events(status: &Status) -> String {
    let lines = status.events.iter().map(|event| {
        let seconds = event.at_unix_ns / 1_000_000_000;
        format!("{seconds} {}: {} {}", event.kind, event.text, event.remedy).trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What a command of the system says.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Output {
    pub(super) command: String,
    pub(super) text: String,
}

/// Asks the system for routes, addresses and interfaces; none of it needs a key or shows one.
pub(super) fn commands(device: Option<&str>) -> Vec<Output> {
    let mut all: Vec<Vec<&str>> = vec![
        vec!["ip", "rule", "show"],
        vec!["ip", "route", "show", "table", "all", "type", "unicast"],
        vec!["ip", "-6", "route", "show", "type", "unicast"],
        vec!["ip", "-s", "link"],
        vec!["ip", "address"],
    ];
    if let Some(device) = device {
        all.push(vec!["tc", "-s", "qdisc", "show", "dev", device]);
    }
    all.into_iter().map(|words| output(&words)).collect()
}

fn output(words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    // Daemons and `tc` live where an ordinary user's PATH does not lead.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).args(&words[1..]);
    let text = match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let mut bytes = [output.stdout, output.stderr].concat();
            bytes.truncate(OUTPUT_BYTES_MAX);
            redact(&String::from_utf8_lossy(&bytes))
        }
        Err(error) => format!("it can't be run: {error}"),
    };
    Output { command: words.join(" "), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read_by_name() {
        let v4 = "Ip: a b\nIp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                  SndbufErrors\nUdp: 10 2 3 20 4 5\nUdpLite: InDatagrams\nUdpLite: 9\n";
        let v6 =
            "Udp6InDatagrams                 \t1\nUdp6RcvbufErrors \t7\nUdpLite6InDatagrams 8\n";
        let counters = UdpCounters::parse(v4, v6);
        assert_eq!((counters.in_datagrams, counters.out_datagrams), (11, 20));
        assert_eq!((counters.receive_buffer_errors, counters.send_buffer_errors), (11, 5));
        assert_eq!(UdpCounters::parse("", "rubbish"), UdpCounters::default());
    }

    #[test]
    fn a_file_is_shown_without_keys_and_with_what_is_wrong() {
        let key = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
        let path = std::env::temp_dir().join(format!("dwell-doctor-{}.toml", std::process::id()));
        std::fs::write(&path, format!("[node]\nprivate_key = \"{key}\"\n")).unwrap();
        let file = ConfigurationFile::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(
            file.error.as_ref().is_some_and(|error| error.contains("private_key_file")),
            "{file:?}"
        );
        assert!(!format!("{file:?}").contains(key), "{file:?}");
    }
}
