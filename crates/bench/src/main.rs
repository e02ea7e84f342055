//! Benchmarks beside the raw library in the same run.
fn main() {}
