//! The Noise pattern against its published test vector, and the exchange between two peers.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rng};
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::keyed::MAC_LEN;
use dwell_wire::{Cookie, DataHeader, Datagram, Hello, Initiation, Response};

use super::*;
use crate::config::Security;

/// Of cacophony's collection of test vectors for Noise (haskell-cryptography/cacophony, public
/// domain): Noise_IKpsk2_25519_AESGCM_SHA256.
const INIT_STATIC: &str = "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1";
const INIT_EPHEMERAL: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const RESP_STATIC: &str = "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893";
const RESP_PUBLIC: &str = "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62";
const RESP_EPHEMERAL: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
const PSK: &str = "54686973206973206d7920417573747269616e20706572737065637469766521";
const PROLOGUE: &str = "4a6f686e2047616c74";
const MESSAGES: [(&str, &str); 2] = [
    (
        "4c756477696720766f6e204d69736573",
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79445a1baf339186d7867062b0dd\
         31f5de322d370165d217939b2b7ed9e2bae7840458ea65c2ce1554e0e8077fe7334c4bd514c658fd04d97b86\
         d216f58f59714a7e24144155045c8f36bed85a2cb0fd9af7",
    ),
    (
        "4d757272617920526f746862617264",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088432fe8d675e949799d2a968211\
         a66cc7ba2b0f4cad8eda3c2bd37eae737bbf88",
    ),
];
const HANDSHAKE_HASH: &str = "48c3f1eb397c797af6b139032c6074cb41282ff033ee25d5aee4a4badd3a2c3f";

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex32(text: &str) -> [u8; 32] {
    hex(text).try_into().unwrap()
}

#[test]
fn the_published_vector_comes_out() {
    let prologue = hex(PROLOGUE);
    let state = |own: &str, ephemeral: &str, peer: Option<[u8; 32]>, psk: Option<[u8; 32]>| {
        let keys = (hex32(own), hex32(ephemeral));
        noise::for_vectors(&prologue, &keys.0, &keys.1, peer.as_ref(), psk.as_ref())
    };
    let psk = hex32(PSK);
    let mut a = state(INIT_STATIC, INIT_EPHEMERAL, Some(hex32(RESP_PUBLIC)), Some(psk));
    // As in a node, the responder learns the key with the first message.
    let mut b = state(RESP_STATIC, RESP_EPHEMERAL, None, None);
    let (mut out, mut payload) = ([0; 256], [0; 256]);
    let [(first, first_sealed), (second, second_sealed)] = MESSAGES;
    let len = a.write_message(&hex(first), &mut out).unwrap();
    assert_eq!(out[..len], hex(first_sealed));
    let read = b.read_message(&out[..len], &mut payload).unwrap();
    assert_eq!(payload[..read], hex(first));
    assert_eq!(b.get_remote_static(), Some(&noise::public_of(&hex32(INIT_STATIC)).unwrap()[..]));
    noise::set_psk(&mut b, &psk).unwrap();
    let len = b.write_message(&hex(second), &mut out).unwrap();
    assert_eq!(out[..len], hex(second_sealed));
    let read = a.read_message(&out[..len], &mut payload).unwrap();
    assert_eq!(payload[..read], hex(second));
    assert_eq!(a.get_handshake_hash(), hex(HANDSHAKE_HASH));
    assert_eq!(a.dangerously_get_raw_split(), b.dangerously_get_raw_split());
}

#[test]
fn public_keys_are_those_of_the_vector() {
    assert_eq!(noise::public_of(&hex32(RESP_STATIC)).unwrap(), hex32(RESP_PUBLIC));
}

/// One end of a pair: what a node has for one peer.
struct End {
    identity: Identity,
    handshake: Handshake,
    unix_ns: u64,
}

fn secret(seed: u8) -> Secret {
    Secret::new([seed; 32])
}

fn sources(seed: u64) -> impl FnMut() -> RandomSource {
    let mut stream = 0;
    move || {
        stream += 1;
        let mut rng = Rng::stream(seed, stream);
        Box::new(move |bytes| rng.fill(bytes))
    }
}

impl End {
    fn new(own: u8, peer: u8, psk: Option<u8>) -> Self {
        let security = Security::Keys {
            private: secret(own),
            peer: public_key(&secret(peer)).unwrap(),
            psk: psk.map(secret),
        };
        let mut random = sources(u64::from(own));
        let offer = Offer { datagram_max: 1472, codecs: 6, forwards: false, contexts: None };
        Self {
            identity: Identity::new(&secret(own), &mut random),
            handshake: Handshake::new(&security, offer, random()),
            unix_ns: 1_000,
        }
    }

    fn initial(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut out = [0; HELLO_LEN_MAX];
        let len = self.handshake.initial(now, self.unix_ns, &mut out)?;
        Some(out[..len].to_vec())
    }

    fn examine(&mut self, now: Instant, datagram: &[u8]) -> Admission {
        self.identity.admit(now, "192.0.2.1:7733".parse().unwrap(), false, &initiation(datagram))
    }

    /// Answers an initiation as a node does, for the part that is the peer's.
    fn answer(&mut self, now: Instant, datagram: &[u8]) -> Option<Vec<u8>> {
        if self.examine(now, datagram) != Admission::Examine {
            return None;
        }
        let it = initiation(datagram);
        let examined = self.identity.examine(&it)?;
        if !self.handshake.is_with(&examined.public) {
            return None;
        }
        let payload = examined.payload().to_vec();
        let mut out = [0; HELLO_LEN_MAX];
        match self.handshake.answer(
            (now, self.unix_ns),
            it.sender,
            examined.state,
            &payload,
            &mut out,
        ) {
            Answer::Written(len) => Some(out[..len].to_vec()),
            Answer::Replayed | Answer::Malformed => None,
        }
    }

    fn responded(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let it = response(datagram);
        self.handshake.awaits(it.receiver)
            && matches!(self.handshake.responded(now, &it), Responded::Installed(_))
    }

    fn seal(&mut self, text: &[u8]) -> Vec<u8> {
        let session = self.handshake.session().expect("there is a session");
        let mut datagram = vec![0; session.overhead() + text.len()];
        datagram[DATA_HEADER_LEN..][..text.len()].copy_from_slice(text);
        session.seal(&mut datagram, text.len());
        datagram
    }

    fn open(
        &mut self,
        now: Instant,
        datagram: &[u8],
    ) -> Result<(Vec<u8>, Option<Hello>), OpenError> {
        let mut copy = datagram.to_vec();
        let header = header_of(datagram);
        let opened = self.handshake.open(now, header, &mut copy)?;
        Ok((opened.body.to_vec(), opened.began))
    }
}

fn initiation(datagram: &[u8]) -> Initiation<'_> {
    let Ok(Datagram::Initiation(it)) = Datagram::parse(datagram) else { panic!("no initiation") };
    it
}

fn response(datagram: &[u8]) -> Response<'_> {
    let Ok(Datagram::Response(it)) = Datagram::parse(datagram) else { panic!("no response") };
    it
}

fn cookie(datagram: &[u8]) -> Cookie {
    let Ok(Datagram::Cookie(it)) = Datagram::parse(datagram) else { panic!("no cookie") };
    it
}

fn header_of(datagram: &[u8]) -> DataHeader {
    let Ok(Datagram::Data { header, .. }) = Datagram::parse(datagram) else { panic!("no data") };
    header
}

fn at(ms: u64) -> Instant {
    Instant::from_ns((ms + 1000) * MILLI_NS)
}

/// A pair, and one session between the two: `a` asked for it.
fn connect(a: &mut End, b: &mut End, now: Instant) {
    let first = a.initial(now).expect("an initiation is due");
    let second = b.answer(now, &first).expect("it is answered");
    assert!(second.len() <= first.len(), "nobody's traffic is made more by us");
    assert!(a.responded(now, &second));
    let probe = a.seal(b"here");
    let (text, began) = b.open(now, &probe).unwrap();
    assert_eq!((&text[..], began.map(|hello| hello.datagram_max)), (&b"here"[..], Some(1472)));
    let (sa, sb) = (a.handshake.current().unwrap().salts(), b.handshake.current().unwrap().salts());
    assert_eq!((sa.0, sa.1), (sb.1, sb.0));
    assert_ne!(sa.0, sa.1);
}

#[test]
fn one_round_trip_makes_a_session_for_both_directions() {
    for psk in [None, Some(9)] {
        let (mut a, mut b) = (End::new(1, 2, psk), End::new(2, 1, psk));
        connect(&mut a, &mut b, at(0));
        let there = a.seal(b"there");
        assert_eq!(b.open(at(1), &there).unwrap().0, b"there");
        assert_eq!(b.open(at(1), &there), Err(OpenError::Replayed));
        let back = b.seal(b"back");
        assert_eq!(a.open(at(1), &back).unwrap().0, b"back");
        assert!(a.open(at(1), &there).is_err(), "nobody opens his own datagram");
    }
}

#[test]
fn a_responder_does_not_send_before_it_hears_that_the_session_is_wanted() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    let first = a.initial(at(0)).unwrap();
    b.answer(at(0), &first).unwrap();
    assert!(b.handshake.current().is_none());
}

#[test]
fn what_a_node_offers_reaches_its_peer_and_a_change_renews_the_session() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    for (now, forwards) in [(at(0), false), (at(20_000), true), (at(40_000), false)] {
        let offer = Offer { datagram_max: 1472, codecs: 6, forwards, contexts: None };
        a.handshake.set_offer(offer);
        let first = a.initial(now).expect("a new session is wanted");
        a.unix_ns += 1;
        let answer = b.answer(now, &first).expect("b answers");
        assert!(a.responded(now, &answer));
        let sealed = a.seal(b"by the new one");
        let (_, began) = b.open(now, &sealed).expect("it opens");
        assert_eq!(began.map(|hello| hello.carries()), Some(forwards));
        a.handshake.set_offer(offer);
        assert_eq!(a.initial(now), None, "nothing has changed");
    }
}

#[test]
fn other_keys_make_no_session() {
    // Another psk: the response can't be read.
    let (mut a, mut b) = (End::new(1, 2, Some(8)), End::new(2, 1, Some(9)));
    let first = a.initial(at(0)).unwrap();
    let second = b.answer(at(0), &first).unwrap();
    assert!(!a.responded(at(0), &second));
    // A key that is no peer's is not answered, ...
    let mut unknown_peer = End::new(3, 2, None);
    let mut b = End::new(2, 1, None);
    let first = unknown_peer.initial(at(0)).unwrap();
    assert_eq!(b.answer(at(0), &first), None);
    // ... and who does not even know ours is not examined.
    let mut lost = End::new(1, 4, None);
    let first = lost.initial(at(0)).unwrap();
    assert_eq!(b.examine(at(0), &first), Admission::InvalidMac);
    assert_eq!(b.identity.counts().examined, 1);
}

#[test]
fn any_flipped_bit_of_a_handshake_is_noticed() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    let first = a.initial(at(0)).unwrap();
    // The last 16 bytes are the MAC under a cookie, and none is asked for.
    for bit in 8..(first.len() - 16) * 8 {
        let mut bad = first.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(b.answer(at(0), &bad), None, "bit {bit}");
    }
    let second = b.answer(at(0), &first).unwrap();
    for bit in 8..second.len() * 8 {
        let mut bad = second.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!a.responded(at(0), &bad), "bit {bit}");
    }
    assert!(a.responded(at(0), &second), "a good one comes through all the same");
}

#[test]
fn replayed_handshakes_change_nothing() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    let first = a.initial(at(0)).unwrap();
    let second = b.answer(at(0), &first).unwrap();
    assert!(a.responded(at(0), &second));
    assert!(!a.responded(at(1), &second), "it was taken once");
    b.open(at(1), &a.seal(b"x")).unwrap();
    let salts = b.handshake.current().unwrap().salts();
    assert_eq!(b.answer(at(500), &first), None, "it is not newer than one that was answered");
    assert_eq!(b.handshake.current().unwrap().salts(), salts);
    b.open(at(501), &a.seal(b"y")).unwrap();
}

#[test]
fn a_clock_that_is_set_back_makes_nobody_a_replay_of_himself() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    a.unix_ns = 10 * SECOND_NS;
    connect(&mut a, &mut b, at(0));
    a.handshake.forget();
    a.unix_ns = 0;
    connect(&mut a, &mut b, at(2_000));
}

#[test]
fn both_may_begin_at_once() {
    // Every order in which the two responses and the first data arrive.
    for order in 0..4 {
        let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
        let (from_a, from_b) = (a.initial(at(0)).unwrap(), b.initial(at(0)).unwrap());
        let to_a = b.answer(at(1), &from_a).unwrap();
        let to_b = a.answer(at(1), &from_b).unwrap();
        if order & 1 == 0 {
            assert!(a.responded(at(2), &to_a));
            if order & 2 == 0 {
                b.open(at(2), &a.seal(b"early")).unwrap();
            }
            // If b has the other session in use already, it does not need its own.
            b.responded(at(3), &to_b);
        } else {
            assert!(b.responded(at(2), &to_b));
            if order & 2 == 0 {
                a.open(at(2), &b.seal(b"early")).unwrap();
            }
            a.responded(at(3), &to_a);
        }
        for n in 0..3 {
            let (there, back) = (a.seal(b"there"), b.seal(b"back"));
            assert_eq!(b.open(at(4 + n), &there).unwrap().0, b"there", "order {order}");
            assert_eq!(a.open(at(4 + n), &back).unwrap().0, b"back", "order {order}");
        }
        let [sa, sb] = [&a, &b].map(|end| end.handshake.current().unwrap().salts());
        assert_eq!((sa.0, sa.1), (sb.1, sb.0), "order {order}: both send by the same session");
    }
}

#[test]
fn keys_are_renewed_in_time_and_nothing_on_its_way_is_lost() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    connect(&mut a, &mut b, at(0));
    a.handshake.carried(at(0));
    b.handshake.carried(at(0));
    let old = a.handshake.current().unwrap().salts();
    assert!(a.initial(at(119_000)).is_none());
    assert!(!a.handshake.expire(at(120_000)) && !b.handshake.expire(at(120_000)));
    assert!(b.initial(at(120_000)).is_none(), "who was asked for the session waits longer");
    let on_its_way = [a.seal(b"one"), b.seal(b"two")];
    connect(&mut a, &mut b, at(120_000));
    assert_ne!(a.handshake.current().unwrap().salts(), old);
    assert_eq!(b.open(at(120_001), &on_its_way[0]).unwrap().0, b"one");
    assert_eq!(a.open(at(120_001), &on_its_way[1]).unwrap().0, b"two");
    // After three minutes the old keys are gone.
    let late = b.handshake.deadline();
    assert!(late <= at(180_000));
    b.handshake.expire(at(180_000));
    assert!(b.handshake.deadline() > at(180_000));
}

#[test]
fn keys_that_were_never_used_are_forgotten_as_soon_once_others_are_there() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    connect(&mut a, &mut b, at(0));
    let mut restarted = End { unix_ns: 2_000, ..End::new(1, 2, None) };
    connect(&mut restarted, &mut b, at(10_000));
    assert!(b.handshake.deadline() <= at(191_000), "those of the first session");
    assert!(!b.handshake.expire(at(191_000)));
    assert!(b.handshake.deadline() > at(400_000), "those of the second");
}

#[test]
fn keys_that_can_not_be_renewed_are_forgotten() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    connect(&mut a, &mut b, at(0));
    a.handshake.carried(at(10_000));
    assert!(!a.handshake.expire(at(189_999)));
    assert!(a.handshake.expire(at(190_000)));
    assert!(a.handshake.current().is_none());
    // One that forwards nothing has nothing to protect.
    assert!(!b.handshake.expire(at(3_600_000)));
    assert!(b.handshake.current().is_some());
    assert!(b.handshake.deadline() < at(4_000_000));
}

#[test]
fn the_peers_sessions_have_different_names() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    for round in 0..300 {
        let now = at(2_000 * round);
        connect(&mut a, &mut b, now);
        let old = a.seal(b"of the one before");
        a.handshake.expire(now + 120 * SECOND_NS);
        a.handshake.carried(now);
        a.handshake.expire(now + 120 * SECOND_NS);
        connect(&mut a, &mut b, now + SECOND_NS);
        assert!(b.open(now, &old).is_ok(), "round {round}");
        a.handshake.carried(now + SECOND_NS);
        a.handshake.expire(now + 121 * SECOND_NS);
    }
}

#[test]
fn a_flood_is_examined_rarely_and_who_shows_a_cookie_comes_through() {
    let mut b = End::new(2, 1, None);
    // A thousand holders of our public key, each with a key of its own, in one second.
    let mut flood = End::new(3, 2, None);
    let hello = flood.initial(at(0)).unwrap();
    let (mut examined, mut cookies) = (0, 0);
    for n in 0..10_000_u64 {
        match b.examine(at(0) + n * 50_000, &hello) {
            Admission::Examine => examined += 1,
            Admission::Cookie(datagram) => {
                assert!(datagram.len() < hello.len() / 2, "nobody's traffic is made more by us");
                cookies += 1;
            }
            Admission::Refused => {}
            Admission::InvalidMac => panic!("it knows our key"),
        }
    }
    assert!(examined <= 25, "{examined} key agreements");
    assert_eq!(cookies, 100, "all from one address");
    assert_eq!(b.identity.counts().examined, examined);
    // The peer comes in the same second, and takes the cookie along the next time.
    let mut a = End::new(1, 2, None);
    let first = a.initial(at(600)).unwrap();
    let mut b_later = at(1_000);
    for n in 0..30 {
        b.examine(b_later + n, &hello);
    }
    let Admission::Cookie(datagram) = b.examine(b_later, &first) else { panic!("no cookie") };
    assert!(a.handshake.cookie(b_later, &cookie(&datagram)));
    b_later = b_later + 700 * MILLI_NS;
    let second = a.initial(b_later).expect("it tries again at once");
    assert!(!a.handshake.cookie(b_later, &cookie(&datagram)), "it is of the initiation before");
    let response = b.answer(b_later, &second).expect("with the cookie it is examined");
    assert!(a.responded(b_later, &response));
}

#[test]
fn a_cookie_lets_the_next_initiation_go_at_once_and_only_that() {
    let (mut a, mut b) = (End::new(1, 2, None), End::new(2, 1, None));
    let other = End::new(3, 2, None).initial(at(0)).unwrap();
    (0..25).for_each(|_| assert_eq!(b.examine(at(0), &other), Admission::Examine));
    let first = a.initial(at(0)).unwrap();
    let Admission::Cookie(datagram) = b.examine(at(0), &first) else { panic!("no cookie") };
    assert!(a.initial(at(10)).is_none(), "it is not due");
    assert!(a.handshake.cookie(at(10), &cookie(&datagram)));
    let early = a.initial(at(10)).expect("it has a cookie now");
    assert!(b.answer(at(10), &early).is_some());
    // Another one for the early initiation: somebody makes cookies as fast as he can.
    let Admission::Cookie(datagram) = b.examine(at(10), &early_without_cookie(&early)) else {
        panic!("no cookie")
    };
    assert!(a.handshake.cookie(at(20), &cookie(&datagram)));
    assert!(a.initial(at(20)).is_none() && a.initial(at(1_009)).is_none());
    assert!(a.initial(at(1_010)).is_some());
}

/// The same initiation, as it would be without a cookie.
fn early_without_cookie(datagram: &[u8]) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    let end = bytes.len();
    bytes[end - MAC_LEN..].fill(0);
    bytes
}

#[test]
fn cookies_are_of_one_address_and_one_address_has_its_share() {
    let mut b = End::new(2, 1, None);
    let mut a = End::new(1, 2, None);
    let first = a.initial(at(0)).unwrap();
    for _ in 0..25 {
        assert_eq!(b.examine(at(0), &first), Admission::Examine);
    }
    let Admission::Cookie(datagram) = b.examine(at(0), &first) else { panic!("no cookie") };
    assert!(!End::new(3, 2, None).handshake.cookie(at(0), &cookie(&datagram)));
    let mut forged = datagram;
    forged[30] ^= 1;
    assert!(!a.handshake.cookie(at(0), &cookie(&forged)));
    assert!(a.handshake.cookie(at(0), &cookie(&datagram)));
    let second = a.initial(at(1_000)).unwrap();
    for _ in 0..25 {
        b.examine(at(1_000), &first);
    }
    let elsewhere = "198.51.100.1:7733".parse().unwrap();
    let admission = b.identity.admit(at(1_000), elsewhere, false, &initiation(&second));
    assert!(matches!(admission, Admission::Cookie(_)), "{admission:?}");
    let examined = (0..50).filter(|_| b.examine(at(1_000), &second) == Admission::Examine).count();
    assert_eq!(examined, 10);
    assert_eq!(b.identity.counts().refused, 40);
}
