//! Telemetry: more short UDP messages than the link carries, each checked and timed.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::time::duration_ns;
use dwell_lab::corpus;
use dwell_lab::lab::LabError;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::bed::Bed;
use super::link_rate::LinkRate;
use super::statistics::rank;

const PORT: u16 = 9000;
/// Nothing more is sent in a second, however fast the link is.
const PER_SECOND_MAX: f64 = 150_000.0;
/// A message of the usual length with its UDP, IP and Ethernet headers.
const ON_LINK_BITS: f64 = (94.0 + 8.0 + 20.0 + 14.0) * 8.0;
/// The sender wakes up this often.
const TICK: Duration = Duration::from_micros(500);
const GLANCE: Duration = Duration::from_millis(50);
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Returns the number of messages a second that are so many times what such a link carries.
pub(super) fn per_second(rate: LinkRate, times: f64) -> f64 {
    let capacity = rate.bps().map_or(f64::INFINITY, |bps| bps as f64 / ON_LINK_BITS);
    (times * capacity).min(PER_SECOND_MAX)
}

/// The messages, made beforehand; each names its place, so that it can be compared.
#[derive(Debug)]
pub(super) struct Script {
    messages: Vec<Vec<u8>>,
    per_second: f64,
}

impl Script {
    /// Enough for so long: so many times what the link carries.
    pub(super) fn new((rate, times): (LinkRate, f64), time: Duration, seed: u64) -> Self {
        let per_second = per_second(rate, times);
        let count = (per_second * time.as_secs_f64()).ceil() as usize;
        Self { messages: corpus::telemetry_messages(count, seed), per_second }
    }

    /// The place of this message, if it is one of the script, unaltered.
    fn place(&self, message: &[u8]) -> Option<usize> {
        let place = sequence(message)?;
        (self.messages.get(place)? == message).then_some(place)
    }
}

/// The number after `"seq":`.
fn sequence(message: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"seq\":";
    let start = message.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let digits = message[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(&message[start..start + digits]).ok()?.parse().ok()
}

/// Messages on their way.
#[derive(Debug)]
pub(super) struct Messages {
    state: Arc<State>,
    sender: JoinHandle<Result<io::Result<()>, LabError>>,
    receiver: JoinHandle<Result<io::Result<Vec<Arrival>>, LabError>>,
}

#[derive(Debug)]
struct State {
    script: Arc<Script>,
    /// Nanoseconds since `epoch`; 0 is never.
    sent_at_ns: Vec<AtomicU64>,
    epoch: Instant,
    stop: AtomicBool,
    received: AtomicU64,
    received_bytes: AtomicU64,
    altered: AtomicU64,
    duplicates: AtomicU64,
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at_ns: u64,
    delay_ns: u64,
}

/// The delivery of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    /// True if all that arrived had been sent so, and came once.
    pub(super) is_verified: bool,
    /// One-way delays of what arrived in the window.
    pub(super) delay_p50_ns: Option<u64>,
    pub(super) delay_p99_ns: Option<u64>,
}

impl Messages {
    pub(super) fn start(bed: &Bed<'_>, script: &Arc<Script>) -> anyhow::Result<Self> {
        let to = SocketAddr::from(([10, 1, 0, 2], PORT));
        let socket = bed.pair.client.run(|| UdpSocket::bind(to))?;
        let socket = socket.with_context(|| format!("can't listen on {to}"))?;
        socket.set_read_timeout(Some(GLANCE)).context("a socket can't be set up")?;
        // Without the right to have a larger one, the usual buffer must do.
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
        let state = Arc::new(State {
            sent_at_ns: script.messages.iter().map(|_| AtomicU64::new(0)).collect(),
            script: Arc::clone(script),
            epoch: Instant::now(),
            stop: AtomicBool::new(false),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
        });
        let receive = Arc::clone(&state);
        let receiver = bed.pair.client.spawn_thread(move || receive.receive(&socket))?;
        let send = Arc::clone(&state);
        let sender = bed.pair.server.spawn_thread(move || send.send(to))?;
        Ok(Self { state, sender, receiver })
    }

    pub(super) fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.state.received_bytes.load(Ordering::Relaxed)
    }

    /// Ends it, and returns what arrived between these two moments.
    pub(super) fn finish(self, window: [Instant; 2]) -> anyhow::Result<Delivery> {
        self.state.stop.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a thread for messages panicked");
        self.sender.join().map_err(panicked)??.context("messages can't be sent")?;
        let arrivals = self.receiver.join().map_err(panicked)??;
        let arrivals = arrivals.context("messages can't be received")?;
        let [from, to] = window.map(|at| duration_ns(at.duration_since(self.state.epoch)));
        let in_window = arrivals.iter().filter(|arrival| (from..to).contains(&arrival.at_ns));
        let mut delays: Vec<u64> = in_window.map(|arrival| arrival.delay_ns).collect();
        delays.sort_unstable();
        let is_zero = |count: &AtomicU64| count.load(Ordering::Relaxed) == 0;
        Ok(Delivery {
            is_verified: is_zero(&self.state.altered) && is_zero(&self.state.duplicates),
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
        let start = Instant::now();
        let mut sent = 0;
        while !self.stop.load(Ordering::Relaxed) && sent < self.script.messages.len() {
            let due = (start.elapsed().as_secs_f64() * self.script.per_second) as usize;
            let due = due.min(self.script.messages.len());
            for place in sent..due {
                self.sent_at_ns[place].store(self.now_ns(), Ordering::Relaxed);
                match socket.send_to(&self.script.messages[place], to) {
                    Ok(_) => {}
                    // While a tunnel's route changes hands, or a queue is full: lost.
                    Err(error) if error.kind() != io::ErrorKind::InvalidInput => {}
                    Err(error) => return Err(error),
                }
            }
            sent = sent.max(due);
            thread::sleep(TICK);
        }
        Ok(())
    }

    fn receive(&self, socket: &UdpSocket) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::with_capacity(self.script.messages.len());
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
            let len = match socket.recv(&mut buffer) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            arrivals.extend(self.arrival(&buffer[..len]));
        }
        Ok(arrivals)
    }

    fn arrival(&self, message: &[u8]) -> Option<Arrival> {
        let at_ns = self.now_ns();
        let Some(place) = self.script.place(message) else {
            self.altered.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let sent_at_ns = self.sent_at_ns[place].swap(0, Ordering::Relaxed);
        if sent_at_ns == 0 {
            self.duplicates.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.received.fetch_add(1, Ordering::Relaxed);
        self.received_bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        Some(Arrival { at_ns, delay_ns: at_ns.saturating_sub(sent_at_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_the_capacity_is_sent_within_bounds() {
        let rate = |text: &str| per_second(text.parse().unwrap(), 3.0);
        assert!((rate("1mbit") - 3e6 / 1088.0).abs() < 1e-6);
        assert!((rate("unlimited") - PER_SECOND_MAX).abs() < 1e-6);
    }

    #[test]
    fn a_message_is_known_by_its_number_and_all_its_bytes() {
        let script = Script::new(("1mbit".parse().unwrap(), 3.0), Duration::from_secs(1), 1);
        assert!(script.messages.len() > 2000);
        let mut message = script.messages[1234].clone();
        assert_eq!(script.place(&message), Some(1234));
        let last = message.len() - 1;
        message[last] ^= 1;
        assert_eq!(script.place(&message), None);
        assert_eq!(script.place(b"{\"seq\":99999999}"), None);
        assert_eq!(script.place(b"{\"seq\":}"), None);
        assert_eq!(script.place(b""), None);
    }
}
