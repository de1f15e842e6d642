//! The dictionaries of the two ends, compared when a session begins: different ones are a mistake of
//! whoever configured them, and bring nothing.

use dwell_report::human;
use dwell_report::status::{DictionaryStatus, Problem};
use dwell_wire::DictionaryName;

use super::Node;
use super::env::Env;
use super::peer::Peer;
use super::problems::Finding;

/// The peer's dictionary, as it is seen from one that is configured here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfPeer {
    Same,
    Other(DictionaryName),
    None,
    /// There was no session yet.
    Unknown,
}

impl OfPeer {
    const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Other(_) => "other",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns this end's dictionary, and what the peer has; none if this end has none.
fn compare(peer: &Peer) -> Option<(DictionaryName, OfPeer)> {
    let (ours, theirs) = peer.contexts.dictionaries()?;
    let of_peer = match theirs {
        None => OfPeer::Unknown,
        Some(None) => OfPeer::None,
        Some(Some(theirs)) if theirs == ours => OfPeer::Same,
        Some(Some(theirs)) => OfPeer::Other(theirs),
    };
    Some((ours, of_peer))
}

/// Returns the state of the dictionary that is configured for the peer, if one is.
pub(super) fn status(peer: &Peer) -> Option<DictionaryStatus> {
    let (ours, of_peer) = compare(peer)?;
    Some(DictionaryStatus {
        bytes: ours.len.into(),
        name: hex(&ours),
        of_peer: of_peer.name().to_owned(),
    })
}

fn hex(name: &DictionaryName) -> String {
    format!("{:032x}", u128::from_be_bytes(name.hash))
}

impl Node {
    /// A session began, or the configuration has changed.
    pub(super) fn compare_dictionaries(&mut self, env: &mut impl Env, index: usize) {
        let finding = match compare(&self.peers[index]) {
            Some((ours, OfPeer::Other(theirs))) => mismatch(&ours, Some(&theirs)),
            Some((ours, OfPeer::None)) => mismatch(&ours, None),
            Some((_, OfPeer::Same | OfPeer::Unknown)) | None => {
                return self.clear_problem(env, Some(index), Problem::DictionaryMismatch);
            }
        };
        self.note_problem(env, Some(index), finding);
    }
}

fn mismatch(ours: &DictionaryName, theirs: Option<&DictionaryName>) -> Finding {
    let words =
        |name: &DictionaryName| format!("{} of {}", &hex(name)[..8], human::bytes(name.len.into()));
    let has = theirs.map_or("none".to_owned(), |theirs| format!("another one ({})", words(theirs)));
    Finding {
        problem: Problem::DictionaryMismatch,
        why: format!(
            "This node has the dictionary {} for it, and the peer has {has}: none is used.",
            words(ours)
        ),
        remedy:
            "Copy the same file to both ends, name it under `dictionary` of the peer at each, and \
                 reload; or remove `dictionary` here."
                .to_owned(),
    }
}
