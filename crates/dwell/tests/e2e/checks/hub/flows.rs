//! Datagrams of text from each spoke to the server, which sends back what it gets.

use std::collections::BTreeSet;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_lab::corpus;
use dwell_lab::lab::LabError;

use super::star::{SERVERS, Star, in_tunnel, name};

const PORT: u16 = 9000;
const DATAGRAM_BYTES: usize = 500;
/// The numbers of spoke and datagram before the text.
const NUMBERS_BYTES: usize = 8;
/// Datagrams that are sent at once: as many as the queue has room for in any case, so that they wait.
const BURST: u32 = 24;
/// What has not come back by then is sent again.
const AGAIN: Duration = Duration::from_secs(1);
/// From the end of a spoke's burst to its next one, for each spoke that there is: however many there are, the
/// hub has as much to do.
const PAUSE: Duration = Duration::from_millis(10);
/// The interval at which threads look whether they are to stop.
const TICK: Duration = Duration::from_millis(250);

/// One flow for each spoke and each address of the server.
pub(super) struct Flows {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<io::Result<()>, LabError>>>,
}

struct Shared {
    text: Vec<u8>,
    stop: AtomicBool,
    /// Bursts of each spoke of which all has come back.
    completed: Vec<AtomicU64>,
    /// Datagrams that came otherwise than they were sent, at either end.
    altered: AtomicU64,
}

impl Flows {
    pub(super) fn start(star: &Star) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            text: corpus::text(64 << 10, 7),
            stop: AtomicBool::new(false),
            completed: star.hosts.iter().map(|_| AtomicU64::new(0)).collect(),
            altered: AtomicU64::new(0),
        });
        let mut flows = Self { shared, threads: Vec::new() };
        for address in SERVERS {
            let socket = star.server.run(|| UdpSocket::bind((address, PORT)))??;
            let shared = Arc::clone(&flows.shared);
            flows.threads.push(star.server.spawn_thread(move || shared.answer(&socket))?);
        }
        for (n, host) in star.hosts.iter().enumerate() {
            let socket = host.run(|| UdpSocket::bind((in_tunnel(n), PORT)))??;
            let shared = Arc::clone(&flows.shared);
            flows.threads.push(host.spawn_thread(move || shared.send(n, &socket))?);
        }
        Ok(flows)
    }

    /// Returns the bursts of each spoke of which all has come back.
    pub(super) fn completed(&self) -> Vec<u64> {
        self.shared.completed.iter().map(|it| it.load(Ordering::Relaxed)).collect()
    }

    /// All that came is what was sent.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let altered = self.shared.altered.load(Ordering::Relaxed);
        ensure!(altered == 0, "{altered} datagrams were altered");
        Ok(())
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for (at, thread) in self.threads.drain(..).enumerate() {
            let ended = thread.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            let who = at.checked_sub(SERVERS.len()).map_or("the server".to_owned(), name);
            ended.map_err(|error| anyhow::anyhow!("{who}: {error}"))?;
        }
        self.check()
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends back what comes.
    fn answer(&self, socket: &UdpSocket) -> io::Result<()> {
        socket.set_read_timeout(Some(TICK))?;
        let mut room = [0; 2 * DATAGRAM_BYTES];
        while !self.is_over() {
            let Ok((len, from)) = socket.recv_from(&mut room) else { continue };
            if self.read(&room[..len]).is_some() {
                // What is lost is asked for again.
                let _ = socket.send_to(&room[..len], from);
            }
        }
        Ok(())
    }

    /// Sends bursts, each until all of it has come back.
    fn send(&self, spoke: usize, socket: &UdpSocket) -> io::Result<()> {
        socket.set_read_timeout(Some(TICK))?;
        // Not all at the same time.
        thread::sleep(PAUSE * spoke as u32);
        for first in (0..u32::MAX).step_by(BURST as usize) {
            let mut missing: BTreeSet<u32> = (first..first + BURST).collect();
            while !missing.is_empty() {
                if self.is_over() {
                    return Ok(());
                }
                for &number in &missing {
                    let server = SERVERS[number as usize % SERVERS.len()];
                    // While the relay is not there, no route leads anywhere.
                    let _ = socket.send_to(&self.write(spoke as u32, number), (server, PORT));
                }
                self.receive(spoke as u32, socket, &mut missing);
            }
            self.completed[spoke].fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE * self.completed.len() as u32);
        }
        Ok(())
    }

    /// Takes what comes back, until nothing is missing, or for a while.
    fn receive(&self, spoke: u32, socket: &UdpSocket, missing: &mut BTreeSet<u32>) {
        let end = Instant::now() + AGAIN;
        let mut room = [0; 2 * DATAGRAM_BYTES];
        while !missing.is_empty() && Instant::now() < end && !self.is_over() {
            let Ok(len) = socket.recv(&mut room) else { continue };
            let Some((of, number)) = self.read(&room[..len]) else { continue };
            missing.remove(&number);
            self.altered.fetch_add(u64::from(of != spoke), Ordering::Relaxed);
        }
    }

    fn write(&self, spoke: u32, number: u32) -> Vec<u8> {
        let len = DATAGRAM_BYTES - NUMBERS_BYTES;
        let at = (u64::from(spoke) * 10_007 + u64::from(number) * 331) as usize;
        let at = at % (self.text.len() - len);
        [&spoke.to_be_bytes()[..], &number.to_be_bytes(), &self.text[at..at + len]].concat()
    }

    /// Returns the numbers of a datagram, if it is what was sent.
    fn read(&self, datagram: &[u8]) -> Option<(u32, u32)> {
        let u32_at = |at| Some(u32::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
        let numbers = u32_at(0).zip(u32_at(4));
        let same = numbers.filter(|&(spoke, number)| self.write(spoke, number) == datagram);
        if same.is_none() {
            self.altered.fetch_add(1, Ordering::Relaxed);
        }
        same
    }
}
