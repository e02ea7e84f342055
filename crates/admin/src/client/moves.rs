//! The client's calls about moves.

use polyshard_map::MapName;
use ureq::RequestBuilder;

use super::{Answered, Client, if_match};
use crate::operator::{Basis, Data};
use crate::types::{
    AdoptAnswer, AdoptRequest, BalanceAnswer, BalanceBy, BalanceRequest, IsolateRequest, MoveAnswer,
    MoveRequest, MoveWish, NewRule, OperationView, RowsCheckAnswer, RuleView, RulesAnswer, WishRequest,
};

impl Client {
    /// Move a part of a map, or look at what that would be.
    pub fn move_range(&self, name: &MapName, request: &MoveRequest, basis: Basis) -> Answered<MoveAnswer> {
        self.call_with(if_match(self.post(&format!("/v1/maps/{name}/moves")), basis), request)
    }

    /// How a map's rows are spread, and which moves would even them out or empty a shard.
    pub fn balance(&self, name: &MapName, request: &BalanceRequest) -> Answered<BalanceAnswer> {
        self.call(with_balance(self.get(&format!("/v1/maps/{name}/balance")), request))
    }

    /// Make those moves, one after the other.
    pub fn rebalance(&self, name: &MapName, request: &BalanceRequest) -> Answered<BalanceAnswer> {
        self.call_with(with_balance(self.post(&format!("/v1/maps/{name}/rebalance")), request), &())
    }

    /// Give keys a shard of their own.
    pub fn isolate(&self, name: &MapName, request: &IsolateRequest) -> Answered<MoveAnswer> {
        self.call_with(self.post(&format!("/v1/maps/{name}/isolate")), request)
    }

    /// Take a database in as a shard, or look at what that would be.
    pub fn adopt(&self, request: &AdoptRequest) -> Answered<AdoptAnswer> {
        self.call_with(self.post("/v1/adopt"), request)
    }

    /// All rules.
    pub fn rules(&self) -> Answered<RulesAnswer> {
        self.call(self.get("/v1/rules"))
    }

    /// Record a rule.
    pub fn add_rule(&self, name: &MapName, rule: &NewRule) -> Answered<RuleView> {
        self.call_with(self.post(&format!("/v1/maps/{name}/rules")), rule)
    }

    /// Forget a rule.
    pub fn remove_rule(&self, id: &str) -> Answered<()> {
        self.remove(&format!("/v1/rules/{id}"), id, Data::Keep, Basis::Current)
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

fn with_balance<B>(mut call: RequestBuilder<B>, request: &BalanceRequest) -> RequestBuilder<B> {
    if let Some(drain) = &request.drain {
        call = call.query("drain", drain.as_str());
    }
    if let Some(slack) = request.slack {
        call = call.query("slack", slack.to_string());
    }
    if let Some(by) = request.by {
        call = call.query(
            "by",
            match by {
                BalanceBy::Load => "load",
                BalanceBy::Requests => "requests",
                BalanceBy::Bytes => "bytes",
                BalanceBy::Rows => "rows",
            },
        );
    }
    call
}
