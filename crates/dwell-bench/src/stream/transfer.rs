//! One run: a sender on one side of the link, a receiver on the other.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::time::duration_ns;
use dwell_lab::lab::topology::THIN_DEVICE;
use dwell_stream::{Limits, Receiver, Strategy, StreamReader};
use socket2::SockRef;

use super::super::bed::Bed;
use super::super::machine;
use super::contender::Contender;
use super::content::Content;
use super::pipes;
use super::pump::{self, Pump};
use super::record::{Measured, StreamAccounts};

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9000);
/// The time in which everybody notices that it is over.
const GLANCE: Duration = Duration::from_millis(50);
/// The time in which the first byte must come.
const PATIENCE: Duration = Duration::from_secs(15);

/// The times of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) warm_up: Duration,
    pub(super) watched: Duration,
}

#[derive(Debug)]
struct State {
    stop: AtomicBool,
    is_altered: AtomicBool,
    period_bytes: u64,
    arrived: Mutex<Option<Arrival>>,
}

/// The last period that has arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Instant,
    /// All that had arrived.
    bytes: u64,
}

impl State {
    fn new(period_bytes: u64) -> Self {
        Self {
            stop: AtomicBool::new(false),
            is_altered: AtomicBool::new(false),
            period_bytes,
            arrived: Mutex::new(None),
        }
    }

    fn arrived(&self) -> Option<Arrival> {
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much has arrived in all, `len` of it just now.
    fn arrive(&self, bytes: u64, len: u64) {
        if bytes / self.period_bytes > (bytes - len) / self.period_bytes {
            let arrival = Arrival { at: Instant::now(), bytes };
            *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
        }
    }
}

/// Sends the content for a while, and says what arrived.
pub(super) fn run(
    bed: &Bed<'_>,
    contender: &Contender,
    content: &Content,
    directory: &Path,
    times: Times,
) -> anyhow::Result<Measured> {
    match contender {
        Contender::Stream(config) => {
            let is_plain = config.strategy == Strategy::Plain;
            let config = config.clone();
            let send = move |stream, body: &[u8], stop: &AtomicBool| {
                Pump::new(stream, &config)?.run(body, stop)
            };
            stream(bed, is_plain, content, times, send)
        }
        Contender::Tcp(_) => stream(bed, true, content, times, pump::send_as_it_is),
        Contender::Pipe(pipe) => {
            let mut running = pipes::start(*pipe, bed, &content.body, directory)?;
            let state = Arc::new(State::new(content.period_bytes));
            let (watching, body) = (Arc::clone(&state), Arc::clone(&content.body));
            std::thread::scope(|scope| {
                // The output is read here so that the processes can be watched and ended there.
                let output = running.output.as_fd().try_clone_to_owned()?;
                let reading = scope
                    .spawn(move || compare(&mut std::fs::File::from(output), &body, &watching));
                let measured = watch(bed, &state, times, || running.cpu_ns());
                state.stop.store(true, Ordering::Relaxed);
                running.stop();
                // It ends because the processes have.
                let _ = reading.join();
                let measured = measured?;
                ensure!(
                    !state.is_altered.load(Ordering::Relaxed),
                    "what arrived is not what was sent"
                );
                Ok(measured)
            })
        }
    }
}

/// `send` gets the connection, what to send over and over, and when to stop.
fn stream(
    bed: &Bed<'_>,
    is_plain: bool,
    content: &Content,
    times: Times,
    send: impl FnOnce(TcpStream, &[u8], &AtomicBool) -> anyhow::Result<StreamAccounts> + Send + 'static,
) -> anyhow::Result<Measured> {
    let state = Arc::new(State::new(content.period_bytes));
    let address = SocketAddr::from(ADDRESS);
    let listener = bed.pair.egress.run(|| TcpListener::bind(address))?;
    let listener = listener.context("the sender can't listen")?;
    let sending = {
        let (state, body) = (Arc::clone(&state), Arc::clone(&content.body));
        bed.pair.egress.spawn_thread(move || {
            let (stream, _) = listener.accept()?;
            send(stream, &body, &state.stop)
        })?
    };
    let receiving = {
        let (state, body) = (Arc::clone(&state), Arc::clone(&content.body));
        bed.pair.ingress.spawn_thread(move || receive(address, is_plain, &body, &state))?
    };
    let measured = watch(bed, &state, times, || 0);
    state.stop.store(true, Ordering::Relaxed);
    let sent = sending.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    let received = receiving.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
    let mut measured = measured?;
    let accounts = sent.context("the sender failed")?;
    received.context("the receiver failed")?;
    ensure!(!state.is_altered.load(Ordering::Relaxed), "what arrived is not what was sent");
    measured.stream = Some(accounts);
    Ok(measured)
}

/// The CPU time and bytes up to a moment.
struct Reading {
    /// The bytes that had arrived at the end of a period, and its time.
    arrived: Arrival,
    link_bytes: u64,
    cpu_ns: u64,
}

/// Waits until something arrives, lets it warm up, and then watches it for a while: from the end of
/// one period of the content to that of another, as blocks arrive as a whole, and content may
/// change.
fn watch(
    bed: &Bed<'_>,
    state: &State,
    times: Times,
    others_cpu_ns: impl Fn() -> u64,
) -> anyhow::Result<Measured> {
    let end = Instant::now() + PATIENCE;
    while state.arrived().is_none() {
        ensure!(Instant::now() < end, "nothing arrives");
        bed.sleep(Duration::from_millis(2))?;
    }
    let look = || -> anyhow::Result<_> {
        let from = Instant::now();
        let end = from + PATIENCE;
        loop {
            if let Some(arrived) = state.arrived().filter(|arrived| arrived.at >= from) {
                let cpu_ns = machine::cpu_ns(std::process::id())? + others_cpu_ns();
                let link_bytes = bed.pair.egress.tx_bytes(THIN_DEVICE)?;
                return Ok(Reading { arrived, link_bytes, cpu_ns });
            }
            ensure!(Instant::now() < end, "nothing arrives any more");
            bed.sleep(Duration::from_millis(1))?;
        }
    };
    bed.sleep(times.warm_up)?;
    let before = look()?;
    bed.sleep(times.watched)?;
    let after = look()?;
    Ok(Measured {
        window_ns: duration_ns(after.arrived.at - before.arrived.at),
        application_bytes: after.arrived.bytes - before.arrived.bytes,
        link_bytes: after.link_bytes - before.link_bytes,
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
        stream: None,
    })
}

fn receive(address: SocketAddr, is_plain: bool, body: &[u8], state: &State) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(GLANCE))?;
    // Nothing of what is on its way when it is over shall disturb the next run.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let limits = Limits::default();
    let receiver = if is_plain { Receiver::plain(limits) } else { Receiver::new(limits) };
    compare(&mut StreamReader::with_receiver(stream, receiver), body, state)
}

/// Reads until it is over, and compares every byte.
fn compare(from: &mut impl Read, body: &[u8], state: &State) -> io::Result<()> {
    let (mut piece, mut at, mut received) = (vec![0; 256 << 10], 0, 0);
    while !state.stop.load(Ordering::Relaxed) {
        let len = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) if state.stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        };
        let mut got = &piece[..len];
        while !got.is_empty() {
            let same = got.len().min(body.len() - at);
            if got[..same] != body[at..at + same] {
                state.is_altered.store(true, Ordering::Relaxed);
            }
            got = &got[same..];
            at = (at + same) % body.len();
        }
        received += len as u64;
        state.arrive(received, len as u64);
    }
    Ok(())
}
