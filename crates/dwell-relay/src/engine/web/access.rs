//! Who may read the web page: whoever knows the password, if there is one, and names this host.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dwell_base::base64;

use super::super::http::Request;
use crate::config::WebConfig;

/// Whoever tries a wrong password waits this long, and holds one of the clients' few places meanwhile: so
/// nobody can try many. Who knows it does not wait.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a user's name and a password: several times what a password has.
const CREDENTIALS_BYTES_MAX: usize = 4_096;
/// Wrong passwords are logged this often at most.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Whether a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    /// There is a password, and none was sent.
    Unauthorized,
    /// There is a password, and this is not it.
    WrongPassword,
    /// A name leads here that is not this host's: a page of somebody else may be asking.
    WrongHost,
    /// Another site's page asks.
    CrossSite,
}

/// What is asked of readers.
#[derive(Debug)]
pub(super) struct Access {
    config: WebConfig,
    tries: Mutex<Tries>,
}

#[derive(Debug)]
struct Tries {
    log_at: Instant,
    wrong: u64,
}

impl Access {
    pub(super) fn new(config: WebConfig) -> Self {
        let now = Instant::now();
        Self { config, tries: Mutex::new(Tries { log_at: now, wrong: 0 }) }
    }

    /// Judges a request.
    pub(super) fn verdict(&self, request: &Request<'_>) -> Verdict {
        if !request.header("host").is_some_and(|host| self.is_own(host)) {
            return Verdict::WrongHost;
        }
        if is_cross_site(request) {
            return Verdict::CrossSite;
        }
        let Some(password) = &self.config.password else { return Verdict::Granted };
        match request.header("authorization").and_then(sent_password) {
            Some(text) if password.is(&text) => Verdict::Granted,
            Some(_) => {
                self.note_wrong();
                Verdict::WrongPassword
            }
            None => Verdict::Unauthorized,
        }
    }

    /// A page whose name was made to lead here (DNS rebinding) asks with that name. An address can't be made to
    /// lead elsewhere.
    fn is_own(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((address, port)) if is_port(port) => {
                    return address.parse::<std::net::Ipv6Addr>().is_ok();
                }
                _ => return false,
            },
            None => match host.split_once(':') {
                Some((name, port)) if is_port(&host[name.len()..]) && !port.is_empty() => name,
                Some(_) => return false,
                None => host,
            },
        };
        let is_named = |own: &String| own.eq_ignore_ascii_case(name);
        name.parse::<std::net::Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.config.hosts.iter().any(is_named)
    }

    /// Counts a wrong password, and logs how many there were if that was not done lately.
    fn note_wrong(&self) {
        let now = Instant::now();
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        tries.wrong += 1;
        if now >= tries.log_at {
            let wrong = std::mem::take(&mut tries.wrong);
            tries.log_at = now + LOG_PAUSE;
            drop(tries);
            tracing::warn!("the web page was asked for with a wrong password, {wrong} times");
        }
    }
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|digits| digits.parse::<u16>().is_ok())
}

/// Browsers say so of what other sites' pages embed or fetch. To follow a link from there is allowed.
fn is_cross_site(request: &Request<'_>) -> bool {
    let is_elsewhere = matches!(request.header("sec-fetch-site"), Some("cross-site" | "same-site"));
    is_elsewhere && request.header("sec-fetch-mode") != Some("navigate")
}

/// Returns the password of basic authentication (RFC 7617), whatever the user's name.
fn sent_password(header: &str) -> Option<String> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut bytes = [0; CREDENTIALS_BYTES_MAX];
    let len = base64::decode(encoded.trim().as_bytes(), &mut bytes)?;
    let text = str::from_utf8(&bytes[..len]).ok()?;
    Some(text.split_once(':')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WebPassword;

    fn access(password: Option<&str>) -> Access {
        let password = password.map(|text| WebPassword::new(text).unwrap());
        let listen = ([127, 0, 0, 1], 7780).into();
        Access::new(WebConfig { listen, password, hosts: vec!["relay.example.org".to_owned()] })
    }

    fn verdict(access: &Access, headers: &str) -> Verdict {
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
        access.verdict(&Request::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn only_this_hosts_names_are_answered() {
        let open = access(None);
        for host in [
            "127.0.0.1",
            "127.0.0.1:7780",
            "10.77.0.1:7780",
            "[::1]:7780",
            "[fd77::1]",
            "localhost:7780",
            "LOCALHOST",
            "Relay.Example.org:7780",
        ] {
            assert_eq!(verdict(&open, &format!("Host: {host}")), Verdict::Granted, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7780",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:7780:1",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "[::1",
            "[::1]x",
            "[evil.example]",
            "::1",
            "",
        ] {
            assert_eq!(verdict(&open, &format!("Host: {host}")), Verdict::WrongHost, "{host}");
        }
        assert_eq!(verdict(&open, "Accept: *"), Verdict::WrongHost, "there is none");
        let two = "Host: 127.0.0.1\r\nHost: evil.example";
        assert_eq!(verdict(&open, two), Verdict::WrongHost);
    }

    #[test]
    fn other_sites_can_link_here_but_not_embed_or_fetch() {
        let open = access(None);
        let from = |site: &str, mode: &str| {
            let headers =
                format!("Host: localhost\r\nSec-Fetch-Site: {site}\r\nSec-Fetch-Mode: {mode}");
            verdict(&open, &headers)
        };
        assert_eq!(from("cross-site", "navigate"), Verdict::Granted);
        assert_eq!(from("cross-site", "no-cors"), Verdict::CrossSite);
        assert_eq!(from("same-site", "cors"), Verdict::CrossSite);
        assert_eq!(from("same-origin", "cors"), Verdict::Granted);
        assert_eq!(from("none", "navigate"), Verdict::Granted);
    }

    #[test]
    fn the_password_is_asked_for_where_there_is_one() {
        let closed = access(Some("correct horse"));
        // dwell:correct horse
        let right = "Host: localhost\r\nAuthorization: Basic ZHdlbGw6Y29ycmVjdCBob3JzZQ==";
        assert_eq!(verdict(&closed, right), Verdict::Granted);
        // :correct horse
        let nobody = "Host: localhost\r\nauthorization: bAsIc OmNvcnJlY3QgaG9yc2U";
        assert_eq!(verdict(&closed, nobody), Verdict::Granted, "whoever it is");
        for wrong in [
            "",
            "Basic",
            "Basic ",
            "Basic !!!!",
            "Basic Y29ycmVjdCBob3JzZQ==", // no colon
            "Bearer ZHdlbGw6Y29ycmVjdCBob3JzZQ==",
            "Basic //79",
        ] {
            let headers = format!("Host: localhost\r\nAuthorization: {wrong}");
            assert_eq!(verdict(&closed, &headers), Verdict::Unauthorized, "{wrong}");
        }
        // Cut, longer.
        for wrong in ["ZHdlbGw6Y29ycmVjdCBob3Jz", "ZHdlbGw6Y29ycmVjdCBob3JzZSE="] {
            let headers = format!("Host: localhost\r\nAuthorization: Basic {wrong}");
            assert_eq!(verdict(&closed, &headers), Verdict::WrongPassword, "{wrong}");
        }
        assert_eq!(verdict(&closed, "Host: localhost"), Verdict::Unauthorized);
        let twice = format!("{right}\r\nAuthorization: Basic eDp5");
        assert_eq!(verdict(&closed, &twice), Verdict::Unauthorized);
    }

    #[test]
    fn who_knows_the_password_does_not_wait_for_those_who_do_not() {
        let closed = access(Some("correct horse"));
        let wrong = "Host: localhost\r\nAuthorization: Basic eDp5";
        // Whatever is held while wrong ones are counted, the right one needs none of it.
        let held = closed.tries.lock().unwrap();
        std::thread::scope(|scope| {
            let right = "Host: localhost\r\nAuthorization: Basic ZHdlbGw6Y29ycmVjdCBob3JzZQ==";
            let (say, said) = std::sync::mpsc::channel();
            let closed = &closed;
            scope.spawn(move || say.send(verdict(closed, right)));
            let granted = said.recv_timeout(Duration::from_secs(10));
            drop(held);
            assert_eq!(granted, Ok(Verdict::Granted));
        });
        (0..3).for_each(|_| assert_eq!(verdict(&closed, wrong), Verdict::WrongPassword));
        assert_eq!(closed.tries.lock().unwrap().wrong, 2, "the first was logged");
    }
}
