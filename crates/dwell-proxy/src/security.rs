//! The mutual authentication of the two ends: TLS 1.3 with certificates or with a shared key, or
//! nothing.
//!
//! The TLS library has no pre-shared keys from outside. So both ends derive the same two Ed25519
//! key pairs from the shared key, one for each role, and authenticate each other by them as raw
//! public keys (RFC 7250): whoever completes the handshake holds the private key of its role,
//! which only who has the shared key can. The handshake is otherwise TLS's own, with ephemeral
//! keys: what was recorded stays closed when the shared key is lost (but for what a file's sender says before the handshake has ended). The public key of the end
//! that listens is shown to whoever connects, so a shared key must be random, not a word: 32
//! bytes of `dwell genpsk`, or the 10 of a one-time key.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use aws_lc_rs::hkdf;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::signature::Ed25519KeyPair;
use dwell_base::Secret;
use dwell_base::secret::SecretFormatError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use thiserror::Error as ThisError;
use zeroize::Zeroizing;

use crate::hello::Purpose;

/// The protection of the connection between the two ends.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: on loopback, or inside of something that protects it.
    None,
    /// TLS by a key that both ends hold.
    Psk(Secret),
    /// TLS by certificates, on both sides.
    Certificates(Certificates),
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// This end's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities by which the other end's certificate must be signed.
    pub authorities: PathBuf,
    /// The name that the certificate of the end that listens must bear; matters to the other
    /// one only.
    pub name: Option<String>,
}

impl Security {
    /// The name in statuses.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Psk(_) => "psk",
            Self::Certificates(_) => "certificates",
        }
    }
}

/// Why a connection can't be protected as it should be.
#[derive(Debug, ThisError)]
pub enum SecurityError {
    /// A file can't be read.
    #[error("{} can't be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Others than its owner may read a secret.
    #[error(
        "others may read {path} (mode {mode:04o}): run `chmod 600 {path}`", path = path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file holds no key.
    #[error("{}: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The error.
        error: SecretFormatError,
    },
    /// A file holds something else than PEM of the wanted kind.
    #[error("{} holds no {what} in PEM form", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The content that it should have.
        what: &'static str,
    },
    /// The library takes exception to a key or certificate.
    #[error("{0}")]
    Tls(#[from] Error),
    /// A certificate or an authority is not usable.
    #[error("the certificates can't be used: {0}")]
    Certificates(String),
    /// A name that no certificate can bear.
    #[error("\"{0}\" is no name that a certificate could bear")]
    Name(String),
}

/// Reads a shared key from a file that nobody else may read.
///
/// # Errors
/// [`SecurityError::Read`], [`SecurityError::Exposed`] or [`SecurityError::Format`].
pub fn read_psk(path: &Path) -> Result<Secret, SecurityError> {
    let text = Zeroizing::new(read_private(path)?);
    text.parse().map_err(|error| SecurityError::Format { path: path.to_owned(), error })
}

/// The text of a file that nobody but its owner may read: keys, passwords.
///
/// # Errors
/// [`SecurityError::Read`] or [`SecurityError::Exposed`].
pub fn read_private(path: &Path) -> Result<String, SecurityError> {
    const BYTES_MAX: u64 = 1 << 20;
    let failed = |error| SecurityError::Read { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(SecurityError::Exposed { path: path.to_owned(), mode });
    }
    if metadata.len() > BYTES_MAX {
        return Err(failed(io::Error::other("it is longer than any key or list")));
    }
    fs::read_to_string(path).map_err(failed)
}

/// Has the generator of random numbers seeded by a thread. If AWS-LC was built so that it measures the jitter of the processor's clock
/// (`.cargo/config.toml` says no) it takes 20 to 90 ms for the first number of a process: by then a receiver listens, and a sender's
/// connection is on its way.
pub(crate) fn seed_early() {
    let seed = || {
        // Whoever needs a number gets the error.
        let _ = SystemRandom::new().fill(&mut [0]);
    };
    // Without a thread the first one who needs a number waits for it.
    let _ = thread::Builder::new().name("dwell-seed".to_owned()).spawn(seed);
}

/// Returns the connector of the end that connects, if anything is protected; `host` is its target.
pub(crate) fn client(
    security: &Security,
    purpose: Purpose,
    host: &str,
) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, SecurityError> {
    let (mut config, name) = match security {
        Security::None => return Ok(None),
        Security::Psk(psk) => {
            let keys = Roles::derive(psk, purpose)?;
            let verifier = Arc::new(Pinned::new(keys.listener.spki));
            let config = tls13_client()?
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                    keys.caller.certified,
                )));
            (config, "dwell-proxy".to_owned())
        }
        Security::Certificates(files) => {
            let roots = Arc::new(read_authorities(&files.authorities)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider_arc())
                .build()
                .map_err(|error| SecurityError::Certificates(error.to_string()))?;
            let (chain, key) = read_identity(files)?;
            let config =
                tls13_client()?.with_webpki_verifier(verifier).with_client_auth_cert(chain, key)?;
            (config, files.name.clone().unwrap_or_else(|| host.to_owned()))
        }
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = matches!(security, Security::Certificates(_));
    let name = ServerName::try_from(name.clone()).map_err(|_| SecurityError::Name(name))?;
    Ok(Some((Arc::new(config), name)))
}

/// What the end that listens lets others in by.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    pub(crate) config: Arc<ServerConfig>,
    /// What opens early data, where there may be any: transfers with a shared key.
    pub(crate) early: Option<Secret>,
}

/// Returns the acceptor of the end that listens, if anything is protected.
pub(crate) fn server(
    security: &Security,
    purpose: Purpose,
) -> Result<Option<Acceptor>, SecurityError> {
    let mut config = match security {
        Security::None => return Ok(None),
        Security::Psk(psk) => {
            let keys = Roles::derive(psk, purpose)?;
            let verifier = Arc::new(Pinned::new(keys.caller.spki));
            tls13_server()?.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(
                AlwaysResolvesServerRawPublicKeys::new(keys.listener.certified),
            ))
        }
        Security::Certificates(files) => {
            let roots = Arc::new(read_authorities(&files.authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider_arc())
                .build()
                .map_err(|error| SecurityError::Certificates(error.to_string()))?;
            let (chain, key) = read_identity(files)?;
            tls13_server()?.with_client_cert_verifier(verifier).with_single_cert(chain, key)?
        }
    };
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ALPN.to_vec()];
    let early = match (security, purpose) {
        (Security::Psk(psk), Purpose::File) => Some(psk.clone()),
        _ => None,
    };
    Ok(Some(Acceptor { config: Arc::new(config), early }))
}

/// Names the protocol in the handshake, so that no other server can be made to answer.
const ALPN: &[u8] = b"dwell-proxy/1";

fn provider_arc() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

fn tls13_client() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider_arc())
        .with_protocol_versions(&[&rustls::version::TLS13])
}

fn tls13_server() -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider_arc())
        .with_protocol_versions(&[&rustls::version::TLS13])
}

fn read_authorities(path: &Path) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let text =
        fs::read(path).map_err(|error| SecurityError::Read { path: path.to_owned(), error })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| SecurityError::Pem { path: path.to_owned(), what: "certificate" })
}

fn read_identity(
    files: &Certificates,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), SecurityError> {
    let chain = read_certificates(&files.certificate)?;
    let text = Zeroizing::new(read_private(&files.key)?);
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| SecurityError::Pem { path: files.key.clone(), what: "private key" })?;
    Ok((chain, key))
}

/// The two identities that a shared key stands for.
struct Roles {
    caller: Identity,
    listener: Identity,
}

struct Identity {
    certified: Arc<CertifiedKey>,
    spki: Vec<u8>,
}

impl Roles {
    fn derive(psk: &Secret, purpose: Purpose) -> Result<Self, Error> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"dwell proxy 1");
        let prk = salt.extract(psk.bytes());
        let purpose: &[u8] = match purpose {
            Purpose::Streams => b"streams",
            Purpose::File => b"file",
        };
        let identity = |role: &[u8]| Identity::derive(&prk, &[purpose, role]);
        Ok(Self { caller: identity(b" caller")?, listener: identity(b" listener")? })
    }
}

impl Identity {
    fn derive(prk: &hkdf::Prk, info: &[&[u8]]) -> Result<Self, Error> {
        let unusable = |_| Error::General("a key can't be derived".to_owned());
        let mut seed = Zeroizing::new([0; 32]);
        prk.expand(info, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut seed[..]))
            .map_err(unusable)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed[..])
            .map_err(|_| Error::General("a key can't be derived".to_owned()))?;
        let document = pair.to_pkcs8v1().map_err(unusable)?;
        let der = PrivatePkcs8KeyDer::from(document.as_ref());
        let key: Arc<dyn SigningKey> = provider::sign::any_eddsa_type(&der)?;
        let spki = key
            .public_key()
            .ok_or_else(|| Error::General("a key has no public half".to_owned()))?
            .to_vec();
        let certificate = CertificateDer::from(spki.clone());
        Ok(Self { certified: Arc::new(CertifiedKey::new(vec![certificate], key)), spki })
    }
}

/// Accepts one public key, and nothing else.
#[derive(Debug)]
struct Pinned {
    spki: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(spki: Vec<u8>) -> Self {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        Self { spki, algorithms }
    }

    fn is(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        // Nothing here is secret.
        if shown.as_ref() == self.spki {
            return Ok(());
        }
        Err(rustls::CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &key,
            signature,
            &self.algorithms,
        )
    }

    fn no_tls12<T>() -> Result<T, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.is(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    /// A handshake in memory: what came of it at both ends.
    fn shake(client: &Security, server: &Security) -> Result<(), Error> {
        let (config, name) = super::client(client, Purpose::Streams, "egress").unwrap().unwrap();
        let mut caller = ClientConnection::new(config, name)?;
        let acceptor = super::server(server, Purpose::Streams).unwrap().unwrap();
        let mut listener = ServerConnection::new(acceptor.config)?;
        let mut wire = Vec::new();
        for _ in 0..10 {
            wire.clear();
            while caller.wants_write() {
                caller.write_tls(&mut wire).unwrap();
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                listener.read_tls(&mut rest).unwrap();
                listener.process_new_packets()?;
            }
            wire.clear();
            while listener.wants_write() {
                listener.write_tls(&mut wire).unwrap();
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                caller.read_tls(&mut rest).unwrap();
                caller.process_new_packets()?;
            }
        }
        assert!(!caller.is_handshaking() && !listener.is_handshaking());
        Ok(())
    }

    fn psk(byte: u8) -> Security {
        Security::Psk(Secret::new([byte; 32]))
    }

    #[test]
    fn the_same_key_lets_in() {
        shake(&psk(1), &psk(1)).unwrap();
    }

    #[test]
    fn another_key_does_not() {
        shake(&psk(1), &psk(2)).unwrap_err();
    }

    /// A caller that trusts anybody is not let in, either.
    #[test]
    fn a_caller_must_prove_the_key_too() {
        let (config, name) = super::client(&psk(1), Purpose::Streams, "e").unwrap().unwrap();
        let mut config = (*config).clone();
        let keys = Roles::derive(&Secret::new([2; 32]), Purpose::Streams).unwrap();
        let resolver = AlwaysResolvesClientRawPublicKeys::new(keys.caller.certified);
        config.client_auth_cert_resolver = Arc::new(resolver);
        let mut caller = ClientConnection::new(Arc::new(config), name).unwrap();
        let acceptor = super::server(&psk(1), Purpose::Streams).unwrap().unwrap();
        let mut listener = ServerConnection::new(acceptor.config).unwrap();
        let mut wire = Vec::new();
        caller.write_tls(&mut wire).unwrap();
        listener.read_tls(&mut &wire[..]).unwrap();
        listener.process_new_packets().unwrap();
        wire.clear();
        while listener.wants_write() {
            listener.write_tls(&mut wire).unwrap();
        }
        caller.read_tls(&mut &wire[..]).unwrap();
        caller.process_new_packets().unwrap();
        wire.clear();
        while caller.wants_write() {
            caller.write_tls(&mut wire).unwrap();
        }
        listener.read_tls(&mut &wire[..]).unwrap();
        listener.process_new_packets().unwrap_err();
    }

    #[test]
    fn roles_and_purposes_have_keys_of_their_own() {
        let secret = Secret::new([1; 32]);
        let streams = Roles::derive(&secret, Purpose::Streams).unwrap();
        let file = Roles::derive(&secret, Purpose::File).unwrap();
        let again = Roles::derive(&secret, Purpose::Streams).unwrap();
        let keys =
            [&streams.caller.spki, &streams.listener.spki, &file.caller.spki, &file.listener.spki];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b));
        }
        assert_eq!(streams.caller.spki, again.caller.spki);
    }

    #[test]
    fn exposed_keys_are_refused() {
        let path = std::env::temp_dir().join(format!("dwell-psk-{}", std::process::id()));
        fs::write(&path, "00".repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_psk(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_psk(&path).unwrap(), Secret::new([0; 32]));
        fs::write(&path, "word").unwrap();
        assert!(read_psk(&path).unwrap_err().to_string().contains("dwell genpsk"));
        fs::remove_file(&path).unwrap();
    }
}
