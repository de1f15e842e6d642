//! Thousands of TCP connections in one thread: clients that each want an answer, and a server that
//! gives it.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_lab::lab::{Host, LabError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::peer::Pace;

const MESSAGE: &[u8] = b"is anybody there";
const LISTEN_MAX: i32 = 4_096;
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// A slow client sends this many bytes a second.
const SLOW_A_SECOND: f64 = 1.0;

/// The outcomes of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Got their answer.
    pub(crate) served: u64,
    /// Were refused, reset, or ended without an answer.
    pub(crate) broken: u64,
    /// Have had no answer until the time was over.
    pub(crate) waiting: u64,
    /// From the first connection to the last answer, in seconds.
    pub(crate) seconds: f64,
}

enum State {
    Connecting,
    Asked(usize),
    Served,
    Broken,
}

struct Client {
    stream: TcpStream,
    state: State,
}

/// Connections of one host that are held until this is dropped.
pub(crate) struct Crowd {
    clients: Vec<Client>,
    tally: Tally,
    /// When slow clients send: each at its own moment of the second, as clients of different people do.
    slow: Pace,
    /// Which of them is next.
    next: usize,
}

impl Crowd {
    /// Opens `count` connections, `per_second` of them a second, and waits for all answers, at most
    /// for `patience` after the last one was opened.
    ///
    /// Call it on the host that the connections are to come from.
    pub(crate) fn open(
        to: SocketAddr,
        count: usize,
        per_second: f64,
        patience: Duration,
    ) -> io::Result<Self> {
        let slow = Pace::new(((count / 2).max(1)) as f64 * SLOW_A_SECOND);
        let mut it = Self { clients: Vec::new(), tally: Tally::default(), slow, next: 0 };
        let mut pace = Pace::new(per_second);
        let begin = Instant::now();
        let mut end = begin + patience;
        loop {
            let room = count - it.clients.len();
            for _ in 0..pace.due(256).min(room as u32) {
                let stream = begin_to_connect(to)?;
                it.clients.push(Client { stream, state: State::Connecting });
                end = Instant::now() + patience;
            }
            it.turn(Timespec { tv_sec: 0, tv_nsec: 2_000_000 })?;
            let is_done = it.tally.served + it.tally.broken == count as u64;
            if is_done || Instant::now() > end {
                break;
            }
        }
        it.tally.waiting = count as u64 - it.tally.served - it.tally.broken;
        it.tally.seconds = begin.elapsed().as_secs_f64();
        Ok(it)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Every second client sends another byte, if it is its time. Returns how many did.
    pub(crate) fn linger(&mut self) -> u64 {
        let mut sent = 0;
        // What was missed, while the others connected above all, is not made up for.
        for _ in 0..self.slow.due((self.clients.len() as u32).div_ceil(8)) {
            self.next = (self.next + 2) % self.clients.len();
            // Whoever is gone, or has no room, sends nothing.
            sent += self.clients[self.next].stream.write(b"z").map_or(0, |len| len as u64);
        }
        let mut piece = [0; 64];
        for client in &mut self.clients {
            let _ = client.stream.read(&mut piece);
        }
        thread::sleep(Duration::from_millis(50));
        sent
    }

    fn turn(&mut self, patience: Timespec) -> io::Result<()> {
        let is_pending =
            |client: &&mut Client| matches!(client.state, State::Connecting | State::Asked(_));
        let mut pending: Vec<&mut Client> = self.clients.iter_mut().filter(is_pending).collect();
        let events: Vec<PollFlags> = {
            let mut fds: Vec<PollFd<'_>> = pending
                .iter()
                .map(|client| {
                    let wanted = match client.state {
                        State::Connecting => PollFlags::OUT,
                        _ => PollFlags::IN,
                    };
                    PollFd::new(&client.stream, wanted)
                })
                .collect();
            wait(&mut fds, patience)?;
            fds.iter().map(PollFd::revents).collect()
        };
        for (client, events) in pending.iter_mut().zip(events) {
            if !events.is_empty() {
                client.advance(&mut self.tally);
            }
        }
        Ok(())
    }
}

impl Client {
    fn advance(&mut self, tally: &mut Tally) {
        let outcome = match self.state {
            State::Connecting => match sockopt::socket_error(&self.stream) {
                Ok(Ok(())) => self.stream.write_all(MESSAGE).map(|()| self.state = State::Asked(0)),
                _ => Err(io::ErrorKind::ConnectionReset.into()),
            },
            State::Asked(got) => {
                let mut answer = [0; MESSAGE.len()];
                match self.stream.read(&mut answer[got..]) {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(len) if got + len == MESSAGE.len() => {
                        tally.served += 1;
                        self.state = State::Served;
                        Ok(())
                    }
                    Ok(len) => {
                        self.state = State::Asked(got + len);
                        Ok(())
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                    Err(error) => Err(error),
                }
            }
            State::Served | State::Broken => Ok(()),
        };
        if outcome.is_err() {
            tally.broken += 1;
            self.state = State::Broken;
        }
    }
}

/// Begins to connect and returns at once.
pub(crate) fn begin_to_connect(to: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

fn wait(fds: &mut [PollFd<'_>], patience: Timespec) -> io::Result<()> {
    match poll(fds, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A server that sends back what it gets, for any number of clients.
#[derive(Debug)]
pub(crate) struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<io::Result<()>, LabError>>>,
}

impl Echo {
    pub(crate) fn start(host: &Host, ip: Ipv4Addr, port: u16) -> anyhow::Result<Self> {
        let listen = || {
            let listener = TcpListener::bind((ip, port))?;
            listener.set_nonblocking(true)?;
            // Bursts wait in its queue.
            rustix::net::listen(&listener, LISTEN_MAX)?;
            Ok::<_, io::Error>(listener)
        };
        let listener = host.run(listen)??;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = host.spawn_thread(move || serve(&listener, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let mut streams: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let ready: Vec<bool> = {
            let mut fds = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            fds.extend(streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)));
            wait(&mut fds, GLANCE)?;
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut at = 0;
        streams.retain_mut(|stream| {
            at += 1;
            !ready[at] || answer(stream)
        });
        if ready[0] {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true)?;
                streams.push(stream);
            }
        }
    }
    Ok(())
}

/// True as long as there may come more.
fn answer(stream: &mut TcpStream) -> bool {
    let mut piece = [0; 4096];
    match stream.read(&mut piece) {
        Ok(0) => false,
        // A client that takes nothing gets no more.
        Ok(len) => stream.write_all(&piece[..len]).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
