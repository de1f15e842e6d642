//! What a stream leaves to the next one on its connection: to what its blocks could refer, and what its sender has learned; and
//! which of them learn from each other.
//!
//! Both ends hold it while there is no stream, if both have room for it, and only the ingress decides which stream makes
//! use of it: it knows whose it was.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use dwell_stream::{Receiver, Sender};
use tokio::sync::OwnedSemaphorePermit;

use crate::config::EarlierStreams;
use crate::message::Opening;
use crate::target::Target;

/// Whose stream it was, as far as an ingress distinguishes that; an egress does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    /// The client's address.
    pub(crate) client: IpAddr,
    /// The name that it has given to SOCKS, if it was asked for one.
    pub(crate) user: Option<Vec<u8>>,
    /// Where it went.
    pub(crate) target: Target,
}

/// The ends of the next stream on a connection.
#[derive(Debug)]
pub(crate) struct Kept {
    /// None if its blocks refer to nothing.
    pub(crate) sender: Option<Sender>,
    pub(crate) receiver: Receiver,
    /// Room for what they hold.
    pub(crate) room: OwnedSemaphorePermit,
    /// None if it is for everybody.
    pub(crate) whose: Option<Whose>,
}

/// What streams are about: those about the same learn from each other what codecs bring.
#[derive(Debug)]
pub(crate) struct Topics {
    earlier: EarlierStreams,
    hasher: RandomState,
}

impl Topics {
    pub(crate) fn new(earlier: EarlierStreams) -> Self {
        Self { earlier, hasher: RandomState::new() }
    }

    /// Returns what a stream is about, if that is to be known: those of one client, of the same name if it was asked for one, to one
    /// target.
    pub(crate) fn of(
        &self,
        client: Option<(IpAddr, Option<&[u8]>)>,
        target: &Target,
    ) -> Option<u64> {
        match (self.earlier, client) {
            (EarlierStreams::None, _) | (EarlierStreams::Client, None) => None,
            (EarlierStreams::Client, Some(client)) => Some(self.hasher.hash_one((client, target))),
            (EarlierStreams::All, _) => Some(self.hasher.hash_one(target)),
        }
    }

    /// The same at an egress, which knows no names. An ingress by which each stream stands alone asks to keep none, and then none learns
    /// from another here.
    pub(crate) fn of_opening(&self, opening: &Opening) -> Option<u64> {
        let client = opening.client.map(|(client, _)| (client.ip(), None));
        self.of(client, &opening.target).filter(|_| opening.goes_on || opening.is_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Host;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn target(port: u16) -> Target {
        Target { host: Host::Ip(CLIENT), port }
    }

    #[test]
    fn streams_learn_from_those_of_the_same_client_and_name_to_the_same_target() {
        let topics = Topics::new(EarlierStreams::Client);
        let of = |name: Option<&[u8]>, port| topics.of(Some((CLIENT, name)), &target(port));
        assert!(of(None, 80).is_some());
        assert_eq!(of(Some(b"ada"), 80), of(Some(b"ada"), 80));
        let others = [of(None, 80), of(Some(b"ada"), 443), of(Some(b"eve"), 80)];
        assert!(others.iter().all(|&other| other != of(Some(b"ada"), 80)));
        let other = topics.of(Some(([192, 0, 2, 2].into(), None)), &target(80));
        assert_ne!(other, of(None, 80));
        assert_eq!(topics.of(None, &target(80)), None, "nobody knows whose it is");
        // From any, if there is only one user, and from none.
        let all = Topics::new(EarlierStreams::All);
        assert_eq!(all.of(None, &target(80)), all.of(Some((CLIENT, Some(b"ada"))), &target(80)));
        let none = Topics::new(EarlierStreams::None);
        assert_eq!(none.of(Some((CLIENT, None)), &target(80)), None);
    }

    #[test]
    fn an_egress_learns_nothing_where_streams_stand_alone() {
        let topics = Topics::new(EarlierStreams::Client);
        let client = Some(((CLIENT, 40_000).into(), (CLIENT, 80).into()));
        let alone = Opening { client, is_held: true, ..Opening::new(target(80)) };
        assert_eq!(topics.of_opening(&alone), None);
        let kept = Opening { is_kept: true, ..alone.clone() };
        let goes_on = Opening { goes_on: true, ..alone };
        assert!(topics.of_opening(&kept).is_some());
        assert_eq!(topics.of_opening(&kept), topics.of_opening(&goes_on));
    }
}
