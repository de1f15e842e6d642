//! The limits from which on something matters. Below these nobody should go to the trouble of two
//! relays, or another hour of the same traffic could turn it around.

/// The smallest share of bytes saved that is worth something. A tunnel costs 2 to 4 % of full
/// packets, and the same link differs by as much from one day to the next.
pub const SAVING_MIN: f64 = 0.05;
/// The largest growth of the bytes on the link that is no harm, if bytes count: the tunnel's own
/// overhead.
pub const GROWTH_MAX: f64 = 0.02;
/// The smallest gain in offered bytes that get through.
pub const GOODPUT_MIN: f64 = 0.05;
/// The largest loss of offered bytes that get through.
pub const GOODPUT_LOSS_MAX: f64 = 0.02;
/// The smallest change of drops that matters, as a share of all bytes: TCP feels half a percent
/// (throughput goes with one over the root of the loss; Mathis et al., 1997) ...
pub const DROPS_MIN: f64 = 0.005;
/// ... if it is also this share of the drops themselves ...
pub const DROPS_CHANGE_MIN: f64 = 0.1;
/// ... and at least this many packets, which is more than one burst.
pub const DROPPED_PACKETS_MIN: u64 = 30;
/// The share of bytes dropped without dwell above which the sources would have sent otherwise: a
/// replay says little about such a link.
pub const DROPS_CREDIBLE_MAX: f64 = 0.1;
/// The share of the link's time in use below which a link without drops is idle.
pub const IDLE_LOAD_MAX: f64 = 0.3;
/// The mean delay must grow by this share to do harm ...
pub const DELAY_SHARE_MIN: f64 = 0.1;
/// ... and by this much: less is lost in any path.
pub const DELAY_NS_MIN: f64 = 5e6;
/// The largest share of a core that a relay may take beside other work.
pub const CPU_SHARE_MAX: f64 = 0.5;
/// The largest share of missing bytes for a "no": they were counted as incompressible.
pub const MISSING_SHARE_MAX: f64 = 0.2;
/// The share of bytes closed to any codec from which on they are the reason for a "no".
pub const CLOSED_SHARE_MIN: f64 = 0.5;
/// The share of encrypted sessions in the payload bytes from which on the answer is "no": only
/// their handshakes and the headers of acknowledgements could be compressed.
pub const SESSION_SHARE_MIN: f64 = 0.95;
/// The largest step back of time stamps that is jitter between several queues of a network card.
pub const BACK_NS_MAX: u64 = 1_000_000;
/// The fewest packets in a direction that can show a gain, or that there is none.
pub const PACKETS_JUDGED_MIN: u64 = 100;
/// The length below which a capture is a glimpse.
pub(super) const SPAN_NS_MIN: u64 = 10_000_000_000;
/// The number of packets below which a capture is a glimpse.
pub(super) const PACKETS_MIN: u64 = 1_000;
