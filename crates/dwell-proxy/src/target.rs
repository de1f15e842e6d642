//! The target of a stream: an address or a name, and a port. Its notations for people, for SOCKS
//! clients and on the connection between the two proxies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The longest name, in bytes: what a SOCKS request can hold, and DNS too (RFC 1035, 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// A host, by address or by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address; never an IPv4 address in IPv6's clothes.
    Ip(IpAddr),
    /// A name for the egress to resolve: 1 to [`NAME_BYTES_MAX`] bytes, printable ASCII without
    /// spaces, lower case.
    Name(String),
}

impl Host {
    /// The host with this address; `::ffff:10.0.0.1` is `10.0.0.1`.
    pub fn ip(ip: IpAddr) -> Self {
        Self::Ip(ip.to_canonical())
    }

    /// The host with this name, or with this address if it is written as one.
    ///
    /// # Errors
    /// [`TargetError::Name`].
    pub fn name(name: &[u8]) -> Result<Self, TargetError> {
        let text = std::str::from_utf8(name).map_err(|_| TargetError::Name)?;
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::ip(ip));
        }
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        // The characters that names have in practice. Nothing else ever reaches a resolver, a
        // log or a terminal.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !fits || !text.bytes().all(plain) {
            return Err(TargetError::Name);
        }
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A host and a TCP port on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// Why something is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// No colon with a port behind it.
    #[error("write HOST:PORT, as db.example:5432, 10.0.0.7:80 or [2001:db8::7]:80")]
    Form,
    /// Not a port.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// Not a name.
    #[error("the host must be an address, or a name of letters, digits, hyphens and dots")]
    Name,
    /// An address of a kind that is not known (in bytes from somebody else).
    #[error("the address is of an unknown kind")]
    Kind,
    /// It ends too soon (in bytes from somebody else).
    #[error("the address is cut short")]
    Short,
}

impl Target {
    /// The target at this socket address.
    pub fn at(address: SocketAddr) -> Self {
        Self { host: Host::ip(address.ip()), port: address.port() }
    }

    /// Returns its socket address, if it is no name.
    pub const fn address(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Ip(ip) => Some(SocketAddr::new(*ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// Its bytes, in the form of RFC 1928, section 5: kind of address, address, port.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(KIND_IPV4);
                out.extend(ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(KIND_IPV6);
                out.extend(ip.octets());
            }
            Host::Name(name) => {
                let bytes = &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)];
                out.push(KIND_NAME);
                out.push(bytes.len() as u8);
                out.extend(bytes);
            }
        }
        out.extend(self.port.to_be_bytes());
    }

    /// Reads what [`encode`](Self::encode) wrote, and how many bytes that was.
    ///
    /// # Errors
    /// [`TargetError::Short`] if more bytes are needed; the others if none would help.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), TargetError> {
        match Self::decode_end(bytes)? {
            (Self { port: 0, .. }, _) => Err(TargetError::Port),
            decoded => Ok(decoded),
        }
    }

    /// The same of an end of somebody's connection, whose port may not be known: it is 0 then.
    pub(crate) fn decode_end(bytes: &[u8]) -> Result<(Self, usize), TargetError> {
        let (&kind, rest) = bytes.split_first().ok_or(TargetError::Short)?;
        let (host, rest) = match kind {
            KIND_IPV4 => {
                let (ip, rest) = rest.split_first_chunk::<4>().ok_or(TargetError::Short)?;
                (Host::Ip(Ipv4Addr::from(*ip).into()), rest)
            }
            KIND_IPV6 => {
                let (ip, rest) = rest.split_first_chunk::<16>().ok_or(TargetError::Short)?;
                (Host::ip(Ipv6Addr::from(*ip).into()), rest)
            }
            KIND_NAME => {
                let (&len, rest) = rest.split_first().ok_or(TargetError::Short)?;
                let (name, rest) =
                    rest.split_at_checked(usize::from(len)).ok_or(TargetError::Short)?;
                (Host::name(name)?, rest)
            }
            _ => return Err(TargetError::Kind),
        };
        let (port, rest) = rest.split_first_chunk::<2>().ok_or(TargetError::Short)?;
        let port = u16::from_be_bytes(*port);
        Ok((Self { host, port }, bytes.len() - rest.len()))
    }
}

const KIND_IPV4: u8 = 1;
const KIND_NAME: u8 = 3;
const KIND_IPV6: u8 = 4;

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Form)?;
        let port = port.parse().ok().filter(|&port| port > 0).ok_or(TargetError::Port)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ip) => Host::ip(IpAddr::V6(ip.parse().map_err(|_| TargetError::Name)?)),
            // An IPv6 address without brackets: which of its colons begins the port?
            None if host.contains(':') => return Err(TargetError::Form),
            None => Host::name(host.as_bytes())?,
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_write_targets() {
        for text in ["db.example:5432", "10.0.0.7:80", "[2001:db8::7]:80", "a_b-c:1"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!("[::ffff:10.0.0.1]:9".parse::<Target>().unwrap().to_string(), "10.0.0.1:9");
        assert_eq!("DB:9".parse::<Target>().unwrap().to_string(), "db:9");
    }

    #[test]
    fn other_texts_are_no_targets() {
        for (text, error) in [
            ("db", TargetError::Form),
            ("2001:db8::7:80", TargetError::Form),
            ("db:0", TargetError::Port),
            ("db:65536", TargetError::Port),
            (":80", TargetError::Name),
            ("a b:80", TargetError::Name),
            ("[db]:80", TargetError::Name),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
        let long = "x".repeat(256);
        assert_eq!(Host::name(long.as_bytes()), Err(TargetError::Name));
        assert_eq!(Host::name(b"\x1b[2J"), Err(TargetError::Name));
    }

    proptest! {
        #[test]
        fn bytes_come_back(name in "[a-z0-9._-]{1,255}", port in 1u16.., ip: [u8; 16], kind in 0..3) {
            let host = match kind {
                0 => Host::name(name.as_bytes()).unwrap(),
                1 => Host::ip(Ipv6Addr::from(ip).into()),
                _ => Host::ip(Ipv4Addr::from_octets([ip[0], ip[1], ip[2], ip[3]]).into()),
            };
            let target = Target { host, port };
            let mut bytes = Vec::new();
            target.encode(&mut bytes);
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(Target::decode(&bytes[..cut]), Err(TargetError::Short));
            }
            bytes.push(7);
            prop_assert_eq!(Target::decode(&bytes), Ok((target, len)));
        }
    }
}
