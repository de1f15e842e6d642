//! A stream that takes a share of the link from whoever is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::Rate;
use dwell_testkit::lab::LabError;

use super::super::bed::Bed;

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9001);
/// How often it sends.
const TICK: Duration = Duration::from_millis(5);

/// Plain TCP at a steady rate until it is dropped.
#[derive(Debug)]
pub(super) struct Rival {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<std::io::Result<()>, LabError>>>,
}

impl Rival {
    pub(super) fn start(bed: &Bed<'_>, rate: Rate) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let address = SocketAddr::from(ADDRESS);
        let listener = bed.pair.egress.run(|| TcpListener::bind(address))?;
        let listener = listener.context("the competing stream can't listen")?;
        let (sending, receiving) = (Arc::clone(&stop), Arc::clone(&stop));
        let send = bed.pair.egress.spawn_thread(move || send(&listener, rate, &sending))?;
        let receive = bed.pair.ingress.spawn_thread(move || receive(address, &receiving))?;
        Ok(Self { stop, threads: vec![send, receive] })
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What became of it is of no interest: it has no result.
            let _ = thread.join();
        }
    }
}

fn send(listener: &TcpListener, rate: Rate, stop: &AtomicBool) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let (begin, mut sent) = (Instant::now(), 0);
    let noise = vec![0xa5; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let due = rate.bytes_in_ns(begin.elapsed().as_nanos() as u64);
        if due <= sent {
            thread::sleep(TICK);
            continue;
        }
        let len = noise.len().min((due - sent) as usize);
        match stream.write(&noise[..len]) {
            Ok(len) => sent += len as u64,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(address: SocketAddr, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut piece = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
