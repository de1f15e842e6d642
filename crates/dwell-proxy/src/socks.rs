//! The server's side of SOCKS version 5 (RFC 1928) and of its user names and passwords
//! (RFC 1929), without any I/O: bytes in, bytes out.
//!
//! CONNECT and UDP ASSOCIATE are served. BIND is refused: nobody could connect to a client through the egress.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use thiserror::Error;

use crate::target::{Target, TargetError};

/// The most bytes that a client sends before its request is complete: the greeting, a name and
/// a password, and the request, each as long as it can be.
pub const CLIENT_BYTES_MAX: usize = (2 + 255) + (3 + 255 + 255) + (3 + 1 + 1 + 255 + 2);

const VERSION: u8 = 5;
const AUTH_VERSION: u8 = 1;
const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_NO_ACCEPTABLE: u8 = 0xff;
const COMMAND_CONNECT: u8 = 1;
const COMMAND_ASSOCIATE: u8 = 3;

/// The reply to the client's request (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// The stream is open.
    Succeeded = 0,
    /// Something else went wrong.
    Failure = 1,
    /// The egress may not, or will not, connect there.
    NotAllowed = 2,
    /// No route to the network.
    NetworkUnreachable = 3,
    /// No such host, or no route to it.
    HostUnreachable = 4,
    /// Nobody listens there.
    Refused = 5,
    /// It took too long.
    Expired = 6,
    /// Neither CONNECT nor UDP ASSOCIATE.
    CommandNotSupported = 7,
    /// A kind of address that does not exist.
    AddressNotSupported = 8,
}

impl Reply {
    /// The bytes of the reply; `bound` is the address that the target sees.
    pub fn bytes(self, bound: Option<SocketAddr>) -> Vec<u8> {
        let mut bytes = vec![VERSION, self as u8, 0];
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
        Target::at(bound.unwrap_or(nowhere)).encode(&mut bytes);
        bytes
    }
}

/// The users of the proxy: all, or those who know one of these names and its password.
#[derive(Clone, Default)]
pub struct Users(Vec<(Vec<u8>, Vec<u8>)>);

/// Never shows a password.
impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

/// Why a list of users can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: write NAME:PASSWORD, each of 1 to 255 bytes")]
pub struct UsersError {
    /// The line, from 1.
    pub line: usize,
}

impl Users {
    /// Reads lines of `name:password`; empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// A line is something else, or there is none.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fits = |part: &str| (1..=255).contains(&part.len());
            let (name, password) = line
                .split_once(':')
                .filter(|(name, password)| fits(name) && fits(password))
                .ok_or(UsersError { line: index + 1 })?;
            users.push((name.as_bytes().to_vec(), password.as_bytes().to_vec()));
        }
        if users.is_empty() { Err(UsersError { line: 1 }) } else { Ok(Self(users)) }
    }

    fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares every user and every byte, however early it is clear: the time reveals nothing
    /// but lengths.
    fn know(&self, name: &[u8], password: &[u8]) -> bool {
        let same = |a: &[u8], b: &[u8]| {
            a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
        };
        self.0.iter().fold(false, |known, (n, p)| known | (same(n, name) & same(p, password)))
    }
}

/// The reason why a client is rejected before it could name its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SocksError {
    /// The first byte is not 5; `G`, `P` and `C` begin HTTP requests.
    #[error("the client speaks another protocol than SOCKS version 5 (its first byte is {0:#04x})")]
    Version(u8),
    /// It offers no way to authenticate that is accepted.
    #[error("the client offers no way to authenticate that is accepted here")]
    NoMethod,
    /// RFC 1929's version is not 1.
    #[error("the client sent a malformed name and password")]
    BadAuth,
    /// Wrong name or password.
    #[error("wrong name or password")]
    Denied,
    /// BIND, or nothing that there is.
    #[error("the client asks for something else than CONNECT and UDP ASSOCIATE (command {0})")]
    Command(u8),
    /// The address in the request.
    #[error("{0}")]
    Target(TargetError),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksStep {
    /// Read more from the client.
    More,
    /// Write this to the client, then call again.
    Say(Vec<u8>),
    /// The client wants to go there; answer with a [`Reply`] once that is done or has failed.
    /// Further bytes of the client stay in the buffer and belong to the stream.
    Connect(Target),
    /// The client wants to send datagrams; answer with a [`Reply`] that has the address to send them to. It may
    /// have said from where it will.
    Associate(Option<SocketAddr>),
    /// Write this to the client, and close.
    Refuse(Vec<u8>, SocksError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Password,
    Request,
    Done,
}

/// A client's way from its first byte to its request.
#[derive(Debug)]
pub struct Negotiation<'a> {
    users: &'a Users,
    state: State,
    user: Option<Vec<u8>>,
}

impl<'a> Negotiation<'a> {
    /// With a client that has just connected.
    pub const fn new(users: &'a Users) -> Self {
        Self { users, state: State::Greeting, user: None }
    }

    /// Returns the name that the client has shown to be its own.
    pub fn into_user(self) -> Option<Vec<u8>> {
        self.user
    }

    /// Goes one step on with what the client has sent so far; what was used is removed from
    /// `input`. To be called until it wants [more](SocksStep::More). `input` never needs to be
    /// longer than [`CLIENT_BYTES_MAX`].
    pub fn step(&mut self, input: &mut Vec<u8>) -> SocksStep {
        let read = match self.state {
            State::Greeting => self.greeting(input),
            State::Password => self.password(input),
            State::Request => self.request(input),
            State::Done => None,
        };
        let Some((step, used)) = read else { return SocksStep::More };
        if matches!(step, SocksStep::Refuse(..)) {
            self.state = State::Done;
        }
        input.drain(..used);
        step
    }

    fn greeting(&mut self, input: &[u8]) -> Option<(SocksStep, usize)> {
        let &version = input.first()?;
        if version != VERSION {
            return Some((SocksStep::Refuse(Vec::new(), SocksError::Version(version)), 0));
        }
        let len = usize::from(*input.get(1)?);
        let methods = input.get(2..2 + len)?;
        let (wanted, next) = match self.users.is_open() {
            true => (METHOD_NONE, State::Request),
            false => (METHOD_PASSWORD, State::Password),
        };
        if !methods.contains(&wanted) {
            let answer = vec![VERSION, METHOD_NO_ACCEPTABLE];
            return Some((SocksStep::Refuse(answer, SocksError::NoMethod), 2 + len));
        }
        self.state = next;
        Some((SocksStep::Say(vec![VERSION, wanted]), 2 + len))
    }

    fn password(&mut self, input: &[u8]) -> Option<(SocksStep, usize)> {
        if *input.first()? != AUTH_VERSION {
            return Some((SocksStep::Refuse(vec![AUTH_VERSION, 1], SocksError::BadAuth), 0));
        }
        let name_end = 2 + usize::from(*input.get(1)?);
        let name = input.get(2..name_end)?;
        let password_end = name_end + 1 + usize::from(*input.get(name_end)?);
        let password = input.get(name_end + 1..password_end)?;
        if !self.users.know(name, password) {
            let answer = vec![AUTH_VERSION, 1];
            return Some((SocksStep::Refuse(answer, SocksError::Denied), password_end));
        }
        self.state = State::Request;
        self.user = Some(name.to_vec());
        Some((SocksStep::Say(vec![AUTH_VERSION, 0]), password_end))
    }

    fn request(&mut self, input: &[u8]) -> Option<(SocksStep, usize)> {
        let &version = input.first()?;
        if version != VERSION {
            return Some((SocksStep::Refuse(Vec::new(), SocksError::Version(version)), 0));
        }
        let &[command, _reserved] = input.get(1..3)? else { return None };
        let refuse =
            |reply: Reply, error| Some((SocksStep::Refuse(reply.bytes(None), error), input.len()));
        match Target::decode(&input[3..]) {
            Err(TargetError::Short) => None,
            Err(TargetError::Kind) if command == COMMAND_ASSOCIATE => {
                refuse(Reply::AddressNotSupported, SocksError::Target(TargetError::Kind))
            }
            from if command == COMMAND_ASSOCIATE => {
                self.state = State::Done;
                // Without a port it does not know it yet.
                let from = from.ok().and_then(|(from, _)| from.address());
                Some((SocksStep::Associate(from), input.len()))
            }
            _ if command != COMMAND_CONNECT => {
                refuse(Reply::CommandNotSupported, SocksError::Command(command))
            }
            Err(error @ TargetError::Kind) => {
                refuse(Reply::AddressNotSupported, SocksError::Target(error))
            }
            Err(error) => refuse(Reply::Failure, SocksError::Target(error)),
            Ok((target, len)) => {
                self.state = State::Done;
                Some((SocksStep::Connect(target), 3 + len))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users() -> Users {
        Users::parse("# who may\n\nann:secret:colon\nbob:x\n").unwrap()
    }

    /// All steps until more is wanted or the negotiation is over, and what is left.
    fn run(users: &Users, bytes: &[u8]) -> (Vec<SocksStep>, Vec<u8>) {
        let mut negotiation = Negotiation::new(users);
        let (mut steps, mut input) = (Vec::new(), bytes.to_vec());
        loop {
            match negotiation.step(&mut input) {
                SocksStep::More => return (steps, input),
                step => steps.push(step),
            }
        }
    }

    #[test]
    fn a_client_connects_by_name() {
        let mut bytes = vec![5, 2, 0, 2, 5, 1, 0, 3, 2, b'd', b'b', 0x15, 0x38];
        bytes.extend(b"early");
        let (steps, rest) = run(&Users::default(), &bytes);
        let target = "db:5432".parse().unwrap();
        assert_eq!(steps, [SocksStep::Say(vec![5, 0]), SocksStep::Connect(target)]);
        assert_eq!(rest, b"early");
    }

    #[test]
    fn a_client_connects_with_a_password() {
        let mut bytes = vec![5, 2, 0, 2, 1, 3];
        bytes.extend(b"ann\x0csecret:colon");
        bytes.extend([5, 1, 0, 1, 10, 0, 0, 7, 0, 80]);
        let (steps, _) = run(&users(), &bytes);
        let target = "10.0.0.7:80".parse().unwrap();
        let expected =
            [SocksStep::Say(vec![5, 2]), SocksStep::Say(vec![1, 0]), SocksStep::Connect(target)];
        assert_eq!(steps, expected);

        let (steps, _) = run(&users(), b"\x05\x01\x02\x01\x03ann\x01x");
        assert_eq!(steps[1], SocksStep::Refuse(vec![1, 1], SocksError::Denied));
        let (steps, _) = run(&users(), &[5, 1, 0]);
        assert_eq!(steps, [SocksStep::Refuse(vec![5, 0xff], SocksError::NoMethod)]);
    }

    #[test]
    fn a_client_asks_for_datagrams() {
        // Most don't know their address yet.
        let known = "127.0.0.1:258".parse().unwrap();
        for (address, from) in [
            (&[1, 0, 0, 0, 0, 0, 0][..], None),
            (&[1, 127, 0, 0, 1, 1, 2], Some(known)),
            (&[3, 1, b'x', 0, 9], None),
        ] {
            let bytes = [&[5, 1, 0, 5, 3, 0], address].concat();
            let (steps, rest) = run(&Users::default(), &bytes);
            assert_eq!(steps, [SocksStep::Say(vec![5, 0]), SocksStep::Associate(from)]);
            assert_eq!(rest, b"");
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        let open = Users::default();
        let refused = |bytes: &[u8]| match run(&open, bytes).0.pop() {
            Some(SocksStep::Refuse(_, error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(b"GET / HTTP/1.1\r\n"), SocksError::Version(b'G'));
        assert_eq!(refused(&[4, 1]), SocksError::Version(4));
        assert_eq!(refused(&[5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80]), SocksError::Command(2));
        let kind = SocksError::Target(TargetError::Kind);
        assert_eq!(refused(&[5, 1, 0, 5, 1, 0, 9]), kind);
        assert_eq!(refused(&[5, 1, 0, 5, 3, 0, 9]), kind);
        let port = SocksError::Target(TargetError::Port);
        assert_eq!(refused(&[5, 1, 0, 5, 1, 0, 1, 1, 2, 3, 4, 0, 0]), port);
    }

    #[test]
    fn lists_of_users_are_strict() {
        for (text, line) in [("", 1), ("ann", 1), ("a:b\n:x", 2), ("a:b\nc:", 2)] {
            assert_eq!(Users::parse(text).unwrap_err(), UsersError { line }, "{text:?}");
        }
        assert_eq!(format!("{:?}", users()), "2 users");
    }

    #[test]
    fn replies_bear_the_address() {
        let bound = "[2001:db8::1]:9".parse().unwrap();
        assert_eq!(Reply::Refused.bytes(None), [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Reply::Succeeded.bytes(Some(bound)).len(), 22);
    }

    proptest! {
        /// However the bytes are cut, the steps are the same; and nothing panics or waits for
        /// more than the longest request.
        #[test]
        fn pieces_make_no_difference(
            start in prop::sample::select(vec![vec![], vec![5, 1, 0], vec![5, 1, 2, 1]]),
            rest in prop::collection::vec(prop_oneof![Just(5u8), 0u8..4, any::<u8>()], 0..600),
            cut in 0usize..600,
            closed: bool,
        ) {
            let users = if closed { users() } else { Users::default() };
            let bytes = [start, rest].concat();
            let (whole, left) = run(&users, &bytes);
            let mut negotiation = Negotiation::new(&users);
            let (mut steps, mut input) = (Vec::new(), Vec::new());
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            for part in [first, second] {
                input.extend_from_slice(part);
                loop {
                    match negotiation.step(&mut input) {
                        SocksStep::More => break,
                        step => steps.push(step),
                    }
                }
            }
            let over = |s: &SocksStep| !matches!(s, SocksStep::More | SocksStep::Say(_));
            if !whole.last().is_some_and(over) {
                prop_assert!(left.len() < CLIENT_BYTES_MAX);
            }
            prop_assert_eq!(whole, steps);
        }
    }
}
