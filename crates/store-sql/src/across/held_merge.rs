//! Sorted rows of all shards that the client takes in parts: a portal with a fetch size, or a cursor that goes forward.
//!
//! A session of every shard waits with its rows, in its own snapshot; nothing is put into a temporary table. How a
//! cursor's rows are written is said by its first FETCH, and only then are they asked for.

use bytes::{Bytes, BytesMut};
use polyshard_sql::{Direction, Fetch, SqlError, SqlState};
use tokio::sync::OwnedSemaphorePermit;

use super::hold::PORTAL;
use super::known::Known;
use super::merge::{Order, with_keys};
use super::merging::{Merging, Parts};
use super::shards::Shards;
use super::worker::{Trouble, Worker};
use super::{PORTAL_SUSPENDED, columns};
use crate::reply;
use crate::session::{Done, Session, Stop};

/// How many rows of each shard a cursor asks for at a time.
const CURSOR_ROWS: i32 = 1000;

/// Sorted rows of which the client has a part.
pub(super) struct HeldMerge {
    rows: Rows,
    /// What a cursor's columns are.
    description: Bytes,
    /// How many rows were passed.
    position: u64,
    /// Leave to keep these sessions from others.
    _leave: Option<OwnedSemaphorePermit>,
}

/// Whether they were asked for.
enum Rows {
    /// Not yet: the sessions, and what each is to be asked.
    Declared { order: Box<Order>, workers: Vec<Worker>, texts: Vec<String> },
    /// They were; a cursor's columns in these forms.
    UnderWay { merging: Box<Merging>, forms: Vec<bool> },
    /// While they are being asked for.
    Asked,
}

impl HeldMerge {
    /// A portal's, of which the client has its first ones.
    pub fn under_way(merging: Merging, leave: Option<OwnedSemaphorePermit>) -> HeldMerge {
        let rows = Rows::UnderWay { merging: Box::new(merging), forms: Vec::new() };
        HeldMerge { rows, description: Bytes::new(), position: 0, _leave: leave }
    }

    pub fn workers(&mut self) -> &mut [Worker] {
        match &mut self.rows {
            Rows::Declared { workers, .. } => workers,
            Rows::UnderWay { merging, .. } => merging.workers(),
            Rows::Asked => &mut [],
        }
    }

    fn into_workers(self) -> Vec<Worker> {
        match self.rows {
            Rows::Declared { workers, .. } => workers,
            Rows::UnderWay { merging, .. } => merging.into_workers(),
            Rows::Asked => Vec::new(),
        }
    }

    /// What the columns are, as the message's body.
    pub fn description(&self) -> &[u8] {
        &self.description
    }
}

impl Session {
    /// DECLARE: the snapshots are there, and every shard has looked at the statement. False if keys are not what they
    /// were said to be, or other columns are of another type on another shard, which is noted.
    pub(super) async fn declare_merge(
        &mut self,
        working: &mut Shards,
        known: &Known,
        mut order: Order,
        texts: Vec<String>,
        name: &str,
    ) -> Result<bool, Trouble> {
        for (worker, text) in working.all().zip(&texts) {
            worker.ask_columns_of(text);
            worker.send().await?;
        }
        let mut first = None;
        for worker in working.all() {
            let description = worker.description(self.client()).await?;
            worker.rest(self.client()).await?;
            if !order.fits(&description, first.as_deref()) {
                known.lesson.note_unlike();
                return Ok(false);
            }
            first.get_or_insert(description);
        }
        let description = columns::without_first(&first.unwrap_or_default(), order.merge.keys.len()).freeze();
        let leave = order.leave.take();
        let rows = Rows::Declared { order: Box::new(order), workers: working.take_all(), texts };
        self.hold_merge(name, HeldMerge { rows, description, position: 0, _leave: leave });
        reply::complete(&mut self.client().out, "DECLARE CURSOR");
        Ok(true)
    }

    /// More rows of a portal.
    pub(super) async fn more_of_merge(
        &mut self,
        name: &str,
        mut held: Box<HeldMerge>,
        rows_max: i32,
    ) -> Done {
        self.working_on_merge(&mut held).await;
        let rows_max = u64::try_from(rows_max).ok().filter(|rows| *rows > 0).unwrap_or(u64::MAX);
        match held.pass(self, rows_max, true).await {
            Ok(rows) if rows == rows_max => {
                self.client().out.extend_from_slice(PORTAL_SUSPENDED);
                self.put_merge_back(name, held).await;
                Ok(())
            }
            Ok(rows) => {
                self.end_merge(held).await?;
                reply::complete(&mut self.client().out, &format!("SELECT {rows}"));
                Ok(())
            }
            Err(trouble) => self.fail_merge(name, held, trouble).await,
        }
    }

    /// FETCH or MOVE of a cursor, forward.
    pub(super) async fn fetch_merge(&mut self, fetch: &Fetch, mut held: Box<HeldMerge>) -> Done {
        let name = fetch.name.as_str();
        let (skipped, taken) = match steps(fetch.direction, held.position) {
            Some(steps) => steps,
            None => {
                self.put_merge_back(name, held).await;
                return Err(only_forward().into());
            }
        };
        self.working_on_merge(&mut held).await;
        let fetched = async {
            held.begin(self).await?;
            if !fetch.moves {
                let (_, told) = self.wanted_forms();
                if !told {
                    columns::tell(&mut self.client().out, &held.description);
                }
            }
            let passed = held.pass(self, skipped, false).await?;
            if passed < skipped {
                return Ok(0);
            }
            held.pass(self, taken, !fetch.moves).await
        };
        match fetched.await {
            Ok(rows) => {
                let word = if fetch.moves { "MOVE" } else { "FETCH" };
                reply::complete(&mut self.client().out, &format!("{word} {rows}"));
                self.put_merge_back(name, held).await;
                Ok(())
            }
            Err(trouble) => self.fail_merge(name, held, trouble).await,
        }
    }

    async fn working_on_merge(&mut self, held: &mut HeldMerge) {
        for worker in held.workers() {
            self.working_on(worker.cancel()).await;
        }
    }

    async fn put_merge_back(&mut self, name: &str, held: Box<HeldMerge>) {
        self.held.put_merge(name, held);
        self.working_on_own_alone().await;
    }

    /// Gives the sessions back.
    pub(super) async fn end_merge(&mut self, mut held: Box<HeldMerge>) -> Done {
        if let Rows::UnderWay { merging, .. } = &mut held.rows {
            // A session that is lost is not given back, which is all that comes of it.
            if let Err(Trouble::Gone(gone)) = merging.settle(self.client()).await {
                return Err(Stop::Gone(gone));
            }
        }
        // A word to stop must not reach whoever has them next.
        self.working_on_own_alone().await;
        for worker in held.into_workers() {
            worker.give_back(self.client()).await.map_err(Stop::Gone)?;
        }
        Ok(())
    }

    async fn fail_merge(&mut self, name: &str, held: Box<HeldMerge>, trouble: Trouble) -> Done {
        self.held.forget(name);
        self.working_on_own_alone().await;
        for worker in held.into_workers() {
            worker.give_back(self.client()).await.map_err(Stop::Gone)?;
        }
        self.told_trouble(trouble)
    }
}

impl HeldMerge {
    /// Asks for the rows of a cursor, in the forms that the client wants now.
    async fn begin(&mut self, session: &mut Session) -> Result<(), Trouble> {
        let (wanted, _) = session.wanted_forms();
        let wanted = of_each(&wanted, columns::names(&self.description).len());
        if let Rows::UnderWay { forms, .. } = &self.rows {
            return if *forms == wanted { Ok(()) } else { Err(other_forms().into()) };
        }
        let Rows::Declared { order, mut workers, texts } = std::mem::replace(&mut self.rows, Rows::Asked)
        else {
            return Ok(());
        };
        let forms = with_keys(&wanted, &order.merge);
        let parts = Parts { portal: PORTAL, rows: CURSOR_ROWS };
        let asked = ask(session, &mut workers, &texts, &forms, parts).await;
        let merging = Box::new(order.of(workers, Some(parts)));
        self.rows = Rows::UnderWay { merging, forms: wanted };
        asked
    }

    /// Passes rows on, or over. How many there were.
    async fn pass(&mut self, session: &mut Session, rows_max: u64, wanted: bool) -> Result<u64, Trouble> {
        let Rows::UnderWay { merging, .. } = &mut self.rows else { return Ok(0) };
        let passed = merging.pass(session.client(), rows_max, wanted).await?;
        self.position += passed;
        Ok(passed)
    }
}

async fn ask(
    session: &mut Session,
    workers: &mut [Worker],
    texts: &[String],
    forms: &[bool],
    parts: Parts,
) -> Result<(), Trouble> {
    for (worker, text) in workers.iter_mut().zip(texts) {
        worker.ask_portal(parts.portal, text, forms, parts.rows);
        worker.send().await?;
    }
    for worker in workers {
        // They are what they were when the cursor was declared, in the same transaction.
        let _: BytesMut = worker.description(session.client()).await?;
    }
    Ok(())
}

/// The form of each of so many columns: none said is text, and one is that of all.
fn of_each(wanted: &[bool], columns: usize) -> Vec<bool> {
    match wanted {
        [] => vec![false; columns],
        [one] => vec![*one; columns],
        each => each.to_vec(),
    }
}

/// How many rows are passed over, and how many taken then; nothing if that is not forward.
fn steps(direction: Direction, position: u64) -> Option<(u64, u64)> {
    match direction {
        Direction::By(count) => match u64::try_from(count).ok()? {
            0 if position > 0 => None,
            count => Some((0, if count == Direction::ALL.unsigned_abs() { u64::MAX } else { count })),
        },
        Direction::Relative(count) => Some((u64::try_from(count).ok()?.checked_sub(1)?, 1)),
        Direction::Absolute(number) => {
            let before = u64::try_from(number).ok()?.checked_sub(1)?;
            Some((before.checked_sub(position)?, 1))
        }
    }
}

fn only_forward() -> SqlError {
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
        .hint("Declare it with SCROLL option to enable backward scan.")
}

fn other_forms() -> SqlError {
    SqlError::unsupported(
        "the rows of a cursor across shards come in the form, text or binary, that its first FETCH asked for",
        "Ask for the same form each time, or declare it with SCROLL.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_is_that_of_all_columns() {
        assert_eq!(of_each(&[], 2), of_each(&[false], 2));
        assert_eq!(of_each(&[true], 2), of_each(&[true, true], 2));
        assert_ne!(of_each(&[], 1), of_each(&[true], 1));
    }

    #[test]
    fn a_cursor_that_goes_forward_takes_every_way_forward() {
        assert_eq!(steps(Direction::By(3), 7), Some((0, 3)));
        assert_eq!(steps(Direction::By(Direction::ALL), 7), Some((0, u64::MAX)));
        assert_eq!(steps(Direction::By(0), 0), Some((0, 0)));
        assert_eq!(steps(Direction::Relative(2), 7), Some((1, 1)));
        assert_eq!(steps(Direction::Absolute(9), 7), Some((1, 1)));
        let back = [Direction::By(-1), Direction::By(0), Direction::Relative(0), Direction::Absolute(7)];
        for direction in back.into_iter().chain([Direction::Absolute(-1), Direction::By(-Direction::ALL)]) {
            assert_eq!(steps(direction, 7), None, "{direction:?}");
        }
    }
}
