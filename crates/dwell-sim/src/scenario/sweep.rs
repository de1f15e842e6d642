//! The points of a scenario: the swept values, and the settings of the command line.
//!
//! Within one `[[sweep]]` the keys advance together; several are crossed, the first one
//! outermost. Keys are dotted paths; `label` gives each step a name for legends and tables and
//! changes nothing.

use dwell_base::text::printable;

use super::error::Errors;
use super::section::Section;
use super::tree::{Located, Origin, Table, Value, parse_value};

/// The key that names the steps of a sweep.
pub const LABEL: &str = "label";
/// The key that selects the steps of the quick variant, by values of the first key.
const QUICK: &str = "quick";

/// The most points: more are certainly a mistake.
const POINTS_MAX: usize = 10_000;

/// A value from the command line: `--set key=value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The dotted path.
    pub path: String,
    /// The value. Text that is no TOML is a string.
    pub value: Value,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text.split_once('=').ok_or_else(|| {
            format!("\"{}\" has no `=`: write for instance compress.ratio=0.9", printable(text))
        })?;
        let path = path.trim();
        if path.split('.').any(str::is_empty) {
            return Err(format!(
                "\"{}\" is no key: write its table, a dot and its name, as in compress.ratio=0.9",
                printable(path)
            ));
        }
        Ok(Self { path: path.to_owned(), value: parse_value(value.trim()) })
    }
}

/// Keys that advance together.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    keys: Vec<(String, Vec<Located>)>,
    quick: Option<Vec<Value>>,
    line: Option<usize>,
}

/// A point, before it is read: the swept keys, and their values here.
#[derive(Clone, Debug, Default)]
pub(super) struct SweepStep {
    /// The swept keys and their values here, in the order of the file.
    pub(super) values: Vec<(String, Value)>,
    /// The index of the sweep of each value.
    pub(super) sweeps: Vec<usize>,
    /// The changes to make in the tree.
    pub(super) changes: Vec<(String, Located)>,
}

impl Sweep {
    fn len(&self) -> usize {
        self.keys.first().map_or(0, |(_, values)| values.len())
    }

    /// Returns the steps that are kept.
    fn steps(&self, is_quick: bool) -> Vec<usize> {
        let all = 0..self.len();
        match (&self.quick, self.keys.first()) {
            (Some(keep), Some((_, values))) if is_quick => {
                all.filter(|&at| keep.iter().any(|kept| kept.is_same(&values[at].value))).collect()
            }
            _ => all.collect(),
        }
    }
}

/// Takes `[[sweep]]` out of the tree.
pub(super) fn take(tree: &mut Table, errors: &mut Errors) -> Vec<Sweep> {
    let Some(located) = tree.remove("sweep") else { return Vec::new() };
    let Value::List(items) = &located.value else {
        let message = "sweeps are written with two brackets each: [[sweep]]";
        errors.add(located.origin.line(), None, message);
        return Vec::new();
    };
    items.iter().filter_map(|item| read(item, errors)).collect()
}

fn read(item: &Located, errors: &mut Errors) -> Option<Sweep> {
    let section = Section::from(item, "sweep", errors)?;
    let Value::Table(table) = &item.value else { return None };
    let quick = section.list(QUICK, "[0.7, 0.95]", errors, |value| Ok(value.clone()));
    let mut keys: Vec<(String, Vec<Located>)> = Vec::new();
    for (path, located) in table.flat() {
        if path == QUICK {
            continue;
        }
        match &located.value {
            Value::List(values) if !values.is_empty() => {
                keys.push((path, values.iter().map(swept).collect()));
            }
            other => {
                let found = match other {
                    Value::List(_) => "an empty one",
                    other => other.described(),
                };
                let message = format!("must be a list of values to go through, not {found}");
                errors.at(Origin::Sweep(located.origin.line().unwrap_or(0)), &path, message);
            }
        }
    }
    let line = item.origin.line();
    let Some((first, values)) = keys.first() else {
        let message = "it goes through nothing: add for instance compress.ratio = [0.7, 0.95]";
        errors.add(line, Some("[[sweep]]".to_owned()), message);
        return None;
    };
    for (path, others) in &keys[1..] {
        if others.len() != values.len() {
            let message = format!(
                "`{first}` has {} values and `{path}` has {}: keys of one sweep advance together, \
                 so give both the same number, or make it a [[sweep]] of its own to cross them",
                values.len(),
                others.len()
            );
            errors.add(line, Some("[[sweep]]".to_owned()), message);
            return None;
        }
    }
    let sweep = Sweep { quick, line, keys };
    if sweep.steps(true).is_empty() {
        let message = "none of the values of `quick` is a value of the first key: correct them";
        errors.add(line, Some("[[sweep]], `quick`".to_owned()), message);
        return None;
    }
    Some(sweep)
}

/// Marks the value, and all values in it, as coming from a sweep.
fn swept(located: &Located) -> Located {
    let value = match &located.value {
        Value::List(items) => Value::List(items.iter().map(swept).collect()),
        other => other.clone(),
    };
    let origin = Origin::Sweep(located.origin.line().unwrap_or(0));
    Located { value, origin, decimals: None }
}

/// Applies the settings of the command line. A setting replaces the sweep of its key; a list is
/// swept instead.
pub(super) fn apply(
    settings: &[Setting],
    tree: &mut Table,
    sweeps: &mut Vec<Sweep>,
    errors: &mut Errors,
) {
    for setting in settings {
        let located =
            Located { value: setting.value.clone(), origin: Origin::Setting, decimals: None };
        let sweep = sweeps
            .iter_mut()
            .find(|sweep| sweep.keys.iter().any(|(path, _)| *path == setting.path));
        match (sweep, &setting.value) {
            (Some(sweep), Value::List(values)) => replace(sweep, &setting.path, values, errors),
            (None, Value::List(values)) if !takes_list(tree, &setting.path) => {
                let values: Vec<Located> = values.iter().map(set).collect();
                if values.is_empty() {
                    errors.at(Origin::Setting, &setting.path, "there is no value in the list");
                    continue;
                }
                let keys = vec![(setting.path.clone(), values)];
                sweeps.push(Sweep { keys, quick: None, line: None });
            }
            (sweep, _) => {
                if let Some(sweep) = sweep {
                    sweep.keys.retain(|(path, _)| *path != setting.path);
                }
                if let Err(at) = tree.set(&setting.path, located) {
                    let message = format!("`{at}` is no table, so that nothing can be set in it");
                    errors.at(Origin::Setting, &setting.path, message);
                }
            }
        }
        // A name without any keys that it names.
        sweeps.retain(|sweep| sweep.keys.iter().any(|(path, _)| path != LABEL));
    }
}

/// The keys whose values are lists, whatever table they are in; and the range of ratios of a class.
const LISTS: [&str; 7] = ["series", "nodes", "via", "steps", "rate_steps", "samples", "timers"];

/// Returns true if a list is one value of this key, and not several to go through.
fn takes_list(tree: &Table, path: &str) -> bool {
    let is_list = |located: &Located| matches!(located.value, Value::List(_));
    let key = path.rsplit('.').next().unwrap_or(path);
    let is_of_class = path.contains(".class.") && key == "ratio";
    LISTS.contains(&key) || is_of_class || tree.at(path).is_some_and(is_list)
}

/// A value of the command line.
fn set(value: &Located) -> Located {
    Located { value: value.value.clone(), origin: Origin::Setting, decimals: None }
}

fn replace(sweep: &mut Sweep, path: &str, values: &[Located], errors: &mut Errors) {
    let is_alone = sweep.keys.iter().all(|(other, _)| other == path || other == LABEL);
    if values.is_empty() || (!is_alone && values.len() != sweep.len()) {
        let message = format!(
            "the scenario's sweep has {} steps, in which other keys advance too: give as many \
             values, or one",
            sweep.len()
        );
        errors.at(Origin::Setting, path, message);
        return;
    }
    if is_alone {
        sweep.keys.retain(|(other, _)| other == path);
        sweep.quick = None;
    }
    for (other, old) in &mut sweep.keys {
        if other == path {
            *old = values.iter().map(set).collect();
        }
    }
}

/// All points, the first sweep outermost.
pub(super) fn cross(sweeps: &[Sweep], is_quick: bool, errors: &mut Errors) -> Vec<SweepStep> {
    let count = sweeps
        .iter()
        .map(|sweep| sweep.steps(is_quick).len())
        .try_fold(1, |a, b| usize::checked_mul(a, b).filter(|&count| count <= POINTS_MAX));
    if count.is_none() {
        let line = sweeps.first().and_then(|sweep| sweep.line);
        let message = format!("the sweeps have more than {POINTS_MAX} points: drop some values");
        errors.add(line, Some("[[sweep]]".to_owned()), message);
        return Vec::new();
    }
    twice_swept(sweeps, errors);
    let mut points = vec![SweepStep::default()];
    for (index, sweep) in sweeps.iter().enumerate() {
        points = points
            .iter()
            .flat_map(|point| {
                let steps = sweep.steps(is_quick).into_iter();
                steps.map(move |at| extended(point, (index, sweep), at))
            })
            .collect();
    }
    points
}

fn twice_swept(sweeps: &[Sweep], errors: &mut Errors) {
    for (index, sweep) in sweeps.iter().enumerate() {
        for (path, _) in &sweep.keys {
            let before = sweeps[..index].iter().any(|b| b.keys.iter().any(|(p, _)| p == path));
            if before {
                let message = "it is swept by an earlier [[sweep]] already: remove one of them";
                errors.add(sweep.line, Some(format!("[[sweep]], `{path}`")), message);
            }
        }
    }
}

fn extended(point: &SweepStep, (index, sweep): (usize, &Sweep), at: usize) -> SweepStep {
    let mut point = point.clone();
    for (path, values) in &sweep.keys {
        point.values.push((path.clone(), values[at].value.clone()));
        point.sweeps.push(index);
        if path != LABEL {
            point.changes.push((path.clone(), values[at].clone()));
        }
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::tree::parse;

    fn points(text: &str, settings: &[&str], is_quick: bool) -> Result<Vec<String>, String> {
        let mut errors = Errors::default();
        let mut tree = parse(text, &mut errors).unwrap();
        let mut sweeps = take(&mut tree, &mut errors);
        let settings: Vec<Setting> = settings.iter().map(|s| s.parse().unwrap()).collect();
        apply(&settings, &mut tree, &mut sweeps, &mut errors);
        let points = cross(&sweeps, is_quick, &mut errors);
        let shown = |point: &SweepStep| {
            let values: Vec<String> = point.values.iter().map(|(_, v)| v.shown()).collect();
            values.join(" ")
        };
        errors
            .into_result("x", Some(points.iter().map(shown).collect()))
            .map_err(|errors| errors.to_string())
    }

    const TWO: &str = "[[sweep]]\na.x = [1, 2]\n\"a.y\" = [3, 4]\n[[sweep]]\nb = ['p', 'q']\n";

    #[test]
    fn keys_of_one_sweep_advance_together_and_sweeps_are_crossed() {
        assert_eq!(points(TWO, &[], false).unwrap(), ["1 3 p", "1 3 q", "2 4 p", "2 4 q"]);
        assert_eq!(points("", &[], false).unwrap(), [""]);
    }

    #[test]
    fn settings_replace_what_is_swept() {
        assert_eq!(points(TWO, &["b=r"], false).unwrap(), ["1 3", "2 4"]);
        assert_eq!(points(TWO, &["b=[\"r\"]", "a.x=7"], false).unwrap(), ["3 r", "4 r"]);
        // What is not swept is swept innermost, unless its values are lists.
        assert_eq!(points("", &["c=[1, 2]"], false).unwrap(), ["1", "2"]);
        assert_eq!(points(TWO, &["b=r", "c=[1, 2]"], false).unwrap().len(), 4);
        assert_eq!(points("", &["a.via=[1, 2]", "z.class.a.ratio=[0, 1]"], false).unwrap(), [""]);
        assert_eq!(points("own = [3]\n", &["own=[1, 2]"], false).unwrap(), [""]);
        assert!(points("", &["c=[]"], false).unwrap_err().contains("--set c: there is no value"));
        let error = points(TWO, &["a.x=[1, 2, 3]"], false).unwrap_err();
        assert!(error.contains("--set a.x: the scenario's sweep has 2 steps"), "{error}");
    }

    #[test]
    fn the_quick_variant_keeps_some() {
        let text = "[[sweep]]\na = [0.7, 0.8, 0.95]\nquick = [0.95]\n";
        assert_eq!(points(text, &[], true).unwrap(), ["0.95"]);
        assert_eq!(points(text, &[], false).unwrap().len(), 3);
        let error = points("[[sweep]]\na = [1]\nquick = [2]\n", &[], true).unwrap_err();
        assert!(error.contains("x:1: [[sweep]], `quick`: none of the values"), "{error}");
    }

    #[test]
    fn impossible_sweeps_are_reported() {
        let error = points("[[sweep]]\na = [1, 2]\nb = [1]\n", &[], false).unwrap_err();
        assert!(error.contains("`a` has 2 values and `b` has 1"), "{error}");
        let error = points("[[sweep]]\na = 1\n", &[], false).unwrap_err();
        assert!(error.contains("x:2: [[sweep]], `a`: must be a list"), "{error}");
        let error = points("[[sweep]]\na = [1]\n[[sweep]]\na = [2]\n", &[], false).unwrap_err();
        assert!(error.contains("swept by an earlier"), "{error}");
        let many = "[[sweep]]\na = [1,2,3,4,5,6,7,8,9,10]\n".replace('a', "x");
        let many: String = (0..5).map(|n| many.replace('x', &format!("x{n}"))).collect();
        assert!(points(&many, &[], false).unwrap_err().contains("more than 10000 points"));
    }

    #[test]
    fn settings_are_keys_and_values() {
        assert_eq!("a.b=c".parse::<Setting>().unwrap().path, "a.b");
        assert!("a.b".parse::<Setting>().unwrap_err().contains("no `=`"));
        assert!(".b=1".parse::<Setting>().unwrap_err().contains("no key"));
    }
}
