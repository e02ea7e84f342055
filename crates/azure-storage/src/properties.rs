//! Properties of an account's service: kept for clients that set and read them, with the service's defaults, and the
//! rules by which browsers let pages of other origins ask (CORS).

use serde::{Deserialize, Deserializer, Serialize};

use crate::ServiceError;
use crate::xml::{self, Element, Writer};

/// Rules of one account: the service's limit.
const CORS_RULES_MAX: usize = 5;
/// Days that logs and metrics may be kept: the service's limit.
const RETENTION_DAYS_MAX: u32 = 365;
/// The only version of logging and metrics there is.
const ANALYTICS_VERSION: &str = "1.0";

/// All properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceProperties {
    /// What is logged.
    #[serde(default)]
    pub logging: Logging,
    /// Metrics by the hour.
    #[serde(default)]
    pub hour_metrics: Metrics,
    /// Metrics by the minute.
    #[serde(default)]
    pub minute_metrics: Metrics,
    /// Which pages of other origins may ask.
    #[serde(default)]
    pub cors: Vec<CorsRule>,
}

/// What is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logging {
    /// Deletions.
    pub delete: bool,
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
    /// For how many days it is kept; for ever if not said.
    #[serde(default, alias = "retention", deserialize_with = "read_days")]
    pub days: Option<u32>,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Whether anything is.
    pub enabled: bool,
    /// Whether by operation, if anything is.
    pub include_apis: Option<bool>,
    /// For how many days it is kept; for ever if not said.
    #[serde(default, alias = "retention", deserialize_with = "read_days")]
    pub days: Option<u32>,
}

/// What pages of other origins may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsRule {
    /// Which origins, separated by commas.
    #[serde(alias = "origins")]
    pub allowed_origins: String,
    /// Which verbs, separated by commas.
    #[serde(alias = "methods")]
    pub allowed_methods: String,
    /// Which headers they may send.
    #[serde(alias = "headers")]
    pub allowed_headers: String,
    /// Which headers they may read.
    #[serde(alias = "exposed")]
    pub exposed_headers: String,
    /// For how long a browser may remember it.
    #[serde(alias = "max_age_s")]
    pub max_age_seconds: u32,
}

/// A number of days, alone or, as queues first stored it, in an object.
fn read_days<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Alone(Option<u32>),
        Inside { days: Option<u32> },
    }
    Ok(match Stored::deserialize(from)? {
        Stored::Alone(days) | Stored::Inside { days } => days,
    })
}

impl ServiceProperties {
    /// As clients read them.
    pub fn to_xml(&self) -> String {
        write(self)
    }
}

fn missing_node(name: &'static str) -> ServiceError {
    let message = "A required XML node was not specified in the request body.";
    ServiceError::new(400, "MissingRequiredXmlNode", message).detail("XmlNodeName", name)
}

fn invalid_node(name: &'static str, value: &str, reason: &'static str) -> ServiceError {
    let message =
        format!("The value provided for one of the XML nodes is not in the correct format: {reason}.");
    let shown: String = value.chars().take(64).collect();
    ServiceError::new(400, "InvalidXmlNodeValue", message)
        .detail("XmlNodeName", name)
        .detail("XmlNodeValue", shown)
}

/// Properties to be set; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesPatch {
    logging: Option<Logging>,
    hour_metrics: Option<Metrics>,
    minute_metrics: Option<Metrics>,
    cors: Option<Vec<CorsRule>>,
}

impl PropertiesPatch {
    /// Reads the body of a request that sets properties.
    pub fn parse(body: &[u8]) -> Result<PropertiesPatch, ServiceError> {
        parse(body)
    }

    /// Sets what is named.
    pub fn apply(self, to: &mut ServiceProperties) {
        if let Some(logging) = self.logging {
            to.logging = logging;
        }
        if let Some(metrics) = self.hour_metrics {
            to.hour_metrics = metrics;
        }
        if let Some(metrics) = self.minute_metrics {
            to.minute_metrics = metrics;
        }
        if let Some(cors) = self.cors {
            to.cors = cors;
        }
    }
}

fn parse(body: &[u8]) -> Result<PropertiesPatch, ServiceError> {
    let root = xml::parse(body)?;
    if root.name != "StorageServiceProperties" {
        return Err(ServiceError::invalid_xml("the root element must be StorageServiceProperties"));
    }
    Ok(PropertiesPatch {
        logging: root.child("Logging").map(read_logging).transpose()?,
        // `Metrics` is what versions before 2013-08-15 called them.
        hour_metrics: root
            .child("HourMetrics")
            .or_else(|| root.child("Metrics"))
            .map(read_metrics)
            .transpose()?,
        minute_metrics: root.child("MinuteMetrics").map(read_metrics).transpose()?,
        cors: root.child("Cors").map(read_cors).transpose()?,
    })
}

fn read_logging(element: &Element) -> Result<Logging, ServiceError> {
    check_version(element)?;
    Ok(Logging {
        delete: truth(element, "Delete")?,
        read: truth(element, "Read")?,
        write: truth(element, "Write")?,
        days: read_retention(element)?,
    })
}

fn read_metrics(element: &Element) -> Result<Metrics, ServiceError> {
    check_version(element)?;
    let enabled = truth(element, "Enabled")?;
    let include_apis = element.child("IncludeAPIs").map(|_| truth(element, "IncludeAPIs")).transpose()?;
    Ok(Metrics { enabled, include_apis: include_apis.filter(|_| enabled), days: read_retention(element)? })
}

fn read_retention(element: &Element) -> Result<Option<u32>, ServiceError> {
    let Some(policy) = element.child("RetentionPolicy") else { return Ok(None) };
    if !truth(policy, "Enabled")? {
        return Ok(None);
    }
    let days = policy.child_text("Days").ok_or_else(|| missing_node("Days"))?;
    match days.trim().parse() {
        Ok(number) if (1..=RETENTION_DAYS_MAX).contains(&number) => Ok(Some(number)),
        _ => Err(invalid_node("Days", days, "it must be a number from 1 to 365")),
    }
}

fn read_cors(element: &Element) -> Result<Vec<CorsRule>, ServiceError> {
    if element.children.len() > CORS_RULES_MAX {
        return Err(invalid_node("Cors", "", "an account has at most five rules"));
    }
    let text = |rule: &Element, name| rule.child_text(name).unwrap_or_default().trim().to_owned();
    let rules = element.children.iter().map(|rule| {
        let age = text(rule, "MaxAgeInSeconds");
        let max_age_seconds = age.parse();
        let rule = CorsRule {
            allowed_origins: text(rule, "AllowedOrigins"),
            allowed_methods: text(rule, "AllowedMethods"),
            allowed_headers: text(rule, "AllowedHeaders"),
            exposed_headers: text(rule, "ExposedHeaders"),
            max_age_seconds: max_age_seconds
                .map_err(|_| invalid_node("MaxAgeInSeconds", &age, "it must be a whole number"))?,
        };
        if rule.allowed_origins.is_empty() {
            return Err(missing_node("AllowedOrigins"));
        }
        if rule.allowed_methods.is_empty() {
            return Err(missing_node("AllowedMethods"));
        }
        Ok(rule)
    });
    rules.collect()
}

fn check_version(element: &Element) -> Result<(), ServiceError> {
    match element.child_text("Version") {
        None => Err(missing_node("Version")),
        Some(version) if version.trim() == ANALYTICS_VERSION => Ok(()),
        Some(version) => Err(invalid_node("Version", version, "it must be 1.0")),
    }
}

fn truth(element: &Element, name: &'static str) -> Result<bool, ServiceError> {
    match element.child_text(name).map(str::trim) {
        None => Err(missing_node(name)),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(invalid_node(name, other, "it must be true or false")),
    }
}

fn write(properties: &ServiceProperties) -> String {
    let mut xml = Writer::document();
    xml.open("StorageServiceProperties");
    xml.open("Logging");
    xml.element("Version", ANALYTICS_VERSION);
    xml.element("Read", &properties.logging.read.to_string());
    xml.element("Write", &properties.logging.write.to_string());
    xml.element("Delete", &properties.logging.delete.to_string());
    write_retention(&mut xml, properties.logging.days);
    xml.close("Logging");
    for (name, metrics) in
        [("HourMetrics", &properties.hour_metrics), ("MinuteMetrics", &properties.minute_metrics)]
    {
        xml.open(name);
        xml.element("Version", ANALYTICS_VERSION);
        xml.element("Enabled", &metrics.enabled.to_string());
        if let Some(include_apis) = metrics.include_apis {
            xml.element("IncludeAPIs", &include_apis.to_string());
        }
        write_retention(&mut xml, metrics.days);
        xml.close(name);
    }
    xml.open("Cors");
    for rule in &properties.cors {
        xml.open("CorsRule");
        xml.element("AllowedMethods", &rule.allowed_methods);
        xml.element("AllowedOrigins", &rule.allowed_origins);
        xml.element("AllowedHeaders", &rule.allowed_headers);
        xml.element("ExposedHeaders", &rule.exposed_headers);
        xml.element("MaxAgeInSeconds", &rule.max_age_seconds.to_string());
        xml.close("CorsRule");
    }
    xml.close("Cors");
    xml.close("StorageServiceProperties");
    xml.finish()
}

fn write_retention(xml: &mut Writer, days: Option<u32>) {
    xml.open("RetentionPolicy");
    xml.element("Enabled", &days.is_some().to_string());
    if let Some(days) = days {
        xml.element("Days", &days.to_string());
    }
    xml.close("RetentionPolicy");
}

#[cfg(test)]
mod tests {
    use super::{ServiceProperties, parse, write};

    #[test]
    fn what_is_set_is_read_again_and_the_rest_stays() {
        let mut properties = ServiceProperties::default();
        let hour = "<StorageServiceProperties><HourMetrics><Version>1.0</Version><Enabled>true</Enabled>\
                    <IncludeAPIs>false</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled><Days>5</Days>\
                    </RetentionPolicy></HourMetrics></StorageServiceProperties>";
        parse(hour.as_bytes()).unwrap().apply(&mut properties);
        let cors = "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET\
                    </AllowedMethods><MaxAgeInSeconds>7</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>";
        parse(cors.as_bytes()).unwrap().apply(&mut properties);
        assert_eq!(properties.hour_metrics.days, Some(5));
        assert_eq!(properties.cors[0].max_age_seconds, 7);
        let mut again = ServiceProperties::default();
        parse(write(&properties).as_bytes()).unwrap().apply(&mut again);
        assert_eq!(again, properties);
    }

    #[test]
    fn what_tables_and_queues_stored_first_is_still_read() {
        let table = serde_json::json!({
            "logging": {"delete": false, "read": true, "write": false, "days": 4},
            "cors": [{"origins": "*", "methods": "GET", "headers": "", "exposed": "", "max_age_s": 5}]});
        let table: ServiceProperties = serde_json::from_value(table).unwrap();
        assert_eq!((table.logging.days, table.cors[0].max_age_seconds), (Some(4), 5));
        let metrics = serde_json::json!({"enabled": true, "include_apis": null, "retention": {"days": 3}});
        let none =
            serde_json::json!({"delete": true, "read": true, "write": true, "retention": {"days": null}});
        let (hour, minute) = (metrics.clone(), metrics);
        let queue =
            serde_json::json!({"logging": none, "hour_metrics": hour, "minute_metrics": minute, "cors": []});
        let queue: ServiceProperties = serde_json::from_value(queue).unwrap();
        assert_eq!((queue.logging.days, queue.minute_metrics.days), (None, Some(3)));
        let again = serde_json::from_value(serde_json::to_value(&queue).unwrap());
        assert_eq!(queue, again.unwrap());
    }

    #[test]
    fn wrong_properties_are_refused_with_the_node_named() {
        let logging = |inner: &str| {
            format!("<StorageServiceProperties><Logging>{inner}</Logging></StorageServiceProperties>")
        };
        let flags = "<Delete>true</Delete><Read>true</Read><Write>true</Write>";
        for (body, code) in [
            ("<Other/>".to_owned(), "InvalidXmlDocument"),
            (logging(""), "MissingRequiredXmlNode"),
            (logging("<Version>2.0</Version>"), "InvalidXmlNodeValue"),
            (logging("<Version>1.0</Version><Delete>yes</Delete>"), "InvalidXmlNodeValue"),
            (
                logging(&format!(
                    "<Version>1.0</Version>{flags}<RetentionPolicy><Enabled>true</Enabled><Days>366</Days>\
                     </RetentionPolicy>"
                )),
                "InvalidXmlNodeValue",
            ),
        ] {
            assert_eq!(parse(body.as_bytes()).unwrap_err().code(), code, "{body}");
        }
    }
}
