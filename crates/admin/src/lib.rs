//! The operator API: types, client, OpenAPI document, handlers over a trait.
