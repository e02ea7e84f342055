//! The tasks of archives: what is held, and the steps that somebody with a depot does.

use polyshard_catalog::{ArchiveState, CatalogError, ChangeRequest, ProcedureRecord};
use polyshard_map::{Change, Entry, MapName, State};
use polyshard_shard::{OfflineClaim, OpId};

use super::{Inner, Outcome};
use crate::archiving::{Archiving, Held, NotStepped, Stepped};
use crate::procedure::Procedure;

/// Until when a range is held: to the end of the year 9999, or until somebody lets go of it.
const FOR_EVER_MS: i64 = 253_402_300_799_000;

fn is_held(entry: &Entry, owner: &str) -> bool {
    entry.lock.as_ref().is_some_and(|lock| lock.owner() == owner)
}

impl Inner {
    pub(super) async fn archiving(
        &self,
        procedure: &mut Procedure,
        step: &Archiving,
        record: &ProcedureRecord,
    ) -> Result<Outcome, CatalogError> {
        let catalog = self.options.driver.catalog();
        let stepped = match step {
            Archiving::Hold { of, state } => return self.hold(of, *state).await,
            Archiving::LetGo { of, state } => return self.let_go(of, *state).await,
            Archiving::PassOn { of, to } => return self.pass_on(procedure, of, to).await,
            Archiving::Assign { of, to } => {
                let there = self.entries(&of.map, &of.range).await?.iter().all(|entry| entry.shard == *to);
                if !there {
                    let (range, to) = (of.range.clone(), to.clone());
                    self.change_held(of, Change::Assign { range, to }).await?;
                }
                return Ok(Outcome::Done);
            }
            Archiving::Remove { of } => {
                if !self.entries(&of.map, &of.range).await?.is_empty() {
                    self.change_held(of, Change::Remove { range: of.range.clone() }).await?;
                }
                return self.seen().await;
            }
            Archiving::Note { archive, state } => {
                catalog.set_archive(archive, |record| record.state = *state).await?;
                return Ok(Outcome::Done);
            }
            Archiving::Write { archive } => self.archiver()?.write(archive).await,
            Archiving::Compare { archive } => self.archiver()?.compare(archive).await,
            Archiving::Restore { archive } => {
                let found = catalog.archive(archive).await?;
                let Some(found) = found else {
                    return Ok(Outcome::Refused(format!("there is no archive {archive} any more")));
                };
                let rank = self.rank(&found.map, record).await?;
                self.archiver()?.restore(archive, rank).await
            }
            Archiving::DropRows { of } => {
                let rank = self.rank(&of.map, record).await?;
                let entries = self.entries(&of.map, &of.range).await?;
                let held = !entries.is_empty() && entries.iter().all(|entry| is_held(entry, &of.owner));
                match procedure.given_up() {
                    _ if held => {}
                    // What was given up before it was held is somebody else's.
                    Some(_) => return Ok(Outcome::Done),
                    None => {
                        return Ok(Outcome::Broken(format!(
                            "somebody has let go of the range that was held as {}; what was archived stays in its \
                             place, and what was not deleted stays on its shard",
                            of.owner
                        )));
                    }
                }
                self.archiver()?.drop_rows(of, rank).await
            }
            Archiving::Forget { archive } => {
                let record = catalog.archive(archive).await?;
                if record.is_none_or(|record| record.state != ArchiveState::Writing) {
                    return Ok(Outcome::Done);
                }
                self.archiver()?.forget(archive).await
            }
        };
        match stepped {
            Ok(Stepped::Done(says)) => {
                if let Some(says) = says {
                    procedure.say(says);
                }
                Ok(Outcome::Done)
            }
            Ok(Stepped::Part(says)) => Ok(Outcome::Part(says)),
            Err(NotStepped::Later(why)) => Ok(Outcome::Retry(why)),
            Err(NotStepped::Refused(why)) => Ok(Outcome::Refused(why)),
            Err(NotStepped::Catalog(error)) => Err(error),
        }
    }

    /// The rank of this driver among those who write rows of an offline range. As long as it is the driver, nobody has
    /// seen a later version of the map for the sake of this procedure; so whoever takes over ranks higher.
    async fn rank(&self, map: &MapName, record: &ProcedureRecord) -> Result<OpId, CatalogError> {
        let catalog = self.options.driver.catalog();
        let version = catalog.map(map).await?.version;
        catalog.save_procedure(record).await?;
        Ok(OfflineClaim::rank(version, record.token))
    }

    fn archiver(&self) -> Result<&dyn crate::archiving::Archiver, CatalogError> {
        self.archiver.get().map(AsRef::as_ref).ok_or_else(|| {
            CatalogError::Invalid("this process keeps no archives; another one goes on".to_owned())
        })
    }

    async fn change_held(&self, of: &Held, change: Change) -> Result<(), CatalogError> {
        let request =
            ChangeRequest { map: of.map.clone(), change, if_version: None, by: Some(of.owner.clone()) };
        self.options.driver.change(&request).await.map(drop)
    }

    /// Makes this process see at once what was done.
    async fn seen(&self) -> Result<Outcome, CatalogError> {
        match self.options.router.refresh().await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Ok(Outcome::Retry(error.to_string())),
        }
    }

    async fn hold(&self, of: &Held, state: State) -> Result<Outcome, CatalogError> {
        let entries = self.entries(&of.map, &of.range).await?;
        let (range, owner) = (of.range.clone(), of.owner.clone());
        if !entries.iter().all(|entry| is_held(entry, &of.owner)) {
            self.change_held(of, Change::Lock { range: range.clone(), owner, until_ms: FOR_EVER_MS }).await?;
        }
        if !entries.iter().all(|entry| entry.state == state) {
            self.change_held(of, Change::SetState { range, state }).await?;
        }
        self.seen().await
    }

    async fn let_go(&self, of: &Held, state: State) -> Result<Outcome, CatalogError> {
        let entries = self.entries(&of.map, &of.range).await?;
        let mine: Vec<&Entry> = entries.iter().filter(|entry| is_held(entry, &of.owner)).collect();
        for entry in mine {
            // The entry may reach beyond the range if nothing was cut out of it yet; then it is not held.
            let Some(range) = entry.range.intersect(&of.range) else { continue };
            if entry.state != state {
                self.change_held(of, Change::SetState { range: range.clone(), state }).await?;
            }
            self.change_held(of, Change::Unlock { range, owner: Some(of.owner.clone()) }).await?;
        }
        self.seen().await
    }

    async fn pass_on(&self, procedure: &Procedure, of: &Held, to: &str) -> Result<Outcome, CatalogError> {
        let entries = self.entries(&of.map, &of.range).await?;
        if entries.iter().all(|entry| is_held(entry, to)) {
            return self.seen().await;
        }
        if entries.iter().any(|entry| is_held(entry, &of.owner)) {
            let (range, owner) = (of.range.clone(), Some(of.owner.clone()));
            self.change_held(of, Change::Unlock { range, owner }).await?;
        }
        // Between the two changes nobody held it, and somebody may have used that.
        let entries = self.entries(&of.map, &of.range).await?;
        if entries.is_empty() || entries.iter().any(|entry| entry.state != State::Offline) {
            let why = format!(
                "somebody has let go of the range that was held as {}, and it is not offline any more",
                of.owner
            );
            // What was given up is somebody else's then.
            return Ok(if procedure.given_up().is_some() { Outcome::Done } else { Outcome::Broken(why) });
        }
        let other = Held { owner: to.to_owned(), ..of.clone() };
        let (range, owner) = (of.range.clone(), to.to_owned());
        self.change_held(&other, Change::Lock { range, owner, until_ms: FOR_EVER_MS }).await?;
        self.seen().await
    }
}
