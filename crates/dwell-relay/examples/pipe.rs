//! A bare tunnel, TUN → UDP → TUN without framing, policy or codec: the ceiling of what the
//! relay can carry on this machine, and of nothing else.
//!
//! ```text
//! pipe NAME ADDRESS/PREFIX LOCAL:PORT PEER:PORT [MTU] [plain]
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_relay::io::clock::Clock;
use dwell_relay::io::poller::{Interest, Poller, Token, Waker};
use dwell_relay::io::signal::{Signal, Signals};
use dwell_relay::io::tun::{PacketBatch, Tun, TunOptions, TunWriteBatch};
use dwell_relay::io::udp::{RecvBatch, SEGMENTS_MAX, SendOutcome, UdpPort};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, address, local, peer, rest @ ..] = &args[..] else {
        return Err("usage: pipe NAME ADDRESS/PREFIX LOCAL:PORT PEER:PORT [MTU] [plain]".into());
    };
    let mtu = rest.iter().find_map(|arg| arg.parse().ok()).unwrap_or(1420);
    let offload = !rest.iter().any(|arg| arg == "plain");
    let options =
        TunOptions { name: name.clone(), mtu, addresses: vec![address.parse()?], offload };
    let tun = Tun::open(&options)?;
    let port = UdpPort::connect(local.parse()?, peer.parse()?, None, Some(4 << 20))?;
    println!("{}: offload {}, path MTU {}", tun.name(), tun.offload(), port.path_mtu()?);

    let (stop, wakers) = (AtomicBool::new(false), [Waker::new()?, Waker::new()?]);
    std::thread::scope(|scope| {
        let out = scope.spawn(|| outward(&tun, &port, mtu, &stop, &wakers[0]));
        let back = scope.spawn(|| inward(&tun, &port, &stop, &wakers[1]));
        wait_for_stop()?;
        stop.store(true, Ordering::Relaxed);
        wakers.iter().for_each(Waker::wake);
        out.join().expect("no panic")?;
        back.join().expect("no panic")
    })
}

fn wait_for_stop() -> Outcome {
    let mut signals = Signals::new()?;
    let (mut poller, mut events) = (Poller::new()?, Vec::new());
    poller.register(&signals, Token(0), Interest::Read)?;
    while !signals.drain().any(|signal| signal == Signal::Stop) {
        poller.wait(None, Clock::now(), &mut events)?;
    }
    Ok(())
}

/// Datagrams of one length (the last may be shorter), to be sent as one.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    segment: usize,
    closed: bool,
}

impl Gathered {
    fn takes(&self, len: usize) -> bool {
        self.bytes.is_empty()
            || !self.closed
                && len <= self.segment
                && self.bytes.len() + len <= 65_000
                && self.bytes.len() < SEGMENTS_MAX * self.segment
    }

    fn add(&mut self, packet: &[u8]) {
        if self.bytes.is_empty() {
            (self.segment, self.closed) = (packet.len(), false);
        }
        self.closed = packet.len() < self.segment;
        self.bytes.extend_from_slice(packet);
    }
}

fn outward(tun: &Tun, port: &UdpPort, mtu: u16, stop: &AtomicBool, waker: &Waker) -> Outcome {
    let (mut poller, mut events) = (Poller::new()?, Vec::new());
    poller.register(tun, Token(0), Interest::Read)?;
    poller.register(waker, Token(1), Interest::Read)?;
    poller.register(port, Token(2), Interest::Idle)?;
    let mut batch = PacketBatch::new(0, mtu);
    let mut gathered = Gathered { bytes: Vec::with_capacity(1 << 16), ..Gathered::default() };
    let (mut packets, mut bytes, mut sends, mut reads) = (0u64, 0u64, 0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        poller.wait(None, Clock::now(), &mut events)?;
        loop {
            let count = tun.recv(&mut batch)?;
            reads += 1;
            packets += count as u64;
            for packet in batch.packets() {
                bytes += packet.len() as u64;
                if !gathered.takes(packet.len()) {
                    sends += 1;
                    ship(port, &mut gathered, &mut poller)?;
                }
                gathered.add(packet);
            }
            if count == 0 {
                break;
            }
        }
        sends += 1;
        ship(port, &mut gathered, &mut poller)?;
    }
    let cpu_s = Clock::thread_cpu_ns() as f64 / 1e9;
    println!(
        "out: {packets} packets, {bytes} bytes, {reads} reads, {sends} sends, {} skipped, {cpu_s:.2} s CPU, {:.2} s/GB",
        batch.skipped(),
        cpu_s / (bytes as f64 / 1e9)
    );
    Ok(())
}

fn ship(port: &UdpPort, gathered: &mut Gathered, poller: &mut Poller) -> Outcome {
    let mut sent = 0;
    let mut events = Vec::new();
    while sent < gathered.bytes.len() {
        match port.send(&gathered.bytes[sent..], Some(gathered.segment)) {
            SendOutcome::WouldBlock { accepted } => {
                sent += accepted;
                poller.set_interest(port, Token(2), Interest::Write)?;
                while !events
                    .iter()
                    .any(|event: &dwell_relay::io::poller::Readiness| event.token == Token(2))
                {
                    poller.wait(None, Clock::now(), &mut events)?;
                }
                poller.set_interest(port, Token(2), Interest::Idle)?;
                events.clear();
            }
            SendOutcome::Fatal(error) => return Err(error.into()),
            SendOutcome::Sent | SendOutcome::TooBig { .. } | SendOutcome::Refused(_) => break,
        }
    }
    gathered.bytes.clear();
    Ok(())
}

fn inward(tun: &Tun, port: &UdpPort, stop: &AtomicBool, waker: &Waker) -> Outcome {
    let (mut poller, mut events) = (Poller::new()?, Vec::new());
    poller.register(port, Token(0), Interest::Read)?;
    poller.register(waker, Token(1), Interest::Read)?;
    let (mut received, mut batch) = (RecvBatch::new(8), TunWriteBatch::new());
    let (mut packets, mut bytes, mut writes, mut refused) = (0u64, 0u64, 0u64, 0u64);
    let mut flush = |batch: &mut TunWriteBatch| -> Outcome {
        let flushed = batch.flush(tun)?;
        packets += flushed.written as u64;
        writes += flushed.writes as u64;
        refused += flushed.refused as u64;
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        poller.wait(None, Clock::now(), &mut events)?;
        while port.recv(&mut received)? > 0 {
            for datagram in received.datagrams().map(|received| received.bytes) {
                bytes += datagram.len() as u64;
                if !batch.push(datagram) {
                    flush(&mut batch)?;
                    let _ = batch.push(datagram);
                }
            }
            flush(&mut batch)?;
        }
    }
    let cpu_s = Clock::thread_cpu_ns() as f64 / 1e9;
    println!(
        "in: {packets} packets, {bytes} bytes, {writes} writes, {refused} refused, {cpu_s:.2} s CPU, {:.2} s/GB",
        cpu_s / (bytes as f64 / 1e9)
    );
    Ok(())
}
