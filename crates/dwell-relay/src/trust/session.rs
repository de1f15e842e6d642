//! A session: the keys and sequence numbers of one direction each.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_wire::header::{DATA_HEADER_LEN, SEAL_TAG_LEN, seal_nonce};
use dwell_wire::{DataHeader, ReplayWindow, reconstruct_sequence};
use thiserror::Error;

use super::{Key, derive};

/// A new handshake is due once this many datagrams were sealed with one key. Far below what
/// AES-GCM bears (2^32 datagrams of this size keep an attacker's advantage under 2^-30), and
/// still weeks of a 100 Mbit/s link.
pub(crate) const SEQUENCE_RENEW: u64 = 1 << 32;

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// It is of no session that is alive.
    #[error("no session of this tag is alive")]
    Session,
    /// It was seen before, or is too old to decide.
    #[error("the datagram is a duplicate or too old")]
    Replayed,
    /// Its seal is broken.
    #[error("the seal is broken")]
    Seal,
}

/// The keys of a session from a keyed exchange serve for this long after the first packet that they
/// sealed, as in WireGuard (Donenfeld: WireGuard: Next Generation Kernel Network Tunnel, 6.2):
/// then its initiator asks for the next one, ...
const RENEW_NS: u64 = 120 * SECOND_NS;
/// ... then, if nothing came of it, its responder does, ...
const RENEW_LATE_NS: u64 = 150 * SECOND_NS;
/// ... and then the keys are forgotten.
const REJECT_NS: u64 = 180 * SECOND_NS;
/// A session that carries no packets has nothing to protect; it is renewed all the same, but so
/// rarely that two idle nodes hardly notice.
const IDLE_NS: u64 = 3_600 * SECOND_NS;

/// Which end asked for a session by a keyed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// The result of a keyed exchange.
pub(super) struct Agreed {
    pub(super) role: Role,
    /// The key of each direction.
    pub(super) seal: [u8; 32],
    pub(super) open: [u8; 32],
    /// The names that datagrams carry: the one that the peer chose, and our own.
    pub(super) tag_out: u8,
    pub(super) tag_in: u8,
    /// The halves of a value that both ends know, and nobody else: the initiator's first.
    pub(super) halves: [[u8; 16]; 2],
}

/// When a session from a keyed exchange grows old.
#[derive(Clone, Copy, Debug)]
struct Age {
    role: Role,
    made_at: Instant,
    /// When it first carried a packet.
    used_at: Option<Instant>,
}

impl Age {
    fn after(&self, used_ns: u64) -> Instant {
        let idle = self.made_at + IDLE_NS + used_ns;
        self.used_at.map_or(idle, |at| idle.min(at + used_ns))
    }

    fn renew_at(&self) -> Instant {
        self.after(if self.role == Role::Initiator { RENEW_NS } else { RENEW_LATE_NS })
    }
}

/// One session with a peer.
pub struct Session {
    keys: Option<Keys>,
    tag_out: u8,
    tag_in: u8,
    /// `None` if only the number of datagrams limits it.
    age: Option<Age>,
    salts: ([u8; 16], [u8; 16]),
    next_sequence: u64,
    window: ReplayWindow,
    has_received: bool,
}

struct Keys {
    seal: LessSafeKey,
    open: LessSafeKey,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("tag", &self.tag_out)
            .field("sealed", &self.keys.is_some())
            .field("next_sequence", &self.next_sequence)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(key: Key<'_>, mine: [u8; 16], theirs: [u8; 16]) -> Self {
        let keys = match key {
            Key::Shared(shared) => {
                // The sender's salt first: each direction has its own key.
                let direction = |from: [u8; 16], to: [u8; 16]| {
                    derive(shared, &[from, to].concat(), b"dwell data v1")
                };
                Some(Keys { seal: direction(mine, theirs), open: direction(theirs, mine) })
            }
            Key::None => None,
        };
        Self {
            keys,
            tag_out: mine[0] ^ theirs[0],
            tag_in: mine[0] ^ theirs[0],
            age: None,
            salts: (mine, theirs),
            next_sequence: 1,
            window: ReplayWindow::new(),
            has_received: false,
        }
    }

    /// The session that a keyed exchange agreed upon.
    pub(super) fn agreed(agreed: &Agreed, now: Instant) -> Self {
        let key = |bytes: &[u8; 32]| {
            let key = UnboundKey::new(&AES_256_GCM, bytes);
            LessSafeKey::new(key.expect("AES-256 has keys of 32 bytes"))
        };
        let [of_initiator, of_responder] = agreed.halves;
        let salts = match agreed.role {
            Role::Initiator => (of_initiator, of_responder),
            Role::Responder => (of_responder, of_initiator),
        };
        Self {
            keys: Some(Keys { seal: key(&agreed.seal), open: key(&agreed.open) }),
            tag_out: agreed.tag_out,
            tag_in: agreed.tag_in,
            age: Some(Age { role: agreed.role, made_at: now, used_at: None }),
            salts,
            next_sequence: 1,
            window: ReplayWindow::new(),
            has_received: false,
        }
    }

    /// Bytes that a datagram costs beside its records.
    pub fn overhead(&self) -> usize {
        Self::overhead_of(self.keys.is_some())
    }

    /// The same for a session that is yet to be.
    pub const fn overhead_of(sealed: bool) -> usize {
        DATA_HEADER_LEN + if sealed { SEAL_TAG_LEN } else { 0 }
    }

    /// The salts that made it: ours and theirs.
    pub fn salts(&self) -> ([u8; 16], [u8; 16]) {
        self.salts
    }

    /// True once a datagram of this session arrived: the peer has it too.
    pub fn has_received(&self) -> bool {
        self.has_received
    }

    /// The number that the next datagram gets.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Its low half.
    pub fn next_sequence_low(&self) -> u32 {
        self.next_sequence as u32
    }

    /// True if a new handshake is due.
    pub fn is_worn(&self, now: Instant) -> bool {
        self.next_sequence >= SEQUENCE_RENEW || now >= self.renew_at()
    }

    /// When a new handshake will be due by time.
    pub fn renew_at(&self) -> Instant {
        self.age.map_or(Instant::FAR_FUTURE, |age| age.renew_at())
    }

    /// When the keys are to be forgotten.
    pub fn reject_at(&self) -> Instant {
        self.age.map_or(Instant::FAR_FUTURE, |age| age.after(REJECT_NS))
    }

    /// The session has something to protect now.
    pub(super) fn carried(&mut self, now: Instant) {
        if let Some(age) = &mut self.age {
            age.used_at.get_or_insert(now);
        }
    }

    /// The name that its incoming datagrams carry.
    pub(super) fn tag_in(&self) -> u8 {
        self.tag_in
    }

    /// True if a datagram with this header may be of this session.
    pub(super) fn may_open(&self, header: DataHeader) -> bool {
        let sequence = reconstruct_sequence(self.window.highest(), header.sequence_low);
        self.is_named(header) && sequence != 0 && self.window.check(sequence)
    }

    fn is_named(&self, header: DataHeader) -> bool {
        header.session == self.tag_in && header.sealed == self.keys.is_some()
    }

    /// Takes the datagram with this number for one that came. False if it did already, or is too
    /// old to tell.
    pub(super) fn accept(&mut self, sequence_low: u32) -> bool {
        let sequence = reconstruct_sequence(self.window.highest(), sequence_low);
        // Only gaps are filled so: what is sealed moves the window, nothing that it says.
        sequence < self.window.highest() && sequence != 0 && self.window.accept(sequence)
    }

    /// The replay window, for its accounts.
    pub fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// Seals the `body_len` bytes that stand behind the room for the header in `datagram`, and
    /// writes the header. Returns the length of the whole.
    ///
    /// `datagram` must have room for the header before and the tag behind the body.
    pub fn seal(&mut self, datagram: &mut [u8], body_len: usize) -> usize {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let header = DataHeader {
            sealed: self.keys.is_some(),
            session: self.tag_out,
            sequence_low: sequence as u32,
        }
        .encode();
        datagram[..DATA_HEADER_LEN].copy_from_slice(&header);
        let end = DATA_HEADER_LEN + body_len;
        let Some(keys) = &self.keys else { return end };
        let nonce = Nonce::assume_unique_for_key(seal_nonce(sequence));
        let body = &mut datagram[DATA_HEADER_LEN..end];
        let tag = keys
            .seal
            .seal_in_place_separate_tag(nonce, Aad::from(header), body)
            .expect("a datagram is shorter than the limit of AES-GCM, 64 GiB");
        datagram[end..end + SEAL_TAG_LEN].copy_from_slice(tag.as_ref());
        end + SEAL_TAG_LEN
    }

    /// Opens a datagram in place: returns its body, and whether it is the newest so far.
    ///
    /// # Errors
    /// If it is not of this session, a duplicate, or broken. The window moves only for what
    /// is authentic.
    pub fn open<'a>(
        &mut self,
        header: DataHeader,
        datagram: &'a mut [u8],
    ) -> Result<(&'a mut [u8], bool), OpenError> {
        if !self.is_named(header) {
            return Err(OpenError::Session);
        }
        let sequence = reconstruct_sequence(self.window.highest(), header.sequence_low);
        if sequence == 0 || !self.window.check(sequence) {
            return Err(OpenError::Replayed);
        }
        let body = datagram.get_mut(DATA_HEADER_LEN..).ok_or(OpenError::Seal)?;
        let body = match &self.keys {
            None => body,
            Some(keys) => {
                let nonce = Nonce::assume_unique_for_key(seal_nonce(sequence));
                let aad = Aad::from(header.encode());
                keys.open.open_in_place(nonce, aad, body).map_err(|_| OpenError::Seal)?
            }
        };
        let newest = sequence > self.window.highest();
        self.window.accept(sequence);
        self.has_received = true;
        Ok((body, newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(sealed: bool) -> (Session, Session) {
        let secret = [7; 32];
        let key = if sealed { Key::Shared(&secret) } else { Key::None };
        (Session::new(key, [1; 16], [2; 16]), Session::new(key, [2; 16], [1; 16]))
    }

    fn seal(session: &mut Session, body: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; session.overhead() + body.len()];
        datagram[DATA_HEADER_LEN..][..body.len()].copy_from_slice(body);
        let len = session.seal(&mut datagram, body.len());
        assert_eq!(len, datagram.len());
        datagram
    }

    fn open(session: &mut Session, mut datagram: Vec<u8>) -> Result<Vec<u8>, OpenError> {
        let dwell_wire::Datagram::Data { header, .. } =
            dwell_wire::Datagram::parse(&datagram).unwrap()
        else {
            panic!("not data")
        };
        session.open(header, &mut datagram).map(|(body, _)| body.to_vec())
    }

    #[test]
    fn what_one_seals_the_other_opens_once() {
        for sealed in [false, true] {
            let (mut a, mut b) = pair(sealed);
            let datagram = seal(&mut a, b"records");
            assert_eq!(open(&mut b, datagram.clone()).unwrap(), b"records");
            assert_eq!(open(&mut b, datagram), Err(OpenError::Replayed));
            assert!(b.has_received() && !a.has_received());
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_seal() {
        let (mut a, mut b) = pair(true);
        let datagram = seal(&mut a, b"records");
        for bit in 8..datagram.len() * 8 {
            let mut bad = datagram.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut b, bad).is_err(), "bit {bit}");
        }
        assert!(open(&mut b, datagram).is_ok());
    }

    #[test]
    fn nobody_opens_his_own_datagram() {
        let (mut a, _) = pair(true);
        let datagram = seal(&mut a, b"reflected");
        assert_eq!(open(&mut a, datagram), Err(OpenError::Seal));
    }

    #[test]
    fn a_plain_datagram_is_no_way_around_the_seal() {
        let (mut plain, _) = pair(false);
        let (_, mut b) = pair(true);
        assert_eq!(open(&mut b, seal(&mut plain, b"x")), Err(OpenError::Session));
    }
}
