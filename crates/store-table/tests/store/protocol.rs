//! The service without a socket: what clients are told, to the letter where SDKs look for letters.

use std::net::{Ipv4Addr, SocketAddr};

use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, BodyFormat, Context, Endpoint, Headers, Identity, Method, RawPath,
    Request, Response, Scheme, Service, ServiceError, Timestamp, decode_query,
};
use polyshard_store_table::TableService;
use uuid::Uuid;

use crate::Cluster;
use crate::place::Place;

on_both_engines! {
    entities_are_told_at_each_level
    change_sets_are_answered_as_the_sdks_read_them
    mistakes_have_the_services_codes
    lists_go_on_by_headers
    other_origins_are_let_in_by_rules
}

const BASE: &str = "http://127.0.0.1:10002/acct";

pub struct Client {
    pub cluster: Cluster,
    service: TableService,
}

impl Client {
    pub async fn new(place: &Place) -> Client {
        let cluster = place.open().await;
        let service = TableService::new(cluster.store.clone());
        Client { cluster, service }
    }

    async fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Result<Response, ServiceError> {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers: Headers =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let request = Request {
            method: Method::parse(method).unwrap(),
            target: format!("/acct{target}"),
            path: RawPath::new(&format!("/acct{path}")).unwrap(),
            query: decode_query(query).unwrap(),
            headers,
            body: body.as_bytes().to_vec(),
            stream: None,
            peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        };
        let context = Context {
            request_id: Uuid::nil(),
            account: AccountName::new("acct").unwrap(),
            identity: Identity::SharedKey,
            resource: RawPath::new(path).unwrap(),
            version: API_VERSION_DEFAULT,
            endpoint: Endpoint::Primary,
            now: Timestamp::parse_iso("2026-11-15T07:25:16Z").unwrap(),
            scheme: Scheme::Http,
            base_url: BASE.to_owned(),
        };
        self.service.call(context, request).await
    }

    pub async fn ok(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (Response, String) {
        let response =
            self.send(line, headers, body).await.unwrap_or_else(|error| panic!("{line}: {error:?}"));
        let text = String::from_utf8(response.body.clone()).unwrap();
        (response, text)
    }

    async fn code(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, &'static str) {
        let error = self.send(line, headers, body).await.expect_err(line);
        (error.status(), error.code())
    }

    async fn create(&self, name: &str) {
        let body = format!("{{\"TableName\":\"{name}\"}}");
        let (response, _) = self.ok("POST /Tables", &[("Prefer", "return-no-content")], &body).await;
        assert_eq!((response.status, response.get("Preference-Applied")), (204, Some("return-no-content")));
    }
}

async fn entities_are_told_at_each_level(place: Place) {
    let client = Client::new(&place).await;
    client.create("Orders").await;
    let body =
        "{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"D\":1.0,\"L@odata.type\":\"Edm.Int64\",\"L\":\"5\"}";
    let (inserted, text) =
        client.ok("POST /Orders", &[("Accept", "application/json;odata=nometadata")], body).await;
    assert_eq!(inserted.status, 201);
    assert_eq!(
        inserted.get("Location"),
        Some("http://127.0.0.1:10002/acct/Orders(PartitionKey='p',RowKey='r')")
    );
    let etag = inserted.get("ETag").unwrap().to_owned();
    let time = "2026-11-15T07:25:16Z";
    assert_eq!(etag, "W/\"datetime'2026-11-15T07%3A25%3A16.0000000Z'\"");
    let values = format!("\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"Timestamp\":\"{time}\",\"D\":1.0");
    assert_eq!(text, format!("{{{values},\"L\":\"5\"}}"));
    let (got, text) = client.ok("GET /Orders(PartitionKey='p',RowKey='r')", &[], "").await;
    assert_eq!(got.get("ETag"), Some(etag.as_str()));
    let escaped = etag.replace('"', "\\\"");
    let typed = format!("{values},\"L@odata.type\":\"Edm.Int64\",\"L\":\"5\"");
    let expected = format!(
        "{{\"odata.metadata\":\"{BASE}/$metadata#Orders/@Element\",\"odata.etag\":\"{escaped}\",{typed}}}"
    );
    assert_eq!(text, expected);
    let (_, text) = client.ok("GET /Orders()?$select=D,Missing", &[], "").await;
    assert!(
        text.ends_with(&format!("{{\"odata.etag\":\"{escaped}\",\"D\":1.0,\"Missing\":null}}]}}")),
        "{text}"
    );
    let (_, text) =
        client.ok("GET /Orders()?$format=application/json;odata=fullmetadata&$select=D", &[], "").await;
    let expected = format!(
        "{{\"odata.metadata\":\"{BASE}/$metadata#Orders\",\"value\":[{{\"odata.type\":\"acct.Orders\",\
         \"odata.id\":\"{BASE}/Orders(PartitionKey='p',RowKey='r')\",\"odata.etag\":\"{escaped}\",\
         \"odata.editLink\":\"Orders(PartitionKey='p',RowKey='r')\",\"D\":1.0}}]}}"
    );
    assert_eq!(text, expected);
    let url = "/Orders(PartitionKey='p',RowKey='r')";
    for line in [format!("MERGE {url}"), format!("PATCH {url}"), format!("PUT {url}")] {
        let (response, _) = client.ok(&line, &[("If-Match", "*")], "{\"x\":1}").await;
        assert_eq!(response.status, 204);
        assert!(response.get("ETag").is_some_and(|new| new > etag.as_str()));
        // Whoever does not want what is there to be changed must not be told that it was.
        for headers in [&[("If-None-Match", "*")][..], &[("If-None-Match", "*"), ("If-Match", "*")]] {
            assert_eq!(client.send(&line, headers, "{\"x\":2}").await.unwrap_err().code(), "InvalidInput");
        }
    }
    let delete =
        client.send(&format!("DELETE {url}"), &[("If-None-Match", "*"), ("If-Match", "*")], "").await;
    assert_eq!(delete.unwrap_err().code(), "InvalidInput");
    let (response, _) = client.ok(&format!("POST {url}"), &[("X-HTTP-Method", "MERGE")], "{\"x\":1}").await;
    assert_eq!(response.status, 204);
    let (response, _) = client.ok(&format!("DELETE {url}"), &[("If-Match", "*")], "").await;
    assert_eq!(response.status, 204);
    client.cluster.close().await;
}

fn change_set(parts: &[&str]) -> String {
    let part = |part: &&str| format!("--c\r\nContent-Type: application/http\r\n\r\n{part}\r\n");
    let parts: String = parts.iter().map(part).collect();
    format!("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}--c--\r\n--b--\r\n")
}

async fn change_sets_are_answered_as_the_sdks_read_them(place: Place) {
    let client = Client::new(&place).await;
    client.create("orders").await;
    let send = async |parts: &[&str]| {
        let kind = [("Content-Type", "multipart/mixed; boundary=b")];
        let (response, text) = client.ok("POST /$batch", &kind, &change_set(parts)).await;
        assert_eq!(response.status, 202);
        text
    };
    let insert = "POST http://127.0.0.1:10002/acct/orders HTTP/1.1\r\nPrefer: return-no-content\r\n\r\n\
                  {\"PartitionKey\":\"p\",\"RowKey\":\"a\"}";
    let upsert = "PUT /acct/orders(PartitionKey='p',RowKey='b%20c') HTTP/1.1\r\n\r\n{\"x\":1}";
    let text = send(&[insert, upsert]).await;
    let id = Uuid::nil();
    assert!(
        text.starts_with(&format!("--batchresponse_{id}\r\nContent-Type: multipart/mixed; boundary=")),
        "{text}"
    );
    assert_eq!(text.matches(&format!("--changesetresponse_{id}\r\n")).count(), 2);
    assert_eq!(text.matches("HTTP/1.1 204 No Content\r\n").count(), 2);
    assert_eq!(text.matches("\r\nETag: W/\"datetime'").count(), 2);
    assert!(text.contains("RowKey='a'") && text.contains("RowKey='b%20c'"), "{text}");
    assert!(text.ends_with(&format!("--changesetresponse_{id}--\r\n--batchresponse_{id}--\r\n")));
    let delete = "DELETE /acct/orders(PartitionKey='p',RowKey='b%20c') HTTP/1.1\r\nIf-Match: *\r\n\r\n";
    for (parts, expected) in [
        (
            vec![delete, insert],
            ("EntityAlreadyExists", "1:The specified entity already exists.", "409 Conflict"),
        ),
        (
            vec![delete, delete],
            ("InvalidDuplicateRow", "1:The batch request contains multiple", "400 Bad Request"),
        ),
        (
            vec![delete, "DELETE /acct/orders(PartitionKey='q',RowKey='a') HTTP/1.1\r\nIf-Match: *\r\n\r\n"],
            ("CommandsInBatchActOnDifferentPartitions", "1:All commands in a batch", "400 Bad Request"),
        ),
        (
            vec![delete, "GET /acct/orders() HTTP/1.1\r\n\r\n"],
            ("InvalidInput", "1:One of the", "400 Bad Request"),
        ),
        (
            vec![delete, "POST /acct/orders HTTP/1.1\r\n\r\n{"],
            ("InvalidInput", "1:An error", "400 Bad Request"),
        ),
        (
            vec![delete, "DELETE /acct/orders(PartitionKey='p',RowKey='x') HTTP/1.1\r\nIf-Match: *\r\n\r\n"],
            ("ResourceNotFound", "1:The specified resource does not exist.", "404 Not Found"),
        ),
    ] {
        let text = send(&parts).await;
        let (code, message, status) = expected;
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
        assert!(text.contains(&format!("HTTP/1.1 {status}\r\n")), "{text}");
        assert!(
            text.contains(&format!("\"code\":\"{code}\""))
                && text.contains(&format!("\"value\":\"{message}")),
            "{text}"
        );
        assert!(text.contains(&format!("x-ms-error-code: {code}\r\n")), "{text}");
        client.ok("GET /orders(PartitionKey='p',RowKey='b c')", &[], "").await;
    }
    for count in [101, 250] {
        let many: Vec<_> = (0..count)
            .map(|n| format!("PUT /acct/orders(PartitionKey='p',RowKey='{n}') HTTP/1.1\r\n\r\n{{}}"))
            .collect();
        let text = send(&many.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert!(text.contains("99:The batch request operation exceeds the maximum 100 changes"), "{text}");
    }
    let query =
        "--b\r\nContent-Type: application/http\r\n\r\nGET /acct/orders()?$top=1 HTTP/1.1\r\n\r\n--b--\r\n";
    let (response, text) =
        client.ok("POST /$batch", &[("Content-Type", "multipart/mixed; boundary=b")], query).await;
    assert!(
        response.status == 202 && text.contains("HTTP/1.1 200 OK") && text.contains("\"RowKey\":\"a\""),
        "{text}"
    );
    client.cluster.close().await;
}

/// A request with its headers and body, and the status and code of its answer.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, (u16, &'a str));

async fn mistakes_have_the_services_codes(place: Place) {
    let client = Client::new(&place).await;
    client.create("orders").await;
    let entity = "/orders(PartitionKey='p',RowKey='r')";
    let long = format!("GET /orders(PartitionKey='{}',RowKey='r')", "x".repeat(513));
    let many_names =
        format!("GET /orders()?$select={}", (0..256).map(|n| format!("a{n},")).collect::<String>());
    let put = format!("PUT {entity}");
    let any: &[(&str, &str)] = &[("If-Match", "*")];
    let cases: Vec<Case<'_>> = vec![
        ("GET /missing()", &[], "", (404, "TableNotFound")),
        ("GET /orders(PartitionKey='p',RowKey='r')", &[], "", (404, "ResourceNotFound")),
        ("DELETE /Tables('missing')", &[], "", (404, "ResourceNotFound")),
        ("POST /Tables", &[], "{\"TableName\":\"orders\"}", (409, "TableAlreadyExists")),
        ("POST /Tables", &[], "{\"TableName\":\"a-b\"}", (400, "InvalidResourceName")),
        ("POST /Tables", &[], "{\"TableName\":\"ab\"}", (400, "OutOfRangeInput")),
        ("POST /Tables", &[], "{}", (400, "PropertiesNeedValue")),
        ("POST /Tables", &[], "{", (400, "InvalidInput")),
        ("POST /orders", &[], "{\"PartitionKey\":\"p\"}", (400, "PropertiesNeedValue")),
        ("POST /orders", &[], "{\"PartitionKey\":\"p/q\",\"RowKey\":\"\"}", (400, "OutOfRangeInput")),
        (
            "POST /orders",
            &[("Content-Type", "application/atom+xml")],
            "<entry/>",
            (415, "AtomFormatNotSupported"),
        ),
        ("GET /orders()", &[("Accept", "application/atom+xml")], "", (415, "AtomFormatNotSupported")),
        ("GET /orders()?$filter=a%20=%201", &[], "", (400, "InvalidInput")),
        ("GET /orders()?$filter=startswith(a,'b')", &[], "", (501, "NotImplemented")),
        ("GET /orders()?$filter=a%20eq%20null", &[], "", (400, "InvalidInput")),
        ("GET /orders()?$orderby=a", &[], "", (501, "NotImplemented")),
        ("GET /Tables?$skip=5", &[], "", (501, "NotImplemented")),
        ("GET /orders(PartitionKey='p',RowKey='r')?$expand=a", &[], "", (501, "NotImplemented")),
        (many_names.as_str(), &[], "", (400, "InvalidInput")),
        ("GET /orders()?$top=0", &[], "", (400, "InvalidQueryParameterValue")),
        ("GET /orders()?$top=1001", &[], "", (400, "InvalidQueryParameterValue")),
        ("GET /orders()?NextPartitionKey=x&NextRowKey=y", &[], "", (400, "InvalidQueryParameterValue")),
        ("GET /orders()?NextPartitionKey=1!eA", &[], "", (400, "InvalidInput")),
        (long.as_str(), &[], "", (400, "PropertyValueTooLarge")),
        (put.as_str(), any, "{\"1x\":1}", (400, "PropertyNameInvalid")),
        (put.as_str(), any, "{\"x\":1,\"x\":2}", (400, "DuplicatePropertiesSpecified")),
        (put.as_str(), any, "{\"PartitionKey\":\"other\"}", (400, "InvalidInput")),
        (put.as_str(), any, "{\"x\":1}", (404, "ResourceNotFound")),
        (put.as_str(), &[("If-Match", "nonsense")], "{}", (400, "InvalidInput")),
        ("DELETE /orders(PartitionKey='p',RowKey='r')", &[], "", (400, "MissingRequiredHeader")),
        ("PUT /orders", &[], "{}", (405, "UnsupportedHttpVerb")),
        ("GET /orders/x", &[], "", (400, "InvalidUri")),
        ("GET /", &[], "", (501, "NotImplemented")),
        ("GET /?restype=service&comp=stats", &[], "", (400, "InvalidInput")),
        ("GET /missing?comp=acl", &[], "", (404, "TableNotFound")),
        ("PUT /orders?comp=acl", &[], "<a", (400, "InvalidXmlDocument")),
        ("POST /$batch", &[("Content-Type", "text/plain")], "", (400, "InvalidInput")),
    ];
    for (line, headers, body, expected) in cases {
        assert_eq!(client.code(line, headers, body).await, expected, "{line} {body}");
    }
    client.ok(&put, &[], "{\"x\":1}").await;
    let old = [("If-Match", "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\"")];
    // One that no entity ever had is one that does not match.
    let never = [("If-Match", "W/\"wrong\"")];
    let delete = put.replacen("PUT", "DELETE", 1);
    let merge = put.replacen("PUT", "MERGE", 1);
    for headers in [&old, &never] {
        for (line, body) in [(&put, "{\"x\":2}"), (&merge, "{\"x\":2}"), (&delete, "")] {
            let code = client.code(line, headers, body).await;
            assert_eq!(code, (412, "UpdateConditionNotSatisfied"), "{line} {headers:?}");
        }
    }
    client.cluster.close().await;
}

async fn lists_go_on_by_headers(place: Place) {
    let client = Client::new(&place).await;
    for name in ["Bananas", "apples", "cherries"] {
        client.create(name).await;
    }
    let (response, text) =
        client.ok("GET /Tables?$top=2", &[("Accept", "application/json;odata=nometadata")], "").await;
    assert_eq!(text, "{\"value\":[{\"TableName\":\"apples\"},{\"TableName\":\"Bananas\"}]}");
    let next = response.get("x-ms-continuation-NextTableName").unwrap();
    let (response, text) = client.ok(&format!("GET /Tables?NextTableName={next}"), &[], "").await;
    assert!(text.ends_with("\"value\":[{\"TableName\":\"cherries\"}]}"), "{text}");
    assert_eq!(response.get("x-ms-continuation-NextTableName"), None);
    for row in ["ä", "ö", "ü"] {
        let body = format!("{{\"PartitionKey\":\"日本\",\"RowKey\":\"{row}\"}}");
        client.ok("POST /apples", &[], &body).await;
    }
    let (mut found, mut target) = (Vec::new(), "GET /apples()?$top=1".to_owned());
    loop {
        let (response, text) =
            client.ok(&target, &[("Accept", "application/json;odata=nometadata")], "").await;
        found.extend(
            ["ä", "ö", "ü"].into_iter().filter(|row| text.contains(&format!("\"RowKey\":\"{row}\""))),
        );
        let next = |name| response.get(name).map(str::to_owned);
        match (next("x-ms-continuation-NextPartitionKey"), next("x-ms-continuation-NextRowKey")) {
            (Some(partition), Some(row)) => {
                target = format!("GET /apples()?$top=1&NextPartitionKey={partition}&NextRowKey={row}");
            }
            (None, None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, ["ä", "ö", "ü"]);
    client.cluster.close().await;
}

async fn other_origins_are_let_in_by_rules(place: Place) {
    let client = Client::new(&place).await;
    let origin = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "GET")];
    assert_eq!(client.code("OPTIONS /Tables", &origin, "").await, (403, "CorsPreflightFailure"));
    let rules = "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>https://a.example</AllowedOrigins>\
        <AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>60</MaxAgeInSeconds>\
        <ExposedHeaders>x-ms-*</ExposedHeaders>\
        <AllowedHeaders>*</AllowedHeaders></CorsRule></Cors></StorageServiceProperties>";
    let (response, _) = client.ok("PUT /?restype=service&comp=properties", &[], rules).await;
    assert_eq!(response.status, 202);
    let (response, _) = client.ok("OPTIONS /Tables", &origin, "").await;
    assert_eq!(response.get("Access-Control-Allow-Origin"), Some("https://a.example"));
    assert_eq!(response.get("Access-Control-Max-Age"), Some("60"));
    let (response, _) = client.ok("GET /Tables", &origin[..1], "").await;
    let exposed = "x-ms-client-request-id,x-ms-request-id,x-ms-version";
    assert_eq!(response.get("Access-Control-Expose-Headers"), Some(exposed));
    // A page is shown what went wrong, too.
    let error = client.send("GET /Nothing()", &origin[..1], "").await.unwrap_err();
    let response = error.to_response(BodyFormat::Json, Uuid::nil(), Timestamp::from_ticks(0).unwrap());
    assert_eq!(
        (response.status, response.get("Access-Control-Allow-Origin")),
        (404, Some("https://a.example"))
    );
    let (_, text) = client.ok("GET /?restype=service&comp=properties", &[], "").await;
    assert!(text.contains("<AllowedOrigins>https://a.example</AllowedOrigins>"), "{text}");
    client.cluster.close().await;
}
