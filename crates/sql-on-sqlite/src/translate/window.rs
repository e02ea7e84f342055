//! Window functions: those that SQLite has with the same meaning.

use polyshard_sql::ast::{
    Expr, Function, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use polyshard_sql::{SqlError, TypeOid};

use super::call::{arguments, ordered_value};
use super::expr::no_such;
use super::{Ex, How, Translator, check_ordered, fold, quoted, sort_value};
use crate::fail::{fail, unsupported};
use crate::types;

const WINDOW_ONLY: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

pub(super) fn is_window_only(name: &str) -> bool {
    WINDOW_ONLY.contains(&name)
}

impl Translator<'_> {
    /// A call with OVER.
    pub(super) fn window_call(&mut self, name: &str, function: &Function) -> Result<Ex, SqlError> {
        if !self.scope().windows_allowed {
            return Err(fail("42P20", "window functions are not allowed here"));
        }
        self.scope().windows_allowed = false;
        let made = self.window_call_inner(name, function);
        self.scope().windows_allowed = true;
        let mut ex = made?;
        ex.has_window = true;
        Ok(ex.named(name))
    }

    fn window_call_inner(&mut self, name: &str, function: &Function) -> Result<Ex, SqlError> {
        let window = match &function.over {
            Some(WindowType::NamedWindow(window)) => {
                let window = fold(window);
                let known = self.scope().windows.iter().find(|(known, _)| *known == window).cloned();
                let (_, sql) =
                    known.ok_or_else(|| fail("42704", format!("window \"{window}\" does not exist")))?;
                Ex::of(quoted(&sql), TypeOid::UNKNOWN)
            }
            Some(WindowType::WindowSpec(spec)) => {
                let spec = self.window_spec(spec)?;
                Ex { sql: format!("({})", spec.sql), ..spec }
            }
            None => return Err(fail("XX000", "a window call has OVER")),
        };
        if super::aggregate::is_aggregate(name) {
            return self.aggregate(name, function, Some(&window));
        }
        if !is_window_only(name) {
            return Err(fail(
                "42809",
                format!("OVER specified, but {name} is not a window function nor an aggregate"),
            ));
        }
        if function.filter.is_some() || function.null_treatment.is_some() {
            return Err(fail(
                "0A000",
                format!("FILTER or NULLS is not implemented for window function {name}"),
            ));
        }
        let given = arguments(function)?;
        let mut values = given.values.iter().map(|value| self.expr(value)).collect::<Result<Vec<_>, _>>()?;
        let types: Vec<TypeOid> = values.iter().map(|value| value.type_oid).collect();
        let (result, values) = match (name, values.len()) {
            ("row_number" | "rank" | "dense_rank", 0) => (TypeOid::INT8, values),
            ("percent_rank" | "cume_dist", 0) => (TypeOid::FLOAT8, values),
            ("ntile", 1) => {
                let value = self.coerce(values.remove(0), TypeOid::INT4, -1, How::Implicit)?;
                (TypeOid::INT4, vec![value])
            }
            ("first_value" | "last_value", 1) | ("lag" | "lead", 1) => {
                let value = self.known(values.remove(0))?;
                (value.type_oid, vec![value])
            }
            ("nth_value", 2) | ("lag" | "lead", 2) => {
                let place = self.coerce(values.remove(1), TypeOid::INT4, -1, How::Implicit)?;
                let value = self.known(values.remove(0))?;
                if matches!(name, "lag" | "lead") && place.sql.starts_with("(-") {
                    return Err(unsupported(format!("{name} with a negative distance")));
                }
                (value.type_oid, vec![value, place])
            }
            ("lag" | "lead", 3) => {
                let default = values.remove(2);
                let place = self.coerce(values.remove(1), TypeOid::INT4, -1, How::Implicit)?;
                let (both, type_oid) = self.same_type(vec![values.remove(0), default], name)?;
                let [value, default] =
                    <[Ex; 2]>::try_from(both).map_err(|_| fail("XX000", "two values stay two"))?;
                (type_oid, vec![value, place, default])
            }
            _ => return Err(no_such(&format!("function {name}"), &types)),
        };
        let call = self.joined(name, values, result);
        let mut ex = Ex::made(format!("{} OVER {}", call.sql, window.sql), result, &[&call]);
        ex.uses(&window);
        Ok(ex)
    }

    /// What stands in the parentheses of OVER.
    pub(super) fn window_spec(&mut self, spec: &WindowSpec) -> Result<Ex, SqlError> {
        let mut ex = Ex::of("", TypeOid::UNKNOWN);
        let mut parts = Vec::new();
        if let Some(base) = &spec.window_name {
            let base = fold(base);
            let known = self.scope().windows.iter().find(|(known, _)| *known == base).cloned();
            let (_, sql) = known.ok_or_else(|| fail("42704", format!("window \"{base}\" does not exist")))?;
            parts.push(quoted(&sql));
        }
        let mut keys = Vec::new();
        for key in &spec.partition_by {
            let key = self.expr(key)?;
            let key = self.known(key)?;
            check_ordered(key.type_oid, "PARTITION BY")?;
            keys.push(ordered_value(&key));
            ex.uses(&key);
        }
        if !keys.is_empty() {
            parts.push(format!("PARTITION BY {}", keys.join(", ")));
        }
        let mut sorts = Vec::new();
        let mut sort_types = Vec::new();
        for sort in &spec.order_by {
            let key = self.expr(&sort.expr)?;
            let key = self.known(key)?;
            if !types::is_enum(key.type_oid) {
                check_ordered(key.type_oid, "ORDER BY")?;
            }
            let by = sort_value(self.context, &key)?;
            sorts.push(super::query::sort_text(&by, &sort.options, key.not_null)?);
            sort_types.push(key.type_oid);
            ex.uses(&key);
        }
        if !sorts.is_empty() {
            parts.push(format!("ORDER BY {}", sorts.join(", ")));
        }
        if let Some(frame) = &spec.window_frame {
            parts.push(self.frame(frame, &sort_types)?);
        }
        ex.sql = parts.join(" ");
        Ok(ex)
    }

    fn frame(&mut self, frame: &WindowFrame, sorts: &[TypeOid]) -> Result<String, SqlError> {
        let units = match frame.units {
            WindowFrameUnits::Rows => "ROWS",
            WindowFrameUnits::Range => "RANGE",
            WindowFrameUnits::Groups => "GROUPS",
        };
        let bound = |bound: &WindowFrameBound, this: &mut Self| -> Result<String, SqlError> {
            let distance = |expr: &Expr, this: &mut Self| -> Result<String, SqlError> {
                if frame.units == WindowFrameUnits::Range {
                    let whole = sorts.len() == 1 && types::is_integer(sorts[0]);
                    if !whole {
                        return Err(unsupported("RANGE with a distance over anything but whole numbers"));
                    }
                }
                let ex = this.expr(expr)?;
                Ok(this.coerce(ex, TypeOid::INT8, -1, How::Implicit)?.sql)
            };
            Ok(match bound {
                WindowFrameBound::CurrentRow => "CURRENT ROW".to_owned(),
                WindowFrameBound::Preceding(None) => "UNBOUNDED PRECEDING".to_owned(),
                WindowFrameBound::Following(None) => "UNBOUNDED FOLLOWING".to_owned(),
                WindowFrameBound::Preceding(Some(expr)) => format!("{} PRECEDING", distance(expr, this)?),
                WindowFrameBound::Following(Some(expr)) => format!("{} FOLLOWING", distance(expr, this)?),
            })
        };
        let start = bound(&frame.start_bound, self)?;
        Ok(match &frame.end_bound {
            None => format!("{units} {start}"),
            Some(end) => format!("{units} BETWEEN {start} AND {}", bound(end, self)?),
        })
    }
}
