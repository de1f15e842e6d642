//! The part of a job's time that does not grow with it.

/// New jobs count for 1/64.
const FADING: f64 = 1.0 / 64.0;
/// Before this many jobs nothing is said.
const JOBS_MIN: u32 = 16;
/// Jobs that differ less in length than this (variance by square of the mean) say nothing about what each
/// takes beside its bytes.
const SPREAD_MIN: f64 = 0.02;
/// A job that was interrupted says nothing: one counts for at most so many times what is usual.
const EXCESS_MAX: f64 = 4.0;
/// At least this part of a job's time is believed to be its bytes'.
const BYTES_PART_MIN: f64 = 0.125;

/// A line through the times of jobs by their bytes, by least squares; old jobs fade.
///
/// Without it a time per byte that was learned from small batches makes large ones seem hopeless, and
/// so batches stay small.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobTime {
    jobs: u32,
    /// Means.
    bytes: f64,
    took_ns: f64,
    bytes_squared: f64,
    bytes_took: f64,
    fixed_ns: f64,
}

impl JobTime {
    /// Takes in a job. Returns the part of its time that its bytes took.
    pub(crate) fn note(&mut self, bytes: u32, took_ns: u64) -> u64 {
        let (bytes, took) = (f64::from(bytes), took_ns as f64);
        let weight = FADING.max(1.0 / f64::from(self.jobs + 1));
        let usual_ns =
            if self.bytes > 0.0 { self.took_ns * (bytes / self.bytes).max(1.0) } else { took };
        let sample = took.min(EXCESS_MAX * usual_ns.max(1.0));
        let fade = |old: f64, new: f64| old + weight * (new - old);
        self.bytes = fade(self.bytes, bytes);
        self.took_ns = fade(self.took_ns, sample);
        self.bytes_squared = fade(self.bytes_squared, bytes * bytes);
        self.bytes_took = fade(self.bytes_took, bytes * sample);
        self.jobs = self.jobs.saturating_add(1);
        let variance = self.bytes_squared - self.bytes * self.bytes;
        if self.jobs >= JOBS_MIN && variance > SPREAD_MIN * self.bytes * self.bytes {
            let slope_ns = ((self.bytes_took - self.bytes * self.took_ns) / variance).max(0.0);
            self.fixed_ns = (self.took_ns - slope_ns * self.bytes).max(0.0);
        }
        // Jobs that are all alike at least say how much it can't be.
        self.fixed_ns = self.fixed_ns.min(self.took_ns);
        let of_bytes = (took - self.fixed_ns).max(took * BYTES_PART_MIN);
        of_bytes as u64
    }

    /// The time that each job takes beside its bytes, in nanoseconds.
    pub(crate) fn fixed_ns(&self) -> u64 {
        self.fixed_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_part_is_found_from_jobs_of_different_lengths() {
        let mut time = JobTime::default();
        for round in 0..200 {
            let bytes = 1_400 * (1 + round % 4);
            let of_bytes = time.note(bytes, 40_000 + u64::from(bytes) * 5);
            if round > 50 {
                assert!(of_bytes.abs_diff(u64::from(bytes) * 5) < 500, "{of_bytes}");
            }
        }
        assert!(time.fixed_ns().abs_diff(40_000) < 500, "{}", time.fixed_ns());
        // Large jobs don't change it, nor do jobs that are all alike.
        for _ in 0..1_000 {
            time.note(60_000, 340_000);
        }
        assert!(time.fixed_ns().abs_diff(40_000) < 2_000, "{}", time.fixed_ns());
    }

    #[test]
    fn jobs_that_are_alike_have_no_fixed_part() {
        let mut time = JobTime::default();
        for _ in 0..100 {
            assert_eq!(time.note(1_400, 50_000), 50_000);
        }
        assert_eq!(time.fixed_ns(), 0);
    }

    #[test]
    fn what_was_learned_on_a_busy_machine_does_not_last() {
        let mut time = JobTime::default();
        for round in 0..200 {
            let bytes = 1_400 * (1 + round % 4);
            time.note(bytes, 200_000 + u64::from(bytes) * 5);
        }
        assert!(time.fixed_ns() > 190_000);
        for _ in 0..500 {
            time.note(1_400, 20_000);
        }
        assert!(time.fixed_ns() <= 21_000, "{}", time.fixed_ns());
    }

    #[test]
    fn one_interrupted_job_changes_little() {
        let mut time = JobTime::default();
        for round in 0..200 {
            let bytes = 1_400 * (1 + round % 4);
            time.note(bytes, 10_000 + u64::from(bytes) * 5);
        }
        time.note(1_400, 10_000_000);
        assert!(time.fixed_ns() < 20_000, "{}", time.fixed_ns());
    }

    #[test]
    fn time_that_falls_with_the_length_is_all_fixed() {
        let mut time = JobTime::default();
        for round in 0..200 {
            time.note(1_000 + 100 * (round % 10), u64::from(20_000 - 100 * (round % 10)));
        }
        assert!(time.fixed_ns() > 19_000 && time.fixed_ns() < 20_100, "{}", time.fixed_ns());
    }
}
