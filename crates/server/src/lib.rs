//! Config and wiring: the only crate that names all stores.
