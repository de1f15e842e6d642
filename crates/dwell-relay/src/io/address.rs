//! The addresses of this machine, as the kernel lists them.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use rtnetlink::Handle;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::LinkFlags;

/// Returns the addresses at which other machines may reach this one, in the order of its
/// interfaces: those of interfaces that are up, without loopback, link-local addresses and those
/// that are not in use (yet, or any longer). Needs no privileges.
///
/// # Errors
/// Out of descriptors, or a kernel without rtnetlink.
pub fn reachable_addresses() -> io::Result<Vec<IpAddr>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let driver = tokio::spawn(connection);
        let listed = list(&handle).await.map_err(|error| io::Error::other(error.to_string()));
        driver.abort();
        listed
    })
}

async fn list(handle: &Handle) -> Result<Vec<IpAddr>, rtnetlink::Error> {
    let links: Vec<_> = handle.link().get().execute().try_collect().await?;
    let up: HashSet<u32> = links
        .iter()
        .filter(|link| link.header.flags.contains(LinkFlags::Up))
        .filter(|link| !link.header.flags.contains(LinkFlags::Loopback))
        .map(|link| link.header.index)
        .collect();
    let mut messages: Vec<_> = handle.address().get().execute().try_collect().await?;
    messages.sort_by_key(|message| message.header.index);
    let usable = messages.iter().filter(|message| up.contains(&message.header.index));
    Ok(usable.filter_map(reachable).collect())
}

/// The address that a message is about, if others can use it.
fn reachable(message: &AddressMessage) -> Option<IpAddr> {
    let unusable = AddressHeaderFlags::Tentative
        | AddressHeaderFlags::Dadfailed
        | AddressHeaderFlags::Deprecated;
    let scope = message.header.scope;
    if message.header.flags.intersects(unusable)
        || !matches!(scope, AddressScope::Universe | AddressScope::Site)
    {
        return None;
    }
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            // Its own, where the other attribute is that of the other end of a tunnel.
            AddressAttribute::Local(local) => return Some(*local),
            AddressAttribute::Address(either) => address = Some(*either),
            _ => {}
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(scope: AddressScope, flags: AddressHeaderFlags) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.scope = scope;
        message.header.flags = flags;
        message.attributes.push(AddressAttribute::Address([10, 0, 0, 2].into()));
        message
    }

    #[test]
    fn only_addresses_that_others_can_use_are_listed() {
        let none = AddressHeaderFlags::empty();
        let mut tunnel = message(AddressScope::Universe, AddressHeaderFlags::Permanent);
        assert_eq!(reachable(&tunnel), Some([10, 0, 0, 2].into()));
        tunnel.attributes.push(AddressAttribute::Local([10, 0, 0, 1].into()));
        assert_eq!(reachable(&tunnel), Some([10, 0, 0, 1].into()));
        assert_eq!(reachable(&message(AddressScope::Host, none)), None);
        assert_eq!(reachable(&message(AddressScope::Link, none)), None);
        let tentative = message(AddressScope::Universe, AddressHeaderFlags::Tentative);
        assert_eq!(reachable(&tentative), None);
    }

    #[test]
    fn loopback_is_not_listed() {
        for address in reachable_addresses().unwrap() {
            assert!(!address.is_loopback() && !address.is_unspecified(), "{address}");
        }
    }
}
