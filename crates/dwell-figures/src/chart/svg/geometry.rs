//! Lines within a frame, cut at its edge and thinned to the points that can be seen.

/// A place on the drawing.
pub(super) type Place = (f64, f64);

/// The area in which points are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The place of shares of the axes.
    pub(super) fn place(&self, x: f64, y: f64) -> Place {
        (self.left + x * self.width, self.bottom() - y * self.height)
    }

    /// The part of a line that is inside (Liang and Barsky).
    pub(super) fn clip(&self, from: Place, to: Place) -> Option<(Place, Place)> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (step, room) in [
            (-dx, from.0 - self.left),
            (dx, self.right() - from.0),
            (-dy, from.1 - self.top),
            (dy, self.bottom() - from.1),
        ] {
            if step == 0.0 {
                if room < 0.0 {
                    return None;
                }
            } else if step < 0.0 {
                enter = enter.max(room / step);
            } else {
                leave = leave.min(room / step);
            }
        }
        let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
        (enter <= leave).then(|| (at(enter), at(leave)))
    }
}

/// Keeps only those points of a line that change what is seen: of the points in the same column of
/// pixels the first, the last, the highest and the lowest.
pub(super) fn thin(points: &[Option<Place>]) -> Vec<Option<Place>> {
    let column = |point: &Option<Place>| point.map(|(x, _)| x.floor());
    let mut kept = Vec::new();
    for run in points.chunk_by(|a, b| column(a) == column(b)) {
        if run.len() <= 4 {
            kept.extend_from_slice(run);
            continue;
        }
        let height = |&at: &usize| run[at].map_or(0.0, |(_, y)| y);
        let by_height = |a: &usize, b: &usize| height(a).total_cmp(&height(b));
        let ends = [Some(0), (0..run.len()).min_by(by_height), (0..run.len()).max_by(by_height)];
        let mut ends: Vec<usize> = ends.into_iter().flatten().chain([run.len() - 1]).collect();
        ends.sort_unstable();
        ends.dedup();
        kept.extend(ends.into_iter().map(|at| run[at]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAME: Frame = Frame { left: 10.0, top: 10.0, width: 100.0, height: 50.0 };

    #[test]
    fn lines_end_at_the_edge() {
        let (from, to) = FRAME.clip((0.0, 20.0), (200.0, 20.0)).unwrap();
        assert!((from.0 - 10.0).abs() < 1e-9 && (to.0 - 110.0).abs() < 1e-9, "{from:?} {to:?}");
        assert_eq!(FRAME.clip((0.0, 0.0), (5.0, 99.0)), None);
        assert_eq!(FRAME.clip((20.0, 20.0), (30.0, 30.0)), Some(((20.0, 20.0), (30.0, 30.0))));
    }

    #[test]
    fn what_can_not_be_seen_is_left_out() {
        let points: Vec<_> =
            (0..1000).map(|at| Some((f64::from(at) / 100.0, f64::from(at % 7)))).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= 40, "{}", thinned.len());
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (points[0], points[999]));
        assert_eq!(thin(&[None, None]), [None, None]);
    }

    proptest! {
        #[test]
        fn what_is_left_is_inside(a in any::<(i16, i16)>(), b in any::<(i16, i16)>()) {
            let place = |(x, y): (i16, i16)| (f64::from(x) / 100.0, f64::from(y) / 100.0);
            if let Some((from, to)) = FRAME.clip(place(a), place(b)) {
                for (x, y) in [from, to] {
                    prop_assert!((9.999..=110.001).contains(&x) && (9.999..=60.001).contains(&y));
                }
            }
        }
    }
}
