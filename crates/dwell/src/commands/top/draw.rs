//! How `dwell top` looks.

use dwell_report::status::{PeerState, PeerStatus};
use dwell_report::{answer, human};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState};

use super::flows;
use super::model::{Model, Row as PeerRow};

/// Smaller terminals are asked to grow.
pub(super) const WIDTH_MIN: u16 = 60;
pub(super) const HEIGHT_MIN: u16 = 14;
/// Lines of the answer at the top: whether it is up, and what it saved.
const ANSWER_LINES: u16 = 2;

/// Colours, or none of them. What they say is always there in words, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) has_colours: bool,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn state(self, state: PeerState) -> Style {
        match state {
            PeerState::Up => self.of(Color::Green),
            PeerState::Connecting => self.of(Color::Yellow),
            PeerState::Down => self.of(Color::Red),
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, palette: Palette) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!(
            "dwell top needs {WIDTH_MIN} columns and {HEIGHT_MIN} lines; here are {} and {}. q ends it.",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let rows = u16::try_from(model.rows().len()).unwrap_or(u16::MAX);
    // One for the header; half of the screen at most is for peers.
    let peers = (rows.saturating_add(1)).clamp(2, area.height / 2);
    let lines = [
        Constraint::Length(ANSWER_LINES),
        Constraint::Length(peers),
        Constraint::Length(if area.height >= 20 { 5 } else { 3 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [top, table, plot, details, bottom] = Layout::vertical(lines).areas(area);
    draw_answer(frame, top, model, palette);
    draw_peers(frame, table, model, palette);
    let rows = model.rows();
    if let Some(row) = rows.get(model.selected()) {
        draw_plot(frame, plot, model, row.peer, palette);
        let halves = [Constraint::Percentage(62), Constraint::Percentage(38)];
        let [left, right] = Layout::horizontal(halves).areas(details);
        match model.shows_flows {
            true => draw_flows(frame, left, model, row.peer),
            false => draw_decisions(frame, left, model, row.peer),
        }
        draw_classes(frame, right, row.peer);
    }
    draw_keys(frame, bottom, model);
}

fn draw_answer(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let Some(status) = model.status() else {
        let text = model.trouble.as_deref().unwrap_or("asking the node…");
        frame.render_widget(Paragraph::new(text.to_owned()), area);
        return;
    };
    let said = answer(status);
    let (up, all) = model.up();
    let style = if up == all { palette.of(Color::Green) } else { palette.of(Color::Yellow) };
    let first = said.lines().next().unwrap_or_default().to_owned();
    let saved = said.lines().find(|line| line.starts_with("saved")).unwrap_or_default().to_owned();
    let second = match &model.trouble {
        Some(why) => Line::styled(why.clone(), palette.of(Color::Red).patch(BOLD)),
        None => Line::raw(saved.replace("saved on the links from here", "saved")),
    };
    let lines = vec![Line::styled(first, style.patch(BOLD)), second];
    frame.render_widget(Paragraph::new(lines), area);
}

const HEADERS: [&str; 8] =
    ["peer", "out bit/s", "link", "in bit/s", "saved", "wait", "p99", "state"];
const WIDTHS: [u16; 7] = [14, 9, 5, 9, 6, 7, 7];

fn draw_peers(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let rows: Vec<Row<'_>> = model.rows().iter().map(|row| peer_row(row, palette)).collect();
    let header = HEADERS.iter().enumerate().map(|(at, name)| match at {
        1..=6 => right((*name).to_owned()),
        _ => Cell::new(*name),
    });
    let widths = WIDTHS.map(Constraint::Length).into_iter().chain([Constraint::Min(16)]);
    let header = Row::new(header).style(BOLD);
    let table = Table::new(rows, widths).header(header).row_highlight_style(REVERSED);
    let mut state = TableState::new().with_selected(model.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

fn peer_row(row: &PeerRow<'_>, palette: Palette) -> Row<'static> {
    let (peer, now) = (row.peer, row.now);
    let percent = |ppm: Option<i64>| {
        ppm.map_or_else(|| human::NOTHING.to_owned(), |ppm| format!("{} %", ppm / 10_000))
    };
    let used = now.and_then(|now| i64::try_from(now.utilisation_ppm?).ok());
    let p99 = peer.tx.sojourn.p99_ns_if_any().map(human::duration);
    let problems = peer.problems.iter().map(|problem| &*problem.problem);
    let state: Vec<_> = [peer.state.name()].into_iter().chain(problems).collect();
    Row::new([
        Cell::new(peer.name.clone()),
        right(short_rate(now.map(|now| now.link_bps))),
        right(percent(used)),
        right(short_rate(now.map(|now| now.received_link_bps))),
        right(percent(row.saved_ppm)),
        right(human::duration(peer.waiting_ns)),
        right(p99.unwrap_or_else(|| human::NOTHING.to_owned())),
        Cell::new(state.join(", ")).style(palette.state(peer.state)),
    ])
}

/// `4.4 M`: the column says that it is bits a second.
fn short_rate(bps: Option<u64>) -> String {
    let Some(bps) = bps else { return human::NOTHING.to_owned() };
    let (unit, name) = match bps {
        0..1_000 => return bps.to_string(),
        1_000..1_000_000 => (1e3, "k"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    format!("{:.1} {name}", bps as f64 / unit)
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).alignment(Alignment::Right))
}

fn draw_plot(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    peer: &PeerStatus,
    palette: Palette,
) {
    let history = model.history(&peer.name);
    let width = usize::from(area.width);
    let shown = &history[history.len().saturating_sub(width)..];
    let most = shown.iter().copied().max().unwrap_or(0);
    // Against the link's rate, if it is known: a full plot is a full link.
    let top = peer.rate_bps.unwrap_or(0).max(most).max(1);
    let title = format!(" {}: on the link, up to {} ", peer.name, human::rate(top));
    let plot = Sparkline::default()
        .block(Block::new().borders(Borders::TOP).title(title))
        .data(shown)
        .max(top)
        .style(palette.of(Color::Cyan));
    frame.render_widget(plot, area);
}

fn draw_decisions(frame: &mut Frame<'_>, area: Rect, model: &Model, peer: &PeerStatus) {
    let queue = format!(
        " queue: {}, {}; {} ",
        human::counted(peer.waiting_packets, "packet"),
        human::bytes(peer.waiting_bytes),
        peer.scheme
    );
    // The reasons come first, and the sums only where there is room.
    let has_room = area.width >= 60;
    let rows = model.decisions(peer).into_iter().map(|it| {
        let mut cells =
            vec![Cell::new(it.name), right(format!("{}/s", human::count(it.per_second)))];
        if has_room {
            cells.push(right(human::count(it.total)));
        }
        Row::new(cells)
    });
    let mut widths = vec![Constraint::Min(20), Constraint::Length(8)];
    if has_room {
        widths.push(Constraint::Length(12));
    }
    let table = Table::new(rows, widths).block(Block::new().borders(Borders::TOP).title(queue));
    frame.render_widget(table, area);
}

fn draw_flows(frame: &mut Frame<'_>, area: Rect, model: &Model, peer: &PeerStatus) {
    let rows = model
        .flows(&peer.name)
        .into_iter()
        .map(|flow| Row::new([right(short_rate(Some(flow.bps))), Cell::new(flows::ends(flow))]));
    let widths = [Constraint::Length(8), Constraint::Min(20)];
    let block = Block::new().borders(Borders::TOP).title(" flows that send most: bit/s ");
    frame.render_widget(Table::new(rows, widths).block(block), area);
}

fn draw_classes(frame: &mut Frame<'_>, area: Rect, peer: &PeerStatus) {
    let rows = peer.classes.iter().map(|class| {
        let alone = if class.backing_off { "left alone" } else { "" };
        Row::new([
            Cell::new(class.class.clone()),
            right(human::ratio(Some(class.ratio))),
            Cell::new(alone),
        ])
    });
    let widths = [Constraint::Min(9), Constraint::Length(6), Constraint::Length(10)];
    let block = Block::new().borders(Borders::TOP | Borders::LEFT).title(" classes: ratio ");
    frame.render_widget(Table::new(rows, widths).block(block), area);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let (sort, filter) = model.order();
    let text = match model.types_filter {
        true => format!(" filter: {filter}_   Enter keeps it, Esc clears it"),
        false => {
            let filter = match filter.is_empty() {
                true => String::new(),
                false => format!(" ({filter})"),
            };
            let other = if model.shows_flows { "decisions" } else { "flows" };
            let pause = if model.is_paused { "p go on" } else { "p pause" };
            format!(" q quit  up/down peer  s sort: {sort}  / filter{filter}  f {other}  {pause}")
        }
    };
    frame.render_widget(Paragraph::new(text).style(REVERSED), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::Key;
    use super::super::model::tests::{SECOND_NS, model, status};
    use super::*;

    const PLAIN: Palette = Palette { has_colours: false };

    /// The screen as lines of text.
    fn screen(model: &Model, (width, height): (u16, u16), palette: Palette) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, palette)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn all_that_matters_fits_a_small_terminal() {
        let lines = screen(&model(), (80, 24), PLAIN);
        let text = lines.join("\n");
        assert_eq!(lines[0], "site-a is up in part: 1 of 2 peers answer");
        assert!(lines[1].starts_with("saved: today "), "{text}");
        assert!(lines[2].starts_with("peer           out bit/s"), "{text}");
        let hub = ["hub", "4.0 M", "40 %", "50 %", "12.0 ms", "up"];
        assert!(hub.iter().all(|part| lines[3].contains(part)), "{text}");
        assert!(lines[4].contains("depot") && lines[4].contains("connecting"), "{text}");
        for part in [
            "hub: on the link, up to 10 Mbit/s",
            "queue: 0 packets",
            "compressed",
            "500/s",
            "raw: they came alone, or rarely",
            "dropped: queue_packets",
            "classes: ratio",
            "tcp/443",
            "left alone",
            "s sort: configured",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(lines[23].contains("q quit"), "{text}");
    }

    #[test]
    fn flows_take_the_place_of_decisions() {
        let mut model = model();
        let flow = |peer: &str, source: &str| dwell_report::status::FlowStatus {
            peer: peer.to_owned(),
            protocol: 6,
            source: source.to_owned(),
            destination: "10.2.0.9:443".to_owned(),
            bps: 1_500_000,
            ..Default::default()
        };
        let mut asked = status(20);
        asked.flows = vec![flow("hub", "10.1.0.5:40000"), flow("depot", "10.1.0.6:40000")];
        model.update(20 * SECOND_NS, asked);
        assert!(model.take_key(Key::Char('f')));
        let text = screen(&model, (80, 24), PLAIN).join("\n");
        assert!(text.contains("1.5 M tcp 10.1.0.5:40000 > 10.2.0.9:443"), "{text}");
        assert!(!text.contains("10.1.0.6") && text.contains("f decisions"), "{text}");
        // The keys that sort and filter are the flows' then.
        assert!(text.contains("s sort: rate"), "{text}");
        for key in ['s', '/', 'u', 'd', 'p'] {
            assert!(model.take_key(Key::Char(key)));
        }
        let text = screen(&model, (80, 24), PLAIN).join("\n");
        assert!(text.contains("filter: udp_") && !text.contains("10.1.0.5"), "{text}");
        assert!(text.contains("hub") && text.contains("depot"), "peers stay: {text}");
        assert!(model.take_key(Key::Escape));
        let text = screen(&model, (80, 24), PLAIN).join("\n");
        assert!(text.contains("10.1.0.5") && text.contains("s sort: bytes"), "{text}");
        assert!(model.take_key(Key::Char('f')));
        assert!(screen(&model, (80, 24), PLAIN).join("\n").contains("queue: "));
    }

    #[test]
    fn without_colours_nothing_is_coloured_or_missing() {
        let coloured = Palette { has_colours: true };
        let size = (80, 24);
        assert_eq!(screen(&model(), size, PLAIN), screen(&model(), size, coloured));
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &model(), PLAIN)).unwrap();
        let cells = &terminal.backend().buffer().content;
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        terminal.draw(|frame| draw(frame, &model(), coloured)).unwrap();
        let cells = &terminal.backend().buffer().content;
        assert!(cells.iter().any(|cell| cell.fg == Color::Green));
    }

    #[test]
    fn no_size_and_no_state_breaks_it() {
        let mut unreachable = Model::default();
        unreachable.trouble = Some("there is no socket".to_owned());
        let mut crowded = model();
        let mut many = status(20);
        many.peers = (0..300).flat_map(|_| status(20).peers).collect();
        crowded.update(20 * SECOND_NS, many);
        crowded.take_key(Key::Char('/'));
        for _ in 0..60 {
            assert!(crowded.take_key(Key::Char('é')));
        }
        let mut empty = Model::default();
        empty.update(SECOND_NS, dwell_report::Status::default());
        for model in [&Model::default(), &unreachable, &crowded, &empty, &model()] {
            for (width, height) in [(1, 1), (59, 24), (60, 14), (80, 24), (80, 13), (300, 90)] {
                screen(model, (width, height), PLAIN);
            }
        }
        let small = screen(&model(), (40, 10), PLAIN).join(" ");
        assert!(small.contains("needs 60 columns"), "{small}");
        let trouble = screen(&unreachable, (80, 24), PLAIN);
        assert_eq!(trouble[0], "there is no socket");
    }
}
