//! A sender and a receiver over a path that loses, reorders and doubles.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dwell_base::Rng;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
/// A transfer that takes more events than this hangs.
const EVENTS_MAX: u64 = 200_000;

#[derive(Clone, Copy, Debug)]
struct Path {
    loss: f64,
    doubling: f64,
    /// The largest delay beyond 10 ms that a packet takes.
    jitter_ns: u64,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Timers,
    Data { seq: u64, sent_ns: u64 },
    Ack(usize),
}

/// One transfer and the network that it goes through.
struct Transfer {
    path: Path,
    rng: Rng,
    config: TcpConfig,
    sender: Sender,
    receiver: Receiver,
    agenda: BinaryHeap<Reverse<(u64, What)>>,
    acks: Vec<Ack>,
    sent: Vec<bool>,
}

impl Transfer {
    fn new(config: TcpConfig, path: Path) -> Self {
        Self {
            path,
            rng: Rng::from_seed(path.seed),
            config,
            sender: Sender::new(&config).unwrap(),
            receiver: Receiver::new(&config).unwrap(),
            agenda: BinaryHeap::new(),
            acks: Vec::new(),
            sent: vec![false; config.packets.unwrap() as usize],
        }
    }

    /// Runs until all is acknowledged; returns how long that takes.
    fn run(&mut self) -> u64 {
        let mut now_ns = 0;
        self.sender.start(now_ns);
        for _ in 0..EVENTS_MAX {
            self.drain(now_ns);
            if self.sender.acked() == self.config.packets.unwrap() {
                assert_eq!(self.receiver.delivered(), self.sender.acked());
                assert_eq!(self.sender.deadline(), None);
                assert_eq!(
                    self.sender.counts().segments - self.sender.counts().retransmissions,
                    self.sender.acked()
                );
                return now_ns;
            }
            let what;
            (now_ns, what) = self.next_event();
            self.happen(now_ns, what);
        }
        panic!("the transfer hangs at {} of {:?}", self.sender.acked(), self.config.packets);
    }

    fn next_event(&mut self) -> (u64, What) {
        let deadline_ns = self.sender.deadline().expect("there is something to wait for");
        let deadline_ns = deadline_ns.min(self.receiver.deadline().unwrap_or(u64::MAX));
        match self.agenda.peek() {
            Some(&Reverse((at_ns, _))) if at_ns <= deadline_ns => self.agenda.pop().unwrap().0,
            _ => (deadline_ns, What::Timers),
        }
    }

    fn happen(&mut self, now_ns: u64, what: What) {
        let answer = match what {
            What::Timers => {
                self.sender.on_timer(now_ns);
                self.receiver.on_timer(now_ns)
            }
            What::Data { seq, sent_ns } => self.receiver.on_segment(now_ns, seq, sent_ns),
            What::Ack(index) => {
                let acked = self.sender.acked();
                self.sender.on_ack(now_ns, &self.acks[index]);
                assert!(self.sender.acked() >= acked);
                None
            }
        };
        if let Some(ack) = answer {
            self.check_ack(&ack);
            self.acks.push(ack);
            self.carry(now_ns, What::Ack(self.acks.len() - 1));
        }
    }

    /// Blocks lie beyond the first gap, have arrived, and don't touch each other.
    fn check_ack(&self, ack: &Ack) {
        let mut blocks: Vec<_> = ack.blocks().collect();
        assert_eq!(ack.bytes, self.config.ack_bytes + SACK_BLOCK_BYTES * blocks.len() as u32);
        blocks.sort_by_key(|block| block.start);
        let mut above = ack.cumulative;
        for block in blocks {
            assert!(block.start > above && block.end > block.start, "{ack:?}");
            assert!(self.sent[block.start as usize..block.end as usize].iter().all(|&s| s));
            above = block.end;
        }
    }

    fn drain(&mut self, now_ns: u64) {
        while let Some(segment) = self.sender.next_segment(now_ns) {
            let window = u64::from(self.config.window_packets);
            if segment.bytes == self.config.header_bytes && segment.seq < self.sender.acked() {
                // It asks whether there is room again.
                assert!(self.config.reading.is_some());
                self.carry(now_ns, What::Data { seq: segment.seq, sent_ns: now_ns });
                continue;
            }
            assert!(segment.seq >= self.sender.acked(), "{segment:?} is acknowledged");
            assert!(segment.seq < self.sender.acked() + window, "{segment:?} beyond the window");
            let before = std::mem::replace(&mut self.sent[segment.seq as usize], true);
            assert_eq!(segment.retransmission, before, "{segment:?}");
            assert!(segment.seq == 0 || self.sent[segment.seq as usize - 1]);
            self.carry(now_ns, What::Data { seq: segment.seq, sent_ns: now_ns });
        }
    }

    fn carry(&mut self, now_ns: u64, what: What) {
        let copies = 1 + u64::from(self.rng.chance(self.path.doubling));
        for _ in 0..copies {
            if !self.rng.chance(self.path.loss) {
                let at_ns = now_ns + 10 * MS + self.rng.below(self.path.jitter_ns + 1);
                self.agenda.push(Reverse((at_ns, what)));
            }
        }
    }
}

fn flavours() -> impl Strategy<Value = Flavour> {
    prop::sample::select(vec![Flavour::Sack1, Flavour::NewReno, Flavour::Cubic, Flavour::Bbr])
}

/// Implementations that a flavour may be like.
fn likes() -> impl Strategy<Value = Like> {
    prop::sample::select(vec![Like::Rfc, Like::Linux, Like::Ns3])
}

fn config_of(flavour: Flavour, like: Like) -> TcpConfig {
    let like = if flavour == Flavour::Sack1 { Like::Rfc } else { like };
    TcpConfig { like, ..TcpConfig::of(flavour) }
}

proptest! {
    #[test]
    fn everything_is_delivered_in_the_end(
        flavour in flavours(),
        like in likes(),
        packets in 1u64..400,
        window_packets in 1u32..200,
        threshold in prop::option::of(1u32..50),
        syn in any::<bool>(),
        limited_transmit in any::<bool>(),
        delayed_ack_ns in prop::option::of(1..200 * MS),
        reading in prop::option::of((1..20 * MS, 1..200 * MS)),
        loss in 0.0..0.3f64,
        doubling in 0.0..0.3f64,
        jitter_ns in 0..20 * MS,
        seed in any::<u64>(),
    ) {
        let config = TcpConfig {
            window_packets,
            packets: Some(packets),
            initial_threshold: threshold,
            syn,
            limited_transmit,
            delayed_ack_ns,
            reading: reading
                .filter(|_| flavour != Flavour::Sack1)
                .map(|(packet_ns, every_ns)| Reading { packet_ns, every_ns, announced_packets: None }),
            ..config_of(flavour, like)
        };
        Transfer::new(config, Path { loss, doubling, jitter_ns, seed }).run();
    }

    #[test]
    fn no_answer_makes_a_sender_panic_or_send_beyond_its_window(
        flavour in flavours(),
        like in likes(),
        acks in prop::collection::vec(
            (0u64..60, prop::collection::vec((0u64..80, 0u64..20), 0..4), 0..500 * MS),
            1..100,
        ),
    ) {
        let config = TcpConfig { window_packets: 20, ..config_of(flavour, like) };
        let mut sender = Sender::new(&config).unwrap();
        sender.start(0);
        let mut now_ns = 0;
        for (cumulative, blocks, pause_ns) in acks {
            while let Some(segment) = sender.next_segment(now_ns) {
                prop_assert!(segment.seq < sender.acked() + 20);
            }
            now_ns += pause_ns;
            sender.on_timer(now_ns);
            let mut ack = Ack::new(cumulative, now_ns / 2, 40);
            blocks.iter().for_each(|&(start, len)| {
                ack.push(SackBlock { start, end: start + len });
            });
            sender.on_ack(now_ns, &ack);
            prop_assert!(sender.window().is_finite() && sender.window() > 0.0);
        }
    }
}

/// Without losses and delays the flavours need the same round trips.
#[test]
fn a_clean_path_takes_slow_start_and_nothing_else() {
    for flavour in [Flavour::Sack1, Flavour::NewReno, Flavour::Cubic] {
        let config =
            TcpConfig { packets: Some(1 + 2 + 4 + 8), initial_window: 2, ..TcpConfig::of(flavour) };
        let path = Path { loss: 0.0, doubling: 0.0, jitter_ns: 0, seed: 1 };
        let mut transfer = Transfer::new(config, path);
        assert_eq!(transfer.run(), 4 * 20 * MS, "{flavour:?}");
        assert_eq!(transfer.sender.counts().retransmissions, 0);
        assert_eq!(transfer.sender.counts().timeouts, 0);
    }
}

#[test]
fn bad_parameters_are_reported() {
    let good = TcpConfig::sack1();
    let error = |config: TcpConfig| Sender::new(&config).unwrap_err();
    assert_eq!(error(TcpConfig { window_packets: 0, ..good }), TcpConfigError::Window);
    assert_eq!(error(TcpConfig { window_packets: WINDOW_MAX + 1, ..good }), TcpConfigError::Window);
    assert_eq!(error(TcpConfig { header_bytes: 0, ..good }), TcpConfigError::HeaderBytes);
    assert_eq!(error(TcpConfig { segment_bytes: 39, ..good }), TcpConfigError::SegmentBytes);
    assert_eq!(error(TcpConfig { initial_window: 0, ..good }), TcpConfigError::InitialWindow);
    assert_eq!(error(TcpConfig { packets: Some(0), ..good }), TcpConfigError::Packets);
    assert_eq!(error(TcpConfig { tick_ns: 0, ..good }), TcpConfigError::Tick);
    assert_eq!(error(TcpConfig { rto_max_ns: 1, ..good }), TcpConfigError::Rto);
    let reading = Some(Reading { packet_ns: 1, every_ns: 1, announced_packets: None });
    assert_eq!(error(TcpConfig { reading, ..good }), TcpConfigError::SlowReader);
    for (packet_ns, announced_packets) in [(0, None), (1, Some(0))] {
        let reading = Some(Reading { packet_ns, every_ns: 1, announced_packets });
        assert_eq!(error(TcpConfig { reading, ..TcpConfig::cubic() }), TcpConfigError::Reading);
    }
    for (flavour, like, is_right) in [
        (Flavour::NewReno, Like::Linux, true),
        (Flavour::NewReno, Like::Ns3, true),
        (Flavour::Sack1, Like::Linux, false),
    ] {
        let config = TcpConfig { like, ..TcpConfig::of(flavour) };
        assert_eq!(config.check().is_ok(), is_right, "{flavour:?}");
    }
    assert!(Receiver::new(&TcpConfig { tick_ns: 0, ..good }).is_err());
}

/// A buffer that is full is read at once, seldom: nothing is under way meanwhile, and the window opens again though its
/// news may be lost.
#[test]
fn a_window_that_closes_opens_again() {
    let transfer = |loss: f64| {
        let config = TcpConfig {
            packets: Some(101),
            window_packets: 10,
            reading: Some(Reading { packet_ns: MS, every_ns: 1_000 * MS, announced_packets: None }),
            ..TcpConfig::new_reno()
        };
        let mut transfer =
            Transfer::new(config, Path { loss, doubling: 0.0, jitter_ns: 0, seed: 3 });
        (transfer.run(), transfer.sender.counts())
    };
    // 101 packets, ten of which fit between two visits, of which the first is after a second.
    let (took_ns, counts) = transfer(0.0);
    assert_eq!(took_ns / (1_000 * MS), 10);
    assert_eq!((counts.retransmissions, counts.timeouts), (0, 0));
    let (took_ns, _) = transfer(0.3);
    assert!(took_ns > 10_000 * MS);
}
