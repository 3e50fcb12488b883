//! Checks each request before anything else looks at it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Refusal;
use super::token::Token;

/// Longest time until the head of an answer, whatever is asked for.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The headers of every answer. Scripts, styles, pictures and requests are ours alone, nothing is
/// written into the page, and no other page may hold it in a frame.
const HEADERS: [(HeaderName, &str); 8] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The rules by which requests are admitted.
#[derive(Debug)]
pub struct Door {
    pub token: Token,
    /// Names under which the machine is reached, without ports; none where a proxy checks them.
    pub names: Option<Vec<String>>,
    pub read_only: bool,
    pub open_metrics: bool,
}

impl Door {
    /// Refuses a request that breaks a rule.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = one(headers, &HOST).filter(|host| self.knows(host)).ok_or_else(|| {
            Refusal::new(
                StatusCode::FORBIDDEN,
                "WrongHost",
                "this server is not reached under that name; --name of gang web adds one",
            )
        })?;
        let is_change = !matches!(*method, Method::GET | Method::HEAD);
        let is_own = |_| one(headers, &ORIGIN).is_some_and(|origin| is_of(origin, host));
        let origin = headers.get(ORIGIN).map(is_own);
        if origin == Some(false) || (is_change && origin.is_none()) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "WrongOrigin",
                "only the page of this server may ask for that",
            ));
        }
        let is_open = match path {
            "/metrics" => self.open_metrics,
            _ => !path.starts_with("/api/"),
        };
        let has_token = || {
            let said = one(headers, &AUTHORIZATION)?;
            said.strip_prefix("Bearer ").filter(|said| self.token.is(said.as_bytes()))
        };
        if (!is_open || is_change) && has_token().is_none() {
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "NoToken",
                "the token is missing or wrong; open the address that gang web printed when it was started",
            ));
        }
        if is_change && self.read_only {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "ReadOnly",
                "this server only shows: it was started with --read-only",
            ));
        }
        Ok(())
    }

    /// The names of this machine lead to it; one of somebody else's that leads here is not ours.
    fn knows(&self, host: &str) -> bool {
        let Some(names) = &self.names else { return true };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let mut known = ["localhost", "127.0.0.1", "[::1]"].into_iter();
        known.any(|ours| name.eq_ignore_ascii_case(ours))
            || names.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    }
}

/// A header that is there once and is plain text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

/// Whether an origin is the host that was asked. A proxy may have made HTTPS of it.
fn is_of(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

/// Lets in, or not, and closes the windows of whatever comes out.
pub async fn pass(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let checked = door.check(request.method(), request.uri().path(), request.headers());
    let mut response = match checked {
        Ok(()) => match tokio::time::timeout(TIME_LIMIT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                let message =
                    "the answer took too long; the daemon may be stuck, or the request never ended";
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "TimedOut", message).into_response()
            }
        },
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        Door {
            token: Token::of_text(&"t".repeat(32)).unwrap(),
            names: Some(vec!["gang.example.org".to_owned()]),
            read_only: false,
            open_metrics: false,
        }
    }

    fn code(
        door: &Door,
        method: Method,
        path: &str,
        said: &[(&'static str, &str)],
    ) -> &'static str {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        door.check(&method, path, &headers).map_or_else(|refusal| refusal.code, |()| "ok")
    }

    #[test]
    fn hosts_are_names_of_this_machine() {
        let door = door();
        for host in [
            "localhost",
            "localhost:7878",
            "127.0.0.1:9",
            "[::1]:7878",
            "LOCALHOST:1",
            "gang.example.org",
        ] {
            assert_eq!(code(&door, Method::GET, "/", &[("host", host)]), "ok", "{host}");
        }
        for host in
            ["evil.org", "evil.org:7878", "localhost.evil.org", "127.0.0.1.evil.org", "", "::1"]
        {
            assert_eq!(code(&door, Method::GET, "/", &[("host", host)]), "WrongHost", "{host}");
        }
        assert_eq!(code(&door, Method::GET, "/", &[]), "WrongHost");
        let two = [("host", "localhost"), ("host", "evil.org")];
        assert_eq!(code(&door, Method::GET, "/", &two), "WrongHost");
        let behind_a_proxy = Door { names: None, ..door };
        assert_eq!(code(&behind_a_proxy, Method::GET, "/", &[("host", "any.org")]), "ok");
    }

    #[test]
    fn a_change_needs_token_and_origin() {
        let door = door();
        let token = format!("Bearer {}", "t".repeat(32));
        let path = "/api/jobs/3/kill";
        let host = ("host", "localhost:7878");
        let with = |said: &[(&'static str, &str)]| {
            code(&door, Method::POST, path, &[&[host], said].concat())
        };
        let (auth, origin) = (("authorization", &*token), ("origin", "http://localhost:7878"));
        assert_eq!(with(&[auth, origin]), "ok");
        assert_eq!(with(&[auth]), "WrongOrigin");
        assert_eq!(with(&[origin]), "NoToken");
        for other in [
            "null",
            "http://localhost:9999",
            "http://127.0.0.1:7878",
            "http://evil.org",
            "localhost:7878",
            "http://localhost:7878.evil.org",
            "",
        ] {
            assert_eq!(with(&[auth, ("origin", other)]), "WrongOrigin", "{other}");
        }
        for other in ["Bearer", "Bearer x", "bearer", "Basic dDp0", &token[..20]] {
            assert_eq!(with(&[("authorization", other), origin]), "NoToken", "{other}");
        }
        let read_only = Door { read_only: true, ..self::door() };
        assert_eq!(code(&read_only, Method::POST, path, &[host, auth, origin]), "ReadOnly");
    }

    #[test]
    fn reading_needs_the_token_and_no_strange_origin() {
        let door = door();
        let token = format!("Bearer {}", "t".repeat(32));
        let host = ("host", "localhost:7878");
        for path in ["/api/live", "/api/jobs/3", "/metrics", "/api/"] {
            assert_eq!(code(&door, Method::GET, path, &[host]), "NoToken", "{path}");
            assert_eq!(code(&door, Method::GET, path, &[host, ("authorization", &token)]), "ok");
        }
        let open = Door { open_metrics: true, ..self::door() };
        assert_eq!(code(&open, Method::GET, "/metrics", &[host]), "ok");
        assert_eq!(code(&open, Method::GET, "/api/live", &[host]), "NoToken");
        let strange = [host, ("authorization", &token), ("origin", "http://evil.org")];
        assert_eq!(code(&door, Method::GET, "/api/live", &strange), "WrongOrigin");
    }
}
