//! Values of PostgreSQL's types as SQLite files keep them: the expressions that PostgreSQL reads and writes these by.

use polyshard_engine::Value;
use polyshard_map::Key;

/// The types that files keep in another form than PostgreSQL reads or writes, or in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// None of them.
    Other,
    /// Days since 2000-01-01.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 2000-01-01.
    Timestamp,
    /// Likewise, in UTC.
    TimestampTz,
    /// Months, days and microseconds, with blanks between them.
    Interval,
    /// Sixteen bytes.
    Uuid,
    /// Without the blanks at its end.
    Char,
    /// Its label, in the order of texts.
    Enum,
    /// The text that PostgreSQL prints; of one dimension, which begins at 1.
    Array,
    /// Likewise, with all moments in UTC.
    Moments,
    /// Documents: their text, which PostgreSQL puts in another order.
    Document,
    /// All but NaN.
    Float,
}

/// Kept for infinity, of dates and timestamps alike, and the other way with a minus.
const INFINITY: &str = "9223372036854775807";
const MINUS_INFINITY: &str = "-9223372036854775808";

impl Native {
    /// By what PostgreSQL calls the type.
    pub(crate) fn of(name: &str) -> Native {
        match name {
            "date" => Native::Date,
            "time" => Native::Time,
            "timestamp" => Native::Timestamp,
            "timestamptz" => Native::TimestampTz,
            "interval" => Native::Interval,
            "uuid" => Native::Uuid,
            "bpchar" => Native::Char,
            "an enum" => Native::Enum,
            "an array" => Native::Array,
            "_timestamptz" => Native::Moments,
            "json" | "jsonb" => Native::Document,
            "float4" | "float8" => Native::Float,
            _ => Native::Other,
        }
    }

    /// Whether files keep it as a number that is counted from some beginning.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Native::Date | Native::Time | Native::Timestamp | Native::TimestampTz)
    }

    /// Whether files put its values in the order that PostgreSQL does, once they are as files keep them.
    pub(crate) fn is_ordered_alike(self) -> bool {
        !matches!(self, Native::Interval | Native::Array | Native::Moments | Native::Document)
    }

    /// What files keep of a value.
    pub(crate) fn read(self, value: &str) -> String {
        let counted = |count: String| {
            format!(
                "CASE WHEN {value} = 'infinity' THEN {INFINITY} WHEN {value} = '-infinity' \
                 THEN '{MINUS_INFINITY}'::bigint ELSE {count} END"
            )
        };
        // Of a difference: the epoch of the last moments that there are is rounded.
        let micros = |of: String| format!("(extract(epoch FROM {of}) * 1000000)::bigint");
        match self {
            Native::Date => counted(format!("({value} - DATE '2000-01-01')::bigint")),
            Native::Time => micros(value.to_owned()),
            Native::Timestamp => counted(micros(format!("{value} - TIMESTAMP '2000-01-01'"))),
            Native::TimestampTz => counted(micros(format!("{value} - TIMESTAMPTZ '2000-01-01 00:00:00+00'"))),
            Native::Interval => format!(
                "((extract(year FROM {value}) * 12 + extract(month FROM {value}))::bigint || ' ' || \
                 extract(day FROM {value})::bigint || ' ' || (extract(hour FROM {value}) * 3600000000 + \
                 extract(minute FROM {value}) * 60000000 + extract(microseconds FROM {value}))::bigint)"
            ),
            Native::Uuid => format!("uuid_send({value})"),
            // How a server prints moments depends on its settings.
            Native::Moments => format!(
                "CASE WHEN {value} IS NULL OR array_ndims({value}) > 1 OR array_lower({value}, 1) <> 1 \
                 THEN ({value})::text ELSE (SELECT COALESCE(array_agg(CASE WHEN isfinite(m) THEN \
                 regexp_replace((m AT TIME ZONE 'UTC')::text, '( BC)?$', '+00\\1') ELSE m::text END ORDER BY n), \
                 '{{}}')::text FROM unnest({value}) WITH ORDINALITY AS each(m, n)) END"
            ),
            _ => crate::shape::as_text(value),
        }
    }

    /// The value of a type, of what files keep: the text of it, or PostgreSQL's own notation.
    pub(crate) fn parameter(self, number: usize, kind: &str) -> String {
        let text = format!("${number}::text");
        let whole = format!("({text})::bigint");
        let cast = format!("CAST({text} AS {kind})");
        // Numbers that are multiplied by an interval lose microseconds.
        let since = format!(
            "(TIMESTAMP '2000-01-01' + make_interval(days => ({whole} / 86400000000)::int, \
             secs => ({whole} % 86400000000) / 1000000::float8))"
        );
        let parts = |micros: &str| {
            format!("({micros} % 3600000000 / 60000000)::int, ({micros} % 60000000) / 1000000::float8")
        };
        let count = match self {
            Native::Date => format!("DATE '2000-01-01' + ({text})::int"),
            Native::Time => format!("make_time(({whole} / 3600000000)::int, {})", parts(&whole)),
            Native::Timestamp => since,
            Native::TimestampTz => format!("{since} AT TIME ZONE 'UTC'"),
            Native::Uuid => return format!("${number}::uuid"),
            Native::Interval => {
                let part = |at: usize| format!("split_part({text}, ' ', {at})");
                let micros = format!("{}::bigint", part(3));
                let hours = format!("({micros} / 3600000000)");
                // In two parts: all hours that an interval can have are too many for one.
                return format!(
                    "CAST(make_interval(0, {}::int, 0, {}::int, ({hours} / 2)::int) \
                     + make_interval(0, 0, 0, 0, ({hours} - {hours} / 2)::int, {}) AS {kind})",
                    part(1),
                    part(2),
                    parts(&micros)
                );
            }
            _ => return cast,
        };
        let endless = match self {
            Native::Time => String::new(),
            _ => format!(
                "WHEN {text} = '{INFINITY}' THEN CAST('infinity' AS {kind}) \
                 WHEN {text} = '{MINUS_INFINITY}' THEN CAST('-infinity' AS {kind})"
            ),
        };
        // Captures of an earlier version wrote keys in PostgreSQL's own notation.
        format!("CASE {endless} WHEN {text} ~ '^-?[0-9]+$' THEN {count} ELSE {cast} END")
    }

    /// What files keep of a value, as people read it.
    pub(crate) fn shown(self, value: &Value) -> Option<String> {
        Some(match (self, value) {
            (Native::Date, Value::Int(i64::MAX)) => "infinity".to_owned(),
            (Native::Date, Value::Int(i64::MIN)) => "-infinity".to_owned(),
            (Native::Date, Value::Int(days)) => Key::Date(i32::try_from(*days).ok()?).to_string(),
            (Native::TimestampTz, Value::Int(micros)) => Key::Timestamp(*micros).to_string(),
            (Native::Timestamp, Value::Int(micros)) => {
                Key::Timestamp(*micros).to_string().replacen('Z', "", 1)
            }
            (Native::Time, Value::Int(micros)) => {
                let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
                let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                format!("{hour:02}:{minute:02}:{second:02}.{fraction:06}")
            }
            _ => return None,
        })
    }

    /// The condition that a value cannot be kept in a file, if some cannot.
    pub(crate) fn unkeepable(self, value: &str, kind: &str) -> Option<String> {
        match self {
            Native::Float => Some(format!("{value} = 'NaN'")),
            Native::Array | Native::Moments => {
                let dimensions = format!("array_ndims({value}) > 1 OR array_lower({value}, 1) <> 1");
                Some(match kind {
                    "double precision[]" => format!("({dimensions} OR 'NaN' = ANY ({value}))"),
                    _ => format!("({dimensions})"),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_keep_is_shown_as_people_write_it() {
        let shown = |native: Native, number: i64| native.shown(&Value::Int(number)).unwrap();
        assert_eq!(shown(Native::Date, -1), "1999-12-31");
        assert_eq!(shown(Native::Date, i64::MIN), "-infinity");
        assert_eq!(shown(Native::TimestampTz, 1), "2000-01-01T00:00:00.000001Z");
        assert_eq!(shown(Native::Timestamp, i64::MAX), "infinity");
        assert_eq!(shown(Native::Timestamp, -1), "1999-12-31T23:59:59.999999");
        assert_eq!(shown(Native::Time, 86_400_000_000), "24:00:00.000000");
        assert_eq!(Native::Other.shown(&Value::Int(1)), None);
    }
}
