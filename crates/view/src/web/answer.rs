//! Answers that refuse, as JSON: `{"error": {"code": "NotPermitted", "message": "…"}}`.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gang_protocol::error::ClientError;
use serde_json::json;

use crate::live::with_causes;

/// Why a request failed. The code is for programs, the message for people. Neither holds anything
/// that the client may not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, code, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "InvalidValue", message)
    }

    pub fn json(&self) -> String {
        json!({ "error": { "code": self.code, "message": self.message } }).to_string()
    }
}

impl From<ClientError> for Refusal {
    /// A refusal of the daemon, in its words.
    fn from(error: ClientError) -> Refusal {
        use ClientError::*;
        let (status, code) = match &error {
            NoDaemon { .. } => (StatusCode::SERVICE_UNAVAILABLE, "NoDaemon"),
            ForeignSocket { .. } => (StatusCode::BAD_GATEWAY, "ForeignSocket"),
            ConnectNotPermitted { .. } => (StatusCode::FORBIDDEN, "ConnectNotPermitted"),
            OtherNamespace { .. } => (StatusCode::FORBIDDEN, "OtherNamespace"),
            Connect { .. } | Lost { .. } | Closed { .. } => (StatusCode::BAD_GATEWAY, "Lost"),
            TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "TimedOut"),
            Malformed { .. } | Unsupported { .. } => (StatusCode::BAD_GATEWAY, "OtherVersion"),
            NoSuchJob { .. } => (StatusCode::NOT_FOUND, "NoSuchJob"),
            NoSuchProcess { .. } => (StatusCode::NOT_FOUND, "NoSuchProcess"),
            NoSuchThread { .. } => (StatusCode::NOT_FOUND, "NoSuchThread"),
            NoSuchCgroup { .. } => (StatusCode::NOT_FOUND, "NoSuchCgroup"),
            NotPermitted { .. } => (StatusCode::FORBIDDEN, "NotPermitted"),
            InvalidValue { .. } => (StatusCode::BAD_REQUEST, "InvalidValue"),
            LimitReached { .. } => (StatusCode::CONFLICT, "LimitReached"),
            NotEnough { .. } => (StatusCode::CONFLICT, "NotEnough"),
            Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "Failed"),
        };
        Refusal::new(status, code, with_causes(&error))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, headers, self.json()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
