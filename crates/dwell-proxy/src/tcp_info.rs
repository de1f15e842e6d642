//! What TCP says of a connection's link.

use std::os::fd::{AsRawFd, BorrowedFd};

use dwell_stream::LinkReport;

/// The bytes of `struct tcp_info` that are read, up to `tcpi_rwnd_limited`. Linux has all of them since
/// 4.18; an older kernel gives fewer, and the rest is zero: not known.
const LEN: usize = 184;

/// The offsets of fields. They are part of the kernel's interface, which only ever grows at its end.
mod at {
    /// Bit 0 (with big endian bit 7): `tcpi_delivery_rate_app_limited`.
    pub(super) const APP_LIMITED: usize = 7;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const UNACKED: usize = 24;
    pub(super) const RTT_US: usize = 68;
    pub(super) const SND_CWND: usize = 80;
    #[cfg(test)]
    pub(super) const MAX_PACING_RATE: usize = 112;
    pub(super) const SEGS_IN: usize = 140;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT_US: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BUSY_TIME_US: usize = 168;
    pub(super) const RWND_LIMITED_US: usize = 176;
}

/// The bit of `tcpi_delivery_rate_app_limited`.
const APP_LIMITED_BIT: u8 = if cfg!(target_endian = "little") { 1 } else { 0x80 };

/// Returns what TCP says of a connection's link; none if it is no TCP connection. What is kept back until there is more does
/// not wait for the link.
pub(crate) fn link_report(socket: BorrowedFd<'_>, is_holding: bool) -> Option<LinkReport> {
    Some(report(&tcp_info(socket)?, is_holding))
}

/// Returns how many bytes a connection sends before they are confirmed; zero if it is not known.
pub(crate) fn window_bytes(socket: BorrowedFd<'_>) -> usize {
    let Some(info) = tcp_info(socket) else { return 0 };
    let number =
        |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default()) as usize;
    number(at::SND_CWND).saturating_mul(number(at::SND_MSS))
}

/// Returns the rate to which a connection is paced at most, in bytes a second; all ones are none.
#[cfg(test)]
pub(crate) fn pacing_rate_max(socket: BorrowedFd<'_>) -> Option<u64> {
    let bytes = tcp_info(socket)?[at::MAX_PACING_RATE..][..8].try_into().ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[allow(unsafe_code, reason = "no safe wrapper of TCP_INFO is at hand")]
fn tcp_info(socket: BorrowedFd<'_>) -> Option<[u8; LEN]> {
    let mut info = [0u8; LEN];
    let mut len = LEN as libc::socklen_t;
    // SAFETY: the socket is open, and the kernel writes at most `len` bytes to `info`, which outlives the
    // call; any bytes are valid there.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (done == 0).then_some(info)
}

fn report(info: &[u8; LEN], is_holding: bool) -> LinkReport {
    let number = |at: usize| {
        let bytes = info[at..at + 4].try_into().unwrap_or_default();
        u64::from(u32::from_ne_bytes(bytes))
    };
    let long = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
    let (mss, rtt_us) = (number(at::SND_MSS), number(at::RTT_US));
    let window_bytes = (number(at::SND_CWND) * mss) as f64;
    // Without a measurement the kernel has all ones.
    let min_rtt_us = match number(at::MIN_RTT_US) {
        0xffff_ffff => rtt_us,
        min_rtt_us => min_rtt_us,
    };
    let not_sent = if is_holding { 0 } else { number(at::NOTSENT_BYTES) };
    LinkReport {
        delivered_rate: long(at::DELIVERY_RATE) as f64,
        is_least: info[at::APP_LIMITED] & APP_LIMITED_BIT != 0,
        window_rate: if rtt_us > 0 { window_bytes * 1e6 / rtt_us as f64 } else { 0.0 },
        path_rate: 0.0,
        train_rate: 0.0,
        train_least: 0.0,
        prudent_rate: 0.0,
        goes_raw: false,
        segment_bytes: mss,
        // Both wrap around, and what is between them does.
        confirmations: number(at::SEGS_IN).wrapping_sub(number(at::DATA_SEGS_IN)) & 0xffff_ffff,
        round_trip_ns: min_rtt_us * 1000,
        queue_ns: rtt_us.saturating_sub(min_rtt_us) * 1000,
        receiver_wait_ns: long(at::RWND_LIMITED_US).saturating_mul(1000),
        busy_ns: long(at::BUSY_TIME_US).saturating_mul(1000),
        pending_bytes: not_sent + number(at::UNACKED) * mss,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_says_how_fast_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for _ in 0..20 {
            near.write_all(&[1; 50_000]).unwrap();
            far.read_exact(&mut [0; 50_000]).unwrap();
        }
        let report = link_report(near.as_fd(), false).unwrap();
        // Loopback: a round trip takes less than a second, and carries more than a modem.
        assert!((1..1_000_000_000).contains(&report.round_trip_ns), "{report:?}");
        assert!(report.window_rate > 1e5 && report.rate().unwrap() > 1e5, "{report:?}");
        assert!(report.delivered_rate > 1e5, "{report:?}");
        assert!(report.pending_bytes <= 1_000_000, "{report:?}");
    }

    #[test]
    fn what_is_no_connection_says_nothing() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(link_report(socket.as_fd(), false), None);
    }

    #[test]
    fn fields_are_read_from_their_places() {
        let mut info = [0; LEN];
        let mut set =
            |at: usize, value: u32| info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        set(at::SND_MSS, 1448);
        set(at::SND_CWND, 10);
        set(at::RTT_US, 20_000);
        set(at::MIN_RTT_US, 18_500);
        set(at::UNACKED, 2);
        set(at::SEGS_IN, 9);
        set(at::DATA_SEGS_IN, 4);
        set(at::NOTSENT_BYTES, 104);
        info[at::BUSY_TIME_US..][..8].copy_from_slice(&90_000u64.to_ne_bytes());
        info[at::RWND_LIMITED_US..].copy_from_slice(&70_000u64.to_ne_bytes());
        info[at::DELIVERY_RATE..at::DELIVERY_RATE + 8].copy_from_slice(&625_000u64.to_ne_bytes());
        info[at::APP_LIMITED] = APP_LIMITED_BIT;
        let expected = LinkReport {
            delivered_rate: 625e3,
            is_least: true,
            window_rate: 724e3,
            path_rate: 0.0,
            train_rate: 0.0,
            train_least: 0.0,
            prudent_rate: 0.0,
            goes_raw: false,
            segment_bytes: 1448,
            confirmations: 5,
            round_trip_ns: 18_500_000,
            queue_ns: 1_500_000,
            receiver_wait_ns: 70_000_000,
            busy_ns: 90_000_000,
            pending_bytes: 3000,
        };
        assert_eq!(report(&info, false), expected);
        assert_eq!(report(&info, true), LinkReport { pending_bytes: 2896, ..expected });
        info[at::MIN_RTT_US..at::MIN_RTT_US + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(
            report(&info, false),
            LinkReport { round_trip_ns: 20_000_000, queue_ns: 0, ..expected }
        );
    }
}
