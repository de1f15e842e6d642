//! Many flows of small datagrams from the hub to its spokes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::corpus;
use dwell_lab::lab::LabError;

use crate::hub::star::{Hosts, in_tunnel};

const PORT: u16 = 9_000;
const DATAGRAM_BYTES: usize = 200;
const TICK: Duration = Duration::from_millis(10);

/// The flows, until they are finished.
pub(super) struct Flows {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<Result<io::Result<()>, LabError>>,
    /// Nobody reads them: what is too much is dropped there.
    _sinks: Vec<UdpSocket>,
}

impl Flows {
    /// Starts so many flows, in turns to all spokes, each of which sends a datagram every so often.
    pub(super) fn start(hosts: &Hosts, flows: u32, every: Duration) -> anyhow::Result<Self> {
        let addresses: Vec<_> = (0..hosts.spokes.len()).map(|n| in_tunnel(n, 0)).collect();
        let mut sinks = Vec::new();
        for (host, &address) in hosts.spokes.iter().zip(&addresses) {
            sinks.push(host.run(|| UdpSocket::bind((address, PORT)))?.context("can't receive")?);
        }
        // Each of these has a flow to each spoke.
        let sources = (flows as usize).div_ceil(addresses.len());
        let source = |_| hosts.hub.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let sources: Result<io::Result<Vec<_>>, _> = (0..sources)
            .map(source)
            .collect::<Result<Vec<_>, _>>()
            .map(|all| all.into_iter().collect());
        let sources = sources?.context("no socket is left")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let send = move || send(&sources, &addresses, (flows as usize, every), &ends);
        let sender = hosts.hub.spawn_thread(send)?;
        Ok(Self { is_over, sender, _sinks: sinks })
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        Ok(sent??)
    }
}

/// Sends a datagram of each flow in turn, as many in each tick as makes one of each every so often.
fn send(
    sources: &[UdpSocket],
    to: &[Ipv4Addr],
    (flows, every): (usize, Duration),
    is_over: &AtomicBool,
) -> io::Result<()> {
    let text = corpus::text(DATAGRAM_BYTES * 1_000, 1);
    let mut pieces = text.chunks_exact(DATAGRAM_BYTES).cycle();
    let (begun, mut sent) = (Instant::now(), 0_u64);
    while !is_over.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_nanos() * flows as u128 / every.as_nanos().max(1);
        while u128::from(sent) < due {
            let flow = (sent % flows as u64) as usize;
            let (source, address) = (&sources[flow / to.len()], to[flow % to.len()]);
            let Some(piece) = pieces.next() else { break };
            match source.send_to(piece, SocketAddr::from((address, PORT))) {
                Ok(_) => {}
                // A full queue is no failure of the run.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            sent += 1;
        }
        thread::sleep(TICK);
    }
    Ok(())
}
