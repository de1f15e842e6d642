//! The list of targets that an egress may connect to.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

use crate::target::Host;

/// One entry of the list: hosts and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    hosts: Hosts,
    ports: RangeInclusive<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    Name(String),
    /// All names that end so; begins with a dot.
    Suffix(String),
    Prefix(IpNet),
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{0}\" is no target to allow: write HOST:PORT, where HOST is a name, *.DOMAIN, an address, a \
     prefix (10.0.0.0/8, [2001:db8::]/32) or *, and PORT a number, a range (8000-8099) or *"
)]
pub struct RuleError(String);

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let error = || RuleError(text.to_owned());
        let (hosts, ports) = text.rsplit_once(':').ok_or_else(error)?;
        let ports = read_ports(ports).ok_or_else(error)?;
        let hosts = read_hosts(hosts).ok_or_else(error)?;
        Ok(Self { hosts, ports })
    }
}

fn read_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
    if text == "*" {
        return Some(1..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first)?..=port(last)?;
    (!range.is_empty()).then_some(range)
}

fn read_hosts(text: &str) -> Option<Hosts> {
    if text == "*" {
        return Some(Hosts::Any);
    }
    if let Some(suffix) = text.strip_prefix('*') {
        let domain = suffix.strip_prefix('.')?;
        let Ok(Host::Name(domain)) = Host::name(domain.as_bytes()) else { return None };
        return Some(Hosts::Suffix(format!(".{domain}")));
    }
    // [2001:db8::]/32, [2001:db8::7]
    let text = text.replacen('[', "", 1).replacen(']', "", 1);
    if let Ok(prefix) = text.parse::<IpNet>() {
        return Some(Hosts::Prefix(prefix.trunc()));
    }
    match Host::name(text.as_bytes()).ok()? {
        Host::Ip(ip) => Some(Hosts::Prefix(ip.into())),
        Host::Name(name) => Some(Hosts::Name(name)),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::Name(name) => f.write_str(name)?,
            Hosts::Suffix(suffix) => write!(f, "*{suffix}")?,
            Hosts::Prefix(IpNet::V6(prefix)) => {
                write!(f, "[{}]/{}", prefix.addr(), prefix.prefix_len())?;
            }
            Hosts::Prefix(prefix) => write!(f, "{prefix}")?,
        }
        match (*self.ports.start(), *self.ports.end()) {
            (1, u16::MAX) => f.write_str(":*"),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

/// The list. An empty one allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Rule>);

/// The list's answer for a host and a port, before the host's addresses are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is allowed, whatever its addresses are.
    Yes,
    /// It is allowed if [`AllowList::allows_address`] says so of the address.
    IfAddress,
    /// It is not allowed; there is no need to look its name up.
    No,
}

impl AllowList {
    /// The list with these rules.
    pub const fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// Returns true if it allows nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the list's answer for a host.
    pub fn check(&self, host: &Host, port: u16) -> Access {
        let name = match host {
            Host::Ip(ip) if self.allows_address(*ip, port) => return Access::Yes,
            Host::Ip(_) => return Access::No,
            Host::Name(name) => name.trim_end_matches('.'),
        };
        let mut access = Access::No;
        for rule in self.0.iter().filter(|rule| rule.ports.contains(&port)) {
            match &rule.hosts {
                Hosts::Any => return Access::Yes,
                Hosts::Name(allowed) if allowed.trim_end_matches('.') == name => {
                    return Access::Yes;
                }
                Hosts::Suffix(suffix) if name.ends_with(suffix.as_str()) => return Access::Yes,
                Hosts::Prefix(_) => access = Access::IfAddress,
                _ => {}
            }
        }
        access
    }

    /// Returns true if it allows this address, by prefix.
    pub fn allows_address(&self, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|rule| {
            let hosts = match &rule.hosts {
                Hosts::Any => true,
                Hosts::Prefix(prefix) => prefix.contains(&ip),
                _ => false,
            };
            hosts && rule.ports.contains(&port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &[&str]) -> AllowList {
        AllowList::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn check(list: &AllowList, target: &str) -> Access {
        let target: crate::target::Target = target.parse().unwrap();
        list.check(&target.host, target.port)
    }

    #[test]
    fn rules_are_read_and_shown() {
        for rule in [
            "db:5432",
            "*.example:80-99",
            "10.0.0.0/8:*",
            "[2001:db8::]/32:22",
            "*:*",
            "10.0.0.7/32:1",
        ] {
            assert_eq!(rule.parse::<Rule>().unwrap().to_string(), rule);
        }
        assert_eq!("[::1]:1".parse::<Rule>().unwrap().to_string(), "[::1]/128:1");
        for bad in ["db", "db:", "db:0", "db:9-8", "*example:80", "10.0.0.0/99:1", "a b:1", ":1"] {
            assert!(bad.parse::<Rule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        assert_eq!(check(&AllowList::default(), "db:5432"), Access::No);
    }

    #[test]
    fn names_and_addresses_are_different_things() {
        let rules = list(&["db:5432", "*.example:443", "10.0.0.0/8:80"]);
        assert_eq!(check(&rules, "DB.:5432"), Access::Yes);
        assert_eq!(check(&rules, "db:5433"), Access::No);
        assert_eq!(check(&rules, "www.example:443"), Access::Yes);
        assert_eq!(check(&rules, "example:443"), Access::No);
        assert_eq!(check(&rules, "wwwexample:443"), Access::No);
        assert_eq!(check(&rules, "10.1.2.3:80"), Access::Yes);
        assert_eq!(check(&rules, "[::ffff:10.1.2.3]:80"), Access::Yes);
        assert_eq!(check(&rules, "11.1.2.3:80"), Access::No);
        // A name may turn out to be in the prefix.
        assert_eq!(check(&rules, "intranet:80"), Access::IfAddress);
        assert!(rules.allows_address("10.9.9.9".parse().unwrap(), 80));
        assert!(!rules.allows_address("10.9.9.9".parse().unwrap(), 81));
        assert_eq!(check(&list(&["*:22"]), "anything:22"), Access::Yes);
    }
}
