//! OpenVPN from site to site: TLS with a certificate at each end, each knowing the other's
//! fingerprint.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dwell_lab::lab::{Host, Lab};

use super::bed::Bed;
use super::certificate;
use super::contender::{OpenVpnCompression, OpenVpnVariant};
use super::ends::Ends;
use super::tunnel::{Other, spawn_logged};

/// The path at which distributions install it.
const PROGRAM: &str = "/usr/sbin/openvpn";
const DEVICE: &str = "ovpn0";

/// Returns true if it is installed.
pub(super) fn is_installed() -> bool {
    Path::new(PROGRAM).exists()
}

/// Starts it at both ends.
pub(super) fn start(bed: &Bed<'_>, variant: OpenVpnVariant) -> anyhow::Result<Other> {
    let certificates = Certificates::of(bed.lab)?;
    let [sender, receiver] = [&bed.pair.egress, &bed.pair.ingress];
    let tls = |role: &str| vec![role.to_owned()];
    let server = [tls("--tls-server"), words("--dh none --ifconfig 10.78.0.2 10.78.0.1")].concat();
    let client = [
        tls("--tls-client"),
        words("--remote 10.0.0.2 --connect-retry 1 --ifconfig 10.78.0.1 10.78.0.2"),
    ]
    .concat();
    let [(sender, sender_log), (receiver, receiver_log)] = [
        run(sender, &certificates, 0, variant, &server)?,
        run(receiver, &certificates, 1, variant, &client)?,
    ];
    let ends = Ends { sender, receiver, logs: [sender_log, receiver_log] };
    Ok(Other { devices: [DEVICE; 2], ends })
}

fn run(
    host: &Host,
    certificates: &Certificates,
    end: usize,
    variant: OpenVpnVariant,
    role: &[String],
) -> anyhow::Result<(dwell_lab::lab::Process, PathBuf)> {
    let own = &certificates.ends[end];
    let other = &certificates.ends[1 - end];
    let log = certificates.directory.join(format!("{end}.log"));
    let mut arguments = words(
        "--dev-type tun --proto udp --port 1194 --verb 3 --disable-dco --allow-compression yes",
    );
    arguments.extend([
        "--dev".into(),
        DEVICE.into(),
        "--cert".into(),
        own.certificate.clone(),
        "--key".into(),
        own.key.clone(),
        "--peer-fingerprint".into(),
        other.fingerprint.clone(),
    ]);
    arguments.extend(role.iter().cloned());
    arguments.extend(options(variant));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let process = spawn_logged(host, Path::new(PROGRAM), &arguments, &log, &[])?;
    Ok((process, log))
}

fn options(variant: OpenVpnVariant) -> Vec<String> {
    let cipher = if variant.sealed {
        "--data-ciphers AES-256-GCM --cipher AES-256-GCM"
    } else {
        "--data-ciphers none --cipher none --auth none"
    };
    let compression = match variant.compression {
        OpenVpnCompression::None => "",
        OpenVpnCompression::Lz4 => "--compress lz4-v2",
        OpenVpnCompression::Lzo => "--comp-lzo yes",
    };
    [words(cipher), words(compression)].concat()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The certificates of both ends; made once in a lab.
struct Certificates {
    directory: PathBuf,
    ends: [End; 2],
}

struct End {
    certificate: String,
    key: String,
    fingerprint: String,
}

impl Certificates {
    fn of(lab: &Lab) -> anyhow::Result<Self> {
        let directory = lab.directory().join("openvpn");
        std::fs::create_dir_all(&directory).context("a directory for OpenVPN can't be made")?;
        let ends = [End::of(&directory, "sender")?, End::of(&directory, "receiver")?];
        Ok(Self { directory, ends })
    }
}

impl End {
    fn of(directory: &Path, name: &str) -> anyhow::Result<Self> {
        let [certificate, key] = certificate::make(directory, name)?;
        let show = ["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate];
        let shown = certificate::openssl(&show)?;
        let shown = String::from_utf8_lossy(&shown);
        let fingerprint = shown.trim().split_once('=').map(|(_, hex)| hex.to_owned());
        let fingerprint = fingerprint.context("openssl shows no fingerprint")?;
        Ok(Self { certificate, key, fingerprint })
    }
}
