//! What a configuration says of its site beside `[node]`: `[pairing]` and `[savings]`.

use std::path::{Path, PathBuf};

use dwell_base::text::printable;
use ipnet::IpNet;
use toml::de::DeValue;

use super::error::Errors;
use super::table::Table;
use super::{Endpoint, value};

/// The keys of `[pairing]`.
pub const PAIRING_KEYS: [&str; 2] = ["endpoints", "prefixes"];
/// The keys of `[savings]`.
pub const SAVINGS_KEYS: [&str; 3] = ["file", "cost_per_gb", "currency"];

/// What the lines of `dwell invite` and `dwell join` say of this node: `[pairing]`. A relay that runs does not
/// use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairingConfig {
    /// The addresses at which peers reach this node, the best first.
    pub endpoints: Vec<Endpoint>,
    /// The networks behind this node.
    pub prefixes: Vec<IpNet>,
}

/// The account of what was saved: `[savings]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SavingsConfig {
    /// The file that keeps it over restarts, unless switched off.
    pub file: Option<PathBuf>,
    /// The price of a gigabyte (10⁹ bytes) on the link.
    pub cost_per_gb: Option<f64>,
    /// The currency of that price, as it is to be shown.
    pub currency: String,
}

/// The default values, for the node called `"dwell"`.
impl Default for SavingsConfig {
    fn default() -> Self {
        Self {
            file: Some(Self::default_file("dwell")),
            cost_per_gb: None,
            currency: "EUR".to_owned(),
        }
    }
}

impl SavingsConfig {
    /// Returns the file of a node of this name if nothing else is configured.
    pub fn default_file(name: &str) -> PathBuf {
        Path::new("/var/lib/dwell").join(format!("{name}.savings"))
    }
}

pub(super) fn read_pairing(table: &Table<'_>, errors: &mut Errors<'_>) -> PairingConfig {
    table.refuse_unknown(&PAIRING_KEYS, |_| None, errors);
    let endpoints = table.get_list("endpoints", "[\"203.0.113.10:7733\"]", errors, value::endpoint);
    let prefixes = table.get_list("prefixes", "[\"10.1.0.0/24\"]", errors, value::prefix);
    PairingConfig {
        endpoints: endpoints.into_iter().flatten().map(|it| it.value).collect(),
        prefixes: prefixes.into_iter().flatten().map(|it| it.value).collect(),
    }
}

pub(super) fn read_savings(
    table: Option<&Table<'_>>,
    node_name: &str,
    errors: &mut Errors<'_>,
) -> SavingsConfig {
    let file = Some(SavingsConfig::default_file(node_name));
    let mut savings = SavingsConfig { file, ..SavingsConfig::default() };
    let Some(table) = table else { return savings };
    table.refuse_unknown(&SAVINGS_KEYS, |_| None, errors);
    if let Some(file) = table.get("file", errors, savings_file) {
        savings.file = file.value;
    }
    savings.cost_per_gb = table.get("cost_per_gb", errors, cost).map(|cost| cost.value);
    if let Some(currency) = table.get("currency", errors, currency) {
        savings.currency = currency.value;
    }
    savings
}

fn savings_file(value: &DeValue<'_>) -> Result<Option<PathBuf>, String> {
    let example = "/var/lib/dwell/site-a.savings";
    let text = value::text(value, example)?;
    if text == "none" {
        return Ok(None);
    }
    let path = Path::new(text);
    if !path.is_absolute() || path.file_name().is_none() || text.contains('\0') {
        return Err(format!("must be an absolute path such as \"{example}\", or \"none\""));
    }
    Ok(Some(path.to_owned()))
}

/// Nobody pays more, and a typing error should not be shown as a saving.
const COST_MAX: f64 = 1e6;

fn cost(value: &DeValue<'_>) -> Result<f64, String> {
    let number = match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) => integer.as_str().parse::<f64>().ok(),
        _ => None,
    };
    number
        .filter(|number| (0.0..=COST_MAX).contains(number))
        .ok_or_else(|| "must be the price of a gigabyte as a number, for instance 4.5".to_owned())
}

fn currency(value: &DeValue<'_>) -> Result<String, String> {
    const CHARS_MAX: usize = 8;
    let text = value::text(value, "EUR")?;
    let is_short = (1..=CHARS_MAX).contains(&text.chars().count());
    if !is_short || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let shown = printable(text);
        return Err(format!("must be a currency such as \"EUR\" or \"$\", not \"{shown}\""));
    }
    Ok(text.to_owned())
}
