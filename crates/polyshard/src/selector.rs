//! Which part of a map: one key, a range of keys, or buckets; the same flags on every command.

use std::str::FromStr;

use clap::Args;
use polyshard_admin::types::{KeyText, RangeView};

/// Which part of a map.
#[derive(Debug, Clone, Args)]
#[group(id = "selector", required = true, multiple = false)]
pub struct Selector {
    /// One key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, group = "selector")]
    pub key: Option<String>,
    /// Keys from LO (included) to HI (not included); an empty side is infinite, '..' is everything
    #[arg(long, value_name = "LO..HI", allow_hyphen_values = true, group = "selector")]
    pub range: Option<Ends>,
    /// Buckets of a hash map, from A (included) to B (not included)
    #[arg(long, value_name = "A..B", group = "selector")]
    pub buckets: Option<Buckets>,
    #[command(flatten)]
    pub segment: SegmentFlag,
}

/// Which segment the buckets are of.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct SegmentFlag {
    /// The segment of a composite map, by the leading key it begins with ('' is the one without a beginning)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub segment: Option<String>,
}

impl SegmentFlag {
    /// The leading key, if one was given.
    pub fn key(&self) -> Option<KeyText> {
        self.segment.as_deref().and_then(leading_key)
    }
}

/// The leading key a segment begins with; empty text stands for the segment without a beginning.
pub fn leading_key(text: &str) -> Option<KeyText> {
    (!text.is_empty()).then(|| KeyText::text(text))
}

impl Selector {
    /// The range as the API writes it.
    pub fn range(&self) -> RangeView {
        let buckets = self.buckets.as_ref().map(|buckets| (buckets.0, buckets.1));
        match (&self.key, &self.range, buckets) {
            (Some(key), _, _) => RangeView::Key { key: KeyText::text(key) },
            (_, Some(ends), _) => ends.range(),
            (_, _, Some(buckets)) if self.segment.segment.is_some() => {
                RangeView::Segment { segment: self.segment.key(), buckets }
            }
            (_, _, Some(buckets)) => RangeView::Buckets { buckets },
            // The parser requires one of the three.
            (None, None, None) => RangeView::all(),
        }
    }
}

/// Two keys, each of which may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    from: Option<String>,
    to: Option<String>,
}

impl Ends {
    /// The range as the API writes it.
    pub fn range(&self) -> RangeView {
        let (from, to) = self.keys();
        RangeView::Keys { from, to }
    }

    /// The two keys.
    pub fn keys(&self) -> (Option<KeyText>, Option<KeyText>) {
        let key = |side: &Option<String>| side.as_ref().map(KeyText::text);
        (key(&self.from), key(&self.to))
    }
}

impl FromStr for Ends {
    type Err = String;

    fn from_str(text: &str) -> Result<Ends, String> {
        let (from, to) = text.split_once("..").ok_or("write LO..HI; an empty side is infinite")?;
        if to.contains("..") {
            return Err("it has '..' more than once, so where LO ends is not clear".to_owned());
        }
        let side = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Ends { from: side(from), to: side(to) })
    }
}

/// Two bucket numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets(u32, u32);

impl FromStr for Buckets {
    type Err = String;

    fn from_str(text: &str) -> Result<Buckets, String> {
        let numbers = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match numbers {
            Some((first, after)) if first < after => Ok(Buckets(first, after)),
            Some(_) => Err("the first bucket must be below the second, which is not part of it".to_owned()),
            None => Err("write A..B with two numbers, for example 0..256".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, Ends};

    #[test]
    fn ends_may_be_open_and_negative() {
        let text = |text: &str| text.parse::<Ends>().map(|ends| ends.range().to_string());
        assert_eq!(text("a..b").unwrap(), "a..b");
        assert_eq!(text("-5..").unwrap(), "-5..");
        assert_eq!(text("..-1").unwrap(), "..-1");
        assert_eq!(text("..").unwrap(), "..");
        assert!(text("a-b").is_err());
        assert!(text("a..b..c").is_err());
    }

    #[test]
    fn buckets_are_in_order() {
        assert!("0..1".parse::<Buckets>().is_ok());
        for wrong in ["1..1", "2..1", "..5", "a..b", "7"] {
            assert!(wrong.parse::<Buckets>().is_err(), "{wrong}");
        }
    }
}
