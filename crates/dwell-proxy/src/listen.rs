//! Sockets that listen.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Listener;
use crate::engine::RunError;

/// As many clients as the kernel lets wait may wait to be accepted.
const QUEUE: i32 = 65_535;

pub(crate) fn listen(listener: &Listener) -> Result<StdTcpListener, RunError> {
    let transparent = matches!(listener, Listener::Transparent { .. });
    let option = match listener {
        Listener::Forward { .. } => "--forward",
        Listener::Socks { .. } => "--socks",
        Listener::Transparent { .. } => "--transparent",
    };
    let address = listener.listen();
    bind_std(address, transparent).map_err(|error| {
        let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
        let help = match transparent && !is_in_use {
            true => {
                " (a transparent listener needs the capability CAP_NET_ADMIN; the others do not)"
                    .to_owned()
            }
            false => help(&error, address, option),
        };
        RunError::Listen { what: listener.to_string(), error, help }
    })
}

/// A listener at an address that the option `--listen` says.
pub(crate) fn bind_listen(address: SocketAddr) -> Result<StdTcpListener, RunError> {
    bind_std(address, false).map_err(|error| {
        let help = help(&error, address, "--listen");
        RunError::Listen { what: address.to_string(), error, help }
    })
}

/// Says what to do about a port that can't be listened at, if that is known.
fn help(error: &io::Error, address: SocketAddr, option: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            ". Another program listens at port {port}, and `ss -ltnp 'sport = :{port}'` says which: end it, or choose \
             another port or address with {option}",
            port = address.port()
        ),
        _ => String::new(),
    }
}

/// A listening socket; a transparent one accepts what TPROXY brings, whatever address it was for. That
/// needs a capability now, and none later.
fn bind_std(address: SocketAddr, transparent: bool) -> io::Result<StdTcpListener> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socks::Users;

    #[test]
    fn who_has_a_port_can_be_found_out() {
        let taken = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let to = "db:5432".parse().unwrap();
        let socks = Listener::Socks { listen: at, users: Users::default() };
        let shown = format!("`ss -ltnp 'sport = :{}'`", at.port());
        for (refused, option) in [
            (bind_listen(at), "--listen"),
            (listen(&Listener::Forward { listen: at, to }), "--forward"),
            (listen(&socks), "--socks"),
        ] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains(&shown) && why.ends_with(option), "{why}");
        }
    }
}
