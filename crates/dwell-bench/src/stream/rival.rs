//! A stream that takes a share of the link from whoever is measured.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_base::time::duration_ns;
use dwell_lab::lab::LabError;
use socket2::SockRef;

use super::super::bed::Bed;

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9001);
/// The period in which it sends.
const TICK: Duration = Duration::from_millis(5);

/// Less of what it should send than this, and it was no rival.
const SHARE_MIN: f64 = 0.8;
/// The time in which a connection must be made.
const PATIENCE: Duration = Duration::from_secs(10);

/// Plain TCP at a steady rate until it is dropped.
#[derive(Debug)]
pub(super) struct Rival {
    stop: Arc<AtomicBool>,
    sent: Option<JoinHandle<Result<io::Result<Sent>, LabError>>>,
    received: Option<JoinHandle<Result<io::Result<()>, LabError>>>,
}

/// The bytes that it has sent, and those that it should have.
#[derive(Clone, Copy, Debug)]
struct Sent {
    bytes: u64,
    due: u64,
}

impl Rival {
    pub(super) fn start(bed: &Bed<'_>, rate: Rate) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let address = SocketAddr::from(ADDRESS);
        let listener = bed.pair.egress.run(|| TcpListener::bind(address))?;
        let listener = listener.context("the competing stream can't listen")?;
        // The kernel takes it in, before anybody accepts.
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let far = bed.pair.ingress.run(connect)?.context("the competing stream can't connect")?;
        let (near, _) = listener.accept().context("the competing stream can't be accepted")?;
        let (sending, receiving) = (Arc::clone(&stop), Arc::clone(&stop));
        let sent = bed.pair.egress.spawn_thread(move || send(near, rate, &sending))?;
        let mut this = Self { stop, sent: Some(sent), received: None };
        this.received = Some(bed.pair.ingress.spawn_thread(move || receive(far, &receiving))?);
        Ok(this)
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it has failed, or has hardly taken its share of the link.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(sent) = self.sent.take() else { return Ok(()) };
        let sent = sent.join().map_err(|_| anyhow::anyhow!("the competing stream panicked"))??;
        sent.context("the competing stream failed")?.check()
    }
}

impl Sent {
    fn check(self) -> anyhow::Result<()> {
        let share = self.bytes as f64 / self.due.max(1) as f64;
        ensure!(
            share >= SHARE_MIN,
            "the competing stream has sent only {:.0} % of what it should have",
            100.0 * share
        );
        Ok(())
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // What became of them is of no interest any more.
        if let Some(sent) = self.sent.take() {
            let _ = sent.join();
        }
        if let Some(received) = self.received.take() {
            let _ = received.join();
        }
    }
}

fn send(mut stream: TcpStream, rate: Rate, stop: &AtomicBool) -> io::Result<Sent> {
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let (begin, mut bytes) = (Instant::now(), 0);
    let due = || rate.bytes_in_ns(duration_ns(begin.elapsed()));
    let noise = vec![0xa5; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let left = due().saturating_sub(bytes);
        if left == 0 {
            thread::sleep(TICK);
            continue;
        }
        match stream.write(&noise[..noise.len().min(left as usize)]) {
            Ok(len) => bytes += len as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // At the end the receiver just goes.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Sent { bytes, due: due() })
}

fn receive(mut stream: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    // Nothing of what is on its way when it is over shall disturb the next run.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let mut piece = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hardly_sends_is_no_rival() {
        assert!(Sent { bytes: 81, due: 100 }.check().is_ok());
        assert!(Sent { bytes: 0, due: 0 }.check().is_err());
        let error = Sent { bytes: 50, due: 100 }.check().unwrap_err().to_string();
        assert!(error.contains("only 50 %"), "{error}");
    }
}
