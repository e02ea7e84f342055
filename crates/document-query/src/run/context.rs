//! What an evaluation reads and the limits it counts down.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::error::{ErrorCode, QueryError};
use crate::limits::{REGEX_CACHED_MAX, STEPS_PER_DOCUMENT_MAX, VALUE_BYTES_MAX};
use crate::value::Value;

/// Runs the functions that queries call as `udf.name(…)`.
pub trait UserFunctions: Send + Sync {
    /// Calls one function. The error is the text for the client.
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String>;
}

/// What a context is made from.
pub(crate) struct Settings {
    pub slots: usize,
    pub parameters: Arc<[Value]>,
    pub now_ticks: i64,
    pub seed: u64,
    pub functions: Option<Arc<dyn UserFunctions>>,
    pub regex_bytes: usize,
    pub scratch_bytes: usize,
}

/// The state of one evaluation.
pub(crate) struct Context {
    pub slots: Vec<Value>,
    /// The document, or the row of the sub-query that feeds this one.
    pub root: Value,
    pub parameters: Arc<[Value]>,
    pub now_ticks: i64,
    random: u64,
    functions: Option<Arc<dyn UserFunctions>>,
    regexes: HashMap<(Arc<str>, Arc<str>), Option<Regex>>,
    regex_bytes: usize,
    steps_left: u64,
    scratch_left: usize,
    scratch_max: usize,
}

impl Context {
    pub fn new(settings: Settings) -> Self {
        Context {
            slots: vec![Value::Undefined; settings.slots],
            root: Value::Undefined,
            parameters: settings.parameters,
            now_ticks: settings.now_ticks,
            random: settings.seed,
            functions: settings.functions,
            regexes: HashMap::new(),
            regex_bytes: settings.regex_bytes,
            steps_left: STEPS_PER_DOCUMENT_MAX,
            scratch_left: settings.scratch_bytes,
            scratch_max: settings.scratch_bytes,
        }
    }

    /// Starts on the next document, with all its limits new.
    pub fn start(&mut self, root: Value) {
        self.root = root;
        self.steps_left = STEPS_PER_DOCUMENT_MAX;
        self.scratch_left = self.scratch_max;
    }

    /// Counts work down.
    pub fn step(&mut self, steps: u64) -> Result<(), QueryError> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or_else(|| {
            let message =
                "The query takes too many steps for one document. Use fewer JOINs or filter in a subquery.";
            QueryError::new(ErrorCode::TooMuchWork, message)
        })?;
        Ok(())
    }

    /// Counts down the memory of sub-query results.
    pub fn charge(&mut self, value: &Value) -> Result<(), QueryError> {
        self.charge_bytes(value.state_bytes())
    }

    /// Counts down memory until the next document.
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.scratch_left = self.scratch_left.checked_sub(bytes).ok_or_else(too_much_state)?;
        Ok(())
    }

    /// Refuses values that are too large to hand on.
    pub fn checked(&self, value: Value) -> Result<Value, QueryError> {
        let fits = match &value {
            Value::String(text) => text.len() <= VALUE_BYTES_MAX,
            Value::Array(_) | Value::Object(_) => value.fits(VALUE_BYTES_MAX),
            _ => true,
        };
        if fits { Ok(value) } else { Err(value_too_large()) }
    }

    pub fn call_user(&mut self, name: &str, arguments: &[Value]) -> Result<Value, QueryError> {
        let Some(functions) = &self.functions else {
            let message = format!("The user-defined function '{name}' is not available.");
            return Err(QueryError::new(ErrorCode::UserFunction, message));
        };
        let result = functions
            .call(name, arguments)
            .map_err(|error| QueryError::new(ErrorCode::UserFunction, error))?;
        self.checked(result)
    }

    /// The next random number in [0, 1), by SplitMix64.
    pub fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The compiled pattern; none when the pattern or its modifiers are invalid or too large.
    pub fn regex(&mut self, pattern: &Arc<str>, modifiers: &Arc<str>) -> Option<&Regex> {
        let key = (Arc::clone(pattern), Arc::clone(modifiers));
        if self.regexes.len() >= REGEX_CACHED_MAX && !self.regexes.contains_key(&key) {
            self.regexes.clear();
        }
        let bytes = self.regex_bytes;
        self.regexes.entry(key).or_insert_with(|| compile_regex(pattern, modifiers, bytes)).as_ref()
    }
}

fn compile_regex(pattern: &str, modifiers: &str, bytes: usize) -> Option<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(bytes).dfa_size_limit(bytes);
    for modifier in modifiers.chars() {
        match modifier {
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            _ => return None,
        };
    }
    builder.build().ok()
}

pub(crate) fn too_much_state() -> QueryError {
    let message = "The query needs more memory than one execution may use for sorting, grouping or DISTINCT. Filter \
                   the documents or use fewer groups.";
    QueryError::new(ErrorCode::StateTooLarge, message)
}

pub(crate) fn value_too_large() -> QueryError {
    let message =
        format!("A value of the query is larger than {VALUE_BYTES_MAX} bytes or nested too deeply.");
    QueryError::new(ErrorCode::ValueTooLarge, message)
}
