//! Distinguishes texts for people from keys, formats and statements, and checks the form of messages.

/// Keywords of SQL. A text with two of them, in capitals, is SQL.
const SQL: &str = "ALTER AND AS BEGIN BY CASE COMMIT CONFLICT CREATE DELETE DO DROP ELSE END EXISTS FROM GRANT IN INDEX INSERT \
                   INTO IS LISTEN MATERIALIZED NOT NOTHING NOTIFY NULL ON OR ORDER PRAGMA PRIMARY RETURNING SELECT SET TABLE \
                   THEN UPDATE VALUES WHEN WHERE WITH";

/// Proper names. Words with several capital letters, such as PostgreSQL or TLS, count as names without being listed.
const NAMES: &[&str] = &["Consul", "Ctrl-C", "Kubernetes", "Linux", "Redis", "Sentinel", "Tenure", "Valkey"];

/// Returns whether a text is for people: it contains two words in a row and is not a statement.
pub(super) fn is_prose(text: &str) -> bool {
    let bare = without_placeholders(text);
    let pairs = bare.split_whitespace().zip(bare.split_whitespace().skip(1));
    let has_pair = pairs.into_iter().any(|(one, next)| is_word(one) && is_word(next));
    has_pair && bare.contains(char::is_lowercase) && !is_statement(&bare)
}

/// Returns whether a text contains a word.
pub(super) fn has_words(text: &str) -> bool {
    without_placeholders(text).split_whitespace().any(is_word)
}

/// Returns the rules of form that a message breaks.
pub(super) fn faults(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    // A placeholder counts as a word.
    let words =
        text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric) || word.contains('{')).count();
    if words < 3 && has_words(text) {
        faults.push("has fewer than three words");
    }
    let first = text.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ':', ';', '\'']);
    let capitals = first.chars().filter(|letter| letter.is_uppercase()).count();
    let is_name = NAMES.iter().any(|name| matches!(first.strip_prefix(name), Some("" | "s" | "'s")));
    if first.starts_with(char::is_uppercase) && capitals < 2 && !is_name {
        faults.push("begins with a capital letter");
    }
    if text.ends_with('.') && !text.ends_with("..") {
        faults.push("ends with a full stop");
    }
    faults
}

/// Returns whether the text is one word, perhaps with punctuation around it.
fn is_word(word: &str) -> bool {
    let word = word.trim_matches(|letter: char| "'\"`(),:;.!?…".contains(letter)).replace(['-', '\'', '’'], "");
    !word.is_empty() && word.chars().all(char::is_alphabetic) && (word.len() > 1 || word == "a")
}

/// Returns whether a text is SQL or a script. Messages have one line, scripts have several.
fn is_statement(bare: &str) -> bool {
    let words = bare.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| SQL.split(' ').any(|it| it == *word)).count() >= 2 || bare.lines().count() > 2
}

/// Replaces the placeholders of `format!` by `_`, which is not a word.
fn without_placeholders(text: &str) -> String {
    let (mut bare, mut depth) = (String::new(), 0_usize);
    for letter in text.replace("{{", " ").replace("}}", " ").chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                bare.push('_');
            }
            _ if depth == 0 => bare.push(letter),
            _ => {}
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_told_from_keys_formats_and_statements() {
        for text in [
            "the store fails",
            "no TLS with {address}: see that it serves TLS",
            "it was stopped",
            "{0} is unknown to us",
        ] {
            assert!(is_prose(text), "{text}");
        }
        for text in [
            "tenure:{name}",
            "{a} {b}",
            "application/json",
            "SELECT token FROM seats",
            "BEGIN IMMEDIATE",
            "%Y-%m-%d",
            "lease {x}",
            "",
        ] {
            assert!(!is_prose(text), "{text}");
        }
    }

    #[test]
    fn faults_of_form_are_found() {
        assert_eq!(faults("cannot open {path}: {error}"), Vec::<&str>::new());
        assert_eq!(faults("PostgreSQL refuses the password"), Vec::<&str>::new());
        assert_eq!(faults("Consul's answer is empty"), Vec::<&str>::new());
        assert_eq!(faults("Cannot open.").len(), 3);
        assert_eq!(faults("{0}"), Vec::<&str>::new());
    }
}
