//! Routes as the kernel has them, and the one that it takes.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteType,
};
use rustix::io::Errno;

use super::{Route, RouteError, Routes, Target, errno, explain};

/// A route that is there, whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// The destination.
    pub prefix: IpNet,
    /// Zero if it has none.
    pub metric: u32,
    /// The routing table.
    pub table: u32,
    /// The origin of the route, by the kernel's numbers.
    pub protocol: u8,
    /// The treatment of its packets.
    pub kind: RouteKind,
    /// The interface that packets leave by, if it is one.
    pub ifindex: Option<u32>,
    /// The next router, if there is one.
    pub gateway: Option<IpAddr>,
    /// The relay that it belongs to, if it is an unreachable route of one.
    pub owner: Option<u32>,
}

/// The treatment of a route's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// They leave by an interface.
    Unicast,
    /// They are for this machine.
    Local,
    /// They are refused or dropped.
    Refusing,
    /// Broadcast, multicast and the like.
    Other,
}

/// Made by the kernel: the network of an interface's address.
const PROTOCOL_KERNEL: u8 = 2;

impl FoundRoute {
    /// Reads a route; none if it is of another family than IPv4 and IPv6.
    pub(super) fn of(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let any = match header.address_family {
            AddressFamily::Inet => IpAddr::from([0; 4]),
            AddressFamily::Inet6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        let (mut address, mut table) = (any, u32::from(header.table));
        let (mut metric, mut ifindex, mut gateway, mut owner) = (0, None, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(to) => address = ip(to)?,
                RouteAttribute::Priority(value) => metric = *value,
                RouteAttribute::Table(value) => table = *value,
                RouteAttribute::Oif(index) => ifindex = Some(*index),
                RouteAttribute::Gateway(via) => gateway = ip(via),
                RouteAttribute::Metrics(metrics) => {
                    owner = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Window(owner) => Some(*owner),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        let kind = match header.kind {
            RouteType::Unicast => RouteKind::Unicast,
            RouteType::Local => RouteKind::Local,
            RouteType::Unreachable | RouteType::Prohibit | RouteType::BlackHole => {
                RouteKind::Refusing
            }
            _ => RouteKind::Other,
        };
        let prefix = IpNet::new(address, header.destination_prefix_length).ok()?.trunc();
        let protocol = header.protocol.into();
        Some(Self { prefix, metric, table, protocol, kind, ifindex, gateway, owner })
    }

    /// Returns true if it is where routes are, unless somebody wants them elsewhere.
    pub fn is_in_main_table(&self) -> bool {
        self.table == u32::from(RouteHeader::RT_TABLE_MAIN)
    }

    /// Returns true if no other route of this prefix and metric can be added beside it.
    pub fn takes_place_of(&self, route: &Route) -> bool {
        self.is_in_main_table() && (self.prefix, self.metric) == (route.prefix, route.metric)
    }

    /// Returns true if its packets go where those of a relay's route go.
    pub fn serves_as(&self, route: &Route) -> bool {
        match route.target {
            Target::Interface(index) => {
                self.kind == RouteKind::Unicast && self.ifindex == Some(index)
            }
            Target::Unreachable { .. } => self.kind == RouteKind::Refusing,
        }
    }

    /// Returns true if it is the network of an address of this machine.
    pub fn is_own_network(&self) -> bool {
        self.kind == RouteKind::Unicast
            && self.protocol == PROTOCOL_KERNEL
            && self.gateway.is_none()
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

impl Routes {
    /// The route that a packet of this machine to `address` takes; none if it would be refused.
    ///
    /// # Errors
    /// The kernel doesn't answer.
    pub fn lookup(&self, address: IpAddr) -> Result<Option<FoundRoute>, RouteError> {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let mut message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, length)
            .expect("it is the length of an address of this family")
            .build();
        // The route itself, and not only where it leads.
        message.header.flags = RouteFlags::FibMatch | RouteFlags::LookupTable;
        let found = self.handle.route().get(message).execute();
        match self.runtime.block_on(async { std::pin::pin!(found).try_next().await }) {
            Ok(found) => {
                let found = found.as_ref().and_then(FoundRoute::of);
                Ok(found.filter(|route| route.kind != RouteKind::Refusing))
            }
            Err(error) if errno(&error).is_some_and(is_refusal) => Ok(None),
            Err(error) => Err(explain(&error, format!("look up the route to {address}"))),
        }
    }

    /// Calls `each` for every route of every table, IPv4 and IPv6.
    ///
    /// # Errors
    /// The kernel doesn't answer.
    pub fn list(&self, mut each: impl FnMut(FoundRoute)) -> Result<(), RouteError> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let mut found = std::pin::pin!(self.handle.route().get(message).execute());
            loop {
                match self.runtime.block_on(found.try_next()) {
                    Ok(Some(route)) => FoundRoute::of(&route).into_iter().for_each(&mut each),
                    Ok(None) => break,
                    Err(error) => return Err(explain(&error, "list the routes".to_owned())),
                }
            }
        }
        Ok(())
    }
}

/// Returns true if the kernel answers so for an address without a route, or with a refusing one.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::INVAL)
}
