//! Just enough HTTP/1.1 to measure downloads: GET, one request per connection.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_base::time::duration_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::Secs;
use thiserror::Error;

/// The content of a server, by path.
pub type Contents = HashMap<String, Arc<Vec<u8>>>;

/// The longest header of a request or an answer.
const HEADER_MAX_BYTES: usize = 8 << 10;
/// The longest time that either side waits for the other.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The interval at which a server checks whether it is to stop.
const STOP_CHECK: Timespec = Timespec { tv_sec: 0 as Secs, tv_nsec: 50_000_000 };

/// A running server; dropping it stops it from taking connections.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `contents`, each connection on a thread of its own. The listener may belong to
/// another host: open it with [`crate::lab::Host::run`].
///
/// # Errors
/// If no thread can be started.
pub fn serve(listener: TcpListener, contents: Arc<Contents>) -> io::Result<Server> {
    listener.set_nonblocking(true)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let accept = move || {
        while !stopped.load(Ordering::Relaxed) {
            // Without a connection, or interrupted: check the flag and continue.
            let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&STOP_CHECK));
            let Ok((stream, _)) = listener.accept() else { continue };
            let contents = Arc::clone(&contents);
            // A client that goes away, or asks nonsense, is its own problem.
            thread::spawn(move || answer(stream, &contents).ok());
        }
    };
    let thread = thread::Builder::new().name("http".into()).spawn(accept)?;
    Ok(Server { stop, thread: Some(thread) })
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, contents: &Contents) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let (header, _) = read_header(&mut stream)?;
    let mut words = header.lines().next().unwrap_or_default().split(' ');
    let (status, body): (_, &[u8]) = match (words.next(), words.next(), words.next()) {
        (Some("GET"), Some(path), Some("HTTP/1.1" | "HTTP/1.0")) => match contents.get(path) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", b""),
        },
        (Some(_), Some(_), Some("HTTP/1.1" | "HTTP/1.0")) => ("501 Not Implemented", b""),
        _ => ("400 Bad Request", b""),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(body)
}

/// A finished download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The length of the body.
    pub bytes: u64,
    /// True if it was what was expected, or if nothing was.
    pub is_as_expected: bool,
    /// The time from the start of connecting to the first byte of the body.
    pub first_byte_ns: u64,
    /// The time from the start of connecting to the last byte of the body.
    pub total_ns: u64,
}

impl Fetched {
    /// Returns the bits of the body per second of the whole time.
    pub fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8e9 / (self.total_ns.max(1)) as f64
    }
}

/// The reason why a download failed.
#[derive(Debug, Error)]
pub enum GetError {
    /// The connection failed or ended early.
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// The server's answer is not a success.
    #[error("the server says \"{0}\"")]
    Status(String),
    /// The answer has no valid Content-Length.
    #[error("the answer does not say how long it is")]
    NoLength,
    /// The body is shorter than announced.
    #[error("the connection ended after {got} of {announced} bytes")]
    Short {
        /// The bytes that came.
        got: u64,
        /// The length that the header announced.
        announced: u64,
    },
}

impl From<io::Error> for GetError {
    fn from(cause: io::Error) -> Self {
        Self::Connection(cause)
    }
}

/// Downloads `path` and compares it while it arrives with `expected`, if that is given.
/// `on_progress` is called for every piece with the bytes received and the length.
///
/// # Errors
/// If the answer is not a complete 200.
pub fn get(
    server: SocketAddr,
    path: &str,
    expected: Option<&[u8]>,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<Fetched, GetError> {
    let start = Instant::now();
    let elapsed_ns = || duration_ns(start.elapsed());
    let mut stream = TcpStream::connect_timeout(&server, SILENCE_MAX)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;
    let (header, mut piece) = read_header(&mut stream)?;
    let announced = body_length(&header)?;
    let mut body = Comparison::with(expected);
    let mut first_byte_ns = None;
    let mut buffer = vec![0; 256 << 10];
    loop {
        if !piece.is_empty() {
            first_byte_ns.get_or_insert_with(elapsed_ns);
            body.take(&piece);
            on_progress(body.got, announced);
        }
        if body.got >= announced {
            break;
        }
        let left = usize::try_from(announced - body.got).unwrap_or(usize::MAX);
        let room = left.min(buffer.len());
        let len = stream.read(&mut buffer[..room])?;
        if len == 0 {
            return Err(GetError::Short { got: body.got, announced });
        }
        piece.clear();
        piece.extend_from_slice(&buffer[..len]);
    }
    let total_ns = elapsed_ns();
    Ok(Fetched {
        bytes: body.got,
        is_as_expected: body.is_as_expected(),
        first_byte_ns: first_byte_ns.unwrap_or(total_ns),
        total_ns,
    })
}

/// Compares a body with what it should be, piece by piece.
struct Comparison<'a> {
    expected: Option<&'a [u8]>,
    got: u64,
    is_equal: bool,
}

impl<'a> Comparison<'a> {
    fn with(expected: Option<&'a [u8]>) -> Self {
        Self { expected, got: 0, is_equal: true }
    }

    fn take(&mut self, piece: &[u8]) {
        if let Some(expected) = self.expected {
            let from = usize::try_from(self.got).unwrap_or(usize::MAX);
            let same = expected.get(from..).is_some_and(|rest| rest.starts_with(piece));
            self.is_equal &= same;
        }
        self.got += piece.len() as u64;
    }

    fn is_as_expected(&self) -> bool {
        self.is_equal && self.expected.is_none_or(|expected| expected.len() as u64 == self.got)
    }
}

fn body_length(header: &str) -> Result<u64, GetError> {
    let mut lines = header.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(GetError::Status(status.to_owned()));
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    length.ok_or(GetError::NoLength)
}

/// Reads up to the empty line; returns the header, and the bytes after it, which belong to the
/// body.
fn read_header(stream: &mut impl Read) -> io::Result<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = vec![0; HEADER_MAX_BYTES];
    let mut len = 0;
    while len < bytes.len() {
        match stream.read(&mut bytes[len..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
        if let Some(end) = bytes[..len].windows(END.len()).position(|window| window == END) {
            let rest = bytes[end + END.len()..len].to_vec();
            bytes.truncate(end);
            let header = String::from_utf8(bytes).map_err(|_| invalid("the header is not text"))?;
            return Ok((header, rest));
        }
    }
    Err(invalid("the header is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_with(path: &str, body: &[u8]) -> (Server, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let contents = HashMap::from([(path.to_owned(), Arc::new(body.to_vec()))]);
        (serve(listener, Arc::new(contents)).unwrap(), address)
    }

    #[test]
    fn a_file_arrives_whole_and_is_compared() {
        let body = crate::corpus::text(1_000_000, 1);
        let (_server, address) = server_with("/a", &body);
        let mut progress = 0;
        let fetched = get(address, "/a", Some(&body), |got, _| progress = got).unwrap();
        assert!(fetched.is_as_expected && fetched.total_ns >= fetched.first_byte_ns);
        assert_eq!((fetched.bytes, progress), (1_000_000, 1_000_000));
        for other in [&body[1..], &body[..999_999], b""] {
            assert!(!get(address, "/a", Some(other), |_, _| ()).unwrap().is_as_expected);
        }
        let missing = get(address, "/b", None, |_, _| ()).unwrap_err();
        assert_eq!(missing.to_string(), "the server says \"HTTP/1.1 404 Not Found\"");
    }

    #[test]
    fn an_empty_file_is_a_file() {
        let (_server, address) = server_with("/", b"");
        assert_eq!(get(address, "/", Some(b""), |_, _| ()).unwrap().bytes, 0);
    }

    #[test]
    fn headers_are_bounded() {
        let endless = vec![b'x'; 1 << 20];
        assert!(read_header(&mut &endless[..]).is_err());
        assert!(read_header(&mut &b"HTTP/1.1 200 OK\r\n"[..]).is_err());
        let (header, rest) = read_header(&mut &b"HTTP/1.1 200 OK\r\n\r\nbody"[..]).unwrap();
        assert_eq!((header.as_str(), rest.as_slice()), ("HTTP/1.1 200 OK", &b"body"[..]));
        assert!(matches!(body_length(&header), Err(GetError::NoLength)));
        assert!(matches!(body_length("HTTP/1.1 200\r\ncontent-LENGTH: 7"), Ok(7)));
    }
}
