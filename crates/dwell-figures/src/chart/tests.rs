//! Whole charts: their appearance, and what must never happen.

use proptest::prelude::*;
use roxmltree::Document;

use super::*;

/// Loss by load, as papers draw it: a floor, error bars, the paper's points.
fn loss() -> Chart {
    Chart::new("Packet loss", Axis::linear("load"), Axis::log("loss rate").floor(1e-5))
        .caption("Least to most of ten runs.")
        .series(Series::line("none").point(0.5, 1e-3).point_between(1.0, 0.1, 0.05, 0.2))
        .series(Series::line("packet").point(0.5, 0.0).point_between(1.0, 4e-3, 1e-3, 1e-2))
        .series(Series::points("packet").role(Role::Paper).point(0.5, 1e-5).point(1.0, 3e-3))
}

fn elements<'a>(document: &'a Document<'a>, class: &str) -> Vec<roxmltree::Node<'a, 'a>> {
    let is_it = |node: &roxmltree::Node<'_, '_>| {
        node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
    };
    document.descendants().filter(is_it).collect()
}

fn texts(document: &Document<'_>) -> Vec<String> {
    let nodes = document.descendants().filter(|node| node.has_tag_name("text"));
    nodes.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_chart_as_text() {
    let expected = "\
Packet loss
Least to most of ten runs.
loss rate
   10⁰ ┤
       │
       │
       │                                           |
  10⁻¹ ┤                                        ···A
       │                                   ······  |
       │                              ······
       │                          ·····
  10⁻² ┤                     ·····                 |
       │                ······                    ·B
       │            ·····                     ·····b
  10⁻³ ┤       A····                       ····    |
       │                               ····
       │                            ···
       │                        ····
  10⁻⁴ ┤                    ····
       │                ·····
       │             ····
       │         ····
≤ 10⁻⁵ ┤       *··
       └┬─────────────┬──────────────┬─────────────┬
       0.4           0.6            0.8          1.0
                            load
  A  none
  B  packet
  b  packet (paper)
  *  several
";
    let text = loss().to_text(52);
    let start: Vec<&str> = text.lines().take(expected.lines().count()).collect();
    assert_eq!(start, expected.lines().collect::<Vec<_>>(), "\n{text}");
}

#[test]
fn the_papers_points_have_the_colour_of_ours_and_another_mark() {
    let svg = loss().to_svg();
    let document = Document::parse(&svg).unwrap();
    // Each has a mark in the legend, too, and packet's first point is at the floor.
    assert_eq!(elements(&document, "f0").len(), 3);
    assert_eq!(elements(&document, "f1").len(), 3);
    let (legend, hollow) = (elements(&document, "h"), elements(&document, "o"));
    assert_eq!((legend.len(), hollow.len()), (1, 2));
    assert!(hollow.iter().all(|mark| mark.attribute("class") == Some("o s1")));
    let labels = texts(&document);
    for label in [
        "≤ 10⁻⁵",
        "packet (paper)",
        "Arrows: at or below the end of the axis (≤ 10⁻⁵), set side by side.",
        "load",
        "loss rate",
    ] {
        assert!(labels.iter().any(|text| text == label), "{label}: {labels:?}");
    }
}

#[test]
fn marks_are_where_the_values_are() {
    let chart = Chart::new("", Axis::linear("").range(0.0, 10.0), Axis::linear("").range(0.0, 1.0))
        .series(Series::points("a").role(Role::Reference).point(0.0, 0.0).point(10.0, 1.0));
    let svg = chart.to_svg();
    let document = Document::parse(&svg).unwrap();
    // A cross begins left and above of its point by 4.5; the axis is left of the points by 12.
    let begin = |mark: &roxmltree::Node<'_, '_>| -> (f64, f64) {
        let path = mark.attribute("d").unwrap()[1..].split('L').next().unwrap();
        let (x, y) = path.split_once(' ').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    let marks: Vec<_> = ["h", "o"]
        .iter()
        .flat_map(|class| elements(&document, class))
        .map(|mark| begin(&mark))
        .collect();
    let (legend, low, high) = (marks[0], marks[1], marks[2]);
    assert!(legend.1 < high.1, "the legend is above the plot");
    assert!((low.1 - high.1 - 330.0).abs() < 0.02, "{marks:?}");
    let axis = elements(&document, "axis").last().unwrap().attribute("d").unwrap().to_owned();
    let ends: Vec<f64> =
        axis.split(['M', ' ', 'V', 'H']).filter_map(|number| number.parse().ok()).collect();
    assert!(
        (low.0 + 4.5 - 12.0 - ends[0]).abs() < 0.02 && (high.0 + 4.5 + 12.0 - ends[3]).abs() < 0.02
    );
    assert!((low.1 + 4.5 - ends[2]).abs() < 0.02 && (high.1 + 4.5 - ends[1]).abs() < 0.02);
}

#[test]
fn what_is_not_drawn_is_counted() {
    let chart = Chart::new("", Axis::linear("").range(0.0, 1.0), Axis::linear(""))
        .series(Series::line("a").with([(0.5, 1.0), (0.6, f64::NAN), (7.0, 1.0), (8.0, 1.0)]));
    for drawing in [chart.to_svg(), chart.to_text(80)] {
        assert!(drawing.contains("Outside of the axes: 2 points."), "{drawing}");
        assert!(drawing.contains("not a finite number: 1 point."), "{drawing}");
    }
    assert!(Chart::new("", Axis::linear(""), Axis::log("")).to_svg().contains("no points"));
}

#[test]
fn bars_stand_side_by_side_and_papers_marks_on_them() {
    let chart = Chart::new("", Axis::of("", ["a", "b"]), Axis::linear(""))
        .series(Series::bars("ours").with([(0.0, 1.0), (1.0, 2.0)]))
        .series(Series::bars("other").with([(0.0, 1.5), (1.0, 1.0)]))
        .series(Series::bars("ours").role(Role::Paper).with([(0.0, 1.1), (1.0, 2.1)]));
    let svg = chart.to_svg();
    let document = Document::parse(&svg).unwrap();
    let bars: Vec<(f64, f64)> = document
        .descendants()
        .filter(|node| node.has_tag_name("rect") && node.attribute("x").is_some())
        .map(|node| ["x", "width"].map(|name| node.attribute(name).unwrap().parse().unwrap()))
        .map(|[x, width]: [f64; 2]| (x, width))
        .collect();
    // Four, and two in the legend.
    assert_eq!(bars.len(), 6, "{svg}");
    let mut drawn: Vec<(f64, f64)> = bars.into_iter().filter(|(_, width)| *width > 20.0).collect();
    drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(drawn.len(), 4);
    assert!(drawn.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{drawn:?}");
    assert_eq!(elements(&document, "h").len(), 3);
}

#[test]
fn many_points_are_a_line() {
    let wave = (0..100_000).map(|at| (f64::from(at), f64::from(at % 97)));
    let svg = Chart::new("", Axis::linear(""), Axis::linear(""))
        .series(Series::line("a").with(wave))
        .to_svg();
    assert!(svg.len() < 100_000, "{}", svg.len());
    Document::parse(&svg).unwrap();
}

#[test]
fn the_numbers_of_a_chart() {
    let expected = "load  none               packet                packet (paper)\n\
                    0.5   0.001              0                     1e-5\n\
                    1     0.1 (0.05 to 0.2)  0.004 (0.001 to 0.01) 0.003\n";
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeeze(&loss().data_table().to_text()), squeeze(expected));
}

prop_compose! {
    fn any_axis()(
        label in hostile(), unit in prop_oneof!["s", "bit/s", "%", hostile()],
        log in any::<bool>(),
        range in prop::option::of(any::<(f64, f64)>()),
        floor in prop::option::of(any::<f64>()),
        categories in prop::collection::vec(hostile(), 0..4),
    ) -> Axis {
        let scale = if log { Scale::Log } else { Scale::Linear };
        Axis { label, unit, scale, range, floor, categories }
    }
}

prop_compose! {
    fn any_series()(
        name in prop_oneof!["a", "b", hostile()],
        kind in prop::sample::select(&[Kind::Line, Kind::Points, Kind::Steps, Kind::Bars][..]),
        role in prop::sample::select(&[Role::Ours, Role::Paper, Role::Bound, Role::Reference][..]),
        points in prop_oneof![
            prop::collection::vec(any_point(), 0..6),
            prop::collection::vec(any_point(), 60..80),
        ],
    ) -> Series {
        Series { name, kind, role, points }
    }
}

prop_compose! {
    fn any_point()(
        x in any_number(), y in any_number(),
        low in prop::option::of(any_number()), high in prop::option::of(any_number()),
    ) -> Point {
        Point { x, y, low, high }
    }
}

prop_compose! {
    fn any_chart()(
        title in hostile(), caption in hostile(), x in any_axis(), y in any_axis(),
        series in prop::collection::vec(any_series(), 0..4),
    ) -> Chart {
        Chart { title, caption, x, y, series }
    }
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,12}", "[\u{0}-\u{9f}<>&\"'\u{fffe}\u{202e}]{0,12}", "[a-z ]{0,300}"]
}

fn any_number() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, 1.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324];
    let none = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![
        -10.0..10.0f64,
        any::<f64>(),
        prop::sample::select([&special[..], &none[..]].concat()),
    ]
}

/// The numbers in these attributes of a drawing.
fn numbers(document: &Document<'_>, names: &[&str]) -> Vec<f64> {
    let attributes = document.descendants().flat_map(|node| node.attributes());
    let numbers = attributes.filter(|attribute| names.contains(&attribute.name())).flat_map(|a| {
        a.value()
            .split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    numbers.filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
}

proptest! {
    #[test]
    fn every_chart_is_well_formed_and_within_its_edges(chart in any_chart()) {
        for (svg, width) in [(chart.to_svg(), 720.0), (chart.to_narrow_svg(), 368.0)] {
            let document = Document::parse(&svg).unwrap();
            let height: f64 = document.root_element().attribute("height").unwrap().parse().unwrap();
            let largest = height.max(width);
            for number in numbers(&document, &["d", "width", "height"]) {
                prop_assert!((-20.0..=largest + 20.0).contains(&number), "{number}\n{svg}");
            }
            for (names, size) in [(["x", "x1", "x2", "cx"], width), (["y", "y1", "y2", "cy"], height)] {
                for number in numbers(&document, &names) {
                    prop_assert!((-20.0..=size + 20.0).contains(&number), "{number}\n{svg}");
                }
            }
        }
        prop_assert_eq!(chart.to_svg(), chart.to_svg());
    }

    #[test]
    fn every_chart_has_a_text(chart in any_chart(), width in 0..300usize) {
        let text = chart.to_text(width);
        prop_assert!(text.ends_with('\n'));
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }

    #[test]
    fn every_finite_point_of_ours_has_a_mark(
        points in prop::collection::vec((-1e9..1e9f64, -1e9..1e9f64), 0..50), log in any::<bool>(),
    ) {
        let y = if log { Axis::log("") } else { Axis::linear("") };
        let count = points.len();
        let chart = Chart::new("", Axis::linear(""), y).series(Series::line("a").with(points));
        let svg = chart.to_svg();
        let document = Document::parse(&svg).unwrap();
        prop_assert_eq!(elements(&document, "f0").len(), count + 1);
    }
}

#[test]
fn a_narrow_drawing_keeps_to_its_width() {
    let name = "a line with a name that no telephone has room for, and then some more of it";
    let chart = loss().series(Series::line(name).point(1.0, 2.0));
    let svg = chart.to_narrow_svg();
    let document = Document::parse(&svg).unwrap();
    let root = document.root_element();
    assert_eq!(root.attribute("width"), Some("368"));
    let at = |node: &roxmltree::Node<'_, '_>| node.attribute("x").unwrap().parse::<f64>().unwrap();
    for text in document.descendants().filter(|node| node.has_tag_name("text")) {
        assert!((0.0..368.0).contains(&at(&text)), "{text:?}");
    }
    assert!(svg.contains('…'), "the name is cut");
}
