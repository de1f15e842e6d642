//! The address that a peer listens on.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// An address or a host name, with a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `198.51.100.7:7733`, `[2001:db8::7]:7733`.
    Address(SocketAddr),
    /// `hub.example.net:7733`, to be resolved when the relay starts.
    Name {
        /// The host name.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Endpoint {
    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }

    /// The address, unless a name must be resolved first.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address.ip()),
            Self::Name { .. } => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseEndpointError {
    /// No port at the end.
    #[error("\"{0}\" has no port: write for instance \"{0}:7733\"")]
    NoPort(String),
    /// An IPv6 address whose port can't be distinguished from its end.
    #[error("put an IPv6 address into brackets: \"[{0}]:7733\"")]
    Brackets(String),
    /// The port is no number, zero or too large.
    #[error("\"{0}\" is no UDP port: use a number from 1 to 65535")]
    Port(String),
    /// Neither an address nor a name.
    #[error(
        "\"{0}\" is neither an IP address nor a host name: write for instance \
         \"198.51.100.7:7733\" or \"hub.example.net:7733\""
    )]
    Host(String),
    /// `0.0.0.0` or `::`.
    #[error("{0} is no address that datagrams can be sent to: write the peer's own address")]
    Unspecified(IpAddr),
}

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        let text = text.trim();
        if let Ok(address) = text.parse::<SocketAddr>() {
            return check_address(address);
        }
        match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => return Err(ParseEndpointError::NoPort(text.to_owned())),
            Ok(IpAddr::V6(_)) => return Err(ParseEndpointError::Brackets(text.to_owned())),
            Err(_) => {}
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(match is_host_name(text) {
                true => ParseEndpointError::NoPort(text.to_owned()),
                false => ParseEndpointError::Host(text.to_owned()),
            });
        };
        // Digits and dots alone are a mistyped address and no name that anyone has.
        if !is_host_name(host) || host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(ParseEndpointError::Host(host.to_owned()));
        }
        Ok(Self::Name { host: host.to_owned(), port: parse_port(port)? })
    }
}

fn check_address(address: SocketAddr) -> Result<Endpoint, ParseEndpointError> {
    if address.ip().is_unspecified() {
        return Err(ParseEndpointError::Unspecified(address.ip()));
    }
    if address.port() == 0 {
        return Err(ParseEndpointError::Port("0".to_owned()));
    }
    Ok(Endpoint::Address(address))
}

fn parse_port(text: &str) -> Result<u16, ParseEndpointError> {
    let port = text.parse().ok().filter(|&port| port != 0);
    port.ok_or_else(|| ParseEndpointError::Port(text.to_owned()))
}

/// RFC 1123, with the underscores that are in use.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_endpoints() {
        for text in ["198.51.100.7:7733", "[2001:db8::7]:1", "hub.example.net:65535", "a_b:2"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let endpoint: Endpoint = "hub:7733".parse().unwrap();
        assert_eq!((endpoint.ip(), endpoint.port()), (None, 7733));
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error("hub").contains("write for instance \"hub:7733\""));
        assert!(error("10.0.0.1").contains("\"10.0.0.1:7733\""));
        assert!(error("fd77::1").contains("\"[fd77::1]:7733\""));
        assert!(error("hub:0").contains("1 to 65535"));
        assert!(error("hub:70000").contains("\"70000\" is no UDP port"));
        assert!(error("10.0.0.1:0").contains("\"0\" is no UDP port"));
        assert!(error("0.0.0.0:7733").contains("the peer's own address"));
        for bad in ["", ":1", "300.1.1.1:7", "a b:7", "-x:7", "a..b:7", "fd77::1::2"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
