//! TCP endpoints without a network: a [`Sender`] and a [`Receiver`] that take events with
//! the time at which they happened, and say what to send.
//!
//! Sequence numbers count packets of one size, as in ns-2: a segment is one packet. After each
//! event the driver drains [`Sender::next_segment`], and calls [`Sender::on_timer`] at
//! [`Sender::deadline`].
//!
//! ```
//! use dwell_sim::tcp::{Receiver, Sender, TcpConfig};
//!
//! let config = TcpConfig::sack1();
//! let mut sender = Sender::new(&config)?;
//! let mut receiver = Receiver::new(&config)?;
//! sender.start(0);
//! let first = sender.next_segment(0).expect("the connection opens with packet 0");
//! let ack = receiver.on_segment(5_000_000, first.seq, 0).expect("not delayed");
//! sender.on_ack(10_000_000, &ack);
//! assert_eq!(sender.next_segment(10_000_000).map(|s| s.seq), Some(1));
//! assert_eq!(sender.next_segment(10_000_000).map(|s| s.seq), Some(2));
//! assert_eq!(sender.next_segment(10_000_000), None);
//! # Ok::<(), dwell_sim::tcp::TcpConfigError>(())
//! ```

mod bbr;
mod bits;
mod config;
mod counted;
mod delivery;
mod growth;
mod maximum;
mod prr;
mod reader;
mod receiver;
mod resent;
mod rto;
mod sack1;
mod sack_delay;
mod scoreboard;
mod segment;
mod sender;
mod standard;
mod ticks;

pub use config::{Flavour, Like, TcpConfig, TcpConfigError, WINDOW_MAX};
pub use reader::Reading;
pub use receiver::Receiver;
pub use segment::{Ack, SACK_BLOCK_BYTES, SACK_BLOCKS_MAX, SackBlock, Segment, WINDOW_WHOLE};
pub use sender::{Counts, Sender};

#[cfg(test)]
mod tests;
