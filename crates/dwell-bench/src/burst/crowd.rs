//! Clients by the thousand on one thread.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

const REQUEST: &[u8] = b"PING\r\n";
const ANSWER: &[u8] = b"+PONG\r\n";
/// The time in which something must happen to somebody.
const PATIENCE: Duration = Duration::from_secs(60);
/// Files that are open besides.
const OTHER_FILES: u64 = 200;

/// Raises this process' limit of open files. Fails if so many connections can't be open.
pub(super) fn allow_files(connections: u32) -> anyhow::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    let needed = u64::from(connections) + OTHER_FILES;
    if let Some(hard) = hard {
        ensure!(
            hard >= needed,
            "{connections} connections need {needed} open files, and `ulimit -Hn` says {hard}"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })
        .context("the limit of open files can't be raised")
}

/// Those who have come.
#[derive(Debug)]
pub(super) struct Crowd {
    /// How long each waited for its answer.
    pub(super) took: Vec<Duration>,
    /// From the first connection to the last answer.
    pub(super) lasted: Duration,
    open: VecDeque<TcpStream>,
}

impl Crowd {
    /// Connects so many times at once, and asks as soon as that is possible; each answer beyond `held` closes
    /// the connection that was answered first.
    pub(super) fn come(at: SocketAddr, connections: u32, held: u32) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("no epoll")?;
        let mut waiting: Vec<Option<Client>> = Vec::with_capacity(connections as usize);
        let (mut crowd, begun) = (Self::default(), Instant::now());
        for number in 0..connections {
            let client = Client::connect(at).context("can't connect")?;
            let events = epoll::EventFlags::OUT | epoll::EventFlags::IN;
            epoll::add(&epoll, &client.stream, epoll::EventData::new_u64(number.into()), events)
                .context("a connection can't be watched")?;
            waiting.push(Some(client));
        }
        let mut events = Vec::with_capacity(512);
        while crowd.took.len() < connections as usize {
            events.clear();
            let patience = Timespec::try_from(PATIENCE).context("a time")?;
            match epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience)) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result.context("can't wait")?,
            };
            let answered = crowd.took.len();
            ensure!(
                !events.is_empty(),
                "{answered} of {connections} were answered, and no more are"
            );
            for event in &events {
                let place = &mut waiting[event.data.u64() as usize];
                let Some(client) = place else { continue };
                let is_answered = client
                    .go_on(&epoll, event.data)
                    .with_context(|| format!("of {connections} {answered} were answered"))?;
                if is_answered && let Some(client) = place.take() {
                    crowd.take(client, held as usize);
                }
            }
        }
        crowd.lasted = begun.elapsed();
        Ok(crowd)
    }

    fn take(&mut self, client: Client, held: usize) {
        self.took.push(client.begun.elapsed());
        self.open.push_back(client.stream);
        if self.open.len() > held {
            self.open.pop_front();
        }
    }

    pub(super) fn held(&self) -> usize {
        self.open.len()
    }

    /// Asks on each connection that is open, one after the other; returns how many answered.
    pub(super) fn ask_again(&mut self) -> io::Result<usize> {
        for stream in &mut self.open {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(REQUEST)?;
        }
        for stream in &mut self.open {
            let mut answer = [0; ANSWER.len()];
            stream.read_exact(&mut answer)?;
            if answer != ANSWER {
                return Err(io::Error::other("another answer came"));
            }
        }
        Ok(self.open.len())
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self { took: Vec::new(), lasted: Duration::ZERO, open: VecDeque::new() }
    }
}

/// One that waits for its answer.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    begun: Instant,
    has_asked: bool,
    got: usize,
}

impl Client {
    fn connect(at: SocketAddr) -> io::Result<Self> {
        let begun = Instant::now();
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&at.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                return Err(error);
            }
            _ => {}
        }
        let stream = TcpStream::from(socket);
        // A port is free again at once.
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(Self { stream, begun, has_asked: false, got: 0 })
    }

    /// Does what can be done now; true if the answer is there.
    fn go_on(
        &mut self,
        epoll: impl std::os::fd::AsFd,
        data: epoll::EventData,
    ) -> anyhow::Result<bool> {
        if !self.has_asked {
            if let Some(error) = self.stream.take_error()? {
                return Err(error).context("a connection failed");
            }
            match self.stream.write(REQUEST) {
                Ok(len) if len == REQUEST.len() => self.has_asked = true,
                Ok(_) => bail!("a request was cut"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("a connection failed"),
            }
            epoll::modify(epoll, &self.stream, data, epoll::EventFlags::IN)?;
        }
        let mut answer = [0; ANSWER.len()];
        match self.stream.read(&mut answer) {
            Ok(0) => bail!("a connection was closed without an answer"),
            Ok(len) => {
                ensure!(ANSWER[self.got..].starts_with(&answer[..len]), "another answer came");
                self.got += len;
                Ok(self.got == ANSWER.len())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("a connection failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers whatever comes on so many connections.
    fn serve(connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut asked = [0; REQUEST.len()];
                    while stream.read_exact(&mut asked).is_ok() {
                        // In two pieces, as networks may have it.
                        stream.write_all(&ANSWER[..3]).unwrap();
                        thread::sleep(Duration::from_millis(1));
                        stream.write_all(&ANSWER[3..]).unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn all_are_answered_and_some_stay() {
        let mut crowd = Crowd::come(serve(30), 30, 20).unwrap();
        assert_eq!((crowd.took.len(), crowd.held()), (30, 20));
        assert!(crowd.took.iter().all(|took| *took <= crowd.lasted));
        assert_eq!(crowd.ask_again().unwrap(), 20);
    }

    #[test]
    fn a_connection_without_an_answer_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = thread::spawn(move || drop(listener.accept()));
        assert!(Crowd::come(address, 1, 1).is_err());
        closing.join().unwrap();
    }
}
