//! An analysis for people: one page, as HTML or as text.

mod blocks;
mod classes;
mod history;
mod timing;
mod traffic;

use dwell_figures::chart::Chart;
use dwell_figures::page::{Block, Page, Provenance, Section};
use dwell_report::{Column, Table, human};

use crate::analysis::Analysis;
use crate::summary::Summary;
use crate::verdict::judge_traffic;

/// Returns the report as a page. `classes` is the number of rows of the table of classes.
pub fn page(
    analysis: &Analysis,
    summary: &Summary,
    classes: usize,
    provenance: Provenance,
) -> Page {
    let sections = [
        Some(verdict(analysis)),
        Some(overview(analysis, summary)),
        Some(traffic::section(analysis)),
        classes::codecs(analysis, summary),
        Some(classes::classes(summary, classes)),
        classes::table_1(analysis, summary),
        blocks::section(analysis),
        history::section(analysis),
        timing::section(analysis),
    ];
    let title = match &analysis.files[..] {
        [file] => format!("What is in {}", file.name),
        files => format!("What is in {} captures", files.len()),
    };
    Page { title, provenance, sections: sections.into_iter().flatten().collect() }
}

/// Returns the report for a terminal: the same without its charts.
pub fn text(page: &Page) -> String {
    let mut out = format!("{}\n", page.title);
    for section in &page.sections {
        out.push_str(&format!(
            "\n{}\n{}\n",
            section.title,
            "-".repeat(section.title.chars().count())
        ));
        section.blocks.iter().for_each(|block| block_text(block, &mut out));
    }
    out
}

fn block_text(block: &Block, out: &mut String) {
    match block {
        Block::Prose(text) => out.push_str(&format!("{}\n", text.replace('`', ""))),
        Block::Code(text) => out.push_str(text),
        Block::Table(caption, table) => {
            if !caption.is_empty() {
                out.push_str(&format!("\n{caption}\n"));
            }
            out.push_str(&table.to_text());
        }
        Block::Folded(title, blocks) => {
            out.push_str(&format!("\n{title}\n"));
            blocks.iter().for_each(|block| block_text(block, out));
        }
        Block::Chart(_) | Block::Claims(_) => {}
    }
}

/// Returns the section with the verdict.
fn verdict(analysis: &Analysis) -> Section {
    let verdict = judge_traffic(analysis);
    let text: Vec<&str> = verdict.paragraphs().collect();
    Section::new("Would dwell help?").block(Block::Prose(text.join("\n\n")))
}

/// Returns the main results, in a few sentences.
fn overview(analysis: &Analysis, summary: &Summary) -> Section {
    let (frames, ip) = (analysis.frames(), analysis.ip());
    let mut text = Vec::new();
    if analysis.is_partial {
        text.push("This is a partial result: reading was interrupted.".to_owned());
    }
    text.push(format!(
        "{}, {} on the wire; in them {} of IP, {}.",
        human::counted(frames.packets, "frame"),
        human::bytes(frames.bytes),
        human::counted(ip.packets, "packet"),
        human::bytes(ip.bytes),
    ));
    for codec in &summary.codecs {
        let ratio = |found: Option<f64>| human::ratio(found);
        let which = match codec.exceptions {
            1 => "the one class that expands, which leaves".to_owned(),
            count => format!("the {count} classes that expand, which leave"),
        };
        text.push(format!(
            "With {} the packets come to {} of their bytes, each compressed alone, and to {} without {which} {} \
             of the packets out.",
            codec.codec,
            ratio(codec.all.ratio()),
            ratio(codec.compressible.ratio()),
            human::share(codec.all.packets - codec.compressible.packets, codec.all.packets),
        ));
    }
    text.extend(said_of_limits(analysis));
    Section::new("Overview").block(Block::Prose(text.join("\n\n")))
}

/// Returns sentences about the limits of the figures.
fn said_of_limits(analysis: &Analysis) -> Vec<String> {
    let mut text = Vec::new();
    let cut: u64 = analysis.files.iter().map(|file| file.cut_packets).sum();
    if cut > 0 {
        text.push(format!(
            "Not captured whole: {} of IP ({}), counted but not compressed.",
            human::counted(cut, "packet"),
            human::share(cut, analysis.ip().packets),
        ));
    }
    if analysis.pairs.folded_packets > 0 {
        text.push(format!(
            "There are more pairs of ports than are distinguished: of {} only the \
             server's port is counted.",
            human::counted(analysis.pairs.folded_packets, "packet"),
        ));
    }
    if analysis.flows.packets_beyond > 0 {
        text.push(format!(
            "There are more flows than are distinguished: the flows of {} are not \
             counted.",
            human::counted(analysis.flows.packets_beyond, "packet"),
        ));
    }
    for file in &analysis.files {
        if let Some(trouble) = &file.trouble {
            text.push(format!("{} is broken {trouble}. What is before was read.", file.name));
        }
    }
    text
}

/// Adds a table and a chart of the same data.
fn figure(section: Section, chart: Chart) -> Section {
    section.block(Block::Chart(chart))
}

/// Returns a table with columns for a ratio and times by codec.
fn table(columns: &[(&str, bool)]) -> Table {
    Table::new(columns.iter().map(
        |&(name, is_number)| {
            if is_number { Column::right(name) } else { Column::left(name) }
        },
    ))
}

fn nanoseconds(ns: Option<f64>) -> String {
    ns.map_or_else(
        || human::NOTHING.to_owned(),
        |ns| human::number(libm::round(ns * 100.0) / 100.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Settings;

    #[test]
    fn nothing_makes_a_report_too() {
        let codecs = vec!["lz4".parse().unwrap()];
        for settings in [Settings::default(), Settings { codecs, ..Settings::default() }] {
            let analysis = Analysis::new(settings);
            let summary = Summary::of(&analysis);
            let page = page(&analysis, &summary, 20, Provenance::default());
            assert!(text(&page).contains("0 frames"));
            assert!(page.to_html().contains("Overview"));
        }
    }
}
