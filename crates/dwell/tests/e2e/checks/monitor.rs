//! A relay's metrics, and Prometheus that reads them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use dwell_lab::lab::{Lab, Process};
use dwell_lab::relays::RelaySettings;

use crate::site::{self, Site, wait_until};
use crate::web::Web;

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");
const METRICS: &str = "http://127.0.0.1:9478/metrics";

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn succeeds(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(out)
}

pub(super) fn prometheus(lab: &mut Lab) -> anyhow::Result<()> {
    let extra = "\n[metrics]\nlisten = \"127.0.0.1:9478\"".to_owned();
    let site = Site::thin(lab, &RelaySettings { extra, keyed: true, ..site::settings() })?;
    Web::start(&site, 40_000, 20_000)?.fetch_all(&site.pair.client)?;
    let host = &site.pair.egress;
    let text = succeeds(host.command("curl").args(["-sSf", METRICS]))?;
    let sent = text
        .lines()
        .find_map(|line| line.strip_prefix("dwell_sent_packets_total{peer=\"other\"} "))
        .with_context(|| format!("no packets in\n{text}"))?;
    ensure!(sent.parse::<u64>()? > 10, "{sent} packets");
    let missing = host.command("curl").args(["-sSf", "http://127.0.0.1:9478/"]).output()?;
    ensure!(!missing.status.success(), "only /metrics is served");
    if !is_there("prometheus") || !is_there("promtool") {
        println!("the rest is skipped: prometheus is not installed");
        return Ok(());
    }
    let monitoring = Path::new(MONITORING);
    succeeds(
        Command::new("promtool").args(["check", "config"]).arg(monitoring.join("prometheus.yml")),
    )?;
    let tests = monitoring.join("dwell.rules.test.yml");
    succeeds(Command::new("promtool").args(["test", "rules"]).arg(tests))?;
    let page = site.directory.join("metrics.txt");
    std::fs::write(&page, &text)?;
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(std::fs::File::open(&page)?);
    let complaints = check.output()?;
    ensure!(complaints.status.success(), "{}", String::from_utf8_lossy(&complaints.stderr));
    scraped(&site, monitoring)
}

/// Prometheus finds the relay with the configuration that we give away.
fn scraped(site: &Site, monitoring: &Path) -> anyhow::Result<()> {
    let host = &site.pair.egress;
    let config = site.directory.join("prometheus.yml");
    let text = std::fs::read_to_string(monitoring.join("prometheus.yml"))?;
    let rules = monitoring.join("dwell.rules.yml").display().to_string();
    let text = text.replace("interval: 15s", "interval: 1s").replace("dwell.rules.yml", &rules);
    std::fs::write(&config, text)?;
    let log = std::fs::File::create(site.directory.join("prometheus.log"))?;
    let mut command = host.command("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", site.directory.join("tsdb").display()))
        .arg("--web.listen-address=127.0.0.1:9090")
        .stderr(log);
    let mut prometheus = Process::spawn(&mut command)?;
    let query = "http://127.0.0.1:9090/api/v1/query?query=dwell_peer_up";
    let found = wait_until("Prometheus has seen that the peer is up", || {
        let answer = host.command("curl").args(["-sS", query]).output()?;
        let answer: serde_json::Value =
            serde_json::from_slice(&answer.stdout).unwrap_or(serde_json::Value::Null);
        Ok(answer["data"]["result"][0]["value"][1] == "1")
    });
    prometheus.stop()?;
    found
}
