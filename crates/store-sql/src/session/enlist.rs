//! Functions of other stores, run inside the client's transaction on its own session (H2).

use std::sync::Arc;

use polyshard_engine::{Dialect, Rows, Statement};
use polyshard_map::{Key, MapName};
use polyshard_router::{Access, RouterError};
use polyshard_shard::Dataset;
use polyshard_sql::{Argument, PolyshardCall, SqlError, SqlState, TypeOid};
use polyshard_store::rights::{AccessCheck, Right, Users};
use polyshard_store::{Call, ErrorKind, Function, Parameter, ParameterKind, Step};

use super::place::Wanted;
use super::{Done, Session, Stop};
use crate::enlist::dataset_of;
use crate::reply::{self, state};

impl Session {
    /// The function of another store that a call means, if it means one.
    pub(super) fn store_function(&self, call: &PolyshardCall) -> Option<&'static Function> {
        self.door.calls.find(&call.function).map(|(_, function, _)| function)
    }

    /// What a client is told that a parameter of a call is, if it does not know better: many take what they are given
    /// for that type and no other.
    pub(super) fn parameter_type(&self, call: &PolyshardCall, parameter: usize) -> TypeOid {
        let Some(function) = self.store_function(call) else { return TypeOid::TEXT };
        let is_meant = |argument: &Argument| *argument == Argument::Parameter(parameter as u32 + 1);
        let Some(at) = call.arguments.iter().position(is_meant) else { return TypeOid::TEXT };
        let named = call.names.get(at).and_then(Option::as_deref);
        let parameter = match named {
            Some(name) => function.parameters.iter().find(|parameter| parameter.name == name),
            None => function.parameters.get(at),
        };
        match parameter.map(|parameter| parameter.kind) {
            Some(ParameterKind::Seconds) => TypeOid::INT8,
            Some(ParameterKind::Text) | None => TypeOid::TEXT,
        }
    }

    /// Carries out a call of another store's function; its answer is one text, or NULL.
    pub(super) async fn call_store(
        &mut self,
        function: &Function,
        call: &PolyshardCall,
        given: &[Option<String>],
    ) -> Result<Option<String>, Stop> {
        let arguments = in_order(function, call, given)?;
        let Some((store, _, calls)) = self.door.calls.find(function.name) else { return Ok(None) };
        let calls = calls.clone();
        let table = dataset_of(store, &self.door.host.configured().values, &arguments);
        let check = |map, keys, writes: bool| AccessCheck {
            right: if writes { Right::Write } else { Right::Read },
            store,
            table: Some(table.as_str()),
            map,
            keys,
        };
        let mut call = match calls.prepare(function.name, arguments).await {
            Ok(call) => call,
            Err(error) => {
                if error.kind == ErrorKind::NoDataset {
                    // What there is not is in no map: only a right on all keys says that it may be looked for.
                    self.check_right(&check(None, None, false))?;
                }
                return Err(reply::of_store(&error).into());
            }
        };
        let writes = call.access() == Access::Write;
        let judged_by = self.judged_by();
        self.check_right(&check(Some(call.map()), Some(std::slice::from_ref(call.key())), writes))?;
        if writes {
            self.check_may_write()?;
        }
        if self.transaction.is_none() && self.backend.is_some() {
            // As for other writes that need a transaction of their own: what the series did so far is committed.
            self.told = false;
            self.end_series().await?;
            if self.told {
                return Err(Stop::Told);
            }
        }
        let alone = self.begin_alone();
        let mut answer = None;
        let done = match self.enlist(call.as_mut(), judged_by).await {
            Ok(said) => {
                answer = said;
                Ok(())
            }
            Err(stop) => Err(stop),
        };
        self.end_alone(alone, done).await?;
        Ok(answer)
    }

    /// A transaction that only reads, or that is on every shard, writes nothing of another store.
    fn check_may_write(&self) -> Done {
        if self.transaction.read_only {
            let message = "cannot write to a store in a read-only transaction";
            return Err(SqlError::new(state::READ_ONLY, message).into());
        }
        if self.embedded && self.is_on_backends() {
            return Err(SqlError::unsupported(
                "a transaction on several SQLite shards cannot write to other stores",
                "Call the function in a transaction of its own.",
            )
            .into());
        }
        if self.transaction.global.is_some() || self.transaction.lite_turn.is_some() {
            return Err(SqlError::unsupported(
                "a transaction that changes what every shard has cannot write what one shard has",
                "Change schema and reference tables in a transaction of their own.",
            )
            .into());
        }
        Ok(())
    }

    async fn enlist(
        &mut self,
        call: &mut dyn Call,
        judged_by: Option<Arc<Users>>,
    ) -> Result<Option<String>, Stop> {
        let access = call.access();
        // It is about no table, whatever has become of those that the statement before it was about.
        self.routed_by = None;
        let keys: Vec<(MapName, Vec<Key>)> = vec![(call.map().clone(), vec![call.key().clone()])];
        let shard = {
            let view = self.door.router.view();
            let known = view.maps.get(call.map());
            let known = known.ok_or_else(|| reply::of_router(&RouterError::NoSuchMap(call.map().clone())))?;
            let located = known.map.locate(call.key());
            located.map_err(|error| reply::of_router(&RouterError::Locate(error)))?.shard().clone()
        };
        let wanted = Wanted::Keys { keys: &keys, ranges: &[], shard: &shard };
        if self.embedded {
            return self.enlist_lite(call, &wanted, access).await;
        }
        let joined = self.backend.is_some();
        self.acquire(&wanted, access).await?;
        if !self.is_judged_by(judged_by.as_ref()) {
            return Err(super::place::outdated().into());
        }
        self.transaction.movable = false;
        let dialect = self.backend.as_ref().map_or(Dialect::Postgres, |backend| backend.dialect());
        for dataset in call.registration(dialect) {
            match access {
                Access::Write => self.let_shard_know(&dataset, joined).await?,
                // It was looked up before there was a ticket: see there.
                Access::Read => {
                    let known = self.door.router.check_dataset_on_shards(&dataset.name);
                    known.map_err(|error| reply::of_router(&error))?;
                }
            }
        }
        self.note_write(access == Access::Write);
        let mut answer: Option<Rows> = None;
        loop {
            match call.step(dialect, answer.as_ref()).map_err(|error| reply::of_store(&error))? {
                Step::Run(statement) => answer = Some(self.run_for_store(&statement).await?),
                Step::Done(said) => return Ok(said),
            }
        }
    }

    /// Lets the shard know of a dataset before its first row there.
    async fn let_shard_know(&mut self, dataset: &Dataset, joined: bool) -> Done {
        let router = self.door.router.clone();
        let Some(backend) = &mut self.backend else { return Ok(()) };
        let bound = router.bind(backend.ticket(), dataset).await;
        // It was looked up before there was a ticket: see there.
        let bound = bound.and_then(|()| router.check_dataset_on_shards(&dataset.name));
        bound.map_err(|error| reply::of_router(&error))?;
        if !joined {
            return Ok(());
        }
        // A transaction with a snapshot of before would write rows that a move under way takes for nobody's: its
        // triggers look the dataset up in that snapshot.
        let sql =
            format!("SELECT 1 FROM {} WHERE name = $1 AND map = $2", backend.dialect().own_table("dataset"));
        let known = Statement::new(sql).bind(dataset.name.clone()).bind(dataset.map.to_string());
        if self.run_for_store(&known).await?.is_empty() {
            let message = format!("{} is new on this shard since the transaction began", dataset.name);
            return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again.").into());
        }
        Ok(())
    }

    /// Runs a statement of another store's on the shard's session, inside the transaction that is open there.
    async fn run_for_store(&mut self, statement: &Statement) -> Result<Rows, Stop> {
        self.begun().await?;
        let Some(backend) = &mut self.backend else { return Err(Stop::Told) };
        match backend.run_rows(statement).await {
            Ok(rows) => Ok(rows),
            Err(error @ polyshard_engine::Error::Unavailable { .. }) => {
                Err(self.lose(reply::of_engine(&error), true).await)
            }
            Err(error) => Err(reply::of_engine(&error).into()),
        }
    }
}

/// The arguments of a call in the order of the function's parameters: first those without a name, then by name.
fn in_order(
    function: &Function,
    call: &PolyshardCall,
    given: &[Option<String>],
) -> Result<Vec<Option<String>>, SqlError> {
    let Function { name, parameters, .. } = function;
    let signature = || {
        let shown = |one: &Parameter| {
            if one.required { one.name.to_owned() } else { format!("[{}]", one.name) }
        };
        let parameters: Vec<_> = parameters.iter().map(shown).collect();
        format!("polyshard.{name}({}): arguments are literals or parameters", parameters.join(", "))
    };
    let wrong = |state: SqlState, message: String| SqlError::new(state, message).hint(signature());
    let mut arguments: Vec<Option<Option<String>>> = vec![None; parameters.len()];
    let mut named = false;
    for (at, value) in given.iter().enumerate() {
        let place = match call.names.get(at).and_then(Option::as_deref) {
            Some(written) => {
                named = true;
                parameters.iter().position(|parameter| parameter.name == written)
            }
            None if named => {
                let message = "positional argument cannot follow named argument";
                return Err(wrong(SqlState::SYNTAX_ERROR, message.to_owned()));
            }
            None => Some(at),
        };
        match place.and_then(|place| arguments.get_mut(place)) {
            Some(slot @ None) => *slot = Some(value.clone()),
            _ => {
                let message = format!("polyshard.{name} does not take these arguments");
                return Err(wrong(SqlState::UNDEFINED_FUNCTION, message));
            }
        }
    }
    for (at, argument) in arguments.iter().enumerate().take(function.required()) {
        match argument {
            None => {
                let message = format!("polyshard.{name} needs {}", parameters[at].name);
                return Err(wrong(SqlState::UNDEFINED_FUNCTION, message));
            }
            Some(None) => {
                let message = format!("{} of polyshard.{name} cannot be NULL", parameters[at].name);
                return Err(wrong(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            Some(Some(_)) => {}
        }
    }
    Ok(arguments.into_iter().map(Option::flatten).collect())
}
