//! Which expressions give the same on every shard, and those that would not turned into constants where they can be.

use std::ops::ControlFlow;

use polyshard_sql::ast::{self, Expr, SetExpr, Visit, VisitMut, Visitor};
use polyshard_sql::{Column, Context, Generated, Schema, SqlError, SqlState, Table, TypeOid, Volatility};

use crate::quote::text;

/// Functions that say something of the session or server that they are asked on.
const OF_THE_SERVER: &[&str] = &[
    "current_catalog",
    "current_database",
    "current_query",
    "current_role",
    "current_user",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
    "pg_backend_pid",
    "pg_is_in_recovery",
    "pg_postmaster_start_time",
    "pg_relation_size",
    "pg_table_size",
    "pg_total_relation_size",
    "session_user",
    "user",
    "version",
    "pg_conf_load_time",
    "pg_database_size",
];

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

/// Texts that mean the clock where a date or time is read from them.
const CLOCK_WORDS: &[&str] = &["now", "today", "tomorrow", "yesterday"];

/// What is needed to tell.
pub(crate) struct Stability<'a> {
    pub schema: &'a Schema,
    /// The statement's time, as PostgreSQL writes it.
    pub moment: &'a str,
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
                let moment = format!("CAST({} AS timestamptz)", text(self.moment));
                let sql = match (name_of(&function.name).as_str(), arguments(function)) {
                    (
                        "now"
                        | "transaction_timestamp"
                        | "statement_timestamp"
                        | "clock_timestamp"
                        | "current_timestamp",
                        0,
                    ) => moment,
                    ("current_date", 0) => format!("CAST({moment} AS date)"),
                    ("current_time", 0) => format!("CAST({moment} AS timetz)"),
                    ("localtime", 0) => format!("CAST({moment} AS time)"),
                    ("localtimestamp", 0) => format!("CAST({moment} AS timestamp)"),
                    _ => return Ok(None),
                };
                Ok(Some(parse(&sql)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether an expression may give something else on another shard. The column says what a text is read as.
    pub(crate) fn differs(&self, expression: &Expr, column: Option<&Column>) -> bool {
        if let (Expr::Value(value), Some(column)) = (expression, column)
            && is_time(column.type_oid)
            && is_clock_word(&value.value)
        {
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
        let volatile = ours
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
            Expr::Cast { expr, data_type, .. } => match &**expr {
                Expr::Value(value) if is_clock_word(&value.value) && reads_time(data_type) => {
                    Some(value.value.to_string())
                }
                _ => None,
            },
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

fn reads_time(data_type: &ast::DataType) -> bool {
    let name = data_type.to_string().to_ascii_lowercase();
    name.starts_with("date") || name.starts_with("time")
}

fn is_time(type_oid: TypeOid) -> bool {
    matches!(type_oid, TypeOid::DATE | TypeOid::TIME | TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ)
}

fn is_clock_word(value: &ast::Value) -> bool {
    let ast::Value::SingleQuotedString(text) = value else { return false };
    CLOCK_WORDS.contains(&text.trim().to_ascii_lowercase().as_str())
}

/// SET column = DEFAULT, where the default would differ, says what the default is now.
pub(crate) fn fix_default(
    assignment: &mut ast::Assignment,
    context: &Context<'_>,
    table: &ast::TableWithJoins,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let ast::AssignmentTarget::ColumnName(name) = &assignment.target else { return Ok(()) };
    let ast::TableFactor::Table { name: relation, .. } = &table.relation else { return Ok(()) };
    let parts: Vec<String> = relation.0.iter().filter_map(|part| part.as_ident()).map(stored).collect();
    let found = match parts.as_slice() {
        [name] => context.schema.table(None, name, context.search_path),
        [schema, name] => context.schema.table(Some(schema), name, context.search_path),
        _ => None,
    };
    let column = name.0.last().and_then(|part| part.as_ident()).map(stored).unwrap_or_default();
    let Some((table, column)) = found.and_then(|table| Some((table, table.column(&column)?))) else {
        return Ok(());
    };
    let column = &table.columns[column];
    if is_default(&assignment.value) && stability.default_differs(column) {
        assignment.value = stability.default_of(table, column)?;
    } else if stability.differs(&assignment.value, Some(column)) {
        return stability.refuse_unstable(&assignment.value).and(Err(SqlError::unsupported(
            format!("{} means the clock, and is another time each time", assignment.value),
            "write now() or a constant",
        )));
    }
    Ok(())
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
    match (name.find('('), name.find(')')) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &name[..from], &name[to + 1..]),
        _ => name.to_owned(),
    }
}

/// A name as it is stored.
pub(crate) fn stored(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn name_of(name: &ast::ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(stored).unwrap_or_default()
}

fn arguments(function: &ast::Function) -> usize {
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
