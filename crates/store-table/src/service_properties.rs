//! What an account sets for its table service: logging, metrics, and which other origins may ask (CORS).
//!
//! Logging and metrics are kept and told, as the service does; what is measured here is the operator's to see.

use polyshard_azure_http::ServiceError;
use polyshard_azure_http::xml::{self, Element, Writer};
use serde::{Deserialize, Serialize};

/// Rules for other origins, as with the service.
const RULES_MAX: usize = 5;

/// All that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceProperties {
    #[serde(default)]
    logging: Logging,
    #[serde(default)]
    hour_metrics: Metrics,
    #[serde(default)]
    minute_metrics: Metrics,
    #[serde(default)]
    cors: Vec<CorsRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Logging {
    delete: bool,
    read: bool,
    write: bool,
    days: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Metrics {
    enabled: bool,
    include_apis: Option<bool>,
    days: Option<u32>,
}

/// A rule for other origins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CorsRule {
    origins: String,
    methods: String,
    headers: String,
    exposed: String,
    max_age_s: u32,
}

/// What a client sets: a section that is not given stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    logging: Option<Logging>,
    hour_metrics: Option<Metrics>,
    minute_metrics: Option<Metrics>,
    cors: Option<Vec<CorsRule>>,
}

impl Given {
    /// Reads the body of a request.
    pub fn parse(body: &[u8]) -> Result<Given, ServiceError> {
        let root = xml::parse(body)?;
        if root.name != "StorageServiceProperties" {
            return Err(ServiceError::invalid_xml("the root element must be StorageServiceProperties"));
        }
        let cors =
            root.child("Cors").map(|cors| cors.children.iter().map(rule).collect::<Result<Vec<_>, _>>());
        let cors = cors.transpose()?;
        if cors.as_ref().is_some_and(|rules| rules.len() > RULES_MAX) {
            return Err(ServiceError::invalid_xml("there can be five CorsRule elements at most"));
        }
        Ok(Given {
            logging: root.child("Logging").map(logging).transpose()?,
            hour_metrics: root.child("HourMetrics").map(metrics).transpose()?,
            minute_metrics: root.child("MinuteMetrics").map(metrics).transpose()?,
            cors,
        })
    }
}

fn needed<'a>(element: &'a Element, name: &str) -> Result<&'a str, ServiceError> {
    let missing = || ServiceError::invalid_xml(&format!("{} has no {name}", element.name));
    element.child_text(name).map(str::trim).ok_or_else(missing)
}

fn truth(element: &Element, name: &str) -> Result<bool, ServiceError> {
    match needed(element, name)? {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(ServiceError::invalid_xml(&format!("{name} must be true or false"))),
    }
}

fn retention(element: &Element) -> Result<Option<u32>, ServiceError> {
    let Some(policy) = element.child("RetentionPolicy") else { return Ok(None) };
    if !truth(policy, "Enabled")? {
        return Ok(None);
    }
    match needed(policy, "Days")?.parse() {
        Ok(days @ 1..=365) => Ok(Some(days)),
        _ => Err(ServiceError::invalid_xml("Days must be a number from 1 to 365")),
    }
}

fn logging(element: &Element) -> Result<Logging, ServiceError> {
    Ok(Logging {
        delete: truth(element, "Delete")?,
        read: truth(element, "Read")?,
        write: truth(element, "Write")?,
        days: retention(element)?,
    })
}

fn metrics(element: &Element) -> Result<Metrics, ServiceError> {
    let include_apis = element.child("IncludeAPIs").map(|_| truth(element, "IncludeAPIs")).transpose()?;
    Ok(Metrics { enabled: truth(element, "Enabled")?, include_apis, days: retention(element)? })
}

fn rule(element: &Element) -> Result<CorsRule, ServiceError> {
    let text = |name: &str| element.child_text(name).map(str::trim).unwrap_or_default().to_owned();
    let max_age_s = needed(element, "MaxAgeInSeconds")?.parse();
    Ok(CorsRule {
        origins: needed(element, "AllowedOrigins")?.to_owned(),
        methods: needed(element, "AllowedMethods")?.to_owned(),
        headers: text("AllowedHeaders"),
        exposed: text("ExposedHeaders"),
        max_age_s: max_age_s.map_err(|_| ServiceError::invalid_xml("MaxAgeInSeconds must be a number"))?,
    })
}

impl ServiceProperties {
    /// These with what a client sets.
    pub fn with(self, given: Given) -> ServiceProperties {
        ServiceProperties {
            logging: given.logging.unwrap_or(self.logging),
            hour_metrics: given.hour_metrics.unwrap_or(self.hour_metrics),
            minute_metrics: given.minute_metrics.unwrap_or(self.minute_metrics),
            cors: given.cors.unwrap_or(self.cors),
        }
    }

    /// As clients read it.
    pub fn to_xml(&self) -> String {
        let mut xml = Writer::document();
        xml.open("StorageServiceProperties");
        xml.open("Logging");
        xml.element("Version", "1.0");
        xml.element("Delete", word(self.logging.delete));
        xml.element("Read", word(self.logging.read));
        xml.element("Write", word(self.logging.write));
        write_retention(self.logging.days, &mut xml);
        xml.close("Logging");
        for (name, metrics) in [("HourMetrics", &self.hour_metrics), ("MinuteMetrics", &self.minute_metrics)]
        {
            xml.open(name);
            xml.element("Version", "1.0");
            xml.element("Enabled", word(metrics.enabled));
            if let Some(include) = metrics.include_apis {
                xml.element("IncludeAPIs", word(include));
            }
            write_retention(metrics.days, &mut xml);
            xml.close(name);
        }
        xml.open("Cors");
        for rule in &self.cors {
            xml.open("CorsRule");
            xml.element("AllowedOrigins", &rule.origins);
            xml.element("AllowedMethods", &rule.methods);
            xml.element("MaxAgeInSeconds", &rule.max_age_s.to_string());
            xml.element("ExposedHeaders", &rule.exposed);
            xml.element("AllowedHeaders", &rule.headers);
            xml.close("CorsRule");
        }
        xml.close("Cors");
        xml.close("StorageServiceProperties");
        xml.finish()
    }

    /// The first rule that lets an origin use a verb with these headers.
    pub fn rule(&self, origin: &str, method: &str, headers: &str) -> Option<&CorsRule> {
        self.cors.iter().find(|rule| {
            let origins = list(&rule.origins).any(|own| own == "*" || own == origin);
            let methods = list(&rule.methods).any(|own| own.eq_ignore_ascii_case(method));
            let headers = list(headers).all(|header| {
                list(&rule.headers).any(|own| match own.strip_suffix('*') {
                    Some(start) => header.to_ascii_lowercase().starts_with(&start.to_ascii_lowercase()),
                    None => own.eq_ignore_ascii_case(header),
                })
            });
            origins && methods && headers
        })
    }
}

impl CorsRule {
    /// What browsers are told, for how long they may remember, and what they may show.
    pub fn max_age_s(&self) -> u32 {
        self.max_age_s
    }
    /// The headers that a page may read.
    pub fn exposed(&self) -> &str {
        &self.exposed
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn word(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn write_retention(days: Option<u32>, xml: &mut Writer) {
    xml.open("RetentionPolicy");
    xml.element("Enabled", word(days.is_some()));
    if let Some(days) = days {
        xml.element("Days", &days.to_string());
    }
    xml.close("RetentionPolicy");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_told_and_the_rest_stays() {
        let body = "<StorageServiceProperties><HourMetrics><Version>1.0</Version><Enabled>true</Enabled>\
            <IncludeAPIs>false</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy>\
            </HourMetrics><Cors><CorsRule><AllowedOrigins>https://a.example,https://b.example</AllowedOrigins>\
            <AllowedMethods>GET,PUT</AllowedMethods><MaxAgeInSeconds>60</MaxAgeInSeconds><ExposedHeaders>x-ms-*\
            </ExposedHeaders><AllowedHeaders>x-ms-*,accept</AllowedHeaders></CorsRule></Cors>\
            </StorageServiceProperties>";
        let set = ServiceProperties::default().with(Given::parse(body.as_bytes()).unwrap());
        let again = ServiceProperties::default().with(Given::parse(set.to_xml().as_bytes()).unwrap());
        assert_eq!(again, set);
        let kept = set.clone().with(Given::parse(b"<StorageServiceProperties/>").unwrap());
        assert_eq!(kept, set);
        assert!(set.rule("https://b.example", "PUT", "X-Ms-Date, Accept").is_some());
        assert!(set.rule("https://c.example", "PUT", "").is_none());
        assert!(set.rule("https://b.example", "DELETE", "").is_none());
        assert!(set.rule("https://b.example", "GET", "cookie").is_none());
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        let six = format!(
            "<StorageServiceProperties><Cors>{}</Cors></StorageServiceProperties>",
            "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
             <MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule>"
                .repeat(6)
        );
        for body in [
            "<Other/>",
            "<StorageServiceProperties><Logging/></StorageServiceProperties>",
            "<StorageServiceProperties><HourMetrics><Enabled>yes</Enabled></HourMetrics></StorageServiceProperties>",
            six.as_str(),
            "",
        ] {
            assert_eq!(Given::parse(body.as_bytes()).unwrap_err().code(), "InvalidXmlDocument", "{body}");
        }
    }
}
