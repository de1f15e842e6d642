//! vtun from site to site, as its own examples have it: in the clear, with an MTU of 1450.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::super::bed::Bed;
use super::super::ends::Ends;
use super::super::program;
use super::super::tunnel::{Other, spawn_logged};
use super::{await_listener, number};

pub(super) const PROGRAM: &str = "vtund";
/// zlib keeps what it has seen, so that nothing may be lost on the path.
pub(super) const ZLIB: &str = "proto tcp; compress zlib:6;";
/// The level of its examples.
pub(super) const LZO: &str = "proto udp; compress lzo:9;";
const PORT: u16 = 5000;
const DEVICE: &str = "tun0";
/// Of sender and receiver.
const ADDRESSES: [&str; 2] = ["10.81.0.2/30", "10.81.0.1/30"];
const MTU: u32 = 1450;

/// Starts it at both ends, with these lines in its configuration.
pub(super) fn start(bed: &Bed<'_>, lines: &str) -> anyhow::Result<Other> {
    let directory = bed.lab.directory().join("vtun");
    fs::create_dir_all(&directory).context("a directory for vtun can't be made")?;
    let file = |name: &str| directory.join(name);
    let config = format!(
        "options {{ port {PORT}; timeout 10; }}\n\
         lab {{ passwd lab; type tun; device {DEVICE}; {lines} encrypt no; keepalive no; }}\n"
    );
    fs::write(file("config"), config).context("vtun's configuration can't be written")?;
    let program = program::find(PROGRAM).context("vtund was there just now")?;
    let config = file("config").to_string_lossy().into_owned();
    let run = |host, role: &[&str], log: &Path| {
        let arguments = [&["-n", "-f", &config], role].concat();
        spawn_logged(host, &program, &arguments, log, &[])
    };
    let logs = [file("sender.log"), file("receiver.log")];
    let sender = run(&bed.pair.egress, &["-s"], &logs[0])?;
    await_listener(bed, "vtund", PORT)?;
    let receiver = run(&bed.pair.ingress, &["lab", "10.0.0.2"], &logs[1])?;
    let mut ends = Ends { sender, receiver, logs };
    number(bed, &mut ends, (DEVICE, ADDRESSES), MTU)?;
    Ok(Other { devices: [DEVICE; 2], ends })
}
