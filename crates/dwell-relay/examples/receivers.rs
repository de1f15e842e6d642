//! What more threads bring where datagrams come in: one thread that does all, one that reads and others that open, or a
//! socket for each thread.
//!
//!     cargo run --release -p dwell-relay --example receivers
//!
//! In a network namespace of its own datagrams are put into the sockets' buffers while nobody reads. Then it is
//! measured how long it takes until all are opened (AES-256-GCM) and their packets written to a TUN interface: by the relay's
//! own parts, without its accounts and contexts. So the processors have nothing else to do meanwhile. Needs root.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dwell_relay::io::tun::TunWriteBatch;
use dwell_relay::io::tun::{Tun, TunOptions};
use dwell_relay::io::udp::{RecvBatch, UdpPort};

const USAGE: &str = "\
Measures what more threads bring where datagrams come in. Needs root.

Usage: receivers [--rounds N] [--threads N]

  --rounds N   rounds of each way, in turns (5)
  --threads N  threads that open, 1 to 8 (2)

Exit codes: 0 all is well, 1 something failed, 2 wrong arguments.";

/// Bytes of packets, and how many are put into the buffers.
const SIZES: [(usize, usize); 2] = [(1_400, 40_000), (100, 60_000)];
const BUFFER_BYTES: usize = 256 << 20;
const PORT: u16 = 7733;
/// The flows of a burst: as many senders.
const SENDERS: usize = 16;
/// What is said to the process inside the namespace.
const INSIDE: &str = "inside-the-namespace";
/// Headers of IPv4 and TCP.
const HEADERS_LEN: usize = 40;
/// It is looked so often whether all is done.
const LOOK: Duration = Duration::from_micros(50);
const PATIENCE: Duration = Duration::from_secs(20);

/// Who reads, opens and writes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One thread does all.
    Alone,
    /// One reads, so many open and write.
    Handed(usize),
    /// So many have a socket each.
    Sockets(usize),
}

fn main() -> ExitCode {
    let (mut rounds, mut threads, mut is_inside) = (5, 2, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut number = |to: &mut usize, most| {
            let value = arguments.next().and_then(|it| it.parse().ok());
            value.filter(|it| (1..=most).contains(it)).map(|it| *to = it).is_some()
        };
        let is_good = match flag.as_str() {
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            "--rounds" => number(&mut rounds, 1_000),
            "--threads" => number(&mut threads, 8),
            INSIDE => {
                is_inside = true;
                true
            }
            _ => false,
        };
        if !is_good {
            eprintln!("receivers: {flag} is no option, or its value is wrong\n\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    let done = if is_inside { measure(rounds, threads) } else { go_inside(rounds, threads) };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("receivers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program in a network namespace that ends with it.
fn go_inside(rounds: usize, threads: usize) -> Result<ExitCode, Box<dyn Error>> {
    let numbers = [rounds.to_string(), threads.to_string()];
    let status = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe()?)
        .args([INSIDE, "--rounds", &numbers[0], "--threads", &numbers[1]])
        .status()
        .map_err(|error| format!("can't run \"unshare\" (package util-linux): {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(rounds: usize, threads: usize) -> Result<ExitCode, Box<dyn Error>> {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        return Err("can't take the loopback interface up: run this as root".into());
    }
    let ways = [Way::Alone, Way::Handed(threads), Way::Sockets(threads)];
    println!(
        "{:>6}  {:<28} {:>9} {:>18}  {:>6}",
        "bytes", "way", "1000/s", "least..most", "/first"
    );
    for (len, count) in SIZES {
        let mut speeds = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, speeds) in ways.iter().zip(&mut speeds) {
                speeds.push(drain(*way, len, count)?);
            }
        }
        let mut first = None;
        for (way, speeds) in ways.iter().zip(&mut speeds) {
            speeds.sort_by(f64::total_cmp);
            let median = speeds[speeds.len() / 2];
            let first = *first.get_or_insert(median);
            let span = format!("{:.0}..{:.0}", speeds[0], speeds[speeds.len() - 1]);
            println!(
                "{len:>6}  {:<28} {median:>9.0} {span:>18}  {:>6.2}",
                way.name(),
                median / first
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Alone => "one thread".to_owned(),
            Self::Handed(n) => format!("one reads, {n} open"),
            Self::Sockets(n) => format!("{n} threads, a socket each"),
        }
    }

    fn sockets(self) -> usize {
        if let Self::Sockets(n) = self { n } else { 1 }
    }

    fn threads(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Handed(n) | Self::Sockets(n) => n,
        }
    }
}

/// Returns the thousands of datagrams in a second.
fn drain(way: Way, len: usize, count: usize) -> Result<f64, Box<dyn Error>> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let bind = |_| UdpPort::bind(at, None, Some(BUFFER_BYTES));
    let sockets: Vec<_> = (0..way.sockets()).map(bind).collect::<Result<_, _>>()?;
    let tuns: Vec<_> = (0..way.threads()).map(open_tun).collect::<Result<_, _>>()?;
    fill(at, len, count)?;
    let (opened, start) = (AtomicUsize::new(0), Barrier::new(way.threads() + 1));
    let until = Instant::now() + PATIENCE;
    let is_over = || opened.load(Ordering::Relaxed) == count || Instant::now() > until;
    let seconds = thread::scope(|scope| {
        let mut work = Vec::new();
        for (n, tun) in tuns.iter().enumerate() {
            let mut opener = Opener::new(tun, &opened);
            let (start, is_over, sockets) = (&start, &is_over, &sockets);
            match way {
                Way::Alone | Way::Sockets(_) => {
                    scope.spawn(move || {
                        let mut batch = RecvBatch::new(RecvBatch::SLOTS_MAX);
                        start.wait();
                        while !is_over() {
                            if sockets[n].recv(&mut batch).is_ok_and(|count| count > 0) {
                                opener.open(&mut batch);
                            }
                        }
                    });
                }
                Way::Handed(_) => {
                    let (give, take) = sync_channel::<RecvBatch>(8);
                    let (give_back, take_back) = sync_channel(8);
                    (0..4)
                        .try_for_each(|_| give_back.send(RecvBatch::new(RecvBatch::SLOTS_MAX)))?;
                    work.push((give, take_back));
                    scope.spawn(move || {
                        start.wait();
                        while let Ok(mut batch) = take.recv() {
                            opener.open(&mut batch);
                            if give_back.send(batch).is_err() {
                                break;
                            }
                        }
                    });
                }
            }
        }
        start.wait();
        let began = Instant::now();
        if !work.is_empty() {
            hand_over(&sockets[0], &work, is_over);
        }
        while !is_over() {
            thread::sleep(LOOK);
        }
        drop(work);
        Ok::<_, Box<dyn Error>>(began.elapsed().as_secs_f64())
    })?;
    let opened = opened.into_inner();
    if opened < count {
        return Err(
            format!("{opened} of {count} datagrams came: is the receive buffer limited?").into()
        );
    }
    Ok(count as f64 / seconds / 1e3)
}

/// Reads, and hands what came to each in turn.
fn hand_over(
    socket: &UdpPort,
    to: &[(SyncSender<RecvBatch>, Receiver<RecvBatch>)],
    is_over: impl Fn() -> bool,
) {
    for (give, take_back) in to.iter().cycle() {
        let Ok(mut batch) = take_back.recv() else { return };
        loop {
            if is_over() {
                return;
            }
            if socket.recv(&mut batch).is_ok_and(|count| count > 0) {
                break;
            }
        }
        if give.send(batch).is_err() {
            return;
        }
    }
}

/// What one thread opens and writes with.
struct Opener<'a> {
    key: LessSafeKey,
    tun: &'a Tun,
    batch: TunWriteBatch,
    opened: &'a AtomicUsize,
}

impl<'a> Opener<'a> {
    fn new(tun: &'a Tun, opened: &'a AtomicUsize) -> Self {
        Self { key: key(), tun, batch: TunWriteBatch::new(), opened }
    }

    fn open(&mut self, batch: &mut RecvBatch) {
        let mut count = 0;
        for datagram in batch.datagrams() {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let opened = self.key.open_in_place(nonce, Aad::empty(), datagram.bytes);
            let Ok(packet) = opened else { continue };
            if !self.batch.push(packet) {
                self.write();
                let _ = self.batch.push(packet);
            }
            count += 1;
        }
        self.write();
        self.opened.fetch_add(count, Ordering::Relaxed);
    }

    /// What the kernel makes of the packets is nobody's concern here.
    fn write(&mut self) {
        let _ = self.batch.flush(self.tun);
    }
}

fn key() -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("32 bytes are a key"))
}

fn open_tun(n: usize) -> Result<Tun, Box<dyn Error>> {
    let address = format!("10.99.{n}.1/24").parse()?;
    let name = format!("drain{n}");
    Ok(Tun::open(&TunOptions { name, mtu: 1_500, addresses: vec![address], offload: true })?)
}

/// Puts sealed packets of TCP into the sockets' buffers, by several senders in turns; each is of a flow of its sender, to an
/// address for which there is no host.
fn fill(to: SocketAddr, len: usize, count: usize) -> Result<(), Box<dyn Error>> {
    let (key, senders) = (key(), senders(to)?);
    for n in 0..count {
        let (sender, turn) = (n % SENDERS, n / SENDERS);
        let mut datagram = packet(len, sender, turn);
        // One key, one number: it is the work that counts here, not the secret.
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut datagram)
            .map_err(|_| "a packet can't be sealed")?;
        senders[sender].send(&datagram)?;
    }
    Ok(())
}

fn senders(to: SocketAddr) -> Result<Vec<UdpSocket>, Box<dyn Error>> {
    let sender = |_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(to)?;
        Ok(socket)
    };
    (0..SENDERS).map(sender).collect()
}

fn packet(len: usize, sender: usize, turn: usize) -> Vec<u8> {
    let mut packet = vec![0x61; len];
    packet[..HEADERS_LEN].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, 6);
    packet[12..16].copy_from_slice(&[10, 99, 0, 2]);
    packet[16..20].copy_from_slice(&[10, 99, 200, sender as u8]);
    let sum: u32 =
        packet[..20].chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    packet[20..24].copy_from_slice(&[0x10, sender as u8, 0, 80]);
    let sequence = (turn * (len - HEADERS_LEN)) as u32;
    packet[24..28].copy_from_slice(&sequence.to_be_bytes());
    (packet[32], packet[33]) = (0x50, 0x10);
    packet
}
