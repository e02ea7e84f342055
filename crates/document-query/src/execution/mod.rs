//! Running a query over documents that come one by one.

mod position;
mod sorted;
mod stage;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub use position::{Position, Progress, Resume, Row};
use sorted::Sorted;
use stage::{Item, Stage};

use crate::error::QueryError;
use crate::limits::STATE_BYTES_MAX;
use crate::plan::SelectPlan;
use crate::query::{BoundQuery, stage_at, stages};
use crate::run::{Context, Settings, UserFunctions};
use crate::value::Value;

/// What a query runs in.
#[derive(Clone)]
pub struct Environment {
    /// The time for the date functions, in ticks of 100 ns since 1970-01-01 UTC.
    pub now_ticks: i64,
    /// Where RAND() starts.
    pub seed: u64,
    /// Memory for sorting, grouping and DISTINCT; [`ErrorCode::StateTooLarge`](crate::ErrorCode::StateTooLarge) beyond.
    pub state_bytes_max: usize,
    /// The user functions.
    pub functions: Option<Arc<dyn UserFunctions>>,
    /// The caller takes no more rows than this: a sorted query keeps no more (and one to answer
    /// [`Execution::has_more`]).
    pub page_rows: Option<usize>,
    /// Where an earlier request ended.
    pub resume: Option<Resume>,
    /// The documents come in the order of ORDER BY, and those with equal keys in the order of their tie-breakers, as
    /// from an index: nothing is sorted, and rows come with each document.
    pub presorted: bool,
}

impl Default for Environment {
    fn default() -> Self {
        Environment {
            now_ticks: 0,
            seed: 0,
            state_bytes_max: STATE_BYTES_MAX,
            functions: None,
            page_rows: None,
            resume: None,
            presorted: false,
        }
    }
}

/// A query that is running.
pub struct Execution {
    query: BoundQuery,
    context: Context,
    /// One for each query of the chain in FROM, the one that reads documents first.
    stages: Vec<Stage>,
    /// Rows that must be sorted, deduplicated, or both.
    sorted: Option<Sorted>,
    ready: VecDeque<Row>,
    after: Option<Position>,
    /// Rows that earlier pages had, where positions cannot tell them.
    repeated_left: u64,
    /// The number that the next row of the current document gets.
    row_in_document: u32,
    /// Rows skipped and put into `ready`, over all pages.
    progress: Progress,
    finished: bool,
    state_bytes_max: usize,
}

impl Execution {
    pub(crate) fn new(query: BoundQuery, environment: Environment) -> Self {
        let Environment { now_ticks, seed, state_bytes_max, functions, page_rows, resume, presorted } =
            environment;
        let plan = query.plan();
        let context = Context::new(Settings {
            slots: query.slots(),
            parameters: Arc::clone(&query.parameters),
            now_ticks,
            seed,
            functions,
            regex_bytes: query.regex_bytes(),
            scratch_bytes: state_bytes_max,
        });
        let resume = resume.unwrap_or_default();
        let stages = stages(plan).into_iter().map(Stage::new).collect();
        let streams = presorted && !plan.distinct && plan.grouping.is_none();
        let sorts = (!plan.order.is_empty() && !streams) || plan.distinct;
        let rows_max = rows_kept(&query, page_rows, &resume.progress);
        let sorted = sorts.then(|| Sorted::new(plan, rows_max, state_bytes_max));
        // A DISTINCT or GROUP BY in FROM: the rows come in the same order again, and are counted.
        let counts =
            plan.order.is_empty() && plan.grouping.is_none() && !plan.distinct && !query.shape().streaming;
        let repeated_left =
            if counts { resume.progress.rows_skipped + resume.progress.rows_returned } else { 0 };
        Execution {
            context,
            stages,
            sorted,
            ready: VecDeque::new(),
            after: resume.after.filter(|_| !counts),
            repeated_left,
            row_in_document: 0,
            progress: resume.progress,
            finished: false,
            state_bytes_max,
            query,
        }
    }

    /// Takes one document. The tie-breaker orders documents with equal sort keys and names the document in positions.
    /// After an error the execution is of no more use.
    pub fn push(&mut self, document: &Value, tie_breaker: &[u8]) -> Result<(), QueryError> {
        if self.is_satisfied() || self.finished {
            return Ok(());
        }
        self.row_in_document = 0;
        self.feed(0, document.clone(), tie_breaker)
    }

    /// There are no more documents: sorted rows and groups become ready.
    pub fn finish(&mut self) -> Result<(), QueryError> {
        if self.finished {
            return Ok(());
        }
        self.finished = true;
        self.row_in_document = 0;
        if !self.limit_reached() && self.reads_nothing() {
            self.feed(0, Value::Undefined, &[])?;
        }
        let query = self.query.clone();
        for index in 0..self.stages.len() {
            let plan = stage_at(query.plan(), self.stages.len(), index);
            self.stages[index].finish(plan);
            while !self.limit_reached() {
                let Some(item) = self.stages[index].next_group(plan, &mut self.context)? else { break };
                self.hand_on(index, item, &[])?;
            }
        }
        if let Some(sorted) = self.sorted.take() {
            for row in sorted.into_rows() {
                self.deliver(row.value, row.position);
            }
        }
        Ok(())
    }

    /// The next row that is ready: with each document for streaming queries, after [`Execution::finish`] for others.
    pub fn next_row(&mut self) -> Option<Row> {
        self.ready.pop_front()
    }

    /// True when a row is ready.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True when no further document can change the result. [`Execution::finish`] must be called even then.
    pub fn is_satisfied(&self) -> bool {
        self.reads_nothing() || self.limit_reached()
    }

    /// How far the result has come over all pages. Rows that are ready and not taken do not count.
    pub fn progress(&self) -> Progress {
        let Progress { rows_skipped, rows_returned } = self.progress;
        Progress { rows_skipped, rows_returned: rows_returned - self.ready.len() as u64 }
    }

    /// An estimate of the memory used for sorting, grouping and DISTINCT.
    pub fn state_bytes(&self) -> usize {
        let stages: usize = self.stages.iter().map(Stage::bytes).sum();
        stages + self.sorted.as_ref().map_or(0, Sorted::bytes)
    }

    fn limit_reached(&self) -> bool {
        self.query.limit.is_some_and(|limit| self.progress.rows_returned >= limit)
    }

    /// True for a query without FROM, which has one row without any document.
    fn reads_nothing(&self) -> bool {
        stage_at(self.query.plan(), self.stages.len(), 0).sources.is_empty()
    }

    /// Runs one stage on a document, or on a row of the stage before it.
    fn feed(&mut self, index: usize, root: Value, tie_breaker: &[u8]) -> Result<(), QueryError> {
        let query = self.query.clone();
        let plan = stage_at(query.plan(), self.stages.len(), index);
        self.context.start(root);
        let last = index + 1 == self.stages.len();
        let wanted = self.rows_left().filter(|_| last && self.sorted.is_none());
        let items = self.stages[index].run(plan, &mut self.context, wanted, self.state_bytes_max)?;
        items.into_iter().try_for_each(|item| self.hand_on(index, item, tie_breaker))
    }

    /// How many more rows can change the result; none without a limit, or when rows are repeated first.
    fn rows_left(&self) -> Option<u64> {
        let limit = self.query.limit.filter(|_| self.after.is_none() && self.repeated_left == 0)?;
        let skipped = self.query.offset.saturating_sub(self.progress.rows_skipped);
        Some(limit.saturating_sub(self.progress.rows_returned).saturating_add(skipped))
    }

    /// Gives a row to the next stage, or to the result.
    fn hand_on(&mut self, index: usize, mut item: Item, tie_breaker: &[u8]) -> Result<(), QueryError> {
        if index + 1 < self.stages.len() {
            if !self.stages[index].is_new(&item.value, self.state_bytes_max)? {
                return Ok(());
            }
            return self.feed(index + 1, item.value, tie_breaker);
        }
        item.position.tie_breaker = tie_breaker.to_vec();
        item.position.row_in_document = self.row_in_document;
        self.row_in_document = self.row_in_document.saturating_add(1);
        if let Some(sorted) = &mut self.sorted {
            return sorted.push(item, self.after.as_ref());
        }
        if self.repeated_left > 0 {
            self.repeated_left -= 1;
        } else if !self.is_repeated(&item.position) {
            self.deliver(item.value, item.position);
        }
        Ok(())
    }

    /// True for a row that an earlier page had.
    fn is_repeated(&self, position: &Position) -> bool {
        let Some(after) = &self.after else { return false };
        let plan = self.query.plan();
        if plan.order.is_empty() && plan.grouping.is_none() {
            return position.tie_breaker == after.tie_breaker
                && position.row_in_document <= after.row_in_document;
        }
        position.order(after, &directions(plan)).is_le()
    }

    fn deliver(&mut self, value: Value, position: Position) {
        if self.progress.rows_skipped < self.query.offset {
            self.progress.rows_skipped += 1;
        } else if !self.limit_reached() {
            self.progress.rows_returned += 1;
            self.ready.push_back(Row { value, position, progress: self.progress });
        }
    }
}

/// For each sort key whether it descends; keys that ORDER BY does not have ascend.
fn directions(plan: &SelectPlan) -> Vec<bool> {
    plan.order.iter().map(|order| order.descending).collect()
}

/// How many rows a sorted query must keep.
fn rows_kept(query: &BoundQuery, page_rows: Option<usize>, progress: &Progress) -> Option<usize> {
    let limit = query.limit.map(|limit| limit.saturating_sub(progress.rows_returned));
    let page = page_rows.map(|rows| rows as u64 + 1);
    let skipped = query.offset.saturating_sub(progress.rows_skipped);
    let rows = limit.into_iter().chain(page).min()?.saturating_add(skipped);
    usize::try_from(rows).ok()
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("query", &self.query)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
