//! The packets of a batch as one run of bytes.

use dwell_wire::columnar::{columnar, grown_bytes_max};

/// Puts the packets of a batch into `batch`, one after another, or with their headers rearranged in
/// columns if that is `wanted` and fits what a record can name. Returns true if they are rearranged.
pub fn gather<'p>(
    packets: impl Iterator<Item = &'p [u8]> + Clone,
    wanted: bool,
    batch: &mut Vec<u8>,
) -> bool {
    batch.clear();
    if wanted {
        let bytes: usize = packets.clone().map(<[u8]>::len).sum();
        let all: Vec<&[u8]> = packets.clone().collect();
        batch.resize(bytes + grown_bytes_max(all.len()), 0);
        let fits = |&len: &usize| len <= usize::from(u16::MAX);
        if let Some(len) = columnar(&all, batch).filter(fits) {
            batch.truncate(len);
            return true;
        }
        batch.clear();
    }
    packets.for_each(|packet| batch.extend_from_slice(packet));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_columns_is_put_in_a_row() {
        let packets = [vec![1; 40_000], vec![2; 40_000]];
        let mut batch = vec![9];
        let all = || packets.iter().map(Vec::as_slice);
        assert!(!gather(all(), true, &mut batch));
        assert_eq!((batch.len(), batch[0], batch[79_999]), (80_000, 1, 2));
        assert!(gather(all().map(|packet| &packet[..100]), true, &mut batch));
        assert!(!gather(all().map(|packet| &packet[..100]), false, &mut batch));
        assert_eq!(batch.len(), 200);
    }
}
