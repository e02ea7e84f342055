//! Whether the client may do what it asks: judged once it is known which tables and keys a statement is about (E7).
//!
//! The user of the configuration has all rights, and nothing is looked at. Of others, every statement is looked at with
//! the rights of that moment, so that what is revoked is so for the next one.

use std::borrow::Cow;
use std::ops::ControlFlow;

use polyshard_map::{Key, MapName};
use polyshard_sql::{
    Analysis, Called, CopyOther, Kind, Placement, Route, Schema, SqlError, SqlState, Statement, Volatility,
    ast,
};
use polyshard_store::rights::{AccessCheck, Missing, Right, Rights, User, Users};

use super::Session;
use crate::STORE;
use crate::reply::state;
use crate::settings;

/// Longest text that is looked at for whether it asks for the user's name alone.
const OWN_NAME_BYTES_MAX: usize = 32;

/// Functions that read tables, files or other databases by what a text says, or change what others see.
const TELLING: [&str; 6] = ["ts_stat", "ts_rewrite", "loread", "lowrite", "setval", "set_config"];
/// The beginnings of the names of others.
const TELLING_PREFIXES: [&str; 9] = [
    "query_to_xml",
    "table_to_xml",
    "cursor_to_xml",
    "schema_to_xml",
    "database_to_xml",
    "dblink",
    "lo_",
    "pg_stat_get",
    "crosstab",
];
/// PostgreSQL's own functions with an effect, or another answer each time, that concern nobody else.
const OWN_AFFAIR: [&str; 6] =
    ["pg_sleep", "pg_sleep_for", "pg_sleep_until", "pg_notify", "pg_backend_pid", "pg_typeof"];
const OWN_AFFAIR_PREFIXES: [&str; 2] = ["pg_advisory_xact", "pg_try_advisory_xact"];
/// Relations of the system's that tell nothing of anybody's rows, beside those that describe tables.
const HARMLESS_RELATIONS: [&str; 25] = [
    "pg_auth_members",
    "pg_database",
    "pg_default_acl",
    "pg_event_trigger",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_partitioned_table",
    "pg_policies",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_roles",
    "pg_rules",
    "pg_sequence",
    "pg_settings",
    "pg_shdescription",
    "pg_statistic_ext",
    "pg_tablespace",
    "pg_timezone_abbrevs",
    "pg_timezone_names",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_user",
];

/// A user that the catalog has: its rights are looked up for every statement.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub name: String,
    /// One who was removed and made again is another.
    pub id: u64,
}

impl Who {
    fn find<'u>(&self, users: &'u Users) -> Option<&'u User> {
        users.user(&self.name).filter(|user| user.id == self.id && user.scram.is_some())
    }

    fn rights<'u>(&self, users: &'u Users) -> Result<&'u Rights, SqlError> {
        let gone = || {
            let message = format!("user {} may not use this door any more", self.name);
            SqlError::new(state::INVALID_AUTHORIZATION, message).hint("Connect as somebody else.")
        };
        self.find(users).map(|user| &user.rights).ok_or_else(gone)
    }
}

/// A refusal in SQL's words.
pub(crate) fn refused(missing: Missing) -> SqlError {
    SqlError::new(state::INSUFFICIENT_PRIVILEGE, missing.message).hint(missing.hint)
}

impl Session {
    /// The name of the user, as the client knows it.
    pub(crate) fn user_name(&self) -> &str {
        self.who.as_ref().map_or(&self.door.login.user, |who| &who.name)
    }

    /// `SELECT current_user` and its like, where they are all that is asked, in words that a shard answers rightly: it
    /// is used under a role of its own.
    pub(super) fn own_name(&self, text: &str) -> Option<String> {
        if text.len() > OWN_NAME_BYTES_MAX || self.embedded || self.under.is_some() {
            return None;
        }
        let (select, asked) = text.trim().trim_end_matches(';').split_once(char::is_whitespace)?;
        let asked = asked.trim().to_ascii_lowercase();
        let is_name = matches!(asked.as_str(), "current_user" | "session_user" | "user" | "current_role");
        if !is_name || !select.eq_ignore_ascii_case("select") {
            return None;
        }
        let (name, column) = (settings::quoted(self.user_name()), settings::quoted_name(&asked));
        Some(format!("SELECT {name}::pg_catalog.name AS {column}"))
    }

    /// Whether statements must be looked at by themselves, because not everything is allowed.
    pub(crate) fn is_limited(&self) -> bool {
        let Some(who) = &self.who else { return false };
        !who.find(&self.door.host.users()).is_some_and(|user| user.rights.are_all(&STORE))
    }

    /// Whether users may be made and changed.
    pub(super) fn is_admin(&self) -> bool {
        let Some(who) = &self.who else { return true };
        who.find(&self.door.host.users()).is_some_and(|user| user.rights.are_admin())
    }

    /// Refuses a setting that would have the shard take the client for another.
    pub(super) fn check_setting(&self, name: &str) -> Result<(), SqlError> {
        if matches!(name, "role" | "session_authorization") && self.is_limited() {
            let message = format!("{} may not become somebody else", self.user_name());
            return Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
                .hint("Connect as the user that is meant."));
        }
        Ok(())
    }

    /// Whether the user may still be here at all: what was opened goes on with the rights that it was opened with.
    pub(crate) fn check_still_there(&self) -> Result<(), SqlError> {
        let Some(who) = &self.who else { return Ok(()) };
        who.rights(&self.door.host.users()).map(drop)
    }

    /// Whether a command that changes how tables are placed may be carried out.
    pub(super) fn check_schema_right(&self) -> Result<(), SqlError> {
        self.check_right(&AccessCheck {
            right: Right::Schema,
            store: &STORE,
            table: None,
            map: None,
            keys: None,
        })
    }

    /// Whether something of any store may be done.
    pub(super) fn check_right(&self, asked: &AccessCheck<'_>) -> Result<(), SqlError> {
        let Some(who) = &self.who else { return Ok(()) };
        who.rights(&self.door.host.users())?.check(asked).map_err(refused)
    }

    /// Whether a statement may be carried out on its way to these places.
    pub(super) fn judge(
        &self,
        statement: &Statement,
        analysis: &Analysis,
        route: &Route,
        schema: &Schema,
    ) -> Result<(), SqlError> {
        let Some(who) = &self.who else { return Ok(()) };
        let users = self.door.host.users();
        let rights = who.rights(&users)?;
        if rights.are_all(&STORE) {
            return Ok(());
        }
        let (temporary, search_path) = (&self.transaction.temporary, &self.search_path);
        Judge { rights, analysis, route, schema, temporary, search_path }.statement(statement)
    }
}

struct Judge<'a> {
    rights: &'a Rights,
    analysis: &'a Analysis,
    route: &'a Route,
    schema: &'a Schema,
    temporary: &'a [String],
    search_path: &'a [String],
}

/// Which rows a query locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locks {
    None,
    /// Those of tables that it names.
    Of,
    All,
}

impl ast::Visitor for Locks {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        for lock in &query.locks {
            *self = if lock.of.is_some() && *self != Locks::All { Locks::Of } else { Locks::All };
        }
        ControlFlow::Continue(())
    }
}

impl Judge<'_> {
    fn statement(&self, statement: &Statement) -> Result<(), SqlError> {
        let inner = inner(statement);
        match inner.kind() {
            Kind::Ddl(ddl) if !ddl.temporary || !is_plain_table(inner) => return self.whole(Right::Schema),
            Kind::Vacuum | Kind::Do | Kind::Call | Kind::Unparsed => return self.whole(Right::Schema),
            Kind::Copy(copy) if copy.other != CopyOther::Client => return self.whole(Right::Admin),
            // Locks on what all use, or worse.
            Kind::Lock(_) | Kind::Truncate(_) if !self.analysis.system_relations().is_empty() => {
                return self.whole(Right::Schema);
            }
            // Tables that refer to it are emptied too, whatever they are.
            Kind::Truncate(_) if inner.text().to_ascii_lowercase().contains("cascade") => {
                self.whole(Right::Write)?;
            }
            _ => {}
        }
        self.check_unknown(inner)?;
        self.check_system()?;
        self.analysis.called().iter().try_for_each(|called| self.check_function(called))?;
        let mut locks = if matches!(inner.kind(), Kind::Lock(_)) { Locks::All } else { Locks::None };
        if let Some(tree) = inner.ast() {
            let _: ControlFlow<()> = ast::Visit::visit(tree, &mut locks);
        }
        for (name, written) in self.analysis.tables() {
            let placement = self.schema.tables.get(name).map(|table| &table.placement);
            let locked = match locks {
                Locks::None => false,
                // Which names are meant is not looked at: those that are on all shards are rarely among them.
                Locks::Of => !matches!(placement, Some(Placement::Reference { .. })),
                Locks::All => true,
            };
            let right = if *written || locked { Right::Write } else { Right::Read };
            let shown = name.to_string();
            let asked = AccessCheck { right, store: &STORE, table: Some(&shown), map: None, keys: None };
            match placement {
                Some(Placement::Sharded { map, column, .. }) => {
                    let keys = keys_of(self.route, map);
                    let by_key = AccessCheck { map: Some(map), keys: keys.as_deref(), ..asked };
                    self.rights.check(&by_key).map_err(refused)?;
                    if right == Right::Write
                        && self.rights.check(&AccessCheck { keys: None, ..by_key }).is_err()
                    {
                        let column =
                            self.schema.tables.get(name).and_then(|table| table.columns.get(*column));
                        check_conflict(inner, column.map_or("", |column| &column.name))?;
                    }
                }
                Some(Placement::Reference { .. }) if right == Right::Read => {
                    self.rights.check_reference(&STORE, &shown).map_err(refused)?;
                }
                _ => self.rights.check(&asked).map_err(refused)?,
            }
        }
        Ok(())
    }

    /// A right on all of SQL.
    fn whole(&self, right: Right) -> Result<(), SqlError> {
        let asked = AccessCheck { right, store: &STORE, table: None, map: None, keys: None };
        self.rights.check(&asked).map_err(refused)
    }

    /// What is not known here could be anything on a shard, unless the transaction has made it.
    fn check_unknown(&self, statement: &Statement) -> Result<(), SqlError> {
        let unknown = self.analysis.unknown_relations();
        if let Some(name) = unknown.iter().find(|name| !self.temporary.contains(name)) {
            return Err(no_relation(&as_written(statement, name)));
        }
        // Which table is meant by a name is the shard's to say, which goes by the search path.
        let is_ours = |schema: &String| schema == "polyshard";
        let is_elsewhere = |schema: &String| schema.starts_with("pg_temp") && !unknown.is_empty();
        let names_some = !unknown.is_empty() || !self.analysis.tables().is_empty();
        if names_some && self.search_path.iter().any(|schema| is_ours(schema) || is_elsewhere(schema)) {
            let message =
                "the search_path has polyshard or pg_temp in it, and not everything is allowed to this user";
            return Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
                .hint("SET search_path to the schemas of your tables alone."));
        }
        if unknown.is_empty() {
            return Ok(());
        }
        // The name of a temporary table, behind that of a schema, is another table.
        let Some(tree) = statement.ast() else { return Err(no_relation(&unknown[0])) };
        let found = ast::visit_relations(tree, |name| match name.0.len() {
            1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(name.to_string()),
        });
        match found {
            ControlFlow::Break(name) => Err(no_relation(&name)),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Statistics have values of rows in them, and sessions have others' statements.
    fn check_system(&self) -> Result<(), SqlError> {
        if self.analysis.writes_system() {
            let message =
                "relations of the system are not written by a user to whom not everything is allowed";
            return Err(
                SqlError::new(state::INSUFFICIENT_PRIVILEGE, message).hint("Settings are set with SET.")
            );
        }
        let harmless = |name: &str| polyshard_sql::is_describing(name) || HARMLESS_RELATIONS.contains(&name);
        match self.analysis.system_relations().iter().find(|name| !harmless(name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("{name} tells of others, and not everything is allowed to this user");
                Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
                    .hint("It takes the right schema on all of SQL."))
            }
        }
    }

    fn check_function(&self, called: &Called) -> Result<(), SqlError> {
        let name = called.name.as_str();
        if called.reads_tables {
            // What it reads or writes is not seen.
            let right = if called.volatility == Volatility::Volatile { Right::Write } else { Right::Read };
            return self.whole(right);
        }
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let own = OWN_AFFAIR.contains(&name) || begins(&OWN_AFFAIR_PREFIXES) || self.analysis.is_aside();
        let telling = TELLING.contains(&name)
            || begins(&TELLING_PREFIXES)
            || (name.starts_with("pg_") && called.volatility == Volatility::Volatile);
        if own || !telling {
            return Ok(());
        }
        let message = format!("function {name} is not for a user to whom not everything is allowed");
        Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
            .hint("It takes the right schema on all of SQL."))
    }
}

/// What is really done: the statement that is explained, or that a cursor is for.
fn inner(statement: &Statement) -> &Statement {
    match statement.kind() {
        Kind::Explain(explain) => inner(&explain.statement),
        Kind::Declare(cursor) => inner(&cursor.query),
        Kind::Prepare(prepare) => inner(&prepare.statement),
        _ => statement,
    }
}

/// Whether a temporary table is made whose columns compute nothing: what it is filled with is looked at by itself.
fn is_plain_table(statement: &Statement) -> bool {
    let Some(ast::Statement::CreateTable(table)) = statement.ast() else { return false };
    let bare = ast::CreateTable { query: None, ..table.clone() };
    let found = ast::visit_expressions(&ast::Statement::CreateTable(bare), |expression| match expression {
        ast::Expr::Function(_) | ast::Expr::Subquery(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_continue()
}

/// The keys of a map that a statement is about; none if they may be any.
fn keys_of<'r>(route: &'r Route, map: &MapName) -> Option<Cow<'r, [Key]>> {
    fn of<'k>(keys: &'k [(MapName, Vec<Key>)], map: &MapName) -> &'k [Key] {
        keys.iter().find(|(known, _)| known == map).map(|(_, keys)| keys.as_slice()).unwrap_or_default()
    }
    match route {
        Route::One { keys, ranges, .. } => {
            let ranged = ranges.iter().any(|(known, ranges)| known == map && !ranges.is_empty());
            (!ranged).then(|| Cow::Borrowed(of(keys, map)))
        }
        // No row of the map can matter.
        Route::Nowhere { .. } | Route::Local(_) => Some(Cow::Borrowed(&[])),
        Route::Split(parts) => {
            Some(Cow::Owned(parts.iter().flat_map(|part| of(&part.keys, map)).cloned().collect()))
        }
        Route::Rekey(rekey) if rekey.map == *map => {
            Some(Cow::Owned(rekey.keys.iter().chain([&rekey.key]).cloned().collect()))
        }
        _ => None,
    }
}

/// A row that is in the way of a new one may be another key's, unless the key is part of what is compared.
fn check_conflict(statement: &Statement, column: &str) -> Result<(), SqlError> {
    let refusal = || {
        let message = "ON CONFLICT DO UPDATE could change a row of another key";
        Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
            .hint(format!("Name the key among the columns of the conflict: ON CONFLICT ({column}, …).")))
    };
    if statement.kind() != &Kind::Insert && !statement.text().to_ascii_lowercase().contains("conflict") {
        return Ok(());
    }
    let insert = match statement.ast() {
        Some(ast::Statement::Insert(insert)) => insert,
        Some(ast::Statement::Query(query)) => match query.body.as_ref() {
            ast::SetExpr::Insert(ast::Statement::Insert(insert)) if query.with.is_none() => insert,
            _ if statement.text().to_ascii_lowercase().contains("conflict") => return refusal(),
            _ => return Ok(()),
        },
        _ if statement.text().to_ascii_lowercase().contains("conflict") => return refusal(),
        _ => return Ok(()),
    };
    match &insert.on {
        Some(ast::OnInsert::OnConflict(conflict)) => match (&conflict.action, &conflict.conflict_target) {
            (ast::OnConflictAction::DoNothing, _) => Ok(()),
            (_, Some(ast::ConflictTarget::Columns(columns)))
                if columns.iter().any(|named| named.value.eq_ignore_ascii_case(column)) =>
            {
                Ok(())
            }
            _ => refusal(),
        },
        Some(_) => refusal(),
        None => Ok(()),
    }
}

/// A relation's name with the schema that the statement says, if it does.
fn as_written(statement: &Statement, name: &str) -> String {
    let stored = |part: &ast::ObjectNamePart| match part.as_ident() {
        Some(ident) if ident.quote_style.is_none() => ident.value.to_lowercase(),
        Some(ident) => ident.value.clone(),
        None => part.to_string(),
    };
    let found = statement.ast().map(|tree| {
        ast::visit_relations(tree, |written| match written.0.last().map(&stored) {
            Some(last) if last == name => {
                ControlFlow::Break(written.0.iter().map(&stored).collect::<Vec<_>>().join("."))
            }
            _ => ControlFlow::Continue(()),
        })
    });
    match found {
        Some(ControlFlow::Break(written)) => written,
        _ => name.to_owned(),
    }
}

fn no_relation(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}
