//! The line that one end prints and the other is given.
//!
//! ```text
//! dwell3,offer,name=site-a,key=Zy1j…2V2o,at=203.0.113.10:7733,nets=10.1.0.0/24+10.77.0.1/32,you=10.77.0.2/24,pass=kX0c…Nw,sum=90ab12cd34ef
//! ```
//!
//! It is readable, so that whoever pastes it sees what is agreed to; and of characters that no shell and no
//! mail program changes. A check sum finds what was cut off or mistyped; what was changed on purpose shows in the
//! answer's seal ([`super::seal`]), for which one must have seen the offer.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use dwell_base::text::printable;
use ipnet::IpNet;
use thiserror::Error;

use super::seal::{DIGEST_LEN, Pass, Seal};
use crate::config::{Endpoint, PublicKey, is_name};

/// The most bytes of a line.
pub const LINE_LEN_MAX: usize = 4_096;
/// The most endpoints, prefixes or addresses in a line.
pub const LISTED_MAX: usize = 64;

/// How lines of this version begin.
const BEGIN: &str = "dwell3";
/// What separates fields, ...
const FIELD: char = ',';
/// ... and what separates the items of a list.
const ITEM: char = '+';
const SUM_DIGITS: usize = 12;
/// A part of a public key that says whose it is, and is short enough to be compared by eye.
const TAG_LEN: usize = 8;
/// The shortest prefixes of the networks that a suggested address may be in: no node is given a quarter of the Internet.
const ADDRESS_LEN_MIN_V4: u8 = 8;
const ADDRESS_LEN_MIN_V6: u8 = 16;

/// Whether a line begins a pairing, or ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// It invites another end.
    Offer {
        /// The tunnel addresses that the other end may take, with their prefix lengths.
        addresses: Vec<IpNet>,
        /// What only those know who have seen the offer.
        pass: Pass,
    },
    /// It answers the offer of the node whose public key begins with this.
    Answer {
        /// The beginning of that node's public key, by [`Line::tag_of`].
        tag: String,
        /// The digest of the offer as it arrived, by [`Line::offer_digest`].
        offer: String,
        /// The MAC of all of the answer, by [`Line::sealed`].
        seal: Seal,
    },
}

/// What one end says of itself to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whether it is an offer or an answer.
    pub kind: LineKind,
    /// The node's name.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
    /// The addresses that it can be reached at, the best first. None if it can't be reached.
    pub endpoints: Vec<Endpoint>,
    /// The networks behind it, and its own tunnel addresses. Without host bits.
    pub prefixes: Vec<IpNet>,
    /// True if a pre-shared key is mixed in. It is not in the line.
    pub has_psk: bool,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// It is something else.
    #[error(
        "this is no line of `dwell init`, `dwell invite` or `dwell join`: those begin with \"{BEGIN},\""
    )]
    NoLine,
    /// A newer version made it.
    #[error(
        "this line was made by another version of dwell (it begins with \"{0}\"): install the same \
         version at both ends"
    )]
    OtherVersion(String),
    /// Longer than any line.
    #[error("this is longer than any line ({LINE_LEN_MAX} bytes): paste one line only")]
    TooLong,
    /// The end is missing.
    #[error(
        "the end of the line is missing (it ends with \"{FIELD}sum=\" and {SUM_DIGITS} characters): copy \
         all of it"
    )]
    CutOff,
    /// Something in it is not as it was.
    #[error(
        "the line was changed or cut on its way, its check sum does not fit: copy it again, as a whole"
    )]
    Mangled,
    /// Undamaged, but not as lines are.
    #[error("the line is damaged or made by another version of dwell: {0}")]
    Malformed(String),
}

impl Line {
    /// Returns the part of a public key by which answers name the node that they are for.
    pub fn tag_of(key: &PublicKey) -> String {
        key.to_string().chars().take(TAG_LEN).collect()
    }

    /// Returns the line as one word for a shell.
    pub fn quoted(&self) -> String {
        let text = self.to_string();
        // The brackets of IPv6 endpoints are patterns.
        if text.contains(['[', ']']) { format!("'{text}'") } else { text }
    }

    /// Returns a text with the check sum of a line; it need not be one.
    pub fn summed(body: &str) -> String {
        format!("{body},sum={}", sum_of(body))
    }

    /// Everything but the seal and the check sum.
    pub(super) fn body(&self) -> String {
        let kind = match &self.kind {
            LineKind::Offer { .. } => "offer",
            LineKind::Answer { .. } => "answer",
        };
        let key = self.public_key.to_string();
        let mut body =
            format!("{BEGIN},{kind},name={},key={}", self.name, key.trim_end_matches('='));
        if !self.endpoints.is_empty() {
            body += &format!(",at={}", joined(&self.endpoints));
        }
        body += &format!(",nets={}", joined(&self.prefixes));
        match &self.kind {
            LineKind::Offer { addresses, pass } => {
                if !addresses.is_empty() {
                    body += &format!(",you={}", joined(addresses));
                }
                body += &format!(",pass={pass}");
            }
            LineKind::Answer { tag, offer, .. } => body += &format!(",to={tag},of={offer}"),
        }
        if self.has_psk {
            body += ",psk=yes";
        }
        body
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = self.body();
        if let LineKind::Answer { seal, .. } = &self.kind {
            body += &format!(",mac={seal}");
        }
        f.write_str(&Self::summed(&body))
    }
}

fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

fn sum_of(body: &str) -> String {
    let hash = digest(&SHA256, body.as_bytes());
    let hex = |byte: &u8| format!("{byte:02x}");
    hash.as_ref().iter().take(SUM_DIGITS / 2).map(hex).collect()
}

/// Reads a line as somebody pastes it: broken by a mail program, in quotes, with spaces around it.
impl FromStr for Line {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        // Twice, since a mail program may have put a break after each character at most.
        if text.len() > 2 * LINE_LEN_MAX {
            return Err(LineError::TooLong);
        }
        let text: String = text.split_whitespace().collect();
        let text = text.trim_matches(['\'', '"', '`', '‘', '’', '“', '”', '<', '>']);
        if text.len() > LINE_LEN_MAX {
            return Err(LineError::TooLong);
        }
        check_begin(text)?;
        let (body, sum) = text.rsplit_once(",sum=").ok_or(LineError::CutOff)?;
        if sum.len() < SUM_DIGITS {
            return Err(LineError::CutOff);
        }
        if sum != sum_of(body) {
            return Err(LineError::Mangled);
        }
        read_body(body).map_err(LineError::Malformed)
    }
}

fn check_begin(text: &str) -> Result<(), LineError> {
    let begin = text.split(FIELD).next().unwrap_or_default();
    let number = begin.strip_prefix("dwell").filter(|_| text.contains(FIELD));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match number {
        _ if begin == BEGIN && text.contains(FIELD) => Ok(()),
        Some(digits) if is_number(digits) => Err(LineError::OtherVersion(printable(begin))),
        _ => Err(LineError::NoLine),
    }
}

/// The fields as they were written, each at most once.
#[derive(Default)]
struct Fields<'t> {
    name: Option<&'t str>,
    key: Option<&'t str>,
    at: Option<&'t str>,
    nets: Option<&'t str>,
    you: Option<&'t str>,
    pass: Option<&'t str>,
    to: Option<&'t str>,
    of: Option<&'t str>,
    mac: Option<&'t str>,
    psk: Option<&'t str>,
}

impl<'t> Fields<'t> {
    fn read(items: impl Iterator<Item = &'t str>) -> Result<Self, String> {
        let mut fields = Self::default();
        for item in items {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| format!("\"{}\" is no field", printable(item)))?;
            let field = match name {
                "name" => &mut fields.name,
                "key" => &mut fields.key,
                "at" => &mut fields.at,
                "nets" => &mut fields.nets,
                "you" => &mut fields.you,
                "pass" => &mut fields.pass,
                "to" => &mut fields.to,
                "of" => &mut fields.of,
                "mac" => &mut fields.mac,
                "psk" => &mut fields.psk,
                _ => return Err(format!("the field \"{}\" is unknown", printable(name))),
            };
            if field.replace(value).is_some() {
                return Err(format!("the field \"{name}\" is there twice"));
            }
        }
        Ok(fields)
    }
}

fn read_body(body: &str) -> Result<Line, String> {
    let mut items = body.split(FIELD).skip(1);
    let kind = items.next().unwrap_or_default();
    let fields = Fields::read(items)?;
    let kind = read_kind(kind, &fields)?;
    let name = fields.name.filter(|name| is_name(name)).ok_or("it has no name of a node")?;
    let key = fields.key.ok_or("it has no public key")?;
    let public_key = key.parse().map_err(|_| "its public key is none".to_owned())?;
    let prefixes = list(fields.nets, "nets", read_prefix)?;
    if prefixes.is_empty() {
        return Err("it names no prefixes".to_owned());
    }
    let has_psk = match fields.psk {
        None => false,
        Some("yes") => true,
        Some(_) => return Err("its field \"psk\" is not understood".to_owned()),
    };
    let endpoints = list(fields.at, "at", read_endpoint)?;
    Ok(Line { kind, name: name.to_owned(), public_key, endpoints, prefixes, has_psk })
}

fn read_kind(kind: &str, fields: &Fields<'_>) -> Result<LineKind, String> {
    match (kind, (fields.to, fields.of, fields.mac), (fields.you, fields.pass)) {
        ("offer", (None, None, None), (you, Some(pass))) => {
            let pass = pass.parse().map_err(|()| "its pass is none".to_owned())?;
            Ok(LineKind::Offer { addresses: list(you, "you", read_address)?, pass })
        }
        ("answer", (Some(tag), Some(offer), Some(seal)), (None, None))
            if is_part(tag, TAG_LEN) && is_digest(offer) =>
        {
            let seal = seal.parse().map_err(|()| "its seal is none".to_owned())?;
            Ok(LineKind::Answer { tag: tag.to_owned(), offer: offer.to_owned(), seal })
        }
        _ => Err("it is neither an offer nor an answer".to_owned()),
    }
}

/// Returns true for what may be the digest of an offer.
pub(super) fn is_digest(text: &str) -> bool {
    is_part(text, DIGEST_LEN)
}

/// Returns true for a part of base64 that is so long.
fn is_part(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
}

fn list<T: PartialEq>(
    field: Option<&str>,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let Some(text) = field else { return Ok(Vec::new()) };
    let mut items = Vec::new();
    for item in text.split(ITEM) {
        let item = read(item).ok_or_else(|| format!("{name} can't be \"{}\"", printable(item)))?;
        if items.len() == LISTED_MAX {
            return Err(format!("more than {LISTED_MAX} items are in \"{name}\""));
        }
        if items.contains(&item) {
            return Err(format!("an item of \"{name}\" is there twice"));
        }
        items.push(item);
    }
    Ok(items)
}

fn read_endpoint(text: &str) -> Option<Endpoint> {
    text.parse().ok()
}

fn read_prefix(text: &str) -> Option<IpNet> {
    text.parse().ok().filter(|prefix: &IpNet| prefix.trunc() == *prefix)
}

/// An address that a host can have.
fn read_address(text: &str) -> Option<IpNet> {
    let net: IpNet = text.parse().ok()?;
    let ip = net.addr();
    let len_min = if ip.is_ipv4() { ADDRESS_LEN_MIN_V4 } else { ADDRESS_LEN_MIN_V6 };
    let is_host = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback();
    (is_host && net.prefix_len() >= len_min).then_some(net)
}

#[cfg(test)]
mod tests {
    use dwell_base::base64;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn offer() -> Line {
        Line {
            kind: LineKind::Offer {
                addresses: vec!["10.77.0.2/24".parse().unwrap()],
                pass: Pass::new([5; 16]),
            },
            name: "site-a".to_owned(),
            public_key: PublicKey::new([7; 32]),
            endpoints: vec!["203.0.113.10:7733".parse().unwrap()],
            prefixes: vec!["10.1.0.0/24".parse().unwrap(), "10.77.0.1/32".parse().unwrap()],
            has_psk: false,
        }
    }

    #[test]
    fn an_offer_is_readable() {
        assert_eq!(
            offer().to_string(),
            "dwell3,offer,name=site-a,key=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc,\
             at=203.0.113.10:7733,nets=10.1.0.0/24+10.77.0.1/32,you=10.77.0.2/24,pass=BQUFBQUFBQUFBQUFBQUFBQ,sum=f8a3078b481f"
        );
    }

    #[test]
    fn what_mail_programs_and_people_do_to_a_line_is_undone() {
        let text = offer().to_string();
        let (begin, end) = text.split_at(60);
        for pasted in [
            format!("  {text}\n"),
            format!("'{text}'"),
            format!("“{text}”"),
            format!("{begin}\r\n   {end}"),
        ] {
            assert_eq!(pasted.parse(), Ok(offer()), "{pasted}");
        }
        let v6 = Line { endpoints: vec!["[2001:db8::7]:7733".parse().unwrap()], ..offer() };
        assert!(v6.quoted().starts_with("'dwell3,"), "a shell would take brackets for a pattern");
        assert_eq!(v6.quoted().parse(), Ok(v6));
    }

    #[test]
    fn damage_is_named() {
        let text = offer().to_string();
        let error = |text: &str| text.parse::<Line>().unwrap_err();
        assert_eq!(error(""), LineError::NoLine);
        assert_eq!(error("dwell3"), LineError::NoLine);
        assert_eq!(error("ssh-ed25519 AAAA,"), LineError::NoLine);
        assert_eq!(error("dwell2,offer,sum=x"), LineError::OtherVersion("dwell2".to_owned()));
        assert_eq!(error(&text[..text.len() - 1]), LineError::CutOff);
        assert_eq!(error(&text[..text.len() - 30]), LineError::CutOff);
        assert_eq!(error(&text.replace("10.1.0", "10.2.0")), LineError::Mangled);
        assert_eq!(error(&text.replace("site-a", "SITE-A")), LineError::Mangled);
        assert_eq!(error(&format!("{text}{text}")), LineError::Mangled);
        assert_eq!(error(&"x".repeat(10_000)), LineError::TooLong);
    }

    #[test]
    fn what_is_undamaged_is_checked_all_the_same() {
        let key = "key=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        let pass = "pass=BQUFBQUFBQUFBQUFBQUFBQ";
        let nets = &format!("nets=10.1.0.0/24,{pass}");
        let answered = "nets=10.1.0.0/24";
        let (of, mac) = ("abcdefghijklmnop", "AAAAAAAAAAAAAAAAAAAAAA");
        for (body, why) in [
            (format!("dwell3,offer,name=a b,{key},{nets}"), "no name"),
            (format!("dwell3,offer,name=a,key=short,{nets}"), "public key is none"),
            (format!("dwell3,offer,name=a,{key},{pass}"), "names no prefixes"),
            (format!("dwell3,offer,name=a,{key},{answered}"), "neither"),
            (format!("dwell3,offer,name=a,{key},{answered},pass=BQUF"), "its pass is none"),
            (format!("dwell3,offer,name=a,{key},nets=10.1.0.1/24,{pass}"), "nets can't be"),
            (format!("dwell3,offer,name=a,name=b,{key},{nets}"), "twice"),
            (format!("dwell3,offer,name=a,{key},{answered}+10.1.0.0/24,{pass}"), "twice"),
            (format!("dwell3,offer,name=a,{key},{nets},run=/bin/sh"), "unknown"),
            (format!("dwell3,offer,name=a,{key},{nets},you=0.0.0.0/0"), "you can't be"),
            // Half of the Internet would be taken for what is at the other end.
            (format!("dwell3,offer,name=a,{key},{nets},you=10.77.0.2/1"), "you can't be"),
            (format!("dwell3,offer,name=a,{key},{nets},you=10.77.0.2/7"), "you can't be"),
            (format!("dwell3,offer,name=a,{key},{nets},you=fd77::2/15"), "you can't be"),
            (format!("dwell3,offer,name=a,{key},{nets},to=BwcHBwcH"), "neither"),
            (format!("dwell3,answer,name=a,{key},{answered}"), "neither"),
            (
                format!("dwell3,answer,name=a,{key},{answered},to=../../ab,of={of},mac={mac}"),
                "neither",
            ),
            (format!("dwell3,answer,name=a,{key},{answered},to=BwcHBwcH,of={of}"), "neither"),
            (
                format!("dwell3,answer,name=a,{key},{answered},to=BwcHBwcH,of=short,mac={mac}"),
                "neither",
            ),
            (format!("dwell3,answer,name=a,{key},{nets},to=BwcHBwcH,of={of},mac={mac}"), "neither"),
            (
                format!("dwell3,answer,name=a,{key},{answered},to=BwcHBwcH,of={of},mac={mac}=="),
                "seal is none",
            ),
            (
                format!("dwell3,answer,name=a,{key},{answered},to=BwcHBwcH,of={of},mac=AAAA"),
                "seal is none",
            ),
            (format!("dwell3,offer,name=a,{key},{nets},at=0.0.0.0:1"), "at can't be"),
        ] {
            // A space would be taken out of it before its sum is looked at.
            let error = Line::summed(&body).parse::<Line>().unwrap_err();
            match error {
                LineError::Malformed(said) => assert!(said.contains(why), "{body}: {said}"),
                other => assert!(body.contains(' '), "{body}: {other}"),
            }
        }
        let many: Vec<String> = (0..=LISTED_MAX).map(|at| format!("10.{at}.0.0/16")).collect();
        let body = format!("dwell3,offer,name=a,{key},{pass},nets={}", many.join("+"));
        assert!(
            Line::summed(&body).parse::<Line>().unwrap_err().to_string().contains("more than 64")
        );
    }

    fn prefix() -> impl Strategy<Value = IpNet> {
        let v4 = (any::<[u8; 4]>(), 0..=32_u8)
            .prop_map(|(ip, len)| IpNet::new(ip.into(), len).unwrap().trunc());
        let v6 = (any::<[u8; 16]>(), 0..=128_u8)
            .prop_map(|(ip, len)| IpNet::new(ip.into(), len).unwrap().trunc());
        prop_oneof![v4, v6]
    }

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        let host = "[a-z][a-z0-9-]{0,20}[a-z0-9](\\.[a-z][a-z0-9]{0,9}){0,3}";
        let address = (any::<[u8; 4]>(), 1..=u16::MAX)
            .prop_filter("it can be sent to", |(ip, _)| *ip != [0; 4])
            .prop_map(|(ip, port)| Endpoint::Address((ip, port).into()));
        prop_oneof![
            address,
            (any::<u64>(), 1..=u16::MAX).prop_map(|(end, port)| {
                let ip = std::net::Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(end));
                Endpoint::Address((ip, port).into())
            }),
            (host, 1..=u16::MAX).prop_map(|(host, port)| Endpoint::Name { host, port }),
        ]
    }

    prop_compose! {
        fn line()(
            tag in option::of("[A-Za-z0-9+/]{8}"),
            mac: [u8; 16],
            name in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}",
            key: [u8; 32],
            mut endpoints in vec(endpoint(), 0..3),
            mut prefixes in vec(prefix(), 1..6),
            has_psk: bool,
        ) -> Line {
            let kind = match tag {
                Some(tag) => LineKind::Answer {
                    tag,
                    offer: "abcd+fgh/jklmnop".to_owned(),
                    seal: base64::encode(&mac).trim_end_matches('=').parse().unwrap(),
                },
                None => {
                    let addresses = vec!["fd77::2/64".parse().unwrap()];
                    LineKind::Offer { addresses, pass: Pass::new(mac) }
                }
            };
            prefixes.sort();
            prefixes.dedup();
            endpoints.dedup();
            endpoints.truncate(1);
            Line { kind, name, public_key: PublicKey::new(key), endpoints, prefixes, has_psk }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(line in line()) {
            prop_assert_eq!(line.to_string().parse(), Ok(line.clone()));
            prop_assert_eq!(line.quoted().parse(), Ok(line));
        }

        #[test]
        fn no_changed_character_gets_through(line in line(), at: usize, new in "[!-~]") {
            let text = line.to_string();
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &new);
            // Quotes at the ends are taken off, and may have replaced what is missing then.
            prop_assume!(changed != text);
            prop_assert!(changed.parse::<Line>().is_err(), "{} {}", text, changed);
        }

        #[test]
        fn no_part_gets_through(line in line(), from: usize, to: usize) {
            let text = line.to_string();
            let (from, to) = (from % text.len(), to % text.len());
            let cut = [&text[..from.min(to)], &text[from.max(to)..]].concat();
            prop_assert!(cut == text || cut.parse::<Line>().is_err(), "{}", cut);
        }

        #[test]
        fn anything_else_is_refused_in_a_short_sentence(text in ".{0,200}") {
            let error = text.parse::<Line>().unwrap_err().to_string();
            prop_assert!(error.len() < 400);
        }
    }
}
