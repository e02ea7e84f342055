//! What pages of other origins may do, by the rules among a service's properties, and what browsers are told of it.

use std::borrow::Cow;

use crate::properties::{CorsRule, ServiceProperties};
use crate::{Method, Request, Response, ServiceError};

/// Headers that every answer has beside its own: see `http/response.rs`.
const OF_EVERY_ANSWER: [&str; 5] =
    ["Date", "Server", "x-ms-client-request-id", "x-ms-request-id", "x-ms-version"];
/// Likewise of every error.
const OF_EVERY_ERROR: [&str; 2] = ["Content-Type", "x-ms-error-code"];

impl ServiceProperties {
    /// Answers a browser that asks with `OPTIONS` what a page of another origin may do.
    pub fn preflight(&self, request: &Request) -> Result<Response, ServiceError> {
        let missing = |name: &'static str| {
            ServiceError::new(400, "InvalidHeaderValue", "A required CORS header is not present.")
                .detail("HeaderName", name)
        };
        let needed = |name: &'static str| request.headers.get(name).ok_or_else(|| missing(name));
        let (origin, method) = (needed("Origin")?, needed("Access-Control-Request-Method")?);
        let headers = request.headers.get("Access-Control-Request-Headers").unwrap_or_default();
        let message = "CORS not enabled or no matching rule found for this request.";
        let failed = || ServiceError::new(403, "CorsPreflightFailure", message);
        let rule = self.rule(origin, method, headers).ok_or_else(failed)?;
        Ok(Response::new(200)
            .header("Access-Control-Allow-Origin", origin.to_owned())
            .header("Access-Control-Allow-Methods", method.to_owned())
            .header("Access-Control-Allow-Headers", headers.to_owned())
            .header("Access-Control-Max-Age", rule.max_age_seconds.to_string())
            .header("Access-Control-Allow-Credentials", "true"))
    }

    /// An answer with what a browser needs to show it to a page of another origin. Errors have it, too: a page would
    /// learn nothing of them but that something failed.
    pub fn open_to_origin(
        &self,
        request: &Request,
        answer: Result<Response, ServiceError>,
    ) -> Result<Response, ServiceError> {
        let Some(origin) = request.headers.get("Origin") else { return answer };
        let own: Vec<&str> = match &answer {
            Ok(response) => response.headers.iter().map(|(name, _)| name.as_ref()).collect(),
            Err(error) => error.header_names().chain(OF_EVERY_ERROR).collect(),
        };
        let headers = self.headers(origin, request.method, &own);
        match answer {
            Ok(response) => {
                Ok(headers.into_iter().fold(response, |response, (name, value)| response.header(name, value)))
            }
            Err(error) => Err(headers
                .into_iter()
                .fold(error, |error, (name, value)| error.header(name, value.into_owned()))),
        }
    }

    /// What is told to an origin, of an answer that has headers of these names.
    fn headers(&self, origin: &str, method: Method, own: &[&str]) -> Vec<(&'static str, Cow<'static, str>)> {
        // Whoever keeps an answer for one origin must not give it to another.
        let vary = ("Vary", "Origin".into());
        let Some(rule) = self.rule(origin, method.as_str(), "") else {
            return if self.cors.is_empty() { Vec::new() } else { vec![vary] };
        };
        let exposed = ("Access-Control-Expose-Headers", exposed(rule, own).into());
        let is_for_all = items(&rule.allowed_origins).any(|own| own == "*");
        if is_for_all && matches!(method, Method::Get | Method::Head) {
            return vec![("Access-Control-Allow-Origin", "*".into()), exposed];
        }
        vec![
            ("Access-Control-Allow-Origin", origin.to_owned().into()),
            exposed,
            ("Access-Control-Allow-Credentials", "true".into()),
            vary,
        ]
    }

    /// The first rule that lets an origin use a verb with these headers.
    fn rule(&self, origin: &str, method: &str, headers: &str) -> Option<&CorsRule> {
        self.cors.iter().find(|rule| {
            let origins = items(&rule.allowed_origins).any(|own| own == "*" || own == origin);
            let methods = items(&rule.allowed_methods).any(|own| own.eq_ignore_ascii_case(method));
            let headers = items(headers)
                .all(|header| items(&rule.allowed_headers).any(|pattern| is_like(header, pattern)));
            origins && methods && headers
        })
    }
}

/// The headers that a page may read. Browsers know no names with a star at their end: what fits one is told by its
/// name.
fn exposed(rule: &CorsRule, own: &[&str]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for item in items(&rule.exposed_headers) {
        if !item.ends_with('*') {
            names.push(item);
            continue;
        }
        names.extend(own.iter().copied().chain(OF_EVERY_ANSWER).filter(|name| is_like(name, item)));
    }
    let mut told: Vec<&str> = Vec::with_capacity(names.len());
    for name in names {
        if !told.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            told.push(name);
        }
    }
    told.join(",")
}

/// Whether a header has a name, or one that begins as the pattern does before its star.
fn is_like(header: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => header.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
        None => pattern.eq_ignore_ascii_case(header),
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Headers, RawPath};

    fn rule(origins: &str, exposed: &str) -> CorsRule {
        CorsRule {
            allowed_origins: origins.into(),
            allowed_methods: "GET,PUT".into(),
            allowed_headers: "x-ms-*,accept".into(),
            exposed_headers: exposed.into(),
            max_age_seconds: 60,
        }
    }

    fn properties(rules: Vec<CorsRule>) -> ServiceProperties {
        ServiceProperties { cors: rules, ..ServiceProperties::default() }
    }

    fn told(
        properties: &ServiceProperties,
        method: Method,
        answer: Result<Response, ServiceError>,
    ) -> String {
        let mut headers = Headers::new();
        headers.push("Origin", "https://b.example");
        let request = Request {
            method,
            target: "/a".into(),
            path: RawPath::new("/a").unwrap(),
            query: Vec::new(),
            headers,
            body: Vec::new(),
            stream: None,
            peer: ([127, 0, 0, 1], 1).into(),
        };
        let names = |name: &str| name.strip_prefix("Access-Control-").map(str::to_owned);
        let found: Vec<String> = match properties.open_to_origin(&request, answer) {
            Ok(response) => response
                .headers
                .iter()
                .filter_map(|(name, value)| names(name).map(|name| format!("{name}: {value}")))
                .collect(),
            Err(error) => error.header_names().filter_map(names).collect(),
        };
        found.join("; ")
    }

    #[test]
    fn origins_verbs_and_headers_are_compared_with_the_rules() {
        let properties = properties(vec![rule("https://a.example,https://b.example", "x-ms-*")]);
        assert!(properties.rule("https://b.example", "PUT", "X-Ms-Date, Accept").is_some());
        assert!(properties.rule("https://c.example", "PUT", "").is_none());
        assert!(properties.rule("https://b.example", "DELETE", "").is_none());
        assert!(properties.rule("https://b.example", "GET", "cookie").is_none());
    }

    #[test]
    fn headers_are_exposed_by_their_names() {
        let some = properties(vec![rule("https://b.example", "x-ms-*,ETag")]);
        let answer =
            || Ok(Response::new(200).header("x-ms-continuation-NextRowKey", "1").header("ETag", "2"));
        assert_eq!(
            told(&some, Method::Get, answer()),
            "Allow-Origin: https://b.example; Expose-Headers: x-ms-continuation-NextRowKey,x-ms-client-request-id,\
             x-ms-request-id,x-ms-version,ETag; Allow-Credentials: true"
        );
        let all = properties(vec![rule("*", "")]);
        assert_eq!(told(&all, Method::Get, answer()), "Allow-Origin: *; Expose-Headers: ");
        assert_eq!(
            told(&all, Method::Put, answer()),
            "Allow-Origin: https://b.example; Expose-Headers: ; Allow-Credentials: true"
        );
        assert_eq!(told(&all, Method::Delete, answer()), "");
    }

    #[test]
    fn errors_are_shown_to_pages_too() {
        let some = properties(vec![rule("https://b.example", "*")]);
        let failed = || Err(ServiceError::new(404, "ResourceNotFound", "It is not there."));
        assert_eq!(told(&some, Method::Get, failed()), "Allow-Origin; Expose-Headers; Allow-Credentials");
        assert_eq!(told(&some, Method::Delete, failed()), "");
    }
}
