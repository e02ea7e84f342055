//! What can be measured of a shard from outside its data: size, connections, what its engine has done.

use polyshard_engine::{Database, Dialect, Statement, Stats, Target};

use crate::{Shard, ShardError};

/// How large a shard is, and how much of its server is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// Bytes of the database, its free pages included.
    pub bytes: u64,
    /// Sessions of its database, of whatever process; none on an embedded shard.
    pub connections: Option<u64>,
}

impl Shard {
    /// What its engine has done for data so far; none if data was not touched yet.
    pub fn stats(&self) -> Option<Stats> {
        self.opened_data().map(Database::stats)
    }

    /// Where it is, with its password.
    pub fn address(&self) -> &Target {
        self.target()
    }

    /// Measures it now.
    pub async fn gauge(&self) -> Result<Gauge, ShardError> {
        let text = match self.dialect() {
            Dialect::Sqlite => {
                "SELECT page_count * page_size, NULL FROM pragma_page_count(), pragma_page_size()"
            }
            Dialect::Postgres => {
                "SELECT pg_database_size(current_database()), \
                 (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())"
            }
        };
        let rows = self.control().read(Statement::new(text)).await?;
        let row = rows.one()?;
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(Gauge { bytes: count(row.opt_int(0)?).unwrap_or(0), connections: count(row.opt_int(1)?) })
    }
}
