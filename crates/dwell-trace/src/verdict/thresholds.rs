//! From where on something matters. Below these nobody should go to the trouble of two relays, or
//! another hour of the same traffic could turn it around.

/// Fewer bytes by this share are worth something. A tunnel costs 2 to 4 % of full packets, and the
/// same link differs by as much from one day to the next.
pub const SAVING_MIN: f64 = 0.05;
/// More bytes on the link by this share do harm, if bytes count: the tunnel's own overhead.
pub const GROWTH_MAX: f64 = 0.02;
/// More of the offered bytes get through by this share.
pub const GOODPUT_MIN: f64 = 0.05;
/// Fewer of them get through by this share.
pub const GOODPUT_LOSS_MAX: f64 = 0.02;
/// Fewer or more drops by this share of all bytes matter: TCP feels half a percent
/// (throughput goes with one over the root of the loss; Mathis et al., 1997) ...
pub const DROPS_MIN: f64 = 0.005;
/// ... if it is also this share of the drops themselves ...
pub const DROPS_CHANGE_MIN: f64 = 0.1;
/// ... and at least so many packets, which is more than one burst.
pub const DROPPED_PACKETS_MIN: u64 = 30;
/// From this share of bytes dropped without dwell on, the sources would have sent otherwise: a
/// replay says little about such a link.
pub const DROPS_CREDIBLE_MAX: f64 = 0.1;
/// Below this share of the link's time in use, and without drops, a link is idle.
pub const IDLE_LOAD_MAX: f64 = 0.3;
/// The mean delay must grow by this share to do harm ...
pub const DELAY_SHARE_MIN: f64 = 0.1;
/// ... and by this much: less is lost in any path.
pub const DELAY_NS_MIN: f64 = 5e6;
/// More of a core than this is too much for what a relay may take beside other work.
pub const CPU_SHARE_MAX: f64 = 0.5;
/// If the capture lacks more than this share of the bytes, a "no" is none: what is lacking
/// counted as incompressible.
pub const MISSING_SHARE_MAX: f64 = 0.2;
/// From this share of bytes on that are closed to any codec, they are the reason for a "no".
pub const CLOSED_SHARE_MIN: f64 = 0.5;
/// If sessions that encrypt are this share of what packets carry, the answer is "no": what is left
/// to compress are their handshakes and the headers of acknowledgements.
pub const SESSION_SHARE_MIN: f64 = 0.95;
/// Time stamps that go back by more than this are no jitter of several queues of a network card.
pub const BACK_NS_MAX: u64 = 1_000_000;
/// Fewer packets in a direction show no gain.
pub const PACKETS_JUDGED_MIN: u64 = 100;
/// Below either of these a capture is a glimpse.
pub(super) const SPAN_NS_MIN: u64 = 10_000_000_000;
/// See [`SPAN_NS_MIN`].
pub(super) const PACKETS_MIN: u64 = 1_000;
