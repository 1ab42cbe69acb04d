//! `tenure schema`: prints the SQL that creates a store's tables, for roles that cannot create them.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use serde_json::json;

use super::print;
use crate::args::{Global, Schema};
use crate::failure::Failure;
use crate::json::versioned;

pub(crate) fn run(global: &Global, args: &Schema) -> Result<u8, Failure> {
    let (store, sql) = sql(args)?;
    if global.json {
        print(versioned(json!({ "store": store, "sql": sql })))?;
    } else {
        print(sql.trim_end())?;
    }
    Ok(0)
}

/// Returns the scheme of the store's URLs, and the SQL.
fn sql(args: &Schema) -> Result<(&'static str, String), Failure> {
    match args.of.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(("postgres", postgres(args)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(("mysql", mysql(args)?)),
        #[cfg(feature = "sqlserver")]
        "sqlserver" | "mssql" => Ok(("sqlserver", sqlserver(args)?)),
        "sqlite" => Err(Failure::new("sqlite creates its tables itself, so there is no SQL to run; use it as it is")),
        store if tenure::schemes().contains(&store) => {
            Err(Failure::new(format!("{store} has no tables, so there is no SQL to run; use it as it is")))
        }
        // Not repeated in the message: a URL can contain a password.
        store if store.contains(':') => {
            Err(Failure::new(format!("pass the name of the store, not its URL; {}", known())))
        }
        store => Err(Failure::new(format!("unknown store {store:?}; {}", known()))),
    }
}

/// The stores that have tables.
const WITH_TABLES: &[&str] = &[
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "sqlserver")]
    "sqlserver",
];

fn known() -> String {
    match WITH_TABLES {
        [] => "no store in this program has tables".to_owned(),
        stores => format!("write: tenure schema {}", stores.join(" or ")),
    }
}

#[cfg(feature = "postgres")]
fn postgres(args: &Schema) -> Result<String, Failure> {
    use tenure::postgres::{DEFAULT_SCHEMA, PostgresOptions, PostgresStore, grants_sql, schema_sql};
    // The store checks the name of the schema.
    let options = PostgresOptions {
        url: "postgres://localhost".to_owned(),
        schema: args.schema.clone(),
        ..PostgresOptions::default()
    };
    PostgresStore::new(options)?;
    let schema = args.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
    let mut sql = schema_sql(schema);
    if let Some(role) = &args.role {
        if role.is_empty() || role.contains('\0') {
            return Err(Failure::new(format!("{role:?} is not a valid name for a role; pass --role NAME")));
        }
        sql += &grants_sql(schema, role);
    }
    Ok(sql)
}

#[cfg(feature = "mysql")]
fn mysql(args: &Schema) -> Result<String, Failure> {
    use tenure::mysql::{DEFAULT_TABLE_PREFIX, MysqlOptions, MysqlStore, grants_sql, schema_sql};
    // In MySQL, a schema is a database.
    let mut options =
        MysqlOptions { database: args.schema.clone().unwrap_or("tenure".into()), ..MysqlOptions::default() };
    options.table_prefix = DEFAULT_TABLE_PREFIX.to_owned();
    MysqlStore::new(options)?;
    let mut sql = String::new();
    if let Some(database) = &args.schema {
        sql = format!("USE `{}`;\n", database.replace('`', "``"));
    }
    sql += &schema_sql(DEFAULT_TABLE_PREFIX);
    if let Some(role) = &args.role {
        let Some(database) = &args.schema else {
            return Err(Failure::new("the grants name the database; pass --schema DATABASE"));
        };
        if role.is_empty() || role.contains(['\0', '\'', '\\']) {
            return Err(Failure::new(format!("{role:?} is not a valid name for a role; pass --role NAME")));
        }
        let (name, host) = role.split_once('@').unwrap_or((role, "%"));
        sql += &grants_sql(database, DEFAULT_TABLE_PREFIX, &format!("'{name}'@'{host}'"));
    }
    Ok(sql)
}

#[cfg(feature = "sqlserver")]
fn sqlserver(args: &Schema) -> Result<String, Failure> {
    use tenure::sqlserver::{DEFAULT_SCHEMA, SqlServerOptions, SqlServerStore, grants_sql, schema_sql};
    let schema = args.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
    // The store checks the name of the schema.
    let options = SqlServerOptions { database: "app".into(), schema: schema.into(), ..SqlServerOptions::default() };
    SqlServerStore::new(options)?;
    let mut sql = schema_sql(schema);
    if let Some(role) = &args.role {
        if role.is_empty() || role.contains(char::is_control) {
            return Err(Failure::new(format!("{role:?} is not a valid name for a role; pass --role NAME")));
        }
        sql += &grants_sql(schema, role);
    }
    Ok(sql)
}

/// Parses the name of a store. Accepts any text, so that the parser never prints a URL with a password; shells complete
/// the names of the stores.
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
        Some(Box::new(WITH_TABLES.iter().map(PossibleValue::new)))
    }
}
