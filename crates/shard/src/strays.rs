//! Rows on a shard that it does not own: hidden from whoever reads all shards until they are put right, and put right
//! only where the local maps prove who owns what.
//!
//! The ranges of such rows are kept as captures that catch nothing: whoever reads all shards looks at those, anyway.

use polyshard_engine::{Statement, Value};
use polyshard_map::{Entry, KeyRange, MapName, ShardId};

use crate::sql_local::SqlLocal;
use crate::{LocalTx, OpId, Shard, ShardError, Taken, capture};

/// What is known of rows that a shard does not own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StrayKind {
    /// They are what a move has left: they went elsewhere with their range, and what is here is out of date.
    Left,
    /// The shard had their range when it was detached or copied, and when it came back somebody else had it. Nobody
    /// knows whether that one has ever had them.
    Stale,
    /// Nobody knows: they may be the only ones.
    Unknown,
}

impl StrayKind {
    fn as_str(self) -> &'static str {
        match self {
            StrayKind::Left => "left",
            StrayKind::Stale => "stale",
            StrayKind::Unknown => "hidden",
        }
    }
}

/// A row to be removed if it is still what it was when it was read.
pub struct StrayRow {
    /// Reads it.
    pub read: Statement,
    /// Removes it.
    pub delete: Statement,
}

impl Shard {
    /// The ranges of a map that are marked as holding rows which are not this shard's.
    pub async fn strays(&self, map: &MapName) -> Result<Vec<(StrayKind, KeyRange)>, ShardError> {
        self.ensure_move_tables().await?;
        let mut tx = SqlLocal::begin(self.control()).await?;
        let marks = tx.stray_marks(map).await?;
        tx.commit().await?;
        Ok(marks
            .into_iter()
            .flat_map(|(kind, ranges)| ranges.into_iter().map(move |range| (kind, range)))
            .collect())
    }

    /// Marks ranges as holding rows that are not this shard's: from now on whoever reads all shards leaves them out.
    /// `mark` is that of the repair that has claimed them.
    pub async fn hide_strays(
        &self,
        mark: OpId,
        map: &MapName,
        ranges: &[KeyRange],
    ) -> Result<(), ShardError> {
        self.ensure_move_tables().await?;
        let mut tx = SqlLocal::begin(self.control()).await?;
        tx.lock_meta().await?;
        self.prove_claim(tx.direct().await?, self.id(), mark).await?;
        let mut fresh = ranges.to_vec();
        for (_, marked) in tx.stray_marks(map).await? {
            fresh = without(fresh, &marked);
        }
        tx.put_stray_mark(mark, map, StrayKind::Unknown, &fresh).await?;
        tx.commit().await
    }

    /// Takes the marks of a map away: no rows are left that are not this shard's.
    pub async fn unmark_strays(&self, mark: OpId, map: &MapName) -> Result<(), ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        tx.lock_meta().await?;
        self.prove_claim(tx.direct().await?, self.id(), mark).await?;
        let sql = format!("DELETE FROM {} WHERE map = $1 AND op = capture", self.own("capture"));
        tx.direct().await?.run(Statement::new(sql).bind(map.to_string())).await?;
        tx.commit().await
    }

    /// Writes rows here that another shard has and does not own, and notes that they were taken: in the same
    /// transaction the local map is locked, and all of the ranges must be this shard's; and no repair may have begun
    /// after the one that has this mark, which might have removed the rows there since they were read.
    pub async fn take_strays(
        &self,
        mark: OpId,
        (map, ranges): (&MapName, &[KeyRange]),
        mut statements: Vec<Statement>,
        (from, table, taken): (&ShardId, &str, &[Taken]),
    ) -> Result<(), ShardError> {
        let mut tx = SqlLocal::begin(self.carrier().await?).await?;
        for range in ranges {
            let owned = tx.ranges(map, range).await?.into_iter().filter(|local| local.incoming.is_none());
            let owned: Vec<KeyRange> = owned.map(|local| local.entry.range).collect();
            if !without(vec![range.clone()], &owned).is_empty() {
                let detail = format!("not all of {range:?} is here any more");
                return Err(ShardError::LocalMapDiffers { map: map.clone(), detail });
            }
        }
        self.prove_claim(tx.direct().await?, from, mark).await?;
        statements.extend(taken.iter().map(|row| self.note_taken(from, table, row)));
        tx.direct().await?.run_all(statements).await?;
        tx.commit().await
    }

    /// Removes rows that are not this shard's, each only if `is_same` says that it is what it was. In the same
    /// transaction the local map is locked: the ranges must neither be here nor arrive, no move may have to do with
    /// them, and no repair may have begun after the one that has this mark. Answers the places of those that were not
    /// what they were, and stay.
    pub async fn remove_strays(
        &self,
        mark: OpId,
        (map, ranges): (&MapName, &[KeyRange]),
        rows: Vec<StrayRow>,
        is_same: impl Fn(usize, &[Value]) -> bool,
    ) -> Result<Vec<usize>, ShardError> {
        let mut tx = SqlLocal::begin(self.carrier().await?).await?;
        for range in ranges {
            if let Some(found) = tx.ranges(map, range).await?.first() {
                let detail = format!("{:?} is here, so that its rows stay", found.entry.range);
                return Err(ShardError::LocalMapDiffers { map: map.clone(), detail });
            }
        }
        let moving = tx.captured_ranges(map, "op <> capture").await?;
        if let Some(range) = moving.iter().find(|moving| ranges.iter().any(|range| range.overlaps(moving))) {
            let detail = format!("{range:?} is being moved, so that its rows stay");
            return Err(ShardError::LocalMapDiffers { map: map.clone(), detail });
        }
        let direct = tx.direct().await?;
        self.prove_claim(direct, self.id(), mark).await?;
        let mut kept = Vec::new();
        for (place, row) in rows.into_iter().enumerate() {
            let Some(found) = direct.run(row.read).await?.into_rows().into_iter().next() else { continue };
            match is_same(place, &found.into_values()) {
                true => drop(direct.run(row.delete).await?),
                false => kept.push(place),
            }
        }
        tx.commit().await?;
        Ok(kept)
    }
}

impl SqlLocal {
    /// Leaves of all captures only that their ranges may hold rows which are not this shard's: their moves ended
    /// without it, which was away, and nobody has cleaned up.
    pub(crate) async fn leave_strays(&mut self) -> Result<(), ShardError> {
        let dialect = self.dialect();
        let own = |table| dialect.own_table(table);
        let tx = self.direct().await?;
        let sql = format!("SELECT capture FROM {} WHERE op <> capture", own("capture"));
        for row in tx.run(Statement::new(sql)).await? {
            let id: OpId = row.text(0)?.parse().map_err(|error| damaged(format!("{error}")))?;
            for part in capture::parts(tx, dialect, id).await? {
                tx.run(Statement::new(part)).await?;
            }
        }
        for sql in [
            format!(
                "UPDATE {} SET op = capture, state = 'left', ready = 0 WHERE op <> capture",
                own("capture")
            ),
            format!("DELETE FROM {}", own("capture_log")),
            format!("DELETE FROM {}", own("carried")),
        ] {
            tx.run(Statement::new(sql)).await?;
        }
        Ok(())
    }

    /// Marks, when a shard is attached, what it has of ranges that are not its own any more: what its moves have left,
    /// and what it had when somebody else had it already.
    pub(crate) async fn reconcile_strays(
        &mut self,
        mark: OpId,
        map: &MapName,
        stale: &[Entry],
        kept: &[Entry],
    ) -> Result<(), ShardError> {
        let (mut left, mut old) = (Vec::new(), Vec::new());
        for (kind, ranges) in self.stray_marks(map).await? {
            match kind {
                StrayKind::Left => left.extend(ranges),
                StrayKind::Stale => old.extend(ranges),
                StrayKind::Unknown => {}
            }
        }
        old.extend(stale.iter().map(|entry| entry.range.clone()));
        let kept: Vec<KeyRange> = kept.iter().map(|entry| entry.range.clone()).collect();
        let old = joined(without(old, &kept));
        // Where it is both, the rows may be the only ones.
        let left = joined(without(without(left, &kept), &old));
        let sql = format!(
            "DELETE FROM {} WHERE map = $1 AND op = capture AND state IN ('left', 'stale')",
            self.dialect().own_table("capture")
        );
        self.direct().await?.run(Statement::new(sql).bind(map.to_string())).await?;
        self.put_stray_mark(mark, map, StrayKind::Left, &left).await?;
        self.put_stray_mark(mark.beside(), map, StrayKind::Stale, &old).await
    }

    async fn put_stray_mark(
        &mut self,
        mark: OpId,
        map: &MapName,
        kind: StrayKind,
        ranges: &[KeyRange],
    ) -> Result<(), ShardError> {
        if ranges.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO {} (capture, op, map, ranges, state, ready) VALUES ($1, $1, $2, $3, '{}', 0)",
            self.dialect().own_table("capture"),
            kind.as_str()
        );
        let statement = Statement::new(sql)
            .bind(mark.to_string())
            .bind(map.to_string())
            .bind(serde_json::to_string(ranges).expect("ranges are texts"));
        self.direct().await?.run(statement).await?;
        Ok(())
    }

    async fn stray_marks(&mut self, map: &MapName) -> Result<Vec<(StrayKind, Vec<KeyRange>)>, ShardError> {
        let mut marks = Vec::new();
        for kind in [StrayKind::Left, StrayKind::Stale, StrayKind::Unknown] {
            let condition = format!("op = capture AND state = '{}'", kind.as_str());
            let ranges = self.captured_ranges(map, &condition).await?;
            if !ranges.is_empty() {
                marks.push((kind, ranges));
            }
        }
        Ok(marks)
    }

    pub(crate) async fn captured_ranges(
        &mut self,
        map: &MapName,
        condition: &str,
    ) -> Result<Vec<KeyRange>, ShardError> {
        let sql = format!(
            "SELECT ranges FROM {} WHERE map = $1 AND {condition} ORDER BY capture",
            self.dialect().own_table("capture")
        );
        let rows = self.direct().await?.run(Statement::new(sql).bind(map.to_string())).await?;
        let mut ranges = Vec::new();
        for row in rows.rows() {
            let some: Vec<KeyRange> =
                serde_json::from_str(row.text(0)?).map_err(|error| damaged(error.to_string()))?;
            ranges.extend(some);
        }
        Ok(ranges)
    }
}

fn damaged(detail: String) -> ShardError {
    ShardError::Damaged { what: "capture", detail }
}

/// What is left of ranges without others.
fn without(ranges: Vec<KeyRange>, others: &[KeyRange]) -> Vec<KeyRange> {
    others.iter().fold(ranges, |left, other| left.iter().flat_map(|range| range.subtract(other)).collect())
}

/// Ranges in order, those that overlap as one.
fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort();
    let mut out: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match out.last_mut().filter(|last| last.overlaps(&range)) {
            Some(last) if last.covers(&range) => {}
            Some(last) => {
                let both = KeyRange::new(last.lo().clone(), range.hi().cloned());
                *last = both.expect("the second of two that overlap ends after the first begins");
            }
            None => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use polyshard_map::KeyBytes;

    use super::*;

    fn range(lo: u8, hi: u8) -> KeyRange {
        KeyRange::new(KeyBytes::new(vec![lo]), Some(KeyBytes::new(vec![hi]))).unwrap()
    }

    #[test]
    fn what_is_left_is_in_order_and_each_key_once() {
        assert_eq!(joined(vec![range(5, 9), range(1, 3), range(2, 6)]), [range(1, 9)]);
        assert_eq!(joined(vec![range(1, 9), range(2, 3), range(9, 10)]), [range(1, 9), range(9, 10)]);
        assert_eq!(without(vec![range(1, 9)], &[range(2, 3), range(8, 12)]), [range(1, 2), range(3, 8)]);
        assert_eq!(without(vec![range(1, 9)], &[range(0, 12)]), []);
    }
}
