//! The rules of blocks that are compressed by backlog (Yoshino et al., section III).

use serde::{Deserialize, Serialize};

/// The points of [`Select::Backlog`](super::Select) that Yoshino et al. leave open. The default is what
/// fits their figures best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRules {
    /// The promise about order.
    pub order: BlockOrder,
    /// The link's treatment of a block that is still being compressed.
    pub unfinished: Unfinished,
    /// The place of a finished block.
    pub place: BlockPlace,
    /// The share of a finished block in the length of the queue.
    pub slots: BlockSlots,
    /// The place to which a unit returns that was lost on the link.
    pub put_back: BlockPlace,
}

/// Order within a group of [`Gather`](super::Gather), and so within a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockOrder {
    /// The paper's rule to the letter. Packets of a group can pass others of their group: those
    /// of a block that is still being compressed when the link reaches it ([`Unfinished::Pass`]);
    /// those that can't be compressed (upstream did, or an attempt brought nothing) and stand between
    /// packets that become a block; and those of a block placed at the tail.
    Loose,
    /// Packets of a group leave in the order in which they arrived; what was put back excepted.
    /// (With [`Select::Waiting`](super::Select), packets of a flow do: a block may pass packets that are left
    /// alone of other flows.) The link passes an unfinished block with packets of other groups only, and a block is
    /// made of packets with nothing else of their group between them.
    Strict,
}

/// The link's treatment of a block that is still being compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfinished {
    /// It passes over it and sends what comes behind.
    Pass,
    /// It waits, so that everything leaves in the order of the queue.
    Wait,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockPlace {
    /// The place of the first packet of a finished block; for a unit that is put back, the head of
    /// the queue.
    Front,
    /// The tail of the queue.
    Tail,
}

/// The share of a finished block in the length of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockSlots {
    /// One packet.
    One,
    /// As many packets as are in it.
    PerPacket,
}

impl BlockRules {
    /// The reading that fits the paper's figures best.
    pub const PAPER: Self = Self {
        order: BlockOrder::Loose,
        unfinished: Unfinished::Pass,
        place: BlockPlace::Front,
        slots: BlockSlots::One,
        put_back: BlockPlace::Front,
    };
}
