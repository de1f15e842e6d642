//! Points over time, in bounded memory.

use std::collections::VecDeque;

use super::point::{Joined, Point};

/// An hour of seconds, ...
const SECONDS_MAX: usize = 3_600;
/// ... and a day of minutes.
const MINUTES_MAX: usize = 1_440;
const SECONDS_PER_MINUTE: u64 = 60;

/// How far back is shown. Steps are so long that there are some 300 points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// Five minutes, in seconds.
    #[default]
    FiveMinutes,
    /// An hour, in steps of ten seconds.
    Hour,
    /// A day, in steps of five minutes.
    Day,
}

impl Range {
    /// Every range, the shortest first.
    pub const ALL: [Self; 3] = [Self::FiveMinutes, Self::Hour, Self::Day];

    /// Returns the name in addresses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
            Self::Day => "1d",
        }
    }

    /// Returns the range of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.name() == name)
    }

    /// Returns the length of a step in seconds, and the number of steps.
    pub const fn steps(self) -> (u64, usize) {
        match self {
            Self::FiveMinutes => (1, 300),
            Self::Hour => (10, 360),
            Self::Day => (300, 288),
        }
    }
}

/// The points of one scope. A point has a second, by whatever clock; those of one minute are kept as one for longer.
#[derive(Clone, Debug)]
pub(super) struct Series {
    seconds: Tier,
    minutes: Tier,
    minute: Joined,
}

/// Points in equal steps of time.
#[derive(Clone, Debug, Default)]
struct Tier {
    points: VecDeque<Point>,
    /// The step after the last point.
    next: u64,
}

impl Tier {
    /// Adds the point of a step, and fills the steps that were left out.
    fn put(&mut self, step: u64, point: Point, most: usize) {
        let gap = if self.points.is_empty() { 0 } else { step.saturating_sub(self.next) };
        let gap = usize::try_from(gap).map_or(most, |gap| gap.min(most));
        for point in std::iter::repeat_n(Point::MISSING, gap).chain([point]) {
            if self.points.len() == most {
                self.points.pop_front();
            }
            self.points.push_back(point);
        }
        self.next = step + 1;
    }

    /// Forgets the points of this step and of later ones.
    fn cut(&mut self, step: u64) {
        let over = self.next.saturating_sub(step);
        let over =
            usize::try_from(over).map_or(self.points.len(), |over| over.min(self.points.len()));
        self.points.truncate(self.points.len() - over);
        self.next = self.next.min(step);
    }

    /// Returns the points of these steps, those that are there.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &Point> {
        let first = self.next - self.points.len() as u64;
        let place = |step: u64| (step.clamp(first, self.next) - first) as usize;
        self.points.range(place(from)..place(to).max(place(from)))
    }
}

impl Series {
    pub(super) fn new() -> Self {
        Self { seconds: Tier::default(), minutes: Tier::default(), minute: Joined::NONE }
    }

    /// Adds the point of a second. If the clock was set back, what was after that second is forgotten, and begins
    /// again: two pasts of one second can't be shown. Of a second that comes twice in a row the first stays.
    pub(super) fn put(&mut self, second: u64, point: Point) {
        let minute = |second: u64| second / SECONDS_PER_MINUTE;
        match self.last_second() {
            Some(last) if second == last => return,
            Some(last) if second < last => {
                self.seconds.cut(second);
                self.minutes.cut(minute(second));
                self.minute = Joined::NONE;
                let kept = minute(second) * SECONDS_PER_MINUTE;
                self.seconds.between(kept, second).for_each(|point| self.minute.add(point));
            }
            _ => {}
        }
        if let Some(last) = self.last_second()
            && minute(last) != minute(second)
        {
            self.minutes.put(minute(last), self.minute.point(), MINUTES_MAX);
            self.minute = Joined::NONE;
        }
        self.minute.add(&point);
        self.seconds.put(second, point, SECONDS_MAX);
    }

    pub(super) fn last_second(&self) -> Option<u64> {
        self.seconds.next.checked_sub(1)
    }

    /// Returns the points of a range that ends with this second: each is of a step that begins at a multiple of
    /// its length.
    pub(super) fn window(&self, range: Range, now: u64) -> Vec<Point> {
        let (step, count) = range.steps();
        let first = (now / step + 1).saturating_sub(count as u64);
        let tier_step = if range == Range::Day { SECONDS_PER_MINUTE } else { 1 };
        let tier = if range == Range::Day { &self.minutes } else { &self.seconds };
        let per = step / tier_step;
        let mut points = Vec::with_capacity(count);
        for at in first..first + count as u64 {
            let mut joined = Joined::NONE;
            tier.between(at * per, (at + 1) * per).for_each(|point| joined.add(point));
            if range == Range::Day && now / step == at {
                joined.add(&self.minute.point());
            }
            points.push(joined.point());
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::super::Measure;
    use super::*;

    /// Of ten measures, in rings that have grown to powers of two.
    const BYTES: usize = 245_760;

    fn point(value: u64) -> Point {
        let mut point = Point::MISSING;
        point.set(Measure::Link, value as f64);
        point
    }

    fn values(series: &Series, range: Range, now: u64) -> Vec<Option<f64>> {
        series.window(range, now).iter().map(|point| point.get(Measure::Link)).collect()
    }

    /// What docs/monitoring.md says of it: a page that nobody reads costs no more.
    #[test]
    fn a_day_of_a_scope_takes_some_250_kb() {
        let mut series = Series::new();
        for second in 0..2 * 86_400 {
            series.put(second, point(second));
        }
        let points = series.seconds.points.capacity() + series.minutes.points.capacity();
        let bytes = points * size_of::<Point>();
        assert!((BYTES / 2..=BYTES).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn the_latest_are_shown_and_gaps_are_gaps() {
        let mut series = Series::new();
        assert!(values(&series, Range::FiveMinutes, 1_000).iter().all(Option::is_none));
        for second in (1_000..1_010).filter(|second| *second != 1_005) {
            series.put(second, point(second));
        }
        series.put(1_009, point(7)); // once more
        let shown = values(&series, Range::FiveMinutes, 1_009);
        assert_eq!(shown.len(), 300);
        let expected = (1_000..1_010).map(|at| (at != 1_005).then_some(f64::from(at)));
        assert_eq!(shown[290..], expected.collect::<Vec<_>>());
        assert!(shown[..290].iter().all(Option::is_none));
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on_from_there() {
        let mut series = Series::new();
        let now = 3_000_000;
        (now - 7_200..now).for_each(|second| series.put(second, point(1)));
        // Some seconds: what was before stays.
        (now - 10..now + 50).for_each(|second| series.put(second, point(2)));
        let shown = values(&series, Range::FiveMinutes, now + 49);
        assert_eq!(shown[239], Some(1.0), "before");
        assert!(shown[240..].iter().all(|value| *value == Some(2.0)), "{shown:?}");
        // Hours: it begins again, in every range.
        let earlier = now - 4 * 3_600;
        (earlier..earlier + 400).for_each(|second| series.put(second, point(3)));
        for range in Range::ALL {
            let shown = values(&series, range, earlier + 399);
            assert_eq!(shown.last(), Some(&Some(3.0)), "{range:?}");
            assert!(shown.iter().flatten().all(|value| *value == 3.0), "{range:?}: {shown:?}");
        }
        assert_eq!(values(&series, Range::FiveMinutes, earlier + 399)[0], Some(3.0));
        assert!(values(&series, Range::FiveMinutes, now).iter().all(Option::is_none));
    }

    #[test]
    fn longer_ranges_join_points_to_means() {
        let mut series = Series::new();
        // Seconds since 1970 are not so few.
        let begin = 3_000_000;
        for second in 0..10_000 {
            series.put(begin + second, point(second));
        }
        let hour = values(&series, Range::Hour, begin + 9_999);
        assert_eq!(hour[359], Some(9_994.5), "of 9,990 to 9,999");
        assert_eq!(hour[0], Some(6_404.5), "of 6,400 to 6,409");
        let day = values(&series, Range::Day, begin + 9_999);
        assert_eq!(day.len(), 288);
        assert_eq!(day[286], Some(9_749.5), "of 9,600 to 9,899");
        assert!(day[287].is_some(), "and what is not over");
        assert!(day[100].is_none(), "before the start");
    }

    #[test]
    fn memory_is_bounded_whatever_the_clock_does() {
        let mut series = Series::new();
        for second in [0, 1, 5_000, 5_001, 10_000_000, 9_999_999, 7, u64::MAX / 2, 0, u64::MAX / 2]
        {
            series.put(second, point(1));
            for range in Range::ALL {
                assert_eq!(series.window(range, second).len(), range.steps().1);
            }
        }
        (0..10_000).for_each(|at| series.put(u64::MAX / 2 + at, point(1)));
        assert_eq!(series.seconds.points.len(), SECONDS_MAX);
        assert!(series.minutes.points.len() <= MINUTES_MAX);
    }
}
