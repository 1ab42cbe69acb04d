//! Connection strings as ADO.NET and ODBC write them: `Server=tcp:db.example,1433;Database=app;User Id=app;Password=…`.

use tenure_core::ConfigError;

/// Names of the server, one of which every connection string has.
const SERVER: [&str; 5] = ["server", "datasource", "address", "addr", "networkaddress"];

/// Returns whether a text is a connection string as ADO.NET and ODBC write them, and not a URL.
///
/// ```
/// assert!(tenure_sqlserver::is_connection_string("Server=tcp:db.example,1433;Database=app;User Id=app"));
/// assert!(!tenure_sqlserver::is_connection_string("sqlserver://app@db.example/app"));
/// ```
pub fn is_connection_string(text: &str) -> bool {
    // A URL may have such a name in its query, but no connection string has this before its first value.
    let is_url = text.split('=').next().is_some_and(|front| front.contains("://"));
    let names = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| SERVER.contains(&plain(name).as_str()));
    !is_url && text.split(';').any(names)
}

/// Returns a name without case, spaces, underscores and hyphens, as drivers compare them; all names of the server are one.
pub(crate) fn plain(name: &str) -> String {
    let name: String = name.chars().filter(|c| !" _-".contains(*c)).collect::<String>().to_ascii_lowercase();
    if SERVER.contains(&name.as_str()) { "server".to_owned() } else { name }
}

/// Splits a connection string into names and values. A value that contains a semicolon is in quotes or braces, in which
/// the closing character is doubled.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let mut pairs = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            return Ok(pairs);
        }
        // The text is not shown: it may be the rest of a password.
        let (name, after) =
            rest.split_once('=').ok_or("a part of the connection string has no =; write NAME=VALUE;…")?;
        let after = after.trim_start();
        let closing = match after.chars().next() {
            Some('{') => Some('}'),
            Some(quote @ ('"' | '\'')) => Some(quote),
            _ => None,
        };
        let value;
        (value, rest) = match closing {
            Some(closing) => quoted(&after[1..], closing)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_end().to_owned(), &after[end..])
            }
        };
        pairs.push((name.trim().to_owned(), value));
    }
}

/// Returns the value that ends with this character, and the rest of the text.
fn quoted(text: &str, closing: char) -> Result<(String, &str), ConfigError> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest
            .split_once(closing)
            .ok_or_else(|| format!("a value of the connection string has no closing {closing}; add it"))?;
        value.push_str(part);
        match after.strip_prefix(closing) {
            Some(after) => {
                value.push(closing);
                rest = after;
            }
            None => return Ok((value, after)),
        }
    }
}
