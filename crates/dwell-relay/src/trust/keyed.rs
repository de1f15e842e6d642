//! The exchange between two nodes that know each other's public keys (docs/wire.md, section
//! 4.3), as one of them keeps it for one peer.
//!
//! Three sessions at most are alive: the *current* one, which sends; the *previous* one, for
//! what is still in transit; and the *next* one, which a responder has made and its peer has
//! not used yet. Datagrams of all three are opened, so renewing loses nothing.

use aws_lc_rs::hmac;
use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_wire::keyed::{
    INITIATION_HEADER_LEN, KEYED_LEN_MAX, MAC_LEN, OFFER_LEN, RESPONSE_HEADER_LEN, TIME_LEN,
    encode_offer, parse_offer, split_time,
};
use dwell_wire::{Cookie, DataHeader, Hello, Initiation, Response};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::gate::{self, is_mac, mac};
use super::handshake::{HELLO_LEN_MAX, Offer, Opened};
use super::session::{Agreed, OpenError, Role, Session};
use super::{RandomSource, noise};

/// An initiation is repeated after this long, ...
const RETRY_NS: u64 = SECOND_NS;
/// ... and after this many tries less often, ...
const TRIES_FAST: u32 = 5;
/// ... so that a path with a long round trip is not asked again before it could answer.
const RETRY_SLOW_NS: u64 = 5 * SECOND_NS;
/// If the peer was fast to answer before, it is not believed to be far away for this many tries.
const TRIES_FAST_KNOWN: u32 = 60;
/// A peer's initiations are answered at most once in this time.
const ANSWER_GAP_NS: u64 = 20 * MILLI_NS;
/// At most this many responses to one initiation are examined: each costs a key agreement.
const RESPONSES_MAX: u32 = 8;
/// Two initiations of one sender that are answered are further apart than this by any clock that goes: if not, the
/// second one shows the time of the first, because its clock was set back in between.
const STANDS_STILL_NS: u64 = MILLI_NS;
/// A cookie is used for this long; the one who made it knows it a little longer.
const COOKIE_NS: u64 = 120 * SECOND_NS;

/// What an initiation says of its sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerClock {
    /// By how much it is ahead of this machine's, in nanoseconds; negative if it is behind. None if that can't
    /// be said.
    pub(crate) ahead_ns: Option<i64>,
}

impl PeerClock {
    /// `time` is that of the initiation, `before` that of the one that was answered before it.
    fn of(time: u64, before: u64, unix_ns: u64) -> Self {
        let goes = time.saturating_sub(before) > STANDS_STILL_NS;
        let ahead = i128::from(time) - i128::from(unix_ns);
        let ahead_ns = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
        Self { ahead_ns: goes.then_some(ahead_ns) }
    }
}

/// The outcome of a response.
#[derive(Debug)]
pub(crate) enum Responded {
    /// It is not to our initiation, or not from the peer.
    Rejected,
    /// A new session is there.
    Installed(Hello),
}

/// The outcome of an initiation whose sender is known.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is older than one that was answered, or comes too soon after it.
    Replayed,
    /// The length of the answer, in bytes.
    Written(usize),
    /// It makes no sense.
    Malformed,
}

/// A session that a responder has made, and its peer has not used yet.
struct Next {
    session: Session,
    /// What the peer was sent for it.
    offered: Offer,
    /// What it is to be put into use with; nothing if it only opens what comes by it.
    hello: Option<Hello>,
    /// What the initiation says of the peer's clock, until the peer has proved that it was its own.
    clock: Option<PeerClock>,
}

/// An initiation that is not answered yet.
struct Attempt {
    index: u32,
    state: Box<HandshakeState>,
    mac1: [u8; MAC_LEN],
    responses: u32,
    /// What the peer was sent with it.
    offered: Offer,
}

/// The keys of one pair of nodes.
pub(super) struct PairKeys {
    pub(super) private: Zeroizing<[u8; 32]>,
    pub(super) peer: [u8; 32],
    pub(super) psk: Zeroizing<[u8; 32]>,
}

/// The exchange with one peer.
pub(super) struct Keyed {
    keys: PairKeys,
    offer: Offer,
    /// The one that the current session was made with.
    offered: Offer,
    random: RandomSource,
    own_mac1: hmac::Key,
    peer_mac1: hmac::Key,
    current: Option<Session>,
    previous: Option<Session>,
    next: Option<Next>,
    /// When both ends ask at once: the session that we asked for goes before the peer's.
    goes_first: bool,
    attempt: Option<Attempt>,
    tries: u32,
    initial_at: Instant,
    asked_at: Instant,
    tries_fast: u32,
    /// The next initiation goes before it is due, since there is a cookie for it; so did the
    /// latest one.
    is_early: bool,
    was_early: bool,
    wanted: bool,
    cookie: Option<([u8; MAC_LEN], Instant)>,
    /// Of the latest initiation that was answered.
    peer_time: u64,
    answered_at: Option<Instant>,
    own_time: u64,
    /// The latest initiation shows a later time than the clock, which was set back.
    stands_still: bool,
    /// It was the second one of two, by which the peer sees that.
    is_second: bool,
}

impl std::fmt::Debug for Keyed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyed").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Keyed {
    pub(super) fn new(keys: PairKeys, own: &[u8; 32], offer: Offer, random: RandomSource) -> Self {
        Self {
            own_mac1: gate::mac1_key(own),
            peer_mac1: gate::mac1_key(&keys.peer),
            goes_first: *own > keys.peer,
            keys,
            offer,
            offered: offer,
            random,
            current: None,
            previous: None,
            next: None,
            attempt: None,
            tries: 0,
            initial_at: Instant::ZERO,
            asked_at: Instant::ZERO,
            tries_fast: TRIES_FAST,
            is_early: false,
            was_early: false,
            wanted: true,
            cookie: None,
            peer_time: 0,
            answered_at: None,
            own_time: 0,
            stands_still: false,
            is_second: false,
        }
    }

    /// The peer's public key.
    pub(super) fn peer(&self) -> &[u8; 32] {
        &self.keys.peer
    }

    pub(super) fn session(&mut self) -> Option<&mut Session> {
        self.current.as_mut()
    }

    pub(super) fn previous(&mut self) -> Option<&mut Session> {
        self.previous.as_mut()
    }

    pub(super) fn current(&self) -> Option<&Session> {
        self.current.as_ref()
    }

    pub(super) fn forget(&mut self) {
        (self.current, self.previous, self.next, self.attempt) = (None, None, None, None);
        self.want();
    }

    /// See [`Handshake::offered`](super::Handshake::offered).
    pub(super) fn offered(&self) -> &Offer {
        &self.offered
    }

    /// See [`Handshake::set_offer`](super::Handshake::set_offer).
    pub(super) fn set_offer(&mut self, offer: Offer) {
        if offer != self.offer {
            self.offer = offer;
            self.want();
        }
    }

    /// Asks for a new session, if it is not being asked for.
    pub(super) fn want(&mut self) {
        if !self.wanted {
            (self.wanted, self.tries) = (true, 0);
        }
    }

    /// Something came that no session opens: the peer seems to be there again, with a session that
    /// we have given up. Then it is asked as often as at first.
    pub(super) fn hurry(&mut self) {
        self.initial_at = self.initial_at.min(self.asked_at + RETRY_NS);
    }

    /// When an initiation is due, or a session's keys are to be forgotten.
    pub(super) fn deadline(&self) -> Instant {
        let renew_at = self.current.as_ref().map_or(Instant::FAR_FUTURE, Session::renew_at);
        let initial_at = if self.wanted { self.initial_at } else { renew_at };
        self.sessions().map(Session::reject_at).fold(initial_at, Instant::min)
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        let next = self.next.as_ref().map(|next| &next.session);
        self.current.iter().chain(&self.previous).chain(next)
    }

    /// Forgets old keys. True if the current ones were among them, and there are no others.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        if self.current.as_ref().is_some_and(|session| session.is_worn(now)) {
            self.want();
        }
        let alive = |session: &Session| now < session.reject_at();
        self.previous = self.previous.take().filter(alive);
        self.next = self.next.take().filter(|next| alive(&next.session));
        let had = self.current.is_some();
        self.current = self.current.take().filter(alive);
        if had && self.current.is_none() {
            self.want();
        }
        had && self.current.is_none()
    }

    /// Writes an initiation if one is due. `unix_ns` is the time in UTC.
    pub(super) fn initial(
        &mut self,
        now: Instant,
        unix_ns: u64,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        if !self.wanted || now < self.initial_at {
            return None;
        }
        self.was_early = std::mem::take(&mut self.is_early);
        self.tries = self.tries.saturating_add(u32::from(!self.was_early));
        let retry_ns = if self.tries <= self.tries_fast { RETRY_NS } else { RETRY_SLOW_NS };
        (self.asked_at, self.initial_at) = (now, now + retry_ns);
        // A clock that was set back must not make us a replay of ourselves.
        self.own_time = unix_ns.max(self.own_time + 1);
        self.stands_still = self.own_time > unix_ns;
        let PairKeys { private, peer, psk } = &self.keys;
        let mut state = noise::initiator(private, peer, psk, &mut self.random).ok()?;
        let index = self.fresh_index();
        let mut payload = [0; TIME_LEN + OFFER_LEN];
        payload[..TIME_LEN].copy_from_slice(&self.own_time.to_be_bytes());
        payload[TIME_LEN..].copy_from_slice(&encode_offer(&self.offer.to_hello()));
        out[..INITIATION_HEADER_LEN].copy_from_slice(&Initiation::header(index));
        let noise_len = state.write_message(&payload, &mut out[INITIATION_HEADER_LEN..]).ok()?;
        let end = INITIATION_HEADER_LEN + noise_len;
        let mac1 = mac(&self.peer_mac1, &out[..end]);
        out[end..end + MAC_LEN].copy_from_slice(&mac1);
        let cookie = self.cookie.filter(|(_, until)| now < *until).map(|(cookie, _)| cookie);
        let mac2 = match cookie {
            Some(cookie) => mac(&gate::mac2_key(&cookie), &out[..end + MAC_LEN]),
            None => [0; MAC_LEN],
        };
        out[end + MAC_LEN..end + 2 * MAC_LEN].copy_from_slice(&mac2);
        let (state, offered) = (Box::new(state), self.offer);
        self.attempt = Some(Attempt { index, state, mac1, responses: 0, offered });
        Some(end + 2 * MAC_LEN)
    }

    /// A name for a session to be: its last byte is none of a living session's.
    fn fresh_index(&mut self) -> u32 {
        let mut bytes = [0; 4];
        (self.random)(&mut bytes);
        let mut index = u32::from_be_bytes(bytes);
        // At most four names are taken.
        while self.is_taken(index as u8) {
            index = index.wrapping_add(1);
        }
        index
    }

    fn is_taken(&self, tag: u8) -> bool {
        let of_attempt = self.attempt.as_ref().is_some_and(|at| at.index as u8 == tag);
        of_attempt || self.sessions().any(|session| session.tag_in() == tag)
    }

    /// True if the latest initiation has this name.
    pub(super) fn awaits(&self, index: u32) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.index == index)
    }

    /// Takes in a response to our initiation.
    pub(super) fn responded(&mut self, now: Instant, response: &Response<'_>) -> Responded {
        let Some(attempt) = self.attempt.as_mut().filter(|at| at.index == response.receiver) else {
            return Responded::Rejected;
        };
        if !is_mac(&self.own_mac1, response.under_mac1(), response.mac1())
            || attempt.responses == RESPONSES_MAX
        {
            return Responded::Rejected;
        }
        attempt.responses += 1;
        let mut payload = [0; KEYED_LEN_MAX];
        let Ok(len) = attempt.state.read_message(response.noise, &mut payload) else {
            return Responded::Rejected;
        };
        let Ok(hello) = parse_offer(&payload[..len]) else { return Responded::Rejected };
        let is_near = now.since_ns(self.asked_at) < RETRY_NS / 2;
        self.tries_fast = if is_near { TRIES_FAST_KNOWN } else { TRIES_FAST };
        let (tag_in, tag_out) = (attempt.index as u8, response.sender as u8);
        let agreed = agreed(Role::Initiator, &mut attempt.state, tag_in, tag_out);
        let offered = attempt.offered;
        self.replace(now, Session::agreed(&agreed, now), offered);
        // If both asked at once there are two sessions, and both ends must choose the same one.
        if let Some(next) = self.next.as_mut().filter(|_| self.goes_first) {
            next.hello = None;
            next.session.carried(now);
        }
        self.settled(now);
        // A peer that knows of no initiation before this one takes its time for what our clock shows.
        self.is_second = self.stands_still && !self.is_second;
        if self.is_second {
            self.want();
        }
        Responded::Installed(hello)
    }

    /// Another session sends from now on. The keys of the one before have 180 s from here, even
    /// if it never carried a packet.
    fn replace(&mut self, now: Instant, session: Session, offered: Offer) {
        self.offered = offered;
        if let Some(mut before) = self.current.replace(session) {
            before.carried(now);
            self.previous = Some(before);
        }
    }

    fn settled(&mut self, now: Instant) {
        self.attempt = None;
        self.wanted = false;
        self.initial_at = now + RETRY_NS;
        // What is offered may have changed since this session was asked for, or answered.
        if self.offered != self.offer {
            self.want();
        }
    }

    /// Answers an initiation of the peer: `state` has read it, `payload` is what it said, `unix_ns` the time in
    /// UTC.
    pub(super) fn answer(
        &mut self,
        (now, unix_ns): (Instant, u64),
        sender: u32,
        mut state: HandshakeState,
        payload: &[u8],
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Answer {
        let Ok((time, offer)) = split_time(payload) else { return Answer::Malformed };
        let Ok(hello) = parse_offer(offer) else { return Answer::Malformed };
        let too_soon = self.answered_at.is_some_and(|at| now < at + ANSWER_GAP_NS);
        if time <= self.peer_time || too_soon {
            return Answer::Replayed;
        }
        let index = self.fresh_index();
        let Some((len, session)) = self.write_response(now, (index, sender), &mut state, out)
        else {
            return Answer::Malformed;
        };
        let clock = PeerClock::of(time, self.peer_time, unix_ns);
        (self.peer_time, self.answered_at) = (time, Some(now));
        let offered = self.offer;
        self.next = Some(Next { session, offered, hello: Some(hello), clock: Some(clock) });
        Answer::Written(len)
    }

    fn write_response(
        &self,
        now: Instant,
        (index, sender): (u32, u32),
        state: &mut HandshakeState,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<(usize, Session)> {
        noise::set_psk(state, &self.keys.psk).ok()?;
        out[..RESPONSE_HEADER_LEN].copy_from_slice(&Response::header(index, sender));
        let offer = encode_offer(&self.offer.to_hello());
        let noise_len = state.write_message(&offer, &mut out[RESPONSE_HEADER_LEN..]).ok()?;
        let end = RESPONSE_HEADER_LEN + noise_len;
        let mac1 = mac(&self.peer_mac1, &out[..end]);
        out[end..end + MAC_LEN].copy_from_slice(&mac1);
        let agreed = agreed(Role::Responder, state, index as u8, sender as u8);
        Some((end + MAC_LEN, Session::agreed(&agreed, now)))
    }

    /// Takes in a cookie, for the next initiation.
    pub(super) fn cookie(&mut self, now: Instant, cookie: &Cookie) -> bool {
        let Some(attempt) = self.attempt.as_ref().filter(|at| at.index == cookie.receiver) else {
            return false;
        };
        let Some(opened) = gate::open_cookie(&self.keys.peer, &attempt.mac1, cookie) else {
            return false;
        };
        self.cookie = Some((opened, now + COOKIE_NS));
        // At once, but once for each that was sent when it was due: two cookies can't make more.
        if !self.was_early {
            (self.is_early, self.initial_at) = (true, now);
        }
        true
    }

    /// True if a datagram with this header may be of one of the sessions.
    pub(super) fn may_open(&self, header: DataHeader) -> bool {
        self.sessions().any(|session| session.may_open(header))
    }

    /// The session that a datagram with this header is of.
    pub(super) fn session_of(&mut self, header: DataHeader) -> Option<&mut Session> {
        let next = self.next.as_mut().map(|next| &mut next.session);
        let mut sessions = self.current.iter_mut().chain(&mut self.previous).chain(next);
        sessions.find(|session| session.tag_in() == header.session)
    }

    /// Opens a data datagram with the session that it is of.
    pub(super) fn open<'a>(
        &mut self,
        now: Instant,
        header: DataHeader,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        let named = |session: &&mut Session| session.tag_in() == header.session;
        if let Some(session) = self.current.as_mut().filter(named) {
            return session.open(header, datagram).map(Opened::current);
        }
        if let Some(session) = self.previous.as_mut().filter(named) {
            return session.open(header, datagram).map(Opened::previous);
        }
        let next = self.next.as_mut().filter(|next| next.session.tag_in() == header.session);
        let next = next.ok_or(OpenError::Session)?;
        let (body, newest) = next.session.open(header, datagram)?;
        // Only now is it known that the initiation was no old one that somebody recorded.
        let (began, clock) = (next.hello.take(), next.clock.take());
        if began.is_some() {
            self.promote(now);
        }
        Ok(Opened { body, current: began.is_some(), previous: false, newest, began, clock })
    }

    /// The peer uses the next session, so it has it: now we do, too.
    fn promote(&mut self, now: Instant) {
        let Some(Next { session, offered, .. }) = self.next.take() else { return };
        self.replace(now, session, offered);
        self.settled(now);
    }
}

fn agreed(role: Role, state: &mut HandshakeState, tag_in: u8, tag_out: u8) -> Agreed {
    let (of_initiator, of_responder) = state.dangerously_get_raw_split();
    let (seal, open) = match role {
        Role::Initiator => (of_initiator, of_responder),
        Role::Responder => (of_responder, of_initiator),
    };
    let hash = state.get_handshake_hash();
    let mut halves = [[0; 16]; 2];
    for (half, bytes) in halves.iter_mut().zip(hash.chunks_exact(16)) {
        half.copy_from_slice(bytes);
    }
    Agreed { role, seal, open, tag_out, tag_in, halves }
}
