//! A server of HTTP for few readers: metrics, and the web page.
//!
//! A thread accepts clients, and each has a thread of its own, so that one that says nothing or reads slowly holds
//! up nobody. There is a bounded number of them: one more takes the place of the oldest, first of those that
//! are refused, then of those that have not said yet what they want, last of those that watch a stream of events.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dwell_confine::privilege;

/// A client has this long for its request, the relay's thread for its answer, and the client
/// again to take it.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at the same time.
pub(super) const CLIENTS_MAX: usize = 16;
/// Far more than a request has.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// If a connection can't be accepted, the next try waits this long.
const PAUSE: Duration = Duration::from_millis(200);
/// A client that had to go takes about this long.
const GOING: Duration = Duration::from_millis(5);

/// What is served.
pub(super) trait Service: Clone + Send + 'static {
    /// Answers a request.
    fn answer(&self, client: &Client, request: &Request<'_>) -> io::Result<()>;
}

/// Serves everybody who connects to `listener`, on threads of this name.
pub(super) fn serve<S: Service>(
    listener: TcpListener,
    name: &'static str,
    service: S,
) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = privilege::give_up_all() {
            tracing::warn!("the thread {name} keeps its privileges: {error}");
        }
        let mut clients = Clients::default();
        for stream in listener.incoming() {
            let welcomed = stream.and_then(|stream| clients.welcome(stream, name, &service));
            if let Err(error) = welcomed {
                tracing::debug!("{name}: a reader can't be served: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    })?;
    Ok(())
}

/// The stages of a client, in the order in which they have to make room for others.
const REFUSED: u8 = 0;
const SILENT: u8 = 1;
const ASKING: u8 = 2;
const WATCHING: u8 = 3;

/// A client that is served. Its thread holds it, others only know of it.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    stage: AtomicU8,
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, stage: AtomicU8::new(SILENT) }
    }

    /// Notes that it will stay.
    pub(super) fn watches(&self) {
        self.stage.store(WATCHING, Ordering::Relaxed);
    }

    /// Notes that it gets nothing, and makes it wait for that. Its place is free at the end of this time and not
    /// earlier, though it goes away, so that there are only so many in a second.
    pub(super) fn waits_for_refusal(&self, pause: Duration) {
        self.stage.store(REFUSED, Ordering::Relaxed);
        std::thread::sleep(pause);
    }

    /// Answers with a whole document.
    pub(super) fn send(&self, answer: &Answer<'_>) -> io::Result<()> {
        let Answer { code, content_type, headers, body } = *answer;
        let head = format!(
            "HTTP/1.1 {code}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{headers}\
             Connection: close\r\n\r\n",
            body.len()
        );
        self.write(&[head.as_bytes(), body.as_bytes()].concat())
    }

    /// Writes all if the client takes it within [`PATIENCE`], however slowly it takes each part.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.stream, bytes, PATIENCE)
    }
}

/// An answer: its code, the type of its content, further headers (each with its line end) and content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) code: &'a str,
    pub(super) content_type: &'a str,
    pub(super) headers: &'a str,
    pub(super) body: &'a str,
}

impl<'a> Answer<'a> {
    /// Returns an answer of plain text.
    pub(super) fn text(code: &'a str, body: &'a str) -> Self {
        Self { code, content_type: "text/plain; charset=utf-8", headers: "", body }
    }
}

/// The clients that are served, the oldest first.
#[derive(Debug, Default)]
struct Clients(Vec<Weak<Client>>);

impl Clients {
    /// Serves a client on a thread of its own.
    fn welcome<S: Service>(
        &mut self,
        stream: TcpStream,
        name: &'static str,
        service: &S,
    ) -> io::Result<()> {
        self.make_room();
        let client = Arc::new(Client::new(stream));
        self.0.push(Arc::downgrade(&client));
        let service = service.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || {
            if let Err(error) = hear(&client, &service) {
                tracing::debug!("{name}: a reader went away: {error}");
            }
        })?;
        Ok(())
    }

    /// Sends the oldest one away if there are too many.
    fn make_room(&mut self) {
        self.0.retain(|client| client.strong_count() > 0);
        while self.0.len() >= CLIENTS_MAX {
            let stage = |client: &Weak<Client>| {
                client.upgrade().map_or(SILENT, |client| client.stage.load(Ordering::Relaxed))
            };
            let oldest = self.0.iter().min_by_key(|client| stage(client));
            if let Some(client) = oldest.and_then(Weak::upgrade) {
                // What it waits for fails now, and its thread ends; if it is gone already, well.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
            std::thread::sleep(GOING);
            self.0.retain(|client| client.strong_count() > 0);
        }
    }
}

/// Reads a request, and answers it.
fn hear<S: Service>(client: &Client, service: &S) -> io::Result<()> {
    let bytes = read_request(&client.stream)?;
    client.stage.store(ASKING, Ordering::Relaxed);
    match Request::parse(&bytes) {
        Some(request) if request.method == "GET" => service.answer(client, &request),
        Some(_) => client.send(&Answer::text("405 Method Not Allowed", "only GET is served\n")),
        None => client.send(&Answer::text("400 Bad Request", "this is not HTTP\n")),
    }
}

/// Writes all if the client takes it within this time.
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

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Without what follows a question mark, ...
    pub(super) path: &'a str,
    /// ... which is this.
    pub(super) query: &'a str,
    headers: &'a str,
}

impl<'a> Request<'a> {
    /// Reads the head of a request. None if it is no HTTP/1.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (line, rest) = text.split_once("\r\n")?;
        let mut words = line.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let is_plain = !method.is_empty() && version.starts_with("HTTP/") && words.next().is_none();
        let is_read = version.starts_with("HTTP/1.") || method != "GET";
        if !is_plain || !is_read {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = rest.split_once("\r\n\r\n").map_or(rest, |(headers, _)| headers);
        Some(Self { method, path, query, headers })
    }

    /// Returns the value of a header, whatever case its name is written in. None if it is not there, or there twice.
    pub(super) fn header(&self, name: &str) -> Option<&'a str> {
        let fields = self.headers.split("\r\n").filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let (_, value) = values.next()?;
        values.next().is_none().then(|| value.trim())
    }

    /// Returns a value of the query, percent-encoding undone. None if it is not there, or no text.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
        decode_percent(value)
    }
}

fn decode_percent(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => u8::try_from(digit(bytes.next()?)? << 4 | digit(bytes.next()?)?).ok()?,
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn requests_are_read_strictly() {
        let bytes =
            b"GET /a%20b?peer=site%2Da&x HTTP/1.1\r\nHost: localhost:1\r\nCOOKIE: a=b\r\n\r\n";
        let request = Request::parse(bytes).unwrap();
        assert_eq!((request.method, request.path), ("GET", "/a%20b"));
        assert_eq!(request.header("host"), Some("localhost:1"));
        assert_eq!(request.header("cookie"), Some("a=b"));
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.parameter("peer").as_deref(), Some("site-a"));
        assert_eq!(request.parameter("x"), None);
        for (text, is_http) in [
            ("GET / HTTP/1.0\r\n\r\n", true),
            ("POST / HTTP/1.1\r\n\r\n", true),
            ("PRI * HTTP/2.0\r\n\r\n", true), // answered that only GET is served
            ("GET / HTTP/2\r\n\r\n", false),
            ("GET /\r\n\r\n", false),
            ("GET / HTTP/1.1 and more\r\n\r\n", false),
            ("rubbish", false),
            ("", false),
        ] {
            assert_eq!(Request::parse(text.as_bytes()).is_some(), is_http, "{text:?}");
        }
        assert!(Request::parse(b"GET /\xff HTTP/1.1\r\n\r\n").is_none());
        let twice = b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n";
        assert_eq!(Request::parse(twice).unwrap().header("host"), None, "which of the two?");
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode_percent(bad), None, "{bad}");
        }
    }

    #[test]
    fn who_is_refused_makes_room_before_all_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Clients::default();
        let mut kept = Vec::new();
        let stages = [WATCHING, SILENT, REFUSED, ASKING, REFUSED];
        for stage in stages.into_iter().chain(std::iter::repeat_n(SILENT, CLIENTS_MAX - 5)) {
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let client = Arc::new(Client::new(listener.accept().unwrap().0));
            client.stage.store(stage, Ordering::Relaxed);
            clients.0.push(Arc::downgrade(&client));
            // As in `hear`: whoever serves it ends when the connection does.
            std::thread::spawn(move || (&client.stream).read(&mut [0; 1]));
            kept.push(far);
        }
        let stages = |clients: &Clients| -> Vec<u8> {
            let alive = clients.0.iter().filter_map(Weak::upgrade);
            alive.map(|client| client.stage.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(stages(&clients).len(), CLIENTS_MAX);
        clients.make_room();
        assert_eq!(stages(&clients)[..4], [WATCHING, SILENT, ASKING, REFUSED], "the oldest such");
        assert_eq!(clients.0.len(), CLIENTS_MAX - 1);
    }

    #[test]
    fn a_client_that_reads_slowly_is_left_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let is_left = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_left);
        let slowly = std::thread::spawn(move || {
            // What the kernel still holds for it then would take seconds.
            while !until.load(Ordering::Relaxed) && matches!(reader.read(&mut [0; 4096]), Ok(1..)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // More than the kernel holds for it; each part is taken soon, all of it never.
        let error = write_all(&stream, &vec![7; 64 << 20], Duration::from_millis(200));
        assert!(error.is_err(), "it is not waited for");
        is_left.store(true, Ordering::Relaxed);
        drop(stream);
        slowly.join().unwrap();
    }
}
