//! Parts of a whole.

/// Returns the share that `part` is of `whole`; none of nothing.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_parts() {
        assert_eq!([share(1, 4), share(4, 4), share(0, 4)], [Some(0.25), Some(1.0), Some(0.0)]);
        assert_eq!(share(0, 0), None);
    }
}
