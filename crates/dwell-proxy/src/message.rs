//! The messages around a stream, or around a file: kind, length of the body, body.
//!
//! | kind | | body |
//! |---|---|---|
//! | 1 | open | [target](crate::target::Target::encode) |
//! | 2 | opened | the egress' own address towards the target, in the same form |
//! | 3 | refused | reason (1 byte), text |
//! | 4 | offer | flags (1 byte), window (1), length of all files (8; all ones: not known), their number (8), that of directories and links (8), name |
//! | 5 | accept | 1 byte: 1 if the sender is to ask before it sends; window (1) |
//! | 7 | done | entries that the receiver has left out (8 bytes), files that it has kept (8) |
//! | 8 | have | an answer to what the sender asks |
//! | 9 | alive | nothing: a receiver says so now and then, whatever it is busy with |
//! | 10 | opening | flags (1 byte): 1 the stream follows at once, 2 the client's address and that to which it connected come behind the target, 4 the stream is one of [datagrams](crate::datagrams), 8 what that of the other direction refers to is held while it is idle, 16 it goes on with what the stream before has left, 32 so is the next one to go on with what it leaves; target; addresses |
//! | 11 | opened, held | the same as of *opened*, in answer to *opening*: what the stream refers to is held while it is idle |
//! | 12 | opened, kept | the same, in answer to *opening* with 32: and what it leaves is kept for the next stream |
//! | 13 | rest | 1 byte, behind the stream of a head: 0 that was all, 1 another stream goes on with it, 2 another one begins again |
//!
//! Kind is 1 byte, the length 2 bytes. After *opened*, and after *accept*, bytes are those of
//! the stream, until both ends have said its end. Nobody sends *opening* to an end whose hello does not have that feature; if the stream
//! follows at once and is refused, the connection is over. After an offer whose flags have bit 0 the stream follows at once: all of it,
//! or, if both hellos have that feature and it is more than 1 MiB or 256 entries, a *head* of any length, and after that *rest*. What the
//! receiver has to say to the offer it says meanwhile; if it has something already, it drops the head.

use std::net::SocketAddr;

use thiserror::Error;

use crate::hello::{TEXT_BYTES_MAX, is_printable, printable};
use crate::socks::Reply;
use crate::target::{NAME_BYTES_MAX, Target, TargetError};
use crate::transfer::{Have, Offer};

/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 3 + Have::BYTES_MAX;
/// The longest body of all messages but one.
const BODY_BYTES_MAX: usize = 512;
/// The longest window of a transfer, as a binary logarithm.
const WINDOW_LOG2_MAX: u8 = 27;
/// The kind of the one that may be longer.
const HAVE: u8 = 8;
const OPENED: u8 = 2;
const ALIVE: u8 = 9;
const OPENING: u8 = 10;
const OPENED_HELD: u8 = 11;
const OPENED_KEPT: u8 = 12;
/// The last kind.
const REST: u8 = 13;

/// A stream that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Where it is to go. For datagrams, which have a target each, anything.
    pub target: Target,
    /// True if the stream follows at once, before the answer.
    pub is_eager: bool,
    /// The client's address, and that to which it has connected.
    pub client: Option<(SocketAddr, SocketAddr)>,
    /// True if the stream is one of datagrams.
    pub is_datagrams: bool,
    /// True if the ingress has room for what the egress' stream refers to while that is idle.
    pub is_held: bool,
    /// True if it goes on with what the stream before has left, which both ends have kept.
    pub goes_on: bool,
    /// True if the ingress keeps what it leaves for the next, and the egress is to do so.
    pub is_kept: bool,
}

impl Opening {
    /// Returns one that is nothing special.
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            is_eager: false,
            client: None,
            is_datagrams: false,
            is_held: false,
            goes_on: false,
            is_kept: false,
        }
    }

    fn encode(&self, body: &mut Vec<u8>) {
        let flags = u8::from(self.is_eager)
            | u8::from(self.client.is_some()) << 1
            | u8::from(self.is_datagrams) << 2
            | u8::from(self.is_held) << 3
            | u8::from(self.goes_on) << 4
            | u8::from(self.is_kept) << 5;
        body.push(flags);
        self.target.encode(body);
        if let Some((client, listener)) = self.client {
            Target::at(client).encode(body);
            Target::at(listener).encode(body);
        }
    }

    fn read(body: &[u8]) -> Result<Self, MessageError> {
        let (flags, body) = match body {
            [flags @ 0..=63, body @ ..] => (*flags, body),
            _ => return Err(MessageError::Body),
        };
        let (target, used) = Target::decode(body).map_err(MessageError::Target)?;
        let mut body = &body[used..];
        let mut client = None;
        if flags & 2 != 0 {
            let (from, used) = Target::decode_end(body).map_err(MessageError::Target)?;
            body = &body[used..];
            let (to, used) = Target::decode_end(body).map_err(MessageError::Target)?;
            body = &body[used..];
            client = from.address().zip(to.address());
            client.ok_or(MessageError::Body)?;
        }
        if !body.is_empty() {
            return Err(MessageError::Body);
        }
        let [is_eager, is_datagrams, is_held, goes_on, is_kept] =
            [1, 4, 8, 16, 32].map(|bit| flags & bit != 0);
        // What is kept is held, too.
        if (goes_on || is_kept) && (is_datagrams || !is_held) {
            return Err(MessageError::Body);
        }
        Ok(Self { target, is_eager, client, is_datagrams, is_held, goes_on, is_kept })
    }
}

/// Why the egress did not open a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The target is not on its list.
    NotAllowed = 1,
    /// Its name does not resolve.
    NoSuchHost = 2,
    /// Nobody listens there.
    Refused = 3,
    /// No route.
    Unreachable = 4,
    /// No answer in time.
    Expired = 5,
    /// The egress has as many streams as it may.
    Full = 6,
    /// Something else.
    Other = 7,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NotAllowed,
        Self::NoSuchHost,
        Self::Refused,
        Self::Unreachable,
        Self::Expired,
        Self::Full,
        Self::Other,
    ];

    /// The name in statuses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::NoSuchHost => "no_such_host",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Expired => "expired",
            Self::Full => "full",
            Self::Other => "other",
        }
    }

    /// Returns the reply that a SOCKS client gets.
    pub const fn reply(self) -> Reply {
        match self {
            Self::NotAllowed => Reply::NotAllowed,
            Self::NoSuchHost => Reply::HostUnreachable,
            Self::Refused => Reply::Refused,
            Self::Unreachable => Reply::NetworkUnreachable,
            Self::Expired => Reply::Expired,
            Self::Full | Self::Other => Reply::Failure,
        }
    }
}

/// What comes after the head of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rest {
    /// Nothing: that was all.
    Nothing = 0,
    /// Another stream, which goes on where the head has ended.
    GoesOn = 1,
    /// Another stream, which begins again: the head does not count.
    Again = 2,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Connect there.
    Open(Target),
    /// The stream is open.
    Opened {
        /// The egress' own address.
        bound: Target,
        /// True if the egress has room for what the ingress' stream refers to while that is idle.
        is_held: bool,
        /// True if it keeps, beside that, what the stream leaves for the next.
        is_kept: bool,
    },
    /// There will be no stream, or no file, and why.
    Refused(Reason, String),
    /// A file, or several.
    Offer(Offer),
    /// It is welcome.
    Accept {
        /// True if some of it may be there, for which the sender is to ask.
        asks: bool,
        /// The receiver holds so many bytes of what comes, as a binary logarithm; 0 if none.
        window_log2: u8,
    },
    /// All was received, is what was sent, and is stored.
    Done {
        /// The number of entries that were left out.
        left_out: u64,
        /// The number of files that stayed as they were.
        kept: u64,
    },
    /// What is there of a file.
    Have(Have),
    /// The receiver is still there.
    Alive,
    /// What comes after the head of a transfer.
    Rest(Rest),
    /// Connect there; with more to it than [`Message::Open`] says.
    Opening(Opening),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// No message of this kind is known.
    #[error("the other end sent a message of the unknown kind {0}")]
    Kind(u8),
    /// Longer than any message.
    #[error("the other end sent a message of {0} bytes, more than any has")]
    Length(usize),
    /// A body that is none.
    #[error("the other end sent a malformed message")]
    Body,
    /// A target that is none.
    #[error("the other end sent a malformed message: {0}")]
    Target(TargetError),
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Self::Open(target) => {
                target.encode(&mut body);
                1
            }
            Self::Opened { bound, is_held, is_kept } => {
                bound.encode(&mut body);
                match (is_held, is_kept) {
                    (_, true) => OPENED_KEPT,
                    (true, false) => OPENED_HELD,
                    (false, false) => OPENED,
                }
            }
            Self::Refused(reason, text) => {
                body.push(*reason as u8);
                body.extend(printable(text).as_bytes());
                3
            }
            Self::Offer(offer) => {
                body.push(u8::from(offer.is_eager) | u8::from(offer.is_tree) << 1);
                body.push(offer.window_log2);
                body.extend(offer.bytes.unwrap_or(u64::MAX).to_be_bytes());
                body.extend(offer.files.to_be_bytes());
                body.extend(offer.others.to_be_bytes());
                body.extend(cut(&offer.name).as_bytes());
                4
            }
            Self::Accept { asks, window_log2 } => {
                body.extend([u8::from(*asks), *window_log2]);
                5
            }
            Self::Done { left_out, kept } => {
                body.extend(left_out.to_be_bytes());
                body.extend(kept.to_be_bytes());
                7
            }
            Self::Have(have) => {
                body = have.encode();
                HAVE
            }
            Self::Alive => ALIVE,
            Self::Rest(rest) => {
                body.push(*rest as u8);
                REST
            }
            Self::Opening(opening) => {
                opening.encode(&mut body);
                OPENING
            }
        };
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads a message at the start of `bytes`, and how many bytes it has. `None` if more are
    /// needed, of which there are never more than [`MESSAGE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        let Some(&kind) = bytes.first() else { return Ok(None) };
        if !(1..=REST).contains(&kind) {
            return Err(MessageError::Kind(kind));
        }
        let Some(&[_, high, low]) = bytes.first_chunk::<3>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > if kind == HAVE { Have::BYTES_MAX } else { BODY_BYTES_MAX } {
            return Err(MessageError::Length(len));
        }
        let Some(body) = bytes.get(3..3 + len) else { return Ok(None) };
        Ok(Some((Self::read(kind, body)?, 3 + len)))
    }

    fn read(kind: u8, body: &[u8]) -> Result<Self, MessageError> {
        match (kind, body) {
            (1, body) => read_target(body).map(Self::Open),
            (OPENED | OPENED_HELD | OPENED_KEPT, body) => {
                let (is_held, is_kept) = (kind != OPENED, kind == OPENED_KEPT);
                read_target(body).map(|bound| Self::Opened { bound, is_held, is_kept })
            }
            (3, [reason, text @ ..]) => {
                let reason = Reason::ALL.into_iter().find(|known| *known as u8 == *reason);
                let text = read_text(text, TEXT_BYTES_MAX)?;
                Ok(Self::Refused(reason.unwrap_or(Reason::Other), text))
            }
            (4, [flags @ 0..=3, window_log2 @ (0 | 20..=WINDOW_LOG2_MAX), body @ ..]) => {
                let (bytes, body) = read_number(body)?;
                let (files, body) = read_number(body)?;
                let (others, name) = read_number(body)?;
                Ok(Self::Offer(Offer {
                    name: read_name(name)?,
                    bytes: Some(bytes).filter(|&bytes| bytes != u64::MAX),
                    files,
                    others,
                    is_tree: flags & 2 != 0,
                    is_eager: flags & 1 != 0,
                    window_log2: *window_log2,
                }))
            }
            (5, [asks @ 0..=1, window_log2 @ (0 | 20..=WINDOW_LOG2_MAX)]) => {
                Ok(Self::Accept { asks: *asks == 1, window_log2: *window_log2 })
            }
            (7, body) => {
                let (left_out, body) = read_number(body)?;
                let (kept, body) = read_number(body)?;
                let fits = body.is_empty();
                fits.then_some(Self::Done { left_out, kept }).ok_or(MessageError::Body)
            }
            (OPENING, body) => Opening::read(body).map(Self::Opening),
            (HAVE, body) => Have::decode(body).map(Self::Have).ok_or(MessageError::Body),
            (ALIVE, []) => Ok(Self::Alive),
            (REST, [0]) => Ok(Self::Rest(Rest::Nothing)),
            (REST, [1]) => Ok(Self::Rest(Rest::GoesOn)),
            (REST, [2]) => Ok(Self::Rest(Rest::Again)),
            _ => Err(MessageError::Body),
        }
    }
}

/// A name that is not too long.
fn cut(name: &str) -> &str {
    let end = name
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|&end| end <= NAME_BYTES_MAX);
    &name[..end.last().unwrap_or(0)]
}

fn read_number(body: &[u8]) -> Result<(u64, &[u8]), MessageError> {
    let (number, rest) = body.split_first_chunk::<8>().ok_or(MessageError::Body)?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn read_target(body: &[u8]) -> Result<Target, MessageError> {
    let (target, used) = Target::decode(body).map_err(MessageError::Target)?;
    if used == body.len() { Ok(target) } else { Err(MessageError::Body) }
}

fn read_text(bytes: &[u8], bytes_max: usize) -> Result<String, MessageError> {
    let fits = bytes.len() <= bytes_max && bytes.iter().all(|&byte| is_printable(byte));
    if !fits {
        return Err(MessageError::Body);
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The name of a file in the receiver's directory: UTF-8 without anything that leads elsewhere or
/// confuses a terminal.
fn read_name(bytes: &[u8]) -> Result<String, MessageError> {
    let name = std::str::from_utf8(bytes).map_err(|_| MessageError::Body)?;
    let harmless = |c: char| c != '/' && !c.is_control();
    let fits = name.len() <= NAME_BYTES_MAX && name.chars().all(harmless);
    if !fits || name == "." || name == ".." {
        return Err(MessageError::Body);
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transfer::Chunk;

    fn opened() -> impl Strategy<Value = Target> + Clone {
        let target = ("[a-z][a-z0-9-]{0,60}", 1u16..);
        target.prop_map(|(host, port)| format!("{host}:{port}").parse().unwrap())
    }

    fn chunk() -> impl Strategy<Value = Chunk> {
        (1u32..=32_768, any::<[u8; 16]>()).prop_map(|(bytes, hash)| Chunk { bytes, hash })
    }

    fn message() -> impl Strategy<Value = Message> {
        let target = opened();
        prop_oneof![
            target.clone().prop_map(Message::Open),
            prop::sample::select(&[Rest::Nothing, Rest::GoesOn, Rest::Again][..])
                .prop_map(Message::Rest),
            (target, 0..3).prop_map(|(bound, held)| Message::Opened {
                bound,
                is_held: held > 0,
                is_kept: held > 1
            }),
            (prop::sample::select(&Reason::ALL[..]), "[ -~]{0,200}")
                .prop_map(|(reason, text)| Message::Refused(reason, text)),
            (
                prop::option::of(0..u64::MAX),
                any::<[u64; 2]>(),
                "[a-zäöü]{0,80}",
                any::<[bool; 2]>()
            )
                .prop_map(|(bytes, [files, others], name, [is_tree, is_eager])| {
                    let window_log2 = 27;
                    Message::Offer(Offer {
                        name,
                        bytes,
                        files,
                        others,
                        is_tree,
                        is_eager,
                        window_log2,
                    })
                }),
            (any::<bool>(), 20u8..28)
                .prop_map(|(asks, window_log2)| Message::Accept { asks, window_log2 }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(left_out, kept)| Message::Done { left_out, kept }),
            Just(Message::Alive),
            Just(Message::Have(Have::Same)),
            (13u8..=19, any::<bool>(), prop::collection::vec(chunk(), 0..9))
                .prop_map(|(log2, more, chunks)| Have::Chunks { log2, more, chunks })
                .prop_map(Message::Have),
            (
                opened(),
                any::<[bool; 3]>(),
                any::<[bool; 2]>(),
                prop::option::of(any::<([u8; 4], [u8; 16], [u16; 2])>())
            )
                .prop_map(
                    |(target, [is_eager, is_datagrams, is_held], kept, client)| {
                        let client = client.map(|(v4, v6, ports)| {
                            let v6: std::net::IpAddr = v6.into();
                            ((v4, ports[0]).into(), (v6.to_canonical(), ports[1]).into())
                        });
                        // What is kept is held, and no datagrams are.
                        let may_keep = is_held && !is_datagrams;
                        let [goes_on, is_kept] = kept.map(|kept| kept && may_keep);
                        Message::Opening(Opening {
                            target,
                            is_eager,
                            client,
                            is_datagrams,
                            is_held,
                            goes_on,
                            is_kept,
                        })
                    }
                ),
        ]
    }

    #[test]
    fn names_lead_nowhere() {
        for name in [&b"../x"[..], b"..", b".", b"a/b", b"\x1b[2J", b"\0", b"\xff"] {
            let body = [&[0; 18][..], name].concat();
            assert_eq!(Message::read(4, &body), Err(MessageError::Body), "{name:?}");
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        assert_eq!(Message::decode(&[1, 0xff, 0xff]), Err(MessageError::Length(0xffff)));
        assert_eq!(Message::decode(&[1, 2, 1]), Err(MessageError::Length(513)));
        assert_eq!(Message::decode(&[8, 0xff, 0xff]), Err(MessageError::Length(0xffff)));
        assert_eq!(Message::decode(&[0]), Err(MessageError::Kind(0)));
        assert_eq!(Message::decode(&[5, 0, 2, 2, 0]), Err(MessageError::Body));
        assert_eq!(Message::decode(&[3, 0, 0]), Err(MessageError::Body));
    }

    #[test]
    fn a_client_may_have_no_port_and_a_target_needs_one() {
        let opening = |port, client: &str| {
            let target = Target { host: crate::target::Host::Ip([192, 0, 2, 1].into()), port };
            let client = Some((client.parse().unwrap(), "192.0.2.2:443".parse().unwrap()));
            Message::Opening(Opening { client, ..Opening::new(target) })
        };
        let from_nowhere = opening(80, "192.0.2.3:0");
        let bytes = from_nowhere.encode();
        assert_eq!(Message::decode(&bytes), Ok(Some((from_nowhere, bytes.len()))));
        let refused = Message::decode(&opening(0, "192.0.2.3:1").encode());
        assert_eq!(refused, Err(MessageError::Target(TargetError::Port)));
    }

    proptest! {
        #[test]
        fn messages_come_back(message in message()) {
            let bytes = message.encode();
            prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Message::decode(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(Message::decode(&bytes), Ok(Some((message, bytes.len()))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            kind in 0u8..15, bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let bytes = [&[kind], &bytes[..]].concat();
            match Message::decode(&bytes) {
                Ok(Some((_, used))) => prop_assert!(used <= bytes.len()),
                Ok(None) => prop_assert!(bytes.len() < MESSAGE_BYTES_MAX),
                Err(_) => {}
            }
        }
    }
}
