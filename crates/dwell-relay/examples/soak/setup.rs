//! Settings of a relay of the pair.

use std::path::Path;

use dwell_base::Rng;
use dwell_relay::config::{Config, ReadSecretError, SCHEMES, Secret};
use dwell_relay::trust::public_key;

/// Rates that a reload may change to.
const RATES: [&str; 4] = ["64kbit", "300kbit", "5mbit", "auto"];
/// Those that a run may begin with: one that is written, and none.
pub(crate) const FIRST_RATES: [&str; 2] = ["300kbit", "auto"];
const CODECS: [&str; 5] = ["zstd:1", "auto", "lz4", "ppm", "deflate:6"];
/// What is to be saved, what compressing may take, and what all contexts together: as before, and each of them limited now and then.
const OBJECTIVES: [&str; 3] = ["time", "time", "bytes"];
const SHARES: [&str; 3] = ["auto", "auto", "40%"];
const HISTORIES: [&str; 3] = ["auto", "auto", "32MiB"];

/// A configuration in short.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    scheme: String,
    codec: String,
    /// Reloads change it, too.
    changes_codec: bool,
    rate: &'static str,
    objective: &'static str,
    cpu: &'static str,
    history_memory: &'static str,
    /// Key pairs, and sessions that are renewed every two minutes; or a key that both have.
    keyed: bool,
}

impl Setup {
    /// Begins with this scheme, and keeps to this codec, if one is named.
    pub(crate) fn new(scheme: &str, codec: Option<&str>, rate: &'static str, keyed: bool) -> Self {
        let (scheme, changes_codec) = (scheme.to_owned(), codec.is_none());
        let codec = codec.unwrap_or(CODECS[0]).to_owned();
        let (objective, cpu, history_memory) = (OBJECTIVES[0], SHARES[0], HISTORIES[0]);
        Self { scheme, codec, changes_codec, rate, objective, cpu, history_memory, keyed }
    }

    /// What waits may be compressed by the scheme that is meant for it.
    pub(crate) fn compresses(&self) -> bool {
        self.scheme == "auto"
    }

    /// Another rate, and perhaps other limits; every other time another codec and scheme as well, unless a codec was named: then contexts
    /// are what matters.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        fn any<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
            of[rng.below(of.len() as u64) as usize]
        }
        self.rate = any(rng, &RATES);
        self.objective = any(rng, &OBJECTIVES);
        self.cpu = any(rng, &SHARES);
        self.history_memory = any(rng, &HISTORIES);
        if self.changes_codec && rng.chance(0.5) {
            any(rng, &SCHEMES).clone_into(&mut self.scheme);
            any(rng, &CODECS).clone_into(&mut self.codec);
            // It predicts from what went before: others have no history.
            if self.codec == "ppm" {
                "auto".clone_into(&mut self.scheme);
            }
        }
    }

    pub(crate) fn config(&self, side: usize) -> Result<Config, String> {
        let Self { scheme, codec, rate, cpu, history_memory, keyed, .. } = self;
        // Others gather nothing that would save bytes, and are refused.
        let objective = if self.compresses() { self.objective } else { OBJECTIVES[0] };
        let (own, other) = (side + 1, 2 - side);
        let private =
            if *keyed { format!("private_key_file = \"{own}\"\n") } else { String::new() };
        let security = if *keyed {
            let public = public_key(&secret(other as u8)).ok_or("a key is none")?;
            format!("public_key = \"{public}\"\n")
        } else {
            "psk_file = \"5\"\n".to_owned()
        };
        // Models of 1 MiB are full soon, and restart: then memory that is theirs is also in use.
        let text = format!(
            "[node]\naddresses = [\"10.{own}.0.1/16\"]\nhistory_memory = \"{history_memory}\"\n{private}[[peer]]\nname = \"other\"\n\
             endpoint = \"192.0.2.{other}:7733\"\nprefixes = [\"10.{other}.0.0/16\"]\n\
             rate = \"{rate}\"\nscheme = \"{scheme}\"\ncodec = \"{codec}\"\nmodel_memory = \"1MiB\"\n\
             objective = \"{objective}\"\ncpu = \"{cpu}\"\n{security}",
        );
        Config::parse(&text, "soak.toml", &read).map_err(|e| e.to_string())
    }
}

/// The key in a file of this name is the name's first byte, 32 times.
fn read(path: &Path) -> Result<Secret, ReadSecretError> {
    let name = path.as_os_str().as_encoded_bytes();
    Ok(secret(name.last().map_or(0, |digit| digit & 15)))
}

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}
