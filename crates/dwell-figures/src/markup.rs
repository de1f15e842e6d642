//! Text with tags, for SVG and HTML. All text is escaped and every opened tag is closed, so that no
//! name or comment can break a page.

use std::fmt::{self, Display, Write};

/// The attributes of an element: names and values.
pub(crate) type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

/// A document that is being written.
#[derive(Default)]
pub(crate) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

impl Markup {
    /// Opens an element; [`Markup::close`] closes it.
    pub(crate) fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.out.push('>');
        self.open.push(tag);
    }

    /// Closes the element that was opened last.
    pub(crate) fn close(&mut self) {
        if let Some(tag) = self.open.pop() {
            self.put(format_args!("</{tag}>"));
        }
    }

    /// Adds an element without content.
    pub(crate) fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.out.push_str("/>");
    }

    /// Adds an element that holds only text.
    pub(crate) fn element(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.open(tag, attributes);
        self.text(text);
        self.close();
    }

    /// Adds text.
    pub(crate) fn text(&mut self, text: &str) {
        self.put(format_args!("{}", Escaped(text)));
    }

    /// Adds a line end, so that people and `diff` can read the result.
    pub(crate) fn line(&mut self) {
        self.out.push('\n');
    }

    /// Adds text that is markup already: from another `Markup`, or a constant.
    pub(crate) fn markup(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Returns the document; elements that are still open are closed.
    pub(crate) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn start(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.put(format_args!("<{tag}"));
        for (name, value) in attributes {
            self.put(format_args!(" {name}=\"{}\"", Escaped(&value.to_string())));
        }
    }

    fn put(&mut self, what: fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.out.write_fmt(what);
    }
}

/// Text escaped for element content and attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' => f.write_char(c)?,
                // XML can't represent these at all; HTML reads the second half as other characters.
                '\0'..' ' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                    f.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_nest() {
        let mut markup = Markup::default();
        markup.open("g", &[("class", &"a"), ("x", &1.5)]);
        markup.leaf("path", &[]);
        markup.element("text", &[], "a < b & \"c\"");
        let text = "<g class=\"a\" x=\"1.5\"><path/><text>a &lt; b &amp; &quot;c&quot;</text></g>";
        assert_eq!(markup.finish(), text);
    }

    proptest! {
        #[test]
        fn whatever_goes_in_is_text(hostile in "\\PC*|[\u{0}-\u{ff}<>&\"'\u{fffe}]*") {
            let mut markup = Markup::default();
            markup.element("a", &[("b", &hostile)], &hostile);
            let out = markup.finish();
            let document = roxmltree::Document::parse(&out).unwrap();
            prop_assert_eq!(document.root_element().children().filter(|c| c.is_element()).count(), 0);
        }
    }
}
