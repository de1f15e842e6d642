//! One short code in place of an address and a key.
//!
//! The address, the port unless it is the usual one, the key, and a byte that finds slips of the tongue or the
//! keyboard; in digits of five bits, in groups of four.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;
use zeroize::Zeroizing;

use super::FILE_PORT;
use super::key::{KEY_BYTES, OneTimeKey, digits, read_digits};

/// Where a receiver waits, and the key that it knows.
#[derive(Clone)]
pub struct Code {
    /// Its address.
    pub at: SocketAddr,
    /// The key.
    pub key: OneTimeKey,
}

/// Why a text is no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CodeError {
    /// It looks like something else.
    #[error("this is no code of `dwell recv`")]
    Other,
    /// It looks like one.
    #[error(
        "there is a mistake in this code: compare it with the one that `dwell recv` has printed"
    )]
    Mistaken,
}

const GROUP: usize = 4;
const IPV4_BYTES: usize = 4 + KEY_BYTES + 1;
const IPV4_PORT_BYTES: usize = IPV4_BYTES + 2;
const IPV6_BYTES: usize = 16 + KEY_BYTES + 1;
const IPV6_PORT_BYTES: usize = IPV6_BYTES + 2;

impl Code {
    /// For the user to take to the other end.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::new());
        match self.at.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        if self.at.port() != FILE_PORT {
            bytes.extend(self.at.port().to_be_bytes());
        }
        bytes.extend(self.key.0);
        let check = check(&bytes);
        bytes.push(check);
        let digits = Zeroizing::new(digits(&bytes));
        let mut text = Zeroizing::new(String::new());
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && at % GROUP == 0 {
                text.push('-');
            }
            text.push(digit);
        }
        text
    }
}

/// The hash's key keeps codes apart from whatever else is hashed.
fn check(bytes: &[u8]) -> u8 {
    blake3::derive_key("dwell 2026 code of a receiver", bytes)[0]
}

/// Reads what [`Code::reveal`] shows.
impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let groups: Vec<&str> = text.trim().split('-').collect();
        let (last, others) = groups.split_last().ok_or(CodeError::Other)?;
        let is_grouped = others.iter().all(|group| group.len() == GROUP);
        if others.len() < 5 || !is_grouped || last.len() > GROUP {
            return Err(CodeError::Other);
        }
        let bytes = Zeroizing::new(read_digits(&groups.concat()).ok_or(CodeError::Mistaken)?);
        let (&last, bytes) = bytes.split_last().ok_or(CodeError::Mistaken)?;
        if check(bytes) != last {
            return Err(CodeError::Mistaken);
        }
        let (place, key) = bytes.split_last_chunk().ok_or(CodeError::Mistaken)?;
        let (ip, port): (IpAddr, _) = match bytes.len() + 1 {
            IPV4_BYTES | IPV4_PORT_BYTES => {
                let (ip, port) = place.split_first_chunk::<4>().ok_or(CodeError::Mistaken)?;
                (Ipv4Addr::from(*ip).into(), port)
            }
            IPV6_BYTES | IPV6_PORT_BYTES => {
                let (ip, port) = place.split_first_chunk::<16>().ok_or(CodeError::Mistaken)?;
                (Ipv6Addr::from(*ip).into(), port)
            }
            _ => return Err(CodeError::Mistaken),
        };
        let port = match port {
            [high, low] => u16::from_be_bytes([*high, *low]),
            _ => FILE_PORT,
        };
        Ok(Self { at: SocketAddr::new(ip, port), key: OneTimeKey(*key) })
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[code]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(at: &str) -> Code {
        Code { at: at.parse().unwrap(), key: OneTimeKey::random().unwrap() }
    }

    #[test]
    fn codes_come_back() {
        let lengths = [
            ("192.0.2.7:7735", 29),
            ("192.0.2.7:1", 34),
            ("[2001:db8::7]:7735", 54),
            ("[2001:db8::7]:80", 58),
        ];
        for (at, len) in lengths {
            let code = code(at);
            let text = code.reveal();
            assert_eq!(text.len(), len, "{}", text.as_str());
            let read: Code = text.to_uppercase().parse().unwrap();
            assert_eq!((read.at, read.key.0), (code.at, code.key.0));
        }
    }

    #[test]
    fn mistakes_are_noticed() {
        let text = code("192.0.2.7:7735").reveal();
        let mut found = 0;
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'7' { "8" } else { "7" };
            let mut changed = text.to_string();
            changed.replace_range(at..=at, other);
            found += u32::from(changed.parse::<Code>().is_err());
        }
        // One of 256 passes by chance, and the key fails then.
        assert!(found >= 25, "{found}");
        assert_eq!(text[..27].parse::<Code>().unwrap_err(), CodeError::Mistaken);
    }

    #[test]
    fn hosts_are_no_codes() {
        for host in ["192.0.2.7", "192.0.2.7:7735", "hub.example", "a-b-c-d-e-f", "hub", "[::1]:7"]
        {
            assert_eq!(host.parse::<Code>().unwrap_err(), CodeError::Other, "{host}");
        }
        assert_eq!(format!("{:?}", code("192.0.2.7:1")), "[code]");
    }
}
