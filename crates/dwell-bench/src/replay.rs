//! `./x bench replay`: whether `dwell trace replay` is right. The same capture goes by
//! tcpreplay through two relays in a lab, and through the replay.

mod account;
mod scene;
mod shake;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dwell_base::Rate;
use dwell_lab::lab::{Host, Lab, Process};
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};
use dwell_report::Status;
use dwell_testkit::stalls::StallWatch;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::account::{Account, Agreement};
use self::scene::{Mac, Scene};
use self::shake::shake;
use super::bed::Bed;
use super::link_rate::LinkRate;
use super::options::{Records, Rounds};
use super::record::{Bench, OnlyPlace, Run};
use super::runner::{self, Series};
use dwell_cli::values::{codec, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench replay site.pcap                           over a link that carries 70 % of it
  ./x bench replay site.pcap --rate 1mbit --seconds 20 over one of 1 Mbit/s, in 20 s
  ./x bench replay *.pcap.gz --scheme packet,edge --runs 5 --json runs.jsonl

All packets go from the client to the server, in the order and with the gaps of the capture (none
longer than 10 s), sped up so that it lasts as long as asked. What arrived at the sending relay, and when, is captured and
replayed: so that what differs is the relay, not how evenly tcpreplay sends. How far the replay's figures
are determined at all shows in replays whose packets are moved by up to 0.2 ms (--shaken). A relay can't send while the machine stands
still, as virtual machines do at times; what the link would have carried meanwhile is lost, and no replay
knows of it. How long that was is reported. tcpreplay and tcpdump must be installed.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Compare `dwell trace replay` with real relays, by tcpreplay of captures
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
pub(super) struct Replay {
    /// Captures (pcap, pcapng; plain, gzip or zstd), sent one after another
    #[arg(required_unless_present = "report", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Schemes of dwell
    #[arg(long, value_name = "SCHEME,...", default_value = "none,packet,flow,edge")]
    #[arg(value_delimiter = ',', value_parser = schemes())]
    scheme: Vec<String>,
    /// The codec
    #[arg(long, default_value = "zstd:1", value_parser = codec)]
    codec: String,
    /// Rate of the link; without it, one that carries 70 % of the packets' bytes
    #[arg(long)]
    rate: Option<Rate>,
    /// Seconds for which the packets are sent
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    #[command(flatten)]
    rounds: Rounds,
    /// Number of replays with moved packets for each run
    #[arg(long, value_name = "COUNT", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    shaken: u32,
    #[command(flatten)]
    records: Records,
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    #[serde(rename = "rate_bps")]
    rate: Rate,
    codec: String,
    /// What is sent, in which time, and how much faster than it was captured.
    packets: usize,
    bytes: usize,
    left_out_packets: u64,
    seconds: u32,
    speed: f64,
    /// Replays with moved packets for each run.
    shaken: u32,
}

impl Bench for Replay {
    const NAME: &'static str = "replay";
    type Conditions = Conditions;
    type Place = OnlyPlace;
    type Measured = Agreement;

    fn line(_place: &OnlyPlace, agreement: &Agreement) -> String {
        agreement.in_a_word()
    }

    fn report(runs: &[Run<Self>]) -> String {
        let mut text = runner::head(runs);
        let Some(first) = runs.first() else { return text };
        let Conditions { packets, bytes, left_out_packets, speed, rate, .. } = &first.conditions;
        text += &format!(
            "{packets} packets of {bytes} bytes in all ({left_out_packets} left out), {speed:.3} times \
             as fast as captured, over a link of {rate}\n\n"
        );
        text + &account::report(&runner::rows(runs, &OnlyPlace {}))
    }
}

/// The share of the offered bytes that the link carries by default.
const CARRIED: f64 = 0.7;
/// Starting and stopping relays and programs.
const AROUND: Duration = Duration::from_secs(5);
/// Nothing that is waited for takes longer, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(50);

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let scene = match &self.files[..] {
            [] => Scene::default(), // only a report is asked for
            files => Scene::read(files)?,
        };
        let conditions = self.conditions(&scene);
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, &scene, series))
    }

    fn measure(
        &self,
        lab: &mut Lab,
        scene: &Scene,
        series: &mut Series<Self>,
    ) -> anyhow::Result<()> {
        ensure_installed("tcpreplay")?;
        ensure_installed("tcpdump")?;
        let rate = self.link_rate(scene);
        // What the relays take the link for limits them; the cable is faster.
        let bed = Bed::new(lab, LinkRate(None), 0)?;
        let takes = Duration::from_secs(self.seconds.into()) + AROUND;
        let is_interrupted = || bed.check().is_err();
        series.here(&self.scheme, (self.rounds.runs, takes), is_interrupted, |scheme| {
            Stage { bed: &bed, scene, asked: self, rate, scheme }.run()
        })
    }

    fn conditions(&self, scene: &Scene) -> Conditions {
        Conditions {
            rate: self.link_rate(scene),
            codec: self.codec.clone(),
            packets: scene.len(),
            bytes: scene.bytes(),
            left_out_packets: scene.left_out,
            seconds: self.seconds,
            speed: self.speed(scene),
            shaken: self.shaken,
        }
    }

    fn link_rate(&self, scene: &Scene) -> Rate {
        let offered = scene.bytes() as f64 * 8.0 / f64::from(self.seconds);
        let carried = Rate::clamped_bps((offered * CARRIED) as u64);
        self.rate.unwrap_or(carried)
    }

    /// Returns the factor by which it is faster than it was captured.
    fn speed(&self, scene: &Scene) -> f64 {
        scene.span_ns() as f64 / 1e9 / f64::from(self.seconds)
    }
}

/// A run.
struct Stage<'a> {
    bed: &'a Bed<'a>,
    scene: &'a Scene,
    asked: &'a Replay,
    rate: Rate,
    scheme: &'a str,
}

impl Stage<'_> {
    fn run(&self) -> anyhow::Result<Agreement> {
        self.bed.check()?;
        let settings = RelaySettings {
            scheme: self.scheme.to_owned(),
            codec: self.asked.codec.clone(),
            rate: RelayRate::Fixed(self.rate),
            // Else the kernel would hand over packets joined, and tcpdump see them so.
            offload: false,
            ..RelaySettings::default()
        };
        let program = crate::program::dwell()?;
        let mut relays = Relays::start(self.bed.lab, &self.bed.pair, &program, &settings)?;
        let done = self.with(&relays, &program);
        relays.stop()?;
        done
    }

    fn with(&self, relays: &Relays, program: &Path) -> anyhow::Result<Agreement> {
        let directory = self.bed.lab.directory();
        let sent = directory.join("sent.pcap");
        let arrived = directory.join("arrived.pcap");
        self.scene.write(&sent, macs(&self.bed.pair.client)?)?;
        let recorder = Recorder::start(relays.ingress.host(), &arrived)?;
        let before = self.settled(relays)?;
        let watch = StallWatch::start();
        self.send(&sent)?;
        let stalled_ms = watch.stop().as_secs_f64() * 1e3;
        let after = self.settled(relays)?;
        recorder.stop()?;
        let replayed = self.replay(program, &arrived)?;
        let shaken = self.shaken(program, &arrived)?;
        let relayed = Account::between(&before, &after)?;
        ensure!(
            replayed.arrived_packets == relayed.arrived_packets,
            "{} packets arrived, and tcpdump saw {}: is the machine busy?",
            relayed.arrived_packets,
            replayed.arrived_packets
        );
        Ok(Agreement { replayed, shaken, relayed, stalled_ms })
    }

    /// Replays of the same packets, moved.
    fn shaken(&self, program: &Path, arrived: &Path) -> anyhow::Result<Vec<Account>> {
        let moved = self.bed.lab.directory().join("moved.pcap");
        let replay = |seed| {
            self.bed.check()?;
            shake(arrived, &moved, seed)?;
            self.replay(program, &moved)
        };
        (1..=self.asked.shaken.into()).map(replay).collect()
    }

    fn send(&self, capture: &Path) -> anyhow::Result<()> {
        let mut command = self.bed.pair.client.command("tcpreplay");
        command.args(["--intf1=eth0", "--quiet"]);
        command.arg(format!("--multiplier={}", self.asked.speed(self.scene).max(1e-3)));
        command.arg(capture).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        loop {
            if let Some(status) = process.try_wait()? {
                ensure!(status.success(), "tcpreplay ended with {status}");
                return Ok(());
            }
            self.bed.sleep(GLANCE)?;
        }
    }

    /// The ingress' state once nothing is under way any more.
    fn settled(&self, relays: &Relays) -> anyhow::Result<Status> {
        let end = Instant::now() + PATIENCE;
        let mut before = relays.ingress.status()?;
        while Instant::now() < end {
            self.bed.sleep(2 * GLANCE)?;
            let now = relays.ingress.status()?;
            let tx = |status: &Status| status.peers.first().map(|p| (p.tx.arrived, p.tx.sent));
            let held = now.peers.first().map_or(0, |peer| peer.tx.held.packets);
            if held == 0 && tx(&now) == tx(&before) {
                return Ok(now);
            }
            before = now;
        }
        bail!("the relay does not come to rest")
    }

    fn replay(&self, program: &Path, capture: &Path) -> anyhow::Result<Account> {
        let rate = format!("{}bit", self.rate.as_bps());
        let output = Command::new(program)
            .args(["trace", "replay", "--json", "--rate", &rate])
            .args(["--scheme", self.scheme, "--codec", &self.asked.codec])
            .arg(capture)
            .output()
            .context("the replay can't be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dwell trace replay: {said}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let status: Status = serde_json::from_value(report["status"].clone())?;
        let peer = status.peers.iter().find(|peer| peer.name == self.scheme);
        Ok(Account::of(&peer.context("the scheme is not in the report")?.tx))
    }
}

/// Captures what goes into a relay.
struct Recorder(Process);

impl Recorder {
    fn start(host: &Host, file: &Path) -> anyhow::Result<Self> {
        let out = File::create(file).with_context(|| file.display().to_string())?;
        let log = file.with_extension("log");
        let mut command = host.command("tcpdump");
        // To standard output, and as who we are: it may be no one else here.
        command.args(["-i", "dwell0", "-Q", "out", "-Z", "root", "-n", "-s", "0"]);
        // Bursts must find room.
        command.arg("--buffer-size=32768");
        command.args(["--time-stamp-precision=nano", "-w", "-"]).stdout(out);
        command.arg("dst net 10.2.0.0/24 or dst net fd00:2::/64");
        command.stderr(File::create(&log).with_context(|| log.display().to_string())?);
        let mut process = Process::spawn(&mut command)?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if said.contains("listening on") {
                return Ok(Self(process));
            }
            if let Some(status) = process.try_wait()? {
                bail!("tcpdump ended with {status}: {}", said.trim());
            }
            std::thread::sleep(GLANCE);
        }
        bail!("tcpdump does not begin to listen")
    }

    fn stop(mut self) -> anyhow::Result<()> {
        // It is given what the kernel has captured once a second, and drops the rest as it ends.
        std::thread::sleep(Duration::from_millis(1500));
        self.0.signal(Signal::INT)?;
        ensure!(self.0.wait_timeout(PATIENCE)?.is_some(), "tcpdump does not end");
        Ok(())
    }
}

/// The client's Ethernet address, and its gateway's.
fn macs(client: &Host) -> anyhow::Result<[Mac; 2]> {
    // The first packet looks for the gateway's.
    client.output("ping", &["-n", "-c", "1", "-W", "2", "10.1.0.1"])?;
    let own = client.output("ip", &["-o", "link", "show", "dev", "eth0"])?;
    let gateway = client.output("ip", &["neigh", "show", "10.1.0.1"])?;
    let of = |text: &str, key| mac(text, key).with_context(|| format!("no {key} in {text:?}"));
    Ok([of(&own, "link/ether")?, of(&gateway, "lladdr")?])
}

/// The address behind `key` in what `ip` says.
fn mac(text: &str, key: &str) -> Option<Mac> {
    let mut words = text.split_whitespace().skip_while(|word| *word != key);
    let mut mac = Mac::default();
    let mut parts = words.nth(1)?.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn ensure_installed(program: &str) -> anyhow::Result<()> {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        found.is_ok(),
        "{program} is not installed: install it, for instance: sudo apt install {program}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_ip_says() {
        let said = "2: eth0@if3: <UP> mtu 1500\\    link/ether 0a:1b:2c:3d:4e:5f brd ff:ff";
        assert_eq!(mac(said, "link/ether"), Some([0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f]));
        assert_eq!(mac("10.1.0.1 dev eth0 FAILED", "lladdr"), None);
        assert_eq!(mac("lladdr 0a:1b", "lladdr"), None);
    }
}
