//! WITH queries, plain and recursive.

use polyshard_sql::ast::{Cte as AstCte, Query, SetExpr, SetOperator, SetQuantifier, Statement as Ast};
use polyshard_sql::{SqlError, TypeOid};

use super::query::known_type;
use super::{Cte, Ex, Ids, Translator, check_ordered, fold, name_parts, quoted};
use crate::fail::{fail, unsupported};
use crate::prepared::{OutColumn, Tag};
use crate::types;

impl Translator<'_> {
    /// WITH before INSERT, UPDATE or DELETE.
    pub(crate) fn write_with(
        &mut self,
        query: &Query,
    ) -> Result<(String, Option<Vec<OutColumn>>, Tag), SqlError> {
        let mut uses = Ex::of("", TypeOid::UNKNOWN);
        let with = self.with_parts(query, true, &mut uses)?;
        let ((sql, columns), tag) = match query.body.as_ref() {
            SetExpr::Insert(Ast::Insert(insert)) => (self.insert(insert)?, Tag::Insert),
            SetExpr::Update(Ast::Update(update)) => (self.update(update)?, Tag::Update),
            SetExpr::Delete(Ast::Delete(delete)) => (self.delete(delete)?, Tag::Delete),
            _ => return Err(unsupported("this write behind WITH")),
        };
        if sql.starts_with("WITH ") {
            return Err(unsupported("WITH before an INSERT of several rows with ON CONFLICT DO UPDATE"));
        }
        if with.is_empty() {
            return Ok((sql, columns, tag));
        }
        let with = format!("WITH RECURSIVE {} ", with.join(", "));
        if let Some(held) = &mut self.held {
            held.begin_with(&with);
        }
        Ok((format!("{with}{sql}"), columns, tag))
    }

    /// One of them: its part of WITH, noted for what follows.
    pub(super) fn cte(&mut self, cte: &AstCte, recursive: bool, uses: &mut Ex) -> Result<String, SqlError> {
        let name = fold(&cte.alias.name);
        let alias = self.alias("w");
        let given: Vec<String> = cte.alias.columns.iter().map(|column| fold(&column.name)).collect();
        let rename = |columns: &mut Vec<OutColumn>| -> Result<(), SqlError> {
            if given.len() > columns.len() {
                return Err(fail(
                    "42P10",
                    format!("WITH query \"{name}\" has fewer columns than names are given"),
                ));
            }
            given.iter().zip(columns.iter_mut()).for_each(|(name, column)| column.name.clone_from(name));
            Ok(())
        };
        let ids_before = std::mem::replace(&mut self.ids, Ids::None);
        if recursive
            && let SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } =
                cte.query.body.as_ref()
            && cte.query.with.is_none()
            && mentions(right, &name)
        {
            if cte.query.order_by.is_some() || cte.query.limit_clause.is_some() {
                return Err(fail("0A000", "ORDER BY or LIMIT in a recursive query is not implemented"));
            }
            let (mut first, names, _) = self.body(left, &[], uses)?;
            let wanted: Vec<TypeOid> = first.types().iter().map(|oid| known_type(*oid)).collect();
            first.coerce(self, &wanted)?;
            let mut columns: Vec<OutColumn> = names
                .into_iter()
                .zip(&wanted)
                .map(|(name, type_oid)| OutColumn { name, type_oid: *type_oid, type_mod: -1 })
                .collect();
            rename(&mut columns)?;
            self.ctes.push(Cte { name: name.clone(), alias: alias.clone(), columns: columns.clone() });
            let (mut next, ..) = self.body(right, &[], uses)?;
            let found = next.types();
            if found.len() != wanted.len() {
                return Err(fail("42601", "each UNION query must have the same number of columns"));
            }
            for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                if found != wanted && *found != TypeOid::UNKNOWN {
                    let common = self.common_type(&[*wanted, *found], "UNION")?;
                    if common != *wanted {
                        return Err(fail(
                            "42804",
                            format!(
                                "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} \
                                 overall",
                                place + 1,
                                types::display(*wanted),
                                types::display(common)
                            ),
                        )
                        .hint("Cast the output of the non-recursive term to the correct type."));
                    }
                }
            }
            next.coerce(self, &wanted)?;
            let all = match set_quantifier {
                SetQuantifier::All => "UNION ALL",
                _ => {
                    for oid in &wanted {
                        check_ordered(*oid, "UNION")?;
                    }
                    "UNION"
                }
            };
            self.ids = ids_before;
            return Ok(format!(
                "{}{} AS ({} {all} {})",
                quoted(&alias),
                column_list(wanted.len()),
                first.text(),
                next.text()
            ));
        }
        let mut made = self.query(&cte.query, None)?;
        self.ids = ids_before;
        uses.uses(&made.uses);
        rename(&mut made.columns)?;
        let hint = match &cte.materialized {
            None => "",
            Some(polyshard_sql::ast::CteAsMaterialized::Materialized) => "MATERIALIZED ",
            Some(polyshard_sql::ast::CteAsMaterialized::NotMaterialized) => "NOT MATERIALIZED ",
        };
        let count = made.columns.len();
        self.ctes.push(Cte { name, alias: alias.clone(), columns: made.columns });
        Ok(format!("{}{} AS {hint}({})", quoted(&alias), column_list(count), made.sql))
    }
}

fn column_list(count: usize) -> String {
    let names: Vec<String> = (1..=count).map(|place| format!("\"c{place}\"")).collect();
    format!("({})", names.join(", "))
}

/// Whether a part of a recursive query names the query itself.
fn mentions(body: &SetExpr, name: &str) -> bool {
    use polyshard_sql::ast::visit_relations;
    let mut found = false;
    let _ = visit_relations(body, |relation| {
        if name_parts(relation).is_ok_and(|(schema, own)| schema.is_none() && own == name) {
            found = true;
            return std::ops::ControlFlow::Break(());
        }
        std::ops::ControlFlow::Continue(())
    });
    found
}
