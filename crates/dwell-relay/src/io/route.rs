//! Addresses, links and routes of this machine's network namespace, over rtnetlink.

use std::fmt;
use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage,
};
use rtnetlink::packet_route::route::{RouteMessage, RouteScope};
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
        /// What was attempted.
        action: String,
    },
    /// There is such a route already, perhaps to somewhere else. It was left alone.
    #[error(
        "there is already a route to {prefix} with metric {metric}: remove it, or choose \
         another metric"
    )]
    RouteExists {
        /// Where to.
        prefix: IpNet,
        /// With which metric.
        metric: u32,
    },
    /// There is no such interface.
    #[error("cannot {action}: there is no such interface")]
    NoInterface {
        /// What was attempted.
        action: String,
    },
    /// Anything else that the kernel refuses.
    #[error("cannot {action}: {source}")]
    Refused {
        /// What was attempted.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// What [`Routes::set_link`] changes about an interface; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Largest packet, in bytes.
    pub mtu: Option<u32>,
    /// Whether it is up.
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
        let links = self.handle.link().get().match_name(name.to_owned()).execute();
        let found = self.runtime.block_on(async { std::pin::pin!(links).try_next().await });
        let action = || format!("look up interface {name}");
        match found {
            Ok(Some(link)) => Ok(link.header.index),
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

    /// Sends `prefix` into an interface, in the main table. Metric 0 is the kernel's
    /// default (for IPv6 that is 1024). Lower metrics win.
    ///
    /// # Errors
    /// [`RouteError::RouteExists`] if the prefix has a route of this metric: nothing is
    /// ever replaced.
    pub fn add_route(&self, prefix: IpNet, ifindex: u32, metric: u32) -> Result<(), RouteError> {
        let request = self.handle.route().add(route(prefix, ifindex, metric));
        match self.runtime.block_on(request.execute()) {
            Ok(()) => Ok(()),
            Err(error) if errno(&error) == Some(Errno::EXIST) => {
                Err(RouteError::RouteExists { prefix: prefix.trunc(), metric })
            }
            Err(error) => Err(explain(&error, format!("add a route to {}", prefix.trunc()))),
        }
    }

    /// Removes a route that [`add_route`](Self::add_route) added. That it (or its
    /// interface) has gone in the meantime is no error.
    ///
    /// # Errors
    /// No privilege.
    pub fn delete_route(&self, prefix: IpNet, ifindex: u32, metric: u32) -> Result<(), RouteError> {
        let request = self.handle.route().del(route(prefix, ifindex, metric));
        match self.runtime.block_on(request.execute()) {
            Ok(()) => Ok(()),
            Err(error) if matches!(errno(&error), Some(Errno::SRCH | Errno::NODEV)) => Ok(()),
            Err(error) => Err(explain(&error, format!("remove the route to {}", prefix.trunc()))),
        }
    }
}

/// Routes that live as long as this value: what it added, it removes when it is dropped.
#[derive(Debug)]
pub struct RouteGuard {
    routes: Routes,
    added: Vec<(IpNet, u32, u32)>,
}

impl RouteGuard {
    /// A guard of no routes yet.
    pub fn new(routes: Routes) -> Self {
        Self { routes, added: Vec::new() }
    }

    /// As [`Routes::add_route`], remembered.
    ///
    /// # Errors
    /// As [`Routes::add_route`].
    pub fn add(&mut self, prefix: IpNet, ifindex: u32, metric: u32) -> Result<(), RouteError> {
        self.routes.add_route(prefix, ifindex, metric)?;
        self.added.push((prefix, ifindex, metric));
        Ok(())
    }

    /// Removes a route now. Routes that this guard did not add are left alone.
    ///
    /// # Errors
    /// As [`Routes::delete_route`]; the route is then still remembered.
    pub fn remove(&mut self, prefix: IpNet, ifindex: u32, metric: u32) -> Result<(), RouteError> {
        let route = (prefix, ifindex, metric);
        if self.added.contains(&route) {
            self.routes.delete_route(prefix, ifindex, metric)?;
            self.added.retain(|present| *present != route);
        }
        Ok(())
    }

    /// The routes that stand: prefix, interface and metric.
    pub fn added(&self) -> &[(IpNet, u32, u32)] {
        &self.added
    }

    /// For other changes over the same connection.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Leaves the routes standing when the guard is dropped.
    pub fn keep(&mut self) {
        self.added.clear();
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        for (prefix, ifindex, metric) in self.added.drain(..).rev() {
            // Nobody is left to tell. Routes through a TUN interface go with it anyway.
            let _ = self.routes.delete_route(prefix, ifindex, metric);
        }
    }
}

fn route(prefix: IpNet, ifindex: u32, metric: u32) -> RouteMessage {
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .output_interface(ifindex)
        .scope(if prefix.addr().is_ipv4() { RouteScope::Link } else { RouteScope::Universe });
    if metric != 0 {
        builder = builder.priority(metric);
    }
    let prefix = prefix.trunc();
    builder
        .destination_prefix(prefix.addr(), prefix.prefix_len())
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
