//! Metrics for Prometheus, over HTTP.
//!
//! A thread accepts clients, and each has a thread of its own for a few seconds at most, so that one
//! that says nothing or reads slowly holds up nobody. There is a bounded number of them: one more
//! takes the place of the oldest, first of those that have not said yet what they want. They ask the
//! relay's thread for the text and wait; it waits for nobody.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dwell_confine::privilege;
use dwell_report::metrics::CONTENT_TYPE;

use crate::io::poller::Waker;

/// A client has this long for its request, the relay's thread for its answer, and the client
/// again to take it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at the same time.
const CLIENTS_MAX: usize = 16;
/// Far more than a request for metrics has.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// If a connection can't be accepted, the next try waits this long.
const PAUSE: Duration = Duration::from_millis(200);
/// A client that had to go takes about this long.
const GOING: Duration = Duration::from_millis(5);

/// Somebody who waits for the text.
type Wanted = SyncSender<Arc<str>>;

/// The relay's side.
#[derive(Debug)]
pub(super) struct MetricsServer {
    wanted: Receiver<Wanted>,
}

impl MetricsServer {
    /// Serves everybody who connects to `listener`.
    pub(super) fn start(listener: TcpListener, waker: Waker) -> io::Result<Self> {
        let (want, wanted) = channel();
        std::thread::Builder::new().name("dwell-metrics".into()).spawn(move || {
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("the thread for metrics keeps its privileges: {error}");
            }
            let source = Source { want, waker };
            let mut clients = Clients::default();
            for stream in listener.incoming() {
                let welcomed = stream.and_then(|stream| clients.welcome(stream, &source));
                if let Err(error) = welcomed {
                    tracing::debug!("a reader of metrics can't be served: {error}");
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(Self { wanted })
    }

    /// Gives the text to those who asked for it, if there are any.
    pub(super) fn answer(&self, text: impl FnOnce() -> String) {
        // No more of them than clients are served.
        let waiting: Vec<Wanted> = self.wanted.try_iter().collect();
        if waiting.is_empty() {
            return;
        }
        let text: Arc<str> = text().into();
        for client in waiting {
            // It may have lost patience.
            let _ = client.try_send(Arc::clone(&text));
        }
    }
}

/// The server's side.
#[derive(Clone, Debug)]
struct Source {
    want: Sender<Wanted>,
    waker: Waker,
}

impl Source {
    fn text(&self) -> Option<Arc<str>> {
        let (want, answer) = sync_channel(1);
        self.want.send(want).ok()?;
        self.waker.wake();
        answer.recv_timeout(PATIENCE).ok()
    }
}

/// A client that is served. Its thread holds it, others only know of it.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    /// Its request is there.
    has_asked: AtomicBool,
}

/// The clients that are served, the oldest first.
#[derive(Debug, Default)]
struct Clients(Vec<Weak<Client>>);

impl Clients {
    /// Serves a client on a thread of its own.
    fn welcome(&mut self, stream: TcpStream, source: &Source) -> io::Result<()> {
        self.make_room();
        let client = Arc::new(Client { stream, has_asked: AtomicBool::new(false) });
        self.0.push(Arc::downgrade(&client));
        let source = source.clone();
        std::thread::Builder::new().name("dwell-metrics".into()).spawn(move || {
            if let Err(error) = serve(&client, &source) {
                tracing::debug!("a reader of metrics went away: {error}");
            }
        })?;
        Ok(())
    }

    /// Sends the oldest one away if there are too many.
    fn make_room(&mut self) {
        self.0.retain(|client| client.strong_count() > 0);
        while self.0.len() >= CLIENTS_MAX {
            let silent = |client: &Weak<Client>| {
                client.upgrade().is_some_and(|client| !client.has_asked.load(Ordering::Relaxed))
            };
            let at = self.0.iter().position(silent).unwrap_or(0);
            if let Some(client) = self.0[at].upgrade() {
                // What it waits for fails now, and its thread ends; if it is gone already, well.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
            std::thread::sleep(GOING);
            self.0.retain(|client| client.strong_count() > 0);
        }
    }
}

fn serve(client: &Client, source: &Source) -> io::Result<()> {
    let request = read_request(&client.stream)?;
    client.has_asked.store(true, Ordering::Relaxed);
    let (code, body): (_, Arc<str>) = match asks_for(&request) {
        Asks::Metrics => match source.text() {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "the relay is busy\n".into()),
        },
        Asks::Elsewhere => ("404 Not Found", "the metrics are at /metrics\n".into()),
        Asks::Otherwise => ("405 Method Not Allowed", "only GET is served\n".into()),
        Asks::Nothing => ("400 Bad Request", "this is not HTTP\n".into()),
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    write_all(&client.stream, &[head.as_bytes(), body.as_bytes()].concat(), PATIENCE)
}

/// Writes all if the client takes it within this time, however slowly it takes each part.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    while !bytes.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to the end of a request's header, in bounded time and memory.
fn read_request(mut client: &TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut part)? {
            0 => break,
            len => request.extend_from_slice(&part[..len]),
        }
    }
    Ok(request)
}

#[derive(Debug, PartialEq, Eq)]
enum Asks {
    Metrics,
    Elsewhere,
    Otherwise,
    Nothing,
}

fn asks_for(request: &[u8]) -> Asks {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    match (method, target, version) {
        (Some(b"GET"), Some(target), Some(version)) if version.starts_with(b"HTTP/1.") => {
            let path = target.split(|&byte| byte == b'?').next();
            if path == Some(b"/metrics") { Asks::Metrics } else { Asks::Elsewhere }
        }
        (Some(_), Some(_), Some(version)) if version.starts_with(b"HTTP/") => Asks::Otherwise,
        _ => Asks::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn only_metrics_are_served() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Asks::Metrics),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asks::Metrics),
            ("GET / HTTP/1.1\r\n\r\n", Asks::Elsewhere),
            ("GET /metricsx HTTP/1.1\r\n\r\n", Asks::Elsewhere),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asks::Otherwise),
            ("GET /metrics HTTP/2\r\n\r\n", Asks::Otherwise),
            ("rubbish", Asks::Nothing),
            ("", Asks::Nothing),
        ] {
            assert_eq!(asks_for(request.as_bytes()), expected, "{request}");
        }
    }

    /// A relay that answers all the time, and where it does.
    fn relay(text: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = MetricsServer::start(listener, Waker::new().unwrap()).unwrap();
        std::thread::spawn(move || {
            loop {
                server.answer(|| text.to_owned());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        address
    }

    fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn who_asks_is_answered_by_the_relays_thread() {
        let text = ask(relay("dwell_info 1\n"));
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\ndwell_info 1\n"));
    }

    /// Far more than are served at the same time: silent clients make room for those that ask,
    /// and keeps no thread.
    #[test]
    fn clients_that_say_nothing_hold_nobody_up() {
        let address = relay("dwell_info 1\n");
        let silent: Vec<_> =
            (0..3 * CLIENTS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address).ends_with("\r\ndwell_info 1\n"));
        // Rejected clients see the end of their connection.
        let mut gone = 0;
        for mut stream in &silent {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            gone += usize::from(matches!(stream.read(&mut [0]), Ok(0)));
        }
        assert!(gone > 2 * CLIENTS_MAX, "{gone} were rejected");
    }

    #[test]
    fn a_client_that_reads_slowly_is_left_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let slowly = std::thread::spawn(move || {
            while matches!(reader.read(&mut [0; 4096]), Ok(1..)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // More than the kernel holds for it; each part is taken soon, all of it never.
        let error = write_all(&stream, &vec![7; 64 << 20], Duration::from_millis(200));
        assert!(error.is_err(), "it is not waited for");
        drop(stream);
        slowly.join().unwrap();
    }
}
