//! One end of a session that says whatever it is given: for tests, and for attacks by a peer
//! that holds its keys.
//!
//! A [`Node`](crate::node::Node) writes honest records only. A [`TestPeer`] runs the same
//! handshakes with the same keys, and seals any bytes.

use dwell_base::Instant;
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::{ContextOffer, Datagram};

use super::handshake::{HELLO_LEN_MAX, Handshake, HelloOutcome, Offer};
use super::keyed::Responded;
use super::session::Session;
use super::{Answer, From, RandomSource, noise};
use crate::config::{Secret, Security};

/// The longest datagram (UDP payload) that it receives, in bytes.
const DATAGRAM_MAX: u16 = 1452;
/// LZ4, zstd and deflate, as bits of their ids.
const CODECS: u16 = 0b1110;

/// A peer without a node.
pub struct TestPeer {
    handshake: Handshake,
    /// Answers initiations, if the security is by key pairs.
    private: Option<Secret>,
    random: RandomSource,
}

impl std::fmt::Debug for TestPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestPeer").field("handshake", &self.handshake).finish_non_exhaustive()
    }
}

fn offer_with(contexts: Option<ContextOffer>) -> Offer {
    Offer { datagram_max: DATAGRAM_MAX, codecs: CODECS, forwards: true, contexts }
}

/// The content of a datagram.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The datagram that the exchange asks for in answer.
    pub reply: Option<Vec<u8>>,
    /// The records of a data datagram, opened.
    pub body: Option<Vec<u8>>,
}

impl TestPeer {
    /// A peer with these keys and no session. `random` gives independent sources, all fit for
    /// secrets.
    pub fn new(security: &Security, random: &mut dyn FnMut() -> RandomSource) -> Self {
        let offer = offer_with(None);
        let private = match security {
            Security::Keys { private, .. } => Some(private.clone()),
            _ => None,
        };
        Self { handshake: Handshake::new(security, offer, random()), private, random: random() }
    }

    /// Says from the next session on that it decodes contexts: as many, with rings as large, and under
    /// such a name.
    pub fn offer_contexts(&mut self, contexts: ContextOffer) {
        self.handshake.set_offer(offer_with(Some(contexts)));
    }

    /// Returns the datagram that asks for a session, if one is due: about once a second as long
    /// as there is none. `unix_ns` is the time in UTC.
    pub fn ask(&mut self, now: Instant, unix_ns: u64) -> Option<Vec<u8>> {
        let mut out = [0; HELLO_LEN_MAX];
        // Repeats as often as at first, however many have not been answered.
        self.handshake.hurry();
        let len = self.handshake.initial(now, unix_ns, &mut out)?;
        Some(out[..len].to_vec())
    }

    /// Asks for another session, now and whether or not there is one.
    pub fn renew(&mut self) {
        self.handshake.renew();
    }

    /// Forgets its sessions without a word.
    pub fn forget(&mut self) {
        self.handshake.forget();
    }

    /// Returns true if there is a session to seal with.
    pub fn has_session(&self) -> bool {
        self.handshake.current().is_some()
    }

    /// Takes in a datagram.
    pub fn receive(&mut self, now: Instant, datagram: &mut [u8]) -> Received {
        let mut out = [0; HELLO_LEN_MAX];
        let mut received = Received::default();
        let Ok(parsed) = Datagram::parse(datagram) else { return received };
        let len = match parsed {
            Datagram::Hello { sealed, nonce, body } => {
                let mut body = body.to_vec();
                let sealed = (sealed, nonce);
                match self.handshake.hello(now, From::Peer, sealed, &mut body, &mut out) {
                    (HelloOutcome::Rejected, _) => 0,
                    (HelloOutcome::Known(_) | HelloOutcome::Installed(_), len) => len,
                }
            }
            Datagram::Initiation(it) => {
                let state = self
                    .private
                    .as_ref()
                    .and_then(|private| noise::responder(private.bytes(), &mut self.random).ok());
                let Some(mut state) = state else { return received };
                let mut payload = [0; dwell_wire::keyed::KEYED_LEN_MAX];
                let Ok(len) = state.read_message(it.noise, &mut payload) else { return received };
                // What the other end's clock shows is nothing to it.
                match self.handshake.answer((now, 0), it.sender, state, &payload[..len], &mut out) {
                    Answer::Written(len) => len,
                    Answer::Replayed | Answer::Malformed => 0,
                }
            }
            Datagram::Response(it) => {
                if matches!(self.handshake.responded(now, &it), Responded::Installed(_)) {
                    // The responder puts the session into use when something comes by it.
                    received.reply = self.seal(&[]);
                }
                0
            }
            Datagram::Cookie(it) => {
                self.handshake.cookie(now, &it);
                0
            }
            Datagram::Data { header, .. } => {
                let opened = self.handshake.open(now, header, datagram);
                received.body = opened.ok().map(|opened| opened.body.to_vec());
                0
            }
        };
        if len > 0 {
            received.reply = Some(out[..len].to_vec());
        }
        received
    }

    /// Returns a datagram with this body, sealed as the session is, and under the session's next
    /// number; `None` without a session.
    pub fn seal(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let session = self.handshake.session()?;
        let mut datagram = vec![0; session.overhead() + body.len()];
        datagram[DATA_HEADER_LEN..DATA_HEADER_LEN + body.len()].copy_from_slice(body);
        let len = session.seal(&mut datagram, body.len());
        datagram.truncate(len);
        Some(datagram)
    }

    /// Returns the number that the next datagram gets; zero without a session.
    pub fn next_sequence(&self) -> u64 {
        self.handshake.current().map_or(0, Session::next_sequence)
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;

    fn random(seed: u64) -> impl FnMut() -> RandomSource {
        let mut seeds = Rng::from_seed(seed);
        move || {
            let mut rng = Rng::from_seed(seeds.below(u64::MAX));
            Box::new(move |bytes: &mut [u8]| rng.fill(bytes))
        }
    }

    fn keys(own: u8, other: u8) -> Security {
        let private = Secret::new([own; 32]);
        let peer = super::super::public_key(&Secret::new([other; 32])).unwrap();
        Security::Keys { private, peer, psk: None }
    }

    #[test]
    fn two_of_them_agree_and_seal_any_bytes() {
        let psk = Security::Psk(Secret::new([9; 32]));
        for (a, b) in
            [(keys(1, 2), keys(2, 1)), (psk.clone(), psk), (Security::None, Security::None)]
        {
            let mut a = TestPeer::new(&a, &mut random(1));
            let mut b = TestPeer::new(&b, &mut random(2));
            let now = Instant::from_ns(1_000_000_000);
            let mut next = a.ask(now, 5);
            let mut to_b = true;
            while let Some(mut datagram) = next {
                let to = if to_b { &mut b } else { &mut a };
                next = to.receive(now, &mut datagram).reply;
                to_b = !to_b;
            }
            assert!(a.has_session() && b.has_session(), "{a:?} {b:?}");
            let number = a.next_sequence();
            let mut datagram = a.seal(b"no record").unwrap();
            assert_eq!(a.next_sequence(), number + 1);
            let received = b.receive(now, &mut datagram);
            assert_eq!(received, Received { reply: None, body: Some(b"no record".to_vec()) });
            a.forget();
            assert_eq!(a.seal(b""), None);
        }
    }
}
