//! The keys by which a node and its peers configure the protection of datagrams.

use std::path::{Path, PathBuf};

use super::error::Errors;
use super::read::Secrets;
use super::table::{Located, Table};
use super::value::{self, SecurityKind};
use super::{PublicKey, ReadSecretError, Secret, Security};

/// The keys about it in `[defaults]` or in a `[[peer]]`.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    kind: Option<Located<SecurityKind>>,
    psk_file: Option<Located<PathBuf>>,
    public_key: Option<Located<PublicKey>>,
}

impl Protection {
    pub(super) fn read(table: &Table<'_>, errors: &mut Errors<'_>) -> Self {
        let it = Self {
            kind: table.get("security", errors, value::security),
            psk_file: table.get("psk_file", errors, value::key_file),
            public_key: table.get("public_key", errors, value::public_key),
        };
        it.refuse_contradictions(table, errors);
        it
    }

    fn refuse_contradictions(&self, table: &Table<'_>, errors: &mut Errors<'_>) {
        let Some(kind) = &self.kind else { return };
        let (has_psk, has_key) = (self.psk_file.is_some(), self.public_key.is_some());
        let contrary = match kind.value {
            SecurityKind::None if has_key => "public_key and security = \"none\"",
            SecurityKind::None if has_psk => "psk_file and security = \"none\"",
            SecurityKind::Psk if has_key => "public_key and security = \"psk\"",
            _ => return,
        };
        let message = format!("{contrary} contradict each other: remove one of them");
        table.fail("security", kind.line, message, errors);
    }

    /// The kind of this table, if it says one: by name, or by the keys that it has.
    fn own_kind(&self) -> Option<SecurityKind> {
        let named = self.kind.as_ref().map(|kind| kind.value);
        let by_key = self.public_key.as_ref().map(|_| SecurityKind::Keys);
        named.or(by_key).or_else(|| self.psk_file.as_ref().map(|_| SecurityKind::Psk))
    }

    fn line(&self) -> Option<usize> {
        let key = self.public_key.as_ref().map(|key| key.line);
        let psk = self.psk_file.as_ref().map(|file| file.line);
        key.or(psk).or_else(|| self.kind.as_ref().map(|kind| kind.line))
    }
}

/// The protection of a peer, and the line that configures it.
pub(super) struct Protected {
    pub(super) security: Security,
    pub(super) line: usize,
    /// It is said, and is not with a key.
    pub(super) without_key: bool,
}

/// Puts together what a peer says, what `[defaults]` says and the node's own key. With an
/// error, `Security::None` stands in for what could not be had.
pub(super) fn of_peer(
    table: &Table<'_>,
    (own, defaults): (&Protection, &Protection),
    private: Option<&Secret>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Protected {
    let kind = own.own_kind().or_else(|| defaults.own_kind());
    let line = own.line().or_else(|| defaults.line()).unwrap_or(table.line);
    let psk_file = own.psk_file.as_ref().or(defaults.psk_file.as_ref());
    let security = match kind {
        Some(SecurityKind::None) => Some(Security::None),
        Some(SecurityKind::Psk) => of_psk(table, psk_file, secrets, errors),
        Some(SecurityKind::Keys) => {
            of_keys(table, own.public_key.as_ref(), private, (psk_file, secrets), errors)
        }
        None => {
            unsaid(table, errors);
            None
        }
    };
    let without_key = kind == Some(SecurityKind::None);
    Protected { security: security.unwrap_or(Security::None), line, without_key }
}

fn unsaid(table: &Table<'_>, errors: &mut Errors<'_>) {
    // What is there and could not be read was reported already.
    if ["public_key", "psk_file", "security"].iter().any(|key| table.has(key)) {
        return;
    }
    let message = "it does not say how datagrams are protected: write public_key = \"KEY\", as \
                   `dwell pubkey` prints it at the peer; or psk_file = \"FILE\" (`dwell genpsk \
                   --out FILE` makes one, and the peer needs the same); or security = \"none\" if \
                   the path to it is protected already";
    table.fail_whole(message.to_owned(), errors);
}

fn of_psk(
    table: &Table<'_>,
    file: Option<&Located<PathBuf>>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Security> {
    let Some(file) = file else {
        if !table.has("psk_file") {
            let message = "security = \"psk\" needs a key: write psk_file = \"FILE\" (`dwell \
                           genpsk --out FILE` makes one, and the peer needs the same)";
            table.fail_whole(message.to_owned(), errors);
        }
        return None;
    };
    read_file(table, ("psk_file", GENPSK), file, secrets, errors).map(Security::Psk)
}

fn of_keys(
    table: &Table<'_>,
    public: Option<&Located<PublicKey>>,
    private: Option<&Secret>,
    (psk_file, secrets): (Option<&Located<PathBuf>>, &Secrets<'_>),
    errors: &mut Errors<'_>,
) -> Option<Security> {
    let Some(public) = public else {
        if !table.has("public_key") {
            let message = "security = \"keys\" needs the peer's key: write public_key = \"KEY\", \
                           as `dwell pubkey` prints it at the peer";
            table.fail_whole(message.to_owned(), errors);
        }
        return None;
    };
    let psk = match psk_file {
        Some(file) => Some(read_file(table, ("psk_file", GENPSK), file, secrets, errors)?),
        None => None,
    };
    let Some(private) = private else {
        if !secrets.has_private {
            let message = "this node has no key of its own, so that no peer could know it: write \
                           private_key_file = \"FILE\" under [node] (`dwell genkey --out FILE` \
                           makes one)";
            table.fail("public_key", public.line, message.to_owned(), errors);
        }
        return None;
    };
    if crate::trust::public_key(private) == Some(public.value) {
        let message = "this is the node's own key: write the one that `dwell pubkey` prints at \
                       the peer";
        table.fail("public_key", public.line, message.to_owned(), errors);
        return None;
    }
    Some(Security::Keys { private: private.clone(), peer: public.value, psk })
}

/// The node's own key.
pub(super) fn private_key(
    table: &Table<'_>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Secret> {
    let file = table.get("private_key_file", errors, value::private_key_file)?;
    read_file(table, ("private_key_file", GENKEY), &file, secrets, errors)
}

const GENPSK: &str = "genpsk --out";
const GENKEY: &str = "genkey --out";

fn read_file(
    table: &Table<'_>,
    (key, maker): (&str, &str),
    file: &Located<PathBuf>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Secret> {
    let path = secrets.directory.join(&file.value);
    match (secrets.read)(&path) {
        Ok(secret) => Some(secret),
        Err(error) => {
            let message = format!("{}: {}", path.display(), explain(&error, maker, &path));
            table.fail(key, file.line, message, errors);
            None
        }
    }
}

fn explain(error: &ReadSecretError, maker: &str, path: &Path) -> String {
    let io = match error {
        ReadSecretError::Io(io) => io,
        ReadSecretError::Exposed { .. } => return error.to_string(),
        // The commands leave a file that exists as it is.
        ReadSecretError::Format(_) => {
            let file = path.display();
            return format!(
                "it holds no key: there must be 32 bytes, as 64 hex digits or in base64; delete it \
                 and make it with `dwell {maker} {file}`"
            );
        }
    };
    match io.kind() {
        std::io::ErrorKind::NotFound => {
            let then = if maker == GENPSK { " and copy it to the peer" } else { "" };
            format!("there is no such file: make it with `dwell {maker} {}`{then}", path.display())
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{io}: run dwell as the user that owns it")
        }
        _ => io.to_string(),
    }
}
