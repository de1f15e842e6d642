//! A peer that holds the key and follows no rules.
//!
//! It begins a session as `docs/wire.md` describes (sections 3 and 4), and then seals any bytes
//! that it is given, under any sequence number. It is a second implementation of that document: it
//! shares nothing with the relay but the parsers of headers.
//!
//! * [`HostilePeer`] does no I/O: for tests in virtual time;
//! * [`HostileSocket`] speaks for one over UDP, from any host of a lab;
//! * [`bodies`] makes the bodies that it sends.

pub mod bodies;
mod socket;

pub use socket::HostileSocket;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use dwell_base::Rng;
use dwell_wire::header::{DATA_HEADER_LEN, HELLO_NONCE_LEN, Kind, SEAL_TAG_LEN, seal_nonce};
use dwell_wire::hello::{HELLO_FINAL, SALT_LEN};
use dwell_wire::{DataHeader, Datagram, Hello, reconstruct_sequence};

/// A peer that holds the key, or one of a node without a key.
pub struct HostilePeer {
    keys: Option<([u8; 32], LessSafeKey)>,
    /// The salt of the next session.
    salt: [u8; SALT_LEN],
    session: Option<Session>,
    random: Rng,
}

struct Session {
    /// The keys to seal and to open, if there are any.
    keys: Option<(LessSafeKey, LessSafeKey)>,
    tag: u8,
    next: u64,
    highest_heard: u64,
}

impl std::fmt::Debug for HostilePeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connected = self.session.is_some();
        f.debug_struct("HostilePeer").field("connected", &connected).finish_non_exhaustive()
    }
}

impl HostilePeer {
    /// Makes a peer with this pre-shared key, or without one. Its randomness is predictable, so
    /// that it offers no protection.
    pub fn new(key: Option<[u8; 32]>, seed: u64) -> Self {
        let mut random = Rng::from_seed(seed);
        let mut salt = [0; SALT_LEN];
        random.fill(&mut salt);
        let keys = key.map(|key| (key, derive(&key, &[], b"dwell hello v1")));
        Self { keys, salt, session: None, random }
    }

    /// Returns true if there is a session.
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Returns a hello that initiates a session.
    pub fn initiate(&mut self) -> Vec<u8> {
        self.hello(self.salt, [0; SALT_LEN], 0)
    }

    /// Takes a datagram from the node; returns the answer to it, if there is one.
    pub fn receive(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let Ok(Datagram::Hello { sealed, nonce, body }) = Datagram::parse(datagram) else {
            return None;
        };
        let mut body = body.to_vec();
        let body = match &self.keys {
            None => &mut body[..],
            Some((_, key)) => {
                let header = &datagram[..1 + HELLO_NONCE_LEN];
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, Aad::from(header), &mut body).ok()?
            }
        };
        if sealed != self.keys.is_some() {
            return None;
        }
        let hello = Hello::parse(body).ok()?;
        let is_final = hello.flags & HELLO_FINAL != 0;
        if hello.echo == self.salt {
            let used = self.salt;
            self.session = Some(self.agree(used, hello.salt));
            self.random.fill(&mut self.salt);
            return (!is_final).then(|| self.hello(used, hello.salt, HELLO_FINAL));
        }
        (!is_final).then(|| self.hello(self.salt, hello.salt, 0))
    }

    fn agree(&self, mine: [u8; SALT_LEN], theirs: [u8; SALT_LEN]) -> Session {
        let of = |from: [u8; SALT_LEN], to: [u8; SALT_LEN]| {
            let (shared, _) = self.keys.as_ref()?;
            Some(derive(shared, &[from, to].concat(), b"dwell data v1"))
        };
        Session {
            keys: of(mine, theirs).zip(of(theirs, mine)),
            tag: mine[0] ^ theirs[0],
            next: 1,
            highest_heard: 0,
        }
    }

    fn hello(&mut self, salt: [u8; SALT_LEN], echo: [u8; SALT_LEN], flags: u16) -> Vec<u8> {
        let (datagram_max, codecs) = (u16::MAX, u16::MAX - 1);
        let body = Hello { salt, echo, datagram_max, codecs, flags, contexts: None };
        let mut body = body.encode().to_vec();
        let Some((_, key)) = &self.keys else {
            return [&[Kind::HelloPlain.first_byte()][..], &body].concat();
        };
        let mut nonce = [0; HELLO_NONCE_LEN];
        self.random.fill(&mut nonce);
        let header = [&[Kind::HelloSealed.first_byte()][..], &nonce].concat();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut body);
        sealed.expect("a hello is short");
        [header, body].concat()
    }

    /// Returns a datagram with this body (records, or anything else), under the next number; none
    /// without a session.
    pub fn seal(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let number = self.session.as_ref()?.next;
        self.seal_as(number, body)
    }

    /// Returns the same under any number; the next one follows it.
    pub fn seal_as(&mut self, number: u64, body: &[u8]) -> Option<Vec<u8>> {
        let session = self.session.as_mut()?;
        session.next = number.wrapping_add(1);
        let sealed = session.keys.is_some();
        let header = DataHeader { sealed, session: session.tag, sequence_low: number as u32 };
        let header = header.encode();
        let mut body = body.to_vec();
        if let Some((key, _)) = &session.keys {
            let nonce = Nonce::assume_unique_for_key(seal_nonce(number));
            let done = key.seal_in_place_append_tag(nonce, Aad::from(header), &mut body);
            done.expect("a datagram is short");
        }
        Some([&header[..], &body].concat())
    }

    /// Returns the number that [`seal`](Self::seal) uses next; none without a session.
    pub fn next_number(&self) -> Option<u64> {
        Some(self.session.as_ref()?.next)
    }

    /// Returns the body of a data datagram from the node; none if it is not one of this session.
    pub fn open(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let session = self.session.as_mut()?;
        let Ok(Datagram::Data { header, body }) = Datagram::parse(datagram) else { return None };
        let number = reconstruct_sequence(session.highest_heard, header.sequence_low);
        let mut body = body.to_vec();
        if let Some((_, key)) = &session.keys {
            let nonce = Nonce::assume_unique_for_key(seal_nonce(number));
            let header = &datagram[..DATA_HEADER_LEN];
            key.open_in_place(nonce, Aad::from(header), &mut body).ok()?;
            body.truncate(body.len() - SEAL_TAG_LEN);
        }
        session.highest_heard = session.highest_heard.max(number);
        Some(body)
    }
}

/// Derives a key of AES-256-GCM, by section 4.2.
fn derive(shared: &[u8; 32], salt: &[u8], info: &[u8]) -> LessSafeKey {
    let extracted = Salt::new(HKDF_SHA256, salt).extract(shared);
    let info = [info];
    let key = extracted.expand(&info, &AES_256_GCM).map(UnboundKey::from);
    LessSafeKey::new(key.expect("32 bytes are within the limit of HKDF-SHA256"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_them_agree_and_read_each_other() {
        for key in [None, Some([7; 32])] {
            let (mut a, mut b) = (HostilePeer::new(key, 1), HostilePeer::new(key, 2));
            assert_eq!(a.seal(b"too early"), None);
            let hello = a.initiate();
            let answer = b.receive(&hello).expect("a hello is answered");
            let done = a.receive(&answer).expect("an answer is confirmed");
            assert_eq!(b.receive(&done), None);
            assert!(a.is_connected() && b.is_connected());
            let sealed = a.seal(b"records").expect("a session");
            assert_eq!(b.open(&sealed).expect("it opens"), b"records");
            let sealed = b.seal_as(1 << 20, b"far ahead").expect("a session");
            assert_eq!(a.open(&sealed).expect("it opens"), b"far ahead");
            assert_eq!(b.next_number(), Some((1 << 20) + 1));
        }
    }

    #[test]
    fn another_key_is_no_key() {
        let (mut a, mut b) =
            (HostilePeer::new(Some([1; 32]), 1), HostilePeer::new(Some([2; 32]), 2));
        let hello = a.initiate();
        assert_eq!(b.receive(&hello), None);
        assert_eq!(b.receive(b"rubbish"), None);
    }
}
