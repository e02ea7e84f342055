//! Datasets: tables, queues and what else stores keep under a name, and the maps that place them.

use std::fmt;
use std::str::FromStr;

use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// Characters in the separator of a rule: more than anybody means by one.
const SEPARATOR_CHARS_MAX: usize = 16;

/// What precedes the separator in a rule's text form.
const BEFORE: &str = "before:";

/// Which part of an attribute is the key: `whole`, or `before:` and a separator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeyRuleText {
    /// All of it.
    #[default]
    Whole,
    /// What stands before the first of these; all of it where there is none.
    Before(String),
}

impl FromStr for KeyRuleText {
    type Err = Problem;

    fn from_str(text: &str) -> Result<KeyRuleText, Problem> {
        let separator = match text {
            "whole" => return Ok(KeyRuleText::Whole),
            text => text.strip_prefix(BEFORE).unwrap_or_default(),
        };
        if separator.is_empty() || separator.chars().count() > SEPARATOR_CHARS_MAX {
            return Err(Problem::invalid("rule", format!("{text:?} is no rule")).with_remedy(format!(
                "say whole, or {BEFORE} and 1 to {SEPARATOR_CHARS_MAX} characters: before:-"
            )));
        }
        Ok(KeyRuleText::Before(separator.to_owned()))
    }
}

impl fmt::Display for KeyRuleText {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyRuleText::Whole => to.write_str("whole"),
            KeyRuleText::Before(separator) => write!(to, "{BEFORE}{separator}"),
        }
    }
}

/// One dataset, or the name of one that is bound and does not exist yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Dataset)]
pub struct DatasetView {
    /// Its store and name: `table:account/orders`.
    pub dataset: String,
    /// The map that places it.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The attribute that its items' keys are derived from.
    pub key: String,
    /// Which part of it: `whole`, or `before:` and a separator.
    pub rule: String,
    /// Whether it exists, or is a name that is bound only.
    pub exists: bool,
    /// Whether an operator bound its name. One that exists may still be placed otherwise, for a moment or until all
    /// shards can be reached.
    pub bound: bool,
}

/// All datasets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Datasets)]
pub struct DatasetsAnswer {
    /// Sorted by store and name.
    pub datasets: Vec<DatasetView>,
}

/// Have a dataset placed by a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BindRequest {
    /// `table:orders`, `queue:jobs`; of another account than the first configured one, `table:account/orders`. With a
    /// `*`, as in `queue:*-jobs`, it is whatever is created from then on and fits.
    pub dataset: String,
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The attribute that keys are derived from. `GET /v1/stores` lists those of each store; the first one is taken if
    /// none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Which part of it is the key: `whole`, which is the default, or `before:` and a separator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Forget what a name is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnbindRequest {
    /// As with binding.
    pub dataset: String,
}

#[cfg(test)]
mod tests {
    use super::KeyRuleText;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["whole", "before:-", "before:::"] {
            assert_eq!(text.parse::<KeyRuleText>().unwrap().to_string(), text);
        }
        for wrong in ["", "before", "before:", "after:-", "before:aaaaaaaaaaaaaaaaa"] {
            assert_eq!(wrong.parse::<KeyRuleText>().unwrap_err().field.as_deref(), Some("rule"), "{wrong}");
        }
    }
}
