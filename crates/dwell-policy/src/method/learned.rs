//! What the blocks of a stream have shown of codecs, for another stream whose content is alike.

use super::codecs::CodecEstimates;
use super::short::ShortRatios;

/// What codecs cost and leave on the blocks of a stream ([`Steering::learned`](super::Steering::learned)).
///
/// A stream of a few messages would spend some of them on trying codecs, each of which leaves up to half as much again.
#[derive(Clone, Debug)]
pub struct Learned<C> {
    pub(super) estimates: CodecEstimates<C>,
    pub(super) short: ShortRatios,
}
