//! Where the items of a dataset are: placed once for a request, and used by every call of it.

use std::sync::Arc;

use polyshard_catalog::{DatasetRecord, KeyRule};
use polyshard_engine as engine;
use polyshard_map::{Key, Map};
use polyshard_router::{Access, RouterError, Ticket};

use crate::datasets::DatasetName;
use crate::error::{Error, ErrorKind, Reason};
use crate::kit::Kit;
use crate::rights::{AccessCheck, Right, Users};

/// The place of one key of a dataset.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The dataset, as the catalog knows it.
    pub record: Arc<DatasetRecord>,
    /// The key in its map.
    pub key: [Key; 1],
    /// The placement of the rows.
    pub placement: Vec<u8>,
    /// The users of that moment, by whose rights the request is carried out.
    users: Arc<Users>,
}

impl Placed {
    /// The number of the dataset's rows, for statements.
    pub fn dataset(&self) -> i64 {
        i64::try_from(self.record.id).expect("the catalog counts datasets within 63 bits")
    }
}

/// What a permission is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// Nothing in particular: any right in the store is enough.
    Any,
    /// The store as a whole.
    Store(Right),
    /// One dataset: the item with this attribute, or all.
    Dataset(Right, &'a DatasetName, Option<&'a str>),
}

pub(crate) fn key_and_placement(
    rule: &KeyRule,
    map: &Map,
    attribute: &str,
) -> Result<(Key, Vec<u8>), String> {
    let key = rule.key(map.definition().key_type(), attribute).map_err(|error| error.to_string())?;
    let placement = map.placement(&key).map_err(|error| error.to_string())?;
    Ok((key, placement.into_vec()))
}

pub(crate) fn misplaced(noun: &str, attribute: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{noun} {attribute} cannot be placed: {why}"))
}

impl Kit {
    /// The place of a dataset's items with this attribute.
    pub async fn place(&self, name: &DatasetName, attribute: &str) -> Result<Placed, Error> {
        self.place_of(self.dataset(name).await?, attribute)
    }

    /// The same of a dataset whose record is known.
    pub fn place_of(&self, record: Arc<DatasetRecord>, attribute: &str) -> Result<Placed, Error> {
        let users = self.host().users();
        let view = self.router().view();
        let no_map = || {
            let message =
                format!("there is no map {0}; create it with 'polyshard map create {0}'", record.map);
            Error::new(ErrorKind::OutOfService(Reason::NoMap), message)
        };
        let known = view.maps.get(&record.map).ok_or_else(no_map)?;
        let noun = self.store().datasets.map_or("dataset", |datasets| datasets.noun);
        let (key, placement) = key_and_placement(&record.rule, &known.map, attribute)
            .map_err(|why| misplaced(noun, attribute, &why))?;
        Ok(Placed { record, key: [key], placement, users })
    }

    /// Counts a request for some items against the quotas; once for a request, however often it is tried.
    pub fn admit(&self, placed: &Placed, items: usize) -> Result<(), Error> {
        Ok(self.host().quotas().admit_to(&placed.record, placed.key.first(), items)?)
    }

    /// Runs work on the shard that has the place; again, elsewhere if need be, when it was provably not done. Not if
    /// rights have changed since it was placed: they were judged by before, and are to be judged again.
    pub async fn run<T>(
        &self,
        placed: &Placed,
        access: Access,
        work: impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
    ) -> Result<T, Error> {
        let check = || match Arc::ptr_eq(&placed.users, &self.host().users()) {
            true => self.router().check_dataset(&placed.record),
            false => Err(RouterError::Moving(placed.record.map.clone())),
        };
        Ok(self.router().call_if(&placed.record.map, &placed.key, access, check, work).await?)
    }

    /// Whether the rights of an account are limited at all.
    pub fn is_limited(&self, account: &str) -> bool {
        self.host().users().account(account).is_some()
    }

    /// Whether an account may do this. An account that no user stands for may do everything.
    pub async fn permit(&self, account: &str, target: Target<'_>) -> Result<(), Error> {
        let users = self.host().users();
        let Some(rights) = users.account(account) else { return Ok(()) };
        let store = self.store();
        let (right, name, attribute) = match target {
            Target::Any => return Ok(rights.check_any(store)?),
            Target::Store(right) => {
                return Ok(rights.check(&AccessCheck {
                    right,
                    store,
                    table: None,
                    map: None,
                    keys: None,
                })?);
            }
            Target::Dataset(right, name, attribute) => (right, name, attribute),
        };
        let table = Some(name.name());
        let record = match self.dataset(name).await {
            Ok(record) => record,
            // What there is not is in no map: only a right on all keys says that it may be looked for.
            Err(error) if error.kind == ErrorKind::NoDataset => {
                return Ok(rights.check(&AccessCheck { right, store, table, map: None, keys: None })?);
            }
            Err(error) => return Err(error),
        };
        // A key that does not fit the map is none that a right on keys can be for.
        let key = attribute.and_then(|attribute| self.place_of(record.clone(), attribute).ok());
        let keys = key.as_ref().map(|placed| placed.key.as_slice());
        Ok(rights.check(&AccessCheck { right, store, table, map: Some(&record.map), keys })?)
    }
}
