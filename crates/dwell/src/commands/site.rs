//! The configuration of this machine's node as files: made, changed, and written so that nobody ever sees
//! half of one, nor anybody but its owner a key.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};
use dwell_relay::config::{Config, PublicKey, Secret, base64_of};
use dwell_relay::pairing::edit::{self, NewNode};
use dwell_relay::pairing::{
    Invitation, Invitations, Line, LineKind, OPEN_MAX, PASS_LEN, Pass, address,
};
use dwell_relay::trust::public_key;
use ipnet::IpNet;

use super::key_file;
use super::node::{self, Reloaded};
use dwell_cli::terminal;

/// The configuration that the packaged service runs with.
pub(super) const DEFAULT_CONFIG: &str = "/etc/dwell/relay.toml";
const PRIVATE_KEY_FILE: &str = "private.key";
/// Far more than any configuration needs.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// More than [`OPEN_MAX`] of them take.
const INVITATIONS_BYTES_MAX: u64 = 100 * OPEN_MAX as u64;
/// How long a line takes an answer, if nothing else was said.
pub(super) const OPEN_DAYS: u16 = 7;
const DAY_S: u64 = 86_400;

/// A node's file, and what it says.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) config: Config,
    /// Nobody else of this program changes the directory meanwhile.
    _lock: File,
}

impl Site {
    /// Reads a configuration; none if there is no such file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let lock = lock(path)?;
        let text = read_bounded(path, CONFIG_BYTES_MAX)
            .with_context(|| format!("{} can't be read: use sudo", path.display()))?;
        refuse_long(&text, path)?;
        let config = checked(&text, path)?;
        Ok(Some(Self { path: path.to_owned(), text, config, _lock: lock }))
    }

    /// The same for a file that must be there.
    pub(super) fn existing(path: &Path) -> anyhow::Result<Self> {
        Self::open(path)?.with_context(|| {
            let path = path.display();
            format!("there is no {path}: `dwell init` makes it, or name another file (--config)")
        })
    }

    /// Makes a node: its key and its configuration.
    pub(super) fn create(path: &Path, new: &NewNode) -> anyhow::Result<Self> {
        let directory = directory_of(path);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .with_context(|| format!("{} can't be made: use sudo", directory.display()))?;
        let lock = lock(path)?;
        let key = directory.join(&new.private_key_file);
        if !key.exists() {
            write(&key, &(base64_of(&key_file::random()?) + "\n"), 0o600)?;
        }
        let text = edit::new_config(new);
        let config = checked(&text, path)?;
        write(path, &text, 0o600)?;
        if path == Path::new(DEFAULT_CONFIG) {
            // For the account of savings. Without it there is a warning, and no more.
            let _ = std::fs::DirBuilder::new().recursive(true).mode(0o755).create("/var/lib/dwell");
        }
        Ok(Self { path: path.to_owned(), text, config, _lock: lock })
    }

    /// Returns what a text would be as this file.
    pub(super) fn checked(&self, text: &str) -> anyhow::Result<Config> {
        checked(text, &self.path)
    }

    /// Writes another text, if it is a valid configuration.
    pub(super) fn change(&mut self, text: String) -> anyhow::Result<()> {
        refuse_long(&text, &self.path)?;
        self.config = checked(&text, &self.path)?;
        let mode = std::fs::metadata(&self.path).map_or(0o600, |metadata| metadata.mode() & 0o777);
        write(&self.path, &text, mode)?;
        self.text = text;
        Ok(())
    }

    pub(super) fn private_key(&self) -> anyhow::Result<&Secret> {
        self.config.node.private_key.as_ref().with_context(|| {
            let path = self.path.display();
            format!("{path} names no private_key_file: make a key with `dwell genkey`, and name it there")
        })
    }

    pub(super) fn public_key(&self) -> anyhow::Result<PublicKey> {
        public_key(self.private_key()?).context("the private key is none")
    }

    /// What this node says of itself to others.
    pub(super) fn line(&self, kind: LineKind, has_psk: bool) -> anyhow::Result<Line> {
        let node = &self.config.node;
        let own = node.addresses.iter().map(address::host);
        let mut prefixes: Vec<IpNet> =
            self.config.pairing.prefixes.iter().copied().chain(own).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        if prefixes.is_empty() {
            bail!(
                "{} has neither addresses under [node] nor prefixes under [pairing], so that nothing \
                 could be sent here: add one",
                self.path.display()
            );
        }
        let endpoints = self.config.pairing.endpoints.clone();
        Ok(Line {
            kind,
            name: node.name.clone(),
            public_key: self.public_key()?,
            endpoints,
            prefixes,
            has_psk,
        })
    }

    /// Offers for other sites, which may take the free tunnel addresses after the first `skip`, one each.
    pub(super) fn offers(&self, skip: usize, count: usize) -> anyhow::Result<Vec<Line>> {
        let offer = |number| {
            let addresses = address::suggest(&self.config, skip + number);
            if addresses.is_empty() && !self.config.node.addresses.is_empty() {
                bail!(
                    "the networks of this node's tunnel addresses are full: give it one in a larger network, \
                     for instance addresses = [\"10.77.0.1/16\"] under [node]"
                );
            }
            let random = key_file::random()?;
            let (pass, _) =
                random.split_first_chunk::<PASS_LEN>().context("too few random bytes")?;
            self.line(LineKind::Offer { addresses, pass: Pass::new(*pass) }, false)
        };
        (0..count).map(offer).collect()
    }

    /// The same, and remembers them until they are answered, for so many days.
    pub(super) fn invite(&self, skip: usize, count: usize, days: u16) -> anyhow::Result<Vec<Line>> {
        let offers = self.offers(skip, count)?;
        let mut open = self.invitations()?;
        let until_s = now_s() + u64::from(days) * DAY_S;
        for invitation in offers.iter().filter_map(|offer| Invitation::of(offer, until_s)) {
            open.add(invitation)?;
        }
        self.write_invitations(&open)?;
        Ok(offers)
    }

    /// The offers that wait for their answers.
    pub(super) fn invitations(&self) -> anyhow::Result<Invitations> {
        let path = self.invitations_path();
        let text = match read_bounded(&path, INVITATIONS_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let path = path.display();
                return Err(error).with_context(|| format!("{path} can't be read: use sudo"));
            }
        };
        let invitations = Invitations::read(&text, now_s());
        invitations.with_context(|| format!("{} is not as it was written", path.display()))
    }

    /// Takes no other answer to this offer.
    pub(super) fn end_invitation(&self, offer: &str) -> anyhow::Result<()> {
        let mut open = self.invitations()?;
        open.end(offer);
        self.write_invitations(&open)
    }

    fn write_invitations(&self, open: &Invitations) -> anyhow::Result<()> {
        write(&self.invitations_path(), &open.to_string(), 0o600)
    }

    fn invitations_path(&self) -> PathBuf {
        self.path.with_extension("invitations")
    }

    /// Makes the relay that runs with this file read it, and says what came of it.
    pub(super) fn reload(&self) -> anyhow::Result<Reloaded> {
        let reloaded = node::reload(self.config.node.status.as_deref(), &self.path)?;
        match &reloaded {
            Reloaded::NotRunning => {}
            Reloaded::Taken(None) => terminal::note("the running relay has taken it"),
            Reloaded::Taken(Some(keys)) => terminal::note(&format!(
                "the running relay has taken it, but for {keys}: restart it for that"
            )),
        }
        Ok(reloaded)
    }
}

/// A node's own settings that were given, or are to be.
pub(super) fn new_node(name: String, path: &Path) -> NewNode {
    // Two configurations in one directory do not share a key by accident.
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let private_key_file = match &*stem {
        "relay" => PRIVATE_KEY_FILE.to_owned(),
        other => format!("{other}.key"),
    };
    NewNode {
        name,
        addresses: Vec::new(),
        listen: None,
        private_key_file: private_key_file.into(),
        endpoints: Vec::new(),
        prefixes: Vec::new(),
        rate: None,
    }
}

/// Reads a file up to one byte more than it should have.
fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let mut file = io::Read::take(File::open(path)?, bytes_max + 1);
    io::Read::read_to_string(&mut file, &mut text)?;
    Ok(text)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Relays read no longer ones.
fn refuse_long(text: &str, path: &Path) -> anyhow::Result<()> {
    ensure!(
        text.len() as u64 <= CONFIG_BYTES_MAX,
        "{} would be longer than 1 MiB, which no relay reads: take peers out of it",
        path.display()
    );
    Ok(())
}

fn checked(text: &str, path: &Path) -> anyhow::Result<Config> {
    Config::load_text(text, path).map_err(|errors| {
        let path = path.display();
        anyhow::anyhow!("{path} would not be valid, and is left as it is:\n{errors}")
    })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until no other process of this program changes the directory. The lock goes with the descriptor.
fn lock(path: &Path) -> anyhow::Result<File> {
    let directory = directory_of(path);
    let file = File::open(directory)
        .with_context(|| format!("{} can't be opened: use sudo", directory.display()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .with_context(|| format!("{} can't be locked", directory.display()))?;
    Ok(file)
}

/// Writes a file whole or not at all, readable as `mode` says from its first moment, and for the owner of
/// the one that it replaces.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        if let Ok(old) = std::fs::metadata(path) {
            // Whoever may not give files away writes their own.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(directory_of(path))?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(|| format!("{} can't be written: use sudo", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_whole_private_and_without_rests() {
        let directory = std::env::temp_dir().join(format!("dwell-site-{}", std::process::id()));
        let path = directory.join("deep/relay.toml");
        let mut new = new_node("site-a".to_owned(), &path);
        new.addresses = vec![address::DEFAULT_ADDRESS.parse().unwrap()];
        let mut site = Site::create(&path, &new).unwrap();
        let mode = |name: &str| {
            let metadata = std::fs::metadata(path.with_file_name(name)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!((mode("relay.toml"), mode("private.key")), (0o600, 0o600));
        let key = std::fs::read_to_string(path.with_file_name("private.key")).unwrap();
        let text = site.text.clone();
        let error = site.change("[node]\nrate = 1\n".to_owned()).unwrap_err().to_string();
        assert!(error.contains("is left as it is"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        site.change(text.clone() + "# mine\n").unwrap();
        drop(site);
        let site = Site::existing(&path).unwrap();
        assert!(site.text.ends_with("# mine\n"));
        let line = site.invite(0, 1, OPEN_DAYS).unwrap().remove(0).to_string();
        assert!(line.contains("you=10.77.0.2/24"), "{line}");
        assert!(!line.contains(key.trim().trim_end_matches('=')), "no secret is in it");
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 3, "nothing else is left");
        assert_eq!(mode("relay.invitations"), 0o600);
        drop(site);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
