//! What an account is limited to, where a user of its name says so (E7).

use polyshard_map::{Key, MapName};
use polyshard_store::rights::{AccessCheck, Missing, Right};

use super::{STORE, StoreError, TableStore};
use crate::name::TableName;

/// What an account is about to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doing<'a> {
    /// Something that whoever may do anything here may do.
    Anything,
    /// Something with all tables.
    Whole(Right),
    /// Something with one table: its entities of one partition, or of all.
    Table(Right, &'a TableName, Option<&'a str>),
    /// Looking whether there is a table.
    Looking(&'a TableName),
}

impl TableStore {
    /// Whether an account may not do everything.
    pub(crate) fn is_limited(&self, account: &str) -> bool {
        self.kit.host().users().account(account).is_some()
    }

    /// Whether an account may do this: what is missing, if anything is.
    pub(crate) async fn permit(
        &self,
        account: &str,
        doing: Doing<'_>,
    ) -> Result<Result<(), Missing>, StoreError> {
        let users = self.kit.host().users();
        let Some(rights) = users.account(account) else { return Ok(Ok(())) };
        let store = &STORE;
        let (right, table, partition) = match doing {
            Doing::Anything => return Ok(rights.check_any(store)),
            Doing::Whole(right) => {
                return Ok(rights.check(&AccessCheck { right, store, table: None, map: None, keys: None }));
            }
            Doing::Table(right, table, partition) => (right, table, partition),
            Doing::Looking(table) => (Right::Read, table, None),
        };
        let (map, key) = self.place_of(table, partition).await?;
        let keys = match (doing, &key) {
            (Doing::Looking(_), _) => Some(&[][..]),
            (_, Some(key)) => Some(std::slice::from_ref(key)),
            (_, None) => None,
        };
        Ok(rights.check(&AccessCheck { right, store, table: Some(table.name()), map: map.as_ref(), keys }))
    }

    /// The map of a table that there is, and the key of a partition that has one.
    async fn place_of(
        &self,
        table: &TableName,
        partition: Option<&str>,
    ) -> Result<(Option<MapName>, Option<Key>), StoreError> {
        let record = match self.record(table).await {
            Ok(record) => record,
            Err(StoreError::NoSuchTable(_)) => return Ok((None, None)),
            Err(error) => return Err(error),
        };
        let view = self.kit.router().view();
        let known = view.maps.get(&record.map);
        let key = known.zip(partition).and_then(|(known, partition)| {
            record.rule.key(known.map.definition().key_type(), partition).ok()
        });
        Ok((Some(record.map.clone()), key))
    }
}
