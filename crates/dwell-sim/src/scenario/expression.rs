//! Small formulas over the results of a run: `100 * target.discard`,
//! `target.delay_mean_s / (topology.relays - 1)`.
//!
//! Numbers, names, `+ - * /` and parentheses. A name is a metric of the run or, failing that, a
//! value of the scenario: times in seconds, rates in bits per second, sizes in bytes.

use std::fmt;

use dwell_base::text::printable;

/// A formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Term,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Name(String),
    Negative(Box<Term>),
    Both(Box<Term>, Operator, Box<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
}

impl Expression {
    /// Returns the value, if `lookup` knows all names that matter; not a number (0 / 0) is no
    /// value.
    pub fn value(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        self.root.value(lookup).filter(|value| value.is_finite())
    }

    /// All names in it.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.names(&mut names);
        names
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Term {
    fn value(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Self::Number(number) => *number,
            Self::Name(name) => lookup(name)?,
            Self::Negative(term) => -term.value(lookup)?,
            Self::Both(left, operator, right) => {
                let (left, right) = (left.value(lookup)?, right.value(lookup)?);
                match operator {
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Over => left / right,
                }
            }
        })
    }

    fn names<'t>(&'t self, names: &mut Vec<&'t str>) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => names.push(name),
            Self::Negative(term) => term.names(names),
            Self::Both(left, _, right) => {
                left.names(names);
                right.names(names);
            }
        }
    }
}

impl std::str::FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let root = parser.sum()?;
        parser.skip_blanks();
        match parser.rest {
            "" => Ok(Self { text: text.trim().to_owned(), root }),
            rest => Err(format!("\"{}\" can't follow here", printable(rest))),
        }
    }
}

/// Deeper formulas are nobody's intention.
const DEPTH_MAX: usize = 32;

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn accepts(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<Term, String> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.accepts('+') => Operator::Plus,
                () if self.accepts('-') => Operator::Minus,
                () => return Ok(left),
            };
            left = Term::Both(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Term, String> {
        let mut left = self.unit()?;
        loop {
            let operator = match () {
                () if self.accepts('*') => Operator::Times,
                () if self.accepts('/') => Operator::Over,
                () => return Ok(left),
            };
            left = Term::Both(Box::new(left), operator, Box::new(self.unit()?));
        }
    }

    fn unit(&mut self) -> Result<Term, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("the formula is nested too deeply".to_owned());
        }
        let term = if self.accepts('-') {
            Term::Negative(Box::new(self.unit()?))
        } else if self.accepts('(') {
            let inner = self.sum()?;
            if !self.accepts(')') {
                return Err("a parenthesis is not closed".to_owned());
            }
            inner
        } else {
            self.leaf()?
        };
        self.depth -= 1;
        Ok(term)
    }

    fn leaf(&mut self) -> Result<Term, String> {
        self.skip_blanks();
        let word = self.word();
        if word.is_empty() {
            return Err(match self.rest {
                "" => "something is missing at the end".to_owned(),
                rest => format!("\"{}\" is neither a number nor a name", printable(rest)),
            });
        }
        self.rest = &self.rest[word.len()..];
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return match word.parse() {
                Ok(number) => Ok(Term::Number(number)),
                Err(_) => Err(format!("\"{}\" is no number", printable(word))),
            };
        }
        Ok(Term::Name(word.to_owned()))
    }

    /// A number or a name. Hyphens belong to names between letters (`real-time.late`); write
    /// blanks around a minus.
    fn word(&self) -> &'t str {
        let bytes = self.rest.as_bytes();
        let is_number = bytes.first().is_some_and(|b| b.is_ascii_digit() || *b == b'.');
        let is_part = |at: usize| {
            let byte = bytes[at];
            let next = bytes.get(at + 1);
            match byte {
                b'.' | b'_' => true,
                // 1e-5
                b'-' if is_number => at > 0 && bytes[at - 1] == b'e',
                b'-' => at > 0 && next.is_some_and(u8::is_ascii_alphanumeric),
                other => other.is_ascii_alphanumeric(),
            }
        };
        let length = (0..bytes.len()).find(|&at| !is_part(at)).unwrap_or(bytes.len());
        &self.rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<f64> {
        let lookup = |name: &str| match name {
            "target.discard" => Some(0.5),
            "real-time.late" => Some(3.0),
            "n" => Some(2.0),
            _ => None,
        };
        text.parse::<Expression>().unwrap().value(&lookup)
    }

    #[test]
    fn formulas_have_the_usual_rules() {
        assert_eq!(value("100 * target.discard"), Some(50.0));
        assert_eq!(value("1 + 2 * 3 - 4 / 2"), Some(5.0));
        assert_eq!(value("(1 + 2) * -n"), Some(-6.0));
        assert_eq!(value("real-time.late - 1"), Some(2.0));
        assert_eq!(value("1e-5 * 1e5"), Some(1.0));
        assert_eq!(value("n / (n - 2)"), None, "nothing is divided by zero");
        assert_eq!(value("unknown + 1"), None);
    }

    #[test]
    fn wrong_formulas_are_reported() {
        for (text, reported) in [
            ("", "missing at the end"),
            ("1 +", "missing at the end"),
            ("(1", "not closed"),
            ("1 2", "\"2\" can't follow"),
            ("1.2.3", "is no number"),
            ("a $ b", "can't follow"),
        ] {
            let error = text.parse::<Expression>().unwrap_err();
            assert!(error.contains(reported), "{text}: {error}");
        }
        assert!("(".repeat(100).parse::<Expression>().is_err());
    }

    #[test]
    fn names_are_listed() {
        let expression: Expression = "a.b / (topology.relays - 1)".parse().unwrap();
        assert_eq!(expression.names(), ["a.b", "topology.relays"]);
        assert_eq!(expression.to_string(), "a.b / (topology.relays - 1)");
    }
}
