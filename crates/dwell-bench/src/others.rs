//! The options that say who takes part besides dwell.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use super::contender::{Contender, OpenVpnVariant};
use super::openvpn;
use super::tunnel::Programs;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Others")]
pub(super) struct Others {
    /// OpenVPN takes part: gcm (AES-256-GCM) or none, with or without +lz4, +lzo
    #[arg(long, value_name = "VARIANT,...", num_args = 0.., require_equals = true)]
    #[arg(value_delimiter = ',')]
    openvpn: Option<Vec<OpenVpnVariant>>,
    /// wireguard-go takes part; this is the program
    #[arg(long, value_name = "PROGRAM")]
    wireguard_go: Option<PathBuf>,
}

impl Others {
    /// Returns the contenders; `usual` are the variants of OpenVPN if none are named.
    pub(super) fn contenders(&self, usual: &[&str]) -> anyhow::Result<Vec<Contender>> {
        let mut all = Vec::new();
        if let Some(variants) = &self.openvpn {
            ensure!(
                openvpn::is_installed(),
                "OpenVPN is not installed: install it, for instance: sudo apt install openvpn"
            );
            all.extend(variants.iter().copied().map(Contender::OpenVpn));
            if variants.is_empty() {
                all.extend(usual.iter().flat_map(|text| text.parse()).map(Contender::OpenVpn));
            }
        }
        if let Some(program) = &self.wireguard_go {
            ensure_exists(program)?;
            all.push(Contender::WireGuardGo);
        }
        Ok(all)
    }

    pub(super) fn programs(&self) -> anyhow::Result<Programs> {
        let mut programs = Programs::usual()?;
        if let Some(program) = &self.wireguard_go {
            programs.wireguard_go.clone_from(program);
        }
        Ok(programs)
    }
}

/// A bare name is looked up later.
fn ensure_exists(program: &Path) -> anyhow::Result<()> {
    let is_name = program.components().count() == 1;
    ensure!(is_name || program.is_file(), "there is no program {}", program.display());
    Ok(())
}
