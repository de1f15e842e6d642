//! UDP sockets that carry many datagrams per system call.
//!
//! A listener and any number of connected sockets may share one local port: the kernel
//! gives a datagram to the socket that is connected to its sender, and to the listener if
//! there is none. In the short time between the making of a connected socket and its being
//! connected it may be given datagrams of others; that is why [`UdpPort::recv`] names the
//! sender of each even there.
//!
//! They share it only among sockets of one user, which is the user who made the socket. So all of
//! a relay's sockets are made by the user that the relay remains.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Ipv6DontFrag;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, MsgHdr, Protocol, SockAddr, Socket, Type};

/// Most datagrams in one system call (the kernel's `UDP_MAX_SEGMENTS` of old).
pub const SEGMENTS_MAX: usize = 64;

/// Most bytes in one system call, whatever the family: an IP packet's 65535 without headers.
const CONTENTS_MAX: usize = 65_535 - 48;

/// One buffer holds what the kernel coalesces at most.
const SLOT_LEN: usize = 65_536;

/// The outcome of sending datagrams.
#[derive(Debug)]
pub enum SendOutcome {
    /// The kernel has them all.
    Sent,
    /// The send buffer is full: the link is busy. The kernel has the first `accepted`
    /// bytes; send the rest when the port is writable.
    WouldBlock {
        /// Bytes of the contents not to be sent again.
        accepted: usize,
    },
    /// Larger than the path takes. The kernel has the first `accepted` bytes (none, unless
    /// the path changed just now); the rest is to be cut smaller.
    TooBig {
        /// Bytes of the contents not to be sent again.
        accepted: usize,
        /// The path's MTU, IP header included, if the port is connected.
        mtu: Option<usize>,
    },
    /// These datagrams are lost: nobody listens at the other end, no route leads there, a
    /// filter forbids it. Later ones may get through.
    Refused(io::Error),
    /// The port is of no use any more.
    Fatal(io::Error),
}

impl SendOutcome {
    /// Returns true if the kernel took everything.
    pub fn is_sent(&self) -> bool {
        matches!(self, Self::Sent)
    }
}

/// A non-blocking UDP socket, with segmentation offload where the kernel has it.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    receiver: UdpSocketState,
    connected: bool,
    ip_and_udp_headers: usize,
    segments: AtomicBool,
}

impl UdpPort {
    /// A port that receives from everybody (of the address' family only), and can
    /// [`send_to`](Self::send_to) anybody. Buffer sizes are in bytes, `None` for the
    /// system's.
    ///
    /// # Errors
    /// The address is not of this machine, or taken by another program.
    pub fn bind(
        local: SocketAddr,
        sndbuf: Option<usize>,
        rcvbuf: Option<usize>,
    ) -> io::Result<Self> {
        Self::open(local, None, sndbuf, rcvbuf)
    }

    /// A port that receives only from `peer`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); also if no route leads to the peer.
    pub fn connect(
        local: SocketAddr,
        peer: SocketAddr,
        sndbuf: Option<usize>,
        rcvbuf: Option<usize>,
    ) -> io::Result<Self> {
        Self::open(local, Some(peer), sndbuf, rcvbuf)
    }

    fn open(
        local: SocketAddr,
        peer: Option<SocketAddr>,
        sndbuf: Option<usize>,
        rcvbuf: Option<usize>,
    ) -> io::Result<Self> {
        let domain = Domain::for_address(local);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // With SO_REUSEPORT only sockets of one user share a port. SO_REUSEADDR would lift that: any
        // user could bind the port, connect to a peer's address and take its datagrams away.
        socket.set_reuse_port(true)?;
        socket.bind(&local.into())?;
        if let Some(peer) = peer {
            socket.connect(&peer.into())?;
        }
        let receiver = UdpSocketState::new(UdpSockRef::from(&socket))?;
        discover_path_mtu(&socket, local.is_ipv6())?;
        let port = Self {
            segments: AtomicBool::new(receiver.max_gso_segments() > 1),
            socket,
            receiver,
            connected: peer.is_some(),
            ip_and_udp_headers: if local.is_ipv6() { 48 } else { 28 },
        };
        if let Some(bytes) = sndbuf {
            port.set_send_buffer(bytes)?;
        }
        if let Some(bytes) = rcvbuf {
            port.set_receive_buffer(bytes)?;
        }
        Ok(port)
    }

    /// Returns the address that this port is bound to; the port number is the real one if 0 was
    /// asked for.
    ///
    /// # Errors
    /// None is expected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(&self.socket.local_addr()?)
    }

    /// Whom this port is connected to.
    ///
    /// # Errors
    /// `ENOTCONN` for a listener.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(&self.socket.peer_addr()?)
    }

    /// Lets this machine cut datagrams that are too long for the path: for paths so narrow that
    /// what must fit through them does not.
    ///
    /// # Errors
    /// The kernel does not know the option.
    pub fn allow_fragments(&self) -> io::Result<()> {
        use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
        if self.ip_and_udp_headers == 28 {
            sockopt::set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::DONT)?;
        } else {
            sockopt::set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::DONT)?;
            // Takes back what the receiving library sets for its own purposes.
            setsockopt(&self.socket, Ipv6DontFrag, &false)?;
        }
        Ok(())
    }

    /// The largest IP packet that the path to the peer takes, by what is known now: the
    /// first interface's MTU until a router on the path has complained.
    ///
    /// # Errors
    /// `ENOTCONN` for a listener.
    pub fn path_mtu(&self) -> io::Result<usize> {
        let mtu = if self.ip_and_udp_headers == 28 {
            sockopt::ip_mtu(&self.socket)?
        } else {
            sockopt::ipv6_mtu(&self.socket)?
        };
        Ok(mtu as usize)
    }

    /// The largest datagram that fits [`path_mtu`](Self::path_mtu).
    ///
    /// # Errors
    /// As [`path_mtu`](Self::path_mtu).
    pub fn datagram_max(&self) -> io::Result<usize> {
        Ok(self.path_mtu()?.saturating_sub(self.ip_and_udp_headers))
    }

    /// Returns true if the kernel cuts datagrams itself (UDP GSO). It may turn out at the first
    /// sending that a device cannot.
    pub fn offload(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Limits what may wait in the kernel for the device, so that a busy link shows as
    /// [`SendOutcome::WouldBlock`]. Returns the limit in force: the kernel doubles the
    /// number, counts its own overhead against it, and has a least (about 4.6 kB) and,
    /// without privileges, a greatest value. One sending always goes through, however big,
    /// if less than the limit is waiting.
    ///
    /// # Errors
    /// None is expected.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        if sockopt::set_socket_send_buffer_size_force(&self.socket, bytes).is_err() {
            self.socket.set_send_buffer_size(bytes)?;
        }
        self.socket.send_buffer_size()
    }

    /// Makes room for bursts. Returns the room there is now, in the kernel's counting
    /// (twice the number asked for, but less without privileges).
    ///
    /// # Errors
    /// None is expected.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        if sockopt::set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            self.socket.set_recv_buffer_size(bytes)?;
        }
        self.socket.recv_buffer_size()
    }

    /// Memory of the datagrams that the device has not taken yet, in bytes: the kernel's
    /// own overhead is included, so it is more than the datagrams' length.
    ///
    /// # Errors
    /// None is expected.
    #[allow(unsafe_code, reason = "no safe wrapper of SIOCOUTQ is at hand")]
    pub fn outq_bytes(&self) -> io::Result<usize> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the socket is open, and SIOCOUTQ (which has TIOCOUTQ's number) writes
        // one int, which outlives the call.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Sends to the peer of a connected port: one datagram, or several of `segment_size`
    /// bytes each (the last may be shorter) that lie one after the other.
    #[inline]
    pub fn send(&self, contents: &[u8], segment_size: Option<usize>) -> SendOutcome {
        self.transmit(contents, segment_size, None)
    }

    /// As [`send`](Self::send), to anybody. Costs a route look-up each time.
    pub fn send_to(
        &self,
        contents: &[u8],
        segment_size: Option<usize>,
        to: SocketAddr,
    ) -> SendOutcome {
        self.transmit(contents, segment_size, Some(&to.into()))
    }

    fn transmit(
        &self,
        contents: &[u8],
        segment_size: Option<usize>,
        to: Option<&SockAddr>,
    ) -> SendOutcome {
        let segment = segment_size.unwrap_or(contents.len()).clamp(1, CONTENTS_MAX + 20);
        let mut accepted = 0;
        loop {
            let rest = &contents[accepted..];
            let chunk_max = if self.offload() {
                segment * (CONTENTS_MAX / segment).clamp(1, SEGMENTS_MAX)
            } else {
                segment
            };
            let chunk = &rest[..rest.len().min(chunk_max)];
            match self.transmit_chunk(chunk, segment, to) {
                Ok(()) => accepted += chunk.len(),
                // The kernel or the device cannot cut after all: do it here from now on.
                Err(Errno::INVAL | Errno::IO) if chunk.len() > segment => {
                    if self.exceeds_path(segment) {
                        return SendOutcome::TooBig { accepted, mtu: self.path_mtu().ok() };
                    }
                    self.segments.store(false, Ordering::Relaxed);
                }
                Err(Errno::AGAIN) => return SendOutcome::WouldBlock { accepted },
                Err(Errno::MSGSIZE) => {
                    return SendOutcome::TooBig { accepted, mtu: self.path_mtu().ok() };
                }
                Err(errno) if is_passing(errno) => return SendOutcome::Refused(errno.into()),
                Err(errno) => return SendOutcome::Fatal(errno.into()),
            }
            // An empty datagram is sent too, once.
            if accepted >= contents.len() {
                return SendOutcome::Sent;
            }
        }
    }

    fn transmit_chunk(
        &self,
        chunk: &[u8],
        segment: usize,
        to: Option<&SockAddr>,
    ) -> Result<(), Errno> {
        let control = segment_control(segment);
        let buffers = [IoSlice::new(chunk)];
        let mut message = MsgHdr::new().with_buffers(&buffers);
        if chunk.len() > segment {
            message = message.with_control(&control);
        }
        if let Some(to) = to {
            message = message.with_addr(to);
        }
        // An answer to something sent earlier (a router's "too big", "nobody listens
        // here") is reported once, instead of sending. One retry distinguishes it from an answer to
        // this sending; what it said is in force by then, or comes again.
        let mut answers = 0;
        loop {
            let error = match self.socket.sendmsg(&message, libc::MSG_NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(error) => Errno::from_io_error(&error).unwrap_or(Errno::IO),
            };
            let late = self.connected && error == Errno::MSGSIZE && !self.exceeds_path(segment);
            if error == Errno::INTR {
                continue;
            }
            if !late || answers > 0 {
                return Err(error);
            }
            answers += 1;
        }
    }

    fn exceeds_path(&self, segment: usize) -> bool {
        self.datagram_max().is_ok_and(|max| segment > max)
    }

    /// Takes the error that the network reported about something sent earlier, if there is one.
    pub fn take_error(&self) -> Option<io::Error> {
        self.socket.take_error().ok().flatten()
    }

    /// Receives what is there, while `batch` has room. Returns the number of datagrams;
    /// zero if nothing was waiting. Bad news about what was sent earlier (an ICMP message) is
    /// passed over: [`RecvBatch::take_error`] has the latest.
    ///
    /// # Errors
    /// The port is of no use any more.
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.filled = 0;
        let mut slots: [IoSliceMut<'_>; RecvBatch::SLOTS_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let count = batch.meta.len();
        for (slot, buffer) in slots.iter_mut().zip(batch.storage.chunks_exact_mut(SLOT_LEN)) {
            *slot = IoSliceMut::new(buffer);
        }
        // Each failure takes one pending error from the socket: there cannot be many.
        for _ in 0..8 {
            let socket = UdpSockRef::from(&self.socket);
            match self.receiver.recv(socket, &mut slots[..count], &mut batch.meta) {
                Ok(filled) => {
                    batch.filled = filled;
                    return Ok(batch.len());
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => return Ok(0),
                    Some(Errno::MSGSIZE) => {}
                    Some(errno) if is_passing(errno) => batch.error = Some(errno.into()),
                    _ => return Err(error),
                },
            }
        }
        Ok(0)
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A datagram that was received.
#[derive(Debug)]
pub struct Received<'a> {
    /// Its sender.
    pub source: SocketAddr,
    /// When the kernel got it, in nanoseconds since 1970; none if the kernel does not say so. Datagrams that it
    /// has coalesced have the same.
    pub came_at_unix_ns: Option<u64>,
    /// Its contents.
    pub bytes: &'a mut [u8],
}

/// Preallocated room for received datagrams.
#[derive(Debug)]
pub struct RecvBatch {
    storage: Box<[u8]>,
    meta: Box<[RecvMeta]>,
    filled: usize,
    error: Option<io::Error>,
}

impl RecvBatch {
    /// Most slots of a batch.
    pub const SLOTS_MAX: usize = 16;

    /// Room for `slots` times 64 KiB (1 to 16). Each slot takes one datagram, or up to 64
    /// datagrams of one sender that the kernel has coalesced.
    pub fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, Self::SLOTS_MAX);
        Self {
            storage: vec![0; slots * SLOT_LEN].into_boxed_slice(),
            meta: vec![RecvMeta::default(); slots].into_boxed_slice(),
            filled: 0,
            error: None,
        }
    }

    /// Returns true if the socket had less than there is room for: nothing more waited there.
    pub fn has_room(&self) -> bool {
        self.filled < self.meta.len()
    }

    /// Takes the latest error that the network reported about something sent earlier by the port
    /// that was read: for instance that nobody listens there.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Returns the number of datagrams in the batch.
    pub fn len(&self) -> usize {
        let filled = &self.meta[..self.filled];
        filled.iter().map(|meta| meta.len.div_ceil(meta.stride.max(1))).sum()
    }

    /// Returns true if it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The datagrams in the order of their arrival. Empty datagrams are left out.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Received<'_>> {
        let slots = self.storage.chunks_exact_mut(SLOT_LEN);
        slots.zip(&self.meta[..self.filled]).flat_map(|(slot, meta)| {
            let came_at_unix_ns = meta.timestamp.and_then(|at| u64::try_from(at.as_nanos()).ok());
            let datagrams = slot[..meta.len].chunks_mut(meta.stride.max(1));
            datagrams.map(move |bytes| Received { source: meta.addr, came_at_unix_ns, bytes })
        })
    }
}

/// Never fragment, and believe routers that say how much the path takes.
fn discover_path_mtu(socket: &Socket, is_v6: bool) -> io::Result<()> {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    if is_v6 {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?;
    } else {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?;
    }
    Ok(())
}

/// Errors that concern what was just sent, or sent earlier, and not the socket.
fn is_passing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::PERM
            | Errno::ACCESS
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::ADDRNOTAVAIL
            | Errno::NOBUFS
            | Errno::NOMEM
    )
}

const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();
const CONTROL_SPACE: usize = CONTROL_HEADER + size_of::<usize>();

/// The control message UDP_SEGMENT, as the kernel reads it: length, level, type, a u16.
fn segment_control(segment: usize) -> [u8; CONTROL_SPACE] {
    const WORD: usize = size_of::<usize>();
    let mut control = [0; CONTROL_SPACE];
    control[..WORD].copy_from_slice(&(CONTROL_HEADER + 2).to_ne_bytes());
    control[WORD..WORD + 4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    control[WORD + 4..WORD + 8].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    // Larger segments are refused for their length before anybody looks here.
    let segment = u16::try_from(segment).unwrap_or(u16::MAX);
    control[CONTROL_HEADER..CONTROL_HEADER + 2].copy_from_slice(&segment.to_ne_bytes());
    control
}

fn internet(address: &SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| Errno::AFNOSUPPORT.into())
}
