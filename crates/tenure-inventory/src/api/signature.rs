//! Types, bounds and signatures, written in the syntax of Rust.

use serde_json::Value;

/// Iterates over an array. Any other value has no elements.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a string. Any other value is an empty string.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the variant of an enum and its content.
pub(super) fn tagged(value: &Value) -> (&str, &Value) {
    let fields = value.as_object().and_then(|fields| fields.iter().next());
    fields.map_or((text(value), &Value::Null), |(tag, value)| (tag, value))
}

fn is(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn joined(values: impl Iterator<Item = String>, separator: &str) -> String {
    values.collect::<Vec<_>>().join(separator)
}

/// Writes a type.
pub(super) fn ty(value: &Value) -> String {
    let (tag, of) = tagged(value);
    match tag {
        "resolved_path" => path(of),
        "generic" | "primitive" if text(of) == "never" => "!".to_owned(),
        "generic" | "primitive" => text(of).to_owned(),
        "tuple" => match list(of).count() {
            1 => format!("({},)", ty(&of[0])),
            _ => format!("({})", joined(list(of).map(ty), ", ")),
        },
        "slice" => format!("[{}]", ty(of)),
        "array" => format!("[{}; {}]", ty(&of["type"]), text(&of["len"])),
        "impl_trait" => format!("impl {}", bounds(of)),
        "dyn_trait" => {
            let traits = list(&of["traits"]).map(|one| higher_ranked(one) + &path(&one["trait"]));
            format!("dyn {}", joined(traits.chain(of["lifetime"].as_str().map(str::to_owned)), " + "))
        }
        "borrowed_ref" => {
            let lifetime = of["lifetime"].as_str().map(|lifetime| format!("{lifetime} ")).unwrap_or_default();
            format!("&{lifetime}{}{}", if is(&of["is_mutable"]) { "mut " } else { "" }, pointed_at(&of["type"]))
        }
        "raw_pointer" => {
            format!("*{} {}", if is(&of["is_mutable"]) { "mut" } else { "const" }, pointed_at(&of["type"]))
        }
        "function_pointer" => {
            format!("{}{}fn{}", higher_ranked(of), qualifiers(&of["header"]), inputs_and_output(&of["sig"]))
        }
        "qualified_path" => {
            let (own, name) = (ty(&of["self_type"]), text(&of["name"]).to_owned() + &arguments(&of["args"]));
            match path(&of["trait"]) {
                of_trait if of_trait.is_empty() || own == "Self" => format!("{own}::{name}"),
                of_trait => format!("<{own} as {of_trait}>::{name}"),
            }
        }
        _ => "_".to_owned(),
    }
}

/// Writes the type that a reference points to. Several bounds need parentheses there.
fn pointed_at(value: &Value) -> String {
    let ty = ty(value);
    if matches!(tagged(value).0, "dyn_trait" | "impl_trait") && ty.contains(" + ") { format!("({ty})") } else { ty }
}

/// Writes the name of a type or a trait with its arguments. rustdoc gives the path of the definition for some items and
/// the path in the source for others, so only the last segment is written. `Error` and `Result` keep their module.
pub(super) fn path(value: &Value) -> String {
    let mut parts = text(&value["path"]).rsplit("::");
    let name = parts.next().unwrap_or_default();
    let module = parts.next().filter(|module| !matches!(*module, "crate" | "self" | "super" | "$crate"));
    let name = match (name, module) {
        ("Error" | "Result", Some(module)) => format!("{module}::{name}"),
        _ => name.to_owned(),
    };
    name + &arguments(&value["args"])
}

fn arguments(value: &Value) -> String {
    let (tag, of) = tagged(value);
    match tag {
        "angle_bracketed" => {
            let constraints = list(&of["constraints"]).map(|one| {
                let name = text(&one["name"]).to_owned() + &arguments(&one["args"]);
                match tagged(&one["binding"]) {
                    ("equality", term) => format!("{name} = {}", self::term(term)),
                    (_, limits) => format!("{name}: {}", bounds(limits)),
                }
            });
            let all = joined(list(&of["args"]).map(argument).chain(constraints), ", ");
            if all.is_empty() { all } else { format!("<{all}>") }
        }
        "parenthesized" => {
            let output = if of["output"].is_null() { String::new() } else { format!(" -> {}", ty(&of["output"])) };
            format!("({}){output}", joined(list(&of["inputs"]).map(ty), ", "))
        }
        "return_type_notation" => "(..)".to_owned(),
        _ => String::new(),
    }
}

fn argument(value: &Value) -> String {
    match tagged(value) {
        ("lifetime", lifetime) => text(lifetime).to_owned(),
        ("type", of) => ty(of),
        ("const", constant) => text(&constant["expr"]).to_owned(),
        _ => "_".to_owned(),
    }
}

fn term(value: &Value) -> String {
    match tagged(value) {
        ("type", of) => ty(of),
        (_, constant) => text(&constant["expr"]).to_owned(),
    }
}

/// Writes the bounds that follow the colon of a generic parameter.
pub(super) fn bounds(value: &Value) -> String {
    let bound = |bound: &Value| match tagged(bound) {
        ("trait_bound", of) => {
            let maybe = if of["modifier"] == "maybe" { "?" } else { "" };
            higher_ranked(of) + maybe + &path(&of["trait"])
        }
        ("use", of) => format!("use<{}>", joined(list(of).map(|one| text(tagged(one).1).to_owned()), ", ")),
        (_, lifetime) => text(lifetime).to_owned(),
    };
    joined(list(value).map(bound), " + ")
}

/// Writes the `for<'a>` before a bound or a function pointer.
fn higher_ranked(value: &Value) -> String {
    let parameters = joined(list(&value["generic_params"]).map(|one| text(&one["name"]).to_owned()), ", ");
    if parameters.is_empty() { parameters } else { format!("for<{parameters}> ") }
}

/// Writes generic parameters with their bounds, in angle brackets.
pub(super) fn parameters(generics: &Value) -> String {
    let with = |name: String, separator: &str, rest: String| {
        if rest.is_empty() { name } else { format!("{name}{separator}{rest}") }
    };
    let parameter = |one: &Value| {
        let name = text(&one["name"]).to_owned();
        match tagged(&one["kind"]) {
            ("lifetime", of) => {
                Some(with(name, ": ", joined(list(&of["outlives"]).map(|one| text(one).to_owned()), " + ")))
            }
            // The parameter of an `impl Trait` argument is written at the argument.
            ("type", of) if is(&of["is_synthetic"]) => None,
            ("type", of) => {
                let default = if of["default"].is_null() { String::new() } else { ty(&of["default"]) };
                Some(with(with(name, ": ", bounds(&of["bounds"])), " = ", default))
            }
            (_, of) => Some(with(format!("const {name}: {}", ty(&of["type"])), " = ", text(&of["default"]).to_owned())),
        }
    };
    let all = joined(list(&generics["params"]).filter_map(parameter), ", ");
    if all.is_empty() { all } else { format!("<{all}>") }
}

/// Writes a `where` clause with a leading space. Without conditions it is empty.
pub(super) fn conditions(generics: &Value) -> String {
    let condition = |one: &Value| match tagged(one) {
        ("bound_predicate", of) => format!("{}{}: {}", higher_ranked(of), ty(&of["type"]), bounds(&of["bounds"])),
        ("lifetime_predicate", of) => {
            let outlives = joined(list(&of["outlives"]).map(|one| text(one).to_owned()), " + ");
            format!("{}: {outlives}", text(&of["lifetime"]))
        }
        (_, of) => format!("{} = {}", ty(&of["lhs"]), term(&of["rhs"])),
    };
    let all = joined(list(&generics["where_predicates"]).map(condition), ", ");
    if all.is_empty() { all } else { format!(" where {all}") }
}

/// Writes a function, from its qualifiers to its `where` clause.
pub(super) fn function(function: &Value, path: &str) -> String {
    let generics = &function["generics"];
    let signature = inputs_and_output(&function["sig"]);
    format!("{}fn {path}{}{signature}{}", qualifiers(&function["header"]), parameters(generics), conditions(generics))
}

fn qualifiers(header: &Value) -> String {
    let words = [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")];
    let mut all: String = words.iter().filter(|(key, _)| is(&header[*key])).map(|(_, word)| *word).collect();
    let (abi, _) = tagged(&header["abi"]);
    if abi != "Rust" {
        all += &format!("extern {abi:?} ");
    }
    all
}

fn inputs_and_output(signature: &Value) -> String {
    let input = |input: &Value| {
        let (name, ty) = (text(&input[0]), ty(&input[1]));
        match name {
            "self" if ty == "Self" => "self".to_owned(),
            "self" if ty.starts_with('&') && ty.ends_with("Self") => ty.replace("Self", "self"),
            "" | "_" => ty,
            _ => format!("{name}: {ty}"),
        }
    };
    let output =
        if signature["output"].is_null() { String::new() } else { format!(" -> {}", ty(&signature["output"])) };
    format!("({}){output}", joined(list(&signature["inputs"]).map(input), ", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_function_is_written_as_in_rust() {
        let generic = |name: &str| json!({ "generic": name });
        let reference = |to: Value| json!({ "borrowed_ref": { "lifetime": null, "is_mutable": false, "type": to } });
        let named = |name: &str, args: Vec<Value>| {
            let args: Vec<Value> = args.into_iter().map(|one| json!({ "type": one })).collect();
            json!({ "resolved_path": { "path": name, "args": { "angle_bracketed": { "args": args, "constraints": [] } } } })
        };
        let bound =
            json!({ "trait_bound": { "trait": { "path": "crate::Work" }, "generic_params": [], "modifier": "none" } });
        let of = json!({
            "sig": {
                "inputs": [["self", reference(generic("Self"))], ["work", { "impl_trait": [bound] }], ["of", { "slice": generic("T") }]],
                "output": named("Result", vec![named("std::vec::Vec", vec![generic("T")]), named("std::io::Error", vec![])]),
            },
            "generics": {
                "params": [{ "name": "T", "kind": { "type": { "bounds": [{ "outlives": "'static" }], "is_synthetic": false } } }],
                "where_predicates": [{ "bound_predicate": { "type": generic("T"), "bounds": [bound], "generic_params": [] } }],
            },
            "header": { "is_async": true, "abi": "Rust" },
        });
        assert_eq!(
            function(&of, "a::B::c"),
            "async fn a::B::c<T: 'static>(&self, work: impl Work, of: [T]) -> Result<Vec<T>, io::Error> where T: Work"
        );
    }
}
