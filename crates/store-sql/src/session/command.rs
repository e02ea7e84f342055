//! Commands called as functions of the schema `polyshard`.

use polyshard_sql::{Argument, Param, ParamValue, PolyshardCall, SqlError, SqlState};

use super::{Done, Session};
use crate::reply::{self, Field};

impl Session {
    /// Carries out a command; its answer is one row of one text.
    pub(super) async fn command(&mut self, call: &PolyshardCall, params: &[Param<'_>]) -> Done {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(match argument {
                Argument::Null => None,
                Argument::Text(text) => Some(text.clone()),
                Argument::Parameter(number) => parameter(params, *number)?,
            });
        }
        let answer = self.carry_out(call, &arguments).await?;
        self.columns(&[Field::text(&call.function)]);
        reply::data_row(&mut self.client.out, [answer.as_deref()].into_iter());
        reply::complete(&mut self.client.out, "SELECT 1");
        Ok(())
    }

    /// Tells the columns of an answer, where the protocol wants it.
    pub(super) fn columns(&mut self, fields: &[Field]) {
        if !self.extended {
            reply::row_description(&mut self.client.out, fields, |_| false);
        }
    }

    async fn carry_out(
        &mut self,
        call: &PolyshardCall,
        _arguments: &[Option<String>],
    ) -> Result<Option<String>, SqlError> {
        Err(SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            format!("function polyshard.{}() does not exist", call.function),
        ))
    }
}

fn parameter(params: &[Param<'_>], number: u32) -> Result<Option<String>, SqlError> {
    let wrong = |why: &'static str| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, why);
    let given = number.checked_sub(1).and_then(|at| params.get(at as usize));
    match given.map(|param| param.value) {
        None => Err(wrong("a parameter is missing")),
        Some(ParamValue::Null) => Ok(None),
        // The door says that all of them are texts, whose two forms are the same.
        Some(ParamValue::Text(text) | ParamValue::Binary(text)) => {
            let text = std::str::from_utf8(text).map_err(|_| wrong("a parameter is not UTF-8"))?;
            Ok(Some(text.to_owned()))
        }
    }
}
