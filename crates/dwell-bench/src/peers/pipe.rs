//! `zstd --adapt | tcp | zstd -d`, for each TCP connection.
//!
//! The processes have the sockets as their input and output, so that nothing is copied here but what the
//! client sends, which is a request.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use dwell_cli::terminal;
use dwell_lab::lab::{Host, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use super::super::bed::Bed;
use super::super::download::ports;
use super::super::machine::cpu_ns;
use super::super::tunnel::server;
use super::ENTRANCE;

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9002);
const PATIENCE: Duration = Duration::from_secs(10);
/// The time in which the end of all is noticed.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Returns a command that compresses its input.
pub(crate) fn encoder(host: &Host) -> Command {
    zstd(host, &["--adapt", "-cq"])
}

/// Returns a command that decompresses its input.
pub(crate) fn decoder(host: &Host) -> Command {
    zstd(host, &["-dcq"])
}

fn zstd(host: &Host, arguments: &[&str]) -> Command {
    let mut command = host.command("zstd");
    command.args(arguments);
    command
}

/// Makes TCP connections over the link.
#[derive(Debug)]
pub(crate) struct Gate {
    hosts: [Host; 2],
    listener: TcpListener,
}

/// A TCP connection over the link.
#[derive(Debug)]
pub(crate) struct Crossing {
    /// The sender's end.
    pub(crate) far: TcpStream,
    /// The receiver's end.
    pub(crate) near: TcpStream,
}

impl Gate {
    pub(crate) fn open(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let hosts = [bed.pair.egress.clone(), bed.pair.ingress.clone()];
        Ok(Self { listener: bed.listen_on(&hosts[0], SocketAddr::from(ADDRESS))?, hosts })
    }

    pub(crate) fn cross(&self) -> anyhow::Result<Crossing> {
        let near = connect(&self.hosts[1], SocketAddr::from(ADDRESS))?;
        let (far, _) = self.listener.accept()?;
        // Nothing of what is on its way when it is over shall disturb the next run.
        for end in [&near, &far] {
            set_socket_linger(end, Some(Duration::ZERO))?;
        }
        Ok(Crossing { far, near })
    }
}

fn connect(host: &Host, address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = host.run(|| TcpStream::connect_timeout(&address, PATIENCE))?;
    stream.with_context(|| format!("can't connect to {address}"))
}

/// A pair of processes for each connection that a client makes to the receiver's router.
#[derive(Debug)]
pub(crate) struct Pipes {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    pipes: Mutex<Vec<Pipe>>,
}

impl Shared {
    fn pipes(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipes {
    /// Listens on all ports of downloads.
    pub(super) fn start(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let gate = Gate::open(bed)?;
        let listen = |port| {
            let address = SocketAddr::from((ENTRANCE, port));
            Ok((bed.listen_on(&bed.pair.ingress, address)?, port))
        };
        let listeners: Vec<_> = ports().map(listen).collect::<anyhow::Result<_>>()?;
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name("pipes".into());
            thread.spawn(move || serve(&gate, &listeners, &shared))?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    /// CPU time of all that compress, and of all that decompress.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<[u64; 2]> {
        let mut sum = [0; 2];
        for pipe in self.shared.pipes().iter() {
            for (sum, process) in sum.iter_mut().zip([&pipe.encoder, &pipe.decoder]) {
                *sum += cpu_ns(process.id())?;
            }
        }
        Ok(sum)
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Each ends as it is dropped.
        self.shared.pipes().clear();
    }
}

/// Makes a pipe for each connection, until it is over.
fn serve(gate: &Gate, listeners: &[(TcpListener, u16)], shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let mut ready: Vec<PollFd<'_>> =
            listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)).collect();
        if poll(&mut ready, Some(&GLANCE)).is_err() {
            continue;
        }
        for (_, (listener, port)) in
            ready.iter().zip(listeners).filter(|(it, _)| it.revents().contains(PollFlags::IN))
        {
            let made = listener.accept().map_err(anyhow::Error::from);
            match made.and_then(|(client, _)| Pipe::start(gate, client, *port)) {
                Ok(pipe) => shared.pipes().push(pipe),
                // The client's connection is closed: that run fails.
                Err(error) => terminal::complain("dwell-bench", &format!("a pipe: {error:#}")),
            }
        }
    }
}

/// A connection from a client to the server.
#[derive(Debug)]
struct Pipe {
    encoder: Process,
    decoder: Process,
    /// All that the threads below wait for.
    sockets: Vec<TcpStream>,
    /// They carry what the client sends.
    requests: Vec<JoinHandle<()>>,
}

impl Pipe {
    fn start(gate: &Gate, client: TcpStream, port: u16) -> anyhow::Result<Self> {
        let Crossing { far, near } = gate.cross()?;
        let [egress, ingress] = &gate.hosts;
        let content = connect(egress, server(port))?;
        let spawn = |mut command: Command, input: &TcpStream, output: &TcpStream| {
            let [input, output] = [input, output].map(TcpStream::try_clone);
            command.stdin(OwnedFd::from(input?)).stdout(OwnedFd::from(output?));
            anyhow::Ok(Process::spawn(command.stderr(Stdio::null()))?)
        };
        let decoder = spawn(decoder(ingress), &near, &client)?;
        let encoder = spawn(encoder(egress), &content, &far)?;
        let requests = vec![carry(&client, &near)?, carry(&far, &content)?];
        let sockets = vec![client, near, far, content];
        Ok(Self { encoder, decoder, sockets, requests })
    }
}

fn carry(from: &TcpStream, to: &TcpStream) -> io::Result<JoinHandle<()>> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    // An end that goes away ends it.
    let carry = move || drop(io::copy(&mut from, &mut to));
    thread::Builder::new().name("requests".into()).spawn(carry)
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // They may have ended because the client or the server has.
        let _ = self.encoder.stop();
        let _ = self.decoder.stop();
        for socket in &self.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.requests.drain(..) {
            let _ = thread.join();
        }
    }
}
