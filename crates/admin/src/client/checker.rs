//! The client's calls about the checker.

use super::{Answered, Client};
use crate::operator::{Basis, Data};
use crate::types::{
    LastCheckAnswer, LinkView, LinksAnswer, LinksCheckAnswer, NewLink, RepairRowsAnswer, RepairRowsRequest,
};

impl Client {
    /// Put rows and reference tables right, or look at what that would be.
    pub fn repair_rows(&self, request: &RepairRowsRequest) -> Answered<RepairRowsAnswer> {
        self.call_with(self.post("/v1/check/repair"), request)
    }

    /// All soft references.
    pub fn links(&self) -> Answered<LinksAnswer> {
        self.call(self.get("/v1/links"))
    }

    /// Record a soft reference.
    pub fn add_link(&self, link: &NewLink) -> Answered<LinkView> {
        self.call_with(self.post("/v1/links"), link)
    }

    /// Forget a soft reference.
    pub fn remove_link(&self, id: &str) -> Answered<()> {
        self.remove(&format!("/v1/links/{id}"), id, Data::Keep, Basis::Current)
    }

    /// Look for rows that name nothing.
    pub fn check_links(&self) -> Answered<LinksCheckAnswer> {
        self.call(self.get("/v1/links/check"))
    }

    /// What the checker found when it last ran by itself.
    pub fn last_check(&self) -> Answered<LastCheckAnswer> {
        self.call(self.get("/v1/check"))
    }
}
