//! The parameters of a connection.

use super::reader::Reading;

/// The most packets that a window may be set to.
pub const WINDOW_MAX: u32 = 1 << 20;

/// The TCP of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// `Agent/TCP/Sack1` of ns-2.35: slow start, congestion avoidance, limited transmit, the
    /// pipe algorithm of Fall and Floyd ("Simulation-based Comparisons of Tahoe, Reno, and
    /// SACK TCP", 1996), timers that count ticks.
    Sack1,
    /// `NewReno` with SACK: RFC 5681, 6675, 6298.
    NewReno,
    /// CUBIC with SACK: RFC 9438, 6675, 6298.
    Cubic,
    /// BBR version 1 as in Linux, with SACK: RFC 6675, 6298.
    Bbr,
}

/// An implementation that a sender or `CoDel` may be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Like {
    /// RFC 9438's CUBIC and the recovery of RFC 6675; Linux' BBR, of which there is no RFC; RFC 8289's `CoDel`, and RFC
    /// 8290's queues, of which the last packet of all is left alone.
    Rfc,
    /// Linux' recovery (PRR, lost retransmissions found by RACK) and timeout, for which the least is added to the round trip; its CUBIC, which
    /// counts in whole packets and keeps to RFC 8312's Reno; its BBR; Linux' `CoDel`, which approaches the square
    /// root of its law step by step.
    Linux,
    /// ns-3.37's: it recovers by PRR; its CUBIC counts as Linux' does, and may be slower than Reno. Its BBR paces at the rate that it measured, where Linux is a
    /// hundredth below, sends one packet at a time, and takes the least smoothed round trip for the least one. Its `CoDel` is Linux', and
    /// leaves the last packet of each queue alone.
    Ns3,
}

/// The parameters of a connection: those of the sender and those of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The sender's TCP.
    pub flavour: Flavour,
    /// The receiver's window: the most packets that may be unacknowledged. 1 to [`WINDOW_MAX`].
    pub window_packets: u32,
    /// The size of a packet on the wire, with all headers. At least `header_bytes`.
    pub segment_bytes: u32,
    /// The size of a packet without data: of packet 0, if `syn`. At least 1.
    pub header_bytes: u32,
    /// The size of an acknowledgement without SACK blocks.
    pub ack_bytes: u32,
    /// Packet 0 stands for the SYN: it has no data, and goes alone.
    pub syn: bool,
    /// The congestion window at the start of the data, in packets. At least 1.
    pub initial_window: u32,
    /// The initial threshold of slow start; `None`: the window.
    pub initial_threshold: Option<u32>,
    /// The number of packets to send, the SYN counted; `None`: without end.
    pub packets: Option<u64>,
    /// Sends a new packet for the first and the second duplicate acknowledgement (RFC 3042).
    pub limited_transmit: bool,
    /// The unit of the retransmission timer. At least 1. With `NewReno` and CUBIC the clock's
    /// granularity.
    pub tick_ns: u64,
    /// The offset of the sender's ticks from the simulation's: ns-2 draws it from `[0, tick)` for
    /// each sender. `Sack1` only.
    pub tick_phase_ns: u64,
    /// The retransmission timeout before anything was measured.
    pub rto_initial_ns: u64,
    /// The least retransmission timeout.
    pub rto_min_ns: u64,
    /// The greatest retransmission timeout. At least `rto_min_ns`.
    pub rto_max_ns: u64,
    /// The implementation that CUBIC and BBR are like, where these differ.
    pub like: Like,
    /// Takes marks of congestion (ECN, RFC 3168) in place of losses; `NewReno` and CUBIC react to them. Not
    /// for `Sack1`.
    pub ecn: bool,
    /// Chooses what chance decides within the sender: the phase in which BBR begins its cycle.
    pub seed: u64,
    /// The receiver answers every second packet, or after this time; `None`: each at once.
    pub delayed_ack_ns: Option<u64>,
    /// The way in which the receiver's program reads; `None`: at once. Not for `Sack1`.
    pub reading: Option<Reading>,
}

impl TcpConfig {
    /// ns-2.35's defaults for `Agent/TCP/Sack1` and `Agent/TCPSink/Sack1`, with packets of
    /// 1500 bytes and a window of 10,000 packets.
    pub const fn sack1() -> Self {
        Self {
            flavour: Flavour::Sack1,
            window_packets: 10_000,
            segment_bytes: 1_500,
            header_bytes: 40,
            ack_bytes: 40,
            syn: true,
            initial_window: 2,
            initial_threshold: None,
            packets: None,
            limited_transmit: true,
            tick_ns: 10_000_000,
            tick_phase_ns: 0,
            rto_initial_ns: 3_000_000_000,
            rto_min_ns: 200_000_000,
            rto_max_ns: 60_000_000_000,
            like: Like::Rfc,
            ecn: false,
            seed: 0,
            delayed_ack_ns: None,
            reading: None,
        }
    }

    /// `NewReno` with the defaults of the RFCs.
    pub const fn new_reno() -> Self {
        Self {
            flavour: Flavour::NewReno,
            initial_window: 10,
            tick_ns: 1_000_000,
            rto_initial_ns: 1_000_000_000,
            rto_min_ns: 1_000_000_000,
            ..Self::sack1()
        }
    }

    /// CUBIC with the defaults of the RFCs.
    pub const fn cubic() -> Self {
        Self { flavour: Flavour::Cubic, ..Self::new_reno() }
    }

    /// BBR with the defaults of the RFCs.
    pub const fn bbr() -> Self {
        Self { flavour: Flavour::Bbr, ..Self::new_reno() }
    }

    /// The defaults of a flavour.
    pub const fn of(flavour: Flavour) -> Self {
        match flavour {
            Flavour::Sack1 => Self::sack1(),
            Flavour::NewReno => Self::new_reno(),
            Flavour::Cubic => Self::cubic(),
            Flavour::Bbr => Self::bbr(),
        }
    }

    /// Checks that every parameter is within its range.
    ///
    /// # Errors
    /// The first parameter that is outside of its range.
    pub fn check(&self) -> Result<(), TcpConfigError> {
        let wrong = |ok: bool, error| if ok { Ok(()) } else { Err(error) };
        wrong((1..=WINDOW_MAX).contains(&self.window_packets), TcpConfigError::Window)?;
        wrong(self.header_bytes >= 1, TcpConfigError::HeaderBytes)?;
        wrong(self.segment_bytes >= self.header_bytes, TcpConfigError::SegmentBytes)?;
        wrong(self.initial_window >= 1, TcpConfigError::InitialWindow)?;
        wrong(self.packets != Some(0), TcpConfigError::Packets)?;
        let is_one = self.flavour == Flavour::Sack1;
        wrong(!is_one || self.like == Like::Rfc, TcpConfigError::Like)?;
        wrong(!self.ecn || self.flavour != Flavour::Sack1, TcpConfigError::Ecn)?;
        let is_slow = self.reading.is_some();
        wrong(!is_slow || self.flavour != Flavour::Sack1, TcpConfigError::SlowReader)?;
        let reads = self.reading.is_none_or(|reading| {
            reading.packet_ns >= 1 && reading.every_ns >= 1 && reading.announced_packets != Some(0)
        });
        wrong(reads, TcpConfigError::Reading)?;
        wrong(self.tick_ns >= 1, TcpConfigError::Tick)?;
        wrong(self.rto_min_ns <= self.rto_max_ns && self.rto_max_ns >= 1, TcpConfigError::Rto)
    }
}

/// A parameter outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpConfigError {
    /// `like`.
    #[error("`like` is not for `flavour = \"sack1\"`, which is like ns-2's")]
    Like,
    /// `window_packets`.
    #[error("the window must be 1 to {WINDOW_MAX} packets")]
    Window,
    /// `header_bytes`.
    #[error("the headers must have at least 1 byte")]
    HeaderBytes,
    /// `segment_bytes`.
    #[error("a segment can't be smaller than its headers")]
    SegmentBytes,
    /// `initial_window`.
    #[error("the initial window must be at least 1 packet")]
    InitialWindow,
    /// `packets`.
    #[error("a connection must send at least 1 packet")]
    Packets,
    /// `ecn`.
    #[error("ns-2's sender takes no marks here: choose another flavour")]
    Ecn,
    /// `reading` with ns-2's sender.
    #[error("ns-2's sender knows a constant window only: choose another flavour")]
    SlowReader,
    /// `reading`.
    #[error(
        "a program that reads takes at least 1 ns for a packet, comes at least 1 ns later, and leaves room for a packet"
    )]
    Reading,
    /// `tick_ns`.
    #[error("the timer's tick must be at least 1 ns")]
    Tick,
    /// `rto_min_ns`, `rto_max_ns`.
    #[error("the greatest retransmission timeout can't be below the least, nor zero")]
    Rto,
}
