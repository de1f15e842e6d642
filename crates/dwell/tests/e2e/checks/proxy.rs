//! Real programs through a pair of proxies, over a thin link without relays.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use dwell_base::Rate;
use dwell_lab::corpus;
use dwell_lab::lab::topology::{Pair, PairSpec, pair};
use dwell_lab::lab::{Host, Lab, Process};
use dwell_proxy::transfer::Code;
use dwell_report::ProxyStatus;

use super::programs::{compare, plant};
use crate::harness::{Skip, find, require};
use crate::site::{DWELL, wait_until};

/// The ingress as the client sees it, and the server as the egress does.
const INGRESS: &str = "10.1.0.1";
const SERVER: &str = "10.2.0.2";
const SOCKS_PORT: u16 = 1080;

/// Hosts, and a proxy on each of the two in the middle.
struct Proxies {
    ingress: Process,
    egress: Process,
    pair: Pair,
    directory: PathBuf,
}

impl Proxies {
    /// With a listener for each of these ports of the server, one for SOCKS, and `more`.
    fn start(lab: &mut Lab, mbps: u64, ports: &[u16], more: &[&str]) -> anyhow::Result<Self> {
        Self::start_over(lab, PairSpec::thin(Rate::from_mbps(mbps), 0), ports, more)
    }

    /// The same over this link.
    fn start_over(
        lab: &mut Lab,
        link: PairSpec,
        ports: &[u16],
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let pair = pair(lab, link)?;
        let directory = lab.directory();
        let psk = directory.join("proxy.psk");
        let made = Command::new(DWELL).args(["genpsk", "--out"]).arg(&psk).status()?;
        ensure!(made.success(), "no key");
        let mut command = pair.egress.command(DWELL);
        command.args(["proxy", "egress", "--allow", &format!("{SERVER}:*"), "--psk"]).arg(&psk);
        let egress = launch(command, &directory, "egress")?;
        let mut command = pair.ingress.command(DWELL);
        command.args(["proxy", "ingress", "--egress", "10.0.0.2", "--psk"]).arg(&psk);
        command.args(["--socks", &format!("{INGRESS}:{SOCKS_PORT}")]).args(more);
        for port in ports {
            command.arg("--forward").arg(format!("{INGRESS}:{port}={SERVER}:{port}"));
        }
        let ingress = launch(command, &directory, "ingress")?;
        Ok(Self { ingress, egress, pair, directory })
    }

    /// A server on the server's host, once it listens.
    fn serve(&self, mut command: Command, port: u16) -> anyhow::Result<Process> {
        let log = self.directory.join(format!("server-{port}.log"));
        let file = fs::File::create(&log)?;
        command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
        let mut service = Process::spawn(&mut command)?;
        wait_until("a server listens", || {
            if let Some(status) = service.try_wait()? {
                bail!("the server ended with {status}: {}", fs::read_to_string(&log)?);
            }
            Ok(self.pair.server.run(|| TcpStream::connect((SERVER, port)).is_ok())?)
        })?;
        Ok(service)
    }

    /// nginx with these files, at ports with what is said of each.
    fn serve_files(&self, root: &Path, servers: &[(u16, &str)]) -> anyhow::Result<Process> {
        let (directory, root) = (self.directory.display(), root.display());
        // Nothing is written elsewhere.
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {directory}/{what};\n"))
            .concat();
        let of = |(_, listen): &(u16, &str)| format!("server {{ {listen}; root {root}; }}\n");
        let servers_text: String = servers.iter().map(of).collect();
        let text = format!(
            "user root root;\ndaemon off;\nmaster_process off;\npid {directory}/nginx.pid;\n\
             events {{ worker_connections 256; }}\n\
             http {{\naccess_log off;\n{temporary}{servers_text}}}\n"
        );
        let config = self.directory.join("nginx.conf");
        fs::write(&config, text)?;
        let mut command = self.pair.server.command(find("nginx").unwrap_or_default());
        command.arg("-p").arg(&self.directory).arg("-c").arg(&config);
        let (port, _) = servers.last().context("a port")?;
        self.serve(command, *port)
    }

    fn statuses(&self) -> anyhow::Result<[ProxyStatus; 2]> {
        Ok([status("ingress")?, status("egress")?])
    }

    /// Both proxies stop as they should, and have carried something both ways.
    fn stop(mut self) -> anyhow::Result<[ProxyStatus; 2]> {
        let statuses = self.statuses()?;
        for status in &statuses {
            let broken = status.streams.damaged + status.streams.cut + status.streams.idle;
            ensure!(broken == 0, "{status:#?}");
            ensure!(status.streams.finished + status.streams.reset > 0, "{status:#?}");
            ensure!(status.tx.bytes > 0 && status.rx.bytes > 0, "{status:#?}");
        }
        for process in [&mut self.ingress, &mut self.egress] {
            let exit = process.stop()?;
            ensure!(exit.success(), "a proxy ended with {exit}");
        }
        Ok(statuses)
    }
}

fn launch(mut command: Command, directory: &Path, name: &str) -> anyhow::Result<Process> {
    let log = directory.join(format!("{name}.log"));
    command.stderr(fs::File::create(&log)?);
    let mut process = Process::spawn(&mut command)?;
    wait_until("a proxy listens", || {
        if let Some(status) = process.try_wait()? {
            bail!("the {name} ended with {status}: {}", fs::read_to_string(&log)?);
        }
        Ok(status(name).is_ok())
    })?;
    Ok(process)
}

/// Returns what a proxy says of itself, by the command that operators use.
fn status(name: &str) -> anyhow::Result<ProxyStatus> {
    let output = Command::new(DWELL).args(["status", "--json", name]).output()?;
    ensure!(output.status.success(), "{}", reported(&output));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn succeeds(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, reported(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that does not run as root, for servers that refuse to: in a namespace of users where
/// its user is another one.
fn as_somebody(host: &Host, program: &Path) -> anyhow::Result<Command> {
    require(&["unshare"])?;
    let mut command = host.command("unshare");
    command.args(["--map-user=1000", "--map-group=1000", "--"]).arg(program);
    Ok(command)
}

/// curl by HTTP/1.1 and HTTP/2, by a forward and by SOCKS, text and noise.
pub(super) fn curl(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["nginx", "curl"])?;
    let site = Proxies::start(lab, 50, &[8080], &[])?;
    let root = site.directory.join("web");
    fs::create_dir_all(&root)?;
    fs::write(root.join("text"), corpus::text(3_000_000, 1))?;
    fs::write(root.join("noise"), corpus::incompressible(1_000_000, 1))?;
    let servers = [(8080, "listen 8080 http2"), (8081, "listen 8081")];
    let _nginx = site.serve_files(&root, &servers)?;
    let socks = format!("socks5h://{INGRESS}:{SOCKS_PORT}");
    for arguments in [
        vec!["--http2-prior-knowledge".to_owned(), format!("http://{INGRESS}:8080")],
        vec![
            "--http2-prior-knowledge".into(),
            "-x".into(),
            socks.clone(),
            format!("http://{SERVER}:8080"),
        ],
        vec!["--http1.1".into(), "-x".into(), socks, format!("http://{SERVER}:8081")],
    ] {
        let (base, options) = arguments.split_last().context("a base")?;
        for file in ["text", "noise"] {
            let to = site.directory.join("fetched");
            let mut command = site.pair.client.command("curl");
            command.args(["-sS", "--fail", "--max-time", "20", "-o"]).arg(&to).args(options);
            succeeds(command.arg(format!("{base}/{file}")))
                .with_context(|| format!("{:#?}", site.statuses()))?;
            ensure!(fs::read(&to)? == fs::read(root.join(file))?, "{file} differs");
        }
    }
    let [_, egress] = site.stop()?;
    // The noise does not get smaller, the text does.
    ensure!(egress.tx.link_bytes < 10_000_000, "{egress:#?}");
    Ok(())
}

/// A download behind a router is paced while there are small ones beside it, and no longer.
pub(super) fn pace(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["nginx", "curl", "ss"])?;
    let link = PairSpec::routed(Rate::from_mbps(10)).with_delay_ns(10_000_000);
    let site = Proxies::start_over(lab, link, &[8080], &[])?;
    let root = site.directory.join("web");
    fs::create_dir_all(&root)?;
    fs::write(root.join("large"), corpus::incompressible(15_000_000, 1))?;
    fs::write(root.join("small"), corpus::text(1_000, 1))?;
    let _nginx = site.serve_files(&root, &[(8080, "listen 8080")])?;
    let fetch = |file: &str| {
        let mut command = site.pair.client.command("curl");
        command.args(["-sS", "--fail", "--max-time", "60", "-o", "/dev/null"]);
        command.arg(format!("http://{INGRESS}:8080/{file}")).stdin(Stdio::null());
        command
    };
    // `ss` prints the limit behind the rate, if there is one.
    let is_paced = || -> anyhow::Result<bool> {
        let mut command = site.pair.egress.command("ss");
        let sockets = succeeds(command.args(["-tinH", "sport", "=", ":7734"]))?;
        let mut rates = sockets.split("pacing_rate ").skip(1);
        Ok(rates.any(|rate| rate.split_whitespace().next().is_some_and(|it| it.contains('/'))))
    };
    let mut large = Process::spawn(&mut fetch("large"))?;
    wait_until("the download is paced", || {
        succeeds(&mut fetch("small"))?;
        is_paced()
    })?;
    let mut paced = 0;
    for _ in 0..10 {
        succeeds(&mut fetch("small"))?;
        paced += u32::from(is_paced()?);
    }
    ensure!(paced >= 5, "of ten looks beside small ones it was paced in {paced}");
    wait_until("it is paced no longer", || Ok(!is_paced()?))?;
    ensure!(large.try_wait()?.is_none(), "it was over before that");
    let exit = large.wait_timeout(Duration::from_secs(60))?;
    ensure!(exit.is_some_and(|exit| exit.success()), "curl ended with {exit:?}");
    site.stop()?;
    Ok(())
}

pub(super) fn rsync(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["rsync"])?;
    let site = Proxies::start(lab, 50, &[8730], &[])?;
    let (from, to) = (site.directory.join("tree"), site.directory.join("copy"));
    plant(&from)?;
    let config = site.directory.join("rsyncd.conf");
    let directory = site.directory.display();
    let text = format!(
        "use chroot = no\nreverse lookup = no\npid file = {directory}/rsyncd.pid\n\
         lock file = {directory}/rsyncd.lock\n[tree]\npath = {directory}/tree\n"
    );
    fs::write(&config, text)?;
    let mut command = as_somebody(&site.pair.server, Path::new("rsync"))?;
    command.args(["--daemon", "--no-detach", "--port", "8730", "--config"]).arg(&config);
    let _service = site.serve(command, 8730)?;
    let mut client = site.pair.client.command("rsync");
    client.args(["-rtp", &format!("rsync://{INGRESS}:8730/tree/")]).arg(&to);
    succeeds(&mut client)?;
    compare(&from, &to)?;
    site.stop()?;
    Ok(())
}

pub(super) fn redis(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["redis-server", "redis-cli", "redis-benchmark"])?;
    let site = Proxies::start(lab, 50, &[6379], &[])?;
    let mut command = site.pair.server.command("redis-server");
    command.args(["--port", "6379", "--bind", SERVER, "--save", "", "--protected-mode", "no"]);
    command.arg("--dir").arg(&site.directory);
    let _service = site.serve(command, 6379)?;
    let value = corpus::text(200_000, 1);
    let file = site.directory.join("value");
    fs::write(&file, &value)?;
    let cli = |arguments: &[&str]| {
        let mut command = site.pair.client.command("redis-cli");
        command.args(["-h", INGRESS]).args(arguments);
        command
    };
    let stored = cli(&["-x", "SET", "book"]).stdin(fs::File::open(&file)?).output()?;
    ensure!(reported(&stored).trim() == "OK", "{}", reported(&stored));
    let got = cli(&["GET", "book"]).output()?.stdout;
    ensure!(got.strip_suffix(b"\n") == Some(&value[..]), "the value differs");
    // Many clients, and requests in advance.
    let mut command = site.pair.client.command("redis-benchmark");
    command.args(["-h", INGRESS, "-q", "-n", "5000", "-c", "20", "-P", "4", "-t", "set,get,lpush"]);
    let said = succeeds(&mut command)?;
    ensure!(said.contains("requests per second"), "{said}");
    site.stop()?;
    Ok(())
}

/// pgbench, and a dump that is restored and dumped again.
pub(super) fn postgres(lab: &mut Lab) -> anyhow::Result<()> {
    let bin = postgres_programs()?;
    let site = Proxies::start(lab, 50, &[5432], &[])?;
    let data = site.directory.join("pgdata");
    let mut command = as_somebody(&site.pair.server, &bin.join("initdb"))?;
    command.args(["-A", "trust", "-U", "dwell", "--no-sync", "--no-locale", "-D"]).arg(&data);
    succeeds(&mut command)?;
    let all = "host all all 0.0.0.0/0 trust\n";
    fs::write(data.join("pg_hba.conf"), all)?;
    let mut command = as_somebody(&site.pair.server, &bin.join("postgres"))?;
    command.arg("-D").arg(&data).arg("-k").arg(&site.directory);
    command.args(["-c", &format!("listen_addresses={SERVER}"), "-c", "fsync=off"]);
    let _service = site.serve(command, 5432)?;
    let client = |program: &str, arguments: &[&str]| {
        let mut command = site.pair.client.command(bin.join(program));
        command.args(["-h", INGRESS, "-U", "dwell"]).args(arguments);
        command.env("PGCONNECT_TIMEOUT", "20");
        succeeds(&mut command)
    };
    wait_until("the database is ready", || Ok(client("pg_isready", &[]).is_ok()))?;
    client("createdb", &["bench"])?;
    client("pgbench", &["-i", "-s", "2", "-q", "bench"])?;
    let said = client("pgbench", &["-c", "4", "-j", "2", "-t", "50", "bench"])?;
    ensure!(said.contains("actually processed: 200/200"), "{said}");
    let dump = |database: &str| -> anyhow::Result<Vec<String>> {
        let text = client("pg_dump", &["--no-owner", database])?;
        // Newer versions put a random word into every dump.
        let lines = text.lines().filter(|line| !line.contains("restrict "));
        Ok(lines.map(str::to_owned).collect())
    };
    let first = dump("bench")?;
    ensure!(first.len() > 200_000, "only {} lines", first.len());
    client("createdb", &["copy"])?;
    let file = site.directory.join("dump.sql");
    fs::write(&file, first.join("\n") + "\n")?;
    let file = file.to_str().context("a directory with a strange name")?;
    client("psql", &["-q", "-v", "ON_ERROR_STOP=1", "-f", file, "copy"])?;
    ensure!(first == dump("copy")?, "the copy's dump differs");
    let [ingress, egress] = site.stop()?;
    for status in [&ingress, &egress] {
        ensure!(status.tx.link_bytes < status.tx.bytes, "nothing was saved: {status:#?}");
    }
    Ok(())
}

/// Returns the directory of PostgreSQL's own programs: Debian has one for each version.
fn postgres_programs() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut directories: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    directories.extend(find("initdb").and_then(|path| Some(path.parent()?.to_owned())));
    let wanted = ["initdb", "postgres", "pgbench", "pg_dump", "psql", "createdb", "pg_isready"];
    let complete =
        |directory: &PathBuf| wanted.iter().all(|program| directory.join(program).exists());
    let found = directories.into_iter().rfind(complete);
    Ok(found.ok_or_else(|| Skip("PostgreSQL (initdb, pgbench) is not installed".to_owned()))?)
}

/// A client that knows nothing of the proxies, and a program on the ingress' own machine: TPROXY
/// brings the connections of both to the ingress.
pub(super) fn transparent(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["nft", "curl"])?;
    let site = Proxies::start(lab, 50, &[], &["--transparent", "127.0.0.1:7800"])?;
    let router = &site.pair.ingress;
    router.output("ip", &["rule", "add", "fwmark", "1", "lookup", "100"])?;
    router.output("ip", &["route", "add", "local", "default", "dev", "lo", "table", "100"])?;
    let rules = site.directory.join("rules.nft");
    fs::write(&rules, format!("{RULES}{}", output_rules_of_egress()?))?;
    let loaded = router.command("nft").arg("-f").arg(&rules).output()?;
    if !loaded.status.success() {
        return Err(Skip(format!("this kernel has no TPROXY: {}", reported(&loaded).trim())).into());
    }
    let text = corpus::text(1_000_000, 1);
    let directory = site.directory.join("web");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("text"), &text)?;
    let mut command = site.pair.server.command("python3");
    command.args(["-m", "http.server", "80", "--directory"]).arg(&directory);
    require(&["python3"])?;
    let _service = site.serve(command, 80)?;
    for (host, name) in [(&site.pair.client, "of-client"), (router, "of-router")] {
        let to = site.directory.join(name);
        let mut command = host.command("curl");
        command.args(["-sS", "--fail", "--max-time", "30", "-o"]).arg(&to);
        succeeds(command.arg(format!("http://{SERVER}/text")))?;
        ensure!(fs::read(&to)? == text, "{name}: the text differs");
    }
    let [ingress, _] = site.stop()?;
    ensure!(ingress.streams.finished == 2, "one did not pass the ingress: {ingress:#?}");
    Ok(())
}

/// Rules that hold for the egress' address as well: the ingress, which is somebody else's, is left
/// alone all the same.
fn output_rules_of_egress() -> anyhow::Result<String> {
    let (narrow, wide) = ("10.2.0.0/24 tcp dport 80", "10.0.0.0/8 tcp dport { 80, 7734 }");
    ensure!(OUTPUT_RULES.contains(narrow), "rules for other addresses");
    Ok(OUTPUT_RULES.replace(narrow, wide))
}

/// As docs/proxy.md has it.
const RULES: &str = "table ip dwell {
    chain prerouting {
        type filter hook prerouting priority mangle
        ip daddr 10.2.0.0/24 tcp dport 80 tproxy to 127.0.0.1:7800 meta mark set 1
    }
}
";

/// What is added for connections of the machine itself, as docs/proxy.md has it.
const OUTPUT_RULES: &str = "table ip dwell {
    chain output {
        type route hook output priority mangle
        meta skuid nobody return
        ip daddr 10.2.0.0/24 tcp dport 80 meta mark set 1
    }
}
";

/// A receiver without a default route names an address all the same, and it leads there.
pub(super) fn receive(lab: &mut Lab) -> anyhow::Result<()> {
    let pair = pair(lab, PairSpec::thin(Rate::from_mbps(50), 0))?;
    let directory = lab.directory();
    let text = corpus::text(100_000, 1);
    fs::write(directory.join("sent"), &text)?;
    let mut command = pair.egress.command(DWELL);
    command.args(["recv", "received"]).current_dir(&directory).stderr(Stdio::piped());
    let mut receiver = Process::spawn(&mut command)?;
    let said = receiver.child().stderr.take().context("a pipe")?;
    let mut lines = BufReader::new(said).lines();
    let line = lines.next().context("a line")??;
    let words = line.split_once("dwell send FILE ").context("a command")?.1;
    let at = words.parse::<Code>()?.at.to_string();
    ensure!(at.starts_with("10."), "{line}: {at}");
    let others = lines.next().context("another line")??;
    ensure!(others.contains("10.2.0.1:7735") || at == "10.2.0.1:7735", "{others}");
    ensure!(others.contains("10.0.0.2:7735") || at == "10.0.0.2:7735", "{others}");
    ensure!(!others.contains("127.0.0.1") && !others.contains("[fe80"), "{others}");
    let mut command = pair.client.command(DWELL);
    succeeds(command.args(["send", "sent", words]).current_dir(&directory))?;
    let exit = receiver.wait_timeout(Duration::from_secs(30))?;
    ensure!(exit.is_some_and(|exit| exit.success()), "the receiver ended with {exit:?}");
    ensure!(fs::read(directory.join("received"))? == text, "the text differs");
    Ok(())
}

/// Over a long way the first bytes go before TLS's handshake has ended, or none do: what arrives is the same.
pub(super) fn early(lab: &mut Lab) -> anyhow::Result<()> {
    let pair = pair(lab, PairSpec::thin(Rate::from_mbps(20), 25))?;
    let directory = lab.directory();
    let key = directory.join("transfer.psk");
    succeeds(Command::new(DWELL).args(["genpsk", "--out"]).arg(&key))?;
    for (when, len) in [("auto", 1000), ("auto", 3_000_000), ("never", 300_000)] {
        let text = corpus::text(len, 1);
        fs::write(directory.join("sent"), &text)?;
        let mut command = pair.egress.command(DWELL);
        command
            .args(["recv", "--overwrite", "--psk"])
            .arg(&key)
            .arg("early")
            .current_dir(&directory);
        let mut receiver = Process::spawn(command.stderr(Stdio::piped()))?;
        let said = receiver.child().stderr.take().context("a pipe")?;
        BufReader::new(said).lines().next().context("a line")??;
        let mut command = pair.client.command(DWELL);
        command.args(["send", "sent", "10.2.0.1", "--early-data", when, "--psk"]).arg(&key);
        succeeds(command.current_dir(&directory))?;
        let exit = receiver.wait_timeout(Duration::from_secs(30))?;
        ensure!(exit.is_some_and(|exit| exit.success()), "the receiver ended with {exit:?}");
        ensure!(
            fs::read(directory.join("early"))? == text,
            "{len} bytes, {when}: the text differs"
        );
    }
    Ok(())
}

/// The commands of docs/proxy.md, as they stand there.
pub(super) fn documented(lab: &mut Lab) -> anyhow::Result<()> {
    const PAGE: &str = include_str!("../../../../../docs/proxy.md");
    require(&["python3", "curl"])?;
    let has_rules = PAGE.contains(RULES) && PAGE.contains(OUTPUT_RULES);
    ensure!(has_rules, "docs/proxy.md has other rules for TPROXY");
    let pair = pair(lab, PairSpec::thin(Rate::from_mbps(50), 0))?;
    let directory = lab.directory().join("documented");
    fs::create_dir_all(&directory)?;
    let mut command = pair.egress.command("python3");
    command.args(["-m", "http.server", "8000", "--bind", "127.0.0.1"]).current_dir(&directory);
    let _server = Process::spawn(command.stderr(Stdio::null()).stdout(Stdio::null()))?;
    let listens = || pair.egress.run(|| TcpStream::connect("127.0.0.1:8000").is_ok());
    wait_until("a server listens", || Ok(listens()?))?;
    let mut proxies = Vec::new();
    let mut done = 0;
    for line in PAGE.lines() {
        let (host, line) = match line.split_once("$ ") {
            Some(("egress", line)) => (&pair.egress, line),
            Some(("ingress", line)) => (&pair.ingress, line),
            _ => continue,
        };
        let mut words = line.split_whitespace();
        let program = words.next().context("a command")?;
        let mut command = host.command(if program == "dwell" { DWELL } else { program });
        command.args(words).current_dir(&directory).stdout(Stdio::null());
        match line.strip_prefix("dwell proxy ").and_then(|rest| rest.split(' ').next()) {
            Some(role) => proxies.push(launch(command, &directory, role)?),
            None => drop(succeeds(&mut command)?),
        }
        done += 1;
    }
    ensure!(done == 6 && proxies.len() == 2, "{done} commands of docs/proxy.md were found");
    ensure!(status("ingress")?.streams.finished == 2, "{:#?}", status("ingress")?);
    for mut proxy in proxies {
        ensure!(proxy.stop()?.success(), "a proxy does not stop as it should");
    }
    Ok(())
}
