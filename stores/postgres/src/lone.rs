//! Calls that are too seldom to be gathered: each has a statement of its own.

use std::sync::Arc;

use tenure_core::StoreError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use crate::gather::{Call, Gather};
use crate::link::Link;

/// A statement of its own. It is run to its end even if nobody waits for it any more.
pub(crate) struct Lone {
    sql: String,
    params: Vec<Param>,
}

/// A parameter of it.
pub(crate) enum Param {
    Text(String),
    Number(i64),
}

impl Call for Lone {
    type Answer = Vec<Row>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.lone
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some(("", ""))
    }

    fn weight(&self) -> usize {
        0
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Vec<Row>>, Error> {
        let mut answers = Vec::new();
        // There is one, as they all have the same target.
        for call in calls {
            let params = call.params.iter().map(|param| -> (&(dyn ToSql + Sync), Type) {
                match param {
                    Param::Text(text) => (text, Type::TEXT),
                    Param::Number(number) => (number, Type::INT8),
                }
            });
            answers.push(link.ask(&call.sql, &params.collect::<Vec<_>>()).await?);
        }
        Ok(answers)
    }
}

pub(crate) async fn ask(link: &Arc<Link>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
    link.call(Lone { sql: sql.to_owned(), params }).await
}
