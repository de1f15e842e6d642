//! Files of numbers: a line for each packet, step or sample, with commas.

/// Returns the lines of data with their numbers, counted from one. Blank lines, lines that begin with `#` and, before
/// all others, one heading are left out: a line that does not begin with a number. What begins with one is data, so
/// that mistakes in it are found.
pub(super) fn data(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).peekable();
    lines.next_if(|(_, line)| is_heading(line));
    lines
}

fn is_heading(line: &str) -> bool {
    !line.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_heading_and_comments_are_no_data() {
        let found = |text| data(text).collect::<Vec<_>>();
        assert_eq!(
            found("# of Monday\n\ntime,bytes\n 1,2\n# later\n3,4\n"),
            [(4, "1,2"), (6, "3,4")]
        );
        // These are mistakes, and no headings.
        for first in ["1.0 100", "0.5;100", "-1,100", ".5", "+x"] {
            assert_eq!(found(first), [(1, first)]);
        }
        assert_eq!(found("time\nbytes\n"), [(2, "bytes")]);
    }
}
