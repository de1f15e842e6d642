//! Bursts of packets from one site to another, each checked and timed.
//!
//! The source of Shimamura et al., section 5.2 (`Application/Traffic/Exponential` of ns-2): bursts of
//! an exponential number of packets, a packet interval apart, and exponential pauses between them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::Rng;
use dwell_base::time::duration_ns;
use dwell_lab::corpus;
use dwell_lab::lab::{Host, LabError};
use dwell_testkit::sites::Sites;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::super::statistics::rank;
use super::record::FlowCounts;

/// The first flow's; the others have the next ones.
const PORT: u16 = 9100;
/// The mean length of a burst, in packet intervals: 250 µs of 66.7 µs each (Table 2).
const BURST_INTERVALS: f64 = 3.75;
/// Mean packets of a burst of at least one: 1 + e^(−1.5/m) / (1 − e^(−1/m)).
fn burst_packets() -> f64 {
    1.0 + (-1.5 / BURST_INTERVALS).exp() / (1.0 - (-1.0 / BURST_INTERVALS).exp())
}
/// Within a burst so much more is sent than on average: 60 Mbit/s of 50.
const PEAK: f64 = 1.2;
/// Number and time.
const HEADER_BYTES: usize = 16;
const GLANCE: Duration = Duration::from_millis(50);
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
const POOL_BYTES: usize = 1 << 20;

/// The content of packets.
#[derive(Debug)]
pub(super) struct Content {
    text: Vec<u8>,
    random: Vec<u8>,
    /// Bytes of text at the beginning of a payload, and bytes in all.
    text_bytes: usize,
    payload_bytes: usize,
}

impl Content {
    /// Payloads of a number of bytes, the given share of them text.
    pub(super) fn new(payload_bytes: usize, text_share: f64, seed: u64) -> Self {
        Self {
            text: corpus::text(POOL_BYTES, seed),
            random: corpus::incompressible(POOL_BYTES, seed),
            text_bytes: (payload_bytes as f64 * text_share) as usize,
            payload_bytes: payload_bytes.max(HEADER_BYTES),
        }
    }

    /// Writes the body of the `n`th packet of a flow.
    fn body(&self, flow: usize, n: u64, out: &mut Vec<u8>) {
        // Far apart, so that no two packets near each other are alike.
        let step = (n.wrapping_mul(7919) + flow as u64 * 100_003) as usize;
        let at = step % (POOL_BYTES - self.payload_bytes);
        let room = self.payload_bytes - HEADER_BYTES;
        let text = self.text_bytes.min(room);
        out.extend_from_slice(&self.text[at..at + text]);
        out.extend_from_slice(&self.random[at..at + room - text]);
    }
}

/// Packets of one flow on their way.
#[derive(Debug)]
pub(super) struct Flow {
    name: String,
    state: Arc<State>,
    sender: JoinHandle<Result<io::Result<()>, LabError>>,
    receiver: JoinHandle<Result<io::Result<Vec<u64>>, LabError>>,
    _end: End,
}

/// Ends the threads, however the run ends.
#[derive(Debug)]
struct End(Arc<State>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.stop_sending.store(true, Ordering::Relaxed);
        self.0.stop_receiving.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct State {
    flow: usize,
    content: Arc<Content>,
    interval: Duration,
    seed: u64,
    epoch: Instant,
    is_watched: AtomicBool,
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    altered: AtomicU64,
    late: AtomicU64,
}

/// The path of a flow, by the numbers of the sites.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Flow {
    /// Begins to send `per_second` packets on average.
    pub(super) fn start(
        sites: &Sites,
        (flow, way): (usize, Way),
        per_second: f64,
        content: &Arc<Content>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let [address, _] = Sites::site_addresses(way.to);
        let to = SocketAddr::new(address, PORT + flow as u16);
        let socket = sites.sites[way.to].run(|| UdpSocket::bind(to))?;
        let socket = socket.with_context(|| format!("can't listen on {to}"))?;
        socket.set_read_timeout(Some(GLANCE)).context("a socket can't be set up")?;
        // Without the right to have a larger one, the usual buffer must do.
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
        let state = Arc::new(State {
            flow,
            content: Arc::clone(content),
            interval: Duration::from_secs_f64(1.0 / (PEAK * per_second)),
            seed,
            epoch: Instant::now(),
            is_watched: AtomicBool::new(false),
            stop_sending: AtomicBool::new(false),
            stop_receiving: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            late: AtomicU64::new(0),
        });
        let (receive, send) = (Arc::clone(&state), Arc::clone(&state));
        let host: &Host = &sites.sites[way.from];
        Ok(Self {
            name: format!("site{} to site{}", way.from + 1, way.to + 1),
            receiver: sites.sites[way.to].spawn_thread(move || receive.receive(&socket))?,
            sender: host.spawn_thread(move || send.send(to))?,
            _end: End(Arc::clone(&state)),
            state,
        })
    }

    /// From now on delays are noted, or not.
    pub(super) fn watch(&self, on: bool) {
        self.state.is_watched.store(on, Ordering::Relaxed);
    }

    pub(super) fn stop_sending(&self) {
        self.state.stop_sending.store(true, Ordering::Relaxed);
    }

    /// Ends it: what came until now.
    pub(super) fn finish(self) -> anyhow::Result<FlowCounts> {
        self.stop_sending();
        self.state.stop_receiving.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a thread for packets panicked");
        self.sender.join().map_err(panicked)??.context("packets can't be sent")?;
        let mut delays = self.receiver.join().map_err(panicked)??.context("or received")?;
        delays.sort_unstable();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(FlowCounts {
            flow: self.name,
            sent: count(&self.state.sent),
            received: count(&self.state.received),
            altered: count(&self.state.altered),
            late: count(&self.state.late),
            delay_p50_ns: rank(&delays, 0.5),
            delay_p99_ns: rank(&delays, 0.99),
        })
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        duration_ns(self.epoch.elapsed())
    }

    fn send(&self, to: SocketAddr) -> io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        let mut rng = Rng::stream(self.seed, self.flow as u64);
        let pause_mean = (PEAK - 1.0) * burst_packets() * self.interval.as_secs_f64();
        let (mut due, mut n, mut packet) = (Instant::now(), 0_u64, Vec::new());
        while !self.stop_sending.load(Ordering::Relaxed) {
            let burst = (rng.exponential(BURST_INTERVALS) + 0.5).floor().max(1.0) as u64;
            due += Duration::from_secs_f64(rng.exponential(pause_mean));
            for _ in 0..burst {
                due += self.interval;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                packet.clear();
                packet.extend_from_slice(&n.to_be_bytes());
                packet.extend_from_slice(&self.now_ns().to_be_bytes());
                self.content.body(self.flow, n, &mut packet);
                // Refused or without room: lost, as on the way.
                let _ = socket.send(&packet);
                n += 1;
                self.sent.store(n, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Counts what comes, until asked to stop; the delays of what came while it was watched.
    fn receive(&self, socket: &UdpSocket) -> io::Result<Vec<u64>> {
        let (mut room, mut body, mut delays, mut next) = ([0; 2048], Vec::new(), Vec::new(), 0);
        while !self.stop_receiving.load(Ordering::Relaxed) {
            match socket.recv(&mut room) {
                Ok(len) => {
                    let now_ns = self.now_ns();
                    let Some((n, sent_ns)) = self.read(&room[..len], &mut body) else {
                        self.altered.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    self.received.fetch_add(1, Ordering::Relaxed);
                    self.late.fetch_add(u64::from(n < next), Ordering::Relaxed);
                    next = next.max(n + 1);
                    if self.is_watched.load(Ordering::Relaxed) {
                        delays.push(now_ns.saturating_sub(sent_ns));
                    }
                }
                Err(error) => {
                    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                    if !matches!(error.kind(), WouldBlock | TimedOut | Interrupted) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(delays)
    }

    /// Number and time of a packet that came as it was sent.
    fn read(&self, packet: &[u8], body: &mut Vec<u8>) -> Option<(u64, u64)> {
        let (n, rest) = packet.split_first_chunk()?;
        let (sent_ns, rest) = rest.split_first_chunk()?;
        let n = u64::from_be_bytes(*n);
        body.clear();
        self.content.body(self.flow, n, body);
        (rest == body.as_slice()).then(|| (n, u64::from_be_bytes(*sent_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_those_of_the_paper() {
        assert!((burst_packets() - 3.863_74).abs() < 1e-4, "{}", burst_packets());
    }

    #[test]
    fn a_body_has_its_length_and_its_text_in_front() {
        let content = Content::new(472, 0.3, 1);
        let (mut body, mut other) = (Vec::new(), Vec::new());
        content.body(0, 5, &mut body);
        content.body(0, 6, &mut other);
        assert_eq!((body.len(), other.len()), (456, 456));
        assert_ne!(body, other);
        assert!(body[..141].is_ascii() && !body[141..].is_ascii());
    }
}
