//! Splits a command line into words, as a shell does.

/// Splits a line up to the cursor. The last word is the one under the cursor, and empty after a space. Variables and
/// commands in a word are left as they are: evaluating them could have effects.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, Some(open)) if c == open => quote = None,
            ('\\', None) => word.get_or_insert_default().extend(chars.next()),
            // Within double quotes, a backslash quotes only these.
            ('\\', Some('"')) => {
                let next = chars.next();
                let word = word.get_or_insert_default();
                if !matches!(next, Some('"' | '\\' | '$' | '`')) {
                    word.push('\\');
                }
                word.extend(next);
            }
            (_, None) if c.is_whitespace() => words.extend(word.take()),
            ('~', None) if word.is_none() && chars.as_str().starts_with('/') => {
                word = Some(std::env::var("HOME").unwrap_or_else(|_| "~".to_owned()));
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.push(word.unwrap_or_default());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_removed_as_in_a_shell() {
        for (line, words) in [
            ("tenure ", &["tenure", ""][..]),
            ("tenure status", &["tenure", "status"]),
            ("tenure  status 'my jo", &["tenure", "status", "my jo"]),
            (r"tenure status my\ jobs ", &["tenure", "status", "my jobs", ""]),
            (r#"a "b \"c\" \d"'e'f "#, &["a", r#"b "c" \def"#, ""]),
            ("a '' \"$X\" `ls`", &["a", "", "$X", "`ls`"]),
            ("", &[""]),
        ] {
            assert_eq!(split(line), words, "{line}");
        }
    }

    #[test]
    fn a_tilde_at_the_beginning_of_a_word_is_the_home_folder() {
        let home = std::env::var("HOME").unwrap_or_else(|_| "~".to_owned());
        assert_eq!(split("~/x '~/x' a~/x"), [&format!("{home}/x"), "~/x", "a~/x"]);
    }
}
