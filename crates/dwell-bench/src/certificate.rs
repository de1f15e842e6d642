//! Certificates for programs that want some, made here by `openssl`.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context as _;

/// Makes a certificate that signs itself, for this name, and its key, unless they are there. Returns their paths.
///
/// # Errors
/// If openssl can't be run, or fails.
pub(super) fn make(directory: &Path, name: &str) -> anyhow::Result<[String; 2]> {
    let path = |ending: &str| directory.join(format!("{name}.{ending}"));
    let [certificate, key] = ["crt", "key"].map(|it| path(it).to_string_lossy().into_owned());
    if !path("crt").exists() {
        let fixed =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 30";
        let subject = format!("/CN={name}");
        let mut arguments: Vec<&str> = fixed.split(' ').collect();
        arguments.extend(["-subj", &subject, "-keyout", &key, "-out", &certificate]);
        openssl(&arguments)?;
    }
    Ok([certificate, key])
}

/// Runs `openssl` and returns its output.
///
/// # Errors
/// If it can't be run, or fails.
pub(super) fn openssl(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<Vec<u8>> {
    let output = std::process::Command::new("openssl")
        .args(arguments)
        .output()
        .context("`openssl` can't be run; install it, for instance: sudo apt install openssl")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "openssl failed: {}", complaint.trim());
    Ok(output.stdout)
}
