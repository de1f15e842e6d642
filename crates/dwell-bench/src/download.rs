//! Endless HTTP downloads whose every byte is compared.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::LabError;
use rustix::net::sockopt::set_socket_linger;

use super::bed::Bed;
use super::tunnel::server;

/// The port of the first download; those of others follow.
const PORT: u16 = 8080;
/// So many at once at most.
const DOWNLOADS_MAX: u16 = 20;
/// The time in which everybody notices that it is over.
const GLANCE: Duration = Duration::from_millis(100);
/// The period in which progress is looked for.
const LOOK: Duration = Duration::from_millis(2);
/// The length of a write and of a read.
const PIECE_BYTES: usize = 128 << 10;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

/// Downloads that go on until they are finished.
#[derive(Debug)]
pub(super) struct Downloads {
    state: Arc<State>,
    source: Source,
    clients: Vec<JoinHandle<Result<io::Result<()>, LabError>>>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    received_bytes: AtomicU64,
    /// Streams from which something has come.
    started: AtomicU64,
    is_altered: AtomicBool,
}

/// The ports that downloads may have.
pub(super) fn ports() -> impl Iterator<Item = u16> {
    PORT..PORT + DOWNLOADS_MAX
}

/// Bytes that are sent over and over, from some place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) from: usize,
}

impl From<Arc<Vec<u8>>> for Body {
    fn from(bytes: Arc<Vec<u8>>) -> Self {
        Self { bytes, from: 0 }
    }
}

impl Body {
    /// The same bytes from places that are equally far from each other.
    pub(super) fn at_places(bytes: &Arc<Vec<u8>>, count: usize) -> impl Iterator<Item = Self> {
        let from = move |place| bytes.len() * place / count;
        (0..count).map(move |place| Self { bytes: Arc::clone(bytes), from: from(place) })
    }
}

impl Downloads {
    /// Downloads each of the bodies on a connection of its own to `entrance`, over and over.
    pub(super) fn start(bed: &Bed<'_>, bodies: &[Body], entrance: IpAddr) -> anyhow::Result<Self> {
        let state = Arc::new(State::default());
        let mut source = Source::default();
        let mut clients = Vec::new();
        ensure!(bodies.len() <= usize::from(DOWNLOADS_MAX), "there are too many downloads");
        for (port, body) in ports().zip(bodies) {
            let listener = bed.listen(server(port))?;
            let address = SocketAddr::from((entrance, port));
            source.serve(listener, body.clone(), Arc::clone(&state))?;
            let (state, body) = (Arc::clone(&state), body.clone());
            let client = move || download(address, &body, &state);
            clients.push(bed.pair.client.spawn_thread(client)?);
        }
        Ok(Self { state, source, clients })
    }

    /// Returns true if something has come from each.
    pub(super) fn have_started(&self) -> bool {
        self.state.started.load(Ordering::Relaxed) as usize == self.clients.len()
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.state.received_bytes.load(Ordering::Relaxed)
    }

    /// Looks again and again until asked to stop; returns when more had come, each time.
    pub(super) fn watch(&self, stop: &AtomicBool) -> Vec<Instant> {
        let (mut progress, mut bytes) = (Vec::new(), self.received_bytes());
        while !stop.load(Ordering::Relaxed) {
            let now = self.received_bytes();
            if now > bytes {
                progress.push(Instant::now());
                bytes = now;
            }
            thread::sleep(LOOK);
        }
        progress
    }

    /// Ends them; false if anything that came was not what was sent.
    pub(super) fn finish(self) -> anyhow::Result<bool> {
        self.state.stop.store(true, Ordering::Relaxed);
        self.source.abort();
        for client in self.clients {
            let result = client.join().map_err(|_| anyhow::anyhow!("a download panicked"))?;
            result?.context("a download failed")?;
        }
        Ok(!self.state.is_altered.load(Ordering::Relaxed))
    }
}

fn download(address: SocketAddr, body: &Body, state: &State) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.write_all(REQUEST)?;
    // Nothing of what is on its way when it is over shall disturb the next run.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut answer = vec![0; ANSWER.len()];
    read_until(&mut stream, &mut answer, state)?;
    state.started.fetch_add(1, Ordering::Relaxed);
    let mut expected = Cycle { body: &body.bytes, at: body.from };
    let mut piece = vec![0; PIECE_BYTES];
    while !state.stop.load(Ordering::Relaxed) {
        let len = match stream.read(&mut piece) {
            // Whatever carries it has gone.
            Ok(0) if !state.stop.load(Ordering::Relaxed) => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if is_patience(&error) => continue,
            // At the end the source just drops its connections.
            Err(_) if state.stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        };
        if !expected.goes_on_with(&piece[..len]) {
            state.is_altered.store(true, Ordering::Relaxed);
        }
        state.received_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn read_until(stream: &mut TcpStream, buffer: &mut [u8], state: &State) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() && !state.stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => filled += len,
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_patience(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// A body that begins again when it ends.
struct Cycle<'a> {
    body: &'a [u8],
    at: usize,
}

impl Cycle<'_> {
    fn goes_on_with(&mut self, mut piece: &[u8]) -> bool {
        let mut is_equal = !self.body.is_empty();
        while is_equal && !piece.is_empty() {
            let rest = &self.body[self.at..];
            let (now, later) = piece.split_at(piece.len().min(rest.len()));
            is_equal = rest.starts_with(now);
            self.at = (self.at + now.len()) % self.body.len();
            piece = later;
        }
        is_equal
    }
}

/// Sends bodies to whoever connects, without an end.
#[derive(Debug, Default)]
struct Source {
    connections: Arc<Mutex<Vec<TcpStream>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Source {
    /// Serves one connection.
    fn serve(
        &mut self,
        listener: TcpListener,
        body: Body,
        state: Arc<State>,
    ) -> anyhow::Result<()> {
        listener.set_nonblocking(true).context("a listener can't be set up")?;
        let connections = Arc::clone(&self.connections);
        let serve = move || {
            let Some(stream) = accept(&listener, &state) else { return };
            if let Ok(other) = stream.try_clone() {
                connections.lock().unwrap_or_else(PoisonError::into_inner).push(other);
            }
            // A client that goes away has seen enough.
            let _ = pour(stream, &body, &state);
        };
        let thread = thread::Builder::new().name("source".into()).spawn(serve);
        self.threads.push(thread.context("a thread can't be started")?);
        Ok(())
    }

    fn abort(self) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.iter() {
            // It may be closed already.
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        drop(connections);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &State) -> Option<TcpStream> {
    while !state.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

fn pour(mut stream: TcpStream, body: &Body, state: &State) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut request = vec![0; REQUEST.len()];
    stream.read_exact(&mut request)?;
    stream.write_all(ANSWER)?;
    let mut rest = &body.bytes[body.from..];
    while !state.stop.load(Ordering::Relaxed) {
        for piece in rest.chunks(PIECE_BYTES) {
            stream.write_all(piece)?;
        }
        rest = &body.bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_goes_round_and_an_altered_byte_is_seen() {
        let mut cycle = Cycle { body: b"abcde", at: 0 };
        assert!(cycle.goes_on_with(b"abc"));
        assert!(cycle.goes_on_with(b"deabcdea"));
        assert!(!cycle.goes_on_with(b"bcdEa"));
        assert!(!Cycle { body: b"", at: 0 }.goes_on_with(b"a"));
        let mut cycle = Cycle { body: b"abcde", at: 3 };
        assert!(cycle.goes_on_with(b"deabcdeab"));
    }
}
