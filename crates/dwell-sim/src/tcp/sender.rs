//! The sending end of a connection.

use super::config::{Flavour, TcpConfig, TcpConfigError};
use super::sack1::Sack1;
use super::segment::{Ack, Segment};
use super::standard::Standard;

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent, retransmissions included.
    pub segments: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Acknowledgements received.
    pub acks: u64,
}

/// The sending end of a connection: it has as much to send as the configuration says, and
/// sends it as fast as the flavour of TCP lets it.
#[derive(Clone, Debug)]
pub struct Sender {
    engine: Engine,
    counts: Counts,
    segment_bytes: u32,
    first_bytes: u32,
    header_bytes: u32,
}

#[derive(Clone, Debug)]
enum Engine {
    Sack1(Sack1),
    Standard(Standard),
}

/// Makes the same call for either engine.
macro_rules! either {
    ($engine:expr, $inner:ident => $call:expr) => {
        match $engine {
            Engine::Sack1($inner) => $call,
            Engine::Standard($inner) => $call,
        }
    };
}

impl Sender {
    /// A sender with these parameters, which has not started.
    ///
    /// # Errors
    /// A parameter is outside of its range.
    pub fn new(config: &TcpConfig) -> Result<Self, TcpConfigError> {
        config.check()?;
        Ok(Self {
            engine: match config.flavour {
                Flavour::Sack1 => Engine::Sack1(Sack1::new(config)),
                Flavour::NewReno | Flavour::Cubic | Flavour::Bbr => {
                    Engine::Standard(Standard::new(config))
                }
            },
            counts: Counts::default(),
            segment_bytes: config.segment_bytes,
            first_bytes: if config.syn { config.header_bytes } else { config.segment_bytes },
            header_bytes: config.header_bytes,
        })
    }

    /// Begins to send.
    pub fn start(&mut self, _now_ns: u64) {
        either!(&mut self.engine, engine => engine.start());
    }

    /// Handles an acknowledgement. One of packets that were never sent is ignored.
    pub fn on_ack(&mut self, now_ns: u64, ack: &Ack) {
        self.counts.acks += 1;
        either!(&mut self.engine, engine => engine.on_ack(now_ns, ack));
    }

    /// Handles the passing of time; nothing happens before [`Self::deadline`].
    pub fn on_timer(&mut self, now_ns: u64) {
        let timeout_ns = either!(&self.engine, engine => engine.deadline());
        if timeout_ns.is_none_or(|deadline_ns| now_ns < deadline_ns) {
            return; // a packet may be sent now, perhaps
        }
        if let Engine::Standard(engine) = &mut self.engine
            && engine.is_blocked()
        {
            return engine.ask(now_ns);
        }
        self.counts.timeouts += 1;
        either!(&mut self.engine, engine => engine.on_timeout(now_ns));
    }

    /// Returns the time at which [`Self::on_timer`] is to be called, unless an acknowledgement
    /// comes before and moves it. Nearly every acknowledgement does.
    pub fn deadline(&self) -> Option<u64> {
        let timeout = either!(&self.engine, engine => engine.deadline());
        let release = match &self.engine {
            Engine::Sack1(_) => None,
            Engine::Standard(engine) => engine.release(),
        };
        timeout.into_iter().chain(release).min()
    }

    /// Returns the next packet to send now. To be called after every event until there is none.
    pub fn next_segment(&mut self, now_ns: u64) -> Option<Segment> {
        if let Engine::Standard(engine) = &mut self.engine
            && let Some(seq) = engine.take_probe()
        {
            return Some(Segment { seq, bytes: self.header_bytes, retransmission: true });
        }
        let (seq, retransmission) =
            either!(&mut self.engine, engine => engine.next_segment(now_ns))?;
        self.counts.segments += 1;
        self.counts.retransmissions += u64::from(retransmission);
        let bytes = if seq == 0 { self.first_bytes } else { self.segment_bytes };
        Some(Segment { seq, bytes, retransmission })
    }

    /// All packets before this one are acknowledged.
    pub fn acked(&self) -> u64 {
        either!(&self.engine, engine => engine.acked())
    }

    /// The congestion window in packets.
    pub fn window(&self) -> f64 {
        either!(&self.engine, engine => engine.window())
    }

    /// The threshold of slow start in packets.
    pub fn threshold(&self) -> f64 {
        either!(&self.engine, engine => engine.threshold())
    }

    /// True while losses are repaired without a timeout.
    pub fn recovering(&self) -> bool {
        either!(&self.engine, engine => engine.recovering())
    }

    /// The retransmission timeout as it is now.
    pub fn rto_ns(&self) -> u64 {
        either!(&self.engine, engine => engine.rto_ns())
    }

    /// Returns the sender's counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
