//! Reading one entity.

use polyshard_engine::{Row, Statement};
use polyshard_router::{Access, Ticket};

use super::statements::texts;
use super::{Home, StoreError, TableStore, broken, number, timestamp};
use crate::entity::{Entity, EntityKey, Properties, RowKey};
use crate::name::TableName;
use crate::stored;

impl TableStore {
    /// An entity by its key.
    pub async fn get(&self, table: &TableName, key: &EntityKey) -> Result<Entity, StoreError> {
        let home = self.home(table, &key.partition).await?;
        self.kit.host().quotas().admit_to(&home.record, home.key.first(), 1)?;
        let row =
            self.stored(&home, key.partition.as_str(), &key.row).await?.ok_or(StoreError::NoSuchEntity)?;
        let time = timestamp(row.int(0).map_err(broken)?)?;
        let properties = read_properties(row.text(1).map_err(broken)?)?;
        Ok(Entity { key: key.clone(), timestamp: time, properties })
    }

    /// Its row: ts and props.
    pub(super) async fn stored(
        &self,
        home: &Home,
        partition: &str,
        row: &RowKey,
    ) -> Result<Option<Row>, StoreError> {
        let (dataset, partition, row) =
            (number(home.record.id), partition.to_owned(), row.as_str().to_owned());
        let placement = home.placement.clone();
        let work = async move |ticket: &Ticket| {
            let texts = texts(ticket.dialect());
            let get =
                Statement::new(texts.get.clone()).bind(dataset).bind(partition.clone()).bind(row.clone());
            let get = if texts.by_placement { get.bind(placement.clone()) } else { get };
            ticket.read(get).await
        };
        let rows = self.kit.router().call_for(&home.record, &home.key, Access::Read, work).await?;
        Ok(rows.into_iter().next())
    }
}

/// Stored properties.
pub(super) fn read_properties(text: &str) -> Result<Properties, StoreError> {
    stored::read(text).map_err(|detail| StoreError::Damaged { what: "entity", detail })
}
