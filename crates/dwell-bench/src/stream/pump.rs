//! The sending side of a run: a sender with its socket and, for strategies with two threads, the
//! other thread.

use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dwell_base::Instant as Time;
use dwell_base::time::duration_ns;
use dwell_lab::segments::SentSegments;
use dwell_stream::{Compressors, Config, Sender, SenderStats, Strategy, Worker};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockRef;

use super::record::StreamAccounts;

/// The time in which it notices that it is over.
const GLANCE: Duration = Duration::from_millis(50);
/// The length of a write to plain TCP.
const WRITE_BYTES: usize = 64 << 10;
/// The period in which the sender's fill is sampled, as in the paper.
const FILL_EVERY: Duration = Duration::from_millis(100);

/// The clock that senders are given.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Time {
        Time::from_ns(duration_ns(self.0.elapsed()))
    }
}

/// The sending side of a transfer.
#[derive(Debug)]
pub(super) struct Pump {
    stream: TcpStream,
    sender: Sender,
    compress: Compressors,
    clock: Clock,
    worker: Option<(Worker, Arc<OwnedFd>)>,
    /// True if each write is to be a segment.
    in_units: bool,
    buffer_len: usize,
    not_sent_len: u32,
    fill: f64,
    looks: f64,
    looked: Instant,
}

/// The result of a write to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// It takes no more.
    Blocked,
    /// There is nothing that could be written now.
    All,
}

impl Pump {
    /// Over a connection of its own.
    pub(super) fn new(stream: TcpStream, config: &Config) -> anyhow::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_notsent_lowat(config.not_sent_len())?;
        let mut config = config.clone();
        let in_units = config.strategy.is_segmented() && config.strategy != Strategy::Plain;
        if in_units {
            config.mss = socket.tcp_mss()? as usize;
        }
        let clock = Clock(Instant::now());
        let has_thread = matches!(config.strategy, Strategy::MixInOrder | Strategy::MixOutOfOrder);
        Ok(Self {
            stream,
            sender: Sender::new(&config)?,
            compress: Compressors::new(),
            clock,
            worker: if has_thread { Some(worker(clock)?) } else { None },
            in_units,
            buffer_len: config.buffer_len,
            not_sent_len: config.not_sent_len(),
            fill: 0.0,
            looks: 0.0,
            looked: Instant::now(),
        })
    }

    /// Sends the body over and over until it is asked to stop.
    pub(super) fn run(mut self, body: &[u8], stop: &AtomicBool) -> anyhow::Result<StreamAccounts> {
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            while self.sender.room() > 0 {
                at = (at + self.sender.accept(&body[at..])) % body.len();
            }
            let written = match self.write() {
                Ok(written) => written,
                // At the end the receiver just goes.
                Err(_) if stop.load(Ordering::Relaxed) => break,
                Err(error) => return Err(error.into()),
            };
            if written == Written::All {
                self.sender.unblocked();
            }
            self.look();
            if !self.compress() {
                self.wait(written)?;
            }
        }
        let fill = self.fill / self.looks.max(1.0) / self.buffer_len as f64;
        let tcp = SentSegments::of(&self.stream)?;
        Ok(accounts(self.sender.stats(), fill, thread_cpu_ns(), tcp))
    }

    /// Writes until there is nothing to write, or the socket takes no more.
    fn write(&mut self) -> io::Result<Written> {
        loop {
            let wire = self.sender.wire(self.clock.now());
            if wire.is_empty() {
                return Ok(Written::All);
            }
            let wanted = wire.len();
            let written = match self.in_units {
                true => write_unit(&self.stream, wire),
                false => self.stream.write(wire),
            };
            let len = match written {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.sender.wrote(self.clock.now(), len);
            if len < wanted {
                self.sender.blocked(self.clock.now());
                self.follow_link()?;
                return Ok(Written::Blocked);
            }
        }
    }

    /// Has the socket hold as much as the sender wishes.
    fn follow_link(&mut self) -> io::Result<()> {
        let wanted = self.sender.not_sent_len();
        if wanted != self.not_sent_len {
            SockRef::from(&self.stream).set_tcp_notsent_lowat(wanted)?;
            self.sender.transport_holds(wanted);
            self.not_sent_len = wanted;
        }
        Ok(())
    }

    /// Compresses something, or has it compressed; false if only waiting helps.
    fn compress(&mut self) -> bool {
        let Some((worker, _)) = &mut self.worker else {
            return self.sender.compress(&mut self.compress, || self.clock.now()).is_some();
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

    /// Until the socket takes more, if it was full, or the thread has done something, if there is
    /// one. If neither can be waited for there is something to write already.
    fn wait(&self, written: Written) -> anyhow::Result<()> {
        let mut fds = Vec::with_capacity(2);
        if written == Written::Blocked {
            fds.push(PollFd::new(&self.stream, PollFlags::OUT));
        }
        // A socket that is free is always ready: with it nobody would ever wait for the thread.
        if let Some((worker, bell)) = &self.worker
            && worker.under_way() > 0
        {
            fds.push(PollFd::new(bell, PollFlags::IN));
        }
        if fds.is_empty() {
            return Ok(());
        }
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

/// Writes a unit that is to be one segment. Linux puts what waits to be sent into one segment with what
/// was written before, as long as there is room in it; but not across a mark of a record's end.
fn write_unit(stream: &TcpStream, unit: &[u8]) -> io::Result<usize> {
    Ok(send(stream, unit, SendFlags::EOR | SendFlags::NOSIGNAL)?)
}

/// Returns the segments for all bytes of the wire: some may not have been sent yet.
fn in_proportion(tcp: SentSegments, wire_bytes: u64) -> u64 {
    let (segments, bytes) = (u128::from(tcp.segments), u128::from(tcp.bytes.max(1)));
    u64::try_from(segments * u128::from(wire_bytes) / bytes).unwrap_or(u64::MAX)
}

/// Sends the body over and over as most programs do: whatever TCP takes, without any sender.
pub(super) fn send_as_it_is(
    mut stream: TcpStream,
    body: &[u8],
    stop: &AtomicBool,
) -> anyhow::Result<StreamAccounts> {
    stream.set_nodelay(true)?;
    // So that it does not wait for ever if nobody reads any more.
    stream.set_write_timeout(Some(GLANCE))?;
    let (mut at, mut bytes) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let end = body.len().min(at + WRITE_BYTES);
        match stream.write(&body[at..end]) {
            Ok(len) => {
                at = (at + len) % body.len();
                bytes += len as u64;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // At the end the receiver just goes.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(StreamAccounts {
        framed_bytes: bytes,
        wire_bytes: bytes,
        raw_bytes: bytes,
        thread_cpu_ns: thread_cpu_ns(),
        efficiency: 1.0,
        tcp_segments: in_proportion(SentSegments::of(&stream)?, bytes),
        ..StreamAccounts::default()
    })
}

/// A thread that compresses, and what rings when it has.
fn worker(clock: Clock) -> anyhow::Result<(Worker, Arc<OwnedFd>)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK)?);
    let ringing = Arc::clone(&bell);
    let wake = move || {
        // It fails only if it was rung 2⁶⁴ times.
        let _ = rustix::io::write(&ringing, &1u64.to_ne_bytes());
    };
    Ok((Worker::start(move || clock.now(), wake)?, bell))
}

/// Returns the CPU time that this thread has used.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

fn accounts(
    stats: &SenderStats,
    fill: f64,
    thread_cpu_ns: u64,
    tcp: SentSegments,
) -> StreamAccounts {
    let by_codec =
        stats.by_codec.iter().map(|(spec, codec)| (spec.to_string(), codec.original_bytes));
    StreamAccounts {
        framed_bytes: stats.framed_bytes,
        wire_bytes: stats.wire_bytes,
        raw_bytes: stats.raw_bytes,
        compressed_original_bytes: stats.compressed_original_bytes,
        compressed_bytes: stats.compressed_bytes,
        compress_ns: stats.compress_ns,
        thread_cpu_ns,
        segments: stats.segments,
        tcp_segments: in_proportion(tcp, stats.wire_bytes),
        failures: stats.failures,
        efficiency: stats.efficiency(),
        fill,
        by_codec: by_codec.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// Writes units to a peer that reads none of them before all are written, and returns the segments that TCP
    /// has made of them.
    fn segments_of(units: &[Vec<u8>], write: fn(&TcpStream, &[u8]) -> io::Result<usize>) -> u64 {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // So that most of them wait at the sender, where they could be put together.
        listener.set_recv_buffer_size(8 << 10).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let listener = TcpListener::from(listener);
        let near = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        near.set_tcp_mss(1448).unwrap();
        near.set_send_buffer_size(4 << 20).unwrap();
        near.connect(&listener.local_addr().unwrap().into()).unwrap();
        let near = TcpStream::from(near);
        near.set_nodelay(true).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for unit in units {
            assert_eq!(write(&near, unit).unwrap(), unit.len());
        }
        let mut left: usize = units.iter().map(Vec::len).sum();
        let mut piece = [0; 4096];
        while left > 0 {
            left -= far.read(&mut piece).unwrap();
        }
        SentSegments::of(&near).unwrap().segments
    }

    /// Of 304 units 295 segments were made.
    #[test]
    fn a_unit_is_a_segment() {
        let units: Vec<Vec<u8>> = (0..100).map(|number| vec![1; 300 + number * 10]).collect();
        assert!(segments_of(&units, |mut stream, unit| stream.write(unit)) < 90);
        assert_eq!(segments_of(&units, write_unit), 100);
    }
}
