//! Honest traffic: a TCP stream each way that takes what it gets, and pings.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_base::time::duration_ns;
use dwell_lab::corpus;
use dwell_lab::lab::{Host, LabError};
use rustix::net::sockopt::set_socket_linger;

/// The server takes honest data at this port, ...
const SINK_PORT: u16 = 9001;
/// ... gives what is wanted, ...
const SOURCE_PORT: u16 = 9002;
/// ... and sends back what it gets.
const ECHO_PORT: u16 = 9003;
/// All three, for whoever has to let them through.
pub(crate) const PORTS: [u16; 3] = [SINK_PORT, SOURCE_PORT, ECHO_PORT];
/// The end is noticed within this time.
const GLANCE: Duration = Duration::from_millis(50);
/// A broken stream is begun again after this long.
const RETRY: Duration = Duration::from_millis(200);
const PIECE_BYTES: usize = 32 << 10;
/// The text that is sent, over and over.
const TEXT_BYTES: usize = 16 << 20;
const PING_EVERY: Duration = Duration::from_millis(10);
const PING_BYTES: usize = 64;
/// An answer that takes longer counts as none.
const PING_PATIENCE: Duration = Duration::from_secs(1);
/// The same for a stream that is new, ...
const NEW_PATIENCE: Duration = Duration::from_secs(4);
/// ... of which one begins this often.
const NEW_EVERY: Duration = Duration::from_millis(50);

/// The results of pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pings {
    /// As datagrams, whose answers may be lost.
    Udp,
    /// By one TCP stream, where they wait for each other.
    Tcp,
    /// Each by a TCP stream of its own, its beginning included.
    New,
}

/// A ping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ping {
    /// When it was due.
    pub(crate) at: Instant,
    /// The round trip, if there was an answer in time.
    pub(crate) rtt_ns: Option<u64>,
}

/// Traffic that goes on until it is dropped.
#[derive(Debug)]
pub(crate) struct Traffic {
    pings: Pings,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<io::Result<()>, LabError>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    there_bytes: AtomicU64,
    back_bytes: AtomicU64,
    /// Streams that were begun again.
    broken: AtomicU64,
    pings: Mutex<Vec<Ping>>,
}

impl Traffic {
    /// Starts traffic between two hosts: `client` finds the ports of `server`, which has the address
    /// `listen`, at the address `to`.
    pub(crate) fn start(
        (client, to): (&Host, Ipv4Addr),
        (server, listen): (&Host, Ipv4Addr),
        pings: Pings,
    ) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut it = Self { pings, shared, threads: Vec::new() };
        let listener = |port: u16| {
            server.run(|| {
                TcpListener::bind((listen, port)).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                })
            })
        };
        let (sink, source, echo) =
            (listener(SINK_PORT)??, listener(SOURCE_PORT)??, listener(ECHO_PORT)??);
        it.spawn(server, move |shared| {
            accept(&sink, shared, |stream, shared| count(stream, &shared.there_bytes, shared))
        })?;
        it.spawn(server, move |shared| accept(&source, shared, pour))?;
        it.spawn(client, move |shared| {
            repeat((to, SINK_PORT).into(), shared, pour);
            Ok(())
        })?;
        it.spawn(client, move |shared| {
            repeat((to, SOURCE_PORT).into(), shared, |stream, shared| {
                count(stream, &shared.back_bytes, shared)
            });
            Ok(())
        })?;
        match pings {
            Pings::Tcp => {
                it.spawn(server, move |shared| accept(&echo, shared, send_back))?;
                it.spawn(client, move |shared| {
                    repeat((to, ECHO_PORT).into(), shared, ping_by_tcp);
                    Ok(())
                })?;
            }
            Pings::New => {
                it.spawn(server, move |shared| accept(&echo, shared, send_back))?;
                let host = client.clone();
                it.spawn(client, move |shared| {
                    ping_by_new(&host, (to, ECHO_PORT).into(), shared);
                    Ok(())
                })?;
            }
            Pings::Udp => {
                let socket = server.run(|| UdpSocket::bind((listen, ECHO_PORT)))??;
                it.spawn(server, move |shared| echo_by_udp(&socket, shared))?;
                it.spawn(client, move |shared| ping_by_udp((to, ECHO_PORT).into(), shared))?;
            }
        }
        Ok(it)
    }

    fn spawn(
        &mut self,
        host: &Host,
        act: impl FnOnce(&Arc<Shared>) -> io::Result<()> + Send + 'static,
    ) -> Result<(), LabError> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(host.spawn_thread(move || act(&shared))?);
        Ok(())
    }

    /// Waits until something comes both ways and pings are answered.
    pub(crate) fn wait_until_it_flows(&self) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let [there, back] = self.bytes();
            let pings = self.shared.pings.lock().unwrap_or_else(PoisonError::into_inner);
            if there > 0 && back > 0 && pings.iter().any(|ping| ping.rtt_ns.is_some()) {
                return Ok(());
            }
            drop(pings);
            ensure!(Instant::now() < end, "honest traffic does not flow: {there} and {back} bytes");
            thread::sleep(GLANCE);
        }
    }

    /// An answer that takes longer counts as none.
    pub(crate) fn ping_patience(&self) -> Duration {
        if self.pings == Pings::New { NEW_PATIENCE } else { PING_PATIENCE }
    }

    /// Bytes that arrived at the server, and at the client.
    pub(crate) fn bytes(&self) -> [u64; 2] {
        let Shared { there_bytes, back_bytes, .. } = &*self.shared;
        [there_bytes, back_bytes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Streams that were broken, and begun again.
    pub(crate) fn broken(&self) -> u64 {
        self.shared.broken.load(Ordering::Relaxed)
    }

    /// Pings that were due between these moments.
    pub(crate) fn pings(&self, from: Instant, to: Instant) -> Vec<Ping> {
        let pings = self.shared.pings.lock().unwrap_or_else(PoisonError::into_inner);
        pings.iter().filter(|ping| (from..to).contains(&ping.at)).copied().collect()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, ping: Ping) {
        self.pings.lock().unwrap_or_else(PoisonError::into_inner).push(ping);
    }
}

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    act: fn(&mut TcpStream, &Shared) -> io::Result<()>,
) -> io::Result<()> {
    while !shared.is_over() {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(GLANCE / 10);
            continue;
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // The client begins again, and counts it.
            let _ = prepare(&stream).and_then(|()| act(&mut stream, &shared));
        });
    }
    Ok(())
}

fn repeat(to: SocketAddr, shared: &Shared, act: fn(&mut TcpStream, &Shared) -> io::Result<()>) {
    while !shared.is_over() {
        let result =
            TcpStream::connect_timeout(&to, Duration::from_secs(5)).and_then(|mut stream| {
                prepare(&stream)?;
                act(&mut stream, shared)
            });
        if !shared.is_over() {
            let _ = result;
            shared.broken.fetch_add(1, Ordering::Relaxed);
            thread::sleep(RETRY);
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(GLANCE))?;
    // Nothing that is in transit when it is over goes on.
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

fn is_patience(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn pour(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    // More than any window: what comes again is no measure of a link.
    let text = corpus::text(TEXT_BYTES, 3);
    let mut at = 0;
    while !shared.is_over() {
        let end = (at + PIECE_BYTES).min(text.len());
        match stream.write(&text[at..end]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => at = (at + len) % text.len(),
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn count(stream: &mut TcpStream, counter: &AtomicU64, shared: &Shared) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while !shared.is_over() {
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => drop(counter.fetch_add(len as u64, Ordering::Relaxed)),
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send_back(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let mut piece = [0; 4 * PING_BYTES];
    while !shared.is_over() {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => write_whole(stream, &piece[..len], shared)?,
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Pings are sent when they are due, whatever the answers do.
fn ping_by_tcp(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let sent: Mutex<VecDeque<Instant>> = Mutex::new(VecDeque::new());
    let is_broken = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let mut due = Instant::now();
            while !shared.is_over() && !is_broken.load(Ordering::Relaxed) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sent.lock().unwrap_or_else(PoisonError::into_inner).push_back(due);
                if write_whole(&mut writer, &[7; PING_BYTES], shared).is_err() {
                    break;
                }
                due += PING_EVERY;
            }
        });
        let outcome = take_answers(stream, &sent, shared);
        is_broken.store(true, Ordering::Relaxed);
        outcome
    });
    // What is not answered when it breaks never is.
    for &at in sent.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        shared.note(Ping { at, rtt_ns: None });
    }
    outcome
}

fn take_answers(
    stream: &mut TcpStream,
    sent: &Mutex<VecDeque<Instant>>,
    shared: &Shared,
) -> io::Result<()> {
    let mut answer = [0; PING_BYTES];
    while !shared.is_over() {
        let asked = Instant::now();
        read_answer(stream, &mut answer, asked, shared)?;
        let next = sent.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(at) = next else { return Err(io::ErrorKind::InvalidData.into()) };
        let rtt = at.elapsed();
        let is_in_time = rtt < PING_PATIENCE;
        shared.note(Ping { at, rtt_ns: is_in_time.then_some(duration_ns(rtt)) });
    }
    Ok(())
}

fn write_whole(stream: &mut TcpStream, mut bytes: &[u8], shared: &Shared) -> io::Result<()> {
    while !bytes.is_empty() && !shared.is_over() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A stream for each ping, however many others wait.
fn ping_by_new(client: &Host, to: SocketAddr, shared: &Arc<Shared>) {
    let mut due = Instant::now();
    let mut threads = VecDeque::new();
    while !shared.is_over() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let shared = Arc::clone(shared);
        let ping = move || {
            let mut answer = [0; PING_BYTES];
            let outcome = TcpStream::connect_timeout(&to, NEW_PATIENCE).and_then(|mut stream| {
                prepare(&stream)?;
                stream.write_all(&[7; PING_BYTES])?;
                read_answer(&mut stream, &mut answer, due, &shared)
            });
            let rtt = due.elapsed();
            let is_answered = outcome.is_ok() && rtt < NEW_PATIENCE;
            shared.note(Ping { at: due, rtt_ns: is_answered.then_some(duration_ns(rtt)) });
        };
        // One that can't be begun at all is missing, and so is its answer.
        threads.extend(client.spawn_thread(ping));
        // As many as are begun in the time that one has.
        if threads.len() as u128 > 2 * NEW_PATIENCE.as_millis() / NEW_EVERY.as_millis() {
            let _ = threads.pop_front().map(JoinHandle::join);
        }
        due += NEW_EVERY;
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn read_answer(
    stream: &mut TcpStream,
    answer: &mut [u8],
    due: Instant,
    shared: &Shared,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < answer.len() {
        match stream.read(&mut answer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => filled += len,
            Err(error) if is_patience(&error) => {
                if shared.is_over() || due.elapsed() > 5 * PING_PATIENCE {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn echo_by_udp(socket: &UdpSocket, shared: &Shared) -> io::Result<()> {
    socket.set_read_timeout(Some(GLANCE))?;
    let mut datagram = [0; 2 * PING_BYTES];
    while !shared.is_over() {
        if let Ok((len, from)) = socket.recv_from(&mut datagram) {
            // While the path back is closed it is lost.
            let _ = socket.send_to(&datagram[..len], from);
        }
    }
    Ok(())
}

fn ping_by_udp(to: SocketAddr, shared: &Shared) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let sent: Mutex<Vec<Instant>> = Mutex::new(Vec::new());
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut due = start;
            let mut datagram = [0; PING_BYTES];
            while !shared.is_over() {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                datagram[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
                sent.push(Instant::now());
                drop(sent);
                // While there is no route it is lost.
                let _ = socket.send_to(&datagram, to);
                due += PING_EVERY;
            }
        });
        collect_answers(&socket, &sent, shared)
    })
}

fn collect_answers(
    socket: &UdpSocket,
    sent: &Mutex<Vec<Instant>>,
    shared: &Shared,
) -> io::Result<()> {
    socket.set_read_timeout(Some(GLANCE))?;
    let mut datagram = [0; 2 * PING_BYTES];
    let mut next = 0;
    let mut answers: Vec<Option<u64>> = Vec::new();
    while !shared.is_over() {
        let received = socket.recv(&mut datagram);
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        answers.resize(sent.len(), None);
        if received.is_ok_and(|len| len == PING_BYTES) {
            let number = u64::from_be_bytes(*datagram.first_chunk().unwrap_or(&[0xff; 8]));
            let place = usize::try_from(number).ok().filter(|&number| number < sent.len());
            if let Some(place) = place {
                answers[place].get_or_insert(duration_ns(sent[place].elapsed()));
            }
        }
        // Each is noted once its time is over, in the order of sending.
        while sent.get(next).is_some_and(|at| at.elapsed() > PING_PATIENCE) {
            let rtt_ns = answers[next].filter(|&rtt| u128::from(rtt) < PING_PATIENCE.as_nanos());
            shared.note(Ping { at: sent[next], rtt_ns });
            next += 1;
        }
    }
    Ok(())
}
