//! Training of dictionaries from packets.

use zstd_safe::train_from_buffer;

use super::{DICTIONARY_LEN_MAX, DICTIONARY_LEN_MIN};

/// The most bytes of samples that a dictionary is made of: beyond a hundred times its length
/// zstd finds nothing new.
pub const TRAINING_LEN_MAX: usize = 100 * DICTIONARY_LEN_MAX;

/// Makes a dictionary of at most `len_max` bytes out of `samples`, by zstd's trainer (cover), in
/// zstd's format. The later samples count as much as the earlier ones. Samples beyond
/// [`TRAINING_LEN_MAX`] bytes in all are left out.
///
/// If there are too few samples for the trainer (it wants some dozens), the dictionary is the
/// end of the samples, one behind the other. `None` if even that is too short.
///
/// It takes some ten milliseconds for each megabyte of samples.
pub fn train<'a>(samples: impl IntoIterator<Item = &'a [u8]>, len_max: usize) -> Option<Vec<u8>> {
    let len_max = len_max.clamp(DICTIONARY_LEN_MIN, DICTIONARY_LEN_MAX);
    let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
    for sample in samples {
        if bytes.len() + sample.len() > TRAINING_LEN_MAX {
            break;
        }
        bytes.extend_from_slice(sample);
        sizes.push(sample.len());
    }
    let mut dictionary = Vec::with_capacity(len_max);
    match train_from_buffer(&mut dictionary, &bytes, &sizes) {
        Ok(len) if len >= DICTIONARY_LEN_MIN => Some(dictionary),
        _ => {
            let start = bytes.len().saturating_sub(len_max);
            (bytes.len() >= DICTIONARY_LEN_MIN).then(|| bytes.split_off(start))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{CodecSpec, Compressor, Decompressor, Dictionary};

    fn message(n: usize) -> Vec<u8> {
        format!(
            "{{\"device\":\"sensor-{:03}\",\"temperature\":{}.{},\"battery\":{},\"state\":\"ok\"}}",
            n % 37,
            18 + n % 9,
            n % 10,
            40 + n * 7 % 60
        )
        .into_bytes()
    }

    #[test]
    fn a_trained_dictionary_makes_small_packets_small() {
        let samples: Vec<Vec<u8>> = (0..600).map(message).collect();
        let bytes = train(samples.iter().map(Vec::as_slice), 4096).unwrap();
        assert!(bytes.len() <= 4096 && bytes.starts_with(&[0x37, 0xa4, 0x30, 0xec]));
        let dictionary = Arc::new(Dictionary::new(1, bytes).unwrap());
        let spec: CodecSpec = "zstd:1".parse().unwrap();
        let packet = message(1234);
        let mut out = [0; 200];
        let compress = |dictionary, out: &mut [u8]| {
            let len = Compressor::new(spec, dictionary).unwrap().compress(&packet, out).unwrap();
            len.unwrap_or(packet.len())
        };
        let without = compress(None, &mut out);
        let with = compress(Some(Arc::clone(&dictionary)), &mut out);
        assert!(with * 2 < without, "{with} {without}");
        let mut back = vec![0; packet.len()];
        Decompressor::new()
            .decompress(spec.id, Some(&dictionary), &out[..with], &mut back)
            .unwrap();
        assert_eq!(back, packet);
    }

    #[test]
    fn too_few_samples_are_taken_as_they_are() {
        let samples = [message(1), message(2)];
        let bytes = train(samples.iter().map(Vec::as_slice), 4096).unwrap();
        assert_eq!(bytes, samples.concat());
        assert_eq!(train([&b"abc"[..]], 4096), None);
        assert_eq!(train([], 4096), None);
        let end = train(samples.iter().map(Vec::as_slice), 20).unwrap();
        assert!(samples.concat().ends_with(&end) && end.len() == 20);
    }
}
