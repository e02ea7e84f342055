//! The text form that Prometheus reads (exposition format 0.0.4).

use std::fmt::{Display, Write};

use crate::Times;

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of times in buckets.
    Histogram,
}

/// A page of metrics being written.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
}

impl Text {
    /// The content type to send it with.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a metric; its samples follow.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// One sample of the metric that was begun.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels = Labels(labels, None);
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// The samples of a histogram.
    pub fn times(&mut self, name: &str, labels: &[(&str, &str)], times: &Times) {
        for (limit, count) in times.cumulative() {
            let limit = limit.to_string();
            self.line(format_args!("{name}_bucket{} {count}", Labels(labels, Some(&limit))));
        }
        let count = times.count();
        self.line(format_args!("{name}_bucket{} {count}", Labels(labels, Some("+Inf"))));
        self.line(format_args!("{name}_sum{} {}", Labels(labels, None), times.sum_s()));
        self.line(format_args!("{name}_count{} {count}", Labels(labels, None)));
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all that is written");
    }
}

struct Labels<'a>(&'a [(&'a str, &'a str)], Option<&'a str>);

impl Display for Labels<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.1.map(|limit| ("le", limit));
        let mut before = '{';
        for (name, value) in self.0.iter().copied().chain(limit) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(to, "{before}{name}=\"{value}\"")?;
            before = ',';
        }
        if before == ',' { to.write_str("}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kind, Text};
    use crate::Histogram;

    #[test]
    fn a_page_reads_as_prometheus_expects() {
        let mut page = Text::default();
        page.metric("x_total", Kind::Counter, "Things.");
        page.sample("x_total", &[("name", "a\"b\\c")], 3);
        page.sample("x_total", &[], 0.5);
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(100));
        page.metric("t_seconds", Kind::Histogram, "Times.");
        page.times("t_seconds", &[("shard", "s1")], &histogram.times());
        let text = page.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            ["# HELP x_total Things.", "# TYPE x_total counter", r#"x_total{name="a\"b\\c"} 3"#]
        );
        assert_eq!(lines[3], "x_total 0.5");
        assert_eq!(lines[6], r#"t_seconds_bucket{shard="s1",le="0.000064"} 0"#);
        assert_eq!(lines[7], r#"t_seconds_bucket{shard="s1",le="0.000256"} 1"#);
        assert!(text.ends_with("t_seconds_sum{shard=\"s1\"} 0.0001\nt_seconds_count{shard=\"s1\"} 1\n"));
    }
}
