//! One query over several SQLite shards, whose files are seen together.

use polyshard_engine::{self as engine, Scan, Statement};

use crate::ticket::Ticket;

impl Ticket {
    /// Reads from this shard, as `main`, and from others under their names. All tickets are kept until it has ended.
    pub async fn scan_attached(
        &self,
        others: &[(String, &Ticket)],
        statement: Statement,
        page_rows: usize,
    ) -> Result<Scan, engine::Error> {
        let databases: Vec<_> =
            others.iter().map(|(name, ticket)| (name.clone(), ticket.data.clone())).collect();
        self.guard.check()?;
        for (_, ticket) in others {
            ticket.guard.check()?;
        }
        self.data.scan_attached(&databases, statement, page_rows).await
    }
}
