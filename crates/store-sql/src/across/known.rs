//! What is known of questions across shards that were asked before: their plans, and what their rows are like.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use polyshard_map::ShardId;
use polyshard_sql::{GivenColumn, Plan, Shape, SqlError, Statement, quoted};

use uuid::Uuid;

use super::columns::Kind;
use super::sort_key::Form;
use crate::cache::{Basis, Kept};

/// Plans kept in each half of each part of the cache: a few thousand in all, of some kilobytes each.
const PLANS_MAX: usize = 64;
/// Lessons kept likewise: those that differ in their values alone share one.
const LESSONS_MAX: usize = 128;
/// A question that was asked so often is kept prepared: others would only take the place of those.
const USES_MIN: u32 = 4;
/// Rows of all shards together that are expected to be few the next time too.
const FEW_ROWS: u64 = 500;
/// How often a question is not tried as a small one after it was found to be large.
const SKIPPED: u32 = 64;

/// A question that was planned.
pub(crate) struct Known {
    basis: Basis,
    pub plan: Plan,
    pub lesson: Arc<Lesson>,
    uses: AtomicU32,
    /// What the client is told of its columns, if its answer can be put together here.
    pub shown: ArcSwapOption<Bytes>,
    /// Its number on the shards' sessions, that of its combine step, and that of its sorted rows.
    ids: [u64; 3],
}

/// What is known of the rows that shards have for a question, whatever its values.
pub(crate) struct Lesson {
    basis: Basis,
    columns: ArcSwapOption<Vec<Learnt>>,
    /// How many rows there were when they were counted last.
    rows: AtomicU64,
    /// How often it is still to be taken for a large one.
    skipped: AtomicU32,
    /// What its keys are like, if its rows come sorted.
    keys: ArcSwapOption<Keys>,
}

/// What is known of the keys by which rows come sorted.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// How they are compared here; nothing if they cannot be.
    pub forms: Option<Arc<Vec<Form>>>,
    /// The databases that have texts among them in the order of their bytes: each has a collation of its own.
    pub by_bytes: BTreeSet<Database>,
}

/// A shard, and the database that it is now.
pub(crate) type Database = (ShardId, Uuid);

/// A column of the rows that shards have for a question.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub given: GivenColumn,
    pub kind: Kind,
}

/// A question with its values.
pub(crate) struct Question<'q> {
    pub select: &'q Statement,
    pub literals: &'q [String],
}

/// What a plan is kept by: its text, and its literals.
type PlanKey = (Arc<str>, Arc<[String]>);

/// Everything that is kept.
pub(crate) struct Questions {
    plans: Kept<PlanKey, Arc<Known>>,
    lessons: Kept<Arc<str>, Arc<Lesson>>,
    /// Whether ranges were being moved when this was looked at last.
    moving: AtomicBool,
    /// The numbers of what is asked with every question: its beginning, the ranges in motion, its end.
    pub constant: [u64; 3],
    /// The last number that a prepared statement has.
    numbers: Arc<AtomicU64>,
}

impl Questions {
    /// Prepared statements are numbered from there on.
    pub fn new(numbers: Arc<AtomicU64>) -> Questions {
        let constant = [(); 3].map(|()| numbers.fetch_add(1, Ordering::Relaxed));
        let (plans, lessons) = (Kept::new(PLANS_MAX), Kept::new(LESSONS_MAX));
        Questions { plans, lessons, moving: AtomicBool::new(false), constant, numbers }
    }

    /// The plan of a question on this basis, made if need be.
    pub fn plan(
        &self,
        question: &Question<'_>,
        basis: Basis,
        make: impl FnOnce() -> Result<Plan, SqlError>,
    ) -> Result<Arc<Known>, SqlError> {
        let key = (question.select.text().clone(), Arc::from(question.literals));
        if let Some(known) = self.plans.get(&key)
            && known.basis.is(&basis)
        {
            return Ok(known);
        }
        let plan = make()?;
        let lesson = self.lesson(&plan, &basis);
        let ids = [(); 3].map(|()| self.numbers.fetch_add(1, Ordering::Relaxed));
        let (uses, shown) = (AtomicU32::new(0), ArcSwapOption::empty());
        let known = Arc::new(Known { basis, plan, lesson, uses, shown, ids });
        self.plans.put(key, known.clone());
        Ok(known)
    }

    /// What is known of plans that differ in their literals alone.
    fn lesson(&self, plan: &Plan, basis: &Basis) -> Arc<Lesson> {
        let fragments = plan.fragments.iter().map(|fragment| fragment.sql.as_str());
        let mut key = String::new();
        for text in fragments.chain([plan.combine.as_str()]) {
            match Shape::of(text) {
                Some(shape) => key.push_str(shape.text()),
                None => key.push_str(text),
            }
            key.push('\0');
        }
        let key = Arc::from(key);
        if let Some(lesson) = self.lessons.get(&key)
            && lesson.basis.is(basis)
        {
            return lesson;
        }
        let lesson = Arc::new(Lesson::new(basis.clone()));
        self.lessons.put(key, lesson.clone());
        lesson
    }

    /// Whether ranges are being moved, as far as is known: then a question begins by asking which.
    pub fn is_moving(&self) -> bool {
        self.moving.load(Ordering::Relaxed)
    }

    pub fn note_moving(&self, moving: bool) {
        self.moving.store(moving, Ordering::Relaxed);
    }
}

impl Known {
    /// Of a plan that is good for once.
    pub fn passing(basis: Basis, plan: Plan) -> Known {
        let lesson = Arc::new(Lesson::new(basis.clone()));
        let uses = AtomicU32::new(u32::MAX);
        Known { basis, plan, lesson, uses, shown: ArcSwapOption::empty(), ids: [0; 3] }
    }

    /// The numbers of its fragment, its combine step and its sorted rows as prepared statements, if it is worth
    /// preparing.
    pub fn prepared(&self) -> Option<[u64; 3]> {
        match self.uses.load(Ordering::Relaxed) {
            USES_MIN => Some(self.ids),
            uses if uses < USES_MIN => {
                self.uses.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }

    /// Has it sent as a text from now on: a server says that it is not as it was prepared.
    pub fn unprepare(&self) {
        self.uses.store(u32::MAX, Ordering::Relaxed);
    }

    /// The columns of its rows, if these are expected to be so few that they need no temporary table.
    pub fn few_rows(&self, rows_max: u64) -> Option<Arc<Vec<Learnt>>> {
        let quick = self.plan.quick.as_ref()?;
        let few = match quick.rows_max() {
            Some(rows) => rows <= rows_max,
            None => {
                self.lesson.rows.load(Ordering::Relaxed) <= FEW_ROWS
                    && self.lesson.skipped.load(Ordering::Relaxed) == 0
            }
        };
        if few { self.lesson.columns.load_full() } else { None }
    }
}

impl Lesson {
    fn new(basis: Basis) -> Lesson {
        Lesson {
            basis,
            columns: ArcSwapOption::empty(),
            rows: AtomicU64::new(u64::MAX),
            skipped: AtomicU32::new(0),
            keys: ArcSwapOption::empty(),
        }
    }

    /// What its keys are like, if that is known.
    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.load_full()
    }

    pub fn note_keys(&self, keys: Keys) -> Arc<Keys> {
        let keys = Arc::new(keys);
        self.keys.store(Some(keys.clone()));
        keys
    }

    /// Notes that its rows cannot be merged.
    pub fn note_unlike(&self) {
        self.note_keys(Keys::default());
    }

    /// Forgets the keys: they are not what they were.
    pub fn forget_keys(&self) {
        self.keys.store(None);
    }

    /// What there is to ask of the temporary table that has the rows.
    pub fn question(&self, temp: &str) -> String {
        format!(
            "SELECT a.attname, pg_catalog.format_type(a.atttypid, -1), \
             pg_catalog.format_type(a.atttypid, a.atttypmod), \
             pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname), \
             a.atttypid, a.atttypmod, t.typtype = 'b' AND t.typcategory <> 'A' AND t.typdelim = ',' \
             FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
             LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation \
             LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace \
             WHERE a.attrelid = 'pg_temp.{}'::pg_catalog.regclass AND a.attnum > 0 ORDER BY a.attnum",
            quoted(temp)
        )
    }

    /// Whether its columns are not known yet.
    pub fn is_open(&self) -> bool {
        self.columns.load().is_none()
    }

    /// Takes in the answer to [`Lesson::question`]; nothing is learnt of rows that cannot be given as arrays.
    pub fn learn(&self, answer: &[Vec<Option<String>>]) {
        let columns: Option<Vec<Learnt>> = answer.iter().map(|row| learnt(row)).collect();
        self.columns.store(columns.filter(|columns| !columns.is_empty()).map(Arc::new));
    }

    /// Forgets the columns: they are not what they were.
    pub fn forget(&self) {
        self.columns.store(None);
    }

    /// Notes how many rows there were.
    pub fn count(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        let less = |skipped: u32| skipped.checked_sub(1);
        // Nothing to take away is no failure.
        let _ = self.skipped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes that there were too many.
    pub fn too_many(&self) {
        self.skipped.store(SKIPPED, Ordering::Relaxed);
    }
}

fn learnt(row: &[Option<String>]) -> Option<Learnt> {
    let [name, element, written, collation, type_oid, type_mod, plain] = row else { return None };
    let kind =
        Kind { type_oid: type_oid.as_ref()?.parse().ok()?, type_mod: type_mod.as_ref()?.parse().ok()? };
    if plain.as_deref() != Some("t") || !kind.is_everywhere() {
        return None;
    }
    let given = GivenColumn {
        name: name.clone()?,
        element: element.clone()?,
        written: written.clone()?,
        collation: collation.clone(),
    };
    Some(Learnt { given, kind })
}
