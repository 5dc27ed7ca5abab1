//! Reads the events of a response as they come.

use std::{net::SocketAddr, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_mins(1);

/// A response of events at `/mcp`.
pub(crate) struct EventReader {
    body: Incoming,
    read: String,
}

impl EventReader {
    /// The response to a request with this body.
    pub(crate) async fn post(
        address: SocketAddr,
        headers: &[(String, String)],
        body: &Value,
    ) -> Self {
        let request = hyper::Request::post(format!("http://{address}/mcp"))
            .header("content-type", "application/json");
        Self::of(request, headers, body.to_string()).await
    }

    /// The response to `GET`.
    pub(crate) async fn get(address: SocketAddr) -> Self {
        let request = hyper::Request::get(format!("http://{address}/mcp"));
        Self::of(request, &[], String::new()).await
    }

    async fn of(
        mut request: hyper::http::request::Builder,
        headers: &[(String, String)],
        body: String,
    ) -> Self {
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            read: String::new(),
        }
    }

    /// The message of the next event.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let data = data.map(|data| serde_json::from_str(data).unwrap());
                let rest = rest.to_owned();
                self.read = rest;
                if let Some(data) = data {
                    return data;
                }
                continue;
            }
            let frame = timeout(PATIENCE, self.body.frame())
                .await
                .expect("nothing comes");
            let frame = frame.unwrap().unwrap().into_data().unwrap();
            self.read.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }
}
