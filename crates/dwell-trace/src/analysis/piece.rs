//! Pieces of a capture, cut between two batches: what a packet becomes by itself is measured piece by piece, anywhere.

use super::Settings;
use super::accounts::BATCH_FRAMES;
use super::batch::{Batch, Counted};
use super::blocks::is_chosen;
use super::pairs::Pair;
use crate::capture::Capture;
use crate::datagram::Datagram;
use crate::sides::Direction;

/// Reads the batches of a piece. They are those that [`Accounts::fill`](super::Accounts::fill) makes of the whole
/// capture, if the piece begins where one of them does; who keeps the accounts is somebody else.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    batch: u64,
}

impl Piece {
    /// Begins a piece with the batch of this number, from 0, in its capture.
    pub const fn new(batch: u64) -> Self {
        Self { batch }
    }

    /// Reads on, as [`Accounts::fill`](super::Accounts::fill) does; returns true if there may be more.
    pub fn fill<R: std::io::Read>(&mut self, capture: &mut Capture<R>, batch: &mut Batch) -> bool {
        batch.clear();
        (batch.with_blocks, batch.number) = (is_chosen(self.batch), self.batch);
        self.batch += 1;
        for _ in 0..BATCH_FRAMES {
            let Some(packet) = capture.next_packet() else { return false };
            let Ok(datagram) = Datagram::find(&packet, 0) else { continue };
            let pair = Pair::of(&datagram.info);
            let counted = Counted { pair, direction: Direction::Neither, way: None };
            if batch.push(&datagram, counted, None) {
                break;
            }
        }
        true
    }

    /// Returns true if a piece that has ended was all there: `bytes` with its header. It is not if the capture has become
    /// shorter since somebody cut it, or can't be read further.
    pub fn is_whole<R: std::io::Read>(capture: &Capture<R>, bytes: u64) -> bool {
        capture.position() >= bytes
    }
}

impl Settings {
    /// Returns true if pieces of a capture can be measured apart from each other. With the bound they can't: what a
    /// packet becomes at least follows from what came before it.
    pub fn are_for_pieces(&self) -> bool {
        let is_compressed = !self.codecs.is_empty() || self.block_codec.is_some();
        is_compressed && !self.has_bound()
    }
}
