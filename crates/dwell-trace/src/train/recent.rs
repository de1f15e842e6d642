//! The dictionary that contexts begin from: the last packets, in the form in which contexts get them.
//!
//! What a trainer picks are pieces that many packets share; a context refers to whole batches, with headers in
//! columns. So the end of what was there serves it better than any choice, and is what it would refer to if it
//! had not ended.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_codec::content::{ContentClass, classify_packet};
use dwell_codec::{
    CONTEXT_DICTIONARY_CLASS, CodecSpec, ContextDictionary, DICTIONARY_LEN_MAX, DictionaryFile,
    hash_of,
};
use dwell_drive::{gather, group_key};
use dwell_policy::Gather;
use dwell_wire::PacketInfo;
use serde::{Deserialize, Serialize};

use super::{GAIN_MIN, TrainError};
use crate::contexts::Contexts;

/// The most bytes of packets that are remembered.
const KEPT_BYTES_MAX: usize = 512 << 10;
/// The most packets of a batch: some, as wait together on a link that is not overloaded.
const BATCH_PACKETS: usize = 4;
/// The most packets that it is tested on: what it brings, it brings at the beginning.
const TESTED_PACKETS: usize = 1_000;
/// Fewer packets say nothing.
const PACKETS_MIN: usize = 100;

/// What the dictionary of contexts brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextTraining {
    /// Packets that the dictionary was tested on, all later than those that it was made of.
    pub tried_on: u64,
    /// Their bytes, compressed / original, in contexts that begin from nothing.
    pub ratio_without: f64,
    /// The same in contexts that begin from the dictionary.
    pub ratio_with: f64,
    /// Bytes of the dictionary.
    pub dictionary_bytes: usize,
    /// It is worth having.
    pub is_worth: bool,
}

/// The last packets, with the group of each.
#[derive(Default)]
pub(super) struct Recent {
    packets: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
}

impl Recent {
    /// A packet, which a context gets unless it looks random.
    pub(super) fn add(&mut self, info: &PacketInfo, packet: &[u8]) {
        let payload = packet.get(usize::from(info.header_len)..).unwrap_or_default();
        if classify_packet(payload) == ContentClass::Random {
            return;
        }
        self.packets.push_back((group_key(Gather::HostPair, info, 0, 0), packet.into()));
        self.bytes += packet.len();
        while self.bytes > KEPT_BYTES_MAX {
            let Some((_, oldest)) = self.packets.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }

    /// Makes the dictionary of all, and tests one of the first `share` of them on those after them; none if the
    /// codec has no contexts, or there is too little.
    pub(super) fn train(
        mut self,
        codec: CodecSpec,
        share: f64,
    ) -> Result<Option<(ContextTraining, DictionaryFile)>, TrainError> {
        let packets = &*self.packets.make_contiguous();
        if packets.len() < PACKETS_MIN || Contexts::of(codec).is_none() {
            return Ok(None);
        }
        let (earlier, later) = packets.split_at((packets.len() as f64 * share) as usize);
        let later = &later[..later.len().min(TESTED_PACKETS)];
        let without = compressed(later, codec, None)?;
        let with = compressed(later, codec, ContextDictionary::new(content(earlier)))?;
        let bytes: usize = later.iter().map(|(_, packet)| packet.len()).sum();
        let ratio = |to: usize| to as f64 / bytes.max(1) as f64;
        let all = content(packets);
        let training = ContextTraining {
            tried_on: later.len() as u64,
            ratio_without: ratio(without),
            ratio_with: ratio(with),
            dictionary_bytes: all.len(),
            is_worth: ratio(without) - ratio(with) >= GAIN_MIN,
        };
        let file = DictionaryFile {
            id: 1,
            class: CONTEXT_DICTIONARY_CLASS.to_owned(),
            codec,
            source: hash_of(packets.iter().map(|(_, packet)| &packet[..])),
            samples: packets.len() as u64,
            bytes: all,
        };
        Ok(Some((training, file)))
    }
}

/// The end of the batches of these packets, as much as a dictionary may have.
fn content(packets: &[(u64, Box<[u8]>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    each_batch(packets, |_, batch| bytes.extend_from_slice(batch));
    let excess = bytes.len().saturating_sub(DICTIONARY_LEN_MAX);
    bytes.split_off(excess)
}

fn compressed(
    packets: &[(u64, Box<[u8]>)],
    codec: CodecSpec,
    dictionary: Option<ContextDictionary>,
) -> Result<usize, TrainError> {
    let Some(contexts) = Contexts::of(codec) else { return Ok(0) };
    let mut contexts = contexts.with_dictionary(dictionary.map(Arc::new));
    let mut sum = Ok(0);
    each_batch(packets, |group, batch| {
        if let Ok(bytes) = &mut sum {
            match contexts.compress(group, batch) {
                Ok(len) => *bytes += len,
                Err(error) => sum = Err(error),
            }
        }
    });
    Ok(sum?)
}

/// Calls `batch` with the packets of each group, some at a time, in columns.
fn each_batch(packets: &[(u64, Box<[u8]>)], mut batch: impl FnMut(u64, &[u8])) {
    let mut waiting: Vec<(u64, Vec<&[u8]>)> = Vec::new();
    let mut bytes = Vec::new();
    let mut send = |group: u64, packets: &mut Vec<&[u8]>| {
        gather(packets.iter().copied(), true, &mut bytes);
        packets.clear();
        batch(group, &bytes);
    };
    for (group, packet) in packets {
        let at = waiting.iter().position(|(of, _)| of == group).unwrap_or_else(|| {
            waiting.push((*group, Vec::new()));
            waiting.len() - 1
        });
        let (_, members) = &mut waiting[at];
        members.push(packet);
        if members.len() == BATCH_PACKETS {
            send(*group, members);
        }
    }
    for (group, members) in waiting.iter_mut().filter(|(_, members)| !members.is_empty()) {
        send(*group, members);
    }
}
