//! Colours and marks.
//!
//! Colours are attributes, for programs that don't read style sheets (slides, converters); the
//! style sheet only replaces them on dark backgrounds. They are distinguished with any kind of
//! colour vision (after M. Okabe and K. Ito, "Color Universal Design"), and never alone: marks and
//! dashes differ too.

use crate::chart::svg::Px;
use crate::chart::{NAMES_MAX, Role};

pub(super) const PAPER: &str = "#ffffff";
pub(super) const INK: &str = "#1a1a1a";
pub(super) const MUTED: &str = "#5c5c5c";
pub(super) const GRID: &str = "#e4e4e4";
pub(super) const AXIS: &str = "#8a8a8a";

/// The colours of names, on white.
const COLOURS: [&str; NAMES_MAX] = [
    "#0072b2", "#d55e00", "#009e73", "#b5519b", "#b98200", "#4aa3df", "#7a4a2b", "#444444",
    "#5b3fa8", "#c2185b", "#5c8a00", "#008c95", "#e07b91", "#8c6d31", "#2f4f8f", "#9a9a9a",
];

/// On dark backgrounds. `s` strokes, `f` fills with a rim, `h` is hollow.
pub(crate) const STYLE: &str = "\
@media screen and (prefers-color-scheme:dark){\
.dwell-chart .paper{fill:#16181c}.dwell-chart .ink{fill:#e8e8e8}.dwell-chart .muted{fill:#a8a8a8}\
.dwell-chart .grid{stroke:#2c3036}.dwell-chart .axis{stroke:#7c8088}\
.dwell-chart .f{stroke:#16181c}.dwell-chart .h{fill:#16181c}\
.dwell-chart .s0{stroke:#4aa8e8}.dwell-chart .f0{fill:#4aa8e8}\
.dwell-chart .s1{stroke:#ff8a4c}.dwell-chart .f1{fill:#ff8a4c}\
.dwell-chart .s2{stroke:#2fc79a}.dwell-chart .f2{fill:#2fc79a}\
.dwell-chart .s3{stroke:#e39bc8}.dwell-chart .f3{fill:#e39bc8}\
.dwell-chart .s4{stroke:#e8b73a}.dwell-chart .f4{fill:#e8b73a}\
.dwell-chart .s5{stroke:#9bd5ff}.dwell-chart .f5{fill:#9bd5ff}\
.dwell-chart .s6{stroke:#c79a78}.dwell-chart .f6{fill:#c79a78}\
.dwell-chart .s7{stroke:#cccccc}.dwell-chart .f7{fill:#cccccc}\
.dwell-chart .s8{stroke:#b39bf0}.dwell-chart .f8{fill:#b39bf0}\
.dwell-chart .s9{stroke:#ff7fae}.dwell-chart .f9{fill:#ff7fae}\
.dwell-chart .s10{stroke:#a6d34a}.dwell-chart .f10{fill:#a6d34a}\
.dwell-chart .s11{stroke:#3fd3dd}.dwell-chart .f11{fill:#3fd3dd}\
.dwell-chart .s12{stroke:#f5b3c1}.dwell-chart .f12{fill:#f5b3c1}\
.dwell-chart .s13{stroke:#d8bd80}.dwell-chart .f13{fill:#d8bd80}\
.dwell-chart .s14{stroke:#86a8f5}.dwell-chart .f14{fill:#86a8f5}\
.dwell-chart .s15{stroke:#8f8f8f}.dwell-chart .f15{fill:#8f8f8f}}";

/// The dashes of lines. A name's colour and its mark are repeated after sixteen names, and its
/// dash after five.
const DASHES: [&str; 5] = ["", "7 3", "2.5 2.5", "9 3 2.5 3", "12 4"];

/// The appearance of a series.
#[derive(Clone, Copy)]
pub(super) struct SeriesStyle {
    slot: usize,
    role: Role,
}

/// The meaning of a mark's position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkAt {
    /// The point is here.
    Value,
    /// The point is here or further down.
    Floor,
}

impl SeriesStyle {
    pub(super) fn new(slot: usize, role: Role) -> Self {
        Self { slot, role }
    }

    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.slot % COLOURS.len()]
    }

    /// Returns the class of elements that are drawn with a line.
    pub(super) fn stroke_class(self) -> String {
        format!("s{}", self.slot % COLOURS.len())
    }

    /// Returns the class of elements that are filled.
    pub(super) fn fill_class(self) -> String {
        format!("f{}", self.slot % COLOURS.len())
    }

    pub(super) fn line_width(self) -> f64 {
        if self.role == Role::Ours { 2.0 } else { 1.5 }
    }

    /// Returns the value of `stroke-dasharray`.
    pub(super) fn dash(self) -> &'static str {
        match self.role {
            Role::Ours => DASHES[self.slot % DASHES.len()],
            Role::Paper => "1 3",
            Role::Bound => "2 5",
            Role::Reference => "12 3 3 3",
        }
    }

    /// Returns true if points have marks: all but bounds, which are lines.
    pub(super) fn has_marks(self) -> bool {
        self.role != Role::Bound
    }

    pub(super) fn is_hollow(self) -> bool {
        self.role != Role::Ours
    }

    /// Returns the outline of its mark.
    pub(super) fn mark(self, x: f64, y: f64, at: MarkAt) -> String {
        if at == MarkAt::Floor {
            // An arrow that points off the axis.
            return polygon(
                x,
                y,
                &[
                    (-2.0, -13.0),
                    (2.0, -13.0),
                    (2.0, -7.0),
                    (6.0, -7.0),
                    (0.0, 0.0),
                    (-6.0, -7.0),
                    (-2.0, -7.0),
                ],
            );
        }
        match self.role {
            Role::Paper => self.diamond(x, y),
            Role::Reference => strokes(x, y, &[(-4.5, -4.5, 4.5, 4.5), (-4.5, 4.5, 4.5, -4.5)]),
            Role::Ours | Role::Bound => SHAPES[self.slot % SHAPES.len()](x, y),
        }
    }

    /// Returns the outline of a hollow diamond; the shape inside distinguishes papers' series
    /// without colours.
    fn diamond(self, x: f64, y: f64) -> String {
        let rim = polygon(x, y, &[(0.0, -6.5), (6.5, 0.0), (0.0, 6.5), (-6.5, 0.0)]);
        let inside: &[(f64, f64, f64, f64)] = match self.slot % 5 {
            0 => &[],
            1 => &[(-6.5, 0.0, 6.5, 0.0)],
            2 => &[(0.0, -6.5, 0.0, 6.5)],
            3 => &[(-6.5, 0.0, 6.5, 0.0), (0.0, -6.5, 0.0, 6.5)],
            _ => &[(-1.0, 0.0, 1.0, 0.0)],
        };
        rim + &strokes(x, y, inside)
    }
}

const SHAPES: [fn(f64, f64) -> String; NAMES_MAX] = [
    |x, y| regular(x, y, 24, 4.6, 0),
    |x, y| polygon(x, y, &[(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)]),
    |x, y| polygon(x, y, &[(0.0, -5.8), (5.4, 4.2), (-5.4, 4.2)]),
    |x, y| polygon(x, y, &[(0.0, 5.8), (5.4, -4.2), (-5.4, -4.2)]),
    |x, y| regular(x, y, 5, 5.8, 0),
    |x, y| {
        let (a, b) = (1.9, 5.4);
        polygon(
            x,
            y,
            &[
                (-a, -b),
                (a, -b),
                (a, -a),
                (b, -a),
                (b, a),
                (a, a),
                (a, b),
                (-a, b),
                (-a, a),
                (-b, a),
                (-b, -a),
                (-a, -a),
            ],
        )
    },
    |x, y| regular(x, y, 10, 6.6, 1),
    |x, y| polygon(x, y, &[(-6.2, -2.6), (6.2, -2.6), (6.2, 2.6), (-6.2, 2.6)]),
    |x, y| regular(x, y, 4, 6.0, 0),
    |x, y| regular(x, y, 8, 6.6, 1),
    |x, y| polygon(x, y, &[(-5.0, -5.4), (5.0, -5.4), (-5.0, 5.4), (5.0, 5.4)]),
    |x, y| polygon(x, y, &[(-5.4, -5.0), (5.4, 5.0), (5.4, -5.0), (-5.4, 5.0)]),
    |x, y| polygon(x, y, &[(-2.6, -6.2), (2.6, -6.2), (2.6, 6.2), (-2.6, 6.2)]),
    |x, y| polygon(x, y, &[(-4.2, -5.4), (5.8, 0.0), (-4.2, 5.4)]),
    |x, y| polygon(x, y, &[(4.2, -5.4), (-5.8, 0.0), (4.2, 5.4)]),
    |x, y| polygon(x, y, &[(-5.6, 4.4), (0.0, -5.4), (5.6, 4.4), (0.0, 0.6)]),
];

/// A polygon with equal corners, the first on top; with `star`, every second one is nearer.
fn regular(x: f64, y: f64, corners: u32, radius: f64, star: u32) -> String {
    let corner = |at: u32| {
        let angle = f64::from(at) / f64::from(corners) * std::f64::consts::TAU;
        let radius = if star * at % 2 == 1 { radius * 0.45 } else { radius };
        (radius * libm::sin(angle), -radius * libm::cos(angle))
    };
    let corners: Vec<(f64, f64)> = (0..corners).map(corner).collect();
    polygon(x, y, &corners)
}

fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (at, (dx, dy)) in corners.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        path += &format!("{command}{} {}", Px(x + dx), Px(y + dy));
    }
    path + "Z"
}

fn strokes(x: f64, y: f64, lines: &[(f64, f64, f64, f64)]) -> String {
    let line = |(x1, y1, x2, y2): &(f64, f64, f64, f64)| {
        format!("M{} {}L{} {}", Px(x + x1), Px(y + y1), Px(x + x2), Px(y + y2))
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_names_have_a_colour_or_a_mark_in_common() {
        let styles = || (0..NAMES_MAX).map(|slot| SeriesStyle::new(slot, Role::Ours));
        let colours: BTreeSet<_> = styles().map(SeriesStyle::colour).collect();
        let marks: BTreeSet<String> =
            styles().map(|style| style.mark(50.0, 50.0, MarkAt::Value)).collect();
        assert_eq!((colours.len(), marks.len()), (NAMES_MAX, NAMES_MAX));
        let dark = (0..NAMES_MAX).map(|slot| {
            let at = STYLE.find(&format!(".f{slot}{{fill:")).unwrap();
            STYLE[at..].split(['{', '}']).nth(1).unwrap()
        });
        assert_eq!(dark.collect::<BTreeSet<_>>().len(), NAMES_MAX);
    }
}
