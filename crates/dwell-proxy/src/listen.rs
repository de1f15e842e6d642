//! Sockets that listen.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::config::Listener;
use crate::engine::RunError;

/// As many clients as the kernel lets wait may wait to be accepted.
const QUEUE: i32 = 65_535;

pub(crate) fn listen(listener: &Listener) -> Result<StdTcpListener, RunError> {
    let transparent = matches!(listener, Listener::Transparent { .. });
    let help = match transparent {
        true => " (a transparent listener needs the capability CAP_NET_ADMIN; the others do not)",
        false => "",
    };
    bind_std(listener.listen(), transparent).map_err(|error| RunError::Listen {
        what: listener.to_string(),
        error,
        help,
    })
}

/// A listener for the runtime.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(bind_std(address, false)?)
}

/// A listening socket; a transparent one accepts what TPROXY brings, whatever address it was for. That
/// needs a capability now, and none later.
pub(crate) fn bind_std(address: SocketAddr, transparent: bool) -> io::Result<StdTcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if transparent && address.is_ipv6() {
        socket.set_ip_transparent_v6(true)?;
    } else if transparent {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(QUEUE)?;
    Ok(socket.into())
}

/// Returns true if a connection was meant for the listener itself.
pub(crate) fn is_own(to: SocketAddr, listen: SocketAddr) -> bool {
    to.ip() == listen.ip() || to.ip().is_loopback() || listen.ip().is_unspecified()
}
