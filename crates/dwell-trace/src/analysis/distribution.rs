//! Distributions of whole numbers that add up exactly.

use serde::{Deserialize, Serialize};

/// The number below which each number has a place of its own; above, an eighth of its octave.
const EXACT_BELOW: u64 = 16;
const STEPS_BITS: u32 = 3;

/// The frequencies of numbers, to within an eighth of their octave (12.5 %). Adding two up gives
/// the same as recording all numbers in one, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Distribution {
    places: Vec<u64>,
    sum: u128,
    max: u64,
}

impl Distribution {
    /// Records a number.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let place = place_of(value);
        if place >= self.places.len() {
            self.places.resize(place + 1, 0);
        }
        self.places[place] += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds the numbers of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.places.len() > self.places.len() {
            self.places.resize(other.places.len(), 0);
        }
        for (place, count) in self.places.iter_mut().zip(&other.places) {
            *place = place.saturating_add(*count);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns how many numbers were recorded.
    pub fn count(&self) -> u64 {
        self.places.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Returns their mean; none if there are none.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Returns the largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the number that the share `quantile` (0 to 1) does not exceed: the upper end of its
    /// place, at most the largest.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let wanted = libm::ceil(quantile * self.count() as f64) as u64;
        let mut seen = 0u64;
        for (place, count) in self.places.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= wanted.max(1) {
                return upper_end(place).min(self.max);
            }
        }
        self.max
    }

    /// Returns for each place with any numbers: its upper end, and the share of numbers up to
    /// there.
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let (count, mut seen) = (self.count(), 0u64);
        let places = self.places.iter().enumerate().filter(|(_, count)| **count > 0);
        places
            .map(|(place, here)| {
                seen = here.saturating_add(seen);
                (upper_end(place).min(self.max), seen as f64 / count as f64)
            })
            .collect()
    }
}

fn place_of(value: u64) -> usize {
    if value < EXACT_BELOW {
        return value as usize;
    }
    let octave = value.ilog2();
    let step = (value >> (octave - STEPS_BITS)) & ((1 << STEPS_BITS) - 1);
    let octaves = (octave - EXACT_BELOW.ilog2()) as usize;
    EXACT_BELOW as usize + (octaves << STEPS_BITS) + step as usize
}

/// The largest number of a place.
fn upper_end(place: usize) -> u64 {
    let Some(beyond) = place.checked_sub(EXACT_BELOW as usize) else { return place as u64 };
    let octave = EXACT_BELOW.ilog2() + (beyond >> STEPS_BITS) as u32;
    let step = (beyond & ((1 << STEPS_BITS) - 1)) as u128;
    let end = ((1u128 << STEPS_BITS) + step + 1) << (octave - STEPS_BITS);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// The serialized form, as most places are empty.
#[derive(Serialize, Deserialize)]
struct Sparse {
    /// Places and their counts.
    places: Vec<(u16, u64)>,
    /// The sum in decimal: JSON's numbers are too small.
    sum: String,
    max: u64,
}

/// More places than numbers of 64 bits have.
const PLACES_MAX: usize = 512;

impl From<Distribution> for Sparse {
    fn from(whole: Distribution) -> Self {
        let places = whole.places.iter().enumerate();
        Self {
            places: places.filter(|(_, n)| **n > 0).map(|(at, n)| (at as u16, *n)).collect(),
            sum: whole.sum.to_string(),
            max: whole.max,
        }
    }
}

impl From<Sparse> for Distribution {
    fn from(sparse: Sparse) -> Self {
        let mut whole = Self { places: Vec::new(), sum: 0, max: sparse.max };
        for (at, count) in sparse.places {
            let at = usize::from(at);
            if at >= PLACES_MAX {
                continue;
            }
            if at >= whole.places.len() {
                whole.places.resize(at + 1, 0);
            }
            whole.places[at] = whole.places[at].saturating_add(count);
        }
        whole.sum = sparse.sum.parse().unwrap_or(0);
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut all = Distribution::default();
        values.iter().for_each(|&value| all.record(value));
        all
    }

    proptest! {
        #[test]
        fn places_hold_their_numbers(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let place = place_of(value);
            prop_assert!(place < PLACES_MAX && value <= upper_end(place));
            prop_assert!(place == 0 || value > upper_end(place - 1));
            prop_assert!(upper_end(place) - value <= value / 8);
        }

        #[test]
        fn adding_up_is_seeing_all(
            a in prop::collection::vec(0u64..1 << 40, 0..50),
            b in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let whole = of(&[a, b].concat());
            prop_assert_eq!(&merged, &whole);
            let read: Distribution = serde_json::from_str(&serde_json::to_string(&whole).unwrap()).unwrap();
            prop_assert_eq!(read, whole);
        }
    }

    #[test]
    fn quantiles() {
        let all = of(&(1..=1000).collect::<Vec<_>>());
        assert_eq!((all.count(), all.mean(), all.max()), (1000, Some(500.5), 1000));
        assert!((500..=563).contains(&all.quantile(0.5)));
        assert_eq!((all.quantile(1.0), all.quantile(0.0)), (1000, 1));
        assert_eq!((of(&[]).quantile(0.5), of(&[]).mean()), (0, None));
        assert_eq!(of(&[3, 3, 5]).cumulative(), [(3, 2.0 / 3.0), (5, 1.0)]);
    }
}
