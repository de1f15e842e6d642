//! Metrics for Prometheus, over HTTP.
//!
//! Clients ask the relay's thread for the text and wait; it waits for nobody.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use dwell_report::metrics::CONTENT_TYPE;

use super::http::{self, Answer, Client, PATIENCE, Request, Service};
use crate::io::poller::Waker;

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
        http::serve(listener, "dwell-metrics", Source { want, waker })?;
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

impl Service for Source {
    fn answer(&self, client: &Client, request: &Request<'_>) -> io::Result<()> {
        if request.path != "/metrics" {
            return client.send(&Answer::text("404 Not Found", "the metrics are at /metrics\n"));
        }
        match self.text() {
            Some(text) => {
                let answer = Answer::text("200 OK", &text);
                client.send(&Answer { content_type: CONTENT_TYPE, ..answer })
            }
            None => client.send(&Answer::text("503 Service Unavailable", "the relay is busy\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use super::super::http::CLIENTS_MAX;
    use super::*;

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

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    const METRICS: &str = "GET /metrics HTTP/1.1\r\n\r\n";

    #[test]
    fn only_metrics_are_served() {
        let address = relay("dwell_info 1\n");
        for (request, code) in [
            (METRICS, "200"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("rubbish\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{request}: {answer}");
        }
    }

    #[test]
    fn who_asks_is_answered_by_the_relays_thread() {
        let text = ask(relay("dwell_info 1\n"), METRICS);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\ndwell_info 1\n"));
    }

    /// Far more than are served at the same time: silent clients make room for those that ask,
    /// and keeps no thread.
    #[test]
    fn clients_that_say_nothing_hold_nobody_up() {
        let address = relay("dwell_info 1\n");
        let silent: Vec<_> =
            (0..3 * CLIENTS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, METRICS).ends_with("\r\ndwell_info 1\n"));
        // Rejected clients see the end of their connection.
        let mut gone = 0;
        for mut stream in &silent {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            gone += usize::from(matches!(stream.read(&mut [0]), Ok(0)));
        }
        assert!(gone > 2 * CLIENTS_MAX, "{gone} were rejected");
    }
}
