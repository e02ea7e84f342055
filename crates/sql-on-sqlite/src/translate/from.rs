//! FROM: tables, views, sub-queries, joins.

use polyshard_engine::Value;
use polyshard_sql::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, ObjectName, Query, SetExpr,
    TableAlias, TableFactor, TableWithJoins,
};
use polyshard_sql::{Column, Placement, SqlError, Table, TypeOid};

use super::compare::Comparison;
use super::scope::Relation;
use super::{Ex, Translator, Visible, column_value, fold, literal, name_parts, quoted, quoted_name};
use crate::across::{Across, Attached};
use crate::fail::{fail, unsupported};
use crate::prepared::OutColumn;
use crate::system;

/// A part of FROM.
pub(super) struct Joined {
    pub sql: String,
    pub columns: Vec<Visible>,
    pub relations: Vec<Relation>,
    /// Whether a column is computed of others where it is used: see [`Translator::beside`].
    pub beside: bool,
}

impl Translator<'_> {
    /// ` FROM …`, its columns put in sight; empty for no tables.
    pub(super) fn from(&mut self, tables: &[TableWithJoins], uses: &mut Ex) -> Result<String, SqlError> {
        let mut parts = Vec::new();
        for table in tables {
            let joined = self.joins(table, uses)?;
            parts.push(joined.sql);
            let scope = self.scope();
            for relation in joined.relations {
                if scope.relations.iter().any(|known| known.name == relation.name) {
                    return Err(fail(
                        "42712",
                        format!("table name \"{}\" specified more than once", relation.name),
                    ));
                }
                scope.relations.push(relation);
            }
            scope.columns.extend(joined.columns);
        }
        Ok(if parts.is_empty() { String::new() } else { format!(" FROM {}", parts.join(", ")) })
    }

    fn joins(&mut self, table: &TableWithJoins, uses: &mut Ex) -> Result<Joined, SqlError> {
        let mut left = self.factor(&table.relation, uses)?;
        for join in &table.joins {
            // A function on the right may use the tables on its left.
            let hidden = self.scope().columns.len();
            self.scope().columns.extend(left.columns.iter().cloned());
            let beside = self.beside(join, uses);
            let right = match &beside {
                Ok(None) => self.factor(&join.relation, uses).map(Some),
                _ => Ok(None),
            };
            self.scope().columns.truncate(hidden);
            if let Some((beside, seen)) = beside? {
                left.sql.push_str(&seen);
                left.beside = true;
                left.columns.extend(beside.columns);
                left.relations.extend(beside.relations);
                continue;
            }
            let Some(right) = right? else { continue };
            let (kind, constraint) = match &join.join_operator {
                JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => ("JOIN", constraint),
                JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                    ("LEFT JOIN", constraint)
                }
                JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                    ("RIGHT JOIN", constraint)
                }
                JoinOperator::FullOuter(constraint) => ("FULL JOIN", constraint),
                JoinOperator::CrossJoin(constraint) => ("CROSS JOIN", constraint),
                other => return Err(unsupported(format!("{other:?}"))),
            };
            left = self.join(left, kind, constraint, right, uses)?;
        }
        Ok(left)
    }

    /// `LEFT JOIN LATERAL (…) ON true` of one value for each row, by which Drizzle fetches what belongs to it: a value
    /// that is computed where it is used. If a row has more than one, it is refused: by what is answered beside it, a
    /// join that looks at every row whether or not the value is used.
    fn beside(&mut self, join: &Join, uses: &mut Ex) -> Result<Option<(Joined, String)>, SqlError> {
        let (JoinOperator::Left(JoinConstraint::On(on)) | JoinOperator::LeftOuter(JoinConstraint::On(on))) =
            &join.join_operator
        else {
            return Ok(None);
        };
        let TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None } =
            &join.relation
        else {
            return Ok(None);
        };
        if !on.to_string().eq_ignore_ascii_case("true") || !uses_siblings(self, subquery)? {
            return Ok(None);
        }
        let made = self.query(subquery, None)?;
        uses.uses(&made.uses);
        if made.columns.len() != 1 {
            return Err(unsupported("LATERAL sub-queries of several columns"));
        }
        let several = literal(&Value::from("a LATERAL sub-query that gives several rows on SQLite shards"));
        let sql = format!(
            "(SELECT CASE WHEN count(*) > 1 THEN pg_raise('0A000', {several}) ELSE max(\"c1\") END FROM ({}))",
            made.sql
        );
        let mut joined = named_columns(String::new(), "", fold(&alias.name), made.columns, Some(alias))?;
        joined.columns.iter_mut().for_each(|column| column.sql.clone_from(&sql));
        let seen = if made.one_row {
            String::new()
        } else {
            let alias = quoted(&self.alias("q"));
            format!(
                " JOIN (SELECT 1) AS {alias} ON (SELECT CASE WHEN count(*) > 1 THEN pg_raise('0A000', {several}) \
                 ELSE 1 END FROM (SELECT 1 FROM ({}) LIMIT 2))",
                made.sql
            )
        };
        Ok(Some((joined, seen)))
    }

    fn join(
        &mut self,
        mut left: Joined,
        kind: &str,
        constraint: &JoinConstraint,
        mut right: Joined,
        uses: &mut Ex,
    ) -> Result<Joined, SqlError> {
        for relation in &right.relations {
            if left.relations.iter().any(|known| known.name == relation.name) {
                return Err(fail(
                    "42712",
                    format!("table name \"{}\" specified more than once", relation.name),
                ));
            }
        }
        if left.beside && matches!(kind, "RIGHT JOIN" | "FULL JOIN") {
            // What is computed of columns that are NULL for want of a row would not be NULL.
            return Err(unsupported("LATERAL sub-queries on the side of an outer join that may have no row"));
        }
        if matches!(kind, "LEFT JOIN" | "FULL JOIN") {
            right.columns.iter_mut().for_each(|column| column.not_null = false);
        }
        if matches!(kind, "RIGHT JOIN" | "FULL JOIN") {
            left.columns.iter_mut().for_each(|column| column.not_null = false);
        }
        let shared: Vec<String> = match constraint {
            JoinConstraint::Using(names) => {
                names.iter().map(|name| name_parts(name).map(|(_, name)| name)).collect::<Result<_, _>>()?
            }
            JoinConstraint::Natural => left
                .columns
                .iter()
                .filter(|column| {
                    column.bare && right.columns.iter().any(|other| other.bare && other.name == column.name)
                })
                .map(|column| column.name.clone())
                .collect(),
            _ => Vec::new(),
        };
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in &shared {
            let find = |columns: &mut Vec<Visible>, side: &str| -> Result<Visible, SqlError> {
                let mut found = columns.iter_mut().filter(|column| column.bare && column.name == *name);
                let column = found.next().ok_or_else(|| {
                    fail(
                        "42703",
                        format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
                    )
                })?;
                column.bare = false;
                Ok(column.clone())
            };
            let (a, b) = (find(&mut left.columns, "left")?, find(&mut right.columns, "right")?);
            let (x, y) = (Ex::of(a.sql.clone(), a.type_oid), Ex::of(b.sql.clone(), b.type_oid));
            conditions.push(self.compare(x.clone(), Comparison::Equal, y.clone())?.sql);
            let (values, type_oid) = self.same_type(vec![x, y], "JOIN/USING")?;
            let sql = match kind {
                "RIGHT JOIN" => values[1].sql.clone(),
                "FULL JOIN" => format!("coalesce({}, {})", values[0].sql, values[1].sql),
                _ => values[0].sql.clone(),
            };
            merged.push(Visible {
                relation: None,
                name: name.clone(),
                sql,
                type_oid,
                type_mod: if a.type_mod == b.type_mod { a.type_mod } else { -1 },
                not_null: kind == "JOIN" && a.not_null,
                bare: true,
            });
        }
        let mut columns = merged;
        columns.extend(left.columns);
        columns.extend(right.columns);
        let mut relations = left.relations;
        relations.extend(right.relations);
        let condition = match constraint {
            JoinConstraint::On(expr) => {
                // Only the two sides are in sight, and the queries around.
                let siblings = std::mem::replace(&mut self.scope().columns, columns);
                self.scope().aggregates = super::scope::Aggregates::Forbidden("JOIN conditions");
                let condition = self.condition(expr, "JOIN/ON");
                columns = std::mem::replace(&mut self.scope().columns, siblings);
                let condition = condition?;
                uses.uses(&condition);
                format!(" ON {}", condition.sql)
            }
            JoinConstraint::None if kind != "CROSS JOIN" => {
                return Err(fail("42601", "a join needs ON, USING or NATURAL"));
            }
            _ if conditions.is_empty() => String::new(),
            _ => format!(" ON {}", conditions.join(" AND ")),
        };
        // SQLite takes CROSS JOIN for an order to keep; a plain one leaves the choice to it.
        let kind = if kind == "CROSS JOIN" { "JOIN" } else { kind };
        let beside = left.beside;
        Ok(Joined {
            sql: format!("{} {kind} {}{condition}", left.sql, right.sql),
            columns,
            relations,
            beside,
        })
    }

    fn factor(&mut self, factor: &TableFactor, uses: &mut Ex) -> Result<Joined, SqlError> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                sample: None,
                version: None,
                json_path: None,
                ..
            } => self.table(name, alias.as_ref()),
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                let values = plain_arguments(&args.args, name)?;
                let (_, name) = name_parts(name)?;
                self.function_in_from(&name, &values, *with_ordinality, alias.as_ref())
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                let values = plain_arguments(args, name)?;
                let (_, name) = name_parts(name)?;
                self.function_in_from(&name, &values, *with_ordinality, alias.as_ref())
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                let values: Vec<&Expr> = array_exprs.iter().collect();
                self.function_in_from("unnest", &values, *with_ordinality, alias.as_ref())
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                if *lateral && uses_siblings(self, subquery)? {
                    return Err(unsupported("LATERAL sub-queries"));
                }
                self.derived(subquery, alias.as_ref(), uses)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                let inner = self.joins(table_with_joins, uses)?;
                if inner.beside {
                    return Err(unsupported("LATERAL sub-queries in parentheses"));
                }
                Ok(Joined { sql: format!("({})", inner.sql), ..inner })
            }
            other => Err(unsupported(format!("{other} in FROM"))),
        }
    }

    fn function_in_from(
        &mut self,
        name: &str,
        values: &[&Expr],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Joined, SqlError> {
        if super::table_function::is_table_function(name) {
            return self.table_function(name, values, ordinality, alias);
        }
        if !values.is_empty() || ordinality {
            return Err(unsupported(format!("the function {name} in FROM")));
        }
        // One row with one value, which is called like the function, or like the table.
        let statements = polyshard_sql::statements(&format!("SELECT {name}()"))?;
        let Some(polyshard_sql::ast::Statement::Query(query)) = statements.first().and_then(|one| one.ast())
        else {
            return Err(unsupported(format!("the function {name} in FROM")));
        };
        let mut made = self.query(query, None)?;
        let (own, shown) =
            (self.alias("q"), alias.map_or_else(|| name.to_owned(), |alias| fold(&alias.name)));
        made.columns.iter_mut().for_each(|column| column.name.clone_from(&shown));
        named_columns(format!("({}) AS {}", made.sql, quoted(&own)), &own, shown, made.columns, alias)
    }

    fn derived(
        &mut self,
        query: &Query,
        alias: Option<&TableAlias>,
        uses: &mut Ex,
    ) -> Result<Joined, SqlError> {
        if alias.is_none() && matches!(query.body.as_ref(), SetExpr::Select(_)) {
            return Err(fail("42601", "subquery in FROM must have an alias"));
        }
        let siblings = std::mem::take(&mut self.scope().columns);
        let made = self.query(query, None);
        self.scope().columns = siblings;
        let made = made?;
        uses.uses(&made.uses);
        let own = self.alias("q");
        let name = alias.map_or_else(|| own.clone(), |alias| fold(&alias.name));
        let sql = format!("({}{}) AS {}", made.sql, keeps_order(query), quoted(&own));
        named_columns(sql, &own, name, made.columns, alias)
    }

    /// A table by its name: a WITH query, a table, a view, or one of the system's.
    fn table(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> Result<Joined, SqlError> {
        let (schema, bare) = name_parts(name)?;
        let shown = alias.map_or_else(|| bare.clone(), |alias| fold(&alias.name));
        if schema.is_none()
            && let Some(cte) = self.ctes.iter().rev().find(|cte| cte.name == bare).cloned()
        {
            let own = self.alias("t");
            let sql = format!("{} AS {}", quoted(&cte.alias), quoted(&own));
            return named_columns(sql, &own, shown, cte.columns, alias);
        }
        let context = self.context;
        if let Some(table) = context.schema.table(schema.as_deref(), &bare, context.search_path) {
            let own = self.alias("t");
            let sql = format!("{} AS {}", self.rows_of_table(table)?, quoted(&own));
            return base_columns(sql, &own, shown, table, alias);
        }
        if let Some(view) = context.schema.view(schema.as_deref(), &bare, context.search_path) {
            let view = view.clone();
            let statements = polyshard_sql::statements(&view.definition)?;
            let Some(polyshard_sql::ast::Statement::Query(query)) =
                statements.first().and_then(|one| one.ast())
            else {
                return Err(unsupported(format!("the view {bare}")));
            };
            let query = crate::ddl::in_public(query, context)?;
            // A view sees nothing of the query that uses it.
            let (scopes, ctes) = (std::mem::take(&mut self.scopes), std::mem::take(&mut self.ctes));
            let made = self.query(&query, None);
            (self.scopes, self.ctes) = (scopes, ctes);
            let mut made = made?;
            made.columns
                .iter_mut()
                .zip(&view.columns)
                .for_each(|(column, name)| column.name.clone_from(name));
            let own = self.alias("q");
            return named_columns(
                format!("({}) AS {}", made.sql, quoted(&own)),
                &own,
                shown,
                made.columns,
                alias,
            );
        }
        if let Some(relation) = system::relation(self, schema.as_deref(), &bare)? {
            let own = self.alias("t");
            let sql = format!("{} AS {}", quoted(&relation.name), quoted(&own));
            return named_columns(sql, &own, shown, relation.columns, alias);
        }
        Err(no_relation(schema.as_deref(), &bare))
    }

    /// A table's rows: of this file, or of all the shards that have some.
    fn rows_of_table(&self, table: &Table) -> Result<String, SqlError> {
        let name = quoted_name(&table.name);
        let Some(Across { databases, guard }) = &self.across else {
            return Ok(name);
        };
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        let columns = columns.join(", ");
        let one = |part: &Attached| {
            let mut sql = format!("SELECT {columns} FROM {}.{name}", quoted(&part.database));
            if matches!(table.placement, Placement::Sharded { .. }) {
                sql.push_str(&format!(" WHERE {guard}"));
                if let Some(foreign) = part.foreign.get(&table.name) {
                    sql.push_str(&format!(" AND {foreign} IS NOT TRUE"));
                }
            }
            sql
        };
        match &table.placement {
            Placement::Reference { .. } => Ok(format!("\"main\".{name}")),
            Placement::Sharded { .. } | Placement::Local(_) => {
                let parts: Vec<String> = databases.iter().map(one).collect();
                Ok(format!("({})", parts.join(" UNION ALL ")))
            }
        }
    }
}

/// A limit of none: SQLite leaves out the order of a sub-query that has no limit.
pub(super) fn keeps_order(query: &Query) -> &'static str {
    let has_limit = query.limit_clause.is_some() || query.fetch.is_some();
    if query.order_by.is_some() && !has_limit { " LIMIT -1" } else { "" }
}

fn plain_arguments<'a>(args: &'a [FunctionArg], name: &ObjectName) -> Result<Vec<&'a Expr>, SqlError> {
    args.iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
            _ => Err(unsupported(format!("the arguments of {name}"))),
        })
        .collect()
}

/// Whether a LATERAL query needs the tables beside it.
fn uses_siblings(translator: &mut Translator<'_>, query: &Query) -> Result<bool, SqlError> {
    let siblings = std::mem::take(&mut translator.scope().columns);
    let sources = translator.sources.clone();
    let alone = translator.query(query, None).map(drop);
    translator.scope().columns = siblings;
    translator.sources = sources;
    match alone {
        Ok(()) => Ok(false),
        Err(error) if matches!(error.state.0, "42703" | "42P01") => Ok(true),
        Err(error) => Err(error),
    }
}

pub(super) fn base_columns(
    sql: String,
    own: &str,
    shown: String,
    table: &Table,
    alias: Option<&TableAlias>,
) -> Result<Joined, SqlError> {
    let column_sql = |name: &str| format!("{}.{}", quoted(own), quoted(name));
    let value_sql = |column: &Column| column_value(column_sql(&column.name), column.type_oid);
    let mut columns: Vec<Visible> = table
        .columns
        .iter()
        .map(|column| Visible {
            relation: Some(shown.clone()),
            name: column.name.clone(),
            sql: value_sql(column),
            type_oid: column.type_oid,
            type_mod: column.type_mod,
            not_null: column.not_null,
            bare: true,
        })
        .collect();
    rename(&mut columns, alias, &shown)?;
    let key = table.primary_key.iter().map(|place| column_sql(&table.columns[*place].name)).collect();
    Ok(Joined { sql, columns, relations: vec![Relation { name: shown, key }], beside: false })
}

fn named_columns(
    sql: String,
    own: &str,
    shown: String,
    columns: Vec<OutColumn>,
    alias: Option<&TableAlias>,
) -> Result<Joined, SqlError> {
    let columns = columns.into_iter().enumerate();
    let mut columns: Vec<Visible> = columns
        .map(|(place, column)| Visible {
            relation: Some(shown.clone()),
            sql: format!("{}.\"c{}\"", quoted(own), place + 1),
            name: column.name,
            type_oid: if column.type_oid == TypeOid::UNKNOWN { TypeOid::TEXT } else { column.type_oid },
            type_mod: column.type_mod,
            not_null: false,
            bare: true,
        })
        .collect();
    rename(&mut columns, alias, &shown)?;
    Ok(Joined { sql, columns, relations: vec![Relation { name: shown, key: Vec::new() }], beside: false })
}

fn rename(columns: &mut [Visible], alias: Option<&TableAlias>, shown: &str) -> Result<(), SqlError> {
    let Some(alias) = alias else {
        return Ok(());
    };
    if alias.columns.len() > columns.len() {
        return Err(fail(
            "42P10",
            format!(
                "table \"{shown}\" has {} columns available but {} columns specified",
                columns.len(),
                alias.columns.len()
            ),
        ));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        column.name = fold(&name.name);
    }
    Ok(())
}

/// Nothing is called so.
pub(crate) fn no_relation(schema: Option<&str>, name: &str) -> SqlError {
    let within = schema.map_or_else(String::new, |schema| format!("{schema}."));
    fail("42P01", format!("relation \"{within}{name}\" does not exist"))
}
