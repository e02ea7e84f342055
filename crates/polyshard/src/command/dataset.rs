//! `polyshard stores`, `datasets`, `bind` and `unbind`: what there is, and which map places which dataset.

use clap::Args;
use polyshard_admin::Client;
use polyshard_admin::types::{BindRequest, DatasetView, EndpointView, UnbindRequest};
use polyshard_map::MapName;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{table, yes_no};

/// `bind`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard bind table:orders --map tenants --key PartitionKey
  polyshard bind table:orders --map tenants --rule before:-     keys such as 42-2026-11
  polyshard bind queue:42-jobs --map tenants --rule before:-
  polyshard bind 'queue:*-jobs' --map tenants --rule before:-   whatever is made from now on

Only what does not exist yet, or never had a row, can be bound. A name stays bound when it is
deleted and made again.")]
pub struct BindArgs {
    /// STORE:NAME, as in queue:jobs; * is any characters; of another account, STORE:ACCOUNT/NAME
    pub dataset: String,
    /// The map that places it
    #[arg(long, value_name = "MAP")]
    pub map: MapName,
    /// The attribute that keys are derived from; 'polyshard stores' lists those of each store
    #[arg(long, value_name = "ATTRIBUTE")]
    pub key: Option<String>,
    /// Which part of it is the key: 'whole', or 'before:' and a separator [default: whole]
    #[arg(long, value_name = "RULE")]
    pub rule: Option<String>,
}

/// `stores`.
pub fn stores(client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.answer(&client.stores()?, |answer| {
        let rows = answer.stores.iter().map(|one| {
            let at = |endpoint: &EndpointView| match &endpoint.address {
                Some(address) => address.clone(),
                None => format!("{} (closed)", endpoint.name),
            };
            let endpoints: Vec<String> = one.endpoints.iter().map(at).collect();
            [
                one.id.clone(),
                one.title.clone(),
                endpoints.join(", "),
                one.nouns.join(", "),
                one.attributes.join(", "),
            ]
        });
        table(["store", "holds", "endpoints", "datasets", "keys from"], rows)
    })
}

/// `datasets`.
pub fn list(client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.answer(&client.datasets()?, |answer| {
        if answer.datasets.is_empty() {
            return "No datasets.\n".to_owned();
        }
        table(
            ["dataset", "map", "key", "rule", "exists", "bound"],
            answer.datasets.iter().map(|one| {
                let DatasetView { dataset, map, key, rule, exists, bound } = one.clone();
                [dataset, map.to_string(), key, rule, yes_no(exists), yes_no(bound)]
            }),
        )
    })
}

/// `bind`.
pub fn bind(args: &BindArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let BindArgs { dataset, map, key, rule } = args;
    let request =
        BindRequest { dataset: dataset.clone(), map: map.clone(), key: key.clone(), rule: rule.clone() };
    output.answer(&client.bind_dataset(&request)?, |one| {
        let DatasetView { dataset, map, key, rule, .. } = one;
        let part = if rule == "whole" { String::new() } else { format!(" ({rule})") };
        format!("{dataset} is placed by map {map}, by its {key}{part}.\n")
    })
}

/// `unbind`.
pub fn unbind(dataset: &str, client: &Client, output: &Output) -> Result<Exit, Failure> {
    client.unbind_dataset(&UnbindRequest { dataset: dataset.to_owned() })?;
    output.answer(&serde_json::json!({ "dataset": dataset }), |_| {
        format!("{dataset} is bound no more. If it exists, it stays where it is.\n")
    })
}
