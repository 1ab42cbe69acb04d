//! The public items of one crate, one line each, under the paths that users write.

use std::collections::BTreeSet;

use serde_json::Value;

use super::signature::{bounds, conditions, function, list, parameters, path, tagged, text, ty};

/// A public item.
#[derive(Debug)]
pub(super) struct Item {
    /// The path that users write.
    pub(super) path: String,
    /// The path with the full signature.
    pub(super) line: String,
    /// The length of its documentation, in characters. `None` for items that need none: implementations of traits and
    /// re-exports from other crates.
    pub(super) documentation: Option<usize>,
}

/// Returns the public items of a crate, sorted by path. `json` is the rustdoc JSON of the crate.
pub(super) fn items(json: &Value) -> Vec<Item> {
    let mut walk =
        Walk { index: &json["index"], items: Vec::new(), within: Vec::new(), implementations: BTreeSet::new() };
    let root = &json["root"];
    walk.item(root, text(&walk.get(root)["name"]));
    let mut items = walk.items;
    items.sort_by_key(|item| (item.path.clone(), item.documentation.is_none(), item.line.clone()));
    items.dedup_by(|a, b| a.line == b.line);
    items
}

struct Walk<'a> {
    index: &'a Value,
    items: Vec<Item>,
    /// The items around the current one. Re-exports can form cycles; an item within itself is skipped.
    within: Vec<&'a Value>,
    /// The ids of the implementations listed so far. Both a trait and a type can refer to one.
    implementations: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn get(&self, id: &Value) -> &'a Value {
        &self.index[id.to_string()]
    }

    fn add(&mut self, item: &Value, path: &str, line: String) {
        let length = item["docs"].as_str().unwrap_or_default().trim().chars().count();
        self.items.push(Item { path: path.to_owned(), line, documentation: Some(length) });
    }

    /// Adds an item and its children. Hidden items are not in the index.
    fn item(&mut self, id: &'a Value, path: &str) {
        let item = self.get(id);
        if item.is_null() || self.within.contains(&id) {
            return;
        }
        self.within.push(id);
        let (kind, of) = tagged(&item["inner"]);
        let generics = &of["generics"];
        let (params, wheres) = (parameters(generics), conditions(generics));
        match kind {
            "module" => {
                self.add(item, path, format!("pub mod {path}"));
                self.children(&of["items"], path);
            }
            "use" => self.re_export(item, of, path),
            "struct" | "union" => {
                let derived = self.attributes(item, of);
                let fields = self.fields(&of["kind"], path);
                self.add(item, path, format!("{derived}pub {kind} {path}{params}{fields}{wheres}"));
                self.children(&of["fields"], path);
                self.implementations(&of["impls"], id, path);
            }
            "enum" => {
                let derived = self.attributes(item, of);
                self.add(item, path, format!("{derived}pub enum {path}{params}{wheres}"));
                self.children(&of["variants"], path);
                self.implementations(&of["impls"], id, path);
            }
            "variant" => {
                let marks = self.attributes(item, of);
                let fields = self.fields(&of["kind"], path);
                self.add(item, path, format!("{marks}{path}{fields}"));
            }
            "struct_field" => {
                let public = if item["visibility"] == "public" { "pub " } else { "" };
                self.add(item, path, format!("{public}{path}: {}", ty(of)));
            }
            "trait" => {
                let marks = self.attributes(item, of);
                let above = after(": ", bounds(&of["bounds"]));
                let words = if of["is_unsafe"] == true { "unsafe trait" } else { "trait" };
                self.add(item, path, format!("{marks}pub {words} {path}{params}{above}{wheres}"));
                list(&of["items"]).for_each(|id| self.of_trait(id, path));
                self.implementations(&of["implementations"], id, path);
            }
            "function" => self.add(item, path, format!("pub {}", function(of, path))),
            "type_alias" => self.add(item, path, format!("pub type {path}{params} = {}{wheres}", ty(&of["type"]))),
            "constant" | "assoc_const" => self.add(item, path, format!("pub const {path}: {}", ty(&of["type"]))),
            "static" => self.add(item, path, format!("pub static {path}: {}", ty(&of["type"]))),
            "macro" => self.add(item, path, format!("pub macro {path}!")),
            other => self.add(item, path, format!("pub {} {path}", other.replace('_', " "))),
        }
        self.within.pop();
    }

    fn children(&mut self, ids: &'a Value, path: &str) {
        for id in list(ids) {
            let item = self.get(id);
            let name = text(if item["inner"]["use"].is_null() { &item["name"] } else { &item["inner"]["use"]["name"] });
            self.item(id, &format!("{path}::{name}"));
        }
    }

    /// Adds a re-export: an item of this crate as if it were defined here, an item of another crate as one line.
    fn re_export(&mut self, item: &'a Value, of: &'a Value, path: &str) {
        let target = self.get(&of["id"]);
        let glob = of["is_glob"] == true;
        let parent = path.rsplit_once("::").map_or(path, |(parent, _)| parent);
        if target.is_null() {
            let source = text(&of["source"]);
            let (path, line) = match glob {
                true => (format!("{parent}::*"), format!("pub use {parent}::* = {source}::*")),
                false => (path.to_owned(), format!("pub use {path} = {source}")),
            };
            self.items.push(Item { path, line, documentation: None });
        } else if glob {
            let (_, of) = tagged(&target["inner"]);
            self.children(&of["items"], parent);
            self.children(&of["variants"], parent);
        } else {
            self.item(&of["id"], path);
            // rustdoc shows the documentation of the re-export and of the item together.
            let above = item["docs"].as_str().unwrap_or_default().trim().chars().count();
            let listed = self.items.iter_mut().find(|item| item.path == path);
            if let Some(length) = listed.and_then(|item| item.documentation.as_mut()) {
                *length += above;
            }
        }
    }

    /// Returns the fields of a tuple struct or variant in parentheses. Adds named fields as items of their own.
    fn fields(&mut self, kind: &'a Value, path: &str) -> String {
        let (kind, of) = tagged(kind);
        let mut hidden = of["has_stripped_fields"] == true;
        let fields = match kind {
            "tuple" => {
                let field = |id: &Value| match tagged(&self.get(id)["inner"]) {
                    (_, Value::Null) => "_".to_owned(),
                    (_, of) => ty(of),
                };
                format!("({})", list(of).map(field).collect::<Vec<_>>().join(", "))
            }
            "plain" | "struct" if !of.is_null() => {
                self.children(&of["fields"], path);
                hidden |= list(&of["fields"]).any(|id| self.get(id).is_null());
                if hidden { " { .. }".to_owned() } else { " {}".to_owned() }
            }
            _ => String::new(),
        };
        if fields == " {}" { String::new() } else { fields }
    }

    /// Returns the attributes that belong to the API: derived traits and `#[non_exhaustive]`.
    fn attributes(&self, item: &Value, of: &Value) -> String {
        let implementations = list(&of["impls"])
            .map(|id| self.get(id))
            .filter(|one| has(one, "automatically_derived") && self.belongs(&one["inner"]["impl"], &item["id"]));
        let mut derived: Vec<String> = implementations.map(|one| path(&one["inner"]["impl"]["trait"])).collect();
        // `PartialEq` implies it, and it is unstable.
        derived.retain(|name| name != "StructuralPartialEq");
        derived.sort();
        let derived = if derived.is_empty() { String::new() } else { format!("#[derive({})] ", derived.join(", ")) };
        let open = if has(item, "non_exhaustive") { "#[non_exhaustive] " } else { "" };
        format!("{derived}{open}")
    }

    /// Adds an item of a trait. `{ .. }` marks a provided method.
    fn of_trait(&mut self, id: &'a Value, path: &str) {
        let item = self.get(id);
        let (kind, of) = tagged(&item["inner"]);
        let path = format!("{path}::{}", text(&item["name"]));
        let line = match kind {
            "function" => format!("{}{}", function(of, &path), if of["has_body"] == true { " { .. }" } else { "" }),
            "assoc_type" => {
                let default = if of["type"].is_null() { String::new() } else { format!(" = {}", ty(&of["type"])) };
                let generics = &of["generics"];
                let limits = after(": ", bounds(&of["bounds"]));
                format!("type {path}{}{limits}{default}{}", parameters(generics), conditions(generics))
            }
            "assoc_const" => {
                let default = if of["value"].is_null() { "" } else { " = _" };
                format!("const {path}: {}{default}", ty(&of["type"]))
            }
            _ => return,
        };
        self.add(item, &path, line);
    }

    /// Adds the methods of a type and the traits that are implemented without `derive`.
    fn implementations(&mut self, ids: &'a Value, owner: &Value, path: &str) {
        for id in list(ids) {
            let item = self.get(id);
            let of = &item["inner"]["impl"];
            let by_compiler = of["is_synthetic"] == true || !of["blanket_impl"].is_null();
            if of.is_null() || by_compiler || has(item, "automatically_derived") || !self.belongs(of, owner) {
                continue;
            }
            if of["trait"].is_null() {
                self.methods(of, path);
            } else if self.implementations.insert(id.to_string()) {
                let line = self.implementation(of);
                self.items.push(Item { path: path.to_owned(), line, documentation: None });
            }
        }
    }

    /// Returns whether an implementation belongs to this type or trait. If it is for a type of this crate, it belongs to
    /// that type alone.
    fn belongs(&self, of: &Value, owner: &Value) -> bool {
        let subject = &of["for"]["resolved_path"]["id"];
        subject == owner || self.get(subject).is_null()
    }

    /// Adds the methods of one `impl` block, followed by the bounds of the block.
    fn methods(&mut self, of: &'a Value, path: &str) {
        let before = self.items.len();
        self.children(&of["items"], path);
        let (params, wheres) = (parameters(&of["generics"]), conditions(&of["generics"]));
        let arguments = &of["for"]["resolved_path"]["args"]["angle_bracketed"]["args"];
        let any = list(arguments).all(|one| !one["lifetime"].is_null() || !one["type"]["generic"].is_null());
        if params.contains(": ") || !wheres.is_empty() || !any {
            let block = format!(" in impl{params} {}{wheres}", ty(&of["for"]));
            self.items[before..].iter_mut().for_each(|item| item.line += &block);
        }
    }

    /// Returns the line of a trait implementation, with its associated types.
    fn implementation(&self, of: &Value) -> String {
        let generics = &of["generics"];
        let words = match (of["is_unsafe"] == true, of["is_negative"] == true) {
            (true, _) => ("unsafe impl", ""),
            (_, true) => ("impl", "!"),
            _ => ("impl", ""),
        };
        let chosen = list(&of["items"]).map(|id| self.get(id)).filter_map(|item| {
            let ty = ty(item["inner"]["assoc_type"].get("type")?);
            Some(format!("type {} = {ty}", text(&item["name"])))
        });
        let chosen = chosen.collect::<Vec<_>>().join("; ");
        let chosen = if chosen.is_empty() { chosen } else { format!(" {{ {chosen} }}") };
        let (params, wheres) = (parameters(generics), conditions(generics));
        format!("{}{params} {}{} for {}{wheres}{chosen}", words.0, words.1, path(&of["trait"]), ty(&of["for"]))
    }
}

/// Returns whether an item has an attribute. Up to version 53 of the format, attributes are source text.
fn has(item: &Value, attribute: &str) -> bool {
    list(&item["attrs"]).any(|one| text(one) == attribute || text(one) == format!("#[{attribute}]"))
}

fn after(separator: &str, rest: String) -> String {
    if rest.is_empty() { rest } else { format!("{separator}{rest}") }
}
