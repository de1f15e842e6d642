//! `[compress]`: the gain and the cost of compressing.
//!
//! Four models: one ratio and one time for all units, as in the papers; by class, uniform between
//! two ratios, with a time per unit and per byte; a table as measured; and a codec on packets with contents.

use dwell_base::text::suggest;
use dwell_policy::{Estimate, Estimates, LearnedConfig, Ratio};

use crate::plan::{CompressionClass, CompressionModel, CompressionSample, RealCodec};

use super::error::Errors;
use super::estimates;
use super::lines;
use super::section::Section;
use super::source::Inputs;
use super::tree::{Table, Value};
use super::value;

/// The contents of `[compress]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Compression {
    /// The same ratio and time for all. Without a time it follows from the scheme.
    Constant {
        /// Compressed / original.
        ratio: f64,
        /// The time for a unit.
        time_ns: Option<u64>,
    },
    /// Ratios and times by class, with the names of the classes.
    PerClass(Vec<(String, CompressionClass)>),
    /// A measured table.
    Measured(Vec<CompressionSample>),
    /// A codec, on what packets contain.
    Real(RealCodec),
}

/// Reads `[compress]`. Without the table, compressing neither shrinks anything nor takes time.
pub(super) fn read(
    tree: &Table,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Compression> {
    if tree.get("compress").is_none() {
        return Some(Compression::FREE);
    }
    let section = Section::of(tree, "compress", errors)?;
    const WAYS: [&str; 5] = ["ratio", "class", "file", "samples", "codec"];
    section.refuse_unknown(&[&WAYS[..], &["time", "byte_time_ns", "history"]].concat(), errors);
    let ways: Vec<&str> = WAYS.into_iter().filter(|key| section.has(key)).collect();
    if section.has("byte_time_ns") && ways[..] != ["codec"] {
        section.fail("byte_time_ns", "belongs to `codec`, and to classes", errors);
    }
    match ways[..] {
        ["codec"] => real(&section, errors),
        ["ratio"] => {
            let ratio = section.get("ratio", errors, value::ratio);
            let time_ns = section.get("time", errors, value::time_ns);
            Some(Compression::Constant { ratio: ratio?, time_ns })
        }
        ["class"] => classes(&section.inner("class", errors)?, inputs, errors),
        ["file"] => measured_file(&section, inputs, errors),
        [_] => {
            let samples = section.list("samples", SAMPLES_EXAMPLE, errors, sample)?;
            sound_samples(&section, "samples", samples, errors)
        }
        [] => {
            let message = "it does not say what compressing brings: add for instance ratio = 0.95, \
                           or [compress.class.NAME] tables, or a `file` or `samples` as measured, or a \
                           `codec` for packets with contents";
            section.fail_whole(message, errors);
            None
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` exclude each other: remove one");
            section.fail(second, message, errors);
            None
        }
    }
}

fn real(section: &Section<'_>, errors: &mut Errors) -> Option<Compression> {
    let codec = section.get("codec", errors, value::text);
    let unit_ns = section.or("time", 0, errors, value::time_ns);
    let byte_ns = section.or("byte_time_ns", 0.0, errors, |v| value::number(v, 0.0..=1e6));
    let byte_ps = (byte_ns * 1e3).round() as u64;
    Some(Compression::Real(RealCodec { codec: codec?, unit_ns, byte_ps }))
}

/// Reads `history`: what a ratio is multiplied by where a batch may refer to those before it.
pub(super) fn history(tree: &Table, errors: &mut Errors) -> f64 {
    if tree.get("compress").is_none() {
        return 1.0;
    }
    let section = Section::of(tree, "compress", errors);
    section.map_or(1.0, |section| section.or("history", 1.0, errors, value::ratio))
}

/// The model where batches may refer to those before them.
pub(super) fn with_history(model: CompressionModel, history: f64) -> CompressionModel {
    match model {
        CompressionModel::Constant { ratio, time_ns } => {
            CompressionModel::Constant { ratio: ratio * history, time_ns }
        }
        CompressionModel::PerClass(mut classes) => {
            for class in &mut classes {
                class.ratio = (class.ratio.0 * history, class.ratio.1 * history);
            }
            CompressionModel::PerClass(classes)
        }
        CompressionModel::Measured(mut samples) => {
            samples.iter_mut().for_each(|sample| sample.ratio *= history);
            CompressionModel::Measured(samples)
        }
        // What history brings shows.
        real @ CompressionModel::Real(_) => real,
    }
}

const SAMPLES_EXAMPLE: &str = "[{ bytes = 500, ratio = 0.93, time = \"20us\" }]";

fn classes(
    section: &Section<'_>,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Compression> {
    let mut out = Vec::new();
    for (name, class) in section.all_inner(errors) {
        if class.has("file") {
            out.push((name.to_owned(), listed_class(&class, inputs, errors)?));
            continue;
        }
        class.refuse_unknown(&["ratio", "time", "byte_time_ns", "file"], errors);
        let ratio = class.need("ratio", "[0.5, 0.9]", errors, ratio_range);
        let unit_ns = class.or("time", 0, errors, value::time_ns);
        let byte_ns = class.or("byte_time_ns", 0.0, errors, |v| value::number(v, 0.0..=1e6));
        // The number of the group is known once there are groups.
        out.push((name.to_owned(), CompressionClass { group: 0, ratio: ratio?, unit_ns, byte_ns }));
    }
    Some(Compression::PerClass(out))
}

/// A class that is like one that was found in a capture.
fn listed_class(
    class: &Section<'_>,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<CompressionClass> {
    class.refuse_unknown(&["file", "like", "codec", "time"], errors);
    let name = class.get("file", errors, value::text)?;
    let like = class.need("like", "\"tcp/80\"", errors, value::text);
    let codec = class.get("codec", errors, value::text);
    let unit_ns = class.or("time", 0, errors, value::time_ns);
    let like = like?;
    match inputs.text(&name).and_then(|text| estimates::find(&text, &like, codec.as_deref())) {
        Ok(found) => {
            let ratio = (found.ratio, found.ratio);
            Some(CompressionClass { group: 0, ratio, unit_ns, byte_ns: found.byte_ns })
        }
        Err(message) => {
            class.fail("file", format!("{name}: {message}"), errors);
            None
        }
    }
}

/// One ratio, or two between which it lies.
fn ratio_range(found: &Value) -> Result<(f64, f64), String> {
    let Value::List(items) = found else { return value::ratio(found).map(|ratio| (ratio, ratio)) };
    let [least, most] = &items[..] else {
        return Err("must be a ratio, or two between which it lies, as in [0.5, 0.9]".to_owned());
    };
    let (least, most) = (value::ratio(&least.value)?, value::ratio(&most.value)?);
    if least <= most {
        return Ok((least, most));
    }
    Err(format!("the lower ratio comes first: [{most}, {least}]"))
}

fn sample(found: &Value) -> Result<CompressionSample, String> {
    let Value::Table(table) = found else {
        return Err(format!("must be a table as in {SAMPLES_EXAMPLE}, not {}", found.described()));
    };
    if let Some((key, _)) = table.iter().find(|(key, _)| !["bytes", "ratio", "time"].contains(key))
    {
        return Err(format!("a sample has the keys bytes, ratio and time, not `{key}`"));
    }
    let part = |key: &str| {
        let missing = || format!("a sample needs `{key}`, as in {SAMPLES_EXAMPLE}");
        table.get(key).map(|located| &located.value).ok_or_else(missing)
    };
    Ok(CompressionSample {
        bytes: value::packet_bytes(part("bytes")?)?,
        ratio: value::number(part("ratio")?, 0.000_001..=10.0)?,
        time_ns: value::time_ns(part("time")?)?,
    })
}

fn measured_file(
    section: &Section<'_>,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<Compression> {
    let name = section.get("file", errors, value::text)?;
    match inputs.text(&name).and_then(|text| rows(&text)) {
        Ok(samples) => sound_samples(section, "file", samples, errors),
        Err(message) => {
            section.fail("file", format!("{name}: {message}"), errors);
            None
        }
    }
}

/// Lines of `bytes,ratio,microseconds`.
fn rows(text: &str) -> Result<Vec<CompressionSample>, String> {
    let read = |(line_number, line): (usize, &str)| {
        row(line).ok_or_else(|| {
            format!(
                "line {line_number} is no sample: write bytes, ratio and microseconds, as in 500,0.93,20"
            )
        })
    };
    lines::data(text).map(read).collect()
}

fn row(line: &str) -> Option<CompressionSample> {
    let mut cells = line.split(',').map(str::trim);
    let bytes: u32 = cells.next()?.parse().ok()?;
    let ratio: f64 = cells.next()?.parse().ok()?;
    let micros: f64 = cells.next()?.parse().ok()?;
    let is_sound = bytes > 0 && ratio > 0.0 && ratio <= 10.0 && (0.0..1e9).contains(&micros);
    is_sound.then(|| CompressionSample { bytes, ratio, time_ns: (micros * 1e3).round() as u64 })
}

fn sound_samples(
    section: &Section<'_>,
    key: &str,
    samples: Vec<CompressionSample>,
    errors: &mut Errors,
) -> Option<Compression> {
    if samples.is_empty() {
        section.fail(key, "there is no sample in it: one is needed at least", errors);
        return None;
    }
    if samples.windows(2).any(|pair| pair[0].bytes >= pair[1].bytes) {
        section.fail(key, "the sizes of the samples must rise: sort them", errors);
        return None;
    }
    Some(Compression::Measured(samples))
}

impl Compression {
    /// A compressor without gain and without cost.
    pub(super) const FREE: Self = Self::Constant { ratio: 1.0, time_ns: Some(0) };

    /// Returns the model, for a topology with these groups. `unit_ns` is the time for a unit if the
    /// scenario does not say.
    pub(super) fn model(
        &self,
        groups: &[&str],
        unit_ns: Option<u64>,
        errors: &mut Errors,
    ) -> Option<CompressionModel> {
        match self {
            Self::Constant { ratio, time_ns } => {
                let Some(time_ns) = time_ns.or(unit_ns) else {
                    let message = "`time` is missing: add for instance time = \"200us\"";
                    errors.add(None, Some("[compress]".to_owned()), message);
                    return None;
                };
                Some(CompressionModel::Constant { ratio: *ratio, time_ns })
            }
            Self::PerClass(classes) => {
                let mut out = Vec::new();
                for (name, class) in classes {
                    let Some(group) = groups.iter().position(|group| group == name) else {
                        let place = Some(format!("[compress.class.{name}]"));
                        let hint = suggest(name, groups).replace("the keys here", "the classes");
                        let message = format!("there is no such class of traffic: {hint}");
                        errors.add(None, place, message);
                        return None;
                    };
                    out.push(CompressionClass { group, ..class.clone() });
                }
                Some(CompressionModel::PerClass(out))
            }
            Self::Measured(samples) => Some(CompressionModel::Measured(samples.clone())),
            Self::Real(codec) => Some(CompressionModel::Real(codec.clone())),
        }
    }
}

/// Returns a port's estimates of the compressor: constants are known, all else is learned.
pub(super) fn estimates(model: &CompressionModel) -> Estimates {
    match model {
        CompressionModel::Constant { ratio, time_ns } => Estimates::Fixed(Estimate {
            ratio: Ratio::from_ppm((ratio * 1e6).round() as u32),
            cost_ns: *time_ns,
        }),
        CompressionModel::PerClass(_)
        | CompressionModel::Measured(_)
        | CompressionModel::Real(_) => Estimates::Learned(LearnedConfig::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::tree::parse;

    fn compressing(text: &str) -> Result<Compression, String> {
        let mut errors = Errors::default();
        let tree = parse(text, &mut errors).unwrap();
        let none = |name: &str| match name {
            "t.csv" => Ok("bytes,ratio,us\n100,0.9,5\n1500,0.6,30\n".to_owned()),
            "wrong.csv" => Ok("100,20,5\n1500,0.6,30\n".to_owned()),
            _ => Err("there is no such file".to_owned()),
        };
        let read = read(&tree, &mut Inputs::new(&none), &mut errors);
        errors.into_result("x", read).map_err(|errors| errors.to_string())
    }

    #[test]
    fn all_models_are_read() {
        let constant = Compression::Constant { ratio: 0.95, time_ns: Some(200_000) };
        assert_eq!(compressing("[compress]\nratio = 0.95\ntime = \"200us\"").unwrap(), constant);
        let Compression::Measured(samples) = compressing("[compress]\nfile = \"t.csv\"").unwrap()
        else {
            panic!("a table was given")
        };
        assert_eq!((samples.len(), samples[1].time_ns), (2, 30_000));
        let text = "[compress.class.web]\nratio = [0.5, 0.9]\nbyte_time_ns = 4\n";
        let Compression::PerClass(classes) = compressing(text).unwrap() else {
            panic!("not classes")
        };
        assert_eq!(classes[0].1.ratio, (0.5, 0.9));
    }

    #[test]
    fn what_refers_to_history_is_smaller() {
        let mut errors = Errors::default();
        let tree = parse("[compress]\nratio = 0.8\ntime = \"2us\"\nhistory = 0.5", &mut errors);
        let history = history(&tree.unwrap(), &mut errors);
        assert!(errors.into_result("x", Some(())).is_ok());
        let constant = CompressionModel::Constant { ratio: 0.8, time_ns: 2_000 };
        let smaller = CompressionModel::Constant { ratio: 0.4, time_ns: 2_000 };
        assert_eq!(with_history(constant, history), smaller);
        let sample = |ratio| CompressionSample { bytes: 500, ratio, time_ns: 1 };
        let measured = |ratio| CompressionModel::Measured(vec![sample(ratio)]);
        assert_eq!(with_history(measured(0.5), history), measured(0.25));
        let class =
            |low, high| CompressionClass { group: 0, ratio: (low, high), unit_ns: 1, byte_ns: 1.0 };
        let classes = |low, high| CompressionModel::PerClass(vec![class(low, high)]);
        assert_eq!(with_history(classes(0.5, 1.0), history), classes(0.25, 0.5));
    }

    #[test]
    fn impossible_compressions_are_reported() {
        for (text, reported) in [
            ("[compress]\nratio = 0", "x:2: [compress], `ratio`: must be a number from"),
            ("[compress]\nratio = 0.5\nfile = \"a\"", "exclude each other"),
            ("[compress]\ntime = \"1us\"", "does not say what compressing brings"),
            ("[compress]\nratoi = 0.5", "did you mean `ratio`?"),
            ("[compress]\nfile = \"b\"", "b: there is no such file"),
            ("[compress.class.a]\nfile = \"b\"\nlike = \"tcp/80\"", "b: there is no such file"),
            ("[compress.class.a]\nfile = \"b\"", "`like`"),
            ("[compress]\nfile = \"wrong.csv\"", "wrong.csv: line 1 is no sample"),
            ("[compress]\nratio = 0.5\ntime = \"-1us\"", "negative"),
            ("[compress.class.web]\nratio = [0.9, 0.5]", "lower ratio comes first"),
        ] {
            let error = compressing(text).unwrap_err();
            assert!(error.contains(reported), "{text}: {error}");
        }
    }

    #[test]
    fn classes_must_exist() {
        let compressing = compressing("[compress.class.wep]\nratio = 0.5\n").unwrap();
        let mut errors = Errors::default();
        assert!(compressing.model(&["web"], None, &mut errors).is_none());
        let error = errors.into_result::<()>("x", None).unwrap_err().to_string();
        assert!(error.contains("did you mean `web`?"), "{error}");
    }
}
