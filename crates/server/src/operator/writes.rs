//! What operators ask about writes on several shards.

use polyshard_admin::types::{SkipWrite, WaitingView, WriteView};
use polyshard_admin::{Answer, Problem, Writes};
use polyshard_catalog::WriteRecord;
use uuid::Uuid;

use super::Operations;
use super::schema::of_journal;

/// Writes shown in a list.
const WRITES_SHOWN: u32 = 100;

impl Operations {
    async fn write_view(&self, id: Uuid) -> Result<WriteView, Problem> {
        let found = self.journal.write(id).await.map_err(|error| of_journal(&error))?;
        found.filter(|write| !write.void).map(view).ok_or_else(|| unknown(&id.to_string()))
    }

    async fn give_up(&self, id: Uuid, skip: SkipWrite) -> Result<WriteView, Problem> {
        self.write_view(id).await?;
        let skipped = self.journal.skip_write(id, &skip.shard).await.map_err(|error| of_journal(&error))?;
        if !skipped {
            let message = format!("shard {} is not to get write {id}", skip.shard);
            return Err(Problem::not_found(message).with_remedy("see 'polyshard writes show'"));
        }
        self.write_view(id).await
    }
}

impl Writes for Operations {
    fn writes(&self) -> Answer<'_, Vec<WriteView>> {
        Box::pin(async {
            let writes = self.journal.writes(WRITES_SHOWN).await.map_err(|error| of_journal(&error))?;
            Ok(writes.into_iter().map(view).collect())
        })
    }

    fn write(&self, id: String) -> Answer<'_, WriteView> {
        Box::pin(async move { self.write_view(named(&id)?).await })
    }

    fn retry_write(&self, id: String) -> Answer<'_, WriteView> {
        Box::pin(async move {
            let id = named(&id)?;
            self.write_view(id).await?;
            self.journal.complete_write(id).await.map_err(|error| of_journal(&error))?;
            self.write_view(id).await
        })
    }

    fn skip_write(&self, id: String, skip: SkipWrite) -> Answer<'_, WriteView> {
        Box::pin(async move { self.give_up(named(&id)?, skip).await })
    }
}

fn named(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| unknown(id))
}

fn unknown(id: &str) -> Problem {
    Problem::not_found(format!("there is no write {id} on several shards"))
        .with_remedy("see 'polyshard writes list'; those long complete are forgotten")
}

fn view(write: WriteRecord) -> WriteView {
    let completed = write.is_complete();
    let waiting = write.waiting.into_iter().map(|(shard, error)| WaitingView { shard, error });
    WriteView {
        id: write.id.to_string(),
        about: write.about,
        completed,
        decided_ms: write.decided_ms,
        completed_ms: write.done_ms,
        waiting: waiting.collect(),
        skipped: write.skipped,
    }
}
