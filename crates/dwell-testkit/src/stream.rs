//! Numbered datagrams from one host to another, each checked and timed by the clock that both
//! hosts share.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_base::Rng;
use dwell_base::time::duration_ns;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use dwell_lab::corpus;
use dwell_lab::lab::{Host, LabError};

/// Number, time of sending in microseconds, check sum: 4 bytes each.
pub const PAYLOAD_BYTES_MIN: usize = 12;
/// The longest datagram.
pub const PAYLOAD_BYTES_MAX: usize = 8_900;

/// The times at which datagrams are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// This many a second, evenly.
    Even(f64),
    /// This many a second on average, at random moments (a Poisson process), from this seed.
    Poisson(f64, u64),
}

/// The datagrams of a stream, and their destination.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// The address of the receiver.
    pub to: SocketAddr,
    /// Bytes of UDP payload: [`PAYLOAD_BYTES_MIN`] to [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// The spacing.
    pub spacing: Spacing,
}

/// A datagram that arrived, unaltered, for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number, from 0.
    pub number: u32,
    /// The time of sending, in nanoseconds since the stream began; exact to a microsecond.
    pub sent_ns: u64,
    /// The time of arrival.
    pub at_ns: u64,
}

impl Arrival {
    /// Returns the time that it was under way.
    pub fn delay_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.sent_ns)
    }
}

/// The counters and arrivals of a stream.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The beginning.
    pub epoch: Instant,
    /// Datagrams that were sent, or could not be sent.
    pub sent: u64,
    /// The arrivals, in their order.
    pub arrivals: Vec<Arrival>,
    /// Datagrams that came again.
    pub duplicates: u64,
    /// Datagrams that do not belong to the stream, or were altered.
    pub altered: u64,
    /// The mean delay of sending after the due time: large values mean that the machine has no time
    /// for the source, and that measurements are void.
    pub late_mean_ns: u64,
}

impl Tally {
    /// Returns the number of datagrams that never arrived.
    pub fn lost(&self) -> u64 {
        self.sent - self.arrivals.len() as u64
    }

    /// Returns the time from `moment` to the arrival of the first datagram that was sent after it;
    /// `None` if none arrived.
    pub fn resumed_after_ns(&self, moment: Instant) -> Option<u64> {
        let moment_ns = duration_ns(moment.saturating_duration_since(self.epoch));
        let mut later = self.arrivals.iter().filter(|arrival| arrival.sent_ns >= moment_ns);
        later.next().map(|arrival| arrival.at_ns - moment_ns)
    }

    /// Returns the longest time without an arrival, from `moment` on.
    pub fn longest_silence_ns(&self, moment: Instant) -> u64 {
        let moment_ns = duration_ns(moment.saturating_duration_since(self.epoch));
        let times = self.arrivals.iter().map(|arrival| arrival.at_ns).filter(|at| *at >= moment_ns);
        let times: Vec<u64> = std::iter::once(moment_ns).chain(times).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0)
    }

    /// Returns the arrivals that were sent between two moments.
    pub fn sent_between(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Arrival> {
        let since = |moment: Instant| duration_ns(moment.saturating_duration_since(self.epoch));
        let range = since(from)..since(to);
        self.arrivals.iter().filter(move |arrival| range.contains(&arrival.sent_ns))
    }
}

/// A stream that is running.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    sender: JoinHandle<Result<io::Result<()>, LabError>>,
    receiver: JoinHandle<Result<Vec<Arrival>, LabError>>,
}

#[derive(Debug)]
struct Shared {
    spec: StreamSpec,
    epoch: Instant,
    text: Vec<u8>,
    stop_sending: AtomicBool,
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// The time at which the latest arrival was sent.
    latest_sent_ns: AtomicU64,
    duplicates: AtomicU64,
    altered: AtomicU64,
    late_total_ns: AtomicU64,
}

/// The interval at which threads check whether it is over.
const GLANCE: Duration = Duration::from_millis(20);
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// The number of datagrams beyond which they are counted as altered: no stream has more.
const ARRIVALS_MAX: usize = 8 << 20;

impl Stream {
    /// Begins to send.
    ///
    /// # Errors
    /// If the receiver's address is not the host's or is in use, or there is no thread.
    pub fn start(from: &Host, to: &Host, spec: StreamSpec) -> Result<Self, LabError> {
        let payload_bytes = spec.payload_bytes.clamp(PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX);
        let spec = StreamSpec { payload_bytes, ..spec };
        let listen = || {
            let socket = UdpSocket::bind(spec.to)?;
            socket.set_read_timeout(Some(GLANCE))?;
            Ok::<_, io::Error>(socket)
        };
        let socket = to.run(listen)?.map_err(LabError::io(format!("listen on {}", spec.to)))?;
        // Without the privilege for a larger buffer, the usual one must do.
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
        let shared = Arc::new(Shared {
            spec,
            epoch: Instant::now(),
            text: corpus::text(2 * PAYLOAD_BYTES_MAX, 1),
            stop_sending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            latest_sent_ns: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            late_total_ns: AtomicU64::new(0),
        });
        let receive = Arc::clone(&shared);
        let receiver = to.spawn_thread(move || receive.receive(&socket))?;
        let send = Arc::clone(&shared);
        let sender = from.spawn_thread(move || send.send())?;
        Ok(Self { shared, sender, receiver })
    }

    /// Returns the number of datagrams that have arrived.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Returns true if a datagram has arrived that was sent after this moment.
    pub fn has_resumed_after(&self, moment: Instant) -> bool {
        let latest_ns = self.shared.latest_sent_ns.load(Ordering::Relaxed);
        latest_ns > duration_ns(moment.saturating_duration_since(self.shared.epoch))
    }

    /// Ends it: no more is sent, and datagrams that are still under way have `grace` to arrive.
    ///
    /// # Errors
    /// If a thread could not do its work.
    pub fn finish(self, grace: Duration) -> Result<Tally, LabError> {
        self.shared.stop_sending.store(true, Ordering::Relaxed);
        let failed = |_| LabError::io("join a stream's thread")(io::Error::other("it panicked"));
        let sent = self.sender.join().map_err(failed)??;
        thread::sleep(grace);
        self.shared.stop.store(true, Ordering::Relaxed);
        let arrivals = self.receiver.join().map_err(failed)??;
        sent.map_err(LabError::io("send a stream"))?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Tally {
            epoch: self.shared.epoch,
            sent: count(&self.shared.sent),
            arrivals,
            duplicates: count(&self.shared.duplicates),
            altered: count(&self.shared.altered),
            late_mean_ns: count(&self.shared.late_total_ns) / count(&self.shared.sent).max(1),
        })
    }
}

impl Shared {
    fn send(&self) -> io::Result<()> {
        let any = if self.spec.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        let mut pauses = Pauses::new(self.spec.spacing);
        let mut payload = Vec::new();
        let mut due = pauses.next();
        for number in 0..=u32::MAX {
            loop {
                if self.stop_sending.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let left = due.saturating_sub(self.epoch.elapsed());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(GLANCE));
            }
            let late = self.epoch.elapsed().saturating_sub(due);
            self.late_total_ns.fetch_add(duration_ns(late), Ordering::Relaxed);
            due += pauses.next();
            self.write(number, self.epoch.elapsed().as_micros() as u32, &mut payload);
            // Without a route, or room, it is lost.
            match socket.send_to(&payload, self.spec.to) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                _ => self.sent.fetch_add(1, Ordering::Relaxed),
            };
        }
        Ok(())
    }

    /// Writes the payload of this number.
    fn write(&self, number: u32, sent_us: u32, payload: &mut Vec<u8>) {
        payload.clear();
        payload.extend(number.to_be_bytes());
        payload.extend(sent_us.to_be_bytes());
        payload.extend([0; 4]);
        let from = number as usize * 7 % PAYLOAD_BYTES_MAX;
        let rest = self.spec.payload_bytes - PAYLOAD_BYTES_MIN;
        payload.extend(&self.text[from..from + rest]);
        let sum = check_sum(payload).to_be_bytes();
        payload[8..12].copy_from_slice(&sum);
    }

    fn receive(&self, socket: &UdpSocket) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut seen = Vec::new();
        let mut buffer = vec![0; 65_536];
        while !self.stop.load(Ordering::Relaxed) {
            // A timeout, or an ICMP error because nothing listened before: both pass.
            let Ok(len) = socket.recv(&mut buffer) else { continue };
            let at_ns = duration_ns(self.epoch.elapsed());
            let Some(arrival) = self.read(&buffer[..len], at_ns) else {
                self.altered.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let place = arrival.number as usize;
            if place >= ARRIVALS_MAX {
                self.altered.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if seen.len() <= place {
                seen.resize(place + 1, false);
            }
            if std::mem::replace(&mut seen[place], true) {
                self.duplicates.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            arrivals.push(arrival);
            self.latest_sent_ns.fetch_max(arrival.sent_ns, Ordering::Relaxed);
            self.received.fetch_add(1, Ordering::Relaxed);
        }
        arrivals
    }

    fn read(&self, payload: &[u8], at_ns: u64) -> Option<Arrival> {
        let u32_at =
            |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        let (number, sent_us) = (u32_at(0)?, u32_at(4)?);
        let mut expected = Vec::with_capacity(payload.len());
        self.write(number, sent_us, &mut expected);
        (expected == payload).then_some(Arrival {
            number,
            sent_ns: u64::from(sent_us) * 1_000,
            at_ns,
        })
    }
}

/// Returns FNV-1a over everything but the sum itself.
fn check_sum(payload: &[u8]) -> u32 {
    let rest = payload[..8].iter().chain(&payload[PAYLOAD_BYTES_MIN..]);
    rest.fold(0x811c_9dc5, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The pauses between datagrams.
struct Pauses {
    spacing: Spacing,
    rng: Rng,
}

impl Pauses {
    fn new(spacing: Spacing) -> Self {
        let seed = if let Spacing::Poisson(_, seed) = spacing { seed } else { 0 };
        Self { spacing, rng: Rng::from_seed(seed) }
    }

    fn next(&mut self) -> Duration {
        let seconds = match self.spacing {
            Spacing::Even(per_second) => 1.0 / per_second,
            Spacing::Poisson(per_second, _) => {
                // Uniform in (0, 1], in steps of 2^-53.
                let uniform = (self.rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
                -uniform.ln() / per_second
            }
        };
        Duration::from_secs_f64(seconds.clamp(1e-6, 3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(payload_bytes: usize) -> Shared {
        Shared {
            spec: StreamSpec {
                to: "127.0.0.1:9".parse().unwrap(),
                payload_bytes,
                spacing: Spacing::Even(1.0),
            },
            epoch: Instant::now(),
            text: corpus::text(2 * PAYLOAD_BYTES_MAX, 1),
            stop_sending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            latest_sent_ns: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            late_total_ns: AtomicU64::new(0),
        }
    }

    #[test]
    fn any_altered_bit_and_any_other_length_is_seen() {
        for len in [PAYLOAD_BYTES_MIN, 172, PAYLOAD_BYTES_MAX] {
            let shared = shared(len);
            let mut payload = Vec::new();
            shared.write(77, 5, &mut payload);
            assert_eq!(payload.len(), len);
            let arrival = shared.read(&payload, 9_000).unwrap();
            assert_eq!((arrival.number, arrival.sent_ns, arrival.delay_ns()), (77, 5_000, 4_000));
            for bit in (0..len * 8).step_by(1 + len / 100) {
                let mut other = payload.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(shared.read(&other, 9_000), None, "bit {bit}");
            }
            assert_eq!(shared.read(&payload[..len - 1], 0), None);
        }
    }

    #[test]
    fn pauses_have_their_mean() {
        for spacing in [Spacing::Even(1000.0), Spacing::Poisson(1000.0, 3)] {
            let mut pauses = Pauses::new(spacing);
            let total: Duration = (0..20_000).map(|_| pauses.next()).sum();
            assert!((19.0..21.0).contains(&total.as_secs_f64()), "{spacing:?}: {total:?}");
        }
    }

    #[test]
    fn silences_and_resumption_are_reported() {
        let epoch = Instant::now();
        let arrival = |number, sent_ms: u64, at_ms: u64| Arrival {
            number,
            sent_ns: sent_ms * 1_000_000,
            at_ns: at_ms * 1_000_000,
        };
        let arrivals = vec![arrival(0, 0, 1), arrival(1, 10, 400), arrival(3, 300, 410)];
        let tally = Tally { epoch, sent: 4, arrivals, duplicates: 0, altered: 0, late_mean_ns: 0 };
        let at = |ms| epoch + Duration::from_millis(ms);
        assert_eq!(tally.lost(), 1);
        assert_eq!(tally.resumed_after_ns(at(200)), Some(210_000_000));
        assert_eq!(tally.resumed_after_ns(at(301)), None);
        assert_eq!(tally.longest_silence_ns(epoch), 399_000_000);
        assert_eq!(tally.longest_silence_ns(at(100)), 300_000_000);
        assert_eq!(tally.sent_between(at(5), at(300)).count(), 1);
    }
}
