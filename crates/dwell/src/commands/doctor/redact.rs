//! Leaves out of a text what looks like a key.

use dwell_relay::config::Secret;
use toml::{Table, Value};

/// What stands instead.
const LEFT_OUT: &str = "[left out: it looks like a secret]";
/// What a configuration begins with that was understood, and so is written as parsed.
const AS_PARSED: &str = "# As it was understood: without comments, and sorted.\n";

/// Returns the text of a configuration without anything that could be a key. Public keys stay, and names of files.
///
/// Of a file that is TOML only what was understood is written, so that nothing hides in comments. Of one that
/// is not, lines end where a name begins that secrets have.
pub(super) fn redact_configuration(text: &str) -> String {
    let written =
        text.parse::<Table>().ok().and_then(|table| toml::to_string(&redact_table(table)).ok());
    match written {
        Some(text) => format!("{AS_PARSED}{text}"),
        None => redact_lines(text),
    }
}

/// Returns a message or what a command says without anything that could be a key.
pub(super) fn redact(text: &str) -> String {
    let line = |line: &str| match end_of_secret_name(line, true) {
        Some(at) => format!("{}{LEFT_OUT}\n", redact_words(&line[..at])),
        None => redact_words(line) + "\n",
    };
    text.lines().map(line).collect()
}

fn redact_table(table: Table) -> Table {
    let entry = |(name, value): (String, Value)| {
        let is_text = matches!(&value, Value::String(text) if !text.is_empty());
        let value = match value {
            _ if is_secret(&name) => Value::String(LEFT_OUT.to_owned()),
            value if name == "public_key" && is_text => value,
            value => redact_value(value),
        };
        (redact_words(&name), value)
    };
    table.into_iter().map(entry).collect()
}

fn redact_value(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let left = redact_lines(&text);
            let is_line = !text.ends_with('\n');
            Value::String(if is_line { left.trim_end_matches('\n').to_owned() } else { left })
        }
        Value::Array(values) => Value::Array(values.into_iter().map(redact_value).collect()),
        Value::Table(table) => Value::Table(redact_table(table)),
        value => value,
    }
}

/// Redacts what is no TOML: a line ends after a name that secrets have, and what is opened there goes up to its end.
fn redact_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut until: Option<&str> = None;
    for line in text.lines() {
        if let Some(end) = until {
            if line.contains(end) {
                until = None;
            }
            continue;
        }
        match end_of_secret_name(line, false) {
            Some(at) => {
                out += &format!("{}{LEFT_OUT}\n", redact_words(&line[..at]));
                until = opened(&line[at..]);
            }
            None => out += &redact_words_but_public(line),
        }
    }
    out
}

/// Returns what ends the text over several lines or the list that begins here, if it does not end here.
fn opened(text: &str) -> Option<&'static str> {
    let pairs = [("\"\"\"", "\"\"\""), ("'''", "'''"), ("[", "]"), ("{", "}")];
    let first = pairs.into_iter().filter_map(|pair| Some((text.find(pair.0)?, pair)));
    let (at, (begin, end)) = first.min_by_key(|(at, _)| *at)?;
    (!text[at + begin.len()..].contains(end)).then_some(end)
}

/// Returns where the first name in the line ends that secrets have, and that something follows: anything,
/// or only a value.
fn end_of_secret_name(line: &str, is_assigned: bool) -> Option<usize> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut begin = 0;
    while begin < line.len() {
        let rest = &line[begin..];
        let len = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let after = &rest[len..];
        let value = after.trim_start_matches(['"', '\'', ' ', '\t']);
        let has_sign = value.starts_with(['=', ':']);
        let is_in_path = line[..begin].ends_with('/');
        let follows = match is_assigned {
            true => value.strip_prefix('=').is_some_and(|value| !value.trim().is_empty()),
            false => has_sign || !is_in_path && after.contains(char::is_alphanumeric),
        };
        if follows && is_secret(&rest[..len]) {
            // The sign stays, that one sees what it was.
            let sign =
                if value.starts_with(['=', ':']) { after.len() - value.len() + 1 } else { 0 };
            return Some(begin + len + sign);
        }
        begin += len + after.chars().next().map_or(0, char::len_utf8);
    }
    None
}

/// Returns true for names that secrets have, whether or not there is such a setting: somebody may have written it.
fn is_secret(name: &str) -> bool {
    const PARTS: [&str; 8] =
        ["password", "passwd", "passphrase", "psk", "secret", "secrets", "token", "key"];
    let name = name.to_ascii_lowercase().replace('-', "_");
    let is_public = name == "public_key" || name.ends_with("_file");
    !is_public && name.split('_').any(|part| PARTS.contains(&part))
}

/// Redacts a line of a file; the key of a peer stays, if nothing follows it.
fn redact_words_but_public(line: &str) -> String {
    let is_public = line.trim_start().strip_prefix("public_key").is_some_and(|rest| {
        let value = rest.trim().strip_prefix('=').unwrap_or_default().trim();
        !value.is_empty() && !value.contains([' ', ',', '#'])
    });
    if is_public { format!("{line}\n") } else { redact_words(line) + "\n" }
}

/// Leaves out each word that has the form of a key.
fn redact_words(line: &str) -> String {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let len = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        let is_key = word.trim_start_matches('=').parse::<Secret>().is_ok();
        out += if is_key { LEFT_OUT } else { word };
        let next = after.chars().next().map_or(0, char::len_utf8);
        out += &after[..next];
        rest = &after[next..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE64: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    const WORD: &str = "correct horse";

    /// Says it as it is, and in a file that is no TOML.
    fn of_both(text: &str) -> [String; 2] {
        [redact_configuration(text), redact_configuration(&format!("{text}\nname = = \n"))]
    }

    #[test]
    fn keys_are_left_out_wherever_they_stand() {
        let hex = "0123456789abcdef".repeat(4);
        for text in [
            format!("private_key = \"{BASE64}\""),
            format!("psk=\"{hex}\""),
            format!("name = \"{BASE64}\""),
            format!("\"{hex}\" = 1"),
            format!("psk_file = \"{hex}\""),
            format!("x = [\"a\", \"{}\"]", BASE64.trim_end_matches('=')),
            format!("\"psk\" = '{hex}'"),
            format!("password = \"{WORD}\""),
            format!("web.password = \"{WORD}\""),
            format!("web.\"password\" = \"{WORD}\""),
            format!("[web]\nweb-password = \"{WORD}\""),
            format!("[[peer]]\nkeys = {{ name = \"a\", psk = \"{WORD}\" }}"),
            format!("PASSWORD = '{WORD}'"),
            format!("password = \"\"\"\nfirst\n{WORD}\n\"\"\"\nx = 1"),
            format!("secret = '''\n{WORD}\n'''"),
            format!("tokens = [\n\"{hex}\"]\nsecret = [\n  \"a\",\n  \"{WORD}\"\n]"),
            format!("note = \"password: {WORD}\""),
            format!("note = \"\"\"\nthe password is {WORD}\n\"\"\""),
        ] {
            for said in of_both(&text) {
                for secret in [BASE64.trim_end_matches('='), &hex, WORD] {
                    assert!(!said.contains(secret), "{text}: {said}");
                }
                assert!(said.contains(LEFT_OUT), "{text}: {said}");
            }
        }
    }

    #[test]
    fn comments_hide_nothing() {
        for text in [
            format!("# the old one: {BASE64}"),
            format!("public_key = \"x\" # {BASE64}"),
            format!("# password = \"{WORD}\""),
            format!("#password: {WORD}"),
            format!("name = \"a\" # the password is {WORD}"),
            format!("# {{ psk = \"{WORD}\" }}"),
        ] {
            for said in of_both(&text) {
                for secret in [BASE64.trim_end_matches('='), WORD] {
                    assert!(!said.contains(secret), "{text}: {said}");
                }
            }
        }
    }

    #[test]
    fn the_rest_stays() {
        let text = format!(
            "[[peer]]\nprefixes = [\"10.0.0.0/8\", \"fd00::/8\"]\npublic_key = \"{BASE64}\"\n\n\
             [node]\nname = \"site-a\"\nprivate_key_file = \"/etc/dwell/psk/private.key\"\n"
        );
        let parsed = redact_configuration(&text);
        let left = parsed.strip_prefix(AS_PARSED).unwrap();
        assert_eq!(left.parse::<Table>().unwrap(), text.parse::<Table>().unwrap(), "{parsed}");
        // What is no TOML stays line by line.
        let broken = format!("{text}rate = 10 Mbit/s # ours\n");
        assert_eq!(redact_configuration(&broken), broken);
    }

    #[test]
    fn messages_stay_but_for_values() {
        let message =
            "line 3: private_key: it is in private_key_file; a password needs 12 characters\n";
        assert_eq!(redact(message), message);
        let said = redact(&format!("3 | psk = \"{WORD}\"\nkey {BASE64}\n"));
        assert_eq!(said, format!("3 | psk ={LEFT_OUT}\nkey {LEFT_OUT}\n"));
    }
}
