//! What TCP has found of a link, and when that is out of date.
//!
//! BBR goes on with the rate that it has found last, however long ago, and finds more in steps of a quarter. For a connection that was
//! one of eight when much was sent, and is alone now, that is an eighth of the link: the first megabyte takes longer than over a new
//! connection, which looks for the rate by doubling. So one that had nothing to send for a while looks for it as if it were new.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use socket2::{Domain, SockRef, Socket, Type};

/// What was found is out of date after so long without anything to send, in nanoseconds, ...
const PAUSE_NS: u64 = 500 * MILLI_NS;
/// ... and so many round trips: over a long path who waits for an answer before he goes on makes no pause.
const PAUSE_ROUND_TRIPS: u64 = 10;
/// What begins again so.
const BBR: &[u8] = b"bbr";
/// What any program may have instead, and has no state.
const RENO: &[u8] = b"reno";

/// The pauses of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    wrote_at: Option<Instant>,
}

impl Pauses {
    /// Something is written. Returns for how long nothing was before, in nanoseconds, if that may be so long that what was found of
    /// the link is out of date.
    pub(crate) fn writes(&mut self, now: Instant) -> Option<u64> {
        let before = self.wrote_at.replace(now)?;
        Some(now.since_ns(before)).filter(|pause_ns| *pause_ns >= PAUSE_NS)
    }
}

/// Returns true if what was found of a link with this round trip is out of date after such a pause.
pub(crate) fn is_out_of_date(pause_ns: u64, round_trip_ns: u64) -> bool {
    pause_ns >= PAUSE_NS.max(PAUSE_ROUND_TRIPS.saturating_mul(round_trip_ns))
}

/// Has TCP look for the link's rate again, if it is BBR that has found it.
pub(crate) fn begin_again(socket: &impl AsFd) -> io::Result<()> {
    let Some(usual) = usual_bbr()? else { return Ok(()) };
    let socket = SockRef::from(socket);
    if name(&socket.tcp_congestion()?) == usual {
        // To set what it has changes nothing.
        socket.set_tcp_congestion(RENO)?;
        let has_reno =
            |error: io::Error| io::Error::new(error.kind(), format!("it has reno now: {error}"));
        socket.set_tcp_congestion(usual).map_err(has_reno)?;
    }
    Ok(())
}

/// Returns true if a connection's congestion control spreads what is written by itself.
pub(crate) fn paces(socket: &impl AsFd) -> bool {
    SockRef::from(socket).tcp_congestion().is_ok_and(|known| name(&known).starts_with(BBR))
}

/// Returns the name of what connections here have, if that is BBR and may be given to them. That is looked at until it is known: a
/// process that has no descriptor left at that moment must not do without for ever.
fn usual_bbr() -> io::Result<Option<&'static [u8]>> {
    static USUAL: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    if let Some(usual) = USUAL.get() {
        return Ok(usual.as_deref());
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let usual = name(&socket.tcp_congestion()?).to_vec();
    let may_change = usual.starts_with(BBR)
        && socket.set_tcp_congestion(RENO).is_ok()
        && socket.set_tcp_congestion(&usual).is_ok();
    Ok(USUAL.get_or_init(|| may_change.then_some(usual)).as_deref())
}

/// The kernel fills it up with zeros.
fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_begins_again_after_a_pause_and_not_before() {
        let at = |ms: u64| Instant::from_ns(ms * MILLI_NS);
        let mut pauses = Pauses::default();
        let writes = [1_000, 1_001, 1_500, 2_000, 2_499, 3_500, 3_501]
            .map(|ms| pauses.writes(at(ms)).map(|pause_ns| pause_ns / MILLI_NS));
        assert_eq!(writes, [None, None, None, Some(500), None, Some(1_001), None]);
    }

    #[test]
    fn who_waits_for_answers_over_a_long_path_makes_no_pause() {
        let is_due = |pause_ms: u64, round_trip_ms: u64| {
            is_out_of_date(pause_ms * MILLI_NS, round_trip_ms * MILLI_NS)
        };
        assert!(is_due(500, 20) && is_due(500, 50) && !is_due(499, 0));
        assert!(!is_due(620, 600) && is_due(6_000, 600));
        assert!(!is_out_of_date(u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn what_begins_again_is_as_it_was_and_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let before = SockRef::from(&near).tcp_congestion().unwrap();
        for _ in 0..3 {
            near.write_all(&[1; 20_000]).unwrap();
            far.read_exact(&mut [0; 20_000]).unwrap();
            begin_again(&near).unwrap();
        }
        assert_eq!(SockRef::from(&near).tcp_congestion().unwrap(), before);
    }
}
