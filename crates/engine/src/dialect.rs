//! The few places where the SQL of the two engines differs.

/// Which SQL a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Dialect {
    /// The engine's name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Sqlite => "sqlite",
            Dialect::Postgres => "postgres",
        }
    }

    /// An expression for the database's clock: milliseconds since 1970 as a bigint. It moves on within a
    /// transaction.
    pub fn now_ms(self) -> &'static str {
        match self {
            // Rounded before the cast: the product of a fraction and 1000 may lie just below the integer.
            Dialect::Sqlite => "CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER)",
            Dialect::Postgres => "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        }
    }

    /// The name of one of Polyshard's own tables: in its own schema where there are schemas.
    pub fn own_table(self, name: &str) -> String {
        match self {
            Dialect::Sqlite => format!("polyshard_{name}"),
            Dialect::Postgres => format!("polyshard.{name}"),
        }
    }

    /// The statement that makes the schema [`Dialect::own_table`] names, where one is needed.
    pub fn create_own_schema(self) -> Option<&'static str> {
        match self {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some("CREATE SCHEMA IF NOT EXISTS polyshard"),
        }
    }

    /// The column type for [`crate::Value::Int`].
    pub fn bigint(self) -> &'static str {
        match self {
            // Only the exact word makes an INTEGER PRIMARY KEY the row id.
            Dialect::Sqlite => "INTEGER",
            Dialect::Postgres => "bigint",
        }
    }

    /// The column type for [`crate::Value::Blob`].
    pub fn blob(self) -> &'static str {
        match self {
            Dialect::Sqlite => "BLOB",
            Dialect::Postgres => "bytea",
        }
    }

    /// The column type for [`crate::Value::Text`], compared byte by byte on both engines.
    pub fn text(self) -> &'static str {
        match self {
            Dialect::Sqlite => "TEXT",
            Dialect::Postgres => "text COLLATE \"C\"",
        }
    }

    /// The column type for [`crate::Value::Bool`].
    pub fn bool(self) -> &'static str {
        match self {
            Dialect::Sqlite => "INTEGER",
            Dialect::Postgres => "boolean",
        }
    }

    /// The column type for [`crate::Value::Real`].
    pub fn real(self) -> &'static str {
        match self {
            Dialect::Sqlite => "REAL",
            Dialect::Postgres => "double precision",
        }
    }

    /// The suffix of a SELECT whose rows stay as read until the transaction ends. SQLite needs none: there a
    /// write transaction is alone.
    pub fn for_update(self) -> &'static str {
        match self {
            Dialect::Sqlite => "",
            Dialect::Postgres => " FOR UPDATE",
        }
    }
}
