//! The simple protocol: a text of one or more statements, answered as a whole.

use bytes::BytesMut;
use polyshard_sql::Kind;

use super::lane::Ran;
use super::{Done, Session, Stop};
use crate::cache::Query;
use crate::codec;
use crate::reply::{self, Severity};

impl Session {
    /// `Q`.
    pub(super) async fn query(&mut self, body: BytesMut) -> Done {
        self.skipping = false;
        // A series without its end is ended by this.
        if self.has_series() && !self.goes_on_in_series(&body) {
            Box::pin(self.end_series()).await?;
        }
        match self.run_query(&body).await {
            Ok(Ran::Ready) => return Ok(()),
            Ok(_) => self.watched.failed = self.told,
            Err(Stop::Refused(error)) => {
                self.watched.failed = true;
                reply::error(&mut self.client.out, Severity::Error, &error);
                Box::pin(self.fail()).await?;
            }
            Err(Stop::Told) => {
                self.watched.failed = true;
                Box::pin(self.fail()).await?;
            }
            Err(stop) => return Err(stop),
        }
        let status = self.status();
        reply::ready(&mut self.client.out, status);
        self.client.settle();
        self.client.flush_if_full().await?;
        Ok(())
    }

    async fn run_query(&mut self, body: &[u8]) -> Result<Ran, Stop> {
        let text = codec::text(body)?;
        let own_name = self.own_name(text);
        let text = own_name.as_deref().unwrap_or(text);
        match self.run_in_lane(text).await? {
            Ran::Not => {}
            Ran::Answered => return self.end_failed_autocommit().await.map(|()| Ran::Answered),
            Ran::Ready => return Ok(Ran::Ready),
        }
        let query = self.door.cache.query(text)?;
        match query.statements.as_slice() {
            [] => {
                self.client.out.extend_from_slice(reply::EMPTY_QUERY);
            }
            [one] => {
                Box::pin(self.run_statement(one)).await?;
                self.end_failed_autocommit().await?;
            }
            _ => Box::pin(self.run_many(&query)).await?,
        }
        Ok(Ran::Answered)
    }

    /// Whether something of the extended protocol may be under way.
    fn has_series(&self) -> bool {
        let open = self.transaction.wrote || self.transaction.is_in_series();
        self.backend.is_some() || open || !self.portals.is_empty() || !self.held.is_empty()
    }

    /// Whether a text is about the transaction that a series has begun: it becomes one of the client's, or ends.
    fn goes_on_in_series(&self, body: &[u8]) -> bool {
        const WORDS: [&str; 6] = ["abort", "begin", "commit", "end", "rollback", "start"];
        let word = codec::text(body).ok().and_then(|text| text.split_whitespace().next());
        self.transaction.is_in_series()
            && word.is_some_and(|word| {
                WORDS.iter().any(|known| known.eq_ignore_ascii_case(word.trim_end_matches(';')))
            })
    }

    /// Several statements are one transaction, unless they say otherwise.
    async fn run_many(&mut self, query: &Query) -> Done {
        for (at, analysed) in query.statements.iter().enumerate() {
            let last = at + 1 == query.statements.len();
            let controls = matches!(
                analysed.statement.kind(),
                Kind::Begin(_)
                    | Kind::Commit { .. }
                    | Kind::Rollback { .. }
                    | Kind::Set(_)
                    | Kind::SetConfig(_)
                    | Kind::Show(_)
            );
            // The last one alone after a COMMIT needs no transaction of its own.
            if self.transaction.is_none() && !controls && !last {
                self.begin_implicitly();
            }
            self.run_statement(analysed).await?;
            if self.transaction.failed {
                return Err(Stop::Told);
            }
        }
        if !self.transaction.is_none() && !self.transaction.is_explicit() {
            self.end_transaction(true).await?;
        }
        Ok(())
    }

    /// After a refusal or error: an explicit transaction has failed, any other is rolled back.
    pub(super) async fn fail(&mut self) -> Done {
        if self.transaction.is_explicit() {
            self.transaction.failed = true;
            return Ok(());
        }
        if self.transaction.is_none() {
            self.release().await;
            return Ok(());
        }
        match self.end_transaction(false).await {
            Err(Stop::Told | Stop::Refused(_)) => Ok(()),
            other => other,
        }
    }

    async fn end_failed_autocommit(&mut self) -> Done {
        if self.transaction.is_none() && self.backend.is_some() {
            self.release().await;
        }
        Ok(())
    }
}
