//! The end of a series of the extended protocol, and what is done when it fails on the way.

use super::transaction::Transaction;
use super::{Done, Session, Stop};
use crate::backend::Backend;
use crate::reply::{self, Severity};

impl Session {
    /// `H`.
    pub(super) async fn flush(&mut self) -> Done {
        self.settle().await?;
        self.client.flush().await?;
        Ok(())
    }

    /// Takes all answers that a series has so far. After an error among them nothing more of the series is done.
    pub(super) async fn settle(&mut self) -> Done {
        self.told = false;
        match &mut self.backend {
            Some(backend) if !backend.is_settled() => {
                backend.ask_answers();
                self.drain().await?;
                if self.told { Err(Stop::Told) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// `S`.
    pub(super) async fn sync(&mut self) -> Done {
        self.skipping = false;
        let ended = self.end_asked_series().await;
        self.answer_sync(ended).await
    }

    /// Tells the client how a series has ended, and that it can go on.
    pub(super) async fn answer_sync(&mut self, ended: Done) -> Done {
        match ended {
            Ok(()) | Err(Stop::Told) => {}
            Err(Stop::Refused(error)) => {
                self.watched.failed = true;
                reply::error(&mut self.client.out, Severity::Error, &error);
            }
            Err(stop) => return Err(stop),
        }
        // The client need not wait until a session is given back that is as good as before.
        let later = self.transaction.is_none() && self.backend.as_ref().is_some_and(Backend::is_free);
        if self.transaction.is_none() && !later {
            self.release().await;
        }
        let status = self.status();
        reply::ready(&mut self.client.out, status);
        self.client.settle();
        if later {
            if self.client.whole()?.is_none() {
                self.client.flush().await?;
            }
            self.release().await;
        }
        self.client.flush_if_full().await?;
        Ok(())
    }

    /// Ends a series: outside a transaction, what it did is committed.
    pub(super) async fn end_series(&mut self) -> Done {
        let ended = self.end_asked_series().await;
        if self.transaction.is_none() {
            self.release().await;
        }
        ended
    }

    /// Likewise; the session is not given back yet.
    async fn end_asked_series(&mut self) -> Done {
        let ended = match &mut self.backend {
            Some(backend) if backend.in_series => {
                backend.sync();
                self.drain().await
            }
            _ => Ok(()),
        };
        self.end_answered_series(ended).await
    }

    /// Likewise, of a series whose end was answered.
    pub(super) async fn end_answered_series(&mut self, ended: Done) -> Done {
        let ended = match ended {
            Err(Stop::Refused(error)) if self.transaction.is_none() && self.transaction.wrote && self.cut => {
                Err(super::place::unknown_outcome(&error).into())
            }
            other => other,
        };
        let ended = match self.transaction.is_in_series() {
            true => ended.and(self.end_transaction(true).await),
            false => ended,
        };
        if self.transaction.is_none() {
            self.transaction.wrote = false;
            self.portals.clear();
            self.end_cursors(false).await?;
        }
        ended
    }

    /// After an error in a series: the rest is passed over, and what it did so far is undone.
    pub(super) async fn fail_series(&mut self, stop: Stop) -> Done {
        let error = match stop {
            Stop::Refused(error) => Some(error),
            Stop::Told => None,
            stop => return Err(stop),
        };
        if let Some(error) = error {
            self.told = false;
            // What came before it is answered first. If that failed, it is the error.
            match self.settle().await {
                Ok(()) | Err(Stop::Told) => {}
                Err(Stop::Refused(_)) => self.told = false,
                Err(stop) => return Err(stop),
            }
            if !self.told {
                reply::error(&mut self.client.out, Severity::Error, &error);
                if let Some(backend) = &mut self.backend {
                    undo_series(backend, &self.transaction);
                }
            }
        }
        if self.transaction.is_explicit() {
            self.transaction.failed = true;
        }
        if self.transaction.is_in_series() {
            match Box::pin(self.end_transaction(false)).await {
                Ok(()) | Err(Stop::Told | Stop::Refused(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        self.skipping = true;
        Ok(())
    }

    /// Forgets what was said of this session's prepared statements: a server says that it is not so any more.
    pub(super) fn forget_descriptions(&mut self) {
        for named in self.statements.values() {
            named.prepared.forget();
        }
    }
}

/// Undoes what a series has done outside a transaction: Sync would commit it.
pub(super) fn undo_series(backend: &mut Backend, transaction: &Transaction) {
    if transaction.is_none() && backend.in_series {
        backend.query("ROLLBACK", true);
    }
}
