//! Operators: which of PostgreSQL's is meant, and how SQLite computes it.

use polyshard_engine::Value as Stored;
use polyshard_sql::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use polyshard_sql::{SqlError, TypeOid};

use super::expr::{no_such, shown};
use super::{Ex, How, Translator, literal};
use crate::fail::{fail, unsupported};
use crate::rules::{self, Choice, Rule};
use crate::types;

impl Translator<'_> {
    pub(super) fn unary(&mut self, op: &UnaryOperator, expr: &Expr) -> Result<Ex, SqlError> {
        let name = match op {
            UnaryOperator::Not => {
                let inner = self.condition(expr, "NOT")?;
                return Ok(Ex::made(format!("(NOT {})", inner.sql), TypeOid::BOOL, &[&inner]));
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::Minus => {
                if let Expr::Value(value) = expr
                    && let Value::Number(digits, _) = &value.value
                {
                    return self.negative_number(digits);
                }
                "-"
            }
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            UnaryOperator::BitwiseNot => "~",
            other => return Err(unsupported(format!("the operator {other}"))),
        };
        let inner = self.expr(expr)?;
        let given = [inner.type_oid];
        let found =
            rules::operators().get(name).into_iter().flatten().filter(|rule| rule.arguments.len() == 1);
        let rule = self.chosen(rules::choose(found, &given), &format!("operator {name}"), &given)?;
        self.apply(rule, vec![inner])
    }

    /// The sign is part of a literal: -2147483648 is an integer.
    fn negative_number(&mut self, digits: &str) -> Result<Ex, SqlError> {
        self.number(&format!("-{digits}"))
    }

    pub(super) fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Ex, SqlError> {
        if let BinaryOperator::And | BinaryOperator::Or = op {
            let name = if *op == BinaryOperator::And { "AND" } else { "OR" };
            let (a, b) = (self.condition(left, name)?, self.condition(right, name)?);
            return Ok(Ex::made(format!("({} {name} {})", a.sql, b.sql), TypeOid::BOOL, &[&a, &b]));
        }
        let name = operator_name(op)?;
        if let Some(compared) = super::compare::Comparison::parse(name) {
            return self.comparison(left, compared, right);
        }
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        self.operator(name, left, right)
    }

    /// An operator of the rules.
    pub fn operator(&mut self, name: &str, left: Ex, right: Ex) -> Result<Ex, SqlError> {
        let given = [left.type_oid, right.type_oid];
        if name == "||" {
            return self.concatenation(left, right);
        }
        if let "@>" | "<@" | "&&" = name
            && given.iter().any(|oid| types::is_array(*oid))
        {
            return self.array_sets(name, left, right);
        }
        let found =
            rules::operators().get(name).into_iter().flatten().filter(|rule| rule.arguments.len() == 2);
        let rule = self.chosen(rules::choose(found, &given), &format!("operator {name}"), &given)?;
        self.apply(rule, vec![left, right])
    }

    fn concatenation(&mut self, left: Ex, right: Ex) -> Result<Ex, SqlError> {
        let (a, b) = (left.type_oid, right.type_oid);
        if types::is_array(a) || types::is_array(b) {
            return self.array_concatenation(left, right);
        }
        let stringy = |oid| types::category(oid) == 'S';
        let is_own = |oid| matches!(oid, TypeOid::BYTEA | TypeOid::JSONB);
        if (is_own(a) || is_own(b)) && !(stringy(a) || stringy(b)) {
            let found = rules::operators().get("||").into_iter().flatten();
            let rule = self.chosen(rules::choose(found, &[a, b]), "operator ||", &[a, b])?;
            return self.apply(rule, vec![left, right]);
        }
        let unknown = |oid| oid == TypeOid::UNKNOWN;
        if !(stringy(a) || stringy(b) || unknown(a) || unknown(b)) {
            return Err(no_such("operator ||", &[a, b]));
        }
        let (left, right) = (self.as_text(left)?, self.as_text(right)?);
        Ok(Ex::made(format!("({} || {})", left.sql, right.sql), TypeOid::TEXT, &[&left, &right]))
    }

    /// As `::text` gives it.
    #[allow(clippy::wrong_self_convention, reason = "it may note a parameter's type")]
    pub fn as_text(&mut self, ex: Ex) -> Result<Ex, SqlError> {
        self.coerce(ex, TypeOid::TEXT, -1, How::Explicit)
    }

    /// The rule chosen, or why none is.
    pub fn chosen(
        &self,
        choice: Choice<'static>,
        what: &str,
        given: &[TypeOid],
    ) -> Result<&'static Rule, SqlError> {
        match choice {
            Choice::One(rule) if rule.is_refused() => {
                let types: Vec<String> = rule.arguments.iter().map(|oid| types::display(*oid)).collect();
                Err(unsupported(format!("{what} for {}", types.join(", "))))
            }
            Choice::One(rule) => Ok(rule),
            Choice::None => Err(no_such(what, given)),
            Choice::Several => Err(fail("42725", format!("{what} is not unique: {}", shown(given)))
                .hint("Could not choose a best candidate. You might need to add explicit type casts.")),
        }
    }

    /// Puts the arguments, as the types the rule wants, into its template.
    pub fn apply(&mut self, rule: &Rule, arguments: Vec<Ex>) -> Result<Ex, SqlError> {
        let mut made = Vec::with_capacity(arguments.len());
        for (argument, wanted) in arguments.into_iter().zip(&rule.arguments) {
            let polymorphic = *wanted == types::oid::ANYARRAY || *wanted == types::oid::ANYELEMENT;
            made.push(if polymorphic {
                self.known(argument)?
            } else {
                self.coerce(argument, *wanted, -1, How::Implicit)?
            });
        }
        let mut sql = rule.template.to_owned();
        for (place, argument) in made.iter().enumerate() {
            sql = sql.replace(&format!("{{{place}}}"), &argument.sql);
        }
        if sql.contains("{zone}") {
            sql = sql.replace("{zone}", &self.zone());
        }
        if sql.contains("{user}") {
            sql = sql.replace("{user}", &literal(&Stored::from(self.settings.user.as_str())));
        }
        if sql.contains("{now}") {
            let now = self.parameter(crate::prepared::Source::Transaction);
            sql = sql.replace("{now}", &now);
        }
        if sql.contains("{process}") {
            let process = self.parameter(crate::prepared::Source::Process);
            sql = sql.replace("{process}", &process);
        }
        if sql.contains("{statement}") {
            let now = self.parameter(crate::prepared::Source::Statement);
            sql = sql.replace("{statement}", &now);
        }
        let parts: Vec<&Ex> = made.iter().collect();
        Ok(Ex::made(sql, rule.result, &parts))
    }

    pub(super) fn like(
        &mut self,
        expr: &Expr,
        pattern: &Expr,
        escape: Option<&Expr>,
        negated: bool,
        fold_case: u8,
    ) -> Result<Ex, SqlError> {
        let (subject, pattern) = (self.expr(expr)?, self.expr(pattern)?);
        for side in [&subject, &pattern] {
            if !matches!(side.type_oid, TypeOid::UNKNOWN | TypeOid::TEXT | TypeOid::VARCHAR | TypeOid::NAME) {
                let given = [subject.type_oid, pattern.type_oid];
                if given.iter().any(|oid| matches!(*oid, TypeOid::BPCHAR | TypeOid::BYTEA)) {
                    return Err(unsupported("LIKE on character(n) or bytea"));
                }
                return Err(no_such("operator ~~", &given));
            }
        }
        let subject = self.coerce(subject, TypeOid::TEXT, -1, How::Implicit)?;
        let pattern = self.coerce(pattern, TypeOid::TEXT, -1, How::Implicit)?;
        let escape = match escape {
            None => Ex::of("'\\'", TypeOid::TEXT),
            Some(escape) => {
                let escape = self.expr(escape)?;
                self.coerce(escape, TypeOid::TEXT, -1, How::Implicit)?
            }
        };
        let call = format!("pg_like({}, {}, {}, {fold_case})", subject.sql, pattern.sql, escape.sql);
        let sql = if negated { format!("(NOT {call})") } else { call };
        Ok(Ex::made(sql, TypeOid::BOOL, &[&subject, &pattern, &escape]))
    }
}

/// The operator as PostgreSQL writes it.
fn operator_name(op: &BinaryOperator) -> Result<&str, SqlError> {
    Ok(match op {
        BinaryOperator::Plus => "+",
        BinaryOperator::Minus => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        BinaryOperator::StringConcat => "||",
        BinaryOperator::Gt => ">",
        BinaryOperator::Lt => "<",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::BitwiseOr => "|",
        BinaryOperator::BitwiseAnd => "&",
        BinaryOperator::PGBitwiseXor => "#",
        BinaryOperator::PGBitwiseShiftLeft => "<<",
        BinaryOperator::PGBitwiseShiftRight => ">>",
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => "^",
        BinaryOperator::PGRegexMatch => "~",
        BinaryOperator::PGRegexIMatch => "~*",
        BinaryOperator::PGRegexNotMatch => "!~",
        BinaryOperator::PGRegexNotIMatch => "!~*",
        BinaryOperator::PGLikeMatch => "~~",
        BinaryOperator::PGILikeMatch => "~~*",
        BinaryOperator::PGNotLikeMatch => "!~~",
        BinaryOperator::PGNotILikeMatch => "!~~*",
        BinaryOperator::PGStartsWith => "^@",
        BinaryOperator::Arrow => "->",
        BinaryOperator::LongArrow => "->>",
        BinaryOperator::HashArrow => "#>",
        BinaryOperator::HashLongArrow => "#>>",
        BinaryOperator::HashMinus => "#-",
        BinaryOperator::PGOverlap => "&&",
        BinaryOperator::AtArrow => "@>",
        BinaryOperator::ArrowAt => "<@",
        BinaryOperator::Question => "?",
        BinaryOperator::QuestionAnd => "?&",
        BinaryOperator::QuestionPipe => "?|",
        BinaryOperator::PGCustomBinaryOperator(parts) => match &parts[..] {
            [schema, name] if schema.eq_ignore_ascii_case("pg_catalog") => name,
            [name] => name,
            _ => return Err(unsupported(format!("the operator {op}"))),
        },
        other => return Err(unsupported(format!("the operator {other}"))),
    })
}
