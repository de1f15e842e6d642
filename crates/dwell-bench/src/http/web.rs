//! A server and its clients: HTTP/1.1 with as much as is needed, and every byte compared.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Cell;
use super::content::{Body, Kind};

/// All bodies, by what they are made of.
pub(crate) type Bodies = HashMap<Kind, Body>;

/// The time in which an answer must come, and a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which the server checks whether it is to stop: connections are taken as they come.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A server; dropping it stops it from taking connections.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, bodies: Arc<Bodies>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let accept = move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    // Whatever goes wrong, it is tried again.
                    let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&GLANCE));
                    continue;
                };
                let bodies = Arc::clone(&bodies);
                // A client that goes away says so itself.
                thread::spawn(move || serve(stream, &bodies).ok());
            }
        };
        let thread = thread::Builder::new().name("http".into()).spawn(accept)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of a connection.
fn serve(mut stream: TcpStream, bodies: &Bodies) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(first) = lines.next() {
        let path = first?.split(' ').nth(1).unwrap_or_default().to_owned();
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let mut parts = path.split('/').skip(1);
        let kind = parts.next().unwrap_or_default();
        let kind = <Kind as clap::ValueEnum>::from_str(kind, false).map_err(io::Error::other)?;
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(bytes), Some(number)) = (number(), number()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let body = bodies.get(&kind).ok_or(io::ErrorKind::NotFound)?;
        let body = body.answer(number, bytes as usize);
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/x-{}\r\n\
             Cache-Control: no-store\r\nContent-Length: {bytes}\r\n\r\n",
            kind.name(),
        )
        .into_bytes();
        answer.extend_from_slice(&body);
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// What clients have found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// How long each took, from the request, or from the connection before it if that was new.
    pub(crate) took: Vec<Duration>,
    pub(crate) is_verified: bool,
}

/// How long, how often and how fast clients ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) time: Duration,
    /// For so many answers, even if it takes longer.
    pub(crate) least: usize,
    /// The time from an answer to the next request. If there is one, clients begin one after the other within it, and
    /// their first answers, which a connection is part of, don't count.
    pub(crate) pause: Duration,
}

/// Asks for answers by several clients at once.
pub(crate) fn ask(
    address: SocketAddr,
    cell: Cell,
    pace: Pace,
    bodies: &Bodies,
    first: u64,
) -> io::Result<Answers> {
    let body = bodies.get(&cell.kind).ok_or(io::ErrorKind::NotFound)?;
    let (begin, clients) = (Instant::now(), u64::from(cell.at_once));
    let all = thread::scope(|scope| {
        let client = |at: u64| {
            let numbers = (first + at..).step_by(cell.at_once as usize);
            let begin = begin + pace.pause.mul_f64(at as f64 / clients as f64);
            scope.spawn(move || one(address, cell, (begin, pace), body, numbers))
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        let joined = |client: thread::ScopedJoinHandle<'_, io::Result<Answers>>| {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
        };
        clients.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
    })?;
    Ok(Answers {
        is_verified: all.iter().all(|answers| answers.is_verified),
        took: all.into_iter().flat_map(|answers| answers.took).collect(),
    })
}

/// One client.
fn one(
    address: SocketAddr,
    cell: Cell,
    (begin, Pace { time, least, pause }): (Instant, Pace),
    body: &Body,
    numbers: impl Iterator<Item = u64>,
) -> io::Result<Answers> {
    let mut answers = Answers { took: Vec::new(), is_verified: true };
    let (mut kept, mut is_counted) = (None, pause.is_zero());
    thread::sleep(begin.saturating_duration_since(Instant::now()));
    for number in numbers {
        if begin.elapsed() >= time && answers.took.len() >= least {
            break;
        }
        let expected = body.answer(number, cell.bytes);
        let asked_at = Instant::now();
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => connect(address)?,
        };
        let got = request(&mut stream, cell, number)?;
        if is_counted {
            answers.took.push(asked_at.elapsed());
        }
        is_counted = true;
        answers.is_verified &= got == expected;
        kept = (!cell.is_new).then_some(stream);
        thread::sleep(pause);
    }
    Ok(answers)
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

fn request(stream: &mut BufReader<TcpStream>, cell: Cell, number: u64) -> io::Result<Vec<u8>> {
    let request = format!(
        "GET /{}/{}/{number} HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux \
         x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: text/html,application/json;q=0.9,\
         image/webp,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\r\n",
        cell.kind.name(),
        cell.bytes
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut bytes, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(length) = line.strip_prefix("Content-Length: ") {
            bytes = length.trim().parse().map_err(io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
    }
    if bytes != cell.bytes {
        return Err(io::Error::other(format!("{bytes} bytes were answered, not {}", cell.bytes)));
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::new(Bodies::from([(Kind::Json, Body::new(Kind::Json, 1))]));
        let _server = Server::start(listener, Arc::clone(&bodies)).unwrap();
        for is_new in [false, true] {
            let cell = Cell { kind: Kind::Json, bytes: 5000, is_new, at_once: 2 };
            let pace = Pace { time: Duration::ZERO, least: 3, pause: Duration::ZERO };
            let answers = ask(address, cell, pace, &bodies, 10).unwrap();
            assert!(answers.is_verified);
            assert_eq!(answers.took.len(), 6);
            let pause = Duration::from_millis(2);
            let begun = Instant::now();
            let answers = ask(address, cell, Pace { pause, ..pace }, &bodies, 10).unwrap();
            assert_eq!(answers.took.len(), 6);
            assert!(begun.elapsed() >= 4 * pause);
        }
    }
}
