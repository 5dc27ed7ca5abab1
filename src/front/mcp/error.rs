//! Writes an error of a call as JSON-RPC has errors.

use axum::{http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::document;
use crate::call_error::CallError;

// === impl CallError ===

impl CallError {
    /// Returns the message that tells it.
    pub(super) fn message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.row().rpc, "message": self.to_string() });
        if let Some(data) = self.data() {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }

    /// Returns the response to the request of this id.
    pub(super) fn respond_to(&self, id: &Value) -> Response {
        let mut response = document(&self.message(id));
        let status = StatusCode::from_u16(self.row().rpc_http);
        *response.status_mut() = status.unwrap_or(StatusCode::OK);
        response
    }
}
