//! The rate at which the kernel sends at most.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// What stands for any rate.
const UNLIMITED: u32 = u32::MAX;

/// Any link carries this, in bytes a second: at less the next segment would be seconds away, and nothing learned meanwhile.
const LEAST: u32 = 4 << 10;

/// Has the kernel send at most so many bytes a second over a connection, or as fast as it will.
pub(crate) fn set(socket: BorrowedFd<'_>, rate: Option<f64>) -> io::Result<()> {
    let rate = rate.map_or(UNLIMITED, bytes_a_second);
    set_option(socket, rate)
}

/// A rate of four gigabytes a second is none.
fn bytes_a_second(rate: f64) -> u32 {
    (rate as u32).max(LEAST)
}

#[allow(unsafe_code, reason = "no safe wrapper of SO_MAX_PACING_RATE is at hand")]
fn set_option(socket: BorrowedFd<'_>, rate: u32) -> io::Result<()> {
    // SAFETY: the socket is open, and the kernel reads four bytes of `rate`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn rates_are_what_the_kernel_takes() {
        let rates = [0.0, 0.5, 1e6, 1e12, f64::INFINITY].map(bytes_a_second);
        assert_eq!(rates, [LEAST, LEAST, 1_000_000, UNLIMITED, UNLIMITED]);
    }

    #[test]
    fn a_connection_is_paced_and_then_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for rate in [Some(1e9), None] {
            set(near.as_fd(), rate).unwrap();
            let limit = rate.map_or(u64::from(UNLIMITED), |rate| rate as u64);
            let info = crate::tcp_info::pacing_rate_max(near.as_fd()).unwrap();
            assert!(info == limit || limit == u64::from(UNLIMITED) && info >= limit, "{info}");
            near.write_all(&[1; 20_000]).unwrap();
            far.read_exact(&mut [0; 20_000]).unwrap();
        }
    }

    #[test]
    fn what_is_no_socket_has_no_pace() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(set(file.as_fd(), Some(1e6)).is_err());
    }
}
