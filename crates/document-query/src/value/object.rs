//! An object that keeps its properties in the order they were first written.

use std::collections::HashMap;
use std::sync::Arc;

use super::Value;

/// Beyond this many properties a hash table finds them; below it a scan is faster.
const SCAN_MAX: usize = 16;

/// Properties by name, in order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Object {
    entries: Vec<(Arc<str>, Value)>,
    index: Option<HashMap<Arc<str>, usize>>,
}

impl Object {
    /// An object without properties.
    pub fn new() -> Self {
        Object::default()
    }

    /// How many properties there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without properties.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a property.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|position| &self.entries[position].1)
    }

    /// Sets a property. One that exists keeps its place; an undefined value is not stored.
    pub fn insert(&mut self, key: impl Into<Arc<str>>, value: Value) {
        let key = key.into();
        if value.is_undefined() {
            self.remove(&key);
            return;
        }
        match self.position(&key) {
            Some(position) => self.entries[position].1 = value,
            None => {
                if let Some(index) = &mut self.index {
                    index.insert(Arc::clone(&key), self.entries.len());
                }
                self.entries.push((key, value));
                if self.index.is_none() && self.entries.len() > SCAN_MAX {
                    self.index_all();
                }
            }
        }
    }

    /// Removes a property and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let position = self.position(key)?;
        let (_, value) = self.entries.remove(position);
        if self.index.is_some() {
            self.index_all();
        }
        Some(value)
    }

    /// The properties in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    fn position(&self, key: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.entries.iter().position(|(name, _)| &**name == key),
        }
    }

    fn index_all(&mut self) {
        let names = self.entries.iter().enumerate();
        self.index = Some(names.map(|(position, (key, _))| (Arc::clone(key), position)).collect());
    }
}

impl<K: Into<Arc<str>>> FromIterator<(K, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(properties: I) -> Self {
        let mut object = Object::new();
        for (key, value) in properties {
            object.insert(key, value);
        }
        object
    }
}
