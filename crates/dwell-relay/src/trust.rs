//! Peers' identities, and the keys that datagrams are sealed with.
//!
//! **Key pairs** (`keyed`): each node has one, and knows its peers' public keys. Noise makes
//! fresh keys of them and of ephemeral ones, which are forgotten after minutes; `gate` keeps
//! unknown peers and floods away from the arithmetic.
//!
//! **A pre-shared key** (`psk`): both ends exchange fresh salts in sealed hellos; from key
//! and salts both derive the keys of a [`Session`], one per direction. A session is installed
//! only on a hello that echoes a salt of ours that was never used before, so that a replayed
//! hello can't bring an old session, and with it old nonces, back to life.
//!
//! Without a key (`security = "none"`) the same exchange runs in the clear: it still distinguishes
//! sessions apart, so that sequence numbers and the replay window start again.

mod gate;
mod handshake;
mod identity;
mod keyed;
mod noise;
mod pairing;
mod psk;
mod session;
mod shares;
#[cfg(any(test, feature = "test-peer"))]
mod test_peer;

#[cfg(test)]
mod tests;

pub(crate) use gate::Admission;
pub use gate::GateCounts;
pub(crate) use handshake::{HELLO_LEN_MAX, Offer, Opened};
pub use handshake::{Handshake, HelloOutcome};
pub(crate) use identity::Identity;
pub(crate) use keyed::{Answer, PeerClock, Responded};
pub use pairing::{PAIRING_MAC_LEN, PairingKey};
pub(crate) use psk::From;
pub use session::{OpenError, Session};
#[cfg(any(test, feature = "test-peer"))]
pub use test_peer::{Received, TestPeer};

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::config::{PublicKey, Secret};

/// A source of randomness that is fit for secrets.
pub type RandomSource = Box<dyn FnMut(&mut [u8]) + Send>;

/// A pre-shared key, or the word that there is none.
#[derive(Clone, Copy)]
pub enum Key<'a> {
    /// 32 secret bytes that both ends hold.
    Shared(&'a [u8; 32]),
    /// Nothing is authenticated or encrypted.
    None,
}

/// The public key that belongs to a private one (X25519, RFC 7748). None if the private key is
/// no key; any 32 bytes are.
pub fn public_key(private: &Secret) -> Option<PublicKey> {
    noise::public_of(private.bytes()).ok().map(PublicKey::new)
}

/// Derives an AES-256-GCM key: HKDF-SHA256 (RFC 5869) of the shared key with this salt and
/// purpose (docs/wire.md, sections 4.2 and 4.3).
fn derive(shared: &[u8; 32], salt: &[u8], purpose: &[u8]) -> LessSafeKey {
    let pseudo_random = Salt::new(HKDF_SHA256, salt).extract(shared);
    let info = [purpose];
    let key = pseudo_random
        .expand(&info, &AES_256_GCM)
        .map(UnboundKey::from)
        .expect("32 bytes are within the limit of HKDF-SHA256, 255 × 32");
    LessSafeKey::new(key)
}
