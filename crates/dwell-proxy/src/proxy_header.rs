//! The header of the PROXY protocol, version 2: whom a connection is for, said by a proxy before all else. Bytes in,
//! bytes out.
//!
//! It is described by its author, Willy Tarreau, in "The PROXY protocol" (HAProxy's documentation). Version 1,
//! which is text, is not read: the reason says so.

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

/// The longest header that is read, in bytes. Addresses take 52; the rest is for extensions, which are ignored.
pub const HEADER_BYTES_MAX: usize = 16 + 1024;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_BYTES: usize = 16;
/// Version 2 and the command: the proxy's own connection (a health check), or one for somebody.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyHeaderError {
    /// They begin with something else.
    #[error("the connection does not begin with a header of the PROXY protocol")]
    Missing,
    /// They are text.
    #[error(
        "the connection begins with a header of version 1 of the PROXY protocol: use version 2 \
         (HAProxy: send-proxy-v2)"
    )]
    Version1,
    /// Another version or command, or too long.
    #[error("the connection begins with a malformed header of the PROXY protocol")]
    Malformed,
}

/// The two ends of the connection that a proxy has taken: the client, and where it has connected to.
pub type Ends = (SocketAddr, SocketAddr);

/// Returns the header for a connection.
pub fn encode((client, listener): Ends) -> Vec<u8> {
    let (client_ip, listener_ip) = (client.ip().to_canonical(), listener.ip().to_canonical());
    let mut bytes = SIGNATURE.to_vec();
    let addresses = match (client_ip, listener_ip) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([PROXY, TCP_IPV4]);
            [from.octets(), to.octets()].concat()
        }
        (from, to) => {
            let mapped = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            bytes.extend([PROXY, TCP_IPV6]);
            [mapped(from), mapped(to)].concat()
        }
    };
    bytes.extend((addresses.len() as u16 + 4).to_be_bytes());
    bytes.extend(addresses);
    bytes.extend(client.port().to_be_bytes());
    bytes.extend(listener.port().to_be_bytes());
    bytes
}

/// Reads a header at the start of `bytes`, and how many bytes it has: the ends, or none if the connection is the
/// proxy's own, or of another kind. `None` if more bytes are needed, of which there are never more than
/// [`HEADER_BYTES_MAX`].
///
/// # Errors
/// [`ProxyHeaderError`], at the first byte that does not fit.
pub fn decode(bytes: &[u8]) -> Result<Option<(Option<Ends>, usize)>, ProxyHeaderError> {
    if bytes.iter().zip(SIGNATURE).any(|(&byte, expected)| byte != expected) {
        let is_text =
            bytes.starts_with(b"P") && b"PROXY ".starts_with(&bytes[..bytes.len().min(6)]);
        return Err(match is_text || bytes.starts_with(b"PROXY ") {
            true => ProxyHeaderError::Version1,
            false => ProxyHeaderError::Missing,
        });
    }
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let [command, family, high, low] = [fixed[12], fixed[13], fixed[14], fixed[15]];
    let len = usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, LOCAL | PROXY) || FIXED_BYTES + len > HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::Malformed);
    }
    let Some(body) = bytes.get(FIXED_BYTES..FIXED_BYTES + len) else { return Ok(None) };
    let ends = match (command, family) {
        (PROXY, TCP_IPV4) => Some(ends::<4>(body)?),
        (PROXY, TCP_IPV6) => Some(ends::<16>(body)?),
        _ => None,
    };
    Ok(Some((ends, FIXED_BYTES + len)))
}

fn ends<const N: usize>(body: &[u8]) -> Result<Ends, ProxyHeaderError>
where
    IpAddr: From<[u8; N]>,
{
    let malformed = ProxyHeaderError::Malformed;
    let (&from, rest) = body.split_first_chunk::<N>().ok_or(malformed)?;
    let (&to, rest) = rest.split_first_chunk::<N>().ok_or(malformed)?;
    let &[a, b, c, d] = rest.first_chunk::<4>().ok_or(malformed)?;
    let address = |ip: [u8; N], port| SocketAddr::new(IpAddr::from(ip).to_canonical(), port);
    Ok((address(from, u16::from_be_bytes([a, b])), address(to, u16::from_be_bytes([c, d]))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_what_the_document_says() {
        let ends = ("192.0.2.1:258".parse().unwrap(), "198.51.100.2:80".parse().unwrap());
        let bytes = encode(ends);
        let expected =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\x01\x02\0\x50";
        assert_eq!(bytes, expected);
        assert_eq!(decode(&bytes), Ok(Some((Some(ends), 28))));
    }

    #[test]
    fn both_kinds_of_addresses_come_back() {
        for (from, to, len) in [
            ("[2001:db8::1]:1", "[2001:db8::2]:2", 52),
            ("192.0.2.1:1", "[2001:db8::2]:2", 52),
            ("[::ffff:192.0.2.1]:1", "192.0.2.2:2", 28),
        ] {
            let ends: Ends = (from.parse().unwrap(), to.parse().unwrap());
            let bytes = encode(ends);
            let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
            let known = (canonical(ends.0), canonical(ends.1));
            assert_eq!(decode(&bytes), Ok(Some((Some(known), len))));
        }
    }

    #[test]
    fn what_a_proxy_asks_for_itself_has_no_ends() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([LOCAL, 0, 0, 3, 1, 2, 3, b'x']);
        assert_eq!(decode(&bytes), Ok(Some((None, 19))));
        // A kind that is not TCP's.
        bytes[12..14].copy_from_slice(&[PROXY, 0x31]);
        assert_eq!(decode(&bytes), Ok(Some((None, 19))));
        // Addresses that are cut short.
        bytes[13] = TCP_IPV4;
        assert_eq!(decode(&bytes), Err(ProxyHeaderError::Malformed));
    }

    #[test]
    fn what_is_no_header_is_said_at_once() {
        assert_eq!(decode(b""), Ok(None));
        assert_eq!(decode(b"\r\n\r\n"), Ok(None));
        assert_eq!(decode(b"G"), Err(ProxyHeaderError::Missing));
        assert_eq!(decode(b"POST / HTTP/1.1"), Err(ProxyHeaderError::Missing));
        assert_eq!(decode(b"PROXY TCP4 "), Err(ProxyHeaderError::Version1));
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([PROXY, TCP_IPV4, 0xff, 0xff]);
        assert_eq!(decode(&bytes), Err(ProxyHeaderError::Malformed));
        bytes[12] = 0x31;
        assert_eq!(decode(&bytes), Err(ProxyHeaderError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(tail in prop::collection::vec(any::<u8>(), 0..1200)) {
            let bytes = [&SIGNATURE[..], &tail].concat();
            match decode(&bytes) {
                Ok(Some((_, used))) => prop_assert!(used <= bytes.len()),
                Ok(None) => prop_assert!(bytes.len() < HEADER_BYTES_MAX),
                Err(error) => prop_assert_eq!(error, ProxyHeaderError::Malformed),
            }
        }
    }
}
