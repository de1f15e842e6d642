//! Lists that `dwell trace analyze --exceptions` writes (docs/exceptions.md): the ratio and the
//! time of compressing, by class of packets, in a real capture.

use serde::Deserialize;

/// The format that is understood.
const SCHEMA: &str = "dwell-exceptions/1";

#[derive(Debug, Deserialize)]
struct Lists {
    schema: String,
    #[serde(default)]
    exception: Vec<Exception>,
    #[serde(default)]
    estimate: Vec<Estimate>,
}

#[derive(Debug, Deserialize)]
struct Exception {
    protocol: String,
    port: u16,
}

#[derive(Debug, Deserialize)]
struct Estimate {
    protocol: String,
    port: u16,
    codec: String,
    ratio: f64,
    ns_per_byte: f64,
}

/// The expected ratio and time of a class of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// Compressed / original; 1 for an exception.
    pub(super) ratio: f64,
    /// Nanoseconds a byte; 0 for an exception, which nobody compresses.
    pub(super) byte_ns: f64,
}

/// Looks a class such as `tcp/80` up; of several codecs the named one, or else the first.
pub(super) fn find(text: &str, class: &str, codec: Option<&str>) -> Result<Expected, String> {
    let lists: Lists = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if lists.schema != SCHEMA {
        return Err(format!("it is of the format \"{}\", and \"{SCHEMA}\" is read", lists.schema));
    }
    let is_it = |protocol: &str, port: u16| format!("{protocol}/{port}") == class;
    if lists.exception.iter().any(|it| is_it(&it.protocol, it.port)) {
        return Ok(Expected { ratio: 1.0, byte_ns: 0.0 });
    }
    let of_class = || lists.estimate.iter().filter(|it| is_it(&it.protocol, it.port));
    let found = of_class().find(|it| codec.is_none_or(|codec| it.codec == codec));
    let Some(found) = found else {
        let codecs: Vec<&str> = of_class().map(|it| it.codec.as_str()).collect();
        return Err(match codecs[..] {
            [] => format!("it knows no class \"{class}\""),
            _ => format!("of \"{class}\" it knows only the codecs {}", codecs.join(", ")),
        });
    };
    let is_sound =
        found.ratio > 0.0 && found.ratio <= 10.0 && (0.0..=1e6).contains(&found.ns_per_byte);
    if !is_sound {
        return Err(format!("what it says of \"{class}\" makes no sense"));
    }
    // A packet that does not shrink is sent as it is.
    Ok(Expected { ratio: found.ratio.min(1.0), byte_ns: found.ns_per_byte })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        schema = "dwell-exceptions/1"
        codec = "lz4"
        over = "packet"
        [[exception]]
        protocol = "tcp"
        port = 443
        name = "https"
        ratio = 1.003
        [[estimate]]
        protocol = "tcp"
        port = 80
        codec = "lz4"
        ratio = 0.8
        ns_per_packet = 812.4
        ns_per_byte = 1.1
        packets = 9120
        [[estimate]]
        protocol = "tcp"
        port = 80
        codec = "zstd"
        ratio = 0.7
        ns_per_packet = 2812.4
        ns_per_byte = 9.5
        packets = 9120
    "#;

    #[test]
    fn classes_are_found_by_codec() {
        assert_eq!(find(TEXT, "tcp/443", None), Ok(Expected { ratio: 1.0, byte_ns: 0.0 }));
        assert_eq!(find(TEXT, "tcp/80", None), Ok(Expected { ratio: 0.8, byte_ns: 1.1 }));
        assert_eq!(find(TEXT, "tcp/80", Some("zstd")), Ok(Expected { ratio: 0.7, byte_ns: 9.5 }));
    }

    #[test]
    fn what_is_not_there_is_reported() {
        let reported = |text: &str, class, codec| find(text, class, codec).unwrap_err();
        assert_eq!(reported(TEXT, "udp/53", None), "it knows no class \"udp/53\"");
        assert!(reported(TEXT, "tcp/80", Some("deflate")).ends_with("codecs lz4, zstd"));
        let other = TEXT.replace("exceptions/1", "exceptions/2");
        assert!(reported(&other, "tcp/80", None).contains("exceptions/2"));
        assert!(reported(&TEXT.replace("0.8", "-0.8"), "tcp/80", None).contains("no sense"));
        assert!(find("schema = 1", "tcp/80", None).is_err());
    }
}
