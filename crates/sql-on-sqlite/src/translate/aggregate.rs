//! Aggregates.

use polyshard_sql::ast::{
    DuplicateTreatment, Function, FunctionArgumentClause, FunctionArguments, OrderByExpr,
};
use polyshard_sql::{SqlError, TypeOid};

use super::call::{arguments, ordered_value};
use super::expr::no_such;
use super::scope::Aggregates;
use super::{Ex, How, Translator, check_ordered, is_ordered, sort_value};
use crate::fail::{fail, unsupported};
use crate::types;

const AGGREGATES: [&str; 26] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
    "string_agg",
    "array_agg",
    "jsonb_agg",
    "jsonb_object_agg",
    "json_agg",
    "json_object_agg",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "variance",
    "var_pop",
    "var_samp",
    "bit_and",
    "bit_or",
    "corr",
    "mode",
    "percentile_cont",
    "percentile_disc",
];

pub(super) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name)
}

impl Translator<'_> {
    /// An aggregate, or one over a window whose text is given.
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        function: &Function,
        window: Option<&Ex>,
    ) -> Result<Ex, SqlError> {
        let level = self.scopes.len().saturating_sub(1);
        let before = self.scope().aggregates;
        if window.is_none() {
            match before {
                Aggregates::Allowed => {}
                Aggregates::Forbidden(place) => {
                    return Err(fail("42803", format!("aggregate functions are not allowed in {place}")));
                }
                Aggregates::Inside => {
                    return Err(fail("42803", "aggregate function calls cannot be nested"));
                }
            }
            self.scope().aggregates = Aggregates::Inside;
        }
        let windows = std::mem::replace(&mut self.scope().windows_allowed, false);
        let made = self.aggregate_inner(name, function, window);
        self.scope().aggregates = before;
        self.scope().windows_allowed = windows;
        let mut ex = made?;
        if window.is_none() {
            if ex.level.is_some_and(|used| used < level) {
                return Err(unsupported("an aggregate of an outer query's columns alone"));
            }
            self.scope().saw_aggregate = true;
            ex.ungrouped.retain(|(own, _)| *own != level);
        }
        Ok(ex.named(name))
    }

    fn aggregate_inner(
        &mut self,
        name: &str,
        function: &Function,
        window: Option<&Ex>,
    ) -> Result<Ex, SqlError> {
        let given = arguments(function)?;
        let (distinct, order_by) = match &function.args {
            FunctionArguments::List(list) => {
                let mut order_by: &[OrderByExpr] = &[];
                for clause in &list.clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(clause) => order_by = clause,
                        other => return Err(unsupported(format!("{other} in {name}"))),
                    }
                }
                (list.duplicate_treatment == Some(DuplicateTreatment::Distinct), order_by)
            }
            _ => (false, &[][..]),
        };
        if !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(unsupported(format!("WITHIN GROUP in {name}")));
        }
        if window.is_some() && (distinct || !order_by.is_empty()) {
            return Err(fail(
                "0A000",
                format!("DISTINCT or ORDER BY is not implemented for window functions: {name}"),
            ));
        }
        if given.star && name != "count" {
            return Err(no_such(&format!("function {name}"), &[]));
        }
        let values = given.values.iter().map(|value| self.expr(value)).collect::<Result<Vec<_>, _>>()?;
        let order = self.aggregate_order(order_by)?;
        let mut ex = self.aggregate_call(name, values, given.star, distinct, &order)?;
        for part in &order.1 {
            ex.uses(part);
        }
        if let Some(filter) = &function.filter {
            let filter = self.condition(filter, "FILTER")?;
            ex.sql = format!("{} FILTER (WHERE {})", ex.sql, filter.sql);
            ex.uses(&filter);
        }
        if let Some(window) = window {
            ex.sql = format!("{} OVER {}", ex.sql, window.sql);
            ex.uses(window);
        }
        Ok(ex)
    }

    fn aggregate_order(&mut self, order_by: &[OrderByExpr]) -> Result<(String, Vec<Ex>), SqlError> {
        let mut parts = Vec::new();
        let mut used = Vec::new();
        for part in order_by {
            let ex = self.expr(&part.expr)?;
            let ex = self.known(ex)?;
            if !types::is_enum(ex.type_oid) {
                check_ordered(ex.type_oid, "ORDER BY")?;
            }
            let key = sort_value(self.context, &ex)?;
            parts.push(super::query::sort_text(&key, &part.options, ex.not_null)?);
            used.push(ex);
        }
        let sql = if parts.is_empty() { String::new() } else { format!(" ORDER BY {}", parts.join(", ")) };
        Ok((sql, used))
    }

    fn aggregate_call(
        &mut self,
        name: &str,
        mut values: Vec<Ex>,
        star: bool,
        distinct: bool,
        order: &(String, Vec<Ex>),
    ) -> Result<Ex, SqlError> {
        let given: Vec<TypeOid> = values.iter().map(|value| value.type_oid).collect();
        let none = || no_such(&format!("function {name}"), &given);
        let each = if distinct { "DISTINCT " } else { "" };
        if distinct {
            if values.len() > 1 {
                return Err(unsupported(format!("DISTINCT in {name} of two arguments")));
            }
            for value in &values {
                check_ordered(value.type_oid, "DISTINCT")?;
            }
        }
        if star {
            return Ok(Ex { not_null: true, ..Ex::of("count(*)", TypeOid::INT8) });
        }
        let order = &order.0;
        let two = values.len() == 2;
        let second = if two { values.pop() } else { None };
        let (Some(value), true) = (values.pop(), values.is_empty()) else {
            return Err(none());
        };
        let known = |this: &mut Self, value: Ex| this.known(value);
        let call = |function: &str, value: &Ex, result: TypeOid| {
            Ex::made(format!("{function}({each}{}{order})", ordered_value(value)), result, &[value])
        };
        if two && !matches!(name, "string_agg" | "jsonb_object_agg") {
            return Err(none());
        }
        let oid = value.type_oid;
        Ok(match name {
            "count" => {
                let value = known(self, value)?;
                Ex { not_null: true, ..call("count", &value, TypeOid::INT8) }
            }
            "sum" | "avg" => {
                let average = name == "avg";
                match oid {
                    TypeOid::INT2 | TypeOid::INT4 if !average => call("sum", &value, TypeOid::INT8),
                    TypeOid::INT8 if !average => call("pg_sum8", &value, TypeOid::NUMERIC),
                    oid if types::is_integer(oid) => call("pg_avgi", &value, TypeOid::NUMERIC),
                    TypeOid::NUMERIC => {
                        call(if average { "pg_avgn" } else { "pg_sumn" }, &value, TypeOid::NUMERIC)
                    }
                    TypeOid::FLOAT8 => {
                        call(if average { "pg_avgf" } else { "pg_sumf" }, &value, TypeOid::FLOAT8)
                    }
                    TypeOid::INTERVAL => return Err(unsupported(format!("{name} of intervals"))),
                    TypeOid::UNKNOWN => {
                        return Err(fail("42725", format!("function {name}(unknown) is not unique")));
                    }
                    _ => return Err(none()),
                }
            }
            "min" | "max" => {
                let value = known(self, value)?;
                let oid = if value.type_oid == TypeOid::VARCHAR { TypeOid::TEXT } else { value.type_oid };
                if matches!(
                    oid,
                    TypeOid::BOOL | TypeOid::UUID | TypeOid::BYTEA | TypeOid::JSONB | TypeOid::JSON
                ) {
                    return Err(none());
                }
                if !is_ordered(oid) {
                    return Err(unsupported(format!("{name} of {}", types::display(oid))));
                }
                call(name, &value, if oid == TypeOid::NAME { TypeOid::TEXT } else { oid })
            }
            "bool_and" | "bool_or" | "every" => {
                if oid != TypeOid::BOOL && oid != TypeOid::UNKNOWN {
                    return Err(none());
                }
                let value = self.coerce(value, TypeOid::BOOL, -1, How::Implicit)?;
                call(if name == "bool_or" { "pg_bool_or" } else { "pg_bool_and" }, &value, TypeOid::BOOL)
            }
            "bit_and" | "bit_or" => match oid {
                oid if types::is_integer(oid) => call(&format!("pg_{name}"), &value, oid),
                TypeOid::UNKNOWN => {
                    return Err(fail("42725", format!("function {name}(unknown) is not unique")));
                }
                _ => return Err(none()),
            },
            "string_agg" => {
                let Some(separator) = second else { return Err(none()) };
                if oid == TypeOid::BYTEA {
                    return Err(unsupported("string_agg of bytea"));
                }
                if !rules_fit(oid) || !rules_fit(separator.type_oid) {
                    return Err(none());
                }
                let value = self.coerce(value, TypeOid::TEXT, -1, How::Implicit)?;
                let separator = self.coerce(separator, TypeOid::TEXT, -1, How::Implicit)?;
                let sql = format!("pg_string_agg({}, {}{order})", value.sql, separator.sql);
                Ex::made(sql, TypeOid::TEXT, &[&value, &separator])
            }
            "array_agg" => {
                let value = known(self, value)?;
                let array = types::array_of(value.type_oid)
                    .filter(|_| !types::is_array(value.type_oid))
                    .ok_or_else(|| unsupported(format!("array_agg of {}", types::display(value.type_oid))))?;
                call("pg_array_agg", &value, array)
            }
            "jsonb_agg" => {
                let value = known(self, value)?;
                let value = self.document(value)?;
                Ex::made(format!("pg_jsonb_agg({each}{}{order})", value.sql), TypeOid::JSONB, &[&value])
            }
            "json_agg" => {
                let value = known(self, value)?;
                let value = self.json_text(value)?;
                Ex::made(format!("pg_json_agg({each}{}{order})", value.sql), TypeOid::JSON, &[&value])
            }
            "jsonb_object_agg" => {
                let Some(document) = second else { return Err(none()) };
                let (key, document) = (known(self, value)?, known(self, document)?);
                let (key, document) = (self.as_text(key)?, self.document(document)?);
                let sql = format!("pg_jsonb_object_agg({}, {}{order})", key.sql, document.sql);
                Ex::made(sql, TypeOid::JSONB, &[&key, &document])
            }
            other => return Err(unsupported(format!("the aggregate {other}"))),
        })
    }
}

fn rules_fit(oid: TypeOid) -> bool {
    crate::rules::can_become(oid, TypeOid::TEXT)
}
