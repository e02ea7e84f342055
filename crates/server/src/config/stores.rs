//! The options that stores and their families declare: their values, and what is wrong with them together.

use polyshard_store::{Kind, Mistake, MistakeAt, OptionSpec, OptionValues};

use super::build::secret;
use super::error::{ConfigErrors, Origin};
use super::options::{STORE_OPTIONS, declared_in};
use super::settings::{Settings, Values};
use crate::stores::STORES;

/// What the values say; every mistake is in `errors`.
pub(super) fn build(settings: &Settings, errors: &mut ConfigErrors) -> OptionValues {
    let mut values = read(&settings.values, &STORE_OPTIONS, errors);
    for family in STORES.families() {
        for list in family.lists {
            let Some(items) = settings.list(list.name) else { continue };
            let items = items.iter().map(|(_, values)| read(values, declared_in(list.name), errors));
            values.set_list(list.name, items.collect());
        }
        for mistake in (family.check)(&values, &STORES.endpoints_of(family)) {
            tell(mistake, settings, errors);
        }
    }
    values
}

fn read(from: &Values, options: &[OptionSpec], errors: &mut ConfigErrors) -> OptionValues {
    let mut values = OptionValues::default();
    for option in options {
        match (option.kind, from.get(option.path)) {
            (Kind::Secret, _) => {
                let (variable, file) = (format!("{}_env", option.path), format!("{}_file", option.path));
                values.set_secret(option.path, secret(from, option.path, &variable, &file, None, errors));
            }
            (_, Some(setting)) => values.set(option.path, setting.text.as_str()),
            (_, None) => {}
        }
    }
    values
}

fn tell(mistake: Mistake, settings: &Settings, errors: &mut ConfigErrors) {
    let origin = match &mistake.at {
        MistakeAt::Option(path) => settings.values.get(path.as_str()).map(|setting| &setting.origin),
        MistakeAt::Item(list, number) => {
            settings.list(list).and_then(|items| items.get(*number)).map(|(origin, _)| origin)
        }
    };
    errors.push(origin.unwrap_or(&Origin::Default), mistake.message, mistake.remedy);
}
