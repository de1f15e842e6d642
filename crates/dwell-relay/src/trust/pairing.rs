//! The MAC by which an answer to a pairing line is tied to the keys of both ends.
//!
//! Both can make it, since both can agree on a secret (X25519) as soon as each knows the other's public key, and nobody
//! else can. A signature would have the same meaning for these two, and would need another kind of key.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::{gate, noise, public_key};
use crate::config::{PublicKey, Secret};

/// The length of the MAC in bytes.
pub const PAIRING_MAC_LEN: usize = dwell_wire::keyed::MAC_LEN;

const SALT: &[u8] = b"dwell pairing v3";

/// The secret of the two ends of a pairing. The order of keys says who answers whom.
pub struct PairingKey(hmac::Key);

impl PairingKey {
    /// Returns the key of the end that answers. None if one of the keys is none.
    pub fn of_answer(private: &Secret, offers: &PublicKey) -> Option<Self> {
        let own = public_key(private)?;
        Self::new(private, offers, [&own, offers])
    }

    /// Returns the same for the end that made the offer.
    pub fn of_offer(private: &Secret, answers: &PublicKey) -> Option<Self> {
        let own = public_key(private)?;
        Self::new(private, answers, [answers, &own])
    }

    fn new(private: &Secret, other: &PublicKey, order: [&PublicKey; 2]) -> Option<Self> {
        let shared = noise::agreed(private.bytes(), other.bytes())?;
        let info = order.map(|key| &key.bytes()[..]);
        let mut key = Zeroizing::new([0; 32]);
        let expanded = Salt::new(HKDF_SHA256, SALT).extract(&*shared);
        expanded.expand(&info, Bytes32).and_then(|okm| okm.fill(&mut *key)).ok()?;
        Some(Self(hmac::Key::new(hmac::HMAC_SHA256, &*key)))
    }

    /// Returns the MAC of a text.
    pub fn mac(&self, text: &str) -> [u8; PAIRING_MAC_LEN] {
        gate::mac(&self.0, text.as_bytes())
    }

    /// Returns true if this is the MAC of the text, in a time that does not depend on where it differs.
    pub fn is_mac(&self, text: &str, claimed: &[u8]) -> bool {
        gate::is_mac(&self.0, text.as_bytes(), claimed)
    }
}

/// What HKDF is asked for.
struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(seed: u8) -> (Secret, PublicKey) {
        let private = Secret::new([seed; 32]);
        let public = public_key(&private).unwrap();
        (private, public)
    }

    #[test]
    fn both_ends_have_one_key_and_nobody_else() {
        let (offers, answers, third) = (keys(1), keys(2), keys(3));
        let mac = PairingKey::of_answer(&answers.0, &offers.1).unwrap().mac("text");
        let checks = |private: &Secret, public: &PublicKey, text: &str| {
            PairingKey::of_offer(private, public).unwrap().is_mac(text, &mac)
        };
        assert!(checks(&offers.0, &answers.1, "text"));
        assert!(!checks(&offers.0, &answers.1, "Text"));
        assert!(!checks(&third.0, &answers.1, "text"), "it is for another node");
        assert!(!checks(&offers.0, &third.1, "text"), "another node made it");
        assert!(!checks(&answers.0, &offers.1, "text"), "an answer is no answer to itself");
    }

    /// With keys of small order everybody would agree.
    #[test]
    fn keys_that_agree_with_everybody_are_none() {
        assert!(PairingKey::of_offer(&keys(1).0, &PublicKey::new([0; 32])).is_none());
    }
}
