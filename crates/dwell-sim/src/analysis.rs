//! The predictions of the papers' formulas, to compare simulations with.
//!
//! # Chunking with several queues
//!
//! [`ChuMq`] is the model of section 6 of Sawabe, Tsukamoto and Oie, "Efficient QoS-aware Packet
//! Chunking Scheme for M2M Cloud Services" (Concurrency and Computation 29(13), 2017).
//!
//! **Scope.** ChuMQ without CEA, one class of packets to a buffer, Poisson arrivals, all packets
//! of a class of one size. A chunk leaves when its buffer holds more than the MTU or when its
//! timer, started by the packet at its head, expires.
//!
//! **Symbols.** For class i: h packet size in bytes; T timer; λ its load, as a share of the link
//! in the papers' figures, and packets per second within the formulas; Λ the sum of all loads; K
//! = ⌊MTU / h⌋ packets fill a chunk; X the number of packets that arrive within T, Poisson with
//! mean λT; ρ = Λ − λ what the others offer; M̄ packets in a chunk, L̄ its bytes.
//!
//! | | | |
//! |---|---|---|
//! | (1) | P(X = k) = (λT)^k e^(−λT) / k! | the paper prints e^(λT) |
//! | (2) | P(timer) = P(X < K) | [`ClassModel::timer_share`] |
//! | (3) | P(M = m given timer) = P(X = m) / P(X < K) | [`ClassModel::timer_chunk_mass`] |
//! | (4) | ρ·P(timer) / M̄(T) < R_v < (1 + M̄(7.2 µs))·ρ·P(timer) / M̄(T) | [`ClassModel::late_share`] |
//! | (5) | L̄ = Σ_{k<K} P(X = k)·k·h + P(X ≥ K)·MTU | [`ClassModel::chunk_bytes_mean`] |
//! | (6) | L̄ over all classes, weighted by λ / M | [`ChuMq::chunk_bytes_mean`] |
//!
//! R_v is the share of a class' packets that wait longer than allowed, 7.2 µs the transmission of
//! a full chunk; half of it gives the approximation that the paper's Fig. 9 shows.
//!
//! **Readings.** Literally the equations leave the packet at the head out: a chunk has X packets.
//! The values of M̄ in the paper's text (16.63, 7.25, 2.66) are 1 + λT, and so are those that
//! simulations have; [`Reading`] offers both. The paper's loss P = Λ − 1 is of the link's
//! capacity; of what is offered it is (Λ − 1) / Λ ([`overload_loss`]).
//!
//! **Limits.** Below overload only (Λ < 1). The classes' chunks are taken to meet the link busy
//! independently with probability ρ, and to wait for one chunk at most: with several classes on
//! their timers, some wait for two. The model does not know the limit of packets per second.
//!
//! # Compressing while waiting
//!
//! [`compressed_share_max`] is Eq. (3) of Shimamura, Koga, Ikenaga and Tsuru, "Compressing Packets
//! Adaptively Inside Networks" (IEICE Trans. Commun. E93-B(3), 2010).

mod chumq;
mod compressing;
mod poisson;

pub use chumq::{AnalysisError, ChuMq, Class, ClassModel, LateShare, Reading, overload_loss};
pub use compressing::compressed_share_max;
