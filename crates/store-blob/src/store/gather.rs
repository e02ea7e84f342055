//! What the contents and stages of a blob hold, and how what nobody uses any more is removed, in bounded steps.
//!
//! A block that was committed may be listed by several contents of one blob: by that of the blob and by those of its
//! snapshots. Nothing is counted. A content or stage that no row of the name has is removed without what the others
//! list; they cannot come to list more of it, since a new list is made of the blob's own list and stage of that time.
//! That holds for what they list at one moment, so lists that were read while the blob got another one do not count.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use polyshard_engine::{self as engine, Dialect, Row, Rows};
use polyshard_router::Ticket;

use super::extents::{self, Entry, EntryPlace, ObjectNumber, object_id, object_number};
use super::home::Home;
use super::rows::Step;
use crate::objects::ObjectId;
use crate::schema::{BLOCKS, EXTENTS, ITEMS, PAGES};

/// Rows of blocks that are read or removed together.
const BLOCK_ROWS_MAX: i64 = 500;
/// Rows of pages that are removed together: each may have 64 KiB.
const PAGE_ROWS_MAX: i64 = 200;
/// How often the lists of a blob are read that gets others meanwhile.
const TRIES_MAX: u32 = 5;

/// What the blob and its snapshots use, also deleted ones that can be brought back.
#[derive(Debug, Default)]
pub(super) struct Used {
    objects: HashSet<ObjectNumber>,
    blocks: HashSet<(i64, Box<[u8]>, i64)>,
    stages: HashSet<i64>,
}

impl Used {
    /// Whether the blob has this stage.
    pub fn has_stage(&self, stage: i64) -> bool {
        self.stages.contains(&stage)
    }

    fn add(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry.place {
                EntryPlace::Object { object, .. } => self.objects.insert(object),
                EntryPlace::Staged { stage, seq } => self.blocks.insert((stage, entry.id, seq)),
            };
        }
    }
}

/// A step of a removal.
pub(super) struct Removal {
    /// Objects that nobody uses any more: they are to be condemned in the same transaction.
    pub objects: Vec<ObjectId>,
    /// What removes the rows.
    pub steps: Vec<Step>,
    /// Whether there may be more.
    pub has_more: bool,
}

struct Texts {
    items: Arc<str>,
    remove_extents: Arc<str>,
    blocks: Arc<str>,
    remove_block: Arc<str>,
    pages: Arc<str>,
    remove_pages: Arc<str>,
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let own = |table| dialect.own_table(table);
        let text = |text: String| Arc::<str>::from(text);
        let blob = "placement = $2 AND dataset = $1 AND name = $3";
        Texts {
            items: text(format!("SELECT DISTINCT content, stage, object FROM {} WHERE {blob}", own(ITEMS))),
            remove_extents: text(format!(
                "DELETE FROM {} WHERE {blob} AND content = $4 AND (start, seq) <= ($5, $6)",
                own(EXTENTS)
            )),
            blocks: text(format!(
                "SELECT block_id, seq, object FROM {} WHERE {blob} AND stage = $4 AND (block_id, seq) > ($5, $6) \
                 ORDER BY block_id, seq LIMIT CAST($7 AS bigint)",
                own(BLOCKS)
            )),
            remove_block: text(format!(
                "DELETE FROM {} WHERE {blob} AND stage = $4 AND block_id = $5 AND seq = $6",
                own(BLOCKS)
            )),
            // From where the last step ended: rows that PostgreSQL has removed still cost those who pass by them.
            pages: text(format!(
                "SELECT page, generation FROM {} WHERE {blob} AND content = $4 AND (page, generation) > ($5, $6) \
                 ORDER BY page, generation LIMIT CAST($7 AS bigint)",
                own(PAGES)
            )),
            remove_pages: text(format!(
                "DELETE FROM {} WHERE {blob} AND content = $4 AND (page, generation) > ($5, $6) \
                 AND (page, generation) <= ($7, $8)",
                own(PAGES)
            )),
        }
    }
}

fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

/// What the rows of a name have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Items {
    contents: HashSet<i64>,
    stages: HashSet<i64>,
    objects: HashSet<ObjectNumber>,
}

async fn items(ticket: &Ticket, home: &Home) -> Result<Items, engine::Error> {
    let mut items = Items::default();
    for row in &read(ticket, &Step::new(home, |dialect| texts(dialect).items.clone())).await? {
        items.contents.insert(row.int(0)?);
        items.stages.insert(row.int(1)?);
        items.objects.extend(object_of(row)?.as_ref().map(object_number));
    }
    Ok(items)
}

/// What all rows of a name use; none if they get other contents all the time.
pub(super) async fn used(ticket: &Ticket, home: &Home) -> Result<Option<Used>, engine::Error> {
    let mut before = items(ticket, home).await?;
    for _ in 0..TRIES_MAX {
        let used = listed(ticket, home, &before).await?;
        // The number of a content or stage is never used again: one that is there before and after was there all the
        // time, and its rows with it.
        let after = items(ticket, home).await?;
        if after == before {
            return Ok(Some(used));
        }
        before = after;
    }
    Ok(None)
}

/// What some rows use, by the lists of their contents and stages.
async fn listed(ticket: &Ticket, home: &Home, items: &Items) -> Result<Used, engine::Error> {
    let Items { contents, stages, objects } = items;
    let (blocks, stages, objects) = (HashSet::new(), stages.clone(), objects.clone());
    let mut used = Used { objects, blocks, stages };
    for content in contents.iter().copied() {
        let mut after = (-1, -1);
        loop {
            let (entries, last) =
                extents::listed(&read(ticket, &extents::read_lists(home, content, after)).await?)?;
            used.add(entries);
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
    }
    for stage in used.stages.clone().into_iter().filter(|stage| *stage != 0) {
        let mut after = (Vec::new(), -1);
        loop {
            let rows = read(ticket, &blocks_after(home, stage, &after)).await?;
            for row in &rows {
                after = (row.blob(0)?.to_vec(), row.int(1)?);
                used.objects.extend(object_of(row)?.as_ref().map(object_number));
            }
            if rows.len() < BLOCK_ROWS_MAX as usize {
                break;
            }
        }
    }
    Ok(used)
}

/// Reads the blocks of a stage after one.
fn blocks_after(home: &Home, stage: i64, after: &(Vec<u8>, i64)) -> Step {
    let step = Step::new(home, |dialect| texts(dialect).blocks.clone());
    step.bind(stage).bind(after.0.as_slice()).bind(after.1).bind(BLOCK_ROWS_MAX)
}

fn object_of(row: &Row) -> Result<Option<ObjectId>, engine::Error> {
    let damaged = |id: &str| engine::Error::invalid(format!("{id} is not the id of an object"));
    row.opt_text(2)?.map(|id| ObjectId::parse(id).ok_or_else(|| damaged(id))).transpose()
}

/// A row of pages: its unit and generation, as they are stored.
pub(super) type PagePlace = (i64, i64);
/// Before the first row of pages.
pub(super) const FIRST_PAGE: PagePlace = (-1, -1);

/// The next step of removing a content that no row has, whose pages up to a row are gone. Answers up to which they are
/// then.
pub(super) async fn remove_content(
    ticket: &Ticket,
    home: &Home,
    content: i64,
    after: PagePlace,
    used: &Used,
) -> Result<(Removal, PagePlace), engine::Error> {
    let rows = read(ticket, &extents::read_lists(home, content, (-1, -1))).await?;
    let (entries, last) = extents::listed(&rows)?;
    let Some(last) = last else {
        return remove_pages(ticket, home, content, after).await;
    };
    let (mut objects, mut steps) = (HashSet::new(), Vec::new());
    for entry in entries {
        match entry.place {
            EntryPlace::Object { object, .. } if !used.objects.contains(&object) => {
                objects.insert(object);
            }
            EntryPlace::Staged { stage, seq } => {
                let key = (stage, entry.id, seq);
                if !used.blocks.contains(&key) && !used.has_stage(stage) {
                    steps.push(remove_block(home, key));
                }
            }
            EntryPlace::Object { .. } => {}
        }
    }
    let rows = Step::new(home, |dialect| texts(dialect).remove_extents.clone());
    steps.push(rows.bind(content).bind(last.0).bind(last.1));
    let objects = objects.into_iter().map(object_id).collect();
    Ok((Removal { objects, steps, has_more: true }, after))
}

/// Pages name no objects, so their rows need not go in one transaction with anything.
async fn remove_pages(
    ticket: &Ticket,
    home: &Home,
    content: i64,
    after: PagePlace,
) -> Result<(Removal, PagePlace), engine::Error> {
    let find = Step::new(home, |dialect| texts(dialect).pages.clone());
    let find = find.bind(content).bind(after.0).bind(after.1).bind(PAGE_ROWS_MAX);
    let rows = read(ticket, &find).await?;
    let mut removal = Removal { objects: Vec::new(), steps: Vec::new(), has_more: false };
    let Some(last) = rows.iter().last() else { return Ok((removal, after)) };
    let last = (last.int(0)?, last.int(1)?);
    let remove = Step::new(home, |dialect| texts(dialect).remove_pages.clone());
    let remove = remove.bind(content).bind(after.0).bind(after.1).bind(last.0).bind(last.1);
    removal.steps.push(remove);
    removal.has_more = true;
    Ok((removal, last))
}

fn remove_block(home: &Home, key: (i64, Box<[u8]>, i64)) -> Step {
    let step = Step::new(home, |dialect| texts(dialect).remove_block.clone());
    step.bind(key.0).bind(key.1.into_vec()).bind(key.2)
}

/// The next step of removing what is left of a stage that the blob no longer has, after a block. Answers the block
/// after which to go on.
pub(super) async fn remove_stage(
    ticket: &Ticket,
    home: &Home,
    stage: i64,
    after: (Vec<u8>, i64),
    used: &Used,
) -> Result<(Removal, (Vec<u8>, i64)), engine::Error> {
    let rows = read(ticket, &blocks_after(home, stage, &after)).await?;
    let has_more = rows.len() == BLOCK_ROWS_MAX as usize;
    let (mut removal, mut after) = (Removal { objects: Vec::new(), steps: Vec::new(), has_more }, after);
    for row in &rows {
        let (id, seq) = (row.blob(0)?, row.int(1)?);
        after = (id.to_vec(), seq);
        let object = object_of(row)?;
        // A block in an object is listed by its object alone: the row may go, the object stays while it is used.
        let is_used = match &object {
            Some(object) => used.objects.contains(&object_number(object)),
            None => used.blocks.contains(&(stage, id.into(), seq)),
        };
        if object.is_some() || !is_used {
            removal.steps.push(remove_block(home, (stage, id.into(), seq)));
        }
        removal.objects.extend(object.filter(|_| !is_used));
    }
    Ok((removal, after))
}

async fn read(ticket: &Ticket, step: &Step) -> Result<Rows, engine::Error> {
    ticket.read(step.statement(ticket.dialect())).await
}
