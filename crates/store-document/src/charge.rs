//! What an operation costs in request units: the table of docs/stores/document.md.

/// Bytes that are charged together.
const UNIT_BYTES: usize = 1024;

fn units(bytes: usize) -> f64 {
    bytes.div_ceil(UNIT_BYTES).max(1) as f64
}

/// Reading one document: 1 for each KiB begun.
pub(crate) fn read(bytes: usize) -> f64 {
    units(bytes)
}

/// Writing one document: 5 for each KiB begun.
pub(crate) fn write(bytes: usize) -> f64 {
    5.0 * units(bytes)
}

/// A page of a query or feed: 2, and 0.1 for each document that was looked at, and 0.25 for each KiB answered.
pub(crate) fn page(examined: usize, bytes: usize) -> f64 {
    2.0 + 0.1 * examined as f64 + 0.25 * units(bytes)
}

/// Anything about databases, containers and offers.
pub(crate) const RESOURCE: f64 = 1.0;

/// What was refused.
pub(crate) const REFUSED: f64 = 1.0;

/// As it is written in a header.
pub(crate) fn text(charge: f64) -> String {
    format!("{:.2}", charge)
}
