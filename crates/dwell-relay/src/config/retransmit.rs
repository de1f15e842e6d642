//! What was lost and is sent again (`retransmit`).

use toml::de::DeValue;

use super::value;

/// What is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retransmit {
    /// What is of use: not what senders have sent again themselves by the time that it comes.
    #[default]
    Auto,
    /// All datagrams with blocks.
    Always,
    /// Nothing.
    Never,
}

pub(super) fn read(value: &DeValue<'_>) -> Result<Retransmit, String> {
    match (value.as_bool(), value.as_str()) {
        (Some(true), _) => Ok(Retransmit::Always),
        (Some(false), _) => Ok(Retransmit::Never),
        (_, Some("auto")) => Ok(Retransmit::Auto),
        _ => Err(format!(
            "must be \"auto\", or true or false (without quotes), not {}",
            value::describe(value)
        )),
    }
}
