//! Who a peer is, and the keys that datagrams are sealed with.
//!
//! Both ends hold a pre-shared key. A [`Handshake`] exchanges fresh salts in sealed hellos;
//! from key and salts both derive the keys of a [`Session`], one per direction. A session is
//! installed only on a hello that echoes a salt of ours that was never used before, so that a
//! replayed hello can't bring an old session, and with it old nonces, back to life.
//!
//! Without a key (`security = "none"`) the same exchange runs in the clear: it still tells
//! sessions apart, so that sequence numbers and the replay window start anew.

mod handshake;
mod session;

pub(crate) use handshake::{HELLO_LEN_MAX, Offer, Opened};
pub use handshake::{Handshake, Heard};
pub use session::{OpenError, Session};

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

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

/// Derives an AES-256-GCM key: HKDF-SHA256 (RFC 5869) of the shared key with this salt and
/// purpose (docs/wire.md, section 4.2).
fn derive(shared: &[u8; 32], salt: &[u8], purpose: &[u8]) -> LessSafeKey {
    let pseudo_random = Salt::new(HKDF_SHA256, salt).extract(shared);
    let info = [purpose];
    let key = pseudo_random
        .expand(&info, &AES_256_GCM)
        .map(UnboundKey::from)
        .expect("32 bytes are within the limit of HKDF-SHA256, 255 × 32");
    LessSafeKey::new(key)
}
