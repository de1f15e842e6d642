//! The width of text, without a font: estimated for usual sans-serif fonts, and rather too wide.

/// Estimates the width of `text` at a font size, in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// Breaks text between words so that no line is wider than `max`, unless a single word is. Text
/// that does not fit into `lines_max` lines is cut.
pub(super) fn wrap(text: &str, size: f64, max: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if !line.is_empty() && width(&longer, size) > max {
                lines.push(std::mem::replace(&mut line, word.to_owned()));
            } else {
                line = longer;
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
    }
    let is_cut = lines.len() > lines_max;
    lines.truncate(lines_max);
    if let (true, Some(last)) = (is_cut, lines.last_mut()) {
        last.push('…');
    }
    lines.iter().map(|line| fit(line, size, max)).collect()
}

/// The text, or its beginning if it is wider than `max`.
pub(super) fn fit(text: &str, size: f64, max: f64) -> String {
    if width(text, size) <= max {
        return text.to_owned();
    }
    let mut used = em('…') * size;
    let fits = text.chars().take_while(|&c| {
        used += em(c) * size;
        used <= max
    });
    fits.chain(['…']).collect()
}

/// The width of a character in units of the font size.
fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' | 'I' => 0.3,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '[' | ']' | '/' | '-' => 0.36,
        '⁰'..='⁹' | '⁻' | '¹' | '²' | '³' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 0.95,
        'A'..='Z' | '×' | '≤' | '+' | '=' => 0.7,
        // Beyond the letters of Europe: as wide as high.
        c if c > '\u{2fff}' => 1.1,
        _ => 0.59,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_asked() {
        let text = "Packet loss by load; bars show the least and the most of ten runs.";
        let lines = wrap(text, 13.0, 150.0, 9);
        assert!(lines.len() > 2 && lines.iter().all(|line| width(line, 13.0) <= 150.0));
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrap(text, 13.0, 150.0, 1).len(), 1);
        assert!(wrap(text, 13.0, 150.0, 1)[0].ends_with('…'));
        assert!(wrap(" \n ", 13.0, 150.0, 3).is_empty());
    }

    #[test]
    fn what_is_too_long_is_cut() {
        assert_eq!(fit("short", 10.0, 100.0), "short");
        let cut = fit("much too long for this", 10.0, 50.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 50.0, "{cut}");
    }
}
