//! What is kept about an account: written as settings, and still read where an earlier program has put it.

use polyshard_azure_storage::PropertiesPatch;
use polyshard_catalog::SETTINGS_STORE;
use polyshard_map::MapName;
use polyshard_store_queue::{DEFAULT_MAP, default_rule};
use serde_json::json;

use crate::Cluster;
use crate::clock::HandClock;
use crate::place::Place;

on_both_engines! {
    settings_of_an_earlier_program_are_read_and_replaced
    two_changes_at_once_are_both_kept
}

async fn open(place: &Place) -> Cluster {
    place.open_at(HandClock::new().clock()).await
}

fn patch(xml: &str) -> PropertiesPatch {
    let body = format!("<StorageServiceProperties>{xml}</StorageServiceProperties>");
    PropertiesPatch::parse(body.as_bytes()).unwrap()
}

const CORS: &str = "<Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
                    <MaxAgeInSeconds>5</MaxAgeInSeconds><ExposedHeaders/><AllowedHeaders/></CorsRule></Cors>";
const LOGGING: &str = "<Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read><Write>false</Write>\
                       <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging>";

/// Issue 17 line 16: the old record named the default map, which could never be dropped for it.
async fn settings_of_an_earlier_program_are_read_and_replaced(place: Place) {
    let cluster = open(&place).await;
    let metrics = json!({"enabled": true, "include_apis": null, "retention": {"days": 3}});
    let stored = json!({"format": 1, "properties": {
        "logging": {"delete": false, "read": true, "write": false, "retention": {"days": null}},
        "hour_metrics": metrics, "minute_metrics": metrics, "cors": []}});
    let (map, rule) = (MapName::new(DEFAULT_MAP).unwrap(), default_rule());
    cluster.driver.create_dataset("queue-service", "acct", &map, rule, stored).await.unwrap();
    cluster.router.refresh().await.unwrap();
    assert!(cluster.store.properties("acct").unwrap().logging.read);
    assert!(!cluster.store.properties("other").unwrap().logging.read, "what is not set has its default");

    cluster.store.set_properties("acct", patch(CORS)).await.unwrap();
    let properties = cluster.store.properties("acct").unwrap();
    assert!(properties.logging.read, "what the old record said is kept");
    assert_eq!(properties.cors.len(), 1);
    let view = cluster.router.view();
    assert_eq!(view.datasets_of("queue-service").count(), 0, "the old record is gone");
    let written: Vec<_> = view.datasets_of(SETTINGS_STORE).collect();
    assert_eq!((written.len(), written[0].name.as_str()), (1, "queue/acct"));
    assert_eq!(written[0].body["format"], 1);
    cluster.driver.drop_map(&map, None, false).await.unwrap();
    cluster.close().await;
}

/// Issue 17 line 14: each writer changes what is stored then, and not what it has read before.
async fn two_changes_at_once_are_both_kept(place: Place) {
    let cluster = open(&place).await;
    let (one, two) = tokio::join!(
        cluster.store.set_properties("acct", patch(CORS)),
        cluster.store.set_properties("acct", patch(LOGGING)),
    );
    one.and(two).unwrap();
    let properties = cluster.store.properties("acct").unwrap();
    assert!(properties.logging.delete && properties.cors.len() == 1, "{properties:?}");
    cluster.close().await;
}
