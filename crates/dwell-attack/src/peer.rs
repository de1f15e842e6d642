//! A peer of the hub that holds its keys, on the attacker's host.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::Host;
use dwell_relay::config::Security;
use dwell_relay::trust::TestPeer;
use dwell_wire::{
    ContextBody, ContextRecord, Control, Record, Records, StartBase, reconstruct_number,
};

use crate::context::{now, random, unix_ns};
use crate::hostile;

/// The hub must answer within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far the hub has come with one of its contexts towards a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// The generation of the latest record, its low bits.
    pub(crate) generation: u8,
    /// When that began.
    pub(crate) began_at: Instant,
    /// One more than the highest number.
    pub(crate) next: u64,
    /// The bytes that went through, by the lengths that records declare.
    pub(crate) offset: u64,
    /// Generations, and of these the ones that began from nothing.
    pub(crate) generations: u64,
    pub(crate) cold: u64,
}

/// A peer and its socket.
#[derive(Debug)]
pub(crate) struct Peer {
    peer: TestPeer,
    socket: UdpSocket,
    /// Bytes of all datagrams that came from the hub, without headers.
    pub(crate) received_bytes: u64,
    /// The number of datagrams received.
    pub(crate) received: u64,
    /// Of those with data: the highest number.
    pub(crate) highest: u64,
    /// When that came.
    pub(crate) highest_at_ns: u64,
    /// The hub's contexts, by their numbers: only of a peer that offers some.
    pub(crate) contexts: BTreeMap<u8, Came>,
}

impl Peer {
    /// A peer that sends from `from` on `host`.
    pub(crate) fn new(
        host: &Host,
        from: SocketAddrV4,
        hub: SocketAddrV4,
        security: &Security,
    ) -> anyhow::Result<Self> {
        let open = || {
            let socket = UdpSocket::bind(from)?;
            socket.connect(SocketAddr::from(hub))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        let socket = host.run(open)?.with_context(|| format!("send from {from}"))?;
        let peer = TestPeer::new(security, &mut random);
        let (received_bytes, received, highest, highest_at_ns) = (0, 0, 0, 0);
        let contexts = BTreeMap::new();
        Ok(Self { peer, socket, received_bytes, received, highest, highest_at_ns, contexts })
    }

    /// Waits until there is a session.
    pub(crate) fn connect(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.peer.has_session() {
            ensure!(Instant::now() < end, "the hub does not take the peer");
            self.turn();
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes what came, answers what must be answered, and asks for a session if there is none.
    pub(crate) fn turn(&mut self) {
        let mut datagram = [0; 2048];
        while let Ok(len) = self.socket.recv(&mut datagram) {
            self.received += 1;
            self.received_bytes += len as u64;
            if datagram[0] & 0x0f < 2 && len >= 6 {
                let low = u64::from(u32::from_be_bytes([
                    datagram[2],
                    datagram[3],
                    datagram[4],
                    datagram[5],
                ]));
                if low > self.highest {
                    (self.highest, self.highest_at_ns) = (low, now().as_ns());
                }
            }
            let received = self.peer.receive(now(), &mut datagram[..len]);
            if let Some(reply) = received.reply {
                self.put(&reply);
            }
            if let Some(body) = received.body {
                self.answer(&body);
            }
        }
        if !self.peer.has_session()
            && let Some(asking) = self.peer.ask(now(), unix_ns())
        {
            self.begin_session(&asking);
        }
    }

    /// Asks for a session as if it were this time in UTC, whether or not there is one.
    pub(crate) fn ask_at(&mut self, unix_ns: u64) {
        self.peer.renew();
        if let Some(asking) = self.peer.ask(now(), unix_ns) {
            self.begin_session(&asking);
        }
    }

    /// Returns true if there is a session.
    pub(crate) fn is_connected(&self) -> bool {
        self.peer.has_session()
    }

    fn begin_session(&mut self, asking: &[u8]) {
        // Numbers and counts begin again with it.
        (self.highest, self.received, self.received_bytes) = (0, 0, self.received_bytes);
        self.contexts.clear();
        self.put(asking);
    }

    fn answer(&mut self, body: &[u8]) {
        for record in Records::new(body) {
            match record {
                Ok(Record::Control(Control::Probe { sender_time_ns, id, .. })) => {
                    let receiver_time_ns = now().as_ns();
                    let reply = Control::ProbeReply { sender_time_ns, id, receiver_time_ns };
                    self.send(&hostile::control(&reply));
                }
                Ok(Record::Context(record)) => self.note(&record),
                _ => {}
            }
        }
    }

    /// Notes a record of a context, without decoding it.
    fn note(&mut self, record: &ContextRecord<'_>) {
        let it = self.contexts.entry(record.context).or_insert_with(|| Came {
            generation: record.generation,
            began_at: Instant::now(),
            next: 1,
            offset: 0,
            generations: 0,
            cold: 0,
        });
        let number = reconstruct_number(it.next, record.number);
        it.next = it.next.max(number.saturating_add(1));
        if let ContextBody::Batch { start, original_len, .. } = record.body {
            if let Some(start) = start {
                (it.generation, it.began_at) = (record.generation, Instant::now());
                it.generations += 1;
                if let StartBase::Ring { offset, len } = start.base {
                    it.offset = offset;
                    it.cold += u64::from(len == 0);
                }
            }
            it.offset += u64::from(original_len);
        }
    }

    /// Seals and sends a body; returns the datagram's length, or zero without a session.
    pub(crate) fn send(&mut self, body: &[u8]) -> usize {
        let Some(datagram) = self.peer.seal(body) else { return 0 };
        self.put(&datagram);
        datagram.len()
    }

    /// Uses up a number without sending anything under it: the hub misses a datagram then.
    pub(crate) fn skip(&mut self) {
        let _ = self.peer.seal(&[]);
    }

    fn put(&self, datagram: &[u8]) {
        // A full queue loses it, as on any path.
        let _ = self.socket.send(datagram);
    }

    /// The peer itself.
    pub(crate) fn end(&mut self) -> &mut TestPeer {
        &mut self.peer
    }
}

/// Waits until the next one is due, at this many a second.
#[derive(Debug)]
pub(crate) struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    pub(crate) fn new(per_second: f64) -> Self {
        Self { next: Instant::now(), every: Duration::from_secs_f64(1.0 / per_second) }
    }

    /// Returns the number due now; at most `most`, since what was missed long ago is not made up
    /// for.
    pub(crate) fn due(&mut self, most: u32) -> u32 {
        let now = Instant::now();
        let mut due = 0;
        while self.next <= now && due < most {
            self.next += self.every;
            due += 1;
        }
        if due == most && now.duration_since(self.next) > Duration::from_millis(100) {
            self.next = now;
        }
        due
    }

    /// Sleeps until something is due, but not for longer than `most`.
    pub(crate) fn wait(&self, most: Duration) {
        thread::sleep(self.next.saturating_duration_since(Instant::now()).min(most));
    }
}
