//! Finds the messages in one source file.
//!
//! The reader walks over tokens, not over a syntax tree: many messages are arguments of macros such as `select!`, and a
//! syntax tree has only tokens there. The reader keeps track of the calls, macros and items around each text.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::prose::{has_words, is_prose};
use super::{Kind, Message};

/// The macros that write log lines, named by their level.
const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// Macros and functions that panic with a message.
const PANICS: &[&str] =
    &["panic", "unreachable", "expect", "expect_err", "assert", "assert_eq", "assert_ne", "debug_assert"];

/// Functions that take the message of an error.
const ERRORS: &[&str] = &["Err", "ok_or", "ok_or_else", "map_err", "refuse"];

/// Functions that search for a text, for example in the answer of a server.
const SEARCHES: &[&str] = &[
    "contains",
    "starts_with",
    "ends_with",
    "strip_prefix",
    "strip_suffix",
    "split",
    "split_once",
    "trim_start_matches",
    "find",
];

/// The keywords of items with a name.
const ITEMS: &[&str] = &["fn", "const", "static", "impl", "struct", "enum", "trait"];

/// Returns the messages of a file.
pub(super) fn messages(source: &str, file: &str) -> Result<Vec<Message>, String> {
    let tokens: TokenStream = source.parse().map_err(|error| format!("{file}: {error}"))?;
    let mut reader = Reader { file, calls: Vec::new(), owners: Vec::new(), messages: Vec::new() };
    reader.walk(tokens);
    Ok(reader.messages)
}

struct Reader<'a> {
    file: &'a str,
    /// The calls and macros around the current token, the outermost first.
    calls: Vec<String>,
    /// The items around the current token: the types of implementations, functions and constants.
    owners: Vec<String>,
    messages: Vec<Message>,
}

impl Reader<'_> {
    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        // The name of the current item, from its keyword to the end of its body.
        let mut item: Option<String> = None;
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let (next, is_test) = self.attribute(&tokens, at);
                    at = if is_test { end_of_item(&tokens, next) } else { next };
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => item = None,
                // The keyword in `'static` does not start an item.
                TokenTree::Punct(punct) if punct.as_char() == '\'' => at += 1,
                TokenTree::Ident(word) if item.is_none() && ITEMS.iter().any(|it| word == it) => {
                    item = name_of_item(&tokens[at..]);
                }
                TokenTree::Group(group) => {
                    let is_body = group.delimiter() == Delimiter::Brace;
                    let call = callee(&tokens[..at]).filter(|name| !is_body || (item.is_none() && is_type(name)));
                    self.owners.extend(item.clone());
                    match call {
                        Some(call) => self.within_call(call, group),
                        None => self.walk(group.stream()),
                    }
                    self.owners.truncate(self.owners.len() - usize::from(item.is_some()));
                    item = item.filter(|_| !is_body);
                }
                TokenTree::Literal(literal) if !is_pattern(&tokens[at + 1..]) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal.clone()) {
                        self.owners.extend(item.clone());
                        self.text(&text.value());
                        self.owners.truncate(self.owners.len() - usize::from(item.is_some()));
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn within_call(&mut self, call: String, group: &Group) {
        let is_log =
            call.strip_suffix('!').and_then(|name| name.rsplit("::").next()).filter(|name| LEVELS.contains(name));
        let rest = match is_log {
            Some(level) => self.log_line(level, group.stream()),
            None => group.stream(),
        };
        self.calls.push(call.clone());
        self.walk(rest);
        self.calls.pop();
    }

    /// Reads an attribute. Returns the position after it, and whether it marks a test.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize) -> (usize, bool) {
        let inner = matches!(tokens.get(at + 1), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
        let place = at + 1 + usize::from(inner);
        let Some(TokenTree::Group(group)) = tokens.get(place) else { return (at + 1, false) };
        let words: Vec<TokenTree> = group.stream().into_iter().collect();
        let name = words.first().map(ToString::to_string).unwrap_or_default();
        match (name.as_str(), words.get(1)) {
            ("error", Some(TokenTree::Group(arguments))) => {
                self.calls.push("Err".to_owned());
                self.walk(arguments.stream());
                self.calls.pop();
            }
            ("cfg", Some(TokenTree::Group(condition))) => {
                let condition = condition.stream().to_string();
                return (place + 1, !inner && (condition == "test" || condition.starts_with("all (test")));
            }
            _ => {}
        }
        (place + 1, words.last().is_some_and(|word| word.to_string() == "test"))
    }

    /// Adds the message of a log line. Returns the rest of the macro's arguments.
    fn log_line(&mut self, level: &str, arguments: TokenStream) -> TokenStream {
        let (mut fields, mut rest) = (Vec::new(), TokenStream::new());
        let mut message = None;
        for argument in split_at_commas(arguments) {
            let literal = match &argument[..] {
                [TokenTree::Literal(literal)] => match syn::Lit::new(literal.clone()) {
                    syn::Lit::Str(text) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            };
            match (literal, &message) {
                (Some(text), None) => message = Some(text),
                (_, None) => {
                    fields.extend(field(&argument));
                    rest.extend(argument);
                }
                _ => rest.extend(argument),
            }
        }
        if let Some(text) = message {
            let detail = format!("{level}: {}", fields.join(", "));
            self.add(Kind::Log, text, detail.trim_end_matches([':', ' ']).to_owned());
        }
        rest
    }

    /// Adds a text if it is for people.
    fn text(&mut self, text: &str) {
        let names = |call: &str| call.trim_end_matches('!').split("::").map(str::to_owned).collect::<Vec<_>>();
        let any = |of: &[&str]| self.calls.iter().flat_map(|call| names(call)).any(|name| of.contains(&name.as_str()));
        let is_error_type = |name: &str| ["Error", "Failure"].iter().any(|end| name.ends_with(end));
        let makes_error = self.calls.iter().flat_map(|call| names(call)).any(|name| is_error_type(&name));
        let of_error = self.owners.iter().any(|owner| is_error_type(owner));
        let of_reason = self.owners.iter().any(|owner| owner.ends_with("Reason"));
        if any(SEARCHES) {
            return;
        }
        let kind = if any(PANICS) {
            Kind::Panic
        } else if any(&["say", "eprintln", "eprint"]) {
            Kind::Stderr
        } else if any(ERRORS) || makes_error || of_error {
            Kind::Error
        } else {
            Kind::Part
        };
        // A single word is a message only as an error or a reason. Elsewhere it is a key or a name.
        let is_whole = of_reason || self.calls.last().is_some_and(|call| call == "Err");
        if is_prose(text) || (is_whole && has_words(text)) {
            self.add(kind, text.to_owned(), self.owners.join("::"));
        }
    }

    fn add(&mut self, kind: Kind, text: String, detail: String) {
        self.messages.push(Message { kind, file: self.file.to_owned(), text, detail });
    }
}

/// Returns whether the last segment of a path is the name of a type or a variant.
fn is_type(path: &str) -> bool {
    path.rsplit("::").next().is_some_and(|name| name.starts_with(char::is_uppercase))
}

/// Returns whether the literal before these tokens is a pattern of a `match`.
fn is_pattern(after: &[TokenTree]) -> bool {
    let mark = |at: usize| match after.get(at) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    mark(0) == Some('|') || (mark(0) == Some('=') && mark(1) == Some('>'))
}

/// Returns the name before a list of arguments: `StoreError::refused`, `format!`, `expect`, or a struct or variant.
fn callee(before: &[TokenTree]) -> Option<String> {
    let mut parts = Vec::new();
    let mut rest = before;
    if let [shorter @ .., TokenTree::Punct(punct)] = rest
        && punct.as_char() == '!'
    {
        parts.push("!".to_owned());
        rest = shorter;
    }
    while let [shorter @ .., TokenTree::Ident(name)] = rest {
        parts.push(name.to_string());
        match shorter {
            [shorter @ .., TokenTree::Punct(one), TokenTree::Punct(two)]
                if one.as_char() == ':' && two.as_char() == ':' =>
            {
                parts.push("::".to_owned());
                rest = shorter;
            }
            _ => break,
        }
    }
    parts.reverse();
    let name = parts.concat();
    let is_keyword =
        ["if", "match", "in", "return", "else", "move", "loop", "while", "for", "async", "unsafe", "mut", "ref"];
    (!name.is_empty() && name != "!" && !is_keyword.contains(&name.as_str())).then_some(name)
}

/// Returns the name of the item that starts with these tokens. The name of an implementation is its type.
fn name_of_item(tokens: &[TokenTree]) -> Option<String> {
    let TokenTree::Ident(keyword) = tokens.first()? else { return None };
    let name = |token: &TokenTree| match token {
        TokenTree::Ident(name) if name != "mut" && name != "fn" && name != "unsafe" && name != "async" => {
            Some(name.to_string())
        }
        _ => None,
    };
    if keyword != "impl" {
        return name(tokens.get(1)?);
    }
    // An `impl Trait` type has no body before the next comma or the end.
    let body = tokens
        .iter()
        .position(|token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace))?;
    let head = &tokens[1..body];
    let mut depth = 0;
    let mut found = None;
    for (at, token) in head.iter().enumerate() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_arrow(head, at) => depth -= 1,
            TokenTree::Punct(punct) if [',', ';', '='].contains(&punct.as_char()) && depth == 0 => return None,
            TokenTree::Ident(word) if word == "where" => break,
            TokenTree::Ident(word) if word == "for" && depth == 0 => found = None,
            TokenTree::Ident(word) if depth == 0 => found = Some(word.to_string()),
            _ => {}
        }
    }
    found
}

fn is_arrow(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(punct) if punct.as_char() == '-')
}

/// Returns the position after the item that starts at `at`.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |length| at + length + 1)
}

/// Returns the name of a field of a log line: the name before `=`, or the recorded variable.
fn field(argument: &[TokenTree]) -> Option<String> {
    let parts: Vec<String> = argument.iter().map(ToString::to_string).collect();
    if parts.get(1).is_some_and(|part| part == ":") && ["target", "parent", "name"].contains(&parts[0].as_str()) {
        return None;
    }
    let name = parts.split(|part| part == "=").next()?;
    Some(name.concat().trim_start_matches(['%', '?']).to_owned()).filter(|name| !name.is_empty())
}

fn split_at_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(Vec::new()),
            _ => parts.last_mut().into_iter().for_each(|part| part.push(token.clone())),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        //! The words of this comment are no message.

        /// Nor are these.
        #[derive(Debug, thiserror::Error)]
        pub enum Failed {
            #[error("the file {path} cannot be read")]
            Reading { path: String },
            #[error("stopped")]
            Stopped,
        }

        const ADVICE: &str = "see that it is up";

        impl Store {
            async fn open(&self) -> Result<&'static str, StoreError> {
                tokio::select! {
                    _ = wait() => tracing::warn!(%seat, took = ?span, target: "x", "the answer of {} is late", self.name),
                    said = ask() if said.contains("no such thing") => return Err(StoreError::denied(match code {
                        "not found" => "there is no {seat} here",
                        _ => "unknown",
                    })),
                }
                self.rows("SELECT a FROM b").expect("there is a row");
                say::line(format!("tenure: it goes on {ADVICE}"));
            }
        }

        #[cfg(test)]
        mod tests {
            fn f() { panic!("a text of a test") }
        }

        #[test]
        fn g() { panic!("a text of a test") }

        fn last() -> &'static str { "the last words" }
    "#;

    #[test]
    fn messages_are_found_with_their_kind_and_place() {
        let found = messages(SOURCE, "f.rs").unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.kind, one.text.as_str(), one.detail.as_str())).collect();
        let expected = [
            (Kind::Error, "the file {path} cannot be read", "Failed"),
            (Kind::Error, "stopped", "Failed"),
            (Kind::Part, "see that it is up", "ADVICE"),
            (Kind::Log, "the answer of {} is late", "warn: seat, took"),
            (Kind::Error, "there is no {seat} here", "Store::open"),
            (Kind::Panic, "there is a row", "Store::open"),
            (Kind::Stderr, "tenure: it goes on {ADVICE}", "Store::open"),
            (Kind::Part, "the last words", "last"),
        ];
        assert_eq!(found, expected);
    }
}
