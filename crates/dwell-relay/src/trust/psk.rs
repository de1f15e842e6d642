//! The exchange of salts that begins a session.
//!
//! Three kinds of hello, distinguished by what they carry (docs/wire.md, section 4.1):
//! *initial* (no echo), *answer* (echoes the peer's salt), *final* (echoes, and says that the
//! sender has installed the session; it is never answered, so that no exchange is endless).

use std::net::{IpAddr, Ipv4Addr};

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_wire::header::{HELLO_NONCE_LEN, Kind, SEAL_TAG_LEN};
use dwell_wire::hello::{HELLO_BODY_LEN, HELLO_FINAL};
use dwell_wire::{DataHeader, Hello};
use zeroize::Zeroizing;

use super::handshake::{HELLO_LEN_MAX, HelloOutcome, Offer, Opened};
use super::session::{OpenError, Session};
use super::shares::{Allowance, Shares};
use super::{Key, RandomSource, derive};

/// The length of a sealed hello as this version writes it.
pub(super) const PSK_HELLO_LEN_MAX: usize = 1 + HELLO_NONCE_LEN + HELLO_BODY_LEN + SEAL_TAG_LEN;
/// An initial hello is repeated this often until there is a session.
const RETRY_NS: u64 = SECOND_NS;
/// The same hello is answered at most once in this time.
const ANSWER_GAP_NS: u64 = 50 * MILLI_NS;
/// A final hello is repeated this often while nothing comes by the session that it is of.
const FINAL_AGAIN_NS: u64 = 100 * MILLI_NS;
/// Hellos from where the peer is known to be are answered at most this often in a second, ...
const KNOWN: Allowance = Allowance { total: 25, of_network: 25, of_address: 25 };
/// ... and all others: they can be recorded, and sent again from everywhere.
const OTHERS: Allowance = Allowance { total: 75, of_network: 25, of_address: 10 };
/// Networks, and addresses, that are distinguished at the same time.
const SOURCES: usize = 128;

/// The peers answered recently. Hellos can be recorded and sent again by anybody: each is answered
/// rarely, so that one that is sent over and over does not keep the peer's own from being answered.
struct Answers {
    latest: [([u8; 16], Instant); 8],
    next: usize,
    /// For where the peer is known to be, and for everywhere else.
    known: Shares,
    others: Shares,
}

impl Answers {
    fn new(random: &mut RandomSource) -> Self {
        Self {
            latest: Default::default(),
            next: 0,
            known: Shares::new(KNOWN, 8, random),
            others: Shares::new(OTHERS, SOURCES, random),
        }
    }

    fn may_answer(&mut self, now: Instant, from: From, salt: [u8; 16]) -> bool {
        let again = |(known, at): &([u8; 16], Instant)| *known == salt && now < *at + ANSWER_GAP_NS;
        if self.latest.iter().any(again) {
            return false;
        }
        let granted = match from {
            From::Peer => self.known.grant(now, Ipv4Addr::UNSPECIFIED.into()),
            From::Elsewhere(source) => self.others.grant(now, source),
        };
        if granted {
            self.latest[self.next] = (salt, now);
            self.next = (self.next + 1) % self.latest.len();
        }
        granted
    }
}

/// The origin of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The address and port where the peer is known to be.
    Peer,
    /// Another address.
    Elsewhere(IpAddr),
}

/// The state of the handshake with one peer, and the sessions that came of it.
pub(super) struct Psk {
    shared: Option<Zeroizing<[u8; 32]>>,
    hello_key: Option<LessSafeKey>,
    offer: Offer,
    /// For the next session; used for one only.
    salt: [u8; 16],
    /// What was sent with this salt, if it was: with each salt the peer is sent one offer only, so that it is
    /// known which one a session was made with.
    of_salt: Option<Offer>,
    /// The offer that the current session was made with.
    offered: Offer,
    random: RandomSource,
    current: Option<Session>,
    previous: Option<Session>,
    initial_at: Instant,
    /// When the final hello of the current session was sent last.
    final_at: Instant,
    answers: Answers,
    wanted: bool,
}

impl std::fmt::Debug for Psk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psk").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Psk {
    /// The beginning: no session, and one is wanted. `random` must be fit for secrets.
    pub(crate) fn new(key: Key<'_>, offer: Offer, mut random: RandomSource) -> Self {
        let shared = match key {
            Key::Shared(shared) => Some(Zeroizing::new(*shared)),
            Key::None => None,
        };
        let mut salt = [0; 16];
        random(&mut salt);
        Self {
            hello_key: shared.as_deref().map(|shared| derive(shared, b"", b"dwell hello v1")),
            shared,
            offer,
            salt,
            of_salt: None,
            offered: offer,
            answers: Answers::new(&mut random),
            random,
            current: None,
            previous: None,
            initial_at: Instant::ZERO,
            final_at: Instant::ZERO,
            wanted: true,
        }
    }

    /// See [`Handshake::offered`](super::Handshake::offered).
    pub(super) fn offered(&self) -> &Offer {
        &self.offered
    }

    /// See [`Handshake::set_offer`](super::Handshake::set_offer).
    pub(super) fn set_offer(&mut self, offer: Offer) {
        self.wanted |= offer != self.offer;
        self.offer = offer;
    }

    /// True if datagrams are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.shared.is_some()
    }

    /// The session to send with.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.current.as_mut()
    }

    /// The session before.
    pub(super) fn previous(&mut self) -> Option<&mut Session> {
        self.previous.as_mut()
    }

    /// The same, to look at.
    pub(crate) fn current(&self) -> Option<&Session> {
        self.current.as_ref()
    }

    /// Asks for a new session; the present one serves until it is there.
    pub(crate) fn renew(&mut self) {
        self.wanted = true;
    }

    /// Forgets all sessions: the peer said that it is going.
    pub(crate) fn forget(&mut self) {
        self.current = None;
        self.previous = None;
        self.wanted = true;
    }

    /// When an initial hello is due; never if there is a session that will do.
    pub(crate) fn deadline(&self) -> Instant {
        if self.wanted { self.initial_at } else { Instant::FAR_FUTURE }
    }

    /// Writes an initial hello if one is due.
    pub(crate) fn initial(&mut self, now: Instant, out: &mut [u8; HELLO_LEN_MAX]) -> Option<usize> {
        if now < self.deadline() {
            return None;
        }
        self.initial_at = now + RETRY_NS;
        Some(self.write_next([0; 16], out))
    }

    /// Opens a data datagram with the session that it is of.
    pub(crate) fn open<'a>(
        &mut self,
        header: DataHeader,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        let Self { current, previous, .. } = self;
        // The tags of two sessions may be equal, once in 256 times; then the seal decides, but a
        // seal can be tried only once in place. The older session yields.
        match (current, previous) {
            (Some(current), _) if current.tag_in() == header.session => {
                current.open(header, datagram).map(Opened::current)
            }
            (_, Some(previous)) => previous.open(header, datagram).map(Opened::previous),
            _ => Err(OpenError::Session),
        }
    }

    /// The session that a datagram with this header was opened by.
    pub(super) fn session_of(&mut self, header: DataHeader) -> Option<&mut Session> {
        let mut sessions = self.current.iter_mut().chain(&mut self.previous);
        sessions.find(|session| session.tag_in() == header.session)
    }

    /// Something came that no session opens. If nothing was received in the present one, it
    /// may not have it, because our final hello was lost: writes that again.
    pub(crate) fn repeat_final(
        &mut self,
        now: Instant,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        let session = self.current.as_ref().filter(|session| !session.has_received())?;
        let (mine, theirs) = session.salts();
        self.answers
            .may_answer(now, From::Peer, theirs)
            .then(|| self.write_final(theirs, mine, out))
    }

    /// The peer still sends by the session before, or says nothing. If nothing was received in the present one for a while, it
    /// may not have it, because our final hello was lost: writes that again.
    pub(crate) fn repeat_late_final(
        &mut self,
        now: Instant,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> Option<usize> {
        let session = self.current.as_ref().filter(|session| !session.has_received())?;
        let (mine, theirs) = session.salts();
        if now < self.final_at + FINAL_AGAIN_NS {
            return None;
        }
        self.final_at = now;
        Some(self.write_final(theirs, mine, out))
    }

    /// Takes in a hello (`body` behind the nonce, opened in place), and writes the answer if
    /// there is one to be given: its length, or zero.
    pub(crate) fn hello(
        &mut self,
        now: Instant,
        from: From,
        (sealed, nonce): (bool, [u8; HELLO_NONCE_LEN]),
        body: &mut [u8],
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> (HelloOutcome, usize) {
        let Some(hello) = self.authentic(sealed, nonce, body) else {
            return (HelloOutcome::Rejected, 0);
        };
        let is_final = hello.flags & HELLO_FINAL != 0;
        if hello.echo == self.salt {
            let mine = self.install(now, hello.salt);
            let len = if is_final { 0 } else { self.write_final(hello.salt, mine, out) };
            return (HelloOutcome::Installed(hello), len);
        }
        if is_final || !self.answers.may_answer(now, from, hello.salt) {
            return (HelloOutcome::Known(hello), 0);
        }
        let known = self.current.as_ref().is_some_and(|s| s.salts() == (hello.echo, hello.salt));
        let len = if known {
            self.write_final(hello.salt, hello.echo, out)
        } else {
            self.write_next(hello.salt, out)
        };
        (HelloOutcome::Known(hello), len)
    }

    fn authentic(
        &self,
        sealed: bool,
        nonce: [u8; HELLO_NONCE_LEN],
        body: &mut [u8],
    ) -> Option<Hello> {
        let body = match (&self.hello_key, sealed) {
            (Some(key), true) => {
                let aad = Aad::from(hello_aad(nonce));
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, aad, body).ok()?
            }
            (None, false) => body,
            _ => return None,
        };
        Hello::parse(body).ok()
    }

    /// Makes the session of our salt and theirs, and a fresh salt for the next one.
    fn install(&mut self, now: Instant, theirs: [u8; 16]) -> [u8; 16] {
        let mine = self.salt;
        let key = self.shared.as_deref().map_or(Key::None, Key::Shared);
        let session = Session::new(key, mine, theirs);
        self.previous = self.current.replace(session);
        (self.random)(&mut self.salt);
        self.offered = self.of_salt.take().unwrap_or(self.offer);
        // What is offered may have changed since the peer was sent this salt.
        self.wanted = self.offered != self.offer;
        (self.initial_at, self.final_at) = (now + RETRY_NS, now);
        mine
    }

    /// Writes a hello for the next session, with the offer that the peer was sent for it before, if it was.
    fn write_next(&mut self, echo: [u8; 16], out: &mut [u8; HELLO_LEN_MAX]) -> usize {
        let offer = *self.of_salt.get_or_insert(self.offer);
        self.write((echo, self.salt), offer, 0, out)
    }

    /// Writes the final hello of the current session.
    fn write_final(
        &mut self,
        theirs: [u8; 16],
        mine: [u8; 16],
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> usize {
        self.write((theirs, mine), self.offered, HELLO_FINAL, out)
    }

    fn write(
        &mut self,
        (echo, salt): ([u8; 16], [u8; 16]),
        offer: Offer,
        flags: u16,
        out: &mut [u8; HELLO_LEN_MAX],
    ) -> usize {
        let Offer { datagram_max, codecs, contexts, .. } = offer;
        let flags = flags | offer.flags();
        let body = Hello { salt, echo, datagram_max, codecs, flags, contexts }.encode();
        let Some(key) = &self.hello_key else {
            out[0] = Kind::HelloPlain.first_byte();
            out[1..=HELLO_BODY_LEN].copy_from_slice(&body);
            return 1 + HELLO_BODY_LEN;
        };
        out[0] = Kind::HelloSealed.first_byte();
        let (nonce, rest) = out[1..].split_at_mut(HELLO_NONCE_LEN);
        (self.random)(nonce);
        // Random nonces of 96 bits: with at most 20 hellos a second, a year's collision is
        // less likely than 2^-38.
        let nonce: [u8; HELLO_NONCE_LEN] = nonce.try_into().expect("the nonce has its length");
        let aad = Aad::from(hello_aad(nonce));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (text, tag_room) = rest.split_at_mut(HELLO_BODY_LEN);
        text.copy_from_slice(&body);
        let tag = key
            .seal_in_place_separate_tag(nonce, aad, text)
            .expect("a hello is shorter than the limit of AES-GCM");
        tag_room[..SEAL_TAG_LEN].copy_from_slice(tag.as_ref());
        PSK_HELLO_LEN_MAX
    }
}

/// Returns the part of a sealed hello that is in the clear: its first byte and the nonce.
fn hello_aad(nonce: [u8; HELLO_NONCE_LEN]) -> [u8; 1 + HELLO_NONCE_LEN] {
    let mut aad = [Kind::HelloSealed.first_byte(); 1 + HELLO_NONCE_LEN];
    aad[1..].copy_from_slice(&nonce);
    aad
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;
    use dwell_wire::Datagram;

    use super::*;

    fn end(seed: u64, key: Option<&[u8; 32]>) -> Psk {
        let mut rng = Rng::from_seed(seed);
        let offer = Offer { datagram_max: 1472, codecs: 6, forwards: false, contexts: None };
        Psk::new(key.map_or(Key::None, Key::Shared), offer, Box::new(move |b| rng.fill(b)))
    }

    /// Delivers a hello and returns what it brought and the answer.
    fn deliver(to: &mut Psk, now: Instant, datagram: &[u8]) -> (HelloOutcome, Vec<u8>) {
        deliver_from(to, now, From::Peer, datagram)
    }

    fn deliver_from(
        to: &mut Psk,
        now: Instant,
        from: From,
        datagram: &[u8],
    ) -> (HelloOutcome, Vec<u8>) {
        let mut bytes = datagram.to_vec();
        let Datagram::Hello { sealed, nonce, body } = Datagram::parse(datagram).unwrap() else {
            panic!("no hello")
        };
        let at = datagram.len() - body.len();
        let mut out = [0; HELLO_LEN_MAX];
        let (outcome, len) = to.hello(now, from, (sealed, nonce), &mut bytes[at..], &mut out);
        (outcome, out[..len].to_vec())
    }

    fn initial(of: &mut Psk, now: Instant) -> Vec<u8> {
        let mut out = [0; HELLO_LEN_MAX];
        let len = of.initial(now, &mut out).expect("an initial hello is due");
        out[..len].to_vec()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_ns((ms + 1000) * MILLI_NS)
    }

    fn connect(a: &mut Psk, b: &mut Psk, now: Instant) {
        let (_, answer) = deliver(b, now, &initial(a, now));
        let (outcome, last) = deliver(a, now, &answer);
        assert!(matches!(outcome, HelloOutcome::Installed(_)), "{outcome:?}");
        let (outcome, nothing) = deliver(b, now, &last);
        assert!(matches!(outcome, HelloOutcome::Installed(_)), "{outcome:?}");
        assert!(nothing.is_empty());
        let (sa, sb) = (a.current().unwrap().salts(), b.current().unwrap().salts());
        assert_eq!((sa.0, sa.1), (sb.1, sb.0));
    }

    #[test]
    fn one_and_a_half_round_trips_make_a_session() {
        for key in [None, Some(&[9; 32])] {
            connect(&mut end(1, key), &mut end(2, key), at(0));
        }
    }

    #[test]
    fn both_may_begin_at_once() {
        let (mut a, mut b) = (end(1, None), end(2, None));
        let (hello_a, hello_b) = (initial(&mut a, at(0)), initial(&mut b, at(0)));
        let (_, answer_a) = deliver(&mut a, at(1), &hello_b);
        let (_, answer_b) = deliver(&mut b, at(1), &hello_a);
        let (_, final_a) = deliver(&mut a, at(2), &answer_b);
        let (_, final_b) = deliver(&mut b, at(2), &answer_a);
        assert!(deliver(&mut a, at(3), &final_b).1.is_empty());
        assert!(deliver(&mut b, at(3), &final_a).1.is_empty());
        let (sa, sb) = (a.current().unwrap().salts(), b.current().unwrap().salts());
        assert_eq!((sa.0, sa.1), (sb.1, sb.0));
    }

    #[test]
    fn a_lost_final_hello_is_sent_again() {
        let (mut a, mut b) = (end(1, None), end(2, None));
        let (_, answer) = deliver(&mut b, at(0), &initial(&mut a, at(0)));
        deliver(&mut a, at(0), &answer); // installs; its final hello is lost
        assert!(b.current().is_none());
        // b still wants a session and begins itself.
        let (_, answer) = deliver(&mut a, at(100), &initial(&mut b, at(100)));
        let (outcome, last) = deliver(&mut b, at(100), &answer);
        assert!(matches!(outcome, HelloOutcome::Installed(_)));
        deliver(&mut a, at(100), &last);
        let (sa, sb) = (a.current().unwrap().salts(), b.current().unwrap().salts());
        assert_eq!((sa.0, sa.1), (sb.1, sb.0));
    }

    #[test]
    fn another_key_is_rejected_and_not_answered() {
        let (mut a, mut b) = (end(1, Some(&[1; 32])), end(2, Some(&[2; 32])));
        let (outcome, answer) = deliver(&mut b, at(0), &initial(&mut a, at(0)));
        assert!(matches!(outcome, HelloOutcome::Rejected));
        assert!(answer.is_empty());
        let mut plain = end(3, None);
        let (outcome, _) = deliver(&mut b, at(100), &initial(&mut plain, at(100)));
        assert!(matches!(outcome, HelloOutcome::Rejected));
    }

    #[test]
    fn replayed_hellos_never_bring_a_session_back() {
        let key = Some(&[9; 32]);
        let (mut a, mut b) = (end(1, key), end(2, key));
        let first = initial(&mut a, at(0));
        let (_, answer) = deliver(&mut b, at(0), &first);
        let (_, last) = deliver(&mut a, at(0), &answer);
        deliver(&mut b, at(0), &last);
        let session = b.current().unwrap().salts();
        // a restarts and gets a new session; then everything old is replayed at b.
        let mut a = end(3, key);
        connect(&mut a, &mut b, at(200));
        let renewed = b.current().unwrap().salts();
        assert_ne!(session, renewed);
        for (n, old) in [&first, &last, &first, &last].into_iter().enumerate() {
            let (outcome, _) = deliver(&mut b, at(1000 + n as u64 * 100), old);
            assert!(matches!(outcome, HelloOutcome::Known(_)));
            assert_eq!(b.current().unwrap().salts(), renewed);
        }
    }

    #[test]
    fn a_recorded_hello_sent_over_and_over_keeps_nobody_out() {
        let key = Some(&[9; 32]);
        let (mut old, mut a, mut b) = (end(1, key), end(3, key), end(2, key));
        let recorded = initial(&mut old, at(0));
        for us in 0..100 {
            deliver(&mut b, at(0) + us * 1000, &recorded);
        }
        connect(&mut a, &mut b, at(0) + 100_000);
    }

    #[test]
    fn a_lost_final_hello_is_repeated_when_the_peer_proves_not_to_have_it() {
        let (mut a, mut b) = (end(1, None), end(2, None));
        let (_, answer) = deliver(&mut b, at(0), &initial(&mut a, at(0)));
        deliver(&mut a, at(0), &answer); // its final hello is lost
        let mut out = [0; HELLO_LEN_MAX];
        let len = a.repeat_final(at(100), &mut out).expect("nothing was received from b");
        let (outcome, _) = deliver(&mut b, at(100), &out[..len]);
        assert!(matches!(outcome, HelloOutcome::Installed(_)), "{outcome:?}");
    }

    #[test]
    fn a_final_hello_is_repeated_while_nothing_comes_by_its_session() {
        let key = Some(&[9; 32]);
        let (mut a, mut b) = (end(1, key), end(2, key));
        connect(&mut a, &mut b, at(0));
        a.renew();
        let (_, answer) = deliver(&mut b, at(1_000), &initial(&mut a, at(1_000)));
        deliver(&mut a, at(1_000), &answer); // its final hello is lost
        let mut out = [0; HELLO_LEN_MAX];
        assert_eq!(
            a.repeat_late_final(at(1_099), &mut out),
            None,
            "the peer had no time to answer"
        );
        let len = a.repeat_late_final(at(1_100), &mut out).expect("nothing came by it");
        assert_eq!(a.repeat_late_final(at(1_199), &mut [0; HELLO_LEN_MAX]), None);
        let (outcome, answer) = deliver(&mut b, at(1_200), &out[..len]);
        assert!(matches!(outcome, HelloOutcome::Installed(_)), "{outcome:?}");
        assert!(answer.is_empty());
        // It comes once more, late, and changes nothing.
        let len = a.repeat_late_final(at(1_200), &mut out).expect("nothing came by it");
        let (outcome, answer) = deliver(&mut b, at(1_300), &out[..len]);
        assert!(matches!(outcome, HelloOutcome::Known(_)) && answer.is_empty());
    }

    #[test]
    fn recorded_hellos_from_everywhere_keep_nobody_out() {
        let key = Some(&[9; 32]);
        let mut b = end(2, key);
        // Of many starts, so that none is sent twice within a second.
        let recorded: Vec<_> = (0..600).map(|n| initial(&mut end(100 + n, key), at(0))).collect();
        for known in [true, false] {
            let mut connected = 0;
            for second in 0..20 {
                let start = at(1_000 + 1_000 * second) + if known { 0 } else { 100 * SECOND_NS };
                let mut a = end(5 + second, key);
                let mut answered = 0;
                for (n, hello) in (0..).zip(&recorded) {
                    let source = Ipv4Addr::new(100, 64, (n % 60) as u8, 1).into();
                    let now = start + n * MILLI_NS;
                    let (_, answer) = deliver_from(&mut b, now, From::Elsewhere(source), hello);
                    answered += u32::from(!answer.is_empty());
                }
                let from = match known {
                    true => From::Peer,
                    false => From::Elsewhere(Ipv4Addr::new(198, 51, 100, 7).into()),
                };
                let hello = initial(&mut a, start);
                let (_, answer) = deliver_from(&mut b, start + 700 * MILLI_NS, from, &hello);
                connected += u32::from(!answer.is_empty());
                assert!(answered <= OTHERS.total, "{answered} answers in a second");
            }
            assert!(connected >= if known { 20 } else { 19 }, "{connected} of 20, {known}");
        }
    }

    #[test]
    fn a_flood_of_hellos_is_answered_rarely() {
        let key = Some(&[9; 32]);
        let (mut a, mut b) = (end(1, key), end(2, key));
        let hello = initial(&mut a, at(0));
        let answers = (0..1000)
            .filter(|us| {
                let now = at(0) + us * 1000;
                !deliver(&mut b, now, &hello).1.is_empty()
            })
            .count();
        assert_eq!(answers, 1);
    }
}
