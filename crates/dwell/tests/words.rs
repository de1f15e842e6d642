//! What docs/troubleshooting.md quotes of the program is what the program says.

use std::fs;
use std::path::{Path, PathBuf};

use dwell_report::status::Problem;

/// Of what is quoted at least this share stands in the program as it is; the rest may be values.
const SAME_PERCENT: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A literal as a user sees it: characters, and places for values.
type Literal = Vec<Option<char>>;

/// All string literals of the programs' sources, without those of tests.
fn literals() -> Vec<Literal> {
    let mut found = Vec::new();
    let mut left = vec![root().join("crates")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" && name != "target" {
                left.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).expect("a source");
                let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                found.extend(literals_of(program));
            }
        }
    }
    found
}

fn literals_of(source: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    for line in joined(source).lines().filter(|line| !line.trim_start().starts_with("//")) {
        // A quote that is a character would open a string.
        let line = line.replace("'\"'", "''");
        let mut rest = line.as_str();
        while let Some(start) = rest.find('"') {
            let (text, end) = unescaped(&rest[start + 1..]);
            found.push(literal(&text));
            rest = rest.get(start + 1 + end..).unwrap_or_default();
        }
    }
    found
}

/// The source with strings that go on in the next line put into one.
fn joined(source: &str) -> String {
    let mut out = String::new();
    for line in source.lines() {
        let goes_on = out.ends_with('\\');
        if goes_on {
            out.pop();
        }
        out += match goes_on {
            true => line.trim_start(),
            false => line,
        };
        if !out.ends_with('\\') {
            out.push('\n');
        }
    }
    out
}

/// A string from behind its first quote, and where it ends, behind the last one.
fn unescaped(text: &str) -> (String, usize) {
    let mut out = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (out, at + 1),
            '\\' => match characters.next() {
                Some((_, 'n')) => out.push(' '),
                Some((_, other)) => out.push(other),
                None => break,
            },
            other => out.push(other),
        }
    }
    (out, text.len())
}

fn literal(text: &str) -> Literal {
    let mut out = Literal::new();
    let mut characters = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    while let Some(start) = characters.find('{') {
        out.extend(characters[..start].chars().map(Some));
        out.push(None);
        let end = characters[start..].find('}').map_or(characters.len(), |end| start + end + 1);
        characters = characters[end..].to_owned();
    }
    out.extend(characters.chars().map(Some));
    out
}

/// True if a literal, with some values in its places, has this text.
fn says(literal: &Literal, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let needed = text.len() * SAME_PERCENT / 100;
    if literal.iter().flatten().count() < needed {
        return false;
    }
    // For each place of the literal: of the texts that end there, the most characters that are the literal's own.
    let mut best: Vec<Option<usize>> = vec![Some(0); literal.len() + 1];
    for &c in &text {
        let mut next: Vec<Option<usize>> = vec![None; literal.len() + 1];
        for (at, part) in literal.iter().enumerate() {
            match part {
                Some(own) if *own == c => next[at + 1] = best[at].map(|same| same + 1),
                Some(_) => {}
                // The place holder takes it, and ends behind it or goes on.
                None => {
                    next[at] = next[at].max(best[at]);
                    next[at + 1] = next[at + 1].max(best[at]);
                }
            }
        }
        best = next;
    }
    best.iter().flatten().max().is_some_and(|same| *same >= needed)
}

/// What stands in “ ”, cut where something is left out or has another value each time.
fn quoted(text: &str) -> Vec<String> {
    let quotes = text.split('“').skip(1).filter_map(|rest| Some(rest.split_once('”')?.0));
    let pieces = quotes.flat_map(|quote| quote.split('…'));
    let pieces = pieces.map(|piece| piece.trim().trim_matches([',', ';', '.']).trim().to_owned());
    pieces.filter(|piece| piece.chars().count() > 3).collect()
}

#[test]
fn what_is_quoted_is_said() {
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let literals = literals();
    let pieces = quoted(&text);
    assert!(pieces.len() > 30, "only {} quotes were found", pieces.len());
    let missing: Vec<_> = pieces
        .iter()
        .filter(|piece| !literals.iter().any(|literal| says(literal, piece)))
        .collect();
    assert!(missing.is_empty(), "nothing in the program says {missing:#?}");
}

#[test]
fn every_problem_is_explained() {
    let text = fs::read_to_string(root().join("docs/relay.md")).unwrap();
    for problem in Problem::OF_PEERS.into_iter().chain(Problem::OF_NODE) {
        let row = format!("| `{}` |", problem.name());
        assert!(text.contains(&row), "docs/relay.md has no row that begins with {row}");
    }
}

#[test]
fn quotes_are_compared_with_places_for_values() {
    let said = literal("{prefix} is routed to {} already: a prefix can have {{one}} peer");
    assert!(says(&said, "10.2.0.0/24 is routed to \"b\" already: a prefix"));
    assert!(says(&said, "a prefix can have"));
    assert!(!says(&said, "a prefix may have"));
    assert!(!says(&literal("{}: {}"), "anything: at all"), "values alone are no sentence");
    let source =
        "fn a() {\n    let a = \"it is \\\"so\\\", \\\n             and {b}\";\n    // \"no\"\n}";
    let expected = literal("it is \"so\", and {b}");
    assert_eq!(literals_of(source), [expected]);
    assert_eq!(quoted("| “a node …, is. And” | “x” |"), ["a node", "is. And"]);
}
