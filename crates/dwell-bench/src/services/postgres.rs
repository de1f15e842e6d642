//! PostgreSQL, with the clients that come with it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dwell_base::time::duration_ns;
use dwell_lab::lab::{Host, Process};
use dwell_testkit::postgres::{Programs, USER};

use super::super::bed::Bed;
use super::super::carriers::Carrier;
use super::super::tunnel::server;
use super::Seen;
use super::orders::{COLUMNS, Orders};
use super::task::Task;

/// The port of the server.
pub(super) const PORT: u16 = 5432;
/// The database.
const DATABASE: &str = "bench";
/// The time in which the server must be ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// The rows of a large answer.
const ROWS: usize = 1000;
/// Threads of pgbench, as this machine has few processors.
const THREADS_MAX: u32 = 2;

/// Fails if it isn't there.
pub(super) fn ensure_installed() -> anyhow::Result<()> {
    programs().map(drop)
}

fn programs() -> anyhow::Result<Programs> {
    Programs::find().context(
        "PostgreSQL with pgbench can't be found: install it, for instance: sudo apt install postgresql",
    )
}

/// A server with a table of orders.
#[derive(Debug)]
pub(super) struct Server<'a> {
    programs: Programs,
    directory: PathBuf,
    orders: &'a Orders,
    /// The first rows, which COPY moves.
    copied: usize,
    _process: Process,
}

impl<'a> Server<'a> {
    /// Starts it; what was there before is made again.
    pub(super) fn start(bed: &Bed<'_>, orders: &'a Orders, copied: usize) -> anyhow::Result<Self> {
        let programs = programs()?;
        let directory = bed.lab.directory().join("postgres");
        if directory.exists() {
            fs::remove_dir_all(&directory).context("a database of before can't be removed")?;
        }
        fs::create_dir_all(&directory).context("a directory for PostgreSQL can't be made")?;
        let (host, data) = (&bed.pair.server, directory.join("data"));
        programs.create(host, &data).context("no database could be made")?;
        let log = File::create(directory.join("log")).context("a log can't be written")?;
        let mut command = programs.server(host, &data, &directory, server(PORT).ip());
        // Nothing happens by itself meanwhile.
        command.args(["-c", "autovacuum=off"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(&mut command)?;
        let this = Self { programs, directory, orders, copied, _process: process };
        let end = Instant::now() + PATIENCE;
        while this.psql(host, Carrier::Plain, "postgres", "SELECT 1").output()?.stdout != b"1\n" {
            let log = this.directory.join("log");
            ensure!(
                Instant::now() < end,
                "PostgreSQL is not ready: {}",
                fs::read_to_string(log).unwrap_or_default()
            );
            bed.sleep(Duration::from_millis(50))?;
        }
        this.fill(host)?;
        Ok(this)
    }

    fn fill(&self, host: &Host) -> anyhow::Result<()> {
        let at_home = |database: &str, sql: &str| {
            succeed(&mut self.psql(host, Carrier::Plain, database, sql))
        };
        at_home("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        at_home(DATABASE, &format!("CREATE UNLOGGED TABLE orders ({COLUMNS})"))?;
        for (name, rows) in [("all", self.orders.len()), ("copied", self.copied)] {
            fs::write(self.path(name), self.orders.first(rows)).context("no room for a table")?;
        }
        let mut command = self.psql(host, Carrier::Plain, DATABASE, "COPY orders FROM STDIN");
        succeed(command.stdin(File::open(self.path("all"))?))?;
        at_home(DATABASE, "VACUUM ANALYZE orders")?;
        let first = format!("SELECT * FROM orders WHERE id <= {} ORDER BY id", self.copied);
        at_home(DATABASE, &format!("CREATE UNLOGGED TABLE part AS {first}"))?;
        at_home(DATABASE, "CREATE UNLOGGED TABLE target (LIKE orders)")?;
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns a client that is to do this.
    fn psql(&self, host: &Host, carrier: Carrier, database: &str, sql: &str) -> Command {
        let mut command = self.client(host, "psql", carrier.address(PORT));
        command.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql]);
        command
    }

    fn client(&self, host: &Host, program: &str, at: SocketAddr) -> Command {
        let mut command = host.command(self.programs.path(program));
        let (address, port) = (at.ip().to_string(), at.port().to_string());
        command.args(["-h", &address, "-p", &port, "-U", USER]).stdin(Stdio::null());
        // The carriers encrypt: the server is not asked whether it would, too, which takes a round trip each.
        command.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
        command.env("PGCONNECT_TIMEOUT", "20");
        command
    }

    /// Does something for this time.
    pub(super) fn serve(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        (task, clients): (Task, u32),
        time: Duration,
    ) -> anyhow::Result<Seen> {
        match task {
            Task::Point | Task::Rows => self.query(bed, carrier, (task, clients), time),
            Task::CopyOut => self.copy(bed, time, || self.copy_out(bed, carrier)),
            Task::CopyIn => self.copy(bed, time, || self.copy_in(bed, carrier)),
            _ => bail!("PostgreSQL has nothing to do with {task}"),
        }
    }

    /// One query after the other, by pgbench.
    fn query(
        &self,
        bed: &Bed<'_>,
        carrier: Carrier,
        (task, clients): (Task, u32),
        time: Duration,
    ) -> anyhow::Result<Seen> {
        let rows = if task == Task::Rows { ROWS.min(self.orders.len()) } else { 1 };
        let script = self.path("script.sql");
        let last = self.orders.len() - rows + 1;
        let text = format!(
            "\\set id random(1, {last})\n\
             SELECT * FROM orders WHERE id BETWEEN :id AND :id + {};\n",
            rows - 1
        );
        fs::write(&script, text).context("a script can't be written")?;
        let logs = self.path("transactions");
        fs::create_dir_all(&logs).context("a directory for logs can't be made")?;
        let mut command = self.client(&bed.pair.client, "pgbench", carrier.address(PORT));
        let threads = clients.min(THREADS_MAX).to_string();
        // It takes whole seconds.
        let seconds = (time.as_secs_f64().ceil() as u64).to_string();
        command.args(["-n", "-c", &clients.to_string(), "-j", &threads, "-T", &seconds]);
        command.args(["--random-seed", "1", "-l", "--log-prefix"]).arg(logs.join("of")).arg("-f");
        let said = succeed(command.arg(&script).arg(DATABASE))?;
        let took_ns = latencies(&logs)?;
        fs::remove_dir_all(&logs).context("logs can't be removed")?;
        let Said { count, per_second } = Said::read(&said).context("pgbench says nothing")?;
        ensure!(count > 0 && took_ns.len() as u64 == count, "{count} transactions: {said}");
        Ok(Seen { count, window: Duration::from_secs_f64(count as f64 / per_second), took_ns })
    }

    /// Copies until the time is over, once at least.
    fn copy(
        &self,
        bed: &Bed<'_>,
        time: Duration,
        once: impl Fn() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Seen> {
        let (mut took_ns, mut window) = (Vec::new(), Duration::ZERO);
        while took_ns.is_empty() || window < time {
            bed.check()?;
            let took = once()?;
            took_ns.push(duration_ns(took));
            window += took;
        }
        Ok(Seen { count: took_ns.len() as u64, window, took_ns })
    }

    fn copy_out(&self, bed: &Bed<'_>, carrier: Carrier) -> anyhow::Result<Duration> {
        let to = self.path("received");
        let mut command = self.psql(&bed.pair.client, carrier, DATABASE, "COPY part TO STDOUT");
        let file = File::create(&to).context("what COPY brings can't be written")?;
        let begun = Instant::now();
        let status = command.stdout(file).status().context("psql can't be run")?;
        let took = begun.elapsed();
        ensure!(status.success(), "psql failed: {status}");
        let is_same = fs::read(&to)? == self.orders.first(self.copied).as_bytes();
        ensure!(is_same, "what COPY brought through {carrier} is not what is there");
        Ok(took)
    }

    fn copy_in(&self, bed: &Bed<'_>, carrier: Carrier) -> anyhow::Result<Duration> {
        let at_home =
            |sql: &str| succeed(&mut self.psql(&bed.pair.server, Carrier::Plain, DATABASE, sql));
        at_home("TRUNCATE target")?;
        let mut command = self.psql(&bed.pair.client, carrier, DATABASE, "COPY target FROM STDIN");
        let begun = Instant::now();
        succeed(command.stdin(File::open(self.path("copied"))?))?;
        let took = begun.elapsed();
        let is_same = at_home("COPY (SELECT * FROM target ORDER BY id) TO STDOUT")?
            == self.orders.first(self.copied);
        ensure!(is_same, "what COPY took through {carrier} is not what was sent");
        Ok(took)
    }
}

/// What pgbench says in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    count: u64,
    /// Without the time that connecting took.
    per_second: f64,
}

impl Said {
    fn read(text: &str) -> Option<Self> {
        let after = |words: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(words))?;
            line.split([' ', '/']).next()
        };
        Some(Self {
            count: after("number of transactions actually processed: ")?.parse().ok()?,
            per_second: after("tps = ")?.parse().ok()?,
        })
    }
}

/// Reads how long transactions took: the third number of each line.
fn latencies(logs: &Path) -> anyhow::Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(logs)? {
        let text = fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let us = line.split(' ').nth(2).and_then(|us| us.parse::<u64>().ok());
            all.push(1000 * us.with_context(|| format!("pgbench logs \"{line}\""))?);
        }
    }
    Ok(all)
}

fn succeed(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?} can't be run"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let text = "pgbench (15.18)\nnumber of clients: 8\n\
                    number of transactions actually processed: 1523\n\
                    number of failed transactions: 0 (0.000%)\nlatency average = 5.1 ms\n\
                    tps = 1530.250000 (without initial connection time)\n";
        let expected = Said { count: 1523, per_second: 1_530.25 };
        assert_eq!(Said::read(text), Some(expected));
        let of_so_many = text.replace("1523", "1523/1523");
        assert_eq!(Said::read(&of_so_many), Some(expected));
        assert_eq!(Said::read("pgbench: error"), None);
    }
}
