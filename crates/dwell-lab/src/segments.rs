//! The segments that TCP has sent, by its own count.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// The bytes of `struct tcp_info` that are read, up to `tcpi_bytes_retrans`; Linux has them since 4.19.
const LEN: usize = 216;

/// The offsets of fields. They are part of the kernel's interface, which only ever grows at its end.
mod at {
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
}

/// The segments with data that a connection has sent, each counted once. Segments that a network card
/// cuts for the kernel (TSO) count as what they are cut to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentSegments {
    /// Their number, without those that were sent again.
    pub segments: u64,
    /// The bytes in them.
    pub bytes: u64,
    /// The number of those that were sent again.
    pub retransmitted: u64,
}

impl SentSegments {
    /// Asks the kernel.
    ///
    /// # Errors
    /// If it is no TCP connection.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        tcp_info(socket.as_fd()).map(|info| Self::read(&info))
    }

    fn read(info: &[u8; LEN]) -> Self {
        let short = |at: usize| {
            u64::from(u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default()))
        };
        let long = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
        let retransmitted = short(at::TOTAL_RETRANS);
        Self {
            segments: short(at::DATA_SEGS_OUT).saturating_sub(retransmitted),
            bytes: long(at::BYTES_SENT).saturating_sub(long(at::BYTES_RETRANS)),
            retransmitted,
        }
    }
}

#[allow(unsafe_code, reason = "no safe wrapper of TCP_INFO is at hand")]
fn tcp_info(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<[u8; LEN]> {
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
    if done == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_was_sent_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(SentSegments::of(&near).unwrap(), SentSegments::default());
        for sent in 1..=3u64 {
            near.write_all(&[7; 100]).unwrap();
            far.read_exact(&mut [0; 100]).unwrap();
            let counted = SentSegments::of(&near).unwrap();
            assert_eq!((counted.segments, counted.bytes), (sent, 100 * sent));
        }
        assert!(SentSegments::of(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
