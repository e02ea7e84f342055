//! The client's calls about writes on several shards.

use super::{Answered, Client};
use crate::types::{SkipWrite, WriteView, WritesAnswer};

impl Client {
    /// Writes on several shards.
    pub fn writes(&self) -> Answered<WritesAnswer> {
        self.call(self.get("/v1/writes"))
    }

    /// One of them.
    pub fn write(&self, id: &str) -> Answered<WriteView> {
        self.call(self.get(&format!("/v1/writes/{id}")))
    }

    /// Try now to complete one.
    pub fn retry_write(&self, id: &str) -> Answered<WriteView> {
        self.call_with(self.post(&format!("/v1/writes/{id}/retry")), &serde_json::json!({}))
    }

    /// Give one up on a shard.
    pub fn skip_write(&self, id: &str, skip: &SkipWrite) -> Answered<WriteView> {
        self.call_with(self.post(&format!("/v1/writes/{id}/skip")), skip)
    }
}
