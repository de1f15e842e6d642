//! Addresses, links and routes of this machine's network namespace, over rtnetlink.

mod found;
mod guard;
mod watch;

pub use found::{FoundRoute, RouteKind};
pub use guard::RouteGuard;
pub use watch::{RouteEvent, RouteWatch};

use std::fmt;
use std::io;
use std::net::IpAddr;

use futures_util::{Stream, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use rustix::io::Errno;
use thiserror::Error;
use tokio::runtime::Runtime;

/// Why the kernel's network configuration could not be changed.
#[derive(Debug, Error)]
pub enum RouteError {
    /// The process may not do this.
    #[error(
        "cannot {action}: this needs CAP_NET_ADMIN: run as root, or give it to the program \
         (setcap cap_net_admin+ep, or AmbientCapabilities= in a systemd unit)"
    )]
    Permission {
        /// The action that failed.
        action: String,
    },
    /// There is such a route already, perhaps to somewhere else. It was left alone.
    #[error(
        "there is already a route to {prefix} with metric {metric}: remove it, or choose \
         another metric"
    )]
    RouteExists {
        /// The destination.
        prefix: IpNet,
        /// With which metric.
        metric: u32,
    },
    /// There is no such interface.
    #[error("cannot {action}: there is no such interface")]
    NoInterface {
        /// The action that failed.
        action: String,
    },
    /// Anything else that the kernel refuses.
    #[error("cannot {action}: {source}")]
    Refused {
        /// The action that failed.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// The changes that [`Routes::set_link`] makes to an interface; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Largest packet, in bytes.
    pub mtu: Option<u32>,
    /// True if it is up.
    pub up: Option<bool>,
    /// Packets that wait in the kernel (for a TUN interface: the ring that we read from).
    pub txqueuelen: Option<u32>,
    /// Most segments of one super-packet that the kernel hands to the interface.
    pub gso_max_segs: Option<u32>,
}

/// Changes the network configuration; every call waits until the kernel has answered.
///
/// It belongs to the network namespace of the thread that made it. Not for use inside an
/// async runtime.
pub struct Routes {
    runtime: Runtime,
    handle: Handle,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes {
    /// Connects to the kernel. This needs no privileges; most calls do.
    ///
    /// # Errors
    /// Out of descriptors, or a kernel without rtnetlink.
    pub fn new() -> Result<Self, RouteError> {
        let refused = |source| RouteError::Refused { action: "open rtnetlink".into(), source };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(refused)?;
        let entered = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection().map_err(refused)?;
        drop(entered);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// The index of the interface called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn link_index(&self, name: &str) -> Result<u32, RouteError> {
        Ok(self.link(name)?.header.index)
    }

    /// Returns the kind of the interface called `name`, as `ip -details link` shows it: `"veth"`,
    /// `"bridge"`; none for a device.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn link_kind(&self, name: &str) -> Result<Option<String>, RouteError> {
        Ok(self.link(name)?.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
                LinkInfo::Kind(kind) => Some(kind.to_string()),
                _ => None,
            }),
            _ => None,
        }))
    }

    fn link(&self, name: &str) -> Result<LinkMessage, RouteError> {
        let links = self.handle.link().get().match_name(name.to_owned()).execute();
        self.first_link(links, || format!("look up interface {name}"))
    }

    /// The name of an interface, and whether it is up.
    ///
    /// # Errors
    /// There is no interface with this index.
    pub fn link_name(&self, ifindex: u32) -> Result<(String, bool), RouteError> {
        let action = || format!("look up interface {ifindex}");
        let link =
            self.first_link(self.handle.link().get().match_index(ifindex).execute(), action)?;
        let name = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        Ok((name.unwrap_or_default(), link.header.flags.contains(LinkFlags::Up)))
    }

    fn first_link(
        &self,
        links: impl Stream<Item = Result<LinkMessage, rtnetlink::Error>>,
        action: impl Fn() -> String,
    ) -> Result<LinkMessage, RouteError> {
        match self.runtime.block_on(async { std::pin::pin!(links).try_next().await }) {
            Ok(Some(link)) => Ok(link),
            Ok(None) => Err(RouteError::NoInterface { action: action() }),
            Err(error) => Err(explain(&error, action())),
        }
    }

    /// Gives addresses to an interface. IPv6 addresses work at once: on an interface
    /// without neighbours there is nobody to detect duplicates of.
    ///
    /// # Errors
    /// At the first address that the kernel refuses; those before it stay.
    pub fn add_addresses(&self, ifindex: u32, addresses: &[IpNet]) -> Result<(), RouteError> {
        for net in addresses {
            let mut request = self.handle.address().add(ifindex, net.addr(), net.prefix_len());
            if net.addr().is_ipv6() {
                let message = request.message_mut();
                message.header.flags |= AddressHeaderFlags::Nodad;
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            self.runtime
                .block_on(request.execute())
                .map_err(|error| explain(&error, format!("add address {net}")))?;
        }
        Ok(())
    }

    /// Changes an interface.
    ///
    /// # Errors
    /// No such interface, no privilege, or a value that the interface does not take.
    pub fn set_link(&self, ifindex: u32, settings: &LinkSettings) -> Result<(), RouteError> {
        let mut link = LinkUnspec::new_with_index(ifindex);
        if let Some(mtu) = settings.mtu {
            link = link.mtu(mtu);
        }
        if let Some(packets) = settings.txqueuelen {
            link = link.txqueuelen(packets);
        }
        if let Some(segments) = settings.gso_max_segs {
            link = link.append_extra_attribute(LinkAttribute::GsoMaxSegs(segments));
        }
        link = match settings.up {
            Some(true) => link.up(),
            Some(false) => link.down(),
            None => link,
        };
        self.change_link(link.build(), || format!("set {settings:?} on interface {ifindex}"))
    }

    /// Stops the kernel from making up an IPv6 link-local address for the interface, and
    /// with it from sending router solicitations into a tunnel. To be called before the
    /// interface is up.
    ///
    /// # Errors
    /// Also if the machine has no IPv6: nothing is lost then.
    pub fn forbid_link_local(&self, ifindex: u32) -> Result<(), RouteError> {
        let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let spec = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]);
        let link = LinkUnspec::new_with_index(ifindex).append_extra_attribute(spec);
        self.change_link(link.build(), || format!("forbid link-local addresses on {ifindex}"))
    }

    fn change_link(
        &self,
        message: LinkMessage,
        action: impl Fn() -> String,
    ) -> Result<(), RouteError> {
        self.runtime
            .block_on(self.handle.link().set(message).execute())
            .map_err(|error| explain(&error, action()))
    }

    /// Adds a route to the main table, under this program's [`PROTOCOL`]. Metric 0 is the kernel's
    /// default (for IPv6 that is 1024). Lower metrics win.
    ///
    /// # Errors
    /// [`RouteError::RouteExists`] if the prefix has a route of this metric: nothing is
    /// ever replaced.
    pub fn add_route(&self, route: Route) -> Result<(), RouteError> {
        let Route { prefix, metric, .. } = route;
        match self.runtime.block_on(self.handle.route().add(message(route)).execute()) {
            Ok(()) => Ok(()),
            Err(error) if errno(&error) == Some(Errno::EXIST) => {
                Err(RouteError::RouteExists { prefix, metric })
            }
            Err(error) => Err(explain(&error, format!("add a route to {prefix}"))),
        }
    }

    /// Removes a route that [`add_route`](Self::add_route) added. That it (or its
    /// interface) has gone in the meantime is no error. Routes of other programs are left alone.
    ///
    /// # Errors
    /// No privilege.
    pub fn delete_route(&self, route: Route) -> Result<(), RouteError> {
        match self.runtime.block_on(self.handle.route().del(message(route)).execute()) {
            Ok(()) => Ok(()),
            Err(error) if matches!(errno(&error), Some(Errno::SRCH | Errno::NODEV)) => Ok(()),
            Err(error) => Err(explain(&error, format!("remove the route to {}", route.prefix))),
        }
    }
}

/// Marks the routes of this program, beside the kernel's own and those of routing daemons: the
/// `proto` of `ip route`.
pub const PROTOCOL: u8 = 77;

/// A route of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination; host bits are zero.
    pub prefix: IpNet,
    /// Of the routes to a prefix the one with the lowest wins.
    pub metric: u32,
    /// The target of its packets.
    pub target: Target,
}

/// The target of a route's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the interface with this index. Such a route goes with its interface.
    Interface(u32),
    /// Nowhere: senders are notified that the destination is unreachable. Such a route stays until it
    /// is removed, also when the relay is dead.
    Unreachable {
        /// Which relay it belongs to. The kernel keeps it with the route (as a TCP window, which
        /// nothing else uses there).
        owner: u32,
    },
}

impl Route {
    /// A route to `prefix`, whose host bits don't matter.
    pub fn new(prefix: IpNet, metric: u32, target: Target) -> Self {
        Self { prefix: prefix.trunc(), metric, target }
    }

    /// Returns true if it leads into an interface.
    pub fn is_interface(&self) -> bool {
        matches!(self.target, Target::Interface(_))
    }
}

fn message(route: Route) -> RouteMessage {
    let builder = RouteMessageBuilder::<IpAddr>::new().protocol(RouteProtocol::Other(PROTOCOL));
    let mut builder = match route.target {
        Target::Interface(index) => {
            let is_v4 = route.prefix.addr().is_ipv4();
            let scope = if is_v4 { RouteScope::Link } else { RouteScope::Universe };
            builder.output_interface(index).scope(scope)
        }
        Target::Unreachable { owner } => {
            let mut builder = builder.kind(RouteType::Unreachable);
            let mark = RouteAttribute::Metrics(vec![RouteMetric::Window(owner)]);
            builder.get_mut().attributes.push(mark);
            builder
        }
    };
    if route.metric != 0 {
        builder = builder.priority(route.metric);
    }
    builder
        .destination_prefix(route.prefix.addr(), route.prefix.prefix_len())
        .expect("an IpNet's prefix length fits its family")
        .build()
}

fn errno(error: &rtnetlink::Error) -> Option<Errno> {
    match error {
        rtnetlink::Error::NetlinkError(message) => {
            Some(Errno::from_raw_os_error(message.raw_code().abs()))
        }
        _ => None,
    }
}

fn explain(error: &rtnetlink::Error, action: String) -> RouteError {
    match errno(error) {
        Some(Errno::PERM | Errno::ACCESS) => RouteError::Permission { action },
        Some(Errno::NODEV) => RouteError::NoInterface { action },
        Some(errno) => RouteError::Refused { action, source: errno.into() },
        None => RouteError::Refused { action, source: io::Error::other(error.to_string()) },
    }
}
