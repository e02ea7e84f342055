//! The client's calls about quotas.

use super::{Answered, Client};
use crate::types::{QuotaView, QuotasAnswer, RemoveQuota};

impl Client {
    /// All quotas.
    pub fn quotas(&self) -> Answered<QuotasAnswer> {
        self.call(self.get("/v1/quotas"))
    }

    /// Set a quota.
    pub fn set_quota(&self, quota: &QuotaView) -> Answered<QuotaView> {
        self.call_with(self.post("/v1/quotas"), quota)
    }

    /// Forget a quota.
    pub fn remove_quota(&self, quota: &RemoveQuota) -> Answered<()> {
        self.answer(self.post("/v1/quotas/remove").send_json(quota)).map(drop)
    }
}
