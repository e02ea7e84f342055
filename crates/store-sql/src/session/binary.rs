//! COPY in binary form, where each shard has numbers of its own for the user's types: values that have such numbers in
//! them pass through as they are, and so are refused.

use polyshard_sql::{Copy, CopyWhat, SqlError, quoted};

use super::load::given_columns;
use super::target::table_called;
use super::{Done, Session};
use crate::type_ids::ColumnIds;

/// A message's type and length.
const HEAD_BYTES: usize = 5;

impl Session {
    /// Refuses a COPY in binary form of arrays and rows of the user's types: they name these by number.
    pub(super) async fn check_binary(&mut self, copy: &Copy) -> Done {
        if copy.format() != "binary" || self.embedded || !self.door.type_ids.differ() {
            return Ok(());
        }
        let text = match &copy.what {
            CopyWhat::Query(query) => query.text().to_string(),
            CopyWhat::Table { name, columns } => {
                let schema = self.current_schema().await?;
                // What is no table that the door knows is refused elsewhere.
                let Ok(table) = table_called(&schema, name, &self.search_path) else { return Ok(()) };
                let columns: Vec<String> = given_columns(table, columns).into_iter().map(quoted).collect();
                let (within, name) = (quoted(&table.name.schema), quoted(&table.name.name));
                format!("SELECT {} FROM {within}.{name}", columns.join(", "))
            }
        };
        let prepared = self.door.cache.prepared(&text, &[])?;
        let description = self.description(&prepared).await?;
        let columns = description.row_message.get(HEAD_BYTES..).and_then(ColumnIds::read).unwrap_or_default();
        if !self.door.type_ids.have_inner_ids(&columns.types).await? {
            return Ok(());
        }
        Err(SqlError::unsupported(
            "COPY in format binary has arrays or rows of types of your own, whose numbers differ from shard to shard",
            "Use the format text or csv, or leave these columns out.",
        )
        .into())
    }
}
