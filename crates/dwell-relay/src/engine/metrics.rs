//! Metrics for Prometheus, over HTTP.
//!
//! A thread of its own speaks HTTP, with one client at a time and little patience. It asks the
//! relay's thread for the text and waits; nobody waits for it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use dwell_report::metrics::CONTENT_TYPE;

use crate::io::poller::Waker;
use crate::io::privilege;

/// A client has this long for its request, and this long to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Far more than a request for metrics has.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// If a connection can't be accepted, the next try waits this long.
const PAUSE: Duration = Duration::from_millis(200);

/// The relay's side.
#[derive(Debug)]
pub(super) struct MetricsServer {
    wanted: Receiver<()>,
    text: SyncSender<String>,
}

impl MetricsServer {
    /// Serves everybody who connects to `listener`.
    pub(super) fn start(listener: TcpListener, waker: Waker) -> io::Result<Self> {
        let ((want, wanted), (text, answer)) = (channel(), sync_channel(1));
        std::thread::Builder::new().name("dwell-metrics".into()).spawn(move || {
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("the thread for metrics keeps its privileges: {error}");
            }
            let source = Source { want, answer, waker };
            for client in listener.incoming() {
                match client {
                    Ok(client) => {
                        if let Err(error) = serve(&client, &source) {
                            tracing::debug!("a reader of metrics went away: {error}");
                        }
                    }
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        })?;
        Ok(Self { wanted, text })
    }

    /// Gives the text to who asked for it, if somebody did.
    pub(super) fn answer(&self, text: impl FnOnce() -> String) {
        if self.wanted.try_recv().is_ok() {
            // Who asked may have lost patience; then there is an answer already.
            let _ = self.text.try_send(text());
        }
    }
}

/// The server's side.
struct Source {
    want: Sender<()>,
    answer: Receiver<String>,
    waker: Waker,
}

impl Source {
    fn text(&self) -> Option<String> {
        while self.answer.try_recv().is_ok() {} // for somebody who did not wait for it
        self.want.send(()).ok()?;
        self.waker.wake();
        self.answer.recv_timeout(PATIENCE).ok()
    }
}

fn serve(mut client: &TcpStream, source: &Source) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(client)?;
    let (code, body) = match asks_for(&request) {
        Asks::Metrics => match source.text() {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "the relay is busy\n".to_owned()),
        },
        Asks::Elsewhere => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        Asks::Otherwise => ("405 Method Not Allowed", "only GET is served\n".to_owned()),
        Asks::Nothing => ("400 Bad Request", "this is not HTTP\n".to_owned()),
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
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

    #[test]
    fn who_asks_is_answered_by_the_relays_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = MetricsServer::start(listener, Waker::new().unwrap()).unwrap();
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        while !client.is_finished() {
            server.answer(|| "dwell_info 1\n".to_owned());
            std::thread::yield_now();
        }
        let text = client.join().unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\ndwell_info 1\n"));
    }
}
