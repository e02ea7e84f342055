//! Statements that were seen before: parsed, analysed and described once for all sessions.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use polyshard_map::ShardId;
use polyshard_sql::{Analysis, Lane, Shape, SqlError, Statement, TypeOid};
use uuid::Uuid;

use crate::across::Questions;
use crate::reply::{self, Field};

/// Statements kept in each half of each part.
const KEPT_MAX: usize = 512;
/// A statement longer than this is not kept: bulk inserts are seldom sent twice.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// A shape is prepared when it has been used so often: what is seen once or twice is not worth a question to a shard.
const POINT_USES_MIN: u32 = 4;
/// Parts with a lock each, so that threads seldom meet.
const PARTS: usize = 16;

/// A bounded map; what was used longest ago goes first, roughly.
pub(crate) struct Kept<K, V> {
    parts: [Mutex<Halves<K, V>>; PARTS],
    hasher: RandomState,
    /// Entries kept in each half of each part; the halves change place when one is full.
    half_max: usize,
}

struct Halves<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq + Clone, V: Clone> Kept<K, V> {
    pub fn new(half_max: usize) -> Kept<K, V> {
        let part = |_| Mutex::new(Halves { young: HashMap::new(), old: HashMap::new() });
        Kept { parts: std::array::from_fn(part), hasher: RandomState::new(), half_max }
    }

    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> &Mutex<Halves<K, V>> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let mut part = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = part.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = part.old.remove_entry(key)?;
        part.put(key, value.clone(), self.half_max);
        Some(value)
    }

    pub fn put(&self, key: K, value: V) {
        let mut part = self.part(&key).lock().unwrap_or_else(PoisonError::into_inner);
        part.put(key, value, self.half_max);
    }
}

impl<K: Hash + Eq, V> Halves<K, V> {
    fn put(&mut self, key: K, value: V, half_max: usize) {
        if self.young.len() >= half_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

/// What a prepared statement is kept by: its text, and its parameters' types.
type PreparedKey = (Arc<str>, Arc<[u32]>);

/// What is known of a shape on a basis; no lane if its statements are looked at one by one.
pub(crate) struct KnownLane {
    pub basis: Basis,
    pub lane: Option<Lane>,
    /// How often it was used, up to [`POINT_USES_MIN`]; more if it is not to be prepared.
    uses: AtomicU32,
    /// It as a prepared statement, with the types of the literals that came last.
    point: ArcSwapOption<Prepared>,
}

impl KnownLane {
    fn new(basis: Basis, lane: Option<Lane>) -> KnownLane {
        KnownLane { basis, lane, uses: AtomicU32::new(0), point: ArcSwapOption::empty() }
    }

    /// The prepared statement by which a row is read that such a text names by its primary key; nothing if it is to be
    /// sent as it is.
    pub fn point(&self, shape: &Shape<'_>, cache: &Cache) -> Option<Arc<Prepared>> {
        self.lane.as_ref().filter(|lane| lane.is_point_read())?;
        let uses = self.uses.load(Ordering::Relaxed);
        if uses != POINT_USES_MIN {
            if uses < POINT_USES_MIN {
                self.uses.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        let known = self.point.load();
        if let Some(known) = known.as_ref().filter(|known| shape.has_types(&known.types)) {
            return Some(known.clone());
        }
        let prepared = cache.prepared(shape.text(), &shape.types()?).ok()?;
        self.point.store(Some(prepared.clone()));
        Some(prepared)
    }

    /// Has its statements sent as they are from now on.
    pub fn leave_as_it_is(&self) {
        self.uses.store(u32::MAX, Ordering::Relaxed);
    }
}

/// All that is kept of statements.
pub(crate) struct Cache {
    queries: Kept<Arc<str>, Arc<Query>>,
    prepared: Kept<PreparedKey, Arc<Prepared>>,
    lanes: Kept<Box<str>, Arc<KnownLane>>,
    /// What was asked of several shards.
    pub questions: Questions,
    ids: Arc<AtomicU64>,
}

/// What a schema and a search path make of a text.
#[derive(Clone)]
pub(crate) struct Basis {
    /// The schema's position.
    pub position: u64,
    /// The number of a transaction that has temporary tables; 0 for all others.
    pub apart: u64,
    /// Where names are looked up.
    pub search_path: Arc<[String]>,
    /// Whether writes must name their key.
    pub strict: bool,
    /// Whether it is for a session that speaks to SQLite files alone.
    pub embedded: bool,
    /// The shard that says what types and tables are called: another one has other numbers.
    pub home: Option<Uuid>,
}

impl Basis {
    pub fn is(&self, other: &Basis) -> bool {
        self.home == other.home && self.is_but_home(other)
    }

    fn is_but_home(&self, other: &Basis) -> bool {
        self.position == other.position
            && self.apart == other.apart
            && self.strict == other.strict
            && self.embedded == other.embedded
            && (Arc::ptr_eq(&self.search_path, &other.search_path) || self.search_path == other.search_path)
    }
}

/// A text of the simple protocol, cut into statements.
pub(crate) struct Query {
    pub statements: Vec<Analysed>,
}

/// A statement, with its analysis once that is known.
pub(crate) struct Analysed {
    pub statement: Arc<Statement>,
    /// Why it is refused whatever it concerns.
    pub refusal: Option<SqlError>,
    known: ArcSwapOption<(Basis, Result<Arc<Analysis>, SqlError>)>,
    lite: ArcSwapOption<Translated>,
}

/// A statement in SQLite's words, and what it was translated under.
struct Translated {
    basis: Basis,
    settings: Arc<polyshard_sql_on_sqlite::Settings>,
    types: Box<[u32]>,
    prepared: Arc<polyshard_sql_on_sqlite::Prepared>,
}

impl Analysed {
    pub fn new(statement: Arc<Statement>) -> Analysed {
        let refusal = crate::refuse::refusal(&statement);
        Analysed { statement, refusal, known: ArcSwapOption::empty(), lite: ArcSwapOption::empty() }
    }

    /// Its analysis on this basis, made if need be.
    pub fn analysis(
        &self,
        basis: &Basis,
        make: impl FnOnce(&Statement) -> Result<Analysis, SqlError>,
    ) -> Result<Arc<Analysis>, SqlError> {
        if let Some(known) = &*self.known.load()
            && known.0.is(basis)
        {
            return known.1.clone();
        }
        let made = make(&self.statement).map(Arc::new);
        self.known.store(Some(Arc::new((basis.clone(), made.clone()))));
        made
    }
}

impl Analysed {
    /// Its analysis on this basis, if it was made and found nothing to refuse.
    pub fn known(&self, basis: &Basis) -> Option<Arc<Analysis>> {
        let known = self.known.load();
        known.as_ref().filter(|known| known.0.is(basis)).and_then(|known| known.1.clone().ok())
    }

    /// It in SQLite's words, translated if need be.
    pub fn lite(
        &self,
        basis: &Basis,
        settings: &Arc<polyshard_sql_on_sqlite::Settings>,
        types: &[u32],
        make: impl FnOnce(&Statement) -> Result<polyshard_sql_on_sqlite::Prepared, SqlError>,
    ) -> Result<Arc<polyshard_sql_on_sqlite::Prepared>, SqlError> {
        if let Some(known) = &*self.lite.load()
            && known.basis.is(basis)
            && (Arc::ptr_eq(&known.settings, settings) || known.settings == *settings)
            && *known.types == *types
        {
            return Ok(known.prepared.clone());
        }
        let prepared = Arc::new(make(&self.statement)?);
        self.lite.store(Some(Arc::new(Translated {
            basis: basis.clone(),
            settings: settings.clone(),
            types: types.into(),
            prepared: prepared.clone(),
        })));
        Ok(prepared)
    }
}

/// A statement of the extended protocol.
pub(crate) struct Prepared {
    pub text: Arc<str>,
    /// What there is to run; none for an empty text.
    pub analysed: Option<Analysed>,
    /// The parameters' types as the client gave them; 0 for unknown.
    pub types: Arc<[u32]>,
    /// If it is another one with literals as its values.
    pub inline: Option<Inline>,
    described: ArcSwapOption<(Basis, Arc<Description>)>,
    way: ArcSwapOption<Way>,
}

/// All that is known of a prepared statement that can go the short way, as long as nothing has changed.
pub(crate) struct Way {
    /// The number of the view that says which shards there are.
    pub seq: u64,
    pub basis: Basis,
    pub description: Arc<Description>,
    /// What was found when it was looked at, if it was.
    pub analysis: Option<Arc<Analysis>>,
    /// Whether it may go there by what was found.
    pub fits: bool,
    /// Whether it may change something.
    pub writes: bool,
    /// What it is counted as.
    pub word: &'static str,
    pub columns: Columns,
}

/// What shards have said of a statement's columns, and what clients are told instead.
#[derive(Default)]
pub(crate) struct Columns(Mutex<BTreeMap<ShardId, (Bytes, Bytes)>>);

impl Columns {
    /// What clients are told of columns of which the shard says this.
    pub fn told(&self, shard: &ShardId, said: &[u8]) -> Option<Bytes> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(shard).filter(|(known, _)| *known == said).map(|(_, told)| told.clone())
    }

    /// Notes it.
    pub fn tell(&self, shard: ShardId, said: Bytes, told: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, (said, told));
    }
}

/// Literals that are the values of a prepared statement.
pub(crate) struct Inline {
    pub of: Arc<Prepared>,
    /// As a Bind has them: how many, and each with its length.
    pub values: Bytes,
}

/// What a server says of a prepared statement.
#[derive(Debug)]
pub(crate) struct Description {
    /// Names the statement on the sessions of shards: another one after every change of the schema.
    pub id: u64,
    /// Its parameters' types.
    pub parameters: Vec<TypeOid>,
    /// The whole message that tells them.
    pub parameter_message: Bytes,
    /// The whole message that tells its columns, or that it has none.
    pub row_message: Bytes,
    /// Whether parameters or columns are of types whose ids differ from shard to shard.
    pub own_types: bool,
}

impl Description {
    /// Of a statement that the door carries out itself.
    pub fn of_columns(columns: &[Field], parameters: &[TypeOid]) -> Description {
        let (mut parameter_message, mut row_message) = (BytesMut::new(), BytesMut::new());
        reply::parameter_description(&mut parameter_message, parameters);
        if columns.is_empty() {
            row_message.extend_from_slice(reply::NO_DATA);
        } else {
            reply::row_description(&mut row_message, columns, |_| false);
        }
        Description {
            id: 0,
            parameters: parameters.to_vec(),
            parameter_message: parameter_message.freeze(),
            row_message: row_message.freeze(),
            own_types: false,
        }
    }
}

impl Prepared {
    /// Of a text with literals in it, which are values of this one.
    pub fn inline(text: &str, of: Arc<Prepared>, values: Bytes) -> Prepared {
        Prepared {
            text: Arc::from(text),
            analysed: None,
            types: Arc::from([]),
            inline: Some(Inline { of, values }),
            described: ArcSwapOption::empty(),
            way: ArcSwapOption::empty(),
        }
    }

    /// What is known of it on this basis.
    pub fn description(&self, basis: &Basis) -> Option<Arc<Description>> {
        let known = self.described.load();
        known.as_ref().filter(|known| known.0.is(basis)).map(|known| known.1.clone())
    }

    /// What was known of it on this basis, whichever shard gave the numbers.
    pub fn description_before(&self, basis: &Basis) -> Option<Arc<Description>> {
        let known = self.described.load();
        known.as_ref().filter(|known| known.0.is_but_home(basis)).map(|known| known.1.clone())
    }

    /// Notes what a server says of it.
    pub fn describe(&self, basis: Basis, description: Arc<Description>) {
        self.described.store(Some(Arc::new((basis, description))));
    }

    /// How it can go the short way, or could before something changed.
    pub fn way(&self) -> Option<Arc<Way>> {
        self.way.load_full()
    }

    /// Notes it.
    pub fn note_way(&self, way: Arc<Way>) {
        self.way.store(Some(way));
    }

    /// Forgets it: a server says that it is not so any more.
    pub fn forget(&self) {
        if let Some(inline) = &self.inline {
            inline.of.forget();
        }
        self.described.store(None);
        self.way.store(None);
    }
}

impl Cache {
    pub fn new() -> Cache {
        let ids = Arc::new(AtomicU64::new(1));
        Cache {
            queries: Kept::new(KEPT_MAX),
            prepared: Kept::new(KEPT_MAX),
            lanes: Kept::new(KEPT_MAX),
            questions: Questions::new(ids.clone()),
            ids,
        }
    }

    /// A number that no other prepared statement has.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The position of a schema that only one transaction has: no other has it, ever.
    pub fn passing_position(&self) -> u64 {
        1 << 63 | self.next_id()
    }

    /// What is known of a shape on this basis, made if need be.
    pub fn lane(
        &self,
        shape: &Shape<'_>,
        basis: Basis,
        make: impl FnOnce(&Shape<'_>, &Basis) -> Option<Lane>,
    ) -> Arc<KnownLane> {
        if let Some(known) = self.lanes.get(shape.text())
            && known.basis.is(&basis)
        {
            return known;
        }
        let lane = make(shape, &basis);
        let known = Arc::new(KnownLane::new(basis, lane));
        self.lanes.put(shape.text().into(), known.clone());
        known
    }

    /// A text of the simple protocol.
    pub fn query(&self, text: &str) -> Result<Arc<Query>, SqlError> {
        if let Some(query) = self.queries.get(text) {
            return Ok(query);
        }
        let statements = polyshard_sql::statements(text)?;
        let query = Arc::new(Query { statements: statements.into_iter().map(Analysed::new).collect() });
        if text.len() <= TEXT_BYTES_MAX {
            self.queries.put(Arc::from(text), query.clone());
        }
        Ok(query)
    }

    /// A text of the extended protocol with its parameters' types.
    pub fn prepared(&self, text: &str, types: &[u32]) -> Result<Arc<Prepared>, SqlError> {
        let key = (Arc::<str>::from(text), Arc::<[u32]>::from(types));
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(prepared);
        }
        let mut statements = polyshard_sql::statements(text)?;
        if statements.len() > 1 {
            return Err(SqlError::new(
                polyshard_sql::SqlState::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let prepared = Arc::new(Prepared {
            text: key.0.clone(),
            analysed: statements.pop().map(Analysed::new),
            types: key.1.clone(),
            inline: None,
            described: ArcSwapOption::empty(),
            way: ArcSwapOption::empty(),
        });
        if text.len() <= TEXT_BYTES_MAX {
            self.prepared.put(key, prepared.clone());
        }
        Ok(prepared)
    }
}
