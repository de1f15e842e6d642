//! What a sender says while TLS's handshake is under way.
//!
//! TLS takes a round trip before the first byte of a transfer. With a key that both ends hold the first ones can go together with the
//! client's first flight: as records between TLS's own, sealed with a key of this one connection. The receiver opens
//! and keeps them, and does nothing with what is in them before the handshake has ended and the sender has said inside of TLS that they are its own. So whoever
//! sends recorded ones once more has that much memory taken until the handshake's time is over, and nothing else. What they do not have is TLS's forward secrecy: who records them, and finds the
//! shared key some day, can read them (as RFC 8446, section 2.3, says of TLS's own early data, for which the library needs a
//! ticket of an earlier connection).
//!
//! A record has a kind (1 byte, none of TLS's), the version 1 (2), the length of its body (2), and the body, big endian:
//!
//! | kind | body |
//! |---|---|
//! | 0xe0 salt | 32 random bytes; before all others |
//! | 0xe1 data | up to 16 KiB, sealed |
//! | 0xe2 end | nothing, sealed; before the first bytes inside of TLS |
//!
//! Sealed is by AES-256-GCM: the header is authenticated, too, the nonce is the number of the sealed record, from zero, in 12 bytes, and the
//! key is HKDF-SHA256's of the shared key with the salt, and "dwell early data 1" as its information. The first bytes
//! inside of TLS are then the *claim*: "dwEA", the salt, and the number of bytes (8).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use dwell_base::Secret;
use thiserror::Error;

pub(crate) mod calling;

/// No more goes early, and is kept at the other end. TCP sends some 15 kB in its first round trip, or what its route is set to.
pub(crate) const EARLY_BYTES_MAX: usize = 64 << 10;

/// Records of more than that are none of ours any more, but TLS's, which ends the connection: otherwise who has no key could send them for as
/// long as a handshake may take.
const RECORDS_BYTES_MAX: usize = 2 * EARLY_BYTES_MAX;
const HEADER_BYTES: usize = 5;
const VERSION: [u8; 2] = [0, 1];
const SALT_BYTES: usize = 32;
const DATA_BYTES_MAX: usize = 16 << 10;
const TAG_BYTES: usize = 16;
const CLAIM_MAGIC: &[u8; 4] = b"dwEA";
/// The length of a claim.
pub(crate) const CLAIM_BYTES: usize = CLAIM_MAGIC.len() + SALT_BYTES + 8;

mod kind {
    pub(super) const SALT: u8 = 0xe0;
    pub(super) const DATA: u8 = 0xe1;
    pub(super) const END: u8 = 0xe2;
}

/// Early data that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("what it sent before the handshake ended was changed on its way, or is of a later version")]
pub(crate) struct EarlyDataError;

fn connection_key(secret: &Secret, salt: &[u8; SALT_BYTES]) -> Result<LessSafeKey, Unspecified> {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret.bytes());
    let info = [&b"dwell early data 1"[..]];
    Ok(LessSafeKey::new(UnboundKey::from(prk.expand(&info, &AES_256_GCM)?)))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn header(kind: u8, len: usize) -> [u8; HEADER_BYTES] {
    // A body is far shorter than 64 KiB.
    let [high, low] = (len as u16).to_be_bytes();
    [kind, VERSION[0], VERSION[1], high, low]
}

fn claim(salt: &[u8; SALT_BYTES], bytes: u64) -> [u8; CLAIM_BYTES] {
    let mut claim = [0; CLAIM_BYTES];
    claim[..4].copy_from_slice(CLAIM_MAGIC);
    claim[4..4 + SALT_BYTES].copy_from_slice(salt);
    claim[4 + SALT_BYTES..].copy_from_slice(&bytes.to_be_bytes());
    claim
}

/// Makes records of what goes early.
pub(crate) struct Sealer {
    key: LessSafeKey,
    salt: [u8; SALT_BYTES],
    /// Of the next sealed record.
    number: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Sealer {
    /// For one connection, on which so much may go early; none if the system gives no random bytes.
    pub(crate) fn new(secret: &Secret, bytes_max: usize) -> Option<Self> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).ok()?;
        let key = connection_key(secret, &salt).ok()?;
        Some(Self { key, salt, number: 0, bytes: 0, bytes_max: bytes_max.min(EARLY_BYTES_MAX) })
    }

    /// Returns true if something has gone early.
    pub(crate) const fn has_begun(&self) -> bool {
        self.number > 0
    }

    /// The bytes that may still go early.
    pub(crate) const fn room(&self) -> usize {
        self.bytes_max - self.bytes
    }

    /// Makes a record of the beginning of this, behind `out`; so many bytes of it, none if no more is to go early.
    pub(crate) fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Unspecified> {
        let len = bytes.len().min(self.room()).min(DATA_BYTES_MAX);
        if len == 0 {
            return Ok(0);
        }
        if !self.has_begun() {
            out.extend_from_slice(&header(kind::SALT, SALT_BYTES));
            out.extend_from_slice(&self.salt);
        }
        self.record(kind::DATA, &bytes[..len], out)?;
        self.bytes += len;
        Ok(len)
    }

    /// Ends it, if it has begun, and returns what is to be said first inside of TLS then.
    pub(crate) fn end(
        mut self,
        out: &mut Vec<u8>,
    ) -> Result<Option<[u8; CLAIM_BYTES]>, Unspecified> {
        if !self.has_begun() {
            return Ok(None);
        }
        self.record(kind::END, &[], out)?;
        Ok(Some(claim(&self.salt, self.bytes as u64)))
    }

    fn record(&mut self, kind: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Unspecified> {
        let header = header(kind, bytes.len() + TAG_BYTES);
        let mut body = bytes.to_vec();
        self.key.seal_in_place_append_tag(nonce(self.number), Aad::from(header), &mut body)?;
        self.number += 1;
        out.extend_from_slice(&header);
        out.extend_from_slice(&body);
        Ok(())
    }
}

/// Takes early data out of what comes, and leaves TLS's records.
pub(crate) struct Splitter {
    secret: Secret,
    header: Vec<u8>,
    /// So much of the record is still to come behind its header.
    left: usize,
    /// The body of a record of ours.
    body: Vec<u8>,
    state: State,
    /// All bytes of our records, and their headers.
    records_bytes: usize,
    /// What has come early.
    bytes: Vec<u8>,
}

enum State {
    Waiting,
    Open {
        key: LessSafeKey,
        salt: [u8; SALT_BYTES],
        number: u64,
    },
    Ended {
        salt: [u8; SALT_BYTES],
    },
    /// Made with another key, changed, or of a later version: none of it is kept.
    Rejected,
}

impl std::fmt::Debug for Splitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Splitter").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Splitter {
    pub(crate) const fn new(secret: Secret) -> Self {
        Self {
            secret,
            header: Vec::new(),
            left: 0,
            body: Vec::new(),
            state: State::Waiting,
            records_bytes: 0,
            bytes: Vec::new(),
        }
    }

    /// Takes what has come; what is TLS's goes behind `tls`.
    pub(crate) fn feed(&mut self, mut come: &[u8], tls: &mut Vec<u8>) {
        while !come.is_empty() {
            if self.is_over() {
                tls.extend_from_slice(come);
                return;
            }
            let wanted = if self.left > 0 { self.left } else { HEADER_BYTES - self.header.len() };
            let (now, later) = come.split_at(wanted.min(come.len()));
            come = later;
            if self.left > 0 {
                self.left -= now.len();
                match (self.is_ours(), &self.state) {
                    (false, _) => tls.extend_from_slice(now),
                    (true, State::Rejected) => {}
                    (true, _) => self.body.extend_from_slice(now),
                }
            } else {
                self.header.extend_from_slice(now);
                if self.header.len() < HEADER_BYTES {
                    return;
                }
                self.begin(tls);
            }
            if self.left == 0 {
                self.complete();
            }
        }
    }

    /// A header is there.
    fn begin(&mut self, tls: &mut Vec<u8>) {
        self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        if self.has_our_kind() {
            self.records_bytes += HEADER_BYTES + self.left;
        }
        if !self.is_ours() {
            tls.extend_from_slice(&self.header);
        } else if self.header[1..3] != VERSION || self.left > DATA_BYTES_MAX + TAG_BYTES {
            self.reject();
        }
    }

    fn is_ours(&self) -> bool {
        self.has_our_kind() && self.records_bytes <= RECORDS_BYTES_MAX
    }

    fn has_our_kind(&self) -> bool {
        matches!(self.header.first(), Some(&(kind::SALT..=kind::END)))
    }

    /// A record is there.
    fn complete(&mut self) {
        if self.is_ours() && !matches!(self.state, State::Rejected) && self.take().is_none() {
            self.reject();
        }
        self.header.clear();
        self.body.clear();
    }

    fn reject(&mut self) {
        self.state = State::Rejected;
        (self.body, self.bytes) = (Vec::new(), Vec::new());
    }

    /// Takes a record of ours; none if it is not as it should be.
    fn take(&mut self) -> Option<()> {
        let aad: [u8; HEADER_BYTES] = self.header[..].try_into().ok()?;
        match (aad[0], &mut self.state) {
            (kind::SALT, State::Waiting) => {
                let salt = self.body[..].try_into().ok()?;
                let key = connection_key(&self.secret, &salt).ok()?;
                self.state = State::Open { key, salt, number: 0 };
            }
            (kind @ (kind::DATA | kind::END), State::Open { key, salt, number }) => {
                let opened = key.open_in_place(nonce(*number), Aad::from(aad), &mut self.body);
                let opened = opened.ok()?;
                *number += 1;
                let is_end = kind == kind::END;
                if is_end != opened.is_empty() || self.bytes.len() + opened.len() > EARLY_BYTES_MAX
                {
                    return None;
                }
                self.bytes.extend_from_slice(opened);
                if is_end {
                    self.state = State::Ended { salt: *salt };
                }
            }
            _ => return None,
        }
        Some(())
    }

    const fn is_over(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Returns true if something has come early, whatever it is.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.state, State::Waiting) || self.has_our_kind()
    }

    /// Gives back what was held of TLS's next header, where nothing has come early.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        if self.left > 0 { Vec::new() } else { self.header }
    }

    /// Returns what has come early, if the sender claims it so.
    pub(crate) fn claimed(self, claimed: &[u8; CLAIM_BYTES]) -> Result<Vec<u8>, EarlyDataError> {
        match self.state {
            State::Ended { salt } if *claimed == claim(&salt, self.bytes.len() as u64) => {
                Ok(self.bytes)
            }
            _ => Err(EarlyDataError),
        }
    }
}

/// Takes early data with this key out of what comes in pieces of this length: what is TLS's, and the number of bytes that came early. For
/// fuzzing.
#[doc(hidden)]
pub fn split_early(secret: &Secret, come: &[u8], piece: usize) -> (Vec<u8>, usize) {
    let (mut splitter, mut tls) = (Splitter::new(secret.clone()), Vec::new());
    come.chunks(piece.max(1)).for_each(|piece| splitter.feed(piece, &mut tls));
    (tls, splitter.bytes.len())
}

#[cfg(test)]
mod tests;
