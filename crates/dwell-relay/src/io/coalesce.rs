//! Joining the packets of a flow into the uncut packets that the kernel takes.
//!
//! A joined packet, should the kernel have to cut it again, becomes exactly the
//! packets that went in: only packets whose headers differ in nothing but what cutting
//! restores are joined, and only those whose checksums are right, because the kernel makes
//! new ones and a damaged packet must not be given a good one. The identification of IPv4
//! packets that must not be fragmented is the one field that may change; it means nothing
//! there (RFC 6864).
//!
//! The order of the packets of a flow is kept: a packet is joined only to the last packet
//! of its flow, and joined packets are written in the order of their first parts.

use std::io::IoSlice;

use rustix::io::Errno;
use tun_rs::{
    VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_GSO_UDP_L4,
    VIRTIO_NET_HDR_LEN, VirtioNetHdr, checksum, checksum_no_fold,
};

use super::tun::{BATCH_MAX, NEEDS_CSUM, Tun, TunError};

/// Room for 128 packets of 2 KB, or three of the largest.
const ARENA_LEN: usize = 256 * 1024;
/// IPv6 and the longest TCP header.
const HEADERS_MAX: usize = 40 + 60;
/// The kernel cuts UDP into no more than this.
const UDP_SEGMENTS_MAX: usize = 64;
const BUCKETS: usize = 256;
const NONE: u8 = u8::MAX;

/// The result of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Packets that the kernel has taken.
    pub written: usize,
    /// Packets that it refused: they are dropped.
    pub refused: usize,
    /// System calls.
    pub writes: usize,
    /// Why it refused the last of those (`EIO`: the interface is down, `EINVAL`: not an IP
    /// packet, `ENOBUFS`, `ENOMEM`).
    pub error: Option<Errno>,
}

/// Packets for the kernel. Nothing is allocated after it was made.
pub struct TunWriteBatch {
    arena: Box<[u8]>,
    used: usize,
    packets: Vec<Packet>,
    trains: Vec<Train>,
    /// The last train of the flow that was seen last in each bucket.
    last_train: [u8; BUCKETS],
}

#[derive(Clone, Copy)]
struct Packet {
    /// The offset at which it begins in the arena; room for a virtio header, all zero, lies before
    /// it.
    start: usize,
    len: usize,
    /// The next packet of the same train, or `NONE`.
    next: u8,
}

/// Packets that are written as one.
#[derive(Clone, Copy)]
struct Train {
    first: u8,
    last: u8,
    count: u8,
    open: bool,
    /// IP length of the whole.
    len: usize,
    /// Of the first packet.
    shape: Shape,
}

/// The properties of a packet that decide which others it can be joined to.
#[derive(Clone, Copy, Default)]
struct Shape {
    is_v6: bool,
    is_tcp: bool,
    /// The last of a train, as the sender marked it.
    push: bool,
    /// Length of the IP header.
    transport: usize,
    /// Length of the IP and transport headers.
    headers: usize,
    payload: usize,
    sequence: u32,
}

/// The ways in which a packet may move relative to others.
enum Motion {
    /// May be joined with others of its flow.
    Join(Shape),
    /// Keeps its place in its flow.
    Stay,
    /// Of an unknown flow: nothing may overtake it.
    Barrier,
    /// Has no order with regard to TCP and UDP.
    Free,
}

impl std::fmt::Debug for TunWriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunWriteBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Default for TunWriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl TunWriteBatch {
    /// An empty batch with room for [`BATCH_MAX`] packets or 256 KiB.
    pub fn new() -> Self {
        Self {
            arena: vec![0; ARENA_LEN].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(BATCH_MAX),
            trains: Vec::with_capacity(BATCH_MAX),
            last_train: [NONE; BUCKETS],
        }
    }

    /// Returns the number of packets that it holds.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if it holds none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Adds a copy of a packet. False if there is no room for it: flush first. There is
    /// always room for a packet of 65535 bytes in an empty batch.
    #[must_use = "false means that the packet was not taken"]
    pub fn push(&mut self, packet: &[u8]) -> bool {
        self.push_with(packet.len(), |buffer| {
            buffer.copy_from_slice(packet);
            packet.len()
        })
    }

    /// Adds a packet that `fill` writes into a buffer of `len_max` bytes; it returns the
    /// packet's length, or zero if there is no packet after all. False if there is no room
    /// for `len_max` bytes; `fill` is not called then.
    #[must_use = "false means that the packet was not taken"]
    pub fn push_with(&mut self, len_max: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let start = self.used + VIRTIO_NET_HDR_LEN;
        if self.packets.len() == BATCH_MAX || self.arena.len() < start + len_max {
            return false;
        }
        let len = fill(&mut self.arena[start..start + len_max]).min(len_max);
        if len > 0 {
            self.arena[self.used..start].fill(0);
            self.packets.push(Packet { start, len, next: NONE });
            self.used = start + len;
        }
        true
    }

    /// Writes all packets and empties the batch.
    ///
    /// # Errors
    /// [`TunError::Gone`] if the interface was deleted: the packets are lost.
    pub fn flush(&mut self, tun: &Tun) -> Result<Flushed, TunError> {
        let mut flushed = Flushed::default();
        let done = if tun.offload() {
            self.couple(tun.udp_offload());
            (0..self.trains.len()).try_for_each(|i| self.write_train(tun, i, &mut flushed))
        } else {
            (0..self.packets.len()).try_for_each(|i| self.write_single(tun, i, 0, &mut flushed))
        };
        self.clear();
        done.map(|()| flushed)
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
        self.trains.clear();
    }

    /// Puts the packets into trains.
    fn couple(&mut self, join_udp: bool) {
        self.last_train.fill(NONE);
        for index in 0..self.packets.len() {
            let (motion, bucket) = classify(self.bytes(index), join_udp);
            match motion {
                Motion::Join(shape) => {
                    if !self.join(index, &shape, bucket) {
                        self.last_train[bucket] = self.trains.len() as u8;
                        self.begin(index, shape, !shape.push);
                    }
                    continue;
                }
                Motion::Stay => self.last_train[bucket] = NONE,
                Motion::Barrier => self.last_train.fill(NONE),
                Motion::Free => {}
            }
            self.begin(index, Shape::default(), false);
        }
    }

    fn begin(&mut self, index: usize, shape: Shape, open: bool) {
        let (index, len) = (index as u8, self.packets[index].len);
        self.trains.push(Train { first: index, last: index, count: 1, open, len, shape });
    }

    /// Joins a packet to the last train of its flow, if it continues that.
    fn join(&mut self, index: usize, shape: &Shape, bucket: usize) -> bool {
        let Some(&train) = self.trains.get(usize::from(self.last_train[bucket])) else {
            return false;
        };
        let first = usize::from(train.first);
        if !train.continues(shape)
            || !same_flow_state(self.bytes(first), self.bytes(index), shape)
            || !follows_in_id(self.bytes(first), self.bytes(index), shape, train.count)
            || !checksum_is_right(self.bytes(index), shape)
            || train.count == 1 && !checksum_is_right(self.bytes(first), &train.shape)
        {
            return false;
        }
        self.packets[usize::from(train.last)].next = index as u8;
        let train = &mut self.trains[usize::from(self.last_train[bucket])];
        train.last = index as u8;
        train.count += 1;
        train.len += shape.payload;
        train.shape.push |= shape.push;
        // Only the last packet may be shorter, or marked.
        train.open = !shape.push && shape.payload == train.shape.payload;
        true
    }

    fn bytes(&self, index: usize) -> &[u8] {
        let packet = self.packets[index];
        &self.arena[packet.start..packet.start + packet.len]
    }

    fn write_train(&self, tun: &Tun, index: usize, flushed: &mut Flushed) -> Result<(), TunError> {
        let train = &self.trains[index];
        if train.count == 1 {
            let first = usize::from(train.first);
            return self.write_single(tun, first, VIRTIO_NET_HDR_LEN, flushed);
        }
        let (head, head_len) = train.head(self.bytes(usize::from(train.first)));
        let mut slices = [IoSlice::new(&[]); 1 + BATCH_MAX];
        slices[0] = IoSlice::new(&head[..head_len]);
        let mut member = train.first;
        for slice in &mut slices[1..=usize::from(train.count)] {
            let packet = usize::from(member);
            *slice = IoSlice::new(&self.bytes(packet)[train.shape.headers..]);
            member = self.packets[packet].next;
        }
        flushed.writes += 1;
        match rustix::io::writev(tun, &slices[..=usize::from(train.count)]) {
            Ok(_) => flushed.written += usize::from(train.count),
            // The kernel does not like it joined: it gets the packets as they came.
            Err(Errno::INVAL) => {
                let mut member = train.first;
                while member != NONE {
                    let packet = usize::from(member);
                    self.write_single(tun, packet, VIRTIO_NET_HDR_LEN, flushed)?;
                    member = self.packets[packet].next;
                }
            }
            Err(errno) => flushed.refuse(tun, errno, usize::from(train.count))?,
        }
        Ok(())
    }

    fn write_single(
        &self,
        tun: &Tun,
        index: usize,
        header_len: usize,
        flushed: &mut Flushed,
    ) -> Result<(), TunError> {
        let Packet { start, len, .. } = self.packets[index];
        flushed.writes += 1;
        match rustix::io::write(tun, &self.arena[start - header_len..start + len]) {
            Ok(_) => flushed.written += 1,
            Err(errno) => flushed.refuse(tun, errno, 1)?,
        }
        Ok(())
    }
}

impl Flushed {
    fn refuse(&mut self, tun: &Tun, errno: Errno, packets: usize) -> Result<(), TunError> {
        match tun.failed(errno.into()) {
            gone @ TunError::Gone { .. } => Err(gone),
            _ => {
                self.refused += packets;
                self.error = Some(errno);
                Ok(())
            }
        }
    }
}

impl Train {
    /// Returns true if a packet of this shape can be the next, by their lengths.
    fn continues(&self, next: &Shape) -> bool {
        let head = &self.shape;
        let distance = u32::from(self.count).wrapping_mul(head.payload as u32);
        self.open
            && next.is_v6 == head.is_v6
            && next.is_tcp == head.is_tcp
            && next.headers == head.headers
            && next.payload <= head.payload
            && self.len + next.payload <= usize::from(u16::MAX)
            && if head.is_tcp {
                next.sequence == head.sequence.wrapping_add(distance)
            } else {
                usize::from(self.count) < UDP_SEGMENTS_MAX
            }
    }

    /// The virtio header and the headers of the joined packet.
    fn head(&self, first: &[u8]) -> ([u8; VIRTIO_NET_HDR_LEN + HEADERS_MAX], usize) {
        let shape = &self.shape;
        let mut head = [0; VIRTIO_NET_HDR_LEN + HEADERS_MAX];
        let (virtio, headers) = head.split_at_mut(VIRTIO_NET_HDR_LEN);
        let virtio_header = VirtioNetHdr {
            flags: NEEDS_CSUM,
            gso_type: match (shape.is_tcp, shape.is_v6) {
                (true, false) => VIRTIO_NET_HDR_GSO_TCPV4,
                (true, true) => VIRTIO_NET_HDR_GSO_TCPV6,
                (false, _) => VIRTIO_NET_HDR_GSO_UDP_L4,
            },
            hdr_len: shape.headers as u16,
            gso_size: shape.payload as u16,
            csum_start: shape.transport as u16,
            csum_offset: if shape.is_tcp { 16 } else { 6 },
        };
        virtio_header.encode(virtio).expect("the slice has the header's length");
        let headers = &mut headers[..shape.headers];
        headers.copy_from_slice(&first[..shape.headers]);
        let transport_len = (self.len - shape.transport) as u16;
        if shape.is_v6 {
            headers[4..6].copy_from_slice(&transport_len.to_be_bytes());
        } else {
            headers[2..4].copy_from_slice(&(self.len as u16).to_be_bytes());
            headers[10..12].fill(0);
            let sum = !checksum(&headers[..20], 0);
            headers[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let field = shape.transport + usize::from(virtio_header.csum_offset);
        if shape.is_tcp {
            headers[shape.transport + 13] |= if shape.push { TCP_PSH } else { 0 };
        } else {
            let at = shape.transport + 4;
            headers[at..at + 2].copy_from_slice(&transport_len.to_be_bytes());
        }
        // The kernel adds the rest to the pseudo-header's sum.
        let sum = checksum(&[], pseudo_header_sum(headers, shape, transport_len));
        headers[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        (head, VIRTIO_NET_HDR_LEN + shape.headers)
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;

/// Classifies a packet: how it may move, and in which bucket its flow is.
fn classify(packet: &[u8], join_udp: bool) -> (Motion, usize) {
    let Some((protocol, transport, is_v6)) = ip_header(packet) else {
        return (Motion::Barrier, 0);
    };
    if protocol != TCP && protocol != UDP {
        return (Motion::Free, 0);
    }
    if packet.len() < transport + 8 {
        return (Motion::Barrier, 0);
    }
    let addresses = if is_v6 { 8 } else { 12 };
    let bucket = bucket(&packet[addresses..transport + 4]);
    let shape = Shape { is_v6, transport, ..Shape::default() };
    let shape = if protocol == TCP {
        tcp_shape(packet, shape)
    } else if join_udp {
        udp_shape(packet, shape)
    } else {
        None
    };
    (shape.map_or(Motion::Stay, Motion::Join), bucket)
}

/// Protocol, header length, family; none for fragments, options, extension headers and
/// whatever else is uncommon or wrong.
fn ip_header(packet: &[u8]) -> Option<(u8, usize, bool)> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            let whole = packet[6] & 0x3f == 0 && packet[7] == 0;
            let total = usize::from(u16_at(packet, 2));
            (packet[0] == 0x45 && whole && total == packet.len()).then(|| (packet[9], 20, false))
        }
        6 if packet.len() >= 40 => {
            const ICMP_V6: u8 = 58;
            let total = 40 + usize::from(u16_at(packet, 4));
            let plain = matches!(packet[6], TCP | UDP | ICMP_V6);
            (plain && total == packet.len()).then(|| (packet[6], 40, true))
        }
        _ => None,
    }
}

fn tcp_shape(packet: &[u8], shape: Shape) -> Option<Shape> {
    let tcp = &packet[shape.transport..];
    let len = usize::from(*tcp.get(12)? >> 4) * 4;
    if !(20..=60).contains(&len) || tcp.len() <= len {
        return None;
    }
    // Data and an acknowledgement, nothing special; the bits beside the length too.
    let (flags, reserved) = (tcp[13], tcp[12] & 0x0f);
    if flags & !TCP_PSH != TCP_ACK || reserved != 0 {
        return None;
    }
    Some(Shape {
        is_tcp: true,
        push: flags & TCP_PSH != 0,
        headers: shape.transport + len,
        payload: tcp.len() - len,
        sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        ..shape
    })
}

fn udp_shape(packet: &[u8], shape: Shape) -> Option<Shape> {
    let udp = &packet[shape.transport..];
    let has_checksum = u16_at(udp, 6) != 0;
    let len_is_right = usize::from(u16_at(udp, 4)) == udp.len();
    (has_checksum && len_is_right && udp.len() > 8).then(|| Shape {
        headers: shape.transport + 8,
        payload: udp.len() - 8,
        ..shape
    })
}

/// Returns true if two packets of one shape have the same headers, but for what cutting restores.
fn same_flow_state(a: &[u8], b: &[u8], shape: &Shape) -> bool {
    let same = |from: usize, to: usize| a[from..to] == b[from..to];
    let at = shape.transport;
    let same_ip = if shape.is_v6 {
        same(0, 4) && same(6, 40)
    } else {
        same(0, 2) && same(6, 10) && same(12, 20)
    };
    let same_transport = if shape.is_tcp {
        // Ports; acknowledgement and header length; window; urgent pointer and options.
        same(at, at + 4)
            && same(at + 8, at + 13)
            && same(at + 14, at + 16)
            && same(at + 18, shape.headers)
    } else {
        same(at, at + 4)
    };
    same_ip && same_transport
}

/// Returns true if cutting gives the packet the identification it has, or that means nothing.
fn follows_in_id(first: &[u8], packet: &[u8], shape: &Shape, distance: u8) -> bool {
    const DONT_FRAGMENT: u8 = 0x40;
    shape.is_v6
        || packet[6] & DONT_FRAGMENT != 0
        || u16_at(packet, 4) == u16_at(first, 4).wrapping_add(u16::from(distance))
}

fn checksum_is_right(packet: &[u8], shape: &Shape) -> bool {
    let transport_len = (packet.len() - shape.transport) as u16;
    let pseudo = pseudo_header_sum(packet, shape, transport_len);
    let ip_is_right = shape.is_v6 || checksum(&packet[..20], 0) == 0xffff;
    ip_is_right && checksum(&packet[shape.transport..], pseudo) == 0xffff
}

fn pseudo_header_sum(packet: &[u8], shape: &Shape, transport_len: u16) -> u64 {
    let addresses = if shape.is_v6 { &packet[8..40] } else { &packet[12..20] };
    let protocol = if shape.is_tcp { TCP } else { UDP };
    checksum_no_fold(addresses, u64::from(protocol) + u64::from(transport_len))
}

/// Addresses and ports to one of the buckets. Flows that share one only lose joining.
fn bucket(addresses_and_ports: &[u8]) -> usize {
    let mut hash = 0u32;
    for word in addresses_and_ports.chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1);
    }
    (hash >> 24) as usize
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
