//! Compares the shards: their schemas object by object, and the rows of reference tables by checksum.

use std::collections::BTreeMap;
use std::time::Duration;

use polyshard_engine::{self as engine, Dialect, Row, Statement, Transaction};
use polyshard_map::{Key, ShardId, hash_extended};
use polyshard_sql::{Placement, Schema};

use crate::JournalError;
use crate::introspect;
use crate::journal::{Inner, Journal};
use crate::quote::table_name;
use crate::tables::{self, Lock};

/// How often shards are read again because they were not at one position, and the pause between.
const LOOKS: (u32, Duration) = (20, Duration::from_millis(50));
/// Rows of an SQLite table read at once for its checksum.
const PAGE_ROWS: usize = 500;

/// What a comparison of the shards found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The position that all were compared at.
    pub position: u64,
    /// The shard that the others were compared with; none if there is no shard.
    pub like: Option<ShardId>,
    /// How many shards were compared.
    pub shards: usize,
    /// How many objects and reference tables were compared.
    pub objects: usize,
    /// What is not alike.
    pub differences: Vec<Difference>,
    /// Shards that could not be asked, and why.
    pub away: Vec<(ShardId, String)>,
}

/// Something that a shard has otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The shard.
    pub shard: ShardId,
    /// The object: `table public.t column a`, `rows of public.country`.
    pub object: String,
    /// What the shard has; none if it lacks it.
    pub found: Option<String>,
    /// What the other has; none if it lacks it.
    pub expected: Option<String>,
}

/// One shard as it was read.
pub(crate) struct Seen {
    pub(crate) shard: ShardId,
    dialect: Dialect,
    position: u64,
    /// What it has, by name; of reference tables a checksum of their rows.
    pub(crate) objects: BTreeMap<String, String>,
}

impl Journal {
    /// Compares all shards that serve.
    pub async fn check(&self) -> Result<Checked, JournalError> {
        let schema = self.schema().await?;
        let (mut seen, mut away) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS.0 {
            (seen, away) = (Vec::new(), Vec::new());
            for id in self.inner.serving() {
                match self.inner.look_at(&id, &schema).await {
                    Ok(one) => seen.push(one),
                    Err(error) => away.push((id, error.to_string())),
                }
            }
            if seen.windows(2).all(|pair| pair[0].position == pair[1].position) {
                let mut checked = compare(seen, away);
                self.inner.add_left(&mut checked).await;
                return Ok(checked);
            }
            tokio::time::sleep(LOOKS.1).await;
        }
        // They do not come to one position: those that lag are the difference.
        let last = seen.iter().map(|one| one.position).max().unwrap_or(0);
        let (same, behind): (Vec<Seen>, Vec<Seen>) = seen.into_iter().partition(|one| one.position == last);
        away.extend(behind.into_iter().map(|one| {
            let why = format!("it is at entry {} of the journal, and others are at {last}", one.position);
            (one.shard, why)
        }));
        let mut checked = compare(same, away);
        self.inner.add_left(&mut checked).await;
        Ok(checked)
    }
}

fn compare(seen: Vec<Seen>, away: Vec<(ShardId, String)>) -> Checked {
    let (position, shards) = (seen.first().map_or(0, |one| one.position), seen.len());
    let mut like = None;
    let mut differences = Vec::new();
    let mut objects = 0;
    // Each engine describes tables and writes rows in its own way.
    let (files, servers): (Vec<Seen>, Vec<Seen>) =
        seen.into_iter().partition(|one| one.dialect == Dialect::Sqlite);
    for mut alike in [servers, files] {
        let Some(at) = standard(&alike) else { continue };
        let standard = alike.remove(at);
        objects = objects.max(standard.objects.len());
        compare_alike(&standard, alike, &mut differences);
        like.get_or_insert(standard.shard);
    }
    Checked { position, like, shards, objects, differences, away }
}

/// The first of those that most are like: one that differs from all others is the difference.
fn standard(seen: &[Seen]) -> Option<usize> {
    let like = |at: &usize| seen.iter().filter(|other| other.objects == seen[*at].objects).count();
    (0..seen.len()).max_by_key(|at| (like(at), std::cmp::Reverse(*at)))
}

/// Compares shards of one engine with one of them.
fn compare_alike(first: &Seen, others: Vec<Seen>, differences: &mut Vec<Difference>) {
    for other in others {
        let names = first
            .objects
            .keys()
            .chain(other.objects.keys().filter(|name| !first.objects.contains_key(*name)));
        for name in names {
            let (expected, found) = (first.objects.get(name), other.objects.get(name));
            if expected != found {
                differences.push(Difference {
                    shard: other.shard.clone(),
                    object: name.clone(),
                    found: found.cloned(),
                    expected: expected.cloned(),
                });
            }
        }
    }
}

impl Inner {
    /// Adds what shards still take for tables.
    async fn add_left(&self, checked: &mut Checked) {
        for id in self.serving() {
            if checked.away.iter().any(|(away, _)| *away == id) {
                continue;
            }
            match self.left_differences(&id).await {
                Ok(left) => checked.differences.extend(left),
                Err(error) => checked.away.push((id, error.to_string())),
            }
        }
    }

    pub(crate) async fn look_at(&self, id: &ShardId, schema: &Schema) -> Result<Seen, JournalError> {
        self.catch_up(id).await?;
        let shard = self.shard(id).await?;
        let dialect = shard.dialect();
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tx = shard.control_snapshot().await.map_err(|error| JournalError::on(id, error))?;
        if dialect == Dialect::Postgres {
            tx.run_all(introspect::preamble()).await.map_err(fail)?;
        }
        let rows = tx.run(tables::select_applied(dialect, Lock::No)).await.map_err(fail)?;
        let position = rows.first().map(|row| row.int(0)).transpose().map_err(fail)?.unwrap_or(0) as u64;
        let mut objects = BTreeMap::new();
        for sql in descriptions(dialect) {
            for row in tx.run(Statement::new(sql)).await.map_err(fail)?.iter() {
                let text = |at| row.opt_text(at).map_err(fail);
                let name = text(0)?.unwrap_or_default().to_owned();
                objects.insert(name, text(1)?.unwrap_or_default().to_owned());
            }
        }
        for table in schema.tables.values() {
            if !matches!(table.placement, Placement::Reference { .. }) {
                continue;
            }
            let object = match dialect {
                Dialect::Postgres => format!("table {}.{}", table.name.schema, table.name.name),
                Dialect::Sqlite => format!("table {}", polyshard_sql_on_sqlite::file_name(&table.name)),
            };
            if objects.contains_key(&object) {
                let name = table_name(dialect, &table.name);
                let sum = checksum(&mut tx, dialect, &name).await.map_err(fail)?;
                objects.insert(format!("rows of {}", table.name), sum);
            }
        }
        Ok(Seen { shard: id.clone(), dialect, position, objects })
    }
}

/// A number of the rows that does not depend on their order.
async fn checksum(tx: &mut Transaction, dialect: Dialect, table: &str) -> Result<String, engine::Error> {
    if dialect == Dialect::Postgres {
        let sql = format!(
            "SELECT count(*) || ' rows, checksum ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) \
             FROM {table} AS t"
        );
        return tx.run(Statement::new(sql)).await?.one()?.text(0).map(str::to_owned);
    }
    let (mut count, mut sum) = (0, 0_i128);
    loop {
        let sql = format!("SELECT * FROM {table} LIMIT {PAGE_ROWS} OFFSET {count}");
        let rows = tx.run(Statement::new(sql)).await?;
        sum += rows.iter().map(row_hash).sum::<i128>();
        count += rows.len();
        if rows.len() < PAGE_ROWS {
            return Ok(format!("{count} rows, checksum {sum}"));
        }
    }
}

fn row_hash(row: &Row) -> i128 {
    hash_extended(&Key::Text(format!("{:?}", row.values())), 0).into()
}

/// Queries that give the name and the description of every object of the users'.
fn descriptions(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => vec![
            "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'polyshard%' \
             AND name NOT LIKE 'sqlite%'"
                .to_owned(),
            "SELECT 'table ' || table_name || ' column ' || name, type_name || ' ' || not_null || ' ' || generated \
             || ' ' || coalesce(default_text, '') FROM polyshard_sql_column"
                .to_owned(),
            "SELECT 'table ' || table_name || ' constraint ' || name, definition \
             FROM polyshard_sql_constraint"
                .to_owned(),
            "SELECT 'view ' || name, definition FROM polyshard_sql_view".to_owned(),
            "SELECT 'schema ' || name, '' FROM polyshard_sql_schema".to_owned(),
            "SELECT 'type ' || name, labels FROM polyshard_sql_enum".to_owned(),
        ],
        Dialect::Postgres => postgres_descriptions(),
    }
}

fn postgres_descriptions() -> Vec<String> {
    let users = introspect::USERS;
    let of = |sql: &str| sql.replace("{users}", users);
    vec![
        "SELECT 'database setting ' || name, setting FROM (VALUES \
         ('encoding', (SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database())), \
         ('collation', (SELECT datcollate || ' ' || coalesce(datcollversion, '') FROM pg_database \
          WHERE datname = current_database())), \
         ('character type', (SELECT datctype FROM pg_database WHERE datname = current_database()))) AS s(name, setting)"
            .to_owned(),
        "SELECT 'extension ' || extname, extversion FROM pg_extension".to_owned(),
        of("SELECT 'schema ' || n.nspname, '' FROM pg_namespace n WHERE {users}"),
        of("SELECT 'table ' || n.nspname || '.' || c.relname, c.relkind::text || CASE WHEN c.relrowsecurity THEN \
            ' row level security' ELSE '' END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
            WHERE c.relkind IN ('r', 'p', 'f', 'S') AND c.relpersistence <> 't' AND {users}"),
        of("SELECT 'table ' || n.nspname || '.' || c.relname || ' column ' || a.attname, \
            format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END \
            || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') || CASE WHEN a.attidentity <> '' \
            THEN ' identity ' || a.attidentity::text ELSE '' END \
            || CASE WHEN a.attgenerated <> '' THEN ' generated' ELSE '' END \
            || coalesce(' collate ' || l.collname, '') FROM pg_attribute a \
            JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
            LEFT JOIN pg_collation l ON l.oid = a.attcollation AND l.collname <> 'default' \
            WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' \
            AND {users}"),
        of("SELECT 'table ' || n.nspname || '.' || c.relname || ' constraint ' || x.conname, \
            pg_get_constraintdef(x.oid) || CASE WHEN x.convalidated THEN '' ELSE ' not valid' END FROM pg_constraint x \
            JOIN pg_class c ON c.oid = x.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {users}"),
        of("SELECT 'index ' || n.nspname || '.' || c.relname, pg_get_indexdef(c.oid) || CASE WHEN i.indisvalid THEN '' \
            ELSE ' invalid' END FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
            JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {users}"),
        of("SELECT 'view ' || n.nspname || '.' || c.relname, pg_get_viewdef(c.oid) FROM pg_class c \
            JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('v', 'm') AND c.relpersistence <> 't' \
            AND {users}"),
        of("SELECT 'function ' || n.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) \
            || ')', CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE p.prokind::text END \
            FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {users} AND NOT EXISTS \
            (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')"),
        of("SELECT 'trigger ' || n.nspname || '.' || c.relname || '.' || t.tgname, pg_get_triggerdef(t.oid) || ' ' \
            || t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
            JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid \
            WHERE NOT t.tgisinternal AND p.pronamespace <> 'polyshard'::regnamespace AND {users}"),
        of("SELECT 'type ' || n.nspname || '.' || t.typname, CASE t.typtype WHEN 'e' THEN 'enum ' || coalesce((SELECT \
            string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), '') \
            WHEN 'd' THEN 'domain ' || format_type(t.typbasetype, t.typtypmod) \
            || coalesce(' default ' || t.typdefault, '') ELSE t.typtype::text END FROM pg_type t \
            JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype IN ('e', 'd', 'r') AND {users} \
            AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid \
            AND d.deptype = 'e')"),
        of("SELECT 'policy ' || n.nspname || '.' || c.relname || '.' || y.polname, y.polcmd::text || ' ' || \
            coalesce(pg_get_expr(y.polqual, y.polrelid), '') || ' check ' || \
            coalesce(pg_get_expr(y.polwithcheck, y.polrelid), '') FROM pg_policy y \
            JOIN pg_class c ON c.oid = y.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {users}"),
    ]
}
