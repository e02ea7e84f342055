//! The client's calls about moves.

use polyshard_map::MapName;

use super::{Answered, Client, if_match};
use crate::operator::Basis;
use crate::types::{
    BalanceAnswer, BalanceRequest, MoveAnswer, MoveRequest, MoveWish, OperationView, RowsCheckAnswer,
    WishRequest,
};

impl Client {
    /// Move a part of a map, or look at what that would be.
    pub fn move_range(&self, name: &MapName, request: &MoveRequest, basis: Basis) -> Answered<MoveAnswer> {
        self.call_with(if_match(self.post(&format!("/v1/maps/{name}/moves")), basis), request)
    }

    /// How a map's rows are spread, and which moves would even them out or empty a shard.
    pub fn balance(&self, name: &MapName, request: &BalanceRequest) -> Answered<BalanceAnswer> {
        let mut get = self.get(&format!("/v1/maps/{name}/balance"));
        if let Some(drain) = &request.drain {
            get = get.query("drain", drain.as_str());
        }
        if let Some(slack) = request.slack {
            get = get.query("slack", slack.to_string());
        }
        self.call(get)
    }

    /// Look for rows on shards that do not own them.
    pub fn check_rows(&self, name: &MapName) -> Answered<RowsCheckAnswer> {
        self.call(self.get(&format!("/v1/maps/{name}/rows")))
    }

    /// Pause, resume, cancel, undo or clean up a move.
    pub fn wish(&self, id: &str, wish: MoveWish) -> Answered<OperationView> {
        // It is looked up first, so that an id that is none is refused in the same words.
        let operation = self.operation(id)?;
        self.call_with(self.post(&format!("/v1/operations/{}/wish", operation.id)), &WishRequest { wish })
    }
}
