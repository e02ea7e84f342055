//! Which line of the client's each row was, for errors of the shard that got it.

use std::collections::VecDeque;

use polyshard_map::ShardId;
use polyshard_sql::SqlError;

/// Lines remembered of each shard: far more than a shard is ever behind, by what fits into buffers.
const LINES_MAX: usize = 1 << 20;

/// The lines of rows that shards were given, counted as PostgreSQL does: a row's line is its last one.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The line that was read last.
    line: u64,
    /// Lines of the header, which every shard gets first.
    header: u64,
    /// By place, in the order in which they got their first row.
    given: Vec<Given>,
}

#[derive(Debug)]
struct Given {
    shard: ShardId,
    /// Lines that the shard was given.
    count: u64,
    /// The shard's line and the client's, of each row.
    lines: VecDeque<(u64, u64)>,
}

impl Numbers {
    /// Counts the header.
    pub fn header(&mut self, row: &[u8]) {
        self.header = lines_of(row);
        self.line += self.header;
    }

    /// The place of a shard in what follows.
    pub fn place(&mut self, shard: &ShardId) -> usize {
        let known = self.given.iter().position(|given| given.shard == *shard);
        known.unwrap_or_else(|| {
            self.given.push(Given { shard: shard.clone(), count: self.header, lines: VecDeque::new() });
            self.given.len() - 1
        })
    }

    /// The shard of a place.
    pub fn shard(&self, place: usize) -> &ShardId {
        &self.given[place].shard
    }

    /// Counts a row, and the shard that gets it.
    pub fn row(&mut self, row: &[u8], place: usize) {
        let lines = lines_of(row);
        self.line += lines;
        let given = &mut self.given[place];
        if given.lines.len() == LINES_MAX {
            given.lines.pop_front();
        }
        given.count += lines;
        given.lines.push_back((given.count, self.line));
    }

    /// An error about the row that is read now.
    pub fn here(&self, error: SqlError, table: &str) -> SqlError {
        error.context(format!("COPY {table}, line {}", self.line + 1))
    }

    /// A shard's error, with the client's line in place of the shard's.
    pub fn placed(&self, mut error: SqlError, shard: &ShardId) -> SqlError {
        let Some(context) = &error.context else { return error };
        let Some((before, after)) = context.split_once(", line ") else { return error };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let line = after[..digits].parse().ok().and_then(|theirs| self.line_of(shard, theirs));
        error.context = Some(match line {
            Some(line) => format!("{before}, line {line}{}", &after[digits..]).into(),
            // The shard's number would mislead.
            None => before.to_owned().into(),
        });
        error
    }

    fn line_of(&self, shard: &ShardId, theirs: u64) -> Option<u64> {
        let lines = &self.given.iter().find(|given| given.shard == *shard)?.lines;
        let at = lines.partition_point(|(known, _)| *known < theirs);
        // What was before the first that is remembered is not known.
        let is_known = lines.front().is_some_and(|(first, _)| theirs >= *first || lines.len() < LINES_MAX);
        lines.get(at).filter(|_| is_known).map(|(_, ours)| *ours)
    }
}

fn lines_of(row: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', row).count().max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyshard_sql::SqlState;

    #[test]
    fn a_shards_line_becomes_the_clients() {
        let (a, b) = (ShardId::new("a").unwrap(), ShardId::new("b").unwrap());
        let mut numbers = Numbers::default();
        numbers.header(b"id,text\n");
        let place = numbers.place(&a);
        numbers.row(b"1,x\n", place);
        let place = numbers.place(&b);
        numbers.row(b"2,\"y\nz\"\n", place);
        let place = numbers.place(&a);
        numbers.row(b"3,x\n", place);
        let place = numbers.place(&b);
        numbers.row(b"4,x\n", place);
        let placed = |line: u64, shard: &ShardId| {
            let error = SqlError::new(SqlState("22P02"), "bad");
            let error = error.context(format!("COPY t, line {line}, column id: \"q\""));
            numbers.placed(error, shard).context.unwrap().into_string()
        };
        assert_eq!(placed(3, &a), "COPY t, line 5, column id: \"q\"");
        assert_eq!(placed(3, &b), "COPY t, line 4, column id: \"q\"");
        assert_eq!(placed(4, &b), "COPY t, line 6, column id: \"q\"");
        assert_eq!(placed(9, &b), "COPY t");
    }
}
