//! Which expressions give the same on every shard, and those that would not turned into constants where they can be.

use std::ops::ControlFlow;

use polyshard_sql::ast::{self, Expr, SetExpr, Visit, VisitMut, Visitor};
use polyshard_sql::{Column, Generated, Schema, SqlError, SqlState, Table, Volatility};

use crate::clock;
use crate::quote::text;

/// Functions that say something of the session or server that they are asked on.
const OF_THE_SERVER: &[&str] = &[
    "current_catalog",
    "current_database",
    "current_query",
    "current_role",
    "current_user",
    "session_user",
    "user",
    "version",
    "col_description",
    "getpgusername",
    "mxid_age",
    "obj_description",
    "shobj_description",
];

/// Beginnings of the names of those that say something of the database that they are asked in, and the few of these
/// names that do not.
const OF_THE_DATABASE: (&[&str], &[&str]) = (
    &["has_", "inet_", "pg_", "to_reg", "txid_"],
    &["inet_merge", "inet_same_family", "pg_size_bytes", "pg_size_pretty", "pg_typeof"],
);

/// Functions whose answer depends on the order of rows, which is each shard's own.
const OF_THE_ORDER: &[&str] = &[
    "array_agg",
    "string_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
    "xmlagg",
    "first_value",
    "last_value",
    "lag",
    "lead",
    "nth_value",
    "ntile",
    "row_number",
];

/// Columns that every row has and no shard has alike.
const OF_THE_ROW: &[&str] = &["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// What time a statement is to have, as PostgreSQL writes times.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// When its transaction began.
    pub transaction: &'a str,
    /// When it began itself.
    pub statement: &'a str,
}

/// What is needed to tell.
pub(crate) struct Stability<'a> {
    pub schema: &'a Schema,
    /// What time it is, as PostgreSQL writes it.
    pub moment: Moment<'a>,
    /// The parameters as SQL literals.
    pub literals: &'a [String],
    /// Where something may differ and must not, in the words of a refusal.
    pub otherwise: &'static str,
}

impl Stability<'_> {
    /// Puts constants for parameters and for the clock. True if something was changed.
    pub(crate) fn fix<T: VisitMut>(&self, tree: &mut T) -> Result<bool, SqlError> {
        let mut changed = false;
        let flow = ast::visit_expressions_mut(tree, |expression| match self.constant(expression) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(constant)) => {
                *expression = constant;
                changed = true;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        match flow {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(changed),
        }
    }

    /// The constant that stands for an expression, if there is one.
    fn constant(&self, expression: &Expr) -> Result<Option<Expr>, SqlError> {
        match expression {
            Expr::Value(value) => match &value.value {
                ast::Value::Placeholder(name) => {
                    let number: Option<usize> = name.strip_prefix('$').and_then(|number| number.parse().ok());
                    let literal = number.and_then(|number| self.literals.get(number.checked_sub(1)?));
                    let literal = literal.ok_or_else(|| {
                        SqlError::new(SqlState("42P02"), format!("there is no parameter {name}"))
                    })?;
                    Ok(Some(parse(literal)?))
                }
                _ => Ok(None),
            },
            Expr::Function(function) => {
                let time = |said: &str| format!("CAST({} AS timestamptz)", text(said));
                let moment = time(self.moment.transaction);
                let sql = match (name_of(&function.name).as_str(), arguments(function)) {
                    ("now" | "transaction_timestamp" | "current_timestamp", 0) => moment,
                    ("statement_timestamp" | "clock_timestamp", 0) => time(self.moment.statement),
                    ("current_date", 0) => format!("CAST({moment} AS date)"),
                    ("current_time", 0) => format!("CAST({moment} AS timetz)"),
                    ("localtime", 0) => format!("CAST({moment} AS time)"),
                    ("localtimestamp", 0) => format!("CAST({moment} AS timestamp)"),
                    (name, 1) => match clock::rounded(name, function) {
                        Some(kind) => format!("CAST({moment} AS {kind})"),
                        None => return Ok(None),
                    },
                    _ => return Ok(None),
                };
                Ok(Some(parse(&sql)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether an expression may give something else on another shard. The column says what a text is read as.
    pub(crate) fn differs(&self, expression: &Expr, column: Option<&Column>) -> bool {
        if column.is_some_and(clock::is_time) && clock::says(expression).is_some() {
            return true;
        }
        self.unstable_in(expression).is_some()
    }

    /// What in a tree may give something else on another shard, in words.
    fn unstable_in<T: Visit>(&self, tree: &T) -> Option<String> {
        match tree.visit(&mut Finder { stability: self }) {
            ControlFlow::Break(found) => Some(found),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Refuses what may give something else on another shard.
    pub(crate) fn refuse_unstable<T: Visit>(&self, tree: &T) -> Result<(), SqlError> {
        match self.unstable_in(tree) {
            None => Ok(()),
            Some(what) => Err(SqlError::unsupported(
                format!("{what} may give something else {}", self.otherwise),
                "compute the value first, and write it as a constant or parameter",
            )),
        }
    }

    /// Refuses it in the parts of an INSERT that are not its rows.
    pub(crate) fn check_rest(&self, insert: &ast::Insert) -> Result<(), SqlError> {
        let rest = ast::Insert { source: None, ..insert.clone() };
        self.refuse_unstable(&ast::Statement::Insert(rest))
    }

    /// Whether a column's default may give something else on another shard.
    pub(crate) fn default_differs(&self, column: &Column) -> bool {
        if matches!(column.generated, Generated::ByDefault | Generated::Always) {
            return true;
        }
        let Some(default) = &column.default else { return false };
        match parse(default) {
            Err(_) => true,
            Ok(mut expression) => {
                self.fix(&mut expression).unwrap_or(true) || self.differs(&expression, Some(column))
            }
        }
    }

    /// A column's default, with constants for the clock.
    pub(crate) fn default_of(&self, table: &Table, column: &Column) -> Result<Expr, SqlError> {
        let identity = || {
            let table = format!(
                "{}.{}",
                crate::quote::identifier(&table.name.schema),
                crate::quote::identifier(&table.name.name)
            );
            format!("nextval(pg_get_serial_sequence({}, {}))", text(&table), text(&column.name))
        };
        let sql = match (&column.default, column.generated) {
            (Some(default), _) => default.clone(),
            (None, Generated::ByDefault | Generated::Always) => identity(),
            (None, _) => "NULL".to_owned(),
        };
        let mut expression = parse(&sql)?;
        self.fix(&mut expression)?;
        Ok(expression)
    }

    /// How many columns a query gives, where its text tells.
    pub(crate) fn width(&self, query: Option<&ast::Query>) -> Option<usize> {
        let SetExpr::Select(select) = &*query?.body else { return None };
        let plain = |item: &ast::SelectItem| {
            matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. })
        };
        select.projection.iter().all(plain).then_some(select.projection.len())
    }

    fn judge(&self, function: &ast::Function) -> Option<String> {
        let name = name_of(&function.name);
        let ours = function.name.0.len() > 1
            && function
                .name
                .0
                .first()
                .and_then(|part| part.as_ident())
                .is_some_and(|part| stored(part) == "polyshard");
        let user = self.schema.functions.iter().filter(|(known, _)| known.name == name);
        let of_the_database = user.clone().next().is_none()
            && OF_THE_DATABASE.0.iter().any(|beginning| name.starts_with(beginning))
            && !OF_THE_DATABASE.1.contains(&name.as_str());
        let volatile = ours
            || of_the_database
            || clock::reads(&name, function)
            || self.schema.unstable_builtins.get(&name) == Some(&Volatility::Volatile)
            || user.into_iter().any(|(_, function)| function.volatility == Volatility::Volatile);
        if volatile || OF_THE_SERVER.contains(&name.as_str()) || OF_THE_ORDER.contains(&name.as_str()) {
            return Some(format!("{name}()"));
        }
        None
    }
}

struct Finder<'a> {
    stability: &'a Stability<'a>,
}

impl Visitor for Finder<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<String> {
        if query.limit_clause.is_some() || query.fetch.is_some() {
            return ControlFlow::Break("LIMIT".to_owned());
        }
        if let SetExpr::Select(select) = &*query.body
            && matches!(select.distinct, Some(ast::Distinct::On(_)))
        {
            return ControlFlow::Break("DISTINCT ON".to_owned());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        let found = match expression {
            Expr::Function(function) => self.stability.judge(function),
            Expr::Identifier(name) => row_column(name),
            Expr::CompoundIdentifier(names) => names.last().and_then(row_column),
            Expr::Cast { expr, data_type, .. } if clock::is_time_type(data_type) => clock::says(&**expr),
            Expr::TypedString(typed) if clock::is_time_type(&typed.data_type) => {
                clock::says(&Expr::Value(typed.value.clone()))
            }
            _ => None,
        };
        found.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

fn row_column(name: &ast::Ident) -> Option<String> {
    let name = stored(name);
    let server = name.as_str() == "current_user" || name.as_str() == "session_user";
    (server || OF_THE_ROW.contains(&name.as_str())).then_some(name)
}

/// Whether an expression is the word DEFAULT.
pub(crate) fn is_default(expression: &Expr) -> bool {
    let Expr::Identifier(name) = expression else { return false };
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
}

/// A type without its length: a value is cut or refused where it is written, not where it is asked for.
pub(crate) fn base_type(name: &str) -> String {
    if name.starts_with("bit") {
        return name.to_owned();
    }
    let bare = match (name.find('('), name.find(')')) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &name[..from], &name[to + 1..]),
        _ => name.to_owned(),
    };
    // By itself this is a character of length one.
    match bare.strip_prefix("character") {
        Some(rest) if rest.is_empty() || rest.starts_with('[') => format!("bpchar{rest}"),
        _ => bare,
    }
}

/// A name as it is stored.
pub(crate) fn stored(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn name_of(name: &ast::ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(stored).unwrap_or_default()
}

pub(crate) fn arguments(function: &ast::Function) -> usize {
    match &function.args {
        ast::FunctionArguments::None => 0,
        ast::FunctionArguments::Subquery(_) => 1,
        ast::FunctionArguments::List(list) => list.args.len(),
    }
}

/// An expression from its text.
fn parse(sql: &str) -> Result<Expr, SqlError> {
    let unreadable =
        || SqlError::new(SqlState::INTERNAL_ERROR, format!("the expression {sql} could not be read"));
    // Not alone: a function of ours alone is a command, which has no tree.
    let mut all = polyshard_sql::statements(&format!("SELECT NULL, {sql}"))?;
    let one = all.pop().filter(|_| all.is_empty()).ok_or_else(unreadable)?;
    let Some(ast::Statement::Query(query)) = one.ast() else { return Err(unreadable()) };
    let SetExpr::Select(select) = &*query.body else { return Err(unreadable()) };
    match select.projection.as_slice() {
        [_, ast::SelectItem::UnnamedExpr(expression)] => Ok(expression.clone()),
        _ => Err(unreadable()),
    }
}
