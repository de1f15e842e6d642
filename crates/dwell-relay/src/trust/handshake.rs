//! The start of a session with a peer, whatever the kind of its handshake.

use dwell_base::Instant;
use dwell_wire::header::HELLO_NONCE_LEN;
use dwell_wire::hello::HELLO_CARRIES;
use dwell_wire::{ContextOffer, Cookie, DataHeader, Hello, Response};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::keyed::{Answer, Keyed, PairKeys, PeerClock, Responded};
use super::psk::{From, Psk};
use super::session::{OpenError, Session};
use super::{Key, RandomSource, noise};
use crate::config::Security;

/// Room for the longest datagram of a handshake that this version sends.
pub(crate) const HELLO_LEN_MAX: usize = 192;

/// The result of a hello.
#[derive(Debug)]
pub enum HelloOutcome {
    /// It is not from the holder of the key, or malformed.
    Rejected,
    /// Authentic, but it changes nothing.
    Known(Hello),
    /// A new session is installed.
    Installed(Hello),
}

/// The parameters that the two ends exchange beside what makes the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) datagram_max: u16,
    pub(crate) codecs: u16,
    /// Compressed units are carried on.
    pub(crate) forwards: bool,
    /// The contexts that this end can decode.
    pub(crate) contexts: Option<ContextOffer>,
}

impl Offer {
    /// In the form of a hello without salts.
    pub(super) fn to_hello(self) -> Hello {
        let Self { datagram_max, codecs, contexts, .. } = self;
        let flags = self.flags();
        Hello { salt: [0; 16], echo: [0; 16], datagram_max, codecs, flags, contexts }
    }

    /// The flags of hellos.
    pub(super) fn flags(self) -> u16 {
        if self.forwards { HELLO_CARRIES } else { 0 }
    }
}

/// A data datagram that was opened.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) body: &'a mut [u8],
    /// It is of the present session, not of the one before.
    pub(crate) current: bool,
    /// It is of the one before.
    pub(crate) previous: bool,
    /// No later one of the session came before it.
    pub(crate) newest: bool,
    /// It is the first of its session, and proves that the peer has it.
    pub(crate) began: Option<Hello>,
    /// What the initiation of that session says of the peer's clock.
    pub(crate) clock: Option<PeerClock>,
}

impl<'a> Opened<'a> {
    pub(super) fn current((body, newest): (&'a mut [u8], bool)) -> Self {
        Self { body, current: true, previous: false, newest, began: None, clock: None }
    }

    pub(super) fn previous((body, _): (&'a mut [u8], bool)) -> Self {
        Self { body, current: false, previous: true, newest: false, began: None, clock: None }
    }
}

/// The handshake with one peer, and the sessions that came of it.
#[derive(Debug)]
pub struct Handshake(Method);

#[derive(Debug)]
enum Method {
    Psk(Box<Psk>),
    Keyed(Box<Keyed>),
}

impl Handshake {
    /// The beginning: no session, and one is wanted. `random` must be fit for secrets.
    pub(crate) fn new(security: &Security, offer: Offer, random: RandomSource) -> Self {
        let psk = |key, random| Method::Psk(Box::new(Psk::new(key, offer, random)));
        Self(match security {
            Security::None => psk(Key::None, random),
            Security::Psk(secret) => psk(Key::Shared(secret.bytes()), random),
            Security::Keys { private, peer, psk } => {
                let keys = PairKeys {
                    private: Zeroizing::new(*private.bytes()),
                    peer: *peer.bytes(),
                    psk: Zeroizing::new(psk.as_ref().map_or([0; 32], |psk| *psk.bytes())),
                };
                // A private key without a public one makes no sessions, and nobody knows it.
                let own = noise::public_of(private.bytes()).unwrap_or_default();
                Method::Keyed(Box::new(Keyed::new(keys, &own, offer, random)))
            }
        })
    }

    /// Sets what the peer is sent from now on: if it changes, a new session is asked for.
    pub(crate) fn set_offer(&mut self, offer: Offer) {
        match &mut self.0 {
            Method::Psk(psk) => psk.set_offer(offer),
            Method::Keyed(keyed) => keyed.set_offer(offer),
        }
    }

    /// Returns what the peer was sent for the current session, in the handshake that made it: not what it would be
    /// sent now.
    pub(crate) fn offered(&self) -> &Offer {
        match &self.0 {
            Method::Psk(psk) => psk.offered(),
            Method::Keyed(keyed) => keyed.offered(),
        }
    }

    /// True if datagrams are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        match &self.0 {
            Method::Psk(psk) => psk.is_sealed(),
            Method::Keyed(_) => true,
        }
    }

    /// The session to send with.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.0 {
            Method::Psk(psk) => psk.session(),
            Method::Keyed(keyed) => keyed.session(),
        }
    }

    /// The same, to look at.
    pub(crate) fn current(&self) -> Option<&Session> {
        match &self.0 {
            Method::Psk(psk) => psk.current(),
            Method::Keyed(keyed) => keyed.current(),
        }
    }

    /// Returns true if what comes of the session before can be distinguished from what is of the current one: by a tag of one
    /// byte, and without keys by nothing else.
    pub(crate) fn are_distinct(&mut self) -> bool {
        let current = self.session().map(|session| session.tag_in());
        let previous = self.previous().map(|session| session.tag_in());
        current != previous
    }

    /// The session before it, while something of that may be on its way: to send by it what its numbers are about.
    pub(crate) fn previous(&mut self) -> Option<&mut Session> {
        match &mut self.0 {
            Method::Psk(psk) => psk.previous(),
            Method::Keyed(keyed) => keyed.previous(),
        }
    }

    /// Packets go or come by the current session.
    pub(crate) fn carried(&mut self, now: Instant) {
        if let Some(session) = self.session() {
            session.carried(now);
        }
    }

    /// Asks for a new session; the present one serves until it is there.
    pub(crate) fn renew(&mut self) {
        match &mut self.0 {
            Method::Psk(psk) => psk.renew(),
            Method::Keyed(keyed) => keyed.want(),
        }
    }

    /// Forgets all sessions: the peer said that it is going.
    pub(crate) fn forget(&mut self) {
        match &mut self.0 {
            Method::Psk(psk) => psk.forget(),
            Method::Keyed(keyed) => keyed.forget(),
        }
    }

    /// Sees to it that worn keys are renewed and old ones forgotten. True if that leaves no
    /// session where there was one.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        match &mut self.0 {
            Method::Psk(psk) => {
                if psk.current().is_some_and(|session| session.is_worn(now)) {
                    psk.renew();
                }
                false
            }
            Method::Keyed(keyed) => keyed.expire(now),
        }
    }

    /// When [`Handshake::expire`] or [`Handshake::initial`] has something to do.
    pub(crate) fn deadline(&self) -> Instant {
        match &self.0 {
            Method::Psk(psk) => psk.deadline(),
            Method::Keyed(keyed) => keyed.deadline(),
        }
    }

    /// Writes what asks for a session, if it is due. `unix_ns` is the time in UTC.
    pub(crate) fn initial(
        &mut self,
        now: Instant,
        unix_ns: u64,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        match &mut self.0 {
            Method::Psk(psk) => psk.initial(now, out),
            Method::Keyed(keyed) => keyed.initial(now, unix_ns, out),
        }
    }

    /// True if the peer is known by its public key.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.0, Method::Keyed(_))
    }

    /// True if a data datagram with this header may be one of the peer's.
    pub(crate) fn may_open(&self, header: DataHeader) -> bool {
        match &self.0 {
            Method::Psk(_) => false,
            Method::Keyed(keyed) => keyed.may_open(header),
        }
    }

    /// Opens a data datagram with the session that it is of.
    pub(crate) fn open<'a>(
        &mut self,
        now: Instant,
        header: DataHeader,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        match &mut self.0 {
            Method::Psk(psk) => psk.open(header, datagram),
            Method::Keyed(keyed) => keyed.open(now, header, datagram),
        }
    }

    /// Accepts the content of the datagram of this number, which came in another one that had this
    /// header and was opened: the datagram itself is a duplicate from now on. False if it came
    /// before, or is too old to know.
    pub(crate) fn accept_resent(&mut self, header: DataHeader, sequence_low: u32) -> bool {
        let session = match &mut self.0 {
            Method::Psk(psk) => psk.session_of(header),
            Method::Keyed(keyed) => keyed.session_of(header),
        };
        session.is_some_and(|session| session.accept(sequence_low))
    }

    /// See [`Keyed::hurry`].
    pub(crate) fn hurry(&mut self) {
        if let Method::Keyed(keyed) = &mut self.0 {
            keyed.hurry();
        }
    }

    /// See [`Psk::repeat_final`].
    pub(crate) fn repeat_final(
        &mut self,
        now: Instant,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        match &mut self.0 {
            Method::Psk(psk) => psk.repeat_final(now, out),
            Method::Keyed(_) => None,
        }
    }

    /// See [`Psk::repeat_late_final`].
    pub(crate) fn repeat_late_final(
        &mut self,
        now: Instant,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        match &mut self.0 {
            Method::Psk(psk) => psk.repeat_late_final(now, out),
            Method::Keyed(_) => None,
        }
    }

    /// See [`Psk::hello`].
    pub(crate) fn hello(
        &mut self,
        now: Instant,
        from: From,
        sealed: (bool, [u8; HELLO_NONCE_LEN]),
        body: &mut [u8],
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> (HelloOutcome, usize) {
        match &mut self.0 {
            Method::Psk(psk) => psk.hello(now, from, sealed, body, out),
            Method::Keyed(_) => (HelloOutcome::Rejected, 0),
        }
    }

    /// True if the peer has this public key.
    pub(crate) fn is_with(&self, public: &[u8]) -> bool {
        matches!(&self.0, Method::Keyed(keyed) if keyed.peer() == public)
    }

    /// True if the latest initiation has this name.
    pub(crate) fn awaits(&self, index: u32) -> bool {
        matches!(&self.0, Method::Keyed(keyed) if keyed.awaits(index))
    }

    /// Answers an initiation that is from the peer: `state` has read it. The time is also given in UTC, in
    /// nanoseconds since 1970.
    pub(crate) fn answer(
        &mut self,
        now: (Instant, u64),
        sender: u32,
        state: HandshakeState,
        payload: &[u8],
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Answer {
        match &mut self.0 {
            Method::Psk(_) => Answer::Malformed,
            Method::Keyed(keyed) => keyed.answer(now, sender, state, payload, out),
        }
    }

    /// Takes in a response.
    pub(crate) fn responded(&mut self, now: Instant, response: &Response<'_>) -> Responded {
        match &mut self.0 {
            Method::Psk(_) => Responded::Rejected,
            Method::Keyed(keyed) => keyed.responded(now, response),
        }
    }

    /// Takes in a cookie. False if it is not for us.
    pub(crate) fn cookie(&mut self, now: Instant, cookie: &Cookie) -> bool {
        match &mut self.0 {
            Method::Psk(_) => false,
            Method::Keyed(keyed) => keyed.cookie(now, cookie),
        }
    }
}
