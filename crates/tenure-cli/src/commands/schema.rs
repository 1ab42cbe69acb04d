//! `tenure schema`: the SQL that makes a store's tables, for who may not make them at the first call.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use serde_json::json;

use super::print;
use crate::args::{Global, Schema};
use crate::failure::Failure;

pub(crate) fn run(global: &Global, args: &Schema) -> Result<u8, Failure> {
    let (store, sql) = sql(args)?;
    if global.json {
        print(json!({ "store": store, "sql": sql }))?;
    } else {
        print(sql.trim_end())?;
    }
    Ok(0)
}

/// The name of the store, as its URLs have it, and the SQL.
fn sql(args: &Schema) -> Result<(&'static str, String), Failure> {
    match args.of.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(("postgres", postgres(args)?)),
        "sqlite" => Err(Failure::new("sqlite makes its file by itself: there is nothing to run")),
        store if tenure::schemes().contains(&store) => {
            Err(Failure::new(format!("{store} has no tables: there is nothing to run")))
        }
        // There may be a password in it.
        store if store.contains(':') => {
            Err(Failure::new(format!("give the store by its name, not by its URL: {}", known())))
        }
        store => Err(Failure::new(format!("unknown store {store:?}: {}", known()))),
    }
}

fn known() -> String {
    let stores: &[&str] = &[
        #[cfg(feature = "postgres")]
        "postgres",
    ];
    match stores {
        [] => "this program was built without a store that has tables".to_owned(),
        stores => format!("stores with tables here: {}", stores.join(", ")),
    }
}

#[cfg(feature = "postgres")]
fn postgres(args: &Schema) -> Result<String, Failure> {
    use tenure::postgres::{DEFAULT_SCHEMA, PostgresOptions, PostgresStore, grants_sql, schema_sql};
    // Asks the store itself whether a schema can be called that.
    let options = PostgresOptions {
        url: "postgres://localhost".to_owned(),
        schema: args.schema.clone(),
        ..PostgresOptions::default()
    };
    PostgresStore::new(options).map_err(Failure::new)?;
    let schema = args.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
    let mut sql = schema_sql(schema);
    if let Some(role) = &args.role {
        if role.is_empty() || role.contains('\0') {
            return Err(Failure::new(format!("{role:?} cannot be the name of a role")));
        }
        sql += &grants_sql(schema, role);
    }
    Ok(sql)
}

/// Any text, as there may be a password in what is not a name; completed to the stores that there are.
#[derive(Clone, Debug)]
pub(crate) struct StoreName;

impl TypedValueParser for StoreName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(tenure::schemes().iter().map(PossibleValue::new)))
    }
}
