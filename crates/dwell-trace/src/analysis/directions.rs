//! The traffic over the link in each direction.

use serde::{Deserialize, Serialize};

use super::record::Sums;
use crate::replay::content::Composition;
use crate::sides::{Rule, Sides};

/// The two directions of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Directions {
    /// The rule that distinguished packets; none if nothing was read.
    pub rule: Option<Rule>,
    /// The share of the bytes that the rule explains, 0 to 1; the smallest of several analyses.
    pub agreed: f64,
    /// The two sides.
    pub names: [String; 2],
    /// Sums from the first side to the second, and back.
    pub sums: [DirectionSums; 2],
    /// Packets between hosts of one side, which don't go over the link.
    pub neither: Sums,
}

/// The traffic in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionSums {
    /// IP packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes on an Ethernet without relays, of packets that an analyzer read.
    pub link_bytes: u64,
    /// The least that relays could make of these bytes.
    pub least_bytes: u64,
    /// The composition of the packets; empty if nothing was compressed.
    pub composition: Composition,
}

/// The common names of the sides of several captures with different hosts.
const SIDES: [&str; 2] = ["the clients' side", "the servers' side"];

impl Directions {
    pub(super) fn new(sides: &Sides) -> Self {
        Self {
            rule: Some(sides.rule()),
            agreed: sides.agreed(),
            names: sides.names().clone(),
            ..Self::default()
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        match (self.rule, other.rule) {
            (_, None) => {}
            (None, Some(_)) => {
                (self.rule, self.agreed) = (other.rule, other.agreed);
                self.names.clone_from(&other.names);
            }
            (Some(_), Some(_)) => {
                self.rule = self.rule.max(other.rule);
                self.agreed = self.agreed.min(other.agreed);
                if self.names != other.names {
                    self.names = SIDES.map(str::to_owned);
                }
            }
        }
        self.sums.iter_mut().zip(&other.sums).for_each(|(sums, other)| sums.merge(other));
        self.neither.merge(&other.neither);
    }

    /// Returns the index of the busier direction: that with more bytes on an Ethernet, or more
    /// bytes if nothing was compressed.
    pub fn busier(&self) -> usize {
        let [forward, backward] = &self.sums;
        usize::from((backward.link_bytes, backward.bytes) > (forward.link_bytes, forward.bytes))
    }

    /// Returns a direction in words: "from A to B".
    pub fn name(&self, direction: usize) -> String {
        let [first, second] = &self.names;
        match direction {
            0 => format!("from {first} to {second}"),
            _ => format!("from {second} to {first}"),
        }
    }
}

impl DirectionSums {
    fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.link_bytes = self.link_bytes.saturating_add(other.link_bytes);
        self.least_bytes = self.least_bytes.saturating_add(other.least_bytes);
        self.composition.merge(&other.composition);
    }

    /// Returns the largest share of the bytes on the link that could be saved if packets wait, 0 to
    /// 1.
    pub fn saving_max(&self) -> Option<f64> {
        let least = self.least_bytes as f64 / self.link_bytes as f64;
        (self.link_bytes > 0).then(|| (1.0 - least).max(0.0))
    }
}
