//! The method axis for byte streams: whether a block is compressed, and with which of several
//! codecs.
//!
//! A [`Port`](crate::Port) compresses packets, each a decision of its own, with the one codec that
//! its world has. A stream has blocks, of which any can be compressed by any codec, and its driver
//! writes to a transport that refuses. [`Steering`] decides for one stream by a [`Rule`]:
//! it is asked for each block, and notified of what the transport took and of what compressing
//! brought. Neither bytes nor codecs are known here: a codec is a name of any type.
//!
//! [`Rule::Hull`] is ours, the codec choice: a codec of cost c and ratio R is a point, and the best
//! that link and processor can do is a mixture of two neighbours on the convex hull of all points
//! ([`Bound`]). The points are measured on the stream's own data, the link by
//! [`LinkRate`](crate::rate::LinkRate), and where the result leaves link or processor idle, it is
//! corrected.
//!
//! ```
//! use dwell_base::Instant;
//! use dwell_policy::rate::LinkReport;
//! use dwell_policy::method::{Asked, Choice, Measured, Offer, Prior, Referring, Rule, Steering};
//!
//! // A fast codec that halves what it is given, and one that takes ten times as long for a third.
//! let prior = |codec, cost_ns, saving| {
//!     Prior { codec, cost_ns, saving, refers: Referring::Never }
//! };
//! let rule = Rule::Hull(vec![prior("fast", 3.0, 0.5), prior("strong", 30.0, 0.67)]);
//! let mut steering = Steering::new(rule, 128 << 10);
//!
//! // An idle link of unknown rate takes what there is.
//! let (now, len, history_len) = (Instant::ZERO, 64 << 10, 0);
//! let offer = Offer { len, history_len, is_full: true, more: true };
//! assert!(steering.admits(false));
//! assert!(steering.lets_raw_go(now, offer));
//!
//! // A full link of 1 MB/s has time for the strong codec.
//! steering.expect(now, 1e6);
//! assert!(!steering.lets_raw_go(now, offer));
//! let asked = Asked { len, busy: true, more: true, ..Asked::default() };
//! assert_eq!(steering.codec(now, asked), Some(Choice::alone("strong")));
//!
//! // It is used until the measurements say otherwise: 200 ns a byte for nearly nothing.
//! for _ in 0..20 {
//!     let choice = Choice::alone("strong");
//!     let (original_len, used_len, took_ns) = (65_536, 60_000, 13_107_200);
//!     let result = Measured { choice, original_len, history_len, used_len, took_ns, away_ns: 0, is_first: false };
//!     steering.compressed(&result, false);
//!     let choice = Choice::alone("fast");
//!     let result = Measured { choice, took_ns: 200_000, ..result };
//!     steering.compressed(&result, false);
//! }
//! assert_eq!(steering.codec(now, asked), Some(Choice::alone("fast")));
//!
//! // What comes now and then is compressed too if it arrives sooner so (equation (2) of Shimamura et
//! // al.): 64 KiB take 524 ms over an idle link of 1 Mbit/s, and 0.2 ms are well spent on them.
//! let mut steering = Steering::new(Rule::Hull(vec![prior("fast", 3.0, 0.5)]), 128 << 10);
//! let report = LinkReport { delivered_rate: 125e3, ..LinkReport::default() };
//! steering.reported(now, &report);
//! assert!(!steering.lets_raw_go(now, Offer { more: false, ..offer }));
//! ```
//!
//! What can't change its codec block by block, since each refers to all before it, picks one by the same
//! programme: [`CodecPick`].
//!
//! Rates, costs and shares are floating-point numbers, and some take the machine's exponential
//! function: on one machine the same events give the same decisions, on all of them nearly the same.
//!
//! The rules come from Pu and Singaravelu, "Fine-Grain Adaptive Compression in Dynamically Variable
//! Networks", the back-off from Wang et al., "TCPComp", and what is compressed on an idle link from
//! Shimamura et al., whose rule for packets holds for blocks too.

mod balance;
mod bound;
mod codecs;
mod filled;
mod hull;
mod learned;
mod pick;
mod processor;
mod restoring;
mod running;
mod short;
mod slowdown;
mod steering;
mod switching;
#[cfg(test)]
mod tests;
mod trial_budget;
mod write_cost;

pub use bound::{Bound, CodecPoint};
pub use codecs::{Choice, Measured, Prior, Referring};
pub use hull::{Offer, TriedAside};
pub use learned::Learned;
pub use pick::{Assumed, CodecPick, Tried};
pub use processor::{Budget, Carried, Processor};
pub use slowdown::Slowdown;
pub use steering::{Asked, Rule, Steering};
pub use trial_budget::TrialBudget;
pub use write_cost::WriteCost;
