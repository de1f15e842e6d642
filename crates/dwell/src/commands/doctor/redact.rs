//! Leaves out of a text what looks like a key.

use dwell_relay::config::Secret;

/// What stands instead.
const LEFT_OUT: &str = "[left out: it looks like a secret]";

/// Returns the text of a configuration without anything that could be a key. Public keys stay, and names of files.
pub(super) fn redact(text: &str) -> String {
    text.lines().map(|line| redact_line(line) + "\n").collect()
}

fn redact_line(line: &str) -> String {
    let key = line.split(['=', '#']).next().unwrap_or_default().trim().trim_matches('"');
    let is_public = key == "public_key" && !line.contains('#');
    // Somebody may have written it there, though there is no such key.
    let is_named = ["password", "passphrase", "psk", "secret", "private_key", "key", "token"];
    if is_named.contains(&key)
        && let Some((name, _)) = line.split_once('=')
    {
        return format!("{name}= {LEFT_OUT}");
    }
    if is_public {
        return line.to_owned();
    }
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

    #[test]
    fn keys_are_left_out_wherever_they_stand() {
        let hex = "0123456789abcdef".repeat(4);
        for line in [
            format!("private_key = \"{BASE64}\""),
            format!("psk=\"{hex}\""),
            format!("name = \"{BASE64}\""),
            format!("# the old one: {BASE64}"),
            format!("public_key = \"x\" # {BASE64}"),
            format!("psk_file = \"{hex}\""),
            format!("x = [\"a\", \"{}\"]", BASE64.trim_end_matches('=')),
            format!("\"psk\" = '{hex}'"),
            "password = \"correct horse\"".to_owned(),
        ] {
            let said = redact(&line);
            for secret in [BASE64.trim_end_matches('='), &hex, "correct horse"] {
                assert!(!said.contains(secret), "{line}: {said}");
            }
            assert!(said.contains(LEFT_OUT), "{said}");
        }
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        let text = format!(
            "[node]\nname = \"site-a\" # ours\nprivate_key_file = \"/etc/dwell/private.key\"\n\n[[peer]]\n\
             public_key = \"{BASE64}\"\nprefixes = [\"10.0.0.0/8\", \"fd00::/8\"]\n"
        );
        assert_eq!(redact(&text), text);
    }
}
