//! Redis, and clients that compare every value.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::time::duration_ns;
use dwell_lab::lab::Process;

use super::super::bed::Bed;
use super::super::carriers::Carrier;
use super::super::http::content::{Body, Kind};
use super::super::program;
use super::super::tunnel::server;
use super::Seen;
use super::task::Task;

/// The port of the server.
pub(crate) const PORT: u16 = 6379;
/// Keys of each kind of value.
const KEYS: u64 = 1000;
const SMALL_BYTES: usize = 100;
const JSON_BYTES: usize = 10_000;
/// Commands in advance.
const AHEAD: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails if it isn't there.
pub(crate) fn ensure_installed() -> anyhow::Result<()> {
    program::ensure_installed(&[("redis-server", "redis-server")])
}

/// Starts the server, which keeps nothing, and waits until it answers.
pub(crate) fn start(bed: &Bed<'_>) -> anyhow::Result<Process> {
    let directory = bed.lab.directory().join("redis");
    std::fs::create_dir_all(&directory).context("a directory for Redis can't be made")?;
    let log = File::create(directory.join("log")).context("a log can't be written")?;
    let program = program::find("redis-server").context("redis-server was there just now")?;
    let mut command = bed.pair.server.command(program);
    let address = server(PORT).ip().to_string();
    command.args(["--bind", &address, "--port", &PORT.to_string(), "--protected-mode", "no"]);
    command.args(["--save", "", "--appendonly", "no", "--tcp-backlog", "65535"]);
    command.args(["--maxclients", "19000", "--dir"]).arg(&directory);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut process = Process::spawn(&mut command)?;
    let end = Instant::now() + PATIENCE;
    let answers = || bed.pair.server.run(|| Client::connect(server(PORT))?.ping());
    while answers()?.is_err() {
        let ended = process.try_wait()?;
        ensure!(ended.is_none() && Instant::now() < end, "Redis is not ready: {ended:?}");
        bed.sleep(Duration::from_millis(20))?;
    }
    Ok(process)
}

/// A server with values.
#[derive(Debug)]
pub(super) struct Server {
    body: Arc<Body>,
    _process: Process,
}

impl Server {
    pub(super) fn start(bed: &Bed<'_>, seed: u64) -> anyhow::Result<Self> {
        let body = Arc::new(Body::new(Kind::Json, seed));
        let process = start(bed)?;
        let fill = || -> io::Result<()> {
            let mut client = Client::connect(server(PORT))?;
            for work in [Work::SMALL, Work::JSON] {
                for number in 0..KEYS {
                    client.write(&work.set(number, &body))?;
                    client.stored()?;
                }
            }
            Ok(())
        };
        bed.pair.server.run(fill)?.context("Redis can't be filled")?;
        Ok(Self { body, _process: process })
    }

    /// Does something for this time.
    pub(super) fn serve(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        (task, clients): (Task, u32),
        time: Duration,
    ) -> anyhow::Result<Seen> {
        let (body, at) = (Arc::clone(&self.body), carrier.address(PORT));
        let work = Work::of(task)?;
        let all = bed.pair.client.spawn_thread(move || work.by(clients, at, &body, time))?;
        let all = all.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        all.with_context(|| format!("through {carrier}"))
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
struct Work {
    bytes: usize,
    /// True if values are written.
    is_set: bool,
    ahead: u64,
}

impl Work {
    const SMALL: Self = Self { bytes: SMALL_BYTES, is_set: false, ahead: 1 };
    const JSON: Self = Self { bytes: JSON_BYTES, ..Self::SMALL };

    fn of(task: Task) -> anyhow::Result<Self> {
        Ok(match task {
            Task::Get => Self::SMALL,
            Task::Set => Self { is_set: true, ..Self::SMALL },
            Task::Pipelined => Self { ahead: AHEAD, ..Self::SMALL },
            Task::JsonGet => Self::JSON,
            Task::JsonSet => Self { is_set: true, ..Self::JSON },
            _ => anyhow::bail!("Redis has nothing to do with {task}"),
        })
    }

    fn key(self, number: u64) -> String {
        format!("order:{}:{:06}", self.bytes, number % KEYS)
    }

    /// The same for a key each time, so that clients disturb nobody.
    fn value(self, number: u64, body: &Body) -> Vec<u8> {
        body.answer(number % KEYS, self.bytes)
    }

    fn get(self, number: u64) -> Vec<u8> {
        command(&[b"GET", self.key(number).as_bytes()])
    }

    fn set(self, number: u64, body: &Body) -> Vec<u8> {
        command(&[b"SET", self.key(number).as_bytes(), &self.value(number, body)])
    }

    /// All clients at once.
    fn by(self, clients: u32, at: SocketAddr, body: &Body, time: Duration) -> io::Result<Seen> {
        let all = thread::scope(|scope| {
            let one = |first: u32| {
                let step = u64::from(clients) * self.ahead;
                let numbers = (u64::from(first) * self.ahead..).step_by(step as usize);
                scope.spawn(move || self.one(Client::connect(at)?, numbers, body, time))
            };
            let all: Vec<_> = (0..clients).map(one).collect();
            let joined = |one: thread::ScopedJoinHandle<'_, io::Result<(Vec<u64>, Duration)>>| {
                one.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            };
            all.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
        })?;
        let window = all.iter().map(|(_, window)| *window).max().unwrap_or_default();
        let took_ns: Vec<u64> = all.into_iter().flat_map(|(took, _)| took).collect();
        Ok(Seen { count: took_ns.len() as u64 * self.ahead, window, took_ns })
    }

    /// One client: how long each batch took, and all of them.
    fn one(
        self,
        mut client: Client,
        numbers: impl Iterator<Item = u64>,
        body: &Body,
        time: Duration,
    ) -> io::Result<(Vec<u64>, Duration)> {
        client.ping()?;
        let (mut took_ns, mut last) = (Vec::new(), 0);
        let begun = Instant::now();
        for number in numbers {
            if begun.elapsed() >= time && !took_ns.is_empty() {
                break;
            }
            let batch = number..number + self.ahead;
            let commands: Vec<u8> = match self.is_set {
                true => batch.clone().flat_map(|it| self.set(it, body)).collect(),
                false => batch.clone().flat_map(|it| self.get(it)).collect(),
            };
            let asked_at = Instant::now();
            client.write(&commands)?;
            for number in batch {
                match self.is_set {
                    true => client.stored()?,
                    false => client.got(&self.value(number, body))?,
                }
            }
            took_ns.push(duration_ns(asked_at.elapsed()));
            last = number;
        }
        let window = begun.elapsed();
        if self.is_set {
            client.write(&self.get(last))?;
            client.got(&self.value(last, body))?;
        }
        Ok((took_ns, window))
    }
}

/// A command as Redis reads it.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection.
struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    fn connect(at: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream), line: String::new() })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        if self.stream.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.line.trim_end())
    }

    fn expect(&mut self, expected: &str) -> io::Result<()> {
        match self.line()? {
            line if line == expected => Ok(()),
            line => Err(io::Error::other(format!("Redis says \"{line}\""))),
        }
    }

    fn ping(&mut self) -> io::Result<()> {
        self.write(&command(&[b"PING"]))?;
        self.expect("+PONG")
    }

    fn stored(&mut self) -> io::Result<()> {
        self.expect("+OK")
    }

    fn got(&mut self, expected: &[u8]) -> io::Result<()> {
        self.expect(&format!("${}", expected.len()))?;
        let mut value = vec![0; expected.len() + 2];
        self.stream.read_exact(&mut value)?;
        match value.strip_suffix(b"\r\n") == Some(expected) {
            true => Ok(()),
            false => Err(io::Error::other("a value is not the one that was stored")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn commands_are_as_redis_reads_them() {
        assert_eq!(command(&[b"GET", b"a"]), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }

    #[test]
    fn another_value_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Client::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"$3\r\nabc\r\n+OK\r\n$3\r\nabd\r\n-ERR no\r\n").unwrap();
        client.got(b"abc").unwrap();
        client.stored().unwrap();
        assert!(client.got(b"abc").is_err());
        assert!(client.stored().unwrap_err().to_string().contains("-ERR no"));
    }
}
