//! The page: one document, and what a browser may do with it.

use aws_lc_rs::digest::{SHA256, digest};

use crate::config::base64_of;

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(include_str!("flows.js"), include_str!("page.js"));

/// What goes with every answer: nothing is kept, embedded or passed on.
pub(super) const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
     X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
     Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n";

/// The page and its headers.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) document: String,
    pub(super) headers: String,
}

impl Page {
    /// Puts the page together. It may run the script and use the style that are in it, and connect to this node:
    /// nothing else, so that even a name that somebody chose badly could not do anything.
    pub(super) fn new() -> Self {
        let document = DOCUMENT.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT);
        let (style, script) = (hash(STYLE), hash(SCRIPT));
        let headers = format!(
            "Content-Security-Policy: default-src 'none'; script-src 'sha256-{script}'; \
             style-src 'sha256-{style}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n\
             {HEADERS}"
        );
        Self { document, headers }
    }
}

fn hash(text: &str) -> String {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    base64_of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_fits_its_policy() {
        let page = Page::new();
        let document = &page.document;
        assert!(document.contains(STYLE) && document.contains(SCRIPT));
        for foreign in ["http://", "https://", "//cdn", "@import", "url(", " src=", "innerHTML"] {
            let namespace = document.replace("http://www.w3.org/2000/svg", "");
            assert!(!namespace.contains(foreign), "{foreign}");
        }
        // The policy has no room for them.
        for inline in [" style=", " onclick=", " onload=", "eval(", "javascript:"] {
            assert!(!document.contains(inline), "{inline}");
        }
        assert_eq!(document.matches("<script>").count(), 1);
        assert_eq!(document.matches("<style>").count(), 1);
        assert!(document.len() < 64 << 10, "{} bytes", document.len());
        assert!(page.headers.ends_with("\r\n") && !page.headers.contains("\r\n\r\n"));
        assert!(!page.headers.contains("unsafe"));
    }
}
