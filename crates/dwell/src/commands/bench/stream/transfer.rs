//! One run: a sender on one side of the link, a receiver on the other.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Instant as Time;
use dwell_stream::{
    Config, Limits, Press, Receiver, Sender, SenderStats, Strategy, StreamReader, Worker,
};
use dwell_testkit::lab::topology::THIN_DEVICE;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use socket2::SockRef;

use super::super::bed::Bed;
use super::super::machine;
use super::contender::Contender;
use super::pipes;
use super::record::{Measured, StreamAccounts};
use super::{Content, WARM_UP};

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9000);
/// What TCP may hold beyond what it has sent: the rest waits where it can be compressed.
const NOT_SENT_BYTES: u32 = 128 << 10;
/// How soon everybody notices that it is over.
const GLANCE: Duration = Duration::from_millis(50);
/// How long the first byte may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the sender's fill is looked at, as in the paper.
const FILL_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    received_bytes: AtomicU64,
    is_altered: AtomicBool,
}

/// Sends the content for a while, and says what arrived.
pub(super) fn run(
    bed: &Bed<'_>,
    contender: &Contender,
    content: &Content,
    folder: &Path,
    seconds: f64,
) -> anyhow::Result<Measured> {
    match contender {
        Contender::Stream(config) => stream(bed, config, content, seconds),
        Contender::Pipe(pipe) => {
            let mut running = pipes::start(*pipe, bed, &content.body, folder)?;
            let state = Arc::new(State::default());
            let (watching, body) = (Arc::clone(&state), Arc::clone(&content.body));
            std::thread::scope(|scope| {
                // The output is read here so that the processes can be watched and ended there.
                let output = running.output.as_fd().try_clone_to_owned()?;
                let reading = scope
                    .spawn(move || compare(&mut std::fs::File::from(output), &body, &watching));
                let measured = watch(bed, &state, seconds, || running.cpu_ns());
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

fn stream(
    bed: &Bed<'_>,
    config: &Config,
    content: &Content,
    seconds: f64,
) -> anyhow::Result<Measured> {
    let state = Arc::new(State::default());
    let address = SocketAddr::from(ADDRESS);
    let listener = bed.pair.egress.run(|| TcpListener::bind(address))?;
    let listener = listener.context("the sender can't listen")?;
    let sending = {
        let (state, body, config) = (Arc::clone(&state), Arc::clone(&content.body), config.clone());
        bed.pair.egress.spawn_thread(move || send(&listener, &config, &body, &state))?
    };
    let receiving = {
        let (state, body) = (Arc::clone(&state), Arc::clone(&content.body));
        let is_plain = config.strategy == Strategy::Plain;
        bed.pair.ingress.spawn_thread(move || receive(address, is_plain, &body, &state))?
    };
    let measured = watch(bed, &state, seconds, || 0);
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

/// Waits until something arrives, lets it warm up, and then watches it for a while.
fn watch(
    bed: &Bed<'_>,
    state: &State,
    seconds: f64,
    others_cpu_ns: impl Fn() -> u64,
) -> anyhow::Result<Measured> {
    let end = Instant::now() + PATIENCE;
    while state.received_bytes.load(Ordering::Relaxed) == 0 {
        ensure!(Instant::now() < end, "nothing arrives");
        bed.sleep(Duration::from_millis(2))?;
    }
    bed.sleep(WARM_UP)?;
    let look = || -> anyhow::Result<_> {
        let cpu = machine::cpu_ns(std::process::id())? + others_cpu_ns();
        let link = bed.pair.egress.tx_bytes(THIN_DEVICE)?;
        Ok((Instant::now(), state.received_bytes.load(Ordering::Relaxed), link, cpu))
    };
    let before = look()?;
    bed.sleep(Duration::from_secs_f64(seconds))?;
    let after = look()?;
    Ok(Measured {
        window_ns: (after.0 - before.0).as_nanos() as u64,
        application_bytes: after.1 - before.1,
        link_bytes: after.2 - before.2,
        cpu_ns: after.3.saturating_sub(before.3),
        stream: None,
    })
}

/// The clock that senders are given.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Time {
        Time::from_ns(self.0.elapsed().as_nanos() as u64)
    }
}

fn send(
    listener: &TcpListener,
    config: &Config,
    body: &[u8],
    state: &State,
) -> anyhow::Result<StreamAccounts> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(NOT_SENT_BYTES)?;
    if config.strategy.is_segmented() && config.strategy != Strategy::Plain {
        let mut config = config.clone();
        config.mss = SockRef::from(&stream).tcp_mss()? as usize;
        return Pump::new(stream, &config)?.run(body, state);
    }
    Pump::new(stream, config)?.run(body, state)
}

/// A sender with its socket and, for strategies with two threads, the other one.
struct Pump {
    stream: TcpStream,
    sender: Sender,
    press: Press,
    clock: Clock,
    worker: Option<(Worker, Arc<std::os::fd::OwnedFd>)>,
    buffer_len: usize,
    fill: f64,
    looks: f64,
    looked: Instant,
}

impl Pump {
    fn new(stream: TcpStream, config: &Config) -> anyhow::Result<Self> {
        let clock = Clock(Instant::now());
        let has_thread = matches!(config.strategy, Strategy::MixInOrder | Strategy::MixOutOfOrder);
        let worker = if has_thread {
            let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK)?);
            let ringing = Arc::clone(&bell);
            let wake = move || {
                // It fails only if it was rung 2⁶⁴ times.
                let _ = rustix::io::write(&ringing, &1u64.to_ne_bytes());
            };
            Some((Worker::start(move || clock.now(), wake)?, bell))
        } else {
            None
        };
        Ok(Self {
            stream,
            sender: Sender::new(config)?,
            press: Press::new(),
            clock,
            worker,
            buffer_len: config.buffer_len,
            fill: 0.0,
            looks: 0.0,
            looked: Instant::now(),
        })
    }

    fn run(mut self, body: &[u8], state: &State) -> anyhow::Result<StreamAccounts> {
        let mut at = 0;
        while !state.stop.load(Ordering::Relaxed) {
            while self.sender.room() > 0 {
                at = (at + self.sender.accept(&body[at..])) % body.len();
            }
            let is_blocked = match self.write() {
                Ok(is_blocked) => is_blocked,
                // At the end the receiver just goes.
                Err(_) if state.stop.load(Ordering::Relaxed) => break,
                Err(error) => return Err(error.into()),
            };
            self.look();
            if !self.compress() && is_blocked {
                self.wait()?;
            }
        }
        let fill = self.fill / self.looks.max(1.0) / self.buffer_len as f64;
        Ok(accounts(self.sender.stats(), fill))
    }

    /// Writes until there is nothing to write, or the socket takes no more: then true.
    fn write(&mut self) -> io::Result<bool> {
        loop {
            let wire = self.sender.wire(self.clock.now());
            if wire.is_empty() {
                return Ok(false);
            }
            let wanted = wire.len();
            let len = match self.stream.write(wire) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.sender.wrote(self.clock.now(), len);
            if len < wanted {
                self.sender.blocked(self.clock.now());
                return Ok(true);
            }
        }
    }

    /// Compresses something, or has it compressed; false if only waiting helps.
    fn compress(&mut self) -> bool {
        let Some((worker, _)) = &mut self.worker else {
            return self.sender.press(&mut self.press, || self.clock.now()).is_some();
        };
        let mut has_done = false;
        while let Some(done) = worker.take_done() {
            self.sender.done(done);
            has_done = true;
        }
        while worker.has_room()
            && let Some(job) = self.sender.next_job(self.clock.now())
        {
            if worker.offer(job).is_err() {
                break;
            }
        }
        has_done
    }

    /// Until the socket takes more or the thread has done something.
    fn wait(&self) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::new(&self.stream, PollFlags::OUT)];
        fds.extend(self.worker.iter().map(|(_, bell)| PollFd::new(bell, PollFlags::IN)));
        let patience = Timespec { tv_sec: 0, tv_nsec: GLANCE.as_nanos() as i64 };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some((_, bell)) = &self.worker {
            // Nothing to read means that it was the socket.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
        Ok(())
    }

    fn look(&mut self) {
        if self.looked.elapsed() >= FILL_EVERY {
            self.looked = Instant::now();
            self.fill += self.sender.held() as f64;
            self.looks += 1.0;
        }
    }
}

fn accounts(stats: &SenderStats, fill: f64) -> StreamAccounts {
    let by_codec =
        stats.by_codec.iter().map(|(spec, codec)| (spec.to_string(), codec.original_bytes));
    StreamAccounts {
        framed_bytes: stats.framed_bytes,
        wire_bytes: stats.wire_bytes,
        raw_bytes: stats.raw_bytes,
        pressed_original_bytes: stats.pressed_original_bytes,
        pressed_bytes: stats.pressed_bytes,
        press_ns: stats.press_ns,
        segments: stats.segments,
        failures: stats.failures,
        efficiency: stats.efficiency(),
        fill,
        by_codec: by_codec.collect(),
    }
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
    let (mut piece, mut at) = (vec![0; 256 << 10], 0);
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
        state.received_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(())
}
