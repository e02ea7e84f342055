//! Request units of databases and containers: kept, shown and changed.

use polyshard_store::read_body;

use super::DocumentStore;
use super::records::{
    ContainerBody, DatabaseBody, Offered, THROUGHPUT_DEFAULT, Throughput, container_link, etag_of,
};
use crate::failure::Failure;
use crate::rid;

impl DocumentStore {
    /// All offers. A container always has one: an SDK fails on a container without.
    pub(crate) async fn offers(&self) -> Result<Vec<Offered>, Failure> {
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let mut found = Vec::new();
        for (name, record) in self.kit.datasets(&view, &self.account, "") {
            let (number, etag) = (record.id, etag_of(record));
            if name.contains('/') {
                let body: ContainerBody = read_body(record)?;
                found.push(Offered {
                    number,
                    rid: rid::container(body.database, number),
                    self_link: container_link(body.database, number),
                    throughput: body.throughput.unwrap_or(Throughput::Manual(THROUGHPUT_DEFAULT)),
                    ts_s: body.ts_s,
                    etag,
                });
            } else {
                let body: DatabaseBody = read_body(record)?;
                let Some(throughput) = body.throughput else { continue };
                let rid = rid::database(number);
                let self_link = format!("dbs/{rid}/");
                found.push(Offered { number, rid, self_link, throughput, ts_s: body.ts_s, etag });
            }
        }
        Ok(found)
    }

    /// The offer with this resource id.
    pub(crate) async fn offer(&self, text: &str) -> Result<Offered, Failure> {
        let found = self.offers().await?.into_iter().find(|offer| rid::offer(offer.number) == text);
        found.ok_or_else(|| Failure::not_found(format_args!("offer {text:?}")))
    }

    /// Changes an offer.
    pub(crate) async fn replace_offer(&self, text: &str, throughput: Throughput) -> Result<Offered, Failure> {
        let offer = self.offer(text).await?;
        let gone = || Failure::not_found(format_args!("offer {text:?}"));
        let name = {
            let view = self.kit.router().view();
            let mut all = self.kit.datasets(&view, &self.account, "");
            all.find(|(_, record)| record.id == offer.number)
                .map(|(name, _)| name.to_owned())
                .ok_or_else(gone)?
        };
        let dataset = self.dataset(&name)?;
        if name.contains('/') {
            let edit = |body: &mut ContainerBody| {
                body.throughput = Some(throughput);
                Ok(())
            };
            self.kit.change(&dataset, edit).await?;
        } else {
            let edit = |body: &mut DatabaseBody| {
                body.throughput = Some(throughput);
                Ok(())
            };
            self.kit.change(&dataset, edit).await?;
        }
        self.offer(text).await
    }
}
