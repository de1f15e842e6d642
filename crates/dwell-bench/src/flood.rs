//! Small packets, as many as get through.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::tunnel::Tunnel;

const PORT: u16 = 9001;
/// Makes IPv4 packets of 64 bytes.
const PAYLOAD_BYTES: usize = 64 - 28;
/// The packets offered per second, step by step.
const STEPS: [u32; 6] = [12_500, 25_000, 50_000, 100_000, 200_000, 400_000];
/// If no more is delivered than before, and less than this share of what is offered, the next
/// step would bring less still.
const LEAST_DELIVERED: f64 = 0.7;
/// The sender wakes up this often.
const TICK: Duration = Duration::from_micros(200);
const GLANCE: Duration = Duration::from_millis(50);
/// The time that a step settles before it counts.
const SETTLE: Duration = Duration::from_millis(300);
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// The largest number of steps.
pub(super) const STEPS_MAX: u32 = STEPS.len() as u32;

/// The best step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Flooded {
    /// Packets delivered per second.
    pub(super) per_second: f64,
    /// CPU time per packet delivered, at the sending and the receiving end.
    pub(super) cpu_ns_per_packet: Option<[f64; 2]>,
}

/// Offers more and more, and returns the best delivery.
pub(super) fn climb(bed: &Bed<'_>, tunnel: &mut Tunnel, time: Duration) -> anyhow::Result<Flooded> {
    let mut best = Flooded::default();
    for offered in STEPS {
        let step = step(bed, tunnel, offered, time)?;
        if step.per_second > best.per_second {
            best = step;
        } else if step.per_second < LEAST_DELIVERED * f64::from(offered) {
            break;
        }
    }
    Ok(best)
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    received: AtomicU64,
}

fn step(
    bed: &Bed<'_>,
    tunnel: &mut Tunnel,
    offered: u32,
    time: Duration,
) -> anyhow::Result<Flooded> {
    let to = SocketAddr::from(([10, 1, 0, 2], PORT));
    let socket = bed.pair.client.run(|| UdpSocket::bind(to))?;
    let socket = socket.with_context(|| format!("can't listen on {to}"))?;
    socket.set_read_timeout(Some(GLANCE)).context("a socket can't be set up")?;
    // Without the right to have a larger one, the usual buffer must do.
    let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES);
    let state = Arc::new(State::default());
    let receive = Arc::clone(&state);
    let receiver = bed.pair.client.spawn_thread(move || receive.receive(&socket))?;
    let send = Arc::clone(&state);
    let sender = bed.pair.server.spawn_thread(move || send.send(to, offered))?;
    let seen = observe(bed, tunnel, &state, time);
    state.stop.store(true, Ordering::Relaxed);
    for thread in [receiver, sender] {
        let ended = thread.join().map_err(|_| anyhow::anyhow!("a thread for packets panicked"))?;
        ended?.context("packets can't be sent")?;
    }
    seen
}

fn observe(
    bed: &Bed<'_>,
    tunnel: &mut Tunnel,
    state: &State,
    time: Duration,
) -> anyhow::Result<Flooded> {
    bed.sleep(SETTLE)?;
    let (start, before) = (Instant::now(), state.received.load(Ordering::Relaxed));
    let cpu_before = tunnel.cpu_ns()?;
    bed.sleep(time)?;
    let received = (state.received.load(Ordering::Relaxed) - before) as f64;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_before.zip(tunnel.cpu_ns()?);
    Ok(Flooded {
        per_second: received / seconds,
        cpu_ns_per_packet: cpu
            .map(|(from, to)| [0, 1].map(|end| (to[end] - from[end]) as f64 / received.max(1.0))),
    })
}

impl State {
    fn send(&self, to: SocketAddr, per_second: u32) -> io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        let start = Instant::now();
        let mut sent = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let due = (start.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
            // Behind by more than this, it looks at the time again.
            let batch_end = due.min(sent + u64::from(per_second) / 100);
            for _ in sent..batch_end {
                // Refused or without room: lost, as on the way.
                let _ = socket.send(&[0x5a; PAYLOAD_BYTES]);
            }
            sent = batch_end;
            if sent >= due {
                thread::sleep(TICK);
            }
        }
        Ok(())
    }

    fn receive(&self, socket: &UdpSocket) -> io::Result<()> {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(len) if buffer[..len] == [0x5a; PAYLOAD_BYTES] => {
                    self.received.fetch_add(1, Ordering::Relaxed);
                }
                // Altered packets don't count.
                Ok(_) => {}
                Err(error) => {
                    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                    if !matches!(error.kind(), WouldBlock | TimedOut | Interrupted) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}
