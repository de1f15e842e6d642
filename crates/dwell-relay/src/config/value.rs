//! Reading one value: what it must be, and the sentence if it is something else.

use std::net::SocketAddr;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dwell_base::text::printable;
use dwell_base::time::{SECOND_NS, format_duration_ns, parse_duration_ns};
use dwell_base::{ByteSize, Rate};
use dwell_policy::{ClassKey, Ratio};
use ipnet::IpNet;
use toml::de::DeValue;

use super::{
    Endpoint, FailMode, LinkOverhead, LogLevel, MTU_MIN, MtuConfig, PublicKey, RateConfig, SCHEMES,
    THREADS_MAX, TUN_NAME_BYTES_MAX, UnknownLink,
};

type Read<T> = Result<T, String>;

/// Returns the type of a value, with its article.
pub(super) fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn text<'v>(value: &'v DeValue<'_>, example: &str) -> Read<&'v str> {
    value
        .as_str()
        .ok_or_else(|| format!("must be a string such as \"{example}\", not {}", describe(value)))
}

pub(super) fn parse<T: FromStr<Err: ToString>>(value: &DeValue<'_>, example: &str) -> Read<T> {
    let text = text(value, example)?;
    if text.chars().any(char::is_control) {
        return Err(format!("\"{}\" has a control character in it", printable(text)));
    }
    text.parse().map_err(|error: T::Err| error.to_string())
}

pub(super) fn boolean(value: &DeValue<'_>) -> Read<bool> {
    value
        .as_bool()
        .ok_or_else(|| format!("must be true or false (without quotes), not {}", describe(value)))
}

/// A whole number in `range`.
pub(super) fn integer(value: &DeValue<'_>, range: RangeInclusive<u32>) -> Read<u32> {
    let must = format!("must be a whole number from {} to {}", range.start(), range.end());
    let Some(integer) = value.as_integer() else {
        return Err(format!("{must}, not {}", describe(value)));
    };
    u32::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("{must}, not {}", printable(&integer.to_string())))
}

/// A length of time in `range_ns`.
pub(super) fn duration_ns(value: &DeValue<'_>, range_ns: RangeInclusive<u64>) -> Read<u64> {
    let example = "250ms";
    let ns = parse_duration_ns(text(value, example)?)?;
    if range_ns.contains(&ns) {
        return Ok(ns);
    }
    let (min, max) = (format_duration_ns(*range_ns.start()), format_duration_ns(*range_ns.end()));
    Err(format!("must be from {min} to {max}, not {}", format_duration_ns(ns)))
}

/// A size in `range` bytes.
pub(super) fn size_bytes(value: &DeValue<'_>, range: RangeInclusive<u64>) -> Read<u64> {
    let bytes = match value {
        DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix())
            .map_err(|_| format!("{} is no size", printable(&integer.to_string())))?,
        DeValue::String(text) => text.parse::<ByteSize>()?.0,
        other => {
            let found = describe(other);
            return Err(format!("must be a size such as \"4MiB\" or 65536, not {found}"));
        }
    };
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let (min, max) = (ByteSize(*range.start()), ByteSize(*range.end()));
    Err(format!("must be from {min} to {max}, not {}", ByteSize(bytes)))
}

/// A name for people, that can also be part of a file name.
pub(super) fn name(value: &DeValue<'_>) -> Read<String> {
    let name = text(value, "site-a")?;
    if is_name(name) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "\"{}\" can't be a name: use 1 to 63 letters, digits, dots, hyphens and underscores, \
         with a letter or a digit first",
        printable(name)
    ))
}

/// Returns true if this can be the name of a node, a peer or a class.
pub fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

pub(super) fn interface(value: &DeValue<'_>) -> Read<String> {
    let name = text(value, "dwell0")?;
    if name.len() > TUN_NAME_BYTES_MAX {
        return Err(format!(
            "\"{}\" has {} bytes, and an interface's name can have {TUN_NAME_BYTES_MAX} at most: \
             shorten it",
            printable(name),
            name.len()
        ));
    }
    if !is_name(name) {
        return Err(format!(
            "\"{}\" can't be an interface's name: use letters, digits, dots, hyphens and \
             underscores, with a letter or a digit first",
            printable(name)
        ));
    }
    Ok(name.to_owned())
}

/// An address with its prefix length.
pub(super) fn interface_address(value: &DeValue<'_>) -> Read<IpNet> {
    let net = ip_net(value, "10.77.0.1/30")?;
    let address = net.addr();
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("{address} can't be an interface's address: choose another"));
    }
    Ok(net)
}

/// A prefix without host bits.
pub(super) fn prefix(value: &DeValue<'_>) -> Read<IpNet> {
    let net = ip_net(value, "10.0.0.0/8")?;
    if net.trunc() != net {
        return Err(format!(
            "{net} has bits beyond its prefix length: write \"{}\", or \"{}/{}\" for the one \
             address",
            net.trunc(),
            net.addr(),
            net.max_prefix_len()
        ));
    }
    Ok(net)
}

fn ip_net(value: &DeValue<'_>, example: &str) -> Read<IpNet> {
    let text = text(value, example)?.trim();
    if let Ok(net) = text.parse() {
        return Ok(net);
    }
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        let bits = IpNet::from(address).max_prefix_len();
        return Err(format!(
            "{address} has no prefix length: write for instance \"{address}/{bits}\""
        ));
    }
    Err(format!(
        "\"{}\" is no address with a prefix length: write for instance \"{example}\"",
        printable(text)
    ))
}

pub(super) fn listen(value: &DeValue<'_>) -> Read<SocketAddr> {
    let text = text(value, "0.0.0.0:7733")?.trim();
    text.parse().map_err(|_| {
        format!(
            "\"{}\" is no address with a port: write for instance \"0.0.0.0:7733\", or \
             \"[::]:7733\" for IPv6",
            printable(text)
        )
    })
}

pub(super) fn endpoint(value: &DeValue<'_>) -> Read<Endpoint> {
    parse(value, "198.51.100.7:7733")
}

pub(super) fn mtu(value: &DeValue<'_>) -> Read<MtuConfig> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(MtuConfig::Auto),
        DeValue::Integer(_) => integer(value, u32::from(MTU_MIN)..=u32::from(u16::MAX))
            .map(|bytes| MtuConfig::Fixed(u16::try_from(bytes).unwrap_or(u16::MAX)))
            .map_err(|error| format!("{error}; or \"auto\"")),
        _ => Err(format!("must be \"auto\" or a number of bytes from {MTU_MIN} to {}", u16::MAX)),
    }
}

/// The number of threads, or `None` for as many as there are processors.
pub(super) fn threads(value: &DeValue<'_>) -> Read<Option<NonZero<usize>>> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(None),
        DeValue::Integer(_) => integer(value, 1..=THREADS_MAX as u32)
            .map(|threads| NonZero::new(threads as usize))
            .map_err(|error| format!("{error}; or \"auto\"")),
        _ => Err(format!("must be \"auto\" or a number from 1 to {THREADS_MAX}")),
    }
}

/// The least memory for contexts: of some at once.
const HISTORY_MEMORY_BYTES_MIN: u64 = 32 << 20;

/// The memory for all contexts, or `None` for most of the machine's.
pub(super) fn history_memory(value: &DeValue<'_>) -> Read<Option<u64>> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(None),
        _ => size_bytes(value, HISTORY_MEMORY_BYTES_MIN..=1 << 40)
            .map(Some)
            .map_err(|error| format!("{error}; or \"auto\"")),
    }
}

/// The longest path of a Unix socket (`sun_path`, with its final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The path of the status socket, or `None` if it is switched off.
pub(super) fn status(value: &DeValue<'_>) -> Read<Option<PathBuf>> {
    let path = text(value, "/run/dwell/site-a.sock")?;
    if path == "none" {
        return Ok(None);
    }
    if path.contains('\0') || !Path::new(path).is_absolute() {
        return Err(format!(
            "\"{}\" is no path from the root: write for instance \"/run/dwell/site-a.sock\", or \
             \"none\" to switch it off",
            printable(path)
        ));
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "the path has {} bytes, and a socket's can have {SOCKET_PATH_BYTES_MAX} at most: \
             shorten it",
            path.len()
        ));
    }
    Ok(Some(path.into()))
}

pub(super) fn key_file(value: &DeValue<'_>) -> Read<PathBuf> {
    let path = text(value, "/etc/dwell/hub.psk")?;
    if path.is_empty() || path.contains('\0') {
        return Err("must be the path of a file: `dwell genpsk --out FILE` makes one".to_owned());
    }
    Ok(path.into())
}

pub(super) fn exceptions_file(value: &DeValue<'_>) -> Read<PathBuf> {
    let path = text(value, "/etc/dwell/exceptions.toml")?;
    if path.is_empty() || path.contains('\0') {
        return Err("must be the path of a file: `dwell trace analyze CAPTURE --exceptions FILE` \
                    makes one"
            .to_owned());
    }
    Ok(path.into())
}

pub(super) fn private_key_file(value: &DeValue<'_>) -> Read<PathBuf> {
    let path = text(value, "/etc/dwell/private.key")?;
    if path.is_empty() || path.contains('\0') {
        return Err("must be the path of a file: `dwell genkey --out FILE` makes one".to_owned());
    }
    Ok(path.into())
}

pub(super) fn public_key(value: &DeValue<'_>) -> Read<PublicKey> {
    parse(value, "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=")
}

pub(super) fn metrics_listen(value: &DeValue<'_>) -> Read<SocketAddr> {
    let example = "127.0.0.1:9478";
    text(value, example)?
        .parse()
        .map_err(|_| format!("must be an IP address and a port such as \"{example}\""))
}

pub(super) fn user(value: &DeValue<'_>) -> Read<Option<String>> {
    let name = text(value, "dwell")?;
    if name == "none" {
        return Ok(None);
    }
    if name.is_empty() || name.chars().any(|c| c.is_control() || c == ':' || c == '/') {
        return Err("must be the name of a user, or \"none\" to remain who started it".to_owned());
    }
    Ok(Some(name.to_owned()))
}

/// One of the `possible` values, by its name.
fn one_of<T>(value: &DeValue<'_>, possible: &[(&str, T)]) -> Read<T>
where
    T: Copy,
{
    let names: Vec<&str> = possible.iter().map(|&(name, _)| name).collect();
    let quoted = format!("\"{}\"", names.join("\", \""));
    let Some(text) = value.as_str() else {
        return Err(format!("must be one of {quoted}, not {}", describe(value)));
    };
    possible
        .iter()
        .find(|&&(name, _)| name == text)
        .map(|&(_, value)| value)
        .ok_or_else(|| format!("must be one of {quoted}, not \"{}\"", printable(text)))
}

pub(super) fn log(value: &DeValue<'_>) -> Read<LogLevel> {
    one_of(value, &LogLevel::ALL.map(|level| (level.name(), level)))
}

pub(super) fn on_dead(value: &DeValue<'_>) -> Read<FailMode> {
    one_of(value, &[FailMode::Open, FailMode::Closed].map(|mode| (mode.name(), mode)))
}

/// A number of packets, or none for `"auto"`.
pub(super) fn block_packets(value: &DeValue<'_>) -> Read<Option<u32>> {
    match value.as_str() {
        Some("auto") => Ok(None),
        Some(other) => Err(format!(
            "must be \"auto\" or a number of packets from 1 to 64, not \"{}\"",
            printable(other)
        )),
        None => integer(value, 1..=64).map(Some),
    }
}

pub(super) fn scheme(value: &DeValue<'_>) -> Read<&'static str> {
    one_of(value, &SCHEMES.map(|name| (name, name)))
}

/// A time, or none for `"auto"`.
pub(super) fn one_way_delay(value: &DeValue<'_>) -> Read<Option<u64>> {
    match value.as_str() {
        Some("auto") => Ok(None),
        _ => duration_ns(value, 0..=10 * SECOND_NS)
            .map(Some)
            .map_err(|message| format!("{message}; or \"auto\"")),
    }
}

/// The kinds of security, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecurityKind {
    Keys,
    Psk,
    None,
}

pub(super) fn security(value: &DeValue<'_>) -> Read<SecurityKind> {
    let kinds =
        [("keys", SecurityKind::Keys), ("psk", SecurityKind::Psk), ("none", SecurityKind::None)];
    one_of(value, &kinds)
}

pub(super) fn rate(value: &DeValue<'_>) -> Read<RateConfig> {
    match value.as_str() {
        Some("auto") => Ok(RateConfig::Auto),
        Some("local") => Ok(RateConfig::Local),
        Some("unlimited") => Ok(RateConfig::Unlimited),
        Some(_) => parse::<Rate>(value, "10mbit")
            .map(RateConfig::Fixed)
            .map_err(|error| format!("{error}; or \"auto\", \"local\" or \"unlimited\"")),
        None => Err(format!(
            "must be \"auto\", \"local\", \"unlimited\" or a rate with its unit such as \"10mbit\", \
             not {}",
            describe(value)
        )),
    }
}

/// The rate of a link that all peers share, or `None` if they don't.
pub(super) fn uplink(value: &DeValue<'_>) -> Read<Option<Rate>> {
    match value.as_str() {
        Some("none") => Ok(None),
        _ => parse::<Rate>(value, "20mbit")
            .map(Some)
            .map_err(|error| format!("{error}; or \"none\"")),
    }
}

/// Bytes, or the name of a link.
pub(super) fn link_overhead(value: &DeValue<'_>) -> Read<LinkOverhead> {
    match value {
        DeValue::String(text) => {
            let unknown = |error| format!("{error}, not \"{}\"", printable(text));
            text.parse().map_err(|error: UnknownLink| unknown(error))
        }
        DeValue::Integer(_) => integer(value, 0..=1000).map(LinkOverhead::plain),
        _ => Err(format!("{UnknownLink}, not {}", describe(value))),
    }
}

/// A ratio that is more than zero and at most one.
pub(super) fn ratio(value: &DeValue<'_>) -> Read<Ratio> {
    let number = match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) => integer.as_str().parse::<f64>().ok(),
        _ => None,
    };
    number
        .filter(|number| (0.01..=1.0).contains(number))
        .map(|number| Ratio::from_ppm((number * 1e6).round() as u32))
        .ok_or_else(|| "must be a number from 0.01 to 1.0 (compressed / original)".to_owned())
}

/// What is to be saved: true for bytes, false for time.
pub(super) fn objective(value: &DeValue<'_>) -> Read<bool> {
    one_of(value, &[("time", false), ("bytes", true)])
}

/// A share such as `"50%"`, in parts per million; none if it is `"auto"`.
pub(super) fn share_ppm(value: &DeValue<'_>) -> Read<Option<u32>> {
    if value.as_str() == Some("auto") {
        return Ok(None);
    }
    let must = "must be \"auto\", or a share of one CPU from \"1%\" to \"100%\"";
    let number = value.as_str().and_then(|text| text.strip_suffix('%'));
    number
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| (1.0..=100.0).contains(percent))
        .map(|percent| Some((percent * 1e4).round() as u32))
        .ok_or_else(|| must.to_owned())
}

/// A class as [`ClassKey`] shows it; `ip47` may do without its port.
pub(super) fn class(value: &DeValue<'_>) -> Read<ClassKey> {
    let text = text(value, "tcp/443")?.trim();
    parse_class(text).ok_or_else(|| {
        format!(
            "\"{}\" is no class of packets: write for instance \"tcp/443\", \"udp/53\", \"icmp\", \
             \"icmpv6\" or \"ip47\" (a protocol by its number)",
            printable(text)
        )
    })
}

fn parse_class(text: &str) -> Option<ClassKey> {
    let (protocol, port) = match text.split_once('/') {
        Some((protocol, port)) => (protocol, Some(port)),
        None => (text, None),
    };
    let protocol = match (protocol, port) {
        ("icmp", None) => 1,
        ("icmpv6", None) => 58,
        ("tcp", Some(_)) => 6,
        ("udp", Some(_)) => 17,
        (other, _) => other.strip_prefix("ip")?.parse().ok()?,
    };
    let port = match port {
        Some(port) => port.parse().ok()?,
        None => 0,
    };
    Some(ClassKey::new(protocol, port))
}
