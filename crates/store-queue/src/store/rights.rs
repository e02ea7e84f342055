//! What an account is limited to, where a user of its name says so (E7).

use polyshard_store::rights::{AccessCheck, Missing, Right};

use super::{QueueStore, STORE, StoreError};
use crate::name::QueueName;

/// What an account is about to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doing<'a> {
    /// Something that whoever may do anything here may do.
    Anything,
    /// Something with all queues.
    Whole(Right),
    /// Something with one queue.
    Queue(Right, &'a QueueName),
}

impl QueueStore {
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
        let (right, queue) = match doing {
            Doing::Anything => return Ok(rights.check_any(store)),
            Doing::Whole(right) => {
                return Ok(rights.check(&AccessCheck { right, store, table: None, map: None, keys: None }));
            }
            Doing::Queue(right, queue) => (right, queue),
        };
        let table = Some(queue.name());
        match self.home(queue).await {
            Ok(home) => {
                let (map, keys) = (Some(&home.record.map), Some(home.key.as_slice()));
                Ok(rights.check(&AccessCheck { right, store, table, map, keys }))
            }
            Err(StoreError::NoSuchQueue(_)) => {
                Ok(rights.check(&AccessCheck { right, store, table, map: None, keys: None }))
            }
            Err(error) => Err(error),
        }
    }
}
