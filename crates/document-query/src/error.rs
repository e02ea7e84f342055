//! What is wrong with a query, in the service's form: every error here is the client's to fix.

use std::fmt;

use crate::value::write_json_string;

/// Why a query is refused. The service's own code is known for some of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The text does not follow the grammar.
    Syntax,
    /// A name is neither a source nor an alias in scope.
    UnresolvedName,
    /// No built-in function has the name.
    UnknownFunction,
    /// A function has too few or too many arguments.
    ArgumentCount,
    /// An aggregate contains an aggregate or a sub-query.
    NestedAggregate,
    /// An aggregate stands where there are no groups, such as WHERE.
    MisplacedAggregate,
    /// The select list of a grouped query uses a property that is not grouped.
    UngroupedProperty,
    /// `SELECT *` together with GROUP BY.
    StarWithGroupBy,
    /// `SELECT *` without exactly one source.
    StarWithoutSingleSource,
    /// A TOP count that is not an integer or beyond [`COUNT_MAX`](crate::COUNT_MAX).
    TopNotInteger,
    /// An OFFSET count that is not an integer or beyond [`COUNT_MAX`](crate::COUNT_MAX).
    OffsetTooLarge,
    /// A LIMIT count that is not an integer or beyond [`COUNT_MAX`](crate::COUNT_MAX).
    LimitTooLarge,
    /// ORDER BY in a sub-query.
    OrderByInSubquery,
    /// TOP in a sub-query.
    TopInSubquery,
    /// OFFSET LIMIT in a sub-query.
    WindowInSubquery,
    /// An ORDER BY item that is not a path.
    OrderByNotPath,
    /// A part of the language that this implementation does not have.
    Unsupported,
    /// The text passes one of the [`Limits`](crate::Limits).
    TooComplex,
    /// The query names a parameter that the request does not have.
    MissingParameter,
    /// A scalar sub-query returned more than one row.
    SubqueryRows,
    /// A value passes [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) or [`VALUE_DEPTH_MAX`](crate::VALUE_DEPTH_MAX).
    ValueTooLarge,
    /// Sorting, grouping or DISTINCT needs more memory than the execution may use.
    StateTooLarge,
    /// One document takes more than [`STEPS_PER_DOCUMENT_MAX`](crate::STEPS_PER_DOCUMENT_MAX) steps.
    TooMuchWork,
    /// A user function failed.
    UserFunction,
}

impl ErrorCode {
    /// The service's code, where one is known.
    pub fn as_str(self) -> Option<&'static str> {
        Some(match self {
            ErrorCode::Syntax => "SC1001",
            ErrorCode::UnresolvedName => "SC2001",
            ErrorCode::UnknownFunction => "SC2005",
            ErrorCode::StarWithGroupBy => "SC2041",
            ErrorCode::ArgumentCount => "SC2050",
            ErrorCode::TopNotInteger => "SC2060",
            ErrorCode::LimitTooLarge => "SC2061",
            ErrorCode::OffsetTooLarge => "SC2062",
            ErrorCode::NestedAggregate => "SC2101",
            ErrorCode::UngroupedProperty => "SC2102",
            ErrorCode::OrderByInSubquery => "SC2202",
            ErrorCode::TopInSubquery => "SC2203",
            ErrorCode::WindowInSubquery => "SC2204",
            ErrorCode::OrderByNotPath => "SC2206",
            _ => return None,
        })
    }
}

/// An error with its place in the text. Displays as the bare message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    code: ErrorCode,
    message: String,
    location: Option<(usize, usize)>,
}

impl QueryError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        QueryError { code, message: message.into(), location: None }
    }

    /// Adds the place, given in bytes of `text`; clients count UTF-16 units.
    pub(crate) fn at(mut self, text: &str, start: usize, end: usize) -> Self {
        let units = |bytes: usize| text[..bytes].encode_utf16().count();
        self.location = Some((units(start), units(end)));
        self
    }

    /// The kind of error.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Start and end of the refused text, in UTF-16 units from the beginning of the query.
    pub fn location(&self) -> Option<(usize, usize)> {
        self.location
    }

    /// The `{"errors":[…]}` text that the service puts into the message of a 400 response.
    pub fn to_service_json(&self) -> String {
        let mut out = String::from("{\"errors\":[{\"severity\":\"Error\"");
        if let Some((start, end)) = self.location {
            out.push_str(&format!(",\"location\":{{\"start\":{start},\"end\":{end}}}"));
        }
        if let Some(code) = self.code.as_str() {
            out.push_str(&format!(",\"code\":\"{code}\""));
        }
        out.push_str(",\"message\":");
        write_json_string(&self.message, &mut out);
        out.push_str("}]}");
        out
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}
