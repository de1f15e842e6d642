//! What a stream leaves to the next one on its connection: to what its blocks could refer, and what its sender has learned.
//!
//! Both ends hold it while there is no stream, if both have room for it, and only the ingress decides which stream makes
//! use of it: it knows whose it was.

use std::net::IpAddr;

use dwell_stream::{Receiver, Sender};
use tokio::sync::OwnedSemaphorePermit;

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
