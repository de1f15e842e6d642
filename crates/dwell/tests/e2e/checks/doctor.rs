//! `dwell doctor` of a relay that works, and of one whose peer is gone.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::ensure;
use dwell_lab::lab::Lab;
use dwell_lab::relays::RelaySettings;
use serde_json::Value;

use super::page::secrets_are_not_in;
use crate::site::{self, DWELL, Site, wait_until};

pub(super) fn doctor(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &RelaySettings { keyed: true, ..site::settings() })?;
    let host = site.pair.egress.clone();
    let socket = site.relays.egress.status_path().to_owned();
    let report = site.directory.join("report.txt");
    let run = |arguments: &[&str]| {
        let mut command = host.command(DWELL);
        command.args(["doctor", "--seconds", "1", "--socket"]).arg(&socket).args(arguments);
        command.output()
    };
    let output = run(&["--json"])?;
    let json = String::from_utf8(output.stdout)?;
    let document: Value = serde_json::from_str(&json)?;
    ensure!(document["status"][1]["peers"][0]["state"] == "up", "{json}");
    ensure!(
        document["configuration"]["text"].as_str().is_some_and(|it| it.contains("[[peer]]")),
        "{json}"
    );
    ensure!(document["commands"].as_array().is_some_and(|all| all.len() >= 5), "{json}");
    let checks = |document: &Value, verdict: &str| -> Vec<String> {
        let all = document["findings"].as_array().cloned().unwrap_or_default();
        let wanted = all.iter().filter(|it| it["verdict"] == verdict);
        wanted.map(|it| it["check"].as_str().unwrap_or_default().to_owned()).collect()
    };
    ensure!(checks(&document, "failed").is_empty() && output.status.success(), "{json}");
    ensure!(checks(&document, "ok").contains(&"session".to_owned()), "{json}");
    let path = report.display().to_string();
    let output = run(&["--out", &path])?;
    ensure!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&report)?;
    let mode = std::fs::metadata(&report)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "others may read the report: {mode:o}");
    for part in [
        "What looks wrong",
        "=== machine ===",
        "=== configuration: ",
        "=== status ===",
        "=== ip -s link ===",
    ] {
        ensure!(text.contains(part), "no {part} in\n{text}");
    }
    std::fs::remove_file(&report)?;
    secrets_are_not_in(&site.directory, &(json + &text))?;
    site::kill(site.relays.ingress.process())?;
    wait_until("the doctor says that the peer is gone", || {
        let output = run(&["--json"])?;
        let document: Value = serde_json::from_slice(&output.stdout)?;
        let is_named = checks(&document, "failed").contains(&"session".to_owned());
        ensure!(!is_named || output.status.code() == Some(1), "{document:#}");
        Ok(is_named)
    })
}
