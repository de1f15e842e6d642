//! Schemes with the blocks that relays make.

use dwell_policy::{BlockOrder, BlockRules, Gather, Scheme, Select, When};

/// The limits of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// Most bytes of packets, if they have no fixed number of packets.
    pub bytes: u32,
    /// This many packets, m; or as many as wait.
    pub packets: Option<u32>,
    /// With a number of packets: how many others the link has before a block is begun, n.
    pub lead: u32,
}

impl Default for BlockConfig {
    fn default() -> Self {
        // More carry up to a fifth more of text, and more than double a ping beside it.
        Self { bytes: 8 << 10, packets: None, lead: 5 }
    }
}

/// The most packets of a block.
const PACKETS_MAX: u32 = 64;
/// The paper's rule lets packets of a flow overtake each other. In relays it does not.
const STRICT: BlockRules = BlockRules { order: BlockOrder::Strict, ..BlockRules::PAPER };

impl BlockConfig {
    /// The scheme of this name, with blocks like these; `None` if there is none, or if single
    /// packets are to be in blocks of several.
    pub fn scheme(&self, name: &str) -> Option<Scheme> {
        let scheme = Scheme::preset(name).ok()?;
        let gather = match (scheme.select, self.packets) {
            // Numbers in the name come before others.
            (Select::Backlog { packets, .. }, _) => {
                return (packets <= PACKETS_MAX).then(|| scheme.with_rules(STRICT));
            }
            (Select::Waiting { gather, .. }, _) => gather,
            // Single packets, not by their waiting time but by the length of the queue.
            (Select::Each(When::WaitingTime), Some(1)) => Gather::Packet,
            (Select::Each(When::WaitingTime) | Select::Slack { .. }, Some(_)) => return None,
            // Frames are as large as the path takes them.
            _ => return Some(scheme.with_frame_bytes_max(u32::MAX)),
        };
        Some(match self.packets {
            None => Scheme::waiting(gather, self.bytes),
            Some(packets) => Scheme::backlog(gather, packets, self.lead).with_rules(STRICT),
        })
    }

    /// Returns the schemes of these names. A number of packets is for those that make blocks of several; others are as they
    /// are without one.
    ///
    /// # Errors
    /// If there is no scheme of one of the names, as a sentence.
    pub fn schemes(&self, names: &[String]) -> Result<Vec<(String, Scheme)>, String> {
        let single = Self { packets: None, ..*self };
        let named = names.iter().map(|name| {
            let scheme = self.scheme(name).or_else(|| single.scheme(name));
            Ok((name.clone(), scheme.ok_or_else(|| format!("there is no scheme \"{name}\""))?))
        });
        named.collect()
    }
}
