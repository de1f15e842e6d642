//! Text for people: corrections of misspelt names, and escaping of text from outside.

/// Returns "did you mean …" if one of `keys` is near to `name`; otherwise lists all of them.
pub fn suggest(name: &str, keys: &[&str]) -> String {
    match nearest(name, keys) {
        Some(key) => format!("did you mean `{key}`?"),
        None => format!("the keys here are {}", keys.join(", ")),
    }
}

/// Returns the one of `names` that `name` is probably a misspelling of.
pub fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    // Of two equally near names the one that begins alike: few people mistype the first letter.
    let begins_otherwise = |known: &str| known.chars().next() != name.chars().next();
    names
        .iter()
        .map(|&known| (strsim::damerau_levenshtein(name, known), begins_otherwise(known), known))
        .min()
        .filter(|&(distance, _, known)| distance <= (known.len() / 3).max(1))
        .map(|(_, _, known)| known)
}

/// Cuts and escapes a text from outside, so that it can't disturb a terminal.
pub fn printable(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut out: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_guessed() {
        let keys = ["rate", "buffer_packets"];
        assert_eq!(suggest("rat", &keys), "did you mean `rate`?");
        assert_eq!(suggest("bufer_packets", &keys), "did you mean `buffer_packets`?");
        assert_eq!(suggest("colour", &keys), "the keys here are rate, buffer_packets");
        assert_eq!(suggest("relay", &["delay", "relays"]), "did you mean `relays`?");
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn terminals_are_safe_from_texts() {
        assert_eq!(printable("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(printable(&"x".repeat(61)).chars().count(), 61);
    }
}
