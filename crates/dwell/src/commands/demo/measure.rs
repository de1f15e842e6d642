//! One download over the thin link, with a ping beside it, and what the counters say.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_lab::http::{self, Server};
use dwell_lab::lab::topology::{Pair, THIN_DEVICE};
use dwell_lab::lab::{Lab, Process};
use dwell_lab::ping::PingSummary;
use dwell_lab::relays::Relays;
use dwell_report::status::TxStatus;
use dwell_report::{Status, human};
use rustix::process::Signal;
use serde::Serialize;

use super::picture::{Course, Moment};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const HTTP_PORT: u16 = 80;
/// The period in which progress is reported and an interruption noticed.
const TICK: Duration = Duration::from_millis(100);

/// A file that is downloaded.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    /// The name in tables.
    pub(super) name: &'static str,
    pub(super) body: Arc<Vec<u8>>,
}

impl Payload {
    fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

/// The result of a download, and its cost.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Download {
    /// Bytes of the file that arrived.
    pub(super) bytes: u64,
    /// True if they are the bytes that were sent.
    pub(super) equal: bool,
    pub(super) duration_ns: u64,
    pub(super) first_byte_ns: u64,
    pub(super) goodput_bps: u64,
    /// The bytes that the device at the server's end of the link sent meanwhile, Ethernet headers and
    /// pings included.
    pub(super) link_data_bytes: u64,
    /// The bytes that came back: acknowledgements and pings.
    pub(super) link_back_bytes: u64,
    /// `link_data_bytes` / `bytes`.
    pub(super) link_ratio: f64,
    pub(super) ping: Ping,
    /// How far it was at some moments; the end is the last one.
    pub(super) course: Vec<Moment>,
    /// Only with relays.
    pub(super) relays: Option<RelayCost>,
}

/// The relays' work for a download.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RelayCost {
    /// Packets from the server to the client, pings included.
    pub(super) packets: u64,
    /// Their bytes, as they were before any compressing.
    pub(super) bytes: u64,
    /// The bytes that the other relay restored of them: the same number, unless something was lost.
    pub(super) restored_bytes: u64,
    /// The number of them that went through the compressor.
    pub(super) tried: u64,
    /// The number of them that became smaller and were sent so.
    pub(super) compressed: u64,
    /// CPU time of both relays.
    pub(super) cpu_ns: u64,
}

/// The round trips of a ping from the client to the server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Ping {
    pub(super) replies: u64,
    /// Requests that a later one overtook.
    pub(super) lost: u64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
}

impl From<&PingSummary> for Ping {
    fn from(summary: &PingSummary) -> Self {
        let replies = summary.replies.len() as u64;
        // What is still in transit when the ping ends is not lost.
        let last = summary.replies.iter().map(|reply| reply.sequence).max().unwrap_or(0);
        Self {
            replies,
            lost: last.saturating_sub(replies),
            p50_ns: summary.quantile_ns(0.5),
            p99_ns: summary.quantile_ns(0.99),
        }
    }
}

/// The progress of a download.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) bytes: u64,
    pub(super) link_data_bytes: u64,
    pub(super) elapsed: Duration,
}

/// The lab with its server running.
pub(super) struct Stage {
    pub(super) lab: Lab,
    pub(super) pair: Pair,
    pub(super) payloads: Vec<Payload>,
    interrupted: Arc<AtomicBool>,
    ping_pause: String,
    _server: Server,
}

impl Stage {
    pub(super) fn new(
        lab: Lab,
        pair: Pair,
        payloads: Vec<Payload>,
        rate: Rate,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        for host in [&pair.client, &pair.server] {
            // Or each download would begin with what the kernel remembers of the one before.
            host.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        }
        let address = SocketAddr::from((SERVER, HTTP_PORT));
        let listener = pair
            .server
            .run(|| TcpListener::bind(address))?
            .context("the HTTP server can't be started")?;
        let contents: HashMap<_, _> =
            payloads.iter().map(|file| (file.path(), Arc::clone(&file.body))).collect();
        let server = http::serve(listener, Arc::new(contents))
            .context("the HTTP server can't be started")?;
        let ping_pause = ping_pause(rate);
        Ok(Self { lab, pair, payloads, interrupted, ping_pause, _server: server })
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Pings while nothing else is on the link.
    pub(super) fn idle_ping(&self, count: u32) -> anyhow::Result<Ping> {
        let (count, server) = (count.to_string(), SERVER.to_string());
        let arguments = ["-n", "-i", &self.ping_pause, "-c", &count, &server];
        let output = self.pair.client.output("ping", &arguments)?;
        Ok(Ping::from(&PingSummary::parse(&output)))
    }

    /// Downloads a file; `None` if that was interrupted.
    pub(super) fn download(
        &self,
        payload: &Payload,
        relays: Option<&Relays>,
        mut on_progress: impl FnMut(Progress),
    ) -> anyhow::Result<Option<Download>> {
        let before = Counters::read(self, relays)?;
        let ping = BusyPing::start(self)?;
        let got = Arc::new(AtomicU64::new(0));
        let download = {
            let (payload, got) = (payload.clone(), Arc::clone(&got));
            self.pair.client.spawn_thread(move || {
                let address = SocketAddr::from((SERVER, HTTP_PORT));
                http::get(address, &payload.path(), Some(&payload.body), |bytes, _| {
                    got.store(bytes, Ordering::Relaxed);
                })
            })?
        };
        let start = Instant::now();
        let mut next_tick = TICK;
        let mut course = Course::new();
        while !download.is_finished() {
            if self.is_interrupted() {
                // The thread ends with the process.
                return Ok(None);
            }
            std::thread::sleep(TICK / 20);
            if start.elapsed() >= next_tick {
                next_tick = start.elapsed() + TICK;
                let sent = self.pair.egress.tx_bytes(THIN_DEVICE)?;
                let (bytes, elapsed) = (got.load(Ordering::Relaxed), start.elapsed());
                let at_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
                course.note(Moment { at_ns, bytes });
                let link_data_bytes = sent - before.link_data_bytes;
                on_progress(Progress { bytes, link_data_bytes, elapsed });
            }
        }
        let after = Counters::read(self, relays)?;
        let ping = ping.stop()?;
        let fetched = download
            .join()
            .map_err(|_| anyhow::anyhow!("the download panicked"))??
            .with_context(|| format!("the download of the {} file failed", payload.name))?;
        let link_data_bytes = after.link_data_bytes - before.link_data_bytes;
        let relays = after.relays.zip(before.relays).map(|(after, before)| after.since(&before));
        if let Some(cost) = relays {
            cost.ensure_carried(payload.name, fetched.bytes)?;
        }
        let end = Moment { at_ns: fetched.total_ns, bytes: fetched.bytes };
        Ok(Some(Download {
            course: course.ended(end),
            bytes: fetched.bytes,
            equal: fetched.is_as_expected,
            duration_ns: fetched.total_ns,
            first_byte_ns: fetched.first_byte_ns,
            goodput_bps: fetched.goodput_bps() as u64,
            link_data_bytes,
            link_back_bytes: after.link_back_bytes - before.link_back_bytes,
            link_ratio: link_data_bytes as f64 / fetched.bytes.max(1) as f64,
            ping,
            relays,
        }))
    }
}

/// The pings are to feel the load, not to be it: at most half a percent of the link.
fn ping_pause(rate: Rate) -> String {
    const FRAME_BYTES: u64 = 98;
    const SHARE: u64 = 200;
    let seconds = rate.transmission_ns(FRAME_BYTES * SHARE) as f64 / 1e9;
    format!("{:.3}", seconds.clamp(0.02, 1.0))
}

/// The counters of the link and the relays, so far.
struct Counters {
    link_data_bytes: u64,
    link_back_bytes: u64,
    relays: Option<RelayCost>,
}

impl Counters {
    fn read(stage: &Stage, relays: Option<&Relays>) -> anyhow::Result<Self> {
        Ok(Self {
            link_data_bytes: stage.pair.egress.tx_bytes(THIN_DEVICE)?,
            link_back_bytes: stage.pair.ingress.tx_bytes(THIN_DEVICE)?,
            relays: relays.map(RelayCost::so_far).transpose()?,
        })
    }
}

impl RelayCost {
    fn so_far(relays: &Relays) -> anyhow::Result<Self> {
        let (ingress, egress): (Status, Status) =
            (relays.ingress.status()?, relays.egress.status()?);
        let sum = |count: fn(&TxStatus) -> u64| egress.peers.iter().map(|p| count(&p.tx)).sum();
        Ok(Self {
            packets: sum(|tx| tx.sent.packets),
            bytes: sum(|tx| tx.sent.bytes),
            restored_bytes: ingress.tun.tx_bytes,
            tried: sum(|tx| tx.tried),
            compressed: sum(|tx| tx.compressed.packets),
            cpu_ns: ingress.cpu_ns + egress.cpu_ns,
        })
    }

    fn since(self, before: &Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            restored_bytes: self.restored_bytes - before.restored_bytes,
            tried: self.tried - before.tried,
            compressed: self.compressed - before.compressed,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }
}

impl RelayCost {
    /// Fails if a file of this size did not cross both relays. Where the tunnel is down, packets
    /// go as they would without it: such a download would be reported under a scheme's name.
    fn ensure_carried(&self, file: &str, file_bytes: u64) -> anyhow::Result<()> {
        // With their headers, packets are more than what they carry.
        let carried = self.bytes.min(self.restored_bytes);
        ensure!(
            carried >= file_bytes,
            "the {file} file went past the relays: they carried {} of its {}; was the tunnel \
             down for a while?",
            human::bytes(carried),
            human::bytes(file_bytes),
        );
        Ok(())
    }
}

/// A ping that runs until it is stopped. It writes to a file: a pipe might fill up.
struct BusyPing {
    process: Process,
    output: PathBuf,
}

impl BusyPing {
    fn start(stage: &Stage) -> anyhow::Result<Self> {
        let output = stage.lab.directory().join("ping.txt");
        let file = fs::File::create(&output).context("the file for ping's output can't be made")?;
        let mut command = stage.pair.client.command("ping");
        command.args(["-n", "-i", &stage.ping_pause, &SERVER.to_string()]);
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        Ok(Self { process: Process::spawn(&mut command)?, output })
    }

    fn stop(mut self) -> anyhow::Result<Ping> {
        // Interrupted, it says what it still has to say.
        self.process.signal(Signal::INT)?;
        if self.process.wait_timeout(Duration::from_secs(1))?.is_none() {
            self.process.stop()?;
        }
        let output =
            fs::read_to_string(&self.output).context("the output of ping can't be read")?;
        Ok(Ping::from(&PingSummary::parse(&output)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_went_past_the_relays_is_no_result() {
        let cost = |bytes, restored_bytes| RelayCost {
            packets: 9,
            bytes,
            restored_bytes,
            tried: 9,
            compressed: 9,
            cpu_ns: 1,
        };
        assert!(cost(1040, 1040).ensure_carried("text", 1000).is_ok());
        let error = cost(400, 1040).ensure_carried("text", 1000).unwrap_err().to_string();
        assert!(error.contains("carried 400 B of its 1.0 kB"), "{error}");
        assert!(cost(1040, 0).ensure_carried("text", 1000).is_err());
    }
}
