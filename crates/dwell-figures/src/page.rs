//! A report as one HTML page that needs nothing else: no scripts, no fonts, no network.

use crate::chart::{Chart, SVG_STYLE};
use crate::claims::{self, Claim};
use crate::markup::Markup;
use dwell_report::table::Table;

/// A page: its subject, its origin, and sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The subject.
    pub title: String,
    /// The information needed to reproduce the page.
    pub provenance: Provenance,
    /// The parts, which are also its table of contents.
    pub sections: Vec<Section>,
}

/// The origin of a report, so that others can reproduce it. Empty fields are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance {
    /// The version of the program.
    pub version: String,
    /// The date, as text: nothing here knows the time.
    pub date: String,
    /// The seed of all randomness.
    pub seed: Option<u64>,
    /// The command line.
    pub command: String,
    /// Other settings that matter: names and values.
    pub settings: Vec<(String, String)>,
}

/// A part of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The content, in this order.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a page has few blocks, and most are charts")]
pub enum Block {
    /// Text: paragraphs between empty lines, and code between backticks.
    Prose(String),
    /// Lines as they are, in letters of equal width.
    Code(String),
    /// A chart; its numbers are folded up below it.
    Chart(Chart),
    /// A table, and its caption.
    Table(String, Table),
    /// The numbers of papers beside ours.
    Claims(Vec<Claim>),
    /// Folded up under a line of text.
    Folded(String, Vec<Block>),
}

/// The most rows of a chart's numbers that a page shows; the file of the numbers has all.
const DATA_ROWS_MAX: usize = 500;

const STYLE: &str = "\
:root{--paper:#fff;--ink:#1a1a1a;--muted:#5c5c5c;--rule:#dcdcdc;--shade:#f5f5f5;--link:#005a8c;\
color-scheme:light dark}\
@media screen and (prefers-color-scheme:dark){:root{--paper:#16181c;--ink:#e8e8e8;\
--muted:#a8a8a8;--rule:#363a42;--shade:#1f2228;--link:#6bbcf0}}\
*{box-sizing:border-box}\
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:68rem;background:var(--paper);\
color:var(--ink);font:1rem/1.55 system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif}\
h1{font-size:1.8rem;line-height:1.2;margin:.5rem 0 1rem}\
h2{font-size:1.3rem;margin:2.5rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--rule)}\
a{color:var(--link)}p{max-width:44rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0;font-size:.9rem}\
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}\
nav ol{margin:1rem 0;padding-left:1.5rem}\
code,pre{font:.875em/1.45 ui-monospace,'Cascadia Mono',Menlo,Consolas,monospace}\
pre{background:var(--shade);padding:.75rem;overflow-x:auto}\
.wide{overflow-x:auto;margin:1rem 0}\
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}\
caption{text-align:left;color:var(--muted);padding-bottom:.4rem}\
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}\
th{border-bottom-width:2px;white-space:nowrap}.r{text-align:right}td.r{white-space:nowrap}\
figure{margin:1.5rem 0 .25rem}svg{display:block;max-width:100%;height:auto}.narrow{display:none}\
details{margin:.25rem 0 1rem}summary{cursor:pointer;color:var(--muted);font-size:.9rem}\
table.claims{width:100%}.claims td:first-child{width:46%}.claims small{display:block;color:var(--muted)}\
.claims .off{font-weight:600}\
@media (max-width:34rem){.claims thead{display:none}.claims tr{display:block;padding:.5rem 0;\
border-bottom:1px solid var(--rule)}.claims td,.claims td:first-child{display:block;width:auto;\
text-align:left;border:0;padding:.1rem 0;white-space:normal}\
.claims td[data-label]::before{content:attr(data-label) ': ';color:var(--muted)}\
figure{overflow-x:auto}.narrow{display:block}.broad{display:none}dl{grid-template-columns:1fr}\
dd{margin-bottom:.4rem}}\
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}\
figure,tr,pre{break-inside:avoid}h2{break-after:avoid}.wide{overflow:visible}}";

impl Page {
    /// Returns the page as a file.
    pub fn to_html(&self) -> String {
        let mut out = Markup::default();
        out.markup("<!DOCTYPE html>\n");
        out.open("html", &[("lang", &"en")]);
        self.head(&mut out);
        out.open("body", &[]);
        out.open("header", &[]);
        out.element("h1", &[], &self.title);
        out.line();
        self.provenance.write(&mut out);
        self.contents(&mut out);
        out.close();
        out.line();
        out.open("main", &[]);
        for (at, section) in self.sections.iter().enumerate() {
            out.open("section", &[("id", &format!("section-{}", at + 1))]);
            out.element("h2", &[], &section.title);
            out.line();
            section.blocks.iter().for_each(|block| block.write(&mut out));
            out.close();
            out.line();
        }
        out.finish() + "\n"
    }

    fn head(&self, out: &mut Markup) {
        out.open("head", &[]);
        out.leaf("meta", &[("charset", &"utf-8")]);
        let viewport = "width=device-width, initial-scale=1";
        out.leaf("meta", &[("name", &"viewport"), ("content", &viewport)]);
        // Nothing is loaded, whatever is on the page.
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        out.leaf("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &policy)]);
        out.element("title", &[], &self.title);
        // The text of a style element is not unescaped by HTML: these are constants.
        out.open("style", &[]);
        out.markup(STYLE);
        out.markup(SVG_STYLE);
        out.close();
        out.close();
        out.line();
    }

    fn contents(&self, out: &mut Markup) {
        if self.sections.len() < 2 {
            return;
        }
        out.open("nav", &[("aria-label", &"Contents")]);
        out.open("ol", &[]);
        for (at, section) in self.sections.iter().enumerate() {
            out.open("li", &[]);
            out.element("a", &[("href", &format!("#section-{}", at + 1))], &section.title);
            out.close();
        }
        out.close();
        out.close();
        out.line();
    }
}

impl Section {
    /// Makes a section without content.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), blocks: Vec::new() }
    }

    /// Adds a block.
    #[must_use]
    pub fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

impl Provenance {
    fn write(&self, out: &mut Markup) {
        let seed = self.seed.map(|seed| seed.to_string()).unwrap_or_default();
        let known = [
            ("Version", self.version.as_str(), false),
            ("Date", &self.date, false),
            ("Seed", &seed, false),
            ("Command", &self.command, true),
        ];
        let settings =
            self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str(), false));
        out.open("dl", &[]);
        for (name, value, is_code) in known.into_iter().chain(settings) {
            if value.is_empty() {
                continue;
            }
            out.element("dt", &[], name);
            out.open("dd", &[]);
            if is_code {
                out.element("code", &[], value);
            } else {
                out.text(value);
            }
            out.close();
            out.line();
        }
        out.close();
        out.line();
    }
}

impl Block {
    fn write(&self, out: &mut Markup) {
        match self {
            Self::Prose(text) => prose(out, text),
            Self::Code(text) => out.element("pre", &[], text),
            Self::Chart(chart) => figure(out, chart),
            Self::Table(caption, table) => wide(out, caption, table),
            Self::Claims(claims) => {
                claims_table(out, claims);
            }
            Self::Folded(summary, blocks) => {
                out.open("details", &[]);
                out.element("summary", &[], summary);
                blocks.iter().for_each(|block| block.write(out));
                out.close();
            }
        }
        out.line();
    }
}

/// Adds a chart, and its numbers for those who can't see it or want the exact values.
fn figure(out: &mut Markup, chart: &Chart) {
    out.open("figure", &[]);
    // Drawn for each width: a smaller picture would have letters that nobody can read. One is not displayed.
    for (class, drawing) in [("broad", chart.to_inline_svg()), ("narrow", chart.to_narrow_svg())] {
        out.open("div", &[("class", &class)]);
        out.markup(&drawing);
        out.close();
    }
    out.close();
    let (table, more) = chart.data_table_up_to(DATA_ROWS_MAX);
    out.open("details", &[]);
    out.element("summary", &[], "The numbers");
    wide(out, "", &table);
    if more > 0 {
        out.element("p", &[], &format!("And {more} more rows."));
    }
    out.close();
}

/// Adds a table that may be wider than the screen.
fn wide(out: &mut Markup, caption: &str, table: &Table) {
    out.open("div", &[("class", &"wide")]);
    write_table(out, caption, table);
    out.close();
}

/// The numbers of papers beside ours: deviation and verdict are seen at any width, and comments stand below what they
/// are about.
fn claims_table(out: &mut Markup, claims: &[Claim]) {
    let shown = claims::to_table(claims);
    let lines = shown.lines();
    let Some((head, rows)) = lines.split_first() else { return };
    out.open("table", &[("class", &"claims")]);
    out.element("caption", &[], &claims::summary(claims));
    out.open("thead", &[]);
    out.open("tr", &[]);
    let last = head.len() - 1;
    out.element("th", &[], "quantity");
    head[2..last].iter().for_each(|name| out.element("th", &[], name));
    out.close();
    out.close();
    out.open("tbody", &[]);
    for (row, claim) in rows.iter().zip(claims) {
        out.open("tr", &[]);
        out.open("td", &[]);
        out.text(row[1]);
        out.element("small", &[], row[0]);
        if !row[last].is_empty() {
            out.element("small", &[], row[last]);
        }
        out.close();
        for (name, cell) in head[2..last].iter().zip(&row[2..last]) {
            let is_off = *name == "agreement" && claim.agreement() == claims::Agreement::Off;
            let class = if is_off { "off" } else { "" };
            out.element("td", &[("class", &class), ("data-label", &name)], cell);
        }
        out.close();
        out.line();
    }
    out.close();
    out.close();
}

/// A table, with a caption if it is not empty.
fn write_table(out: &mut Markup, caption: &str, table: &Table) {
    out.open("table", &[]);
    if !caption.is_empty() {
        out.element("caption", &[], caption);
    }
    let lines = table.lines();
    let last = lines.len() - 1;
    for (at, row) in lines.into_iter().enumerate() {
        let part = if at == 0 { "thead" } else { "tbody" };
        if at < 2 {
            out.open(part, &[]);
        }
        out.open("tr", &[]);
        for (cell, column) in row.into_iter().zip(table.columns()) {
            let tag = if at == 0 { "th" } else { "td" };
            match column.is_right() {
                true => out.element(tag, &[("class", &"r")], cell),
                false => out.element(tag, &[], cell),
            }
        }
        out.close();
        if at == 0 || at == last {
            out.close();
        }
        out.line();
    }
    out.close();
}

fn prose(out: &mut Markup, text: &str) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for paragraph in lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()) {
        out.open("p", &[]);
        for (at, piece) in paragraph.join("\n").split('`').enumerate() {
            if at % 2 == 1 {
                out.element("code", &[], piece);
            } else {
                out.text(piece);
            }
        }
        out.close();
        out.line();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, ParsingOptions};

    use super::*;
    use crate::chart::{Axis, Series};
    use dwell_report::table::Column;

    fn page(text: &str) -> Page {
        let mut table = Table::new([Column::left(text), Column::right("b")]);
        table.row([text, "1"]);
        let chart = Chart::new(text, Axis::linear(text), Axis::log(text))
            .series(Series::line(text).point(1.0, 2.0));
        let claim = Claim { paper: text.into(), comment: text.into(), ..Claim::default() };
        let provenance = Provenance {
            version: text.into(),
            date: text.into(),
            seed: Some(1),
            command: text.into(),
            settings: vec![(text.into(), text.into())],
        };
        let blocks = vec![
            Block::Prose(text.into()),
            Block::Code(text.into()),
            Block::Chart(chart),
            Block::Table(text.into(), table),
            Block::Claims(vec![claim]),
        ];
        let folded = Section::new(text).block(Block::Folded(text.into(), blocks.clone()));
        let sections = vec![Section { title: text.into(), blocks }, folded];
        Page { title: text.into(), provenance, sections }
    }

    fn parse(html: &str) -> Document<'_> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(html, options).unwrap()
    }

    #[test]
    fn every_section_is_in_the_contents() {
        let html = page("x").to_html();
        let document = parse(&html);
        let all = |name: &str| {
            document.descendants().filter(|n| n.has_tag_name(name)).collect::<Vec<_>>()
        };
        let links: Vec<_> =
            all("a").iter().map(|a| a.attribute("href").unwrap()[1..].to_owned()).collect();
        let ids: Vec<_> =
            all("section").iter().map(|s| s.attribute("id").unwrap().to_owned()).collect();
        assert_eq!((links.len(), &links), (2, &ids));
    }

    #[test]
    fn prose_has_paragraphs_and_code() {
        let mut out = Markup::default();
        prose(&mut out, "One `a < b`\nmore.\n\n  Two & three.\n");
        let html = "<p>One <code>a &lt; b</code>\nmore.</p>\n<p>Two &amp; three.</p>\n";
        assert_eq!(out.finish(), html);
    }

    #[test]
    fn a_page_may_be_empty() {
        parse(&Page::default().to_html());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_text_breaks_a_page(text in "\\PC{1,20}|[\u{0}-\u{9f}<>&\"'`|\u{fffe}]{1,20}") {
            let html = page(&text).to_html();
            let plain = page("x").to_html();
            let elements = |html: &str| parse(html).descendants().filter(|n| n.is_element()
                && !["p", "code", "dt", "dd", "text", "title", "summary"].contains(&n.tag_name().name())).count();
            // The number of ticks and labels doesn't depend on any text.
            prop_assert_eq!(elements(&html), elements(&plain));
            for node in parse(&html).descendants() {
                prop_assert!(!["script", "img", "link", "iframe"].contains(&node.tag_name().name()));
                prop_assert!(node.attribute("href").is_none_or(|to| to.starts_with('#')));
            }
        }
    }
}
