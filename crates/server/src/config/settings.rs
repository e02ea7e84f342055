//! Values by option, with where they came from; the types and bounds of single values are checked here.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::File;
use super::error::{ConfigErrors, Origin};
use super::options::{ENV_PREFIX, Kind, LISTS, OPTIONS, OptionSpec};
use super::toml_file::{self, Item, Written};

/// One value, already of the right kind, and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub text: String,
    pub origin: Origin,
    kind: Kind,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.shown(), self.origin)
    }
}

impl Setting {
    /// The value as TOML, a secret as `***`.
    fn shown(&self) -> String {
        match self.kind {
            Kind::Secret => "\"***\"".to_owned(),
            Kind::Integer { .. } | Kind::Bool | Kind::Ratio => self.text.clone(),
            Kind::Url => toml::Value::String(without_password(&self.text)).to_string(),
            _ => toml::Value::String(self.text.clone()).to_string(),
        }
    }
}

/// Values of one table of a list, or of everything outside of the lists, by option path.
pub(super) type Values = BTreeMap<&'static str, Setting>;

/// Every option with its value and origin. Printing it never shows a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(super) values: Values,
    /// The lists that the file has, by their names: each table with where it stands. Without `shards` there are the
    /// embedded ones.
    pub(super) lists: BTreeMap<&'static str, Vec<(Origin, Values)>>,
}

impl Settings {
    pub(super) fn defaults() -> Settings {
        let given = OPTIONS.iter().filter(|option| !option.default.is_empty());
        let values = given.map(|option| {
            (
                option.path,
                Setting { text: option.default.to_owned(), origin: Origin::Default, kind: option.kind },
            )
        });
        Settings { values: values.collect(), lists: BTreeMap::new() }
    }

    /// The tables of a list, if the file has it.
    pub(super) fn list(&self, name: &str) -> Option<&[(Origin, Values)]> {
        self.lists.get(name).map(Vec::as_slice)
    }

    pub(super) fn read_file(&mut self, file: File<'_>, errors: &mut ConfigErrors) {
        let origin = |line| Origin::Line { file: file.name.to_owned(), line };
        let items = match toml_file::parse(file.text) {
            Ok(items) => items,
            Err(mistakes) => {
                for (line, message) in mistakes {
                    errors.push(&origin(line), format!("not TOML: {message}"), "correct the line");
                }
                return;
            }
        };
        for item in items {
            let list = LISTS.iter().find(|list| list.name == item.key);
            match (list, item.value) {
                (Some(list), Written::Tables(tables)) => {
                    let read = tables.into_iter().map(|(line, items)| {
                        let mut values = Values::new();
                        read_table(items, "", list.options, &mut values, &origin, errors);
                        (origin(line), values)
                    });
                    self.lists.insert(list.name, read.collect());
                }
                (Some(list), other) => {
                    let name = list.name;
                    let message = format!("{name} is {}", other.type_name());
                    let remedy = format!("write one [[{name}]] table for each");
                    errors.push(&origin(item.line), message, remedy);
                }
                (None, value) => {
                    let item = Item { value, ..item };
                    read_table(vec![item], "", &OPTIONS, &mut self.values, &origin, errors);
                }
            }
        }
    }

    pub(super) fn read_environment(
        &mut self,
        environment: impl IntoIterator<Item = (String, String)>,
        errors: &mut ConfigErrors,
    ) {
        let mut overrides: Vec<_> =
            environment.into_iter().filter(|(name, _)| name.starts_with(ENV_PREFIX)).collect();
        overrides.sort();
        for (name, value) in overrides {
            let path = name[ENV_PREFIX.len()..].replace("__", ".").to_lowercase();
            let origin = Origin::Environment(name);
            let first = path.split('.').next().unwrap_or_default();
            if let Some(list) = LISTS.iter().find(|list| list.name == first) {
                errors.push(&origin, format!("{} cannot be set by the environment", list.name), list.instead);
                continue;
            }
            self.read_text(&path, value, origin, errors);
        }
    }

    pub(super) fn read_flags(&mut self, flags: &[(String, String)], errors: &mut ConfigErrors) {
        for (path, value) in flags {
            self.read_text(path, value.clone(), Origin::Flag, errors);
        }
    }

    fn read_text(&mut self, path: &str, text: String, origin: Origin, errors: &mut ConfigErrors) {
        let Some(option) = OPTIONS.iter().find(|option| option.path == path) else {
            errors.push(&origin, format!("there is no option {path}"), suggestion(path, &OPTIONS));
            return;
        };
        put(option, text, origin, &mut self.values, errors);
    }

    /// The effective configuration as a TOML file, each value with where it came from.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for option in OPTIONS.iter() {
            let Some(setting) = self.values.get(option.path) else { continue };
            if option.section() != section {
                section = option.section();
                text.push_str(&format!("\n[{section}]\n"));
            }
            let key = option.path.rsplit('.').next().unwrap_or(option.path);
            text.push_str(&format!("{key} = {} # {}\n", setting.shown(), setting.origin));
        }
        if self.list("shards").is_none() {
            text.push_str("\n# shards: the embedded ones\n");
        }
        for list in LISTS.iter() {
            for (origin, values) in self.list(list.name).unwrap_or_default() {
                text.push_str(&format!("\n[[{}]] # {origin}\n", list.name));
                for (path, setting) in list.options.iter().filter_map(|o| Some((o.path, values.get(o.path)?)))
                {
                    text.push_str(&format!("{path} = {}\n", setting.shown()));
                }
            }
        }
        text
    }

    /// The effective configuration: option → value and origin; then the shards and accounts of the file.
    pub fn to_json(&self) -> serde_json::Value {
        let value = |setting: &Setting| match setting.kind {
            Kind::Secret => serde_json::Value::from("***"),
            Kind::Integer { .. } | Kind::Bool | Kind::Ratio => {
                serde_json::from_str(&setting.text).unwrap_or_default()
            }
            Kind::Url => without_password(&setting.text).into(),
            _ => setting.text.clone().into(),
        };
        let options: serde_json::Map<_, _> = self
            .values
            .iter()
            .map(|(path, setting)| {
                let shown =
                    serde_json::json!({ "value": value(setting), "origin": setting.origin.to_string() });
                ((*path).to_owned(), shown)
            })
            .collect();
        let mut shown = serde_json::json!({ "options": options });
        for list in LISTS.iter() {
            let table = |values: &Values| -> serde_json::Map<_, _> {
                values.iter().map(|(path, s)| ((*path).to_owned(), value(s))).collect()
            };
            let items = self.list(list.name).unwrap_or_default().iter();
            shown[list.name] = items.map(|(_, values)| serde_json::Value::from(table(values))).collect();
        }
        shown
    }
}

fn read_table(
    items: Vec<Item>,
    prefix: &str,
    options: &'static [OptionSpec],
    values: &mut Values,
    origin: &dyn Fn(usize) -> Origin,
    errors: &mut ConfigErrors,
) {
    for Item { key, line, value } in items {
        let path = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        let origin_of_key = origin(line);
        let is_section =
            options.iter().any(|o| o.path.strip_prefix(&*path).is_some_and(|rest| rest.starts_with('.')));
        let option = options.iter().find(|option| option.path == path);
        match (option, value) {
            (None, Written::Table(items)) if is_section => {
                read_table(items, &path, options, values, origin, errors)
            }
            (None, value) if is_section => {
                let message = format!("{path} is {}", value.type_name());
                errors.push(&origin_of_key, message, format!("write a table, [{path}]"));
            }
            (None, _) => {
                errors.push(&origin_of_key, format!("there is no option {path}"), suggestion(&path, options))
            }
            (Some(option), value) => match in_kind(option, value) {
                Ok(text) => put(option, text, origin_of_key, values, errors),
                Err(found) => {
                    let remedy = format!("it takes {}", option.kind);
                    errors.push(&origin_of_key, format!("{path} is {found}"), remedy);
                }
            },
        }
    }
}

/// The text of a value if the file wrote it as its kind is written: a number is not a string in a file.
fn in_kind(option: &OptionSpec, value: Written) -> Result<String, &'static str> {
    match (option.kind, value) {
        (Kind::Integer { .. } | Kind::Ratio, Written::Integer(number)) => Ok(number),
        (Kind::Ratio, Written::Fraction(number)) => Ok(number),
        (Kind::Bool, Written::Bool(truth)) => Ok(truth.to_string()),
        (Kind::Integer { .. } | Kind::Bool | Kind::Ratio, other) => Err(other.type_name()),
        (_, Written::Text(text)) => Ok(text),
        (_, other) => Err(other.type_name()),
    }
}

/// Takes the value if it is of the option's kind.
fn put(
    option: &'static OptionSpec,
    text: String,
    origin: Origin,
    values: &mut Values,
    errors: &mut ConfigErrors,
) {
    let fits = match option.kind {
        Kind::Integer { min, max } => text.parse().is_ok_and(|number: u64| (min..=max).contains(&number)),
        Kind::Bool => text == "true" || text == "false",
        Kind::Choice(words) => words.contains(&text.as_str()),
        // Between digits, as TOML and JSON have it.
        Kind::Ratio => {
            text.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio))
                && text.starts_with(|c: char| c.is_ascii_digit())
                && text.ends_with(|c: char| c.is_ascii_digit())
        }
        Kind::Address => text.parse::<SocketAddr>().is_ok(),
        Kind::Variable => !text.is_empty() && !text.contains(['=', '\0']),
        Kind::Text | Kind::Path | Kind::Url | Kind::Secret => !text.trim().is_empty(),
    };
    if fits {
        values.insert(option.path, Setting { text, origin, kind: option.kind });
        return;
    }
    let shown = match option.kind {
        Kind::Secret | Kind::Url => "not usable".to_owned(),
        _ => format!("{text:?}"),
    };
    errors.push(&origin, format!("{} is {shown}", option.path), format!("it takes {}", option.kind));
}

/// How alike a name must be to be suggested, from 0 to 1: below this, suggestions look arbitrary.
const LIKENESS_MIN: f64 = 0.8;

/// The nearest known option or section: a typing error in the name, or the right name in the wrong section.
fn suggestion(path: &str, options: &[OptionSpec]) -> String {
    let key = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let likeness = |known: &str| {
        // Jaro-Winkler favours a common beginning, which is what people get right: hold_ms for hold_ms_max.
        let whole = strsim::jaro_winkler(path, known);
        let last = strsim::jaro_winkler(&key(path), &key(known)) - 0.05;
        whole.max(last)
    };
    let sections = options.iter().map(OptionSpec::section).filter(|section| !section.is_empty());
    let known = options.iter().map(|option| option.path).chain(sections);
    let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest {
        Some(known) if likeness(known) >= LIKENESS_MIN => format!("did you mean {known}?"),
        _ => "see docs/config.md for all options".to_owned(),
    }
}

/// A database address as it may be shown.
pub(super) fn without_password(url: &str) -> String {
    super::build::split_password(url).map_or_else(|_| "***".to_owned(), |(url, _)| url)
}
