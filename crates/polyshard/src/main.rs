//! The command line: 'polyshard up' and the operator's commands over the admin API.
fn main() {}
