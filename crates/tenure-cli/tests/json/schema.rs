//! A validator for the part of JSON Schema that docs/json.schema.json uses, stricter than the standard: a field that the
//! schema does not list is an error.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub(crate) struct Schema {
    root: Value,
    /// The fields that some value had so far: the place of each in the schema.
    seen: BTreeSet<String>,
}

impl Schema {
    pub(crate) fn load() -> Self {
        let text = include_str!("../../../../docs/json.schema.json");
        Self { root: serde_json::from_str(text).unwrap(), seen: BTreeSet::new() }
    }

    /// Panics if the value does not match the definition with this name.
    #[track_caller]
    pub(crate) fn check(&mut self, definition: &str, value: &Value) {
        if let Err(error) = self.matches(&format!("/$defs/{definition}"), value) {
            panic!("{definition}: {error}: {value:#}");
        }
    }

    /// Returns the fields of the schema that no value had so far.
    pub(crate) fn unseen(&self) -> Vec<String> {
        self.fields().into_iter().map(|(place, _)| place).filter(|place| !self.seen.contains(place)).collect()
    }

    /// Returns the place and the name of each field of the schema.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        list(&self.root, "", &mut fields);
        fields
    }

    fn matches(&mut self, place: &str, value: &Value) -> Result<(), String> {
        let schema = self.root.pointer(place).and_then(Value::as_object).cloned();
        let schema = schema.ok_or_else(|| format!("the schema has no {place}"))?;
        for (keyword, rule) in &schema {
            let holds = match keyword.as_str() {
                "description" | "required" | "properties" | "additionalProperties" => true,
                "$ref" => {
                    let target = rule.as_str().unwrap().trim_start_matches('#').to_owned();
                    return self.matches(&target, value);
                }
                "anyOf" => {
                    let count = rule.as_array().unwrap().len();
                    let results: Vec<_> =
                        (0..count).map(|at| self.matches(&format!("{place}/anyOf/{at}"), value)).collect();
                    if let Some(Err(error)) = results.iter().find(|_| !results.iter().any(Result::is_ok)) {
                        return Err(error.clone());
                    }
                    true
                }
                "type" => is_of_type(value, rule.as_str().unwrap()),
                "const" => value == rule,
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64() >= rule.as_f64(),
                "maximum" => value.as_f64() <= rule.as_f64(),
                "format" => rule == "date-time" && is_time(value.as_str().unwrap_or_default()),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.matches(&format!("{place}/items"), item)?;
                    }
                    true
                }
                other => panic!("the validator does not know {other:?} in {place}"),
            };
            if !holds {
                return Err(format!("{value} breaks {keyword} of {place}"));
            }
        }
        match value.as_object() {
            // The alternative that it matches has its fields.
            Some(_) if schema.contains_key("anyOf") => Ok(()),
            Some(object) => self.fields_match(place, &schema, object),
            None => Ok(()),
        }
    }

    fn fields_match(
        &mut self,
        place: &str,
        schema: &Map<String, Value>,
        value: &Map<String, Value>,
    ) -> Result<(), String> {
        let required = schema.get("required").and_then(Value::as_array);
        if let Some(missing) = required.into_iter().flatten().find(|name| !value.contains_key(name.as_str().unwrap())) {
            return Err(format!("{place} requires {missing}"));
        }
        for (name, field) in value {
            let at = format!("{place}/properties/{name}");
            match schema.get("additionalProperties") {
                _ if self.root.pointer(&at).is_some() => {
                    self.seen.insert(at.clone());
                    self.matches(&at, field)?;
                }
                Some(Value::Bool(true)) => {}
                Some(Value::Object(_)) => self.matches(&format!("{place}/additionalProperties"), field)?,
                _ => return Err(format!("{place} has no field {name:?}")),
            }
        }
        Ok(())
    }
}

fn list(schema: &Value, place: &str, fields: &mut Vec<(String, String)>) {
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        for (name, inner) in rule.as_object().into_iter().flatten() {
            let at = format!("{place}/{keyword}/{name}");
            match keyword.as_str() {
                "properties" => fields.push((at.clone(), name.clone())),
                "$defs" => {}
                _ => continue,
            }
            list(inner, &at, fields);
        }
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        // Above 2^53, other programs read another number.
        "integer" => value.is_i64() || value.as_u64().is_some_and(|number| number < 1 << 53),
        other => panic!("the validator does not know the type {other:?}"),
    }
}

/// Returns whether a text is a time in UTC, as RFC 3339 writes it, with a fraction of a second.
fn is_time(text: &str) -> bool {
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let fraction = form.strip_prefix("0000-00-00T00:00:00.").and_then(|rest| rest.strip_suffix('Z'));
    fraction.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c == '0'))
}
