//! The sockets of a stream of datagrams: towards a SOCKS client at the ingress, towards targets at the egress.
//!
//! What finds no room is dropped, as UDP has it.

use std::collections::HashMap;
use std::future::Future as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use crate::allow::{Access, AllowList};
use crate::datagrams::{self, DATAGRAM_BYTES_MAX, Datagrams};
use crate::names;
use crate::target::{Host, Target};

/// Addresses that one client may be in touch with: as many as a table of some 12 KB holds, since nobody accounts for
/// them. One more takes the place of the one that was sent nothing for the longest.
const CONTACTS_MAX: usize = 224;
/// Names that are remembered, and for how long.
const NAMES_MAX: usize = 16;
const NAME_TIME: Duration = Duration::from_secs(60);
/// The longest that a name's datagrams, and those behind them, wait for its address.
const LOOK_UP_TIME: Duration = Duration::from_secs(5);

/// Bytes for whoever reads, until they are read.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    at: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Gives out what fits.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let len = (self.bytes.len() - self.at).min(buffer.remaining());
        buffer.put_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

/// The datagrams of one SOCKS client.
#[derive(Debug)]
pub(crate) struct Association {
    socket: UdpSocket,
    /// The connection with which it lives.
    control: TcpStream,
    /// Nobody else may send.
    client_ip: IpAddr,
    /// The client's address, once it has sent something, or before if it has said it.
    client: Option<SocketAddr>,
    coming: Datagrams,
    pending: Pending,
    is_over: bool,
}

impl Association {
    /// Makes a socket beside a client's connection. The second is the address that the client is to send to. What
    /// the client has said of its own is held against `from`, where its connection comes from: if that is the same
    /// host, no other of its programs may send; behind an address translation it would be another port.
    pub(crate) async fn new(
        control: TcpStream,
        from: SocketAddr,
        said: Option<SocketAddr>,
    ) -> Result<(Self, SocketAddr), (TcpStream, io::Error)> {
        let (socket, address) = match socket_beside(&control).await {
            Ok(made) => made,
            Err(error) => return Err((control, error)),
        };
        let client_ip = from.ip().to_canonical();
        let association = Self {
            socket,
            control,
            client_ip,
            client: said.filter(|said| said.ip().to_canonical() == client_ip),
            coming: Datagrams::default(),
            pending: Pending::default(),
            is_over: false,
        };
        Ok((association, address))
    }

    /// The connection, to say something to the client before the first datagram.
    pub(crate) const fn control(&mut self) -> &mut TcpStream {
        &mut self.control
    }

    /// Gives the connection back.
    pub(crate) fn into_control(self) -> TcpStream {
        self.control
    }

    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (socket, control) = (self.socket.poll_recv_ready(cx), self.control.poll_read_ready(cx));
        let is_ready = self.is_over || socket.is_ready() || control.is_ready();
        if is_ready || !self.pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Nothing is read, for good, once the client has closed its connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.pending.is_empty() && self.poll_is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = Vec::new();
        while self.pending.is_empty() {
            bytes.resize(DATAGRAM_BYTES_MAX, 0);
            let mut datagram = ReadBuf::new(&mut bytes);
            let from = match ready!(self.socket.poll_recv_from(cx, &mut datagram)) {
                Ok(from) => from,
                // Nobody listens at the client's address any more: its connection says whether it is there.
                Err(_) => continue,
            };
            let is_same = |client: SocketAddr| {
                client.port() == from.port() && client.ip().to_canonical() == self.client_ip
            };
            let is_client =
                from.ip().to_canonical() == self.client_ip && self.client.is_none_or(is_same);
            if let (true, Some((target, payload))) =
                (is_client, datagrams::from_client(datagram.filled()))
            {
                self.client = Some(from);
                datagrams::encode(&target, payload, &mut self.pending.bytes);
            }
        }
        self.pending.give(buffer);
        Poll::Ready(Ok(()))
    }

    /// The client says nothing on its connection, but its end.
    fn poll_is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0; 64];
        while !self.is_over {
            let mut buffer = ReadBuf::new(&mut byte);
            match Pin::new(&mut self.control).poll_read(cx, &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => self.is_over = true,
            }
        }
        true
    }

    pub(crate) fn poll_write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        while taken < bytes.len() {
            taken += self.coming.feed(&bytes[taken..]);
            let Some((from, payload)) = self.coming.complete().map_err(io::Error::other)? else {
                continue;
            };
            if let Some(client) = self.client {
                send_now(&self.socket, &datagrams::for_client(&from, payload), client);
            }
            self.coming.advance();
        }
        Poll::Ready(Ok(taken))
    }

    /// Returns the bytes that it holds of a datagram from the other end.
    pub(crate) fn held(&self) -> usize {
        self.coming.held()
    }

    /// The egress has no more: neither has the client then.
    pub(crate) fn shut_down(&mut self) -> Poll<io::Result<()>> {
        self.is_over = true;
        Poll::Ready(Ok(()))
    }
}

/// Makes a socket at the address that a client has connected to, and notices if that client goes without a word.
async fn socket_beside(control: &TcpStream) -> io::Result<(UdpSocket, SocketAddr)> {
    crate::carrier::tune(control, false)?;
    let mut at = control.local_addr()?;
    at.set_port(0);
    let socket = UdpSocket::bind(at).await?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// The datagrams of one client on their way to targets.
#[derive(Debug)]
pub(crate) struct Outlet {
    sockets: [Option<UdpSocket>; 2],
    allow: Arc<AllowList>,
    /// Who may answer, and when something was sent there last.
    contacts: HashMap<SocketAddr, Instant>,
    names: HashMap<Target, (Option<SocketAddr>, Instant)>,
    /// The name that is being looked up. Meanwhile the others wait.
    looking: Option<(Target, JoinHandle<Option<SocketAddr>>)>,
    coming: Datagrams,
    pending: Pending,
    /// Whoever waits for something to read, before there is a socket.
    reader: Option<Waker>,
    /// The socket that is read first: the other one than last, so that neither keeps the other waiting.
    first: usize,
    is_over: bool,
}

impl Outlet {
    pub(crate) fn new(allow: Arc<AllowList>) -> Self {
        Self {
            sockets: [None, None],
            allow,
            contacts: HashMap::new(),
            names: HashMap::new(),
            looking: None,
            coming: Datagrams::default(),
            pending: Pending::default(),
            reader: None,
            first: 0,
            is_over: false,
        }
    }

    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wait(cx);
        let is_ready = self
            .sockets
            .iter()
            .flatten()
            .fold(false, |is_ready, socket| is_ready | socket.poll_recv_ready(cx).is_ready());
        let is_ready = is_ready || self.is_over || !self.pending.is_empty();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wait(cx);
        if self.pending.is_empty() && !self.is_over {
            ready!(self.poll_receive(cx));
        }
        self.pending.give(buffer);
        Poll::Ready(Ok(()))
    }

    /// Notes who waits, and sends what has waited for a name.
    fn wait(&mut self, cx: &mut Context<'_>) {
        self.reader = Some(cx.waker().clone());
        let _ = self.poll_look_up(cx);
    }

    /// Until a datagram has come from somebody that one was sent to.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
        self.first ^= 1;
        for at in [self.first, self.first ^ 1] {
            let Some(socket) = &self.sockets[at] else { continue };
            loop {
                let mut datagram = ReadBuf::new(&mut bytes);
                let from = match socket.poll_recv_from(cx, &mut datagram) {
                    Poll::Pending => break,
                    // Nobody listens where something was sent: that is all that is known.
                    Poll::Ready(Err(_)) => continue,
                    Poll::Ready(Ok(from)) => from,
                };
                let is_known = self.contacts.contains_key(&from);
                let from = Target::at(from);
                if is_known && datagrams::encode(&from, datagram.filled(), &mut self.pending.bytes)
                {
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        while taken < bytes.len() {
            let looks_up = self.poll_look_up(cx).is_pending();
            if looks_up && taken == 0 {
                return Poll::Pending;
            } else if looks_up {
                break;
            }
            let fed = self.coming.feed(&bytes[taken..]);
            let Some((target, _)) = self.coming.complete().map_err(io::Error::other)? else {
                taken += fed;
                continue;
            };
            taken += fed;
            match self.address(&target) {
                Known::Yes(address) => self.send(address),
                Known::No => self.coming.advance(),
                Known::NotYet => {
                    let _ = self.poll_look_up(cx);
                }
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Sends the datagram that is complete.
    fn send(&mut self, address: SocketAddr) {
        let is_known = self.contacts.contains_key(&address);
        if !is_known && self.contacts.len() >= CONTACTS_MAX {
            let oldest = self.contacts.iter().min_by_key(|&(_, at)| at).map(|(at, _)| *at);
            oldest.map(|oldest| self.contacts.remove(&oldest));
        }
        self.contacts.insert(address, Instant::now());
        let has_socket = self.sockets[usize::from(address.is_ipv6())].is_some();
        if let (Some(socket), Ok(Some((_, payload)))) =
            (socket_for(&mut self.sockets, address), self.coming.complete())
        {
            send_now(socket, payload, address);
        }
        if !has_socket && let Some(reader) = self.reader.take() {
            // There is something to wait for now.
            reader.wake();
        }
        self.coming.advance();
    }

    /// Returns where a datagram may go, as far as it is known.
    fn address(&mut self, target: &Target) -> Known {
        let access = self.allow.check(&target.host, target.port);
        let name = match (&target.host, access) {
            (_, Access::No) => return Known::No,
            (Host::Ip(ip), _) => return Known::Yes(SocketAddr::new(*ip, target.port)),
            (Host::Name(name), _) => name.clone(),
        };
        if let Some((address, at)) = self.names.get(target)
            && at.elapsed() < NAME_TIME
        {
            return address.map_or(Known::No, Known::Yes);
        }
        let (allow, port) = (Arc::clone(&self.allow), target.port);
        let look_up = async move {
            let found = tokio::time::timeout(LOOK_UP_TIME, names::look_up(name, port)).await;
            found.ok()?.ok()?.into_iter().find(|address| {
                access == Access::Yes || allow.allows_address(address.ip(), address.port())
            })
        };
        self.looking = Some((target.clone(), tokio::spawn(look_up)));
        Known::NotYet
    }

    /// Ready unless a name is being looked up; sends what has waited for it.
    fn poll_look_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((target, looking)) = &mut self.looking else { return Poll::Ready(()) };
        let found = ready!(Pin::new(looking).poll(cx)).ok().flatten();
        let target = target.clone();
        self.looking = None;
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(target, (found, Instant::now()));
        match found {
            Some(address) => self.send(address),
            None => self.coming.advance(),
        }
        Poll::Ready(())
    }

    /// Returns the bytes that it holds of a datagram from the other end.
    pub(crate) fn held(&self) -> usize {
        self.coming.held()
    }

    /// The client has gone.
    pub(crate) fn shut_down(&mut self) -> Poll<io::Result<()>> {
        self.is_over = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if let Some((_, looking)) = &self.looking {
            looking.abort();
        }
    }
}

/// Sends a datagram, if the kernel has room for it. (The runtime learns only later that a new socket has.)
fn send_now(socket: &UdpSocket, payload: &[u8], to: SocketAddr) {
    let _ = SockRef::from(socket).send_to(payload, &to.into());
}

/// Whether an address is known.
enum Known {
    Yes(SocketAddr),
    /// There is none, or it is not allowed.
    No,
    NotYet,
}

/// Returns the socket for addresses of this kind; none if the system gives none.
fn socket_for(sockets: &mut [Option<UdpSocket>; 2], address: SocketAddr) -> Option<&UdpSocket> {
    let socket = &mut sockets[usize::from(address.is_ipv6())];
    if socket.is_none() {
        let any: IpAddr = match address.is_ipv6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let bound = std::net::UdpSocket::bind((any, 0)).ok()?;
        bound.set_nonblocking(true).ok()?;
        *socket = UdpSocket::from_std(bound).ok();
    }
    socket.as_ref()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::allow::Rule;

    /// Something that listens, and an outlet that may reach it under both names.
    async fn outlet() -> (UdpSocket, Outlet, u16) {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let rule = |host: &str| format!("{host}:{port}").parse::<Rule>().unwrap();
        let rules = vec![rule("localhost"), rule("nobody.invalid")];
        (server, Outlet::new(Arc::new(AllowList::new(rules))), port)
    }

    fn datagram(host: &str, port: u16, payload: &[u8]) -> Vec<u8> {
        let (target, mut bytes) = (format!("{host}:{port}").parse().unwrap(), Vec::new());
        assert!(datagrams::encode(&target, payload, &mut bytes));
        bytes
    }

    /// Writes all of it, as far as it is taken, and what waits for names behind it.
    async fn write(outlet: &mut Outlet, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = poll_fn(|cx| outlet.poll_write(cx, bytes)).await.unwrap();
            bytes = &bytes[taken..];
        }
        poll_fn(|cx| outlet.poll_look_up(cx)).await;
    }

    #[tokio::test]
    async fn names_are_looked_up_and_those_without_an_address_lose_their_datagrams_only() {
        let (server, mut outlet, port) = outlet().await;
        let all = [
            datagram("localhost", port, b"one"),
            datagram("nobody.invalid", port, b"lost"),
            // Not on the list.
            datagram("localhost", 1, b"not allowed"),
            datagram("127.0.0.1", port, b"not under this name"),
            datagram("localhost", port, b"two"),
        ];
        write(&mut outlet, &all.concat()).await;
        for expected in [&b"one"[..], b"two"] {
            let mut got = [0; 100];
            let (len, from) = server.recv_from(&mut got).await.unwrap();
            assert_eq!(&got[..len], expected);
            server.send_to(b"answer", from).await.unwrap();
        }
        assert_eq!(outlet.names.len(), 2, "it is known for a while that there is none");
        let mut bytes = [0; 100];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|cx| outlet.poll_read(cx, &mut buffer)).await.unwrap();
        let mut came = Datagrams::default();
        let mut at = 0;
        while at < buffer.filled().len() {
            at += came.feed(&buffer.filled()[at..]);
        }
        let (from, payload) = came.complete().unwrap().unwrap();
        assert_eq!((from.port, payload), (port, &b"answer"[..]));
    }

    /// What is held of a datagram is seen by who accounts for memory, and nothing is when it has gone.
    #[tokio::test]
    async fn a_part_of_a_datagram_is_accounted_for() {
        let (server, mut outlet, port) = outlet().await;
        let bytes = datagram("localhost", port, &[7; 30_000]);
        let (begin, end) = bytes.split_at(20_000);
        assert_eq!(outlet.held(), 0);
        write(&mut outlet, begin).await;
        assert!(outlet.held() >= begin.len(), "{}", outlet.held());
        write(&mut outlet, end).await;
        assert_eq!(outlet.held(), 0);
        let mut got = vec![0; 65_536];
        assert_eq!(server.recv(&mut got).await.unwrap(), 30_000);
    }
}
