//! Lists of classes that are never compressed, as `dwell trace analyze` writes them
//! (docs/exceptions.md).

use dwell_base::text::printable;
use dwell_policy::ClassKey;
use toml::de::{DeTable, DeValue};

/// The schema that lists of exceptions must name.
const SCHEMA: &str = "dwell-exceptions/1";
/// More than any list needs: it is searched for every packet.
const CLASSES_MAX: usize = 4096;

/// The classes of `[[exception]]`. All else in the file is for others.
///
/// # Errors
/// In a sentence, if it is no such list.
pub fn parse(text: &str) -> Result<Vec<ClassKey>, String> {
    let document = DeTable::parse(text)
        .map_err(|error| format!("this is not TOML: {}", printable(error.message())))?;
    let document = document.get_ref();
    let schema = document.get("schema").and_then(|value| value.get_ref().as_str());
    if schema != Some(SCHEMA) {
        return Err(format!(
            "it does not begin with schema = \"{SCHEMA}\": make it with `dwell trace analyze \
             CAPTURE --exceptions FILE`"
        ));
    }
    let Some(list) = document.get("exception") else { return Ok(Vec::new()) };
    let items = list.get_ref().as_array().ok_or("exceptions are written [[exception]]")?;
    if items.len() > CLASSES_MAX {
        return Err(format!("it has {} exceptions, more than {CLASSES_MAX}", items.len()));
    }
    items
        .iter()
        .enumerate()
        .map(|(at, item)| {
            item.get_ref().as_table().and_then(class).ok_or_else(|| {
                format!(
                    "[[exception]] number {} must have protocol = \"tcp\", \"udp\" or a number in \
                     quotes, and port = a number up to 65535",
                    at + 1
                )
            })
        })
        .collect()
}

fn class(table: &DeTable<'_>) -> Option<ClassKey> {
    let protocol = match table.get("protocol")?.get_ref().as_str()? {
        "tcp" => 6,
        "udp" => 17,
        number => number.parse().ok()?,
    };
    let DeValue::Integer(port) = table.get("port")?.get_ref() else { return None };
    let port = u16::from_str_radix(port.as_str(), port.radix()).ok()?;
    Some(ClassKey::new(protocol, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = \"dwell-exceptions/1\"\n";

    #[test]
    fn classes_are_read_and_the_rest_is_left() {
        let text = format!(
            "{HEAD}codec = \"lz4\"\n[[exception]]\nprotocol = \"tcp\"\nport = 443\nratio = 1.01\n\
             [[exception]]\nprotocol = \"50\"\nport = 0\n[[estimate]]\nport = 7\n"
        );
        assert_eq!(parse(&text), Ok(vec![ClassKey::new(6, 443), ClassKey::new(50, 0)]));
        assert_eq!(parse(HEAD), Ok(vec![]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("[").contains("not TOML"));
        assert!(error("schema = \"other/1\"").contains("dwell trace analyze"));
        let wrong = [
            "protocol = \"tcp\"",
            "protocol = \"x\"\nport = 1",
            "protocol = \"tcp\"\nport = 65536",
        ];
        for lines in wrong {
            let message = error(&format!("{HEAD}[[exception]]\n{lines}\n"));
            assert!(message.starts_with("[[exception]] number 1"), "{message}");
        }
        assert!(error(&format!("{HEAD}exception = 1")).contains("[[exception]]"));
    }
}
