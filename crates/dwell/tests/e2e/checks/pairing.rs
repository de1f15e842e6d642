//! Two machines that come to know each other by two lines, as docs/pairing.md has it.

use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, ensure};
use dwell_lab::lab::{Host, Lab, Process};
use serde_json::Value;

use crate::site::{self, DWELL, SERVERS, Site, edit, tunnel_routes, wait_until};

/// A machine with a node that is to be made.
struct Machine {
    host: Host,
    config: PathBuf,
    log: PathBuf,
}

impl Machine {
    fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        Ok(self.host.command(DWELL).args(words).stdin(std::process::Stdio::null()).output()?)
    }

    fn does(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.run(words)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{words:?}: {said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The same with this node's file.
    fn configures(&self, words: &[&str]) -> anyhow::Result<String> {
        let config = self.config.to_str().context("a strange path")?;
        self.does(&[words, &["--config", config]].concat())
    }

    fn up(&self) -> anyhow::Result<Process> {
        let errors = std::fs::File::create(&self.log)?;
        let mut command = self.host.command(DWELL);
        command.arg("up").arg("--config").arg(&self.config).stderr(errors);
        Ok(Process::spawn(&mut command)?)
    }

    /// What `dwell verify` finds: whether all is well, and the findings that are not.
    fn verify(&self, node: &str, wait: &str) -> anyhow::Result<(bool, Vec<Value>)> {
        let output = self.run(&["verify", node, "--json", "--wait", wait])?;
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        let document: Value = serde_json::from_slice(&output.stdout).with_context(said)?;
        ensure!(document["ok"] == Value::Bool(output.status.success()), "{document:#}");
        let findings = document["findings"].as_array().context("no findings")?;
        let wrong = findings.iter().filter(|finding| finding["verdict"] == "failed").cloned();
        Ok((output.status.success(), wrong.collect()))
    }
}

fn machines(lab: &mut Lab) -> anyhow::Result<[Machine; 2]> {
    let directory = lab.directory();
    let mut machine = |name: &str| -> anyhow::Result<Machine> {
        let directory = directory.join(name);
        std::fs::create_dir_all(&directory)?;
        let (config, log) = (directory.join("relay.toml"), directory.join("log"));
        Ok(Machine { host: lab.host(name)?, config, log })
    };
    let machines = [machine("site-a")?, machine("site-b")?];
    lab.veth((&machines[0].host, "wan"), (&machines[1].host, "wan"))?;
    machines[0].host.address("wan", "192.0.2.1/24")?;
    machines[1].host.address("wan", "192.0.2.2/24")?;
    for (machine, lan) in machines.iter().zip(["10.1.0.1/24", "10.2.0.1/24"]) {
        machine.host.output("ip", &["address", "add", lan, "dev", "lo"])?;
    }
    Ok(machines)
}

/// From nothing to a verified tunnel, and peers that come and go while it runs.
pub(super) fn two_sites(lab: &mut Lab) -> anyhow::Result<()> {
    let [a, b] = machines(lab)?;
    let own = ["init", "--name", "site-a", "--prefix", "10.1.0.0/24", "--endpoint", "192.0.2.1"];
    let offer = a.configures(&own)?;
    // It may run before it has a peer.
    let mut up_a = a.up()?;
    wait_until("the node answers", || Ok(a.run(&["status", "site-a"])?.status.success()))?;
    let join = ["join", "--name", "site-b", "--prefix", "10.2.0.0/24", "--rate", "20mbit", &offer];
    let answer = b.configures(&join)?;
    let mut up_b = b.up()?;
    a.configures(&["join", &answer])?;
    for (machine, name) in [(&a, "site-a"), (&b, "site-b")] {
        let (is_well, wrong) = machine.verify(name, "20")?;
        let log = std::fs::read_to_string(&machine.log)?;
        ensure!(is_well && wrong.is_empty(), "{name}: {wrong:#?}\n{log}");
    }
    let text = a.does(&["verify", "site-a"])?;
    for part in
        ["site-b: is up at 192.0.2.2:7733", "10.77.0.2 answers through the tunnel", "the longest"]
    {
        ensure!(text.contains(part), "{part} is not in {text}");
    }
    let listed = a.configures(&["peer", "list"])?;
    ensure!(listed.contains("up"), "{listed}");
    let runs = a.run(&["up", "--config", a.config.to_str().context("a path")?])?;
    let said = String::from_utf8_lossy(&runs.stderr).into_owned();
    ensure!(runs.status.success() && said.contains("runs already"), "{said}");
    a.configures(&["peer", "remove", "site-b"])?;
    ensure!(
        tunnel_routes(&a.host)?.iter().all(|route| !route.starts_with("10.2.")),
        "its routes stay"
    );
    let (is_well, wrong) = b.verify("site-b", "0")?;
    ensure!(!is_well && wrong[0]["check"] == "session", "{wrong:#?}");
    // A line takes one answer.
    let config = a.config.to_str().context("a path")?;
    ensure!(!a.run(&["peer", "add", &answer, "--config", config])?.status.success(), "once more");
    let answer = b.configures(&["join", &a.configures(&["invite"])?])?;
    a.configures(&["peer", "add", &answer])?;
    ensure!(a.verify("site-a", "20")?.0, "it does not come back");
    ensure!(up_a.stop()?.success() && up_b.stop()?.success(), "they do not stop in order");
    Ok(())
}

/// The account of savings outlives restarts, also of a relay that has become another user.
pub(super) fn savings(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    site.relays.ingress.process().stop()?;
    let file = site.directory.join("ingress.savings");
    let kept = format!("file = \"{}\"\ncost_per_gb = 4.5\n", file.display());
    let changes = [("file = \"none\"\n", &*kept), ("[node]\n", "[node]\nuser = \"nobody\"\n")];
    edit(&site.relays.ingress, &changes)?;
    let mut taken_bytes = 0;
    for run in 1..=3 {
        site.relays.ingress.restart(None)?;
        site.relays.wait_until_up()?;
        site.ping(&["-c", "5", "-i", "0.1", "-W", "2", SERVERS[0]])?;
        let savings = site.relays.ingress.status()?.savings;
        ensure!(savings.kept && savings.total.taken_bytes > taken_bytes, "run {run}: {savings:?}");
        taken_bytes = savings.total.taken_bytes;
        site.relays.ingress.process().stop()?;
    }
    let bytes = std::fs::read(&file)?;
    ensure!(
        bytes.len() == 8_192 && bytes.iter().all(|byte| byte.is_ascii()),
        "{} bytes",
        bytes.len()
    );
    let log = site.relays.ingress.log();
    ensure!(!log.contains("account of savings"), "{log}");
    Ok(())
}

/// What keeps a tunnel from working is named by `verify`, with what to do.
pub(super) fn mistakes(lab: &mut Lab) -> anyhow::Result<()> {
    let [a, b] = machines(lab)?;
    let offer = a.configures(&["init", "--name", "site-a", "--endpoint", "192.0.2.1"])?;
    let answer = b.configures(&["join", "--name", "site-b", &offer])?;
    a.configures(&["join", &answer])?;
    let mut up_b = b.up()?;
    let said = |machine: &Machine, name: &str, wait: &str, part: &str| -> anyhow::Result<()> {
        wait_until(part, || {
            let (_, wrong) = machine.verify(name, wait)?;
            Ok(wrong.iter().any(|finding| finding["text"].to_string().contains(part)))
        })
        .with_context(|| format!("{:#?}", machine.verify(name, "0")))
    };
    // The other end is not started: its kernel says that the port is closed.
    wait_until("the node answers", || Ok(b.run(&["status", "site-b"])?.status.success()))?;
    said(&b, "site-b", "0", "Nobody listens")?;
    let mut up_a = a.up()?;
    ensure!(b.verify("site-b", "20")?.0, "it works: {:#?}", b.verify("site-b", "0")?);
    // Somebody else's route leads packets past the tunnel.
    b.host.output("ip", &["route", "add", "10.77.0.1/32", "dev", "wan", "metric", "1"])?;
    said(&b, "site-b", "0", "10.77.0.1/32")?;
    b.host.output("ip", &["route", "del", "10.77.0.1/32", "dev", "wan", "metric", "1"])?;
    // The other end does not know our tunnel address.
    let text = std::fs::read_to_string(&a.config)?;
    std::fs::write(&a.config, text.replace("10.77.0.2/32", "10.77.0.9/32"))?;
    a.does(&["up", "--config", a.config.to_str().context("a path")?])?;
    said(&b, "site-b", "5", "does not answer a ping")?;
    // A file that is refused is no news to the log alone.
    std::fs::write(&a.config, "[node]\nrate = 1\n")?;
    up_a.signal(rustix::process::Signal::HUP)?;
    said(&a, "site-a", "0", "refused its configuration file")?;
    ensure!(up_a.stop()?.success() && up_b.stop()?.success(), "they do not stop in order");
    Ok(())
}
