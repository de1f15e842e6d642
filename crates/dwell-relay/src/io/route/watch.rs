//! Changes that others make to the machine's routes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

use super::{FoundRoute, RouteError};

/// Something that changed, whoever did it (this program too).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEvent {
    /// A route was added or replaced.
    Added(FoundRoute),
    /// A route was removed. Routes that go with their interface are not always reported.
    Removed(FoundRoute),
    /// An interface came, went or changed.
    Link {
        /// Its index.
        ifindex: u32,
        /// True if it is up now.
        is_up: bool,
    },
    /// A rule says which table is asked.
    Rule,
    /// There were more events than there was room for.
    Missed,
}

/// A socket that the kernel notifies of changes. It is readable when there are some.
pub struct RouteWatch {
    socket: Socket,
    buffer: Box<[u8]>,
}

/// No message of the kernel is longer.
const BUFFER_BYTES: usize = 64 << 10;
/// One call reads at most this many messages, or a flood of changes would stop the relay.
const READS_IN_A_ROW: usize = 32;
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

impl fmt::Debug for RouteWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteWatch").finish_non_exhaustive()
    }
}

impl RouteWatch {
    /// Watches from now on. This needs no privileges.
    ///
    /// # Errors
    /// Out of descriptors, or a kernel without rtnetlink.
    pub fn new() -> Result<Self, RouteError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            // A kernel without IPv6 has groups of it all the same.
            GROUPS.iter().try_for_each(|group| socket.add_membership(*group as u32))?;
            Ok(Self { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
        };
        open().map_err(|source| RouteError::Refused { action: "watch the routes".into(), source })
    }

    /// Calls `each` for what has happened. More may be left: the socket is readable then.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn read(&mut self, mut each: impl FnMut(RouteEvent)) -> io::Result<()> {
        for _ in 0..READS_IN_A_ROW {
            match rustix::io::read(&self.socket, &mut self.buffer[..]) {
                Ok(len) => events(&self.buffer[..len], &mut each),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => each(RouteEvent::Missed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl AsFd for RouteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads the messages that lie one after the other. What makes no sense is left out.
fn events(mut bytes: &[u8], each: &mut impl FnMut(RouteEvent)) {
    const HEADER_BYTES: usize = 16;
    while bytes.len() >= HEADER_BYTES {
        let len = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let Some(message) = bytes.get(..len).filter(|_| len >= HEADER_BYTES) else { return };
        if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
            && let Some(event) = event(&message.payload)
        {
            each(event);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn event(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Option<RouteEvent> {
    let NetlinkPayload::InnerMessage(message) = payload else { return None };
    Some(match message {
        RouteNetlinkMessage::NewRoute(route) => RouteEvent::Added(FoundRoute::of(route)?),
        RouteNetlinkMessage::DelRoute(route) => RouteEvent::Removed(FoundRoute::of(route)?),
        RouteNetlinkMessage::NewLink(link) => RouteEvent::Link {
            ifindex: link.header.index,
            is_up: link.header.flags.contains(LinkFlags::Up),
        },
        RouteNetlinkMessage::DelLink(link) => {
            RouteEvent::Link { ifindex: link.header.index, is_up: false }
        }
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => RouteEvent::Rule,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_messages_are_left_out() {
        let mut count = 0;
        for len in 0..40_u32 {
            for fill in [0_u8, 1, 24, 255] {
                let mut bytes = vec![fill; 40];
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                events(&bytes, &mut |_| count += 1);
                events(&bytes[..len as usize], &mut |_| count += 1);
            }
        }
        assert_eq!(count, 0);
    }
}
