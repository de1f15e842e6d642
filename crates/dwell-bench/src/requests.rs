//! Requests that are answered, one after another on one TCP connection, each timed.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::time::duration_ns;
use dwell_lab::lab::LabError;

use super::bed::Bed;
use super::download::ports;
use super::messages::Delivery;
use super::statistics::rank;
use super::tunnel::server;

/// The length of a request, with the headers that a browser sends.
const REQUEST_BYTES: usize = 300;
/// The length of an answer.
const ANSWER_BYTES: usize = 1_000;
/// The time from an answer to the next request.
const PAUSE: Duration = Duration::from_millis(10);
/// The time in which everybody notices that it is over.
const GLANCE: Duration = Duration::from_millis(100);

/// Requests that go on until they are finished.
#[derive(Debug)]
pub(super) struct Requests {
    state: Arc<State>,
    server: JoinHandle<io::Result<()>>,
    client: JoinHandle<Result<io::Result<Vec<Answer>>, LabError>>,
}

#[derive(Debug)]
struct State {
    stop: AtomicBool,
    answered: AtomicU64,
    text: Arc<Vec<u8>>,
}

/// An answer that arrived whole.
#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    took: Duration,
    is_right: bool,
}

impl Requests {
    /// Asks for pieces of `text` through `entrance`, beside one download.
    pub(super) fn start(
        bed: &Bed<'_>,
        text: &Arc<Vec<u8>>,
        entrance: IpAddr,
    ) -> anyhow::Result<Self> {
        let port = ports().nth(1).context("there is no port for requests")?;
        let listener = bed.listen(server(port))?;
        listener.set_nonblocking(true).context("a listener can't be set up")?;
        let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let state = Arc::new(State { stop, answered, text: Arc::clone(text) });
        let serve = Arc::clone(&state);
        let server = thread::Builder::new().name("answers".into());
        let server = server.spawn(move || serve.serve(&listener));
        let server = server.context("a thread can't be started")?;
        let ask = Arc::clone(&state);
        let address = SocketAddr::from((entrance, port));
        let client = bed.pair.client.spawn_thread(move || ask.ask(address))?;
        Ok(Self { state, server, client })
    }

    /// Answers that have come.
    pub(super) fn answered(&self) -> u64 {
        self.state.answered.load(Ordering::Relaxed)
    }

    /// Ends it. Delays are from a request to its whole answer, of what was answered in the window.
    pub(super) fn finish(self, [from, to]: [Instant; 2]) -> anyhow::Result<Delivery> {
        self.state.stop.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a thread for requests panicked");
        let answers = self.client.join().map_err(panicked)??;
        self.server.join().map_err(panicked)?.context("requests can't be answered")?;
        let answers = answers.context("requests can't be made")?;
        let in_window = answers.iter().filter(|answer| (from..to).contains(&answer.at));
        let mut delays: Vec<u64> = in_window.map(|answer| duration_ns(answer.took)).collect();
        delays.sort_unstable();
        Ok(Delivery {
            is_verified: answers.iter().all(|answer| answer.is_right),
            delay_p50_ns: rank(&delays, 0.5),
            delay_p99_ns: rank(&delays, 0.99),
        })
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The answer to the request of this number: another piece each time.
    fn answer(&self, number: u32) -> &[u8] {
        let pieces = (self.text.len() / ANSWER_BYTES).max(1);
        let from = number as usize % pieces * ANSWER_BYTES;
        &self.text[from..(from + ANSWER_BYTES).min(self.text.len())]
    }

    fn serve(&self, listener: &TcpListener) -> io::Result<()> {
        while !self.is_over() {
            let Ok((mut stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(GLANCE))?;
            let mut request = [0; REQUEST_BYTES];
            while self.fill(&mut stream, &mut request)? {
                let [a, b, c, d, ..] = request;
                stream.write_all(self.answer(u32::from_le_bytes([a, b, c, d])))?;
            }
        }
        Ok(())
    }

    fn ask(&self, address: SocketAddr) -> io::Result<Vec<Answer>> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GLANCE))?;
        let mut answers = Vec::new();
        for number in 0_u32.. {
            let mut request = [b'x'; REQUEST_BYTES];
            request[..4].copy_from_slice(&number.to_le_bytes());
            let expected = self.answer(number);
            let mut answer = vec![0; expected.len()];
            let asked_at = Instant::now();
            stream.write_all(&request)?;
            if !self.fill(&mut stream, &mut answer)? {
                break;
            }
            let (took, is_right) = (asked_at.elapsed(), answer == expected);
            answers.push(Answer { at: Instant::now(), took, is_right });
            self.answered.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(answers)
    }

    /// Reads until the buffer is full; false if it is over before.
    fn fill(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let mut filled = 0;
        while filled < buffer.len() {
            if self.is_over() {
                return Ok(false);
            }
            match stream.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => filled += len,
                Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
