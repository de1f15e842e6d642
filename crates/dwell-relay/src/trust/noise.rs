//! The Noise handshake: `snow` runs the pattern, AWS-LC does the arithmetic.
//!
//! Noise_IKpsk2_25519_AESGCM_SHA256 (Perrin: The Noise Protocol Framework). The initiator knows
//! the responder's public key and sends its own encrypted; a pre-shared key, or zeros, is mixed
//! in with the second message.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest;
use dwell_wire::header::SEAL_TAG_LEN;
use snow::error::{Error, StateProblem};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::RandomSource;

const PATTERN: &str = "Noise_IKpsk2_25519_AESGCM_SHA256";
const PROLOGUE: &[u8] = b"dwell keys v1";
/// The position of the pre-shared key in the pattern.
const PSK_AT: u8 = 2;

/// Our half of a handshake that we begin.
pub(super) fn initiator(
    private: &[u8; 32],
    peer: &[u8; 32],
    psk: &[u8; 32],
    random: &mut RandomSource,
) -> Result<HandshakeState, Error> {
    let builder = builder(private, random)?.remote_public_key(peer)?;
    builder.psk(PSK_AT, psk)?.build_initiator()
}

/// Our half of a handshake that a peer begins; who it is, and so the pre-shared key, turns out
/// with its first message.
pub(super) fn responder(
    private: &[u8; 32],
    random: &mut RandomSource,
) -> Result<HandshakeState, Error> {
    builder(private, random)?.build_responder()
}

/// The peer is known now.
pub(super) fn set_psk(state: &mut HandshakeState, psk: &[u8; 32]) -> Result<(), Error> {
    state.set_psk(usize::from(PSK_AT), psk)
}

fn builder<'b>(private: &'b [u8; 32], random: &mut RandomSource) -> Result<Builder<'b>, Error> {
    // A handshake makes one ephemeral key.
    let mut ephemeral = Zeroizing::new([0; 32]);
    random(&mut *ephemeral);
    let resolver = Box::new(AwsLc { ephemeral });
    Builder::with_resolver(PATTERN.parse()?, resolver)
        .prologue(PROLOGUE)?
        .local_private_key(private)
}

/// With everything given, as published vectors have it.
#[cfg(test)]
pub(super) fn for_vectors(
    prologue: &[u8],
    private: &[u8; 32],
    ephemeral: &[u8; 32],
    peer: Option<&[u8; 32]>,
    psk: Option<&[u8; 32]>,
) -> HandshakeState {
    let resolver = Box::new(AwsLc { ephemeral: Zeroizing::new(*ephemeral) });
    let builder = Builder::with_resolver(PATTERN.parse().unwrap(), resolver);
    let mut builder = builder.prologue(prologue).unwrap().local_private_key(private).unwrap();
    if let Some(psk) = psk {
        builder = builder.psk(PSK_AT, psk).unwrap();
    }
    match peer {
        Some(peer) => builder.remote_public_key(peer).unwrap().build_initiator().unwrap(),
        None => builder.build_responder().unwrap(),
    }
}

/// The public key that belongs to a private one.
///
/// # Errors
/// If AWS-LC refuses the key; it takes any 32 bytes.
pub(super) fn public_of(private: &[u8; 32]) -> Result<[u8; 32], Error> {
    let mut dh = X25519Keys::default();
    dh.set(private);
    if dh.private.is_none() { Err(Error::Dh) } else { Ok(dh.public) }
}

/// Returns what two keys agree on. None if one of them is none, or agrees with everybody.
pub(super) fn agreed(private: &[u8; 32], public: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
    let (mut dh, mut shared) = (X25519Keys::default(), Zeroizing::new([0; 32]));
    dh.set(private);
    dh.dh(public, &mut *shared).ok()?;
    Some(shared)
}

/// The primitives of the pattern, by AWS-LC.
struct AwsLc {
    ephemeral: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for AwsLc {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(OneSecret(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519Keys>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::<Sha256>::default() as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::<AesGcm>::default() as Box<dyn Cipher>)
    }
}

/// Randomness for one ephemeral key; there is none for a second.
struct OneSecret(Option<Zeroizing<[u8; 32]>>);

impl Random for OneSecret {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let secret = self.0.take().ok_or(Error::Rng)?;
        if dest.len() != secret.len() {
            return Err(Error::Rng);
        }
        dest.copy_from_slice(&*secret);
        Ok(())
    }
}

#[derive(Default)]
struct X25519Keys {
    bytes: Zeroizing<[u8; 32]>,
    private: Option<PrivateKey>,
    public: [u8; 32],
}

impl Dh for X25519Keys {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, privkey: &[u8]) {
        let private = PrivateKey::from_private_key(&X25519, privkey).ok();
        let public = private.as_ref().and_then(|key| key.compute_public_key().ok());
        let Some(public) = public.filter(|public| public.as_ref().len() == 32) else {
            self.private = None; // what needs it then fails
            return;
        };
        self.bytes.copy_from_slice(privkey);
        self.public.copy_from_slice(public.as_ref());
        self.private = private;
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; 32]);
        rng.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        if self.private.is_some() { Ok(()) } else { Err(Error::Dh) }
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.bytes
    }

    /// Refuses keys of small order, with which everybody agrees on zeros (RFC 7748, 6.1).
    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let private = self.private.as_ref().ok_or(StateProblem::MissingKeyMaterial)?;
        let theirs = pubkey.get(..32).ok_or(Error::Input)?;
        let out = out.get_mut(..32).ok_or(Error::Input)?;
        agree(private, UnparsedPublicKey::new(&X25519, theirs), Error::Dh, |shared| {
            out.copy_from_slice(shared);
            Ok(())
        })
    }
}

struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let context = std::mem::take(self);
        out[..32].copy_from_slice(context.0.finish().as_ref());
    }
}

/// Noise's AESGCM: the nonce is four zero bytes and the number, big endian.
#[derive(Default)]
struct AesGcm(Option<LessSafeKey>);

impl AesGcm {
    fn nonce(number: u64) -> Nonce {
        Nonce::assume_unique_for_key(dwell_wire::header::seal_nonce(number))
    }
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let key = self.0.as_ref().expect("snow sets the key before it encrypts");
        let (text, tag_room) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let tag = key
            .seal_in_place_separate_tag(Self::nonce(nonce), Aad::from(authtext), text)
            .expect("a handshake is shorter than the limit of AES-GCM");
        tag_room[..SEAL_TAG_LEN].copy_from_slice(tag.as_ref());
        plaintext.len() + SEAL_TAG_LEN
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let mut copy = Zeroizing::new(ciphertext.to_vec());
        let text = key
            .open_in_place(Self::nonce(nonce), Aad::from(authtext), &mut copy)
            .map_err(|_| Error::Decrypt)?;
        out.get_mut(..text.len()).ok_or(Error::Input)?.copy_from_slice(text);
        Ok(text.len())
    }
}
