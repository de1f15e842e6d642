//! The web page: `[web]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use dwell_base::text::printable;
use toml::de::DeValue;

use super::error::Errors;
use super::read::Secrets;
use super::table::Table;
use super::value;
use super::{ReadSecretError, Secret};

/// The keys of `[web]`.
pub const WEB_KEYS: [&str; 3] = ["listen", "password_file", "hosts"];

/// Shorter passwords are guessed.
const PASSWORD_CHARS_MIN: usize = 12;
const PASSWORD_CHARS_MAX: usize = 256;
const HOSTS_MAX: usize = 16;
const HOST_BYTES_MAX: usize = 253;

/// The web page of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebConfig {
    /// The address at which it is served. Without a password only this machine's own programs reach it.
    pub listen: SocketAddr,
    /// The password that readers must know, if there is one.
    pub password: Option<WebPassword>,
    /// The names by which it may be asked, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// A password, of which only a hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct WebPassword(Secret);

impl WebPassword {
    /// Makes it from the text in its file; line ends around it do not count.
    ///
    /// # Errors
    /// If it is too short or too long, or has control characters.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim_matches(['\r', '\n']);
        let chars = text.chars().count();
        if chars < PASSWORD_CHARS_MIN {
            return Err(format!(
                "it has {chars} characters, and a password needs {PASSWORD_CHARS_MIN}: `dwell genpsk \
                 --out FILE` makes one that nobody guesses"
            ));
        }
        if chars > PASSWORD_CHARS_MAX || text.contains(char::is_control) {
            return Err(format!(
                "a password is one line of at most {PASSWORD_CHARS_MAX} characters"
            ));
        }
        Ok(Self(hash(text)))
    }

    /// Returns true if this is the password. How long that takes does not depend on where they differ.
    pub fn is(&self, text: &str) -> bool {
        self.0 == hash(text)
    }
}

fn hash(text: &str) -> Secret {
    let mut bytes = [0; Secret::BYTES];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    Secret::new(bytes)
}

impl fmt::Debug for WebPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[password]")
    }
}

/// Reads the table. None if it can't be used; then there are errors.
pub(super) fn read(
    table: &Table<'_>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<WebConfig> {
    table.refuse_unknown(&WEB_KEYS, |_| None, errors);
    let hosts = table.get_list("hosts", "[\"relay.example.org\"]", errors, host);
    let hosts: Vec<String> = hosts.into_iter().flatten().map(|it| it.value).collect();
    if hosts.len() > HOSTS_MAX {
        let message = format!("there are {} names, and at most {HOSTS_MAX} may be", hosts.len());
        table.fail("hosts", table.line, message, errors);
    }
    let has_file = table.has("password_file");
    let password = table
        .get("password_file", errors, |value| {
            let name = PathBuf::from(value::text(value, "/etc/dwell/web.password")?);
            let text = (secrets.read_password)(&secrets.directory.join(&name));
            let text = text.map_err(|error| explain(&name, &error))?;
            WebPassword::new(&text).map_err(|why| format!("{}: {why}", name.display()))
        })
        .map(|it| it.value);
    if !table.has("listen") {
        let message = "needs listen, for instance listen = \"127.0.0.1:7780\"".to_owned();
        table.fail_whole(message, errors);
    }
    let listen = table.get("listen", errors, |value| {
        let example = "127.0.0.1:7780";
        let wrong = |_| format!("must be an IP address and a port such as \"{example}\"");
        value::text(value, example)?.parse::<SocketAddr>().map_err(wrong)
    })?;
    if !listen.value.ip().is_loopback() && !has_file {
        let message = format!(
            "{} is reached from outside, which needs a password: write password_file = \
             \"/etc/dwell/web.password\" (`dwell genpsk --out` that file makes one), or listen on 127.0.0.1",
            listen.value
        );
        table.fail("listen", listen.line, message, errors);
    }
    Some(WebConfig { listen: listen.value, password, hosts })
}

fn explain(path: &std::path::Path, error: &ReadSecretError) -> String {
    match error {
        ReadSecretError::Exposed { .. } => error.to_string(),
        _ => format!("{} can't be read: {error}", path.display()),
    }
}

fn host(value: &DeValue<'_>) -> Result<String, String> {
    let text = value::text(value, "relay.example.org")?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(is_name) {
        return Err(format!(
            "must be a host name without port such as \"relay.example.org\", not \"{}\"",
            printable(text)
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_never_shown() {
        let password = WebPassword::new("correct horse\n").unwrap();
        assert!(password.is("correct horse"));
        for wrong in ["", "correct hors", "correct horse ", "correct horse\n"] {
            assert!(!password.is(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{password:?}"), "[password]");
        for bad in ["", "short", "two lines\nof text", &"x".repeat(257)] {
            assert!(WebPassword::new(bad).is_err(), "{bad:?}");
        }
        assert!(WebPassword::new(" has spaces around ").unwrap().is(" has spaces around "));
    }
}
