//! `./x bench chain`: which relay of a chain compresses how much (Shimamura et al., Table 3).

mod record;
mod source;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_base::Rate;
use dwell_lab::lab::Lab;
use dwell_lab::lab::topology::PairSpec;
use dwell_lab::relays::{Relay, RelayRate, RelaySettings};
use dwell_testkit::mesh::Mesh;
use dwell_testkit::sites::{Layout, Sites, sites};

use self::record::{Conditions, Counts, FORWARDED, NodeCounts, OPENED};
use self::source::{Content, Flow, Way};
use super::bed::Interrupted;
use super::options::{Records, Rounds, Watch};
use super::record::OnlyPlace;
use super::runner::Series;
use dwell_cli::values::{codec, probability, schemes};

const AFTER_HELP: &str = "\
Examples:
  ./x bench chain                             four relays at 10 Mbit/s, three rounds
  ./x bench chain --opened                    also with relays that open everything
  ./x bench chain --relays 10 --seconds 60    as many as in the paper
  ./x bench chain --json runs.jsonl           write each run to a file
  ./x bench chain --json runs.jsonl --report  only print what is in the file

Target traffic goes from the first site to the last; at each relay cross traffic joins it, and
leaves at the next. All of them send as the paper's sources do: each half of the load on average, in
bursts. `compressed here` is the share of the packets that came to a relay's queue and were compressed
there; `came compressed` those that came so from the relay before.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure which relay of a chain compresses how much
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| arg.default_value("3")))]
#[command(mut_arg("seconds", |arg| arg.default_value("20")))]
pub(super) struct Chain {
    /// Number of relays in the row; all but the last can compress
    #[arg(long, value_name = "COUNT", default_value = "4")]
    #[arg(value_parser = clap::value_parser!(u8).range(3..=10))]
    relays: u8,
    /// Rate of the links
    #[arg(long, default_value = "10mbit")]
    rate: Rate,
    /// Load of each link, as a share of what it carries
    #[arg(long, value_name = "LOAD", default_value = "1.0", value_parser = load)]
    load: f64,
    /// Bytes of a packet, its IP header included
    #[arg(long, value_name = "BYTES", default_value = "500")]
    #[arg(value_parser = clap::value_parser!(u16).range(100..=1280))]
    packet: u16,
    /// The share of each packet that is text; the rest is random: 0.7 or 70%
    #[arg(long, value_name = "SHARE", default_value = "0.7", value_parser = probability)]
    text: f64,
    /// The scheme of all relays
    #[arg(long, default_value = "packet", value_parser = schemes())]
    scheme: String,
    /// Codec of the relays; a slow one, as the paper's takes five times as long as a packet on the
    /// link, so that it is worth asking which packets to compress
    #[arg(long, default_value = "zstd:19", value_parser = codec)]
    codec: String,
    /// Also runs in which each relay opens what came compressed, as without `transit`
    #[arg(long)]
    opened: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    /// Seed of the traffic
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    records: Records,
}

/// Before a run is watched: the relays learn what compressing takes and gives.
const WARM_UP: Duration = Duration::from_secs(2);
/// The time in which packets that are on their way at the end arrive.
const DRAIN: Duration = Duration::from_millis(500);
/// Starting and stopping, for the plan.
const AROUND: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(50);
/// Ethernet, IP and UDP, a sealed datagram, and a record: what a raw packet costs besides itself.
const PACKET_COST_BYTES: usize = 14 + 28 + 22 + 2;
/// IPv4 and UDP in a packet.
const PACKET_HEADERS_BYTES: usize = 28;

fn load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(load) if (0.1..=3.0).contains(&load) => Ok(load),
        Ok(_) => Err("the load must be from 0.1 to 3".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Chain {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = self.conditions();
        self.records.run::<Self>(conditions, |lab, series| self.measure(lab, series))
    }

    fn measure(&self, lab: &mut Lab, series: &mut Series<Self>) -> anyhow::Result<()> {
        let all: &[&str] = if self.opened { &[FORWARDED, OPENED] } else { &[FORWARDED] };
        let takes = WARM_UP + DRAIN + AROUND + Duration::from_secs_f64(self.watch.seconds);
        series.plan([(series.missing(&OnlyPlace {}, all, self.rounds.runs), takes)]);
        let interrupted = lab.interrupted();
        for round in 0..self.rounds.runs {
            for &how in all {
                let is_interrupted = || interrupted.load(Ordering::Relaxed);
                let turn = (&OnlyPlace {}, how.to_owned(), round);
                series.run(turn, takes, is_interrupted, || {
                    self.measure_one(lab, &interrupted, round, how == FORWARDED)
                })?;
            }
        }
        Ok(())
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            relays: self.relays.into(),
            rate: self.rate,
            load: self.load,
            packet_bytes: self.packet.into(),
            text: self.text,
            scheme: self.scheme.clone(),
            codec: self.codec.clone(),
            seconds: self.watch.seconds,
            seed: self.seed,
        }
    }

    /// Packets a second of each flow: two share each link.
    fn per_second(&self) -> f64 {
        let packet_bits = (usize::from(self.packet) + PACKET_COST_BYTES) as f64 * 8.0;
        self.load * self.rate.as_bps() as f64 / packet_bits / 2.0
    }

    fn measure_one(
        &self,
        lab: &mut Lab,
        interrupted: &AtomicBool,
        round: u32,
        transit: bool,
    ) -> anyhow::Result<Counts> {
        let layout = Layout::chain(self.relays.into());
        let network = sites(lab, &layout, &PairSpec::thin(self.rate, 0))?;
        let settings = RelaySettings {
            scheme: self.scheme.clone(),
            codec: self.codec.clone(),
            rate: RelayRate::Fixed(self.rate),
            transit,
            ..RelaySettings::default()
        };
        let dwell = crate::program::dwell()?;
        let mut mesh = Mesh::start(lab, &network, &dwell, &settings)?;
        let seed = self.seed + u64::from(round);
        let flows = self.start_flows(&network, seed)?;
        wait(WARM_UP, interrupted)?;
        let before = counts(&mesh.relays)?;
        flows.iter().for_each(|flow| flow.watch(true));
        wait(Duration::from_secs_f64(self.watch.seconds), interrupted)?;
        flows.iter().for_each(|flow| flow.watch(false));
        let after = counts(&mesh.relays)?;
        flows.iter().for_each(Flow::stop_sending);
        wait(DRAIN, interrupted)?;
        let flows: Vec<record::FlowCounts> =
            flows.into_iter().map(Flow::finish).collect::<Result<_, _>>()?;
        for relay in &mut mesh.relays {
            relay.process().stop()?;
        }
        for flow in &flows {
            ensure!(flow.altered == 0, "{}: {} packets were altered", flow.flow, flow.altered);
        }
        let nodes = after.iter().zip(&before).map(|(after, before)| after.since(before)).collect();
        Ok(Counts { nodes, flows })
    }

    /// The target traffic, and the cross traffic of each relay but the last.
    fn start_flows(&self, network: &Sites, seed: u64) -> anyhow::Result<Vec<Flow>> {
        let payload_bytes = usize::from(self.packet) - PACKET_HEADERS_BYTES;
        let content = Arc::new(Content::new(payload_bytes, self.text, seed));
        let last = usize::from(self.relays) - 1;
        let target = Way { from: 0, to: last };
        let cross = (0..last).map(|from| Way { from, to: from + 1 });
        let ways = std::iter::once(target).chain(cross).enumerate();
        ways.map(|it| Flow::start(network, it, self.per_second(), &content, seed)).collect()
    }
}

/// Returns the relays' counts of the links to their next ones.
fn counts(relays: &[Relay]) -> anyhow::Result<Vec<NodeCounts>> {
    let mut all = Vec::new();
    for (at, relay) in relays.iter().enumerate().take(relays.len() - 1) {
        let status = relay.status()?;
        // The relay before comes first, and the first one has none before it.
        let (before, next) = match &status.peers[..] {
            [next] if at == 0 => (None, next),
            [before, next] => (Some(before), next),
            peers => anyhow::bail!("gateway{} has {} peers", at + 1, peers.len()),
        };
        let tx = &next.tx;
        all.push(NodeCounts {
            arrived: tx.arrived.packets,
            carried: tx.forwarded_compressed.packets,
            tried: tx.tried,
            compressed: tx.compressed.packets,
            compressed_bytes: tx.compressed.bytes,
            compressed_to_bytes: tx.compressed_to_bytes,
            compress_ns: tx.compress_ns,
            dropped: tx.dropped_total().packets,
            link_bytes: tx.link_bytes,
            opened: before.map_or(0, |before| before.rx.compressed),
        });
    }
    Ok(all)
}

fn wait(time: Duration, interrupted: &AtomicBool) -> Result<(), Interrupted> {
    let end = Instant::now() + time;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(GLANCE));
    }
}
