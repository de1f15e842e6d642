//! The TUN interface: IP packets from and to the kernel, many at a time.
//!
//! With offload the kernel hands over TCP and UDP packets that are not cut yet (up to
//! 64 KiB, one system call) and takes such packets. [`Tun::recv`] cuts them, and
//! [`TunWriteBatch`] joins them, so that everybody else sees packets of the
//! interface's MTU only.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use dwell_confine::privilege::may_administer_networks;
use ipnet::IpNet;
use rustix::io::Errno;
use thiserror::Error;
use tun_rs::{DeviceBuilder, SyncDevice, VIRTIO_NET_HDR_LEN, VirtioNetHdr, gso_split};

use super::route::{LinkSettings, RouteError, Routes};

pub use super::coalesce::{Flushed, TunWriteBatch};

/// Most packets in one batch.
pub const BATCH_MAX: usize = 128;

/// The virtio header, and the largest IP packet.
const FRAME_MAX: usize = VIRTIO_NET_HDR_LEN + 65_535;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds only the pseudo-header's sum.
pub(super) const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_NONE`: the packet is not to be cut.
const GSO_NONE: u8 = 0;

/// The properties of a TUN interface to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunOptions {
    /// Its name, at most 15 bytes; `dwell%d` takes the first free number.
    pub name: String,
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Its addresses; their networks are routed into it.
    pub addresses: Vec<IpNet>,
    /// True to exchange uncut packets with the kernel, where the kernel can.
    pub offload: bool,
}

/// Why there is no TUN interface (any more).
#[derive(Debug, Error)]
pub enum TunError {
    /// Not allowed to make one.
    #[error(
        "cannot create interface {name}: this needs CAP_NET_ADMIN: run as root, or give it \
         to the program (setcap cap_net_admin+ep, or AmbientCapabilities= in a systemd unit)"
    )]
    Permission {
        /// The interface's name.
        name: String,
    },
    /// The kernel has no TUN driver, or the container hides it.
    #[error(
        "cannot create interface {name}: there is no /dev/net/tun: load the module (modprobe \
         tun), or pass the device into the container (--device /dev/net/tun)"
    )]
    NoDriver {
        /// The interface's name.
        name: String,
    },
    /// Another process has it.
    #[error("interface {name} is in use: is the relay running already?")]
    Busy {
        /// The interface's name.
        name: String,
    },
    /// An interface of another kind has this name.
    #[error(
        "cannot create interface {name}: there is an interface of this name already, and it is \
         not a TUN interface (it is {kind}): choose another name for \"tun\" in [node], or remove \
         that interface (ip link delete {name}) if nothing needs it"
    )]
    Taken {
        /// The interface's name.
        name: String,
        /// A phrase that names its kind, such as "of kind veth".
        kind: String,
    },
    /// The kernel refuses for another reason.
    #[error("cannot create interface {name}: {source}")]
    Create {
        /// The interface's name.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It was made, but could not be given its addresses or MTU.
    #[error(transparent)]
    Configure(#[from] RouteError),
    /// Somebody has deleted the interface. It will not come back under this descriptor.
    #[error("interface {name} has been deleted")]
    Gone {
        /// The interface's name.
        name: String,
    },
    /// Reading or writing failed for an unknown reason.
    #[error("interface {name} failed: {source}")]
    Io {
        /// The interface's name.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// An open TUN interface; it vanishes when this is dropped.
///
/// It may be read and written by different threads, but by one each: several would reorder
/// the packets of a flow.
pub struct Tun {
    device: SyncDevice,
    name: String,
    ifindex: u32,
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tun").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tun {
    /// Creates the interface in the network namespace of the calling thread, and sets it up.
    ///
    /// # Errors
    /// See [`TunError`]; what was made is gone again.
    pub fn open(options: &TunOptions) -> Result<Self, TunError> {
        let wanted = |error| creation_error(&options.name, error);
        let device = match create(&options.name, options.offload) {
            // Neither is a matter of offload; everything else may be.
            Err(error) if options.offload && !is_final(&error) => create(&options.name, false),
            done => done,
        }
        .map_err(wanted)?;
        device.set_nonblocking(true).map_err(wanted)?;
        let name = device.name().map_err(wanted)?;
        let ifindex = device.if_index().map_err(wanted)?;
        let tun = Self { device, name, ifindex };
        tun.configure(options)?;
        Ok(tun)
    }

    fn configure(&self, options: &TunOptions) -> Result<(), TunError> {
        let routes = Routes::new()?;
        // A kernel that cannot do the one has no IPv6; one that cannot do the other gives
        // us more segments than a batch holds only for tiny ones, and those are counted.
        let _ = routes.forbid_link_local(self.ifindex);
        let segments = u32::try_from(BATCH_MAX).ok();
        let _ = routes.set_link(
            self.ifindex,
            &LinkSettings { gso_max_segs: segments, ..LinkSettings::default() },
        );
        let mtu = Some(u32::from(options.mtu));
        routes.set_link(self.ifindex, &LinkSettings { mtu, ..LinkSettings::default() })?;
        routes.add_addresses(self.ifindex, &options.addresses)?;
        let up = Some(true);
        routes.set_link(self.ifindex, &LinkSettings { up, ..LinkSettings::default() })?;
        Ok(())
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's index, for routes.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Returns true if uncut TCP packets are exchanged with the kernel.
    pub fn offload(&self) -> bool {
        self.device.tcp_gso()
    }

    /// Returns true if uncut UDP packets are exchanged too (Linux 6.2 and later).
    pub fn udp_offload(&self) -> bool {
        self.device.udp_gso()
    }

    /// The largest packet, in bytes.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn mtu(&self) -> Result<u16, TunError> {
        self.device.mtu().map_err(|error| self.failed(error))
    }

    /// Changes the largest packet. A [`PacketBatch`] made for a smaller one skips (and
    /// counts) what does not fit.
    ///
    /// # Errors
    /// The interface is gone, or does not take this value.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), TunError> {
        self.device.set_mtu(mtu).map_err(|error| self.failed(error))
    }

    /// Reads once: fills `batch` with one packet, or with the packets that one uncut packet
    /// is to become, and returns how many. Zero means that nothing was waiting. Checksums
    /// are complete.
    ///
    /// # Errors
    /// [`TunError::Gone`] if the interface was deleted.
    pub fn recv(&self, batch: &mut PacketBatch) -> Result<usize, TunError> {
        batch.count = 0;
        // Frames that we cannot use are skipped, but not for ever in one call.
        for _ in 0..BATCH_MAX {
            let done = rustix::io::read(&self.device, &mut batch.frame[..])
                .map(|len| batch.unpack(len, self.offload()));
            match done {
                Ok(()) if batch.count > 0 => return Ok(batch.count),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(self.failed(errno.into())),
            }
        }
        Ok(0)
    }

    /// Tells what an error of reading or writing means for the interface.
    pub(super) fn failed(&self, source: io::Error) -> TunError {
        let name = self.name.clone();
        match Errno::from_io_error(&source) {
            Some(Errno::BADFD | Errno::NODEV) => TunError::Gone { name },
            _ => TunError::Io { name, source },
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn create(name: &str, offload: bool) -> io::Result<SyncDevice> {
    DeviceBuilder::new().name(name).offload(offload).inherit_enable_state().build_sync()
}

fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied)
        || Errno::from_io_error(error) == Some(Errno::BUSY)
}

fn creation_error(name: &str, source: io::Error) -> TunError {
    let name = name.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::PERM | Errno::ACCESS) => TunError::Permission { name },
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => TunError::NoDriver { name },
        Some(Errno::BUSY) => TunError::Busy { name },
        Some(Errno::INVAL | Errno::EXIST) => match other_kind(&name) {
            Some(kind) => TunError::Taken { name, kind },
            None => TunError::Create { name, source },
        },
        _ => TunError::Create { name, source },
    }
}

/// Returns why a relay that is started as this process was could not make the interface of this name; none if
/// nothing is known that speaks against it, or there is such a TUN interface: perhaps that relay runs.
pub fn obstacle(name: &str) -> Option<TunError> {
    let kind = Routes::new().ok().and_then(|routes| routes.link_kind(name).ok());
    match kind {
        Some(Some(kind)) if kind == "tun" => None,
        Some(_) => {
            let kind = other_kind(name)?;
            Some(TunError::Taken { name: name.to_owned(), kind })
        }
        None if !may_administer_networks() => Some(TunError::Permission { name: name.to_owned() }),
        None => None,
    }
}

/// Describes the interface of this name, if there is one.
fn other_kind(name: &str) -> Option<String> {
    Some(match Routes::new().ok()?.link_kind(name).ok()? {
        Some(kind) if kind == "tun" => "a TAP interface, or one with other settings".to_owned(),
        Some(kind) => format!("of kind {kind}"),
        None => "a device".to_owned(),
    })
}

/// Preallocated room for the packets of one [`Tun::recv`].
///
/// Each packet has `headroom` free bytes in front of it, where a header can be written
/// without moving the packet.
#[derive(Debug)]
pub struct PacketBatch {
    headroom: usize,
    frame: Box<[u8]>,
    slots: Vec<Box<[u8]>>,
    lens: Box<[usize]>,
    count: usize,
    skipped: u64,
}

impl PacketBatch {
    /// Room for [`BATCH_MAX`] packets of up to `mtu` bytes.
    pub fn new(headroom: usize, mtu: u16) -> Self {
        let slot = vec![0; headroom + usize::from(mtu)].into_boxed_slice();
        Self {
            headroom,
            frame: vec![0; FRAME_MAX].into_boxed_slice(),
            slots: vec![slot; BATCH_MAX],
            lens: vec![0; BATCH_MAX].into_boxed_slice(),
            count: 0,
            skipped: 0,
        }
    }

    /// Returns the number of packets that it holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The packets, in order. If there are several, they are of one flow.
    pub fn packets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let headroom = self.headroom;
        self.packets_with_headroom().map(move |packet| &mut packet[headroom..])
    }

    /// The packets, each with the free bytes in front of it.
    pub fn packets_with_headroom(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (headroom, count) = (self.headroom, self.count);
        let slots = self.slots[..count].iter_mut();
        slots.zip(&self.lens).map(move |(slot, len)| &mut slot[..headroom + len])
    }

    /// Frames from the kernel that were dropped because they are larger than this batch
    /// was made for, or make no sense. Since the batch was made.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes apart `frame[..len]`: a packet, with a virtio header before it if there is
    /// offload.
    fn unpack(&mut self, len: usize, offload: bool) {
        let count = if offload { self.try_unpack(len) } else { self.accept(0..len) };
        match count {
            Some(count) => self.count = count,
            None => self.skipped += 1,
        }
    }

    fn accept(&mut self, packet: Range<usize>) -> Option<usize> {
        let packet = self.frame.get(packet)?;
        let slot = self.slots[0].get_mut(self.headroom..)?;
        slot.get_mut(..packet.len())?.copy_from_slice(packet);
        self.lens[0] = packet.len();
        Some(1)
    }

    fn try_unpack(&mut self, len: usize) -> Option<usize> {
        let (header, packet) =
            self.frame.get_mut(..len)?.split_at_mut_checked(VIRTIO_NET_HDR_LEN)?;
        let mut header = VirtioNetHdr::decode(header).ok()?;
        if header.gso_type == GSO_NONE {
            if header.flags & NEEDS_CSUM != 0 {
                complete_checksum(packet, header.csum_start, header.csum_offset)?;
            }
            return self.accept(VIRTIO_NET_HDR_LEN..len);
        }
        header.hdr_len = headers_len(packet, header.csum_start, header.csum_offset)?;
        let is_v6 = packet.first()? >> 4 == 6;
        let (slots, lens) = (&mut self.slots, &mut self.lens);
        gso_split(packet, header, slots, lens, self.headroom, is_v6).ok()
    }
}

/// The length of the IP and transport headers. The kernel's own field is not to be trusted:
/// for forwarded packets it is the length of the first buffer.
fn headers_len(packet: &[u8], csum_start: u16, csum_offset: u16) -> Option<u16> {
    const TCP_CSUM_OFFSET: u16 = 16;
    let transport = if csum_offset == TCP_CSUM_OFFSET {
        u16::from(packet.get(usize::from(csum_start) + 12)? >> 4) * 4
    } else {
        8
    };
    csum_start.checked_add(transport)
}

/// Does what the kernel left to the device: sums from `start` on (the field holds the
/// pseudo-header's sum) and puts the result `offset` bytes further.
fn complete_checksum(packet: &mut [u8], start: u16, offset: u16) -> Option<()> {
    const UDP_CSUM_OFFSET: u16 = 6;
    let summed = packet.get_mut(usize::from(start)..)?;
    let field: Range<usize> = usize::from(offset)..usize::from(offset) + 2;
    summed.get(field.clone())?;
    let mut sum = !tun_rs::checksum(summed, 0);
    if sum == 0 && offset == UDP_CSUM_OFFSET {
        // Zero would mean "no checksum", which IPv6 does not accept.
        sum = 0xffff;
    }
    summed[field].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp_v6(payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], 17, 64];
        packet.extend([0xfd; 32]);
        packet.extend([0x12, 0x34, 0x56, 0x78, len[0], len[1], 0, 0]);
        packet.extend(payload);
        packet
    }

    fn pseudo_sum(packet: &[u8]) -> u64 {
        tun_rs::checksum_no_fold(&packet[8..40], 17 + (packet.len() - 40) as u64)
    }

    #[test]
    fn a_udp_checksum_of_zero_is_written_as_ones() {
        let mut packet = udp_v6(&[0, 0]);
        let rest = !tun_rs::checksum(&packet[40..], pseudo_sum(&packet));
        packet[48..50].copy_from_slice(&rest.to_be_bytes());
        let partial = tun_rs::checksum(&[], pseudo_sum(&packet));
        packet[46..48].copy_from_slice(&partial.to_be_bytes());
        complete_checksum(&mut packet, 40, 6).unwrap();
        assert_eq!(packet[46..48], [0xff, 0xff]);
        assert_eq!(tun_rs::checksum(&packet[40..], pseudo_sum(&packet)), 0xffff);
    }

    #[test]
    fn senseless_frames_are_skipped() {
        let mut batch = PacketBatch::new(16, 1400);
        for frame in [&[][..], &[0; 9], &[1, 1, 0, 0, 0, 0, 255, 255, 16, 0, 0x45]] {
            batch.frame[..frame.len()].copy_from_slice(frame);
            batch.unpack(frame.len(), true);
        }
        let needs_csum_far_away = [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x45, 0];
        batch.frame[..12].copy_from_slice(&needs_csum_far_away);
        batch.unpack(12, true);
        assert_eq!((batch.len(), batch.skipped()), (0, 4));
        batch.frame[..VIRTIO_NET_HDR_LEN].fill(0);
        batch.unpack(VIRTIO_NET_HDR_LEN + 1400, true);
        assert_eq!((batch.len(), batch.skipped()), (1, 4));
        batch.unpack(VIRTIO_NET_HDR_LEN + 1401, true);
        assert_eq!(batch.skipped(), 5);
    }
}
