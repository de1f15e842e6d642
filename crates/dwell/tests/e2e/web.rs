//! nginx and curl.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, ensure};
use dwell_lab::corpus;
use dwell_lab::lab::{Host, Process};

use crate::harness::{find, has_ipv6, require};
use crate::site::{SERVERS, Site, wait_until};

/// A server with some files.
pub(crate) struct Web {
    process: Process,
    root: PathBuf,
}

impl Web {
    /// nginx on the server host, with `text` and `random` of these sizes in bytes.
    pub(crate) fn start(site: &Site, text: usize, random: usize) -> anyhow::Result<Self> {
        require(&["nginx", "curl"])?;
        let root = site.directory.join("web");
        fs::create_dir_all(&root)?;
        fs::write(root.join("text"), corpus::text(text, 1))?;
        fs::write(root.join("random"), corpus::incompressible(random, 1))?;
        let config = site.directory.join("nginx.conf");
        fs::write(&config, configuration(&site.directory))?;
        let nginx = find("nginx").unwrap_or_default();
        let log = site.directory.join("nginx.log");
        let mut command = site.pair.server.command(nginx);
        command.arg("-p").arg(&site.directory).arg("-e").arg(&log).arg("-c").arg(&config);
        let mut process = Process::spawn(&mut command)?;
        wait_until("nginx listens", || {
            if let Some(status) = process.try_wait()? {
                bail!("nginx ended with {status}: {}", fs::read_to_string(&log)?);
            }
            Ok(site.pair.server.run(|| TcpStream::connect((SERVERS[0], 80)).is_ok())?)
        })?;
        Ok(Self { process, root })
    }

    /// Begins to fetch a file.
    pub(crate) fn begin(
        &self,
        client: &Host,
        server: &str,
        file: &str,
    ) -> anyhow::Result<Download> {
        let to = self.root.with_file_name(format!("{file}.fetched"));
        // A file of an earlier download would look like progress of this one.
        let _ = fs::remove_file(&to);
        let address = if server.contains(':') { format!("[{server}]") } else { server.to_owned() };
        let mut command = client.command("curl");
        command.args(["-sS", "--fail", "--max-time", "60", "--no-buffer", "-o"]).arg(&to);
        command.arg(format!("http://{address}/{file}"));
        let process = Process::spawn(&mut command)?;
        Ok(Download { process, from: self.root.join(file), to })
    }

    /// Fetches a file whole.
    pub(crate) fn fetch(&self, client: &Host, server: &str, file: &str) -> anyhow::Result<()> {
        self.begin(client, server, file)?.finish()
    }

    /// Fetches each file over each version of IP.
    pub(crate) fn fetch_all(&self, client: &Host) -> anyhow::Result<()> {
        for server in servers() {
            for file in ["text", "random"] {
                self.fetch(client, server, file)?;
            }
        }
        Ok(())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // What the lab's end would do too.
        let _ = self.process.stop();
    }
}

/// The server's addresses that this kernel can reach.
pub(crate) fn servers() -> &'static [&'static str] {
    if has_ipv6() { &SERVERS } else { &SERVERS[..1] }
}

/// A file on its way.
pub(crate) struct Download {
    process: Process,
    from: PathBuf,
    to: PathBuf,
}

impl Download {
    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        fs::metadata(&self.to).map_or(0, |data| data.len())
    }

    /// Waits until so much has arrived, and not all.
    pub(crate) fn reach(&mut self, bytes: u64) -> anyhow::Result<()> {
        wait_until("a download makes progress", || Ok(self.bytes() >= bytes))?;
        ensure!(self.process.try_wait()?.is_none(), "the download is over too soon");
        Ok(())
    }

    /// Waits for the end, and compares.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let Some(status) = self.process.wait_timeout(Duration::from_secs(65))? else {
            bail!("curl hangs after {} bytes", self.bytes());
        };
        ensure!(status.success(), "curl ended with {status} after {} bytes", self.bytes());
        let (sent, arrived) = (fs::read(&self.from)?, fs::read(&self.to)?);
        ensure!(sent.len() == arrived.len(), "{} of {} bytes", arrived.len(), sent.len());
        let differs = sent.iter().zip(&arrived).position(|(a, b)| a != b);
        ensure!(differs.is_none(), "byte {} differs", differs.unwrap_or_default());
        Ok(())
    }
}

/// One process that stays in the foreground and does not change its user: in the lab of an
/// ordinary user there is no other.
fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    let listen = if has_ipv6() { "listen 80; listen [::]:80;" } else { "listen 80;" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {directory}/{what};\n"))
        .concat();
    format!(
        "user root root;\ndaemon off;\nmaster_process off;\npid {directory}/nginx.pid;\n\
         events {{ worker_connections 64; }}\n\
         http {{\naccess_log off;\n{temporary}\
         server {{ {listen} root {directory}/web; }}\n}}\n"
    )
}
