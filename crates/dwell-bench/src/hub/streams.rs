//! Streams of text from the hub to spokes, each until it is over.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use dwell_lab::corpus;
use dwell_lab::lab::{Host, LabError};
use rustix::net::sockopt::set_socket_linger;

const PORT: u16 = 8080;
/// Text of this length goes round: longer than any window.
const TEXT_BYTES: usize = 8 << 20;
const PIECE_BYTES: usize = 64 << 10;
const GLANCE: Duration = Duration::from_millis(100);

/// The streams.
pub(super) struct Streams {
    state: Arc<State>,
    threads: Vec<JoinHandle<Result<io::Result<()>, LabError>>>,
    senders: Vec<TcpStream>,
    received: Vec<Count>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
}

/// What one of them has received, in bytes.
type Count = Arc<AtomicU64>;

impl Streams {
    /// Begins one to each of these spokes: their numbers, hosts and addresses.
    pub(super) fn start(hub: &Host, to: &[(usize, &Host, Ipv4Addr)]) -> anyhow::Result<Self> {
        let state = Arc::new(State::default());
        let (mut threads, mut senders, mut received) = (Vec::new(), Vec::new(), Vec::new());
        for &(n, host, address) in to {
            let address = SocketAddr::from((address, PORT));
            let listener = host.run(|| TcpListener::bind(address))?.context("can't listen")?;
            let (receiver, count) = (Arc::clone(&state), Count::default());
            received.push(Arc::clone(&count));
            threads.push(host.spawn_thread(move || receive(&listener, &receiver, &count))?);
            let stream = hub.run(|| TcpStream::connect(address))?.context("can't connect")?;
            senders.push(stream.try_clone()?);
            let sender = Arc::clone(&state);
            threads.push(hub.spawn_thread(move || send(stream, n as u64, &sender))?);
        }
        Ok(Self { state, threads, senders, received })
    }

    /// Of each, in bytes.
    pub(super) fn received_bytes(&self) -> Vec<u64> {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.state.is_over.store(true, Ordering::Relaxed);
        for stream in &self.senders {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            let ended = thread.join().map_err(|_| anyhow::anyhow!("a stream panicked"))?;
            ended?.context("a stream failed")?;
        }
        Ok(())
    }
}

fn send(mut stream: TcpStream, seed: u64, state: &State) -> io::Result<()> {
    // What is on its way when it is over shall not disturb the next run.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let text = corpus::text(TEXT_BYTES, seed + 1);
    loop {
        for piece in text.chunks(PIECE_BYTES) {
            match stream.write_all(piece) {
                Ok(()) => {}
                Err(_) if state.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn receive(listener: &TcpListener, state: &State, count: &AtomicU64) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(GLANCE))?;
    let mut piece = vec![0; PIECE_BYTES];
    while !state.is_over.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => {
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) if state.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
