//! The list of models: the routes that the caller may name, and their targets.

use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};

use super::{
    Front, PeerCertificate, Principal,
    error::{CallError, Protocol},
};
use crate::{
    call_error::table::{MODEL_NOT_FOUND, ROUTE_NOT_ALLOWED},
    config::{Config, RouteConfig, fault::nearest},
    domain::ids::{RouteName, TargetId},
};

/// `GET /v1/models`.
pub(super) async fn list(
    State(front): State<Front>,
    shown: PeerCertificate,
    headers: HeaderMap,
) -> Response {
    let protocol = Protocol::of("/v1/models", &headers);
    let caller = match front.identify(&headers, &shown) {
        Ok(caller) => caller,
        Err(refused) => return refused.respond(protocol),
    };
    let config = front.engine.config();
    let names = names(&config, &caller);
    let data: Vec<Value> = names
        .iter()
        .map(|(name, owner)| front.model(protocol, name, owner))
        .collect();
    let document = match protocol {
        Protocol::Openai => json!({"object": "list", "data": data}),
        Protocol::Anthropic => {
            let first = names.first().map(|(name, _)| name);
            let last = names.last().map(|(name, _)| name);
            json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
        }
    };
    Json(document).into_response()
}

/// `GET /v1/models/{model}`.
pub(super) async fn one(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(model): Path<String>,
    headers: HeaderMap,
) -> Response {
    let protocol = Protocol::of("/v1/models", &headers);
    let found = front.identify(&headers, &shown).and_then(|caller| {
        let config = front.engine.config();
        let names = names(&config, &caller);
        match names.iter().find(|(name, _)| *name == model) {
            Some((name, owner)) => Ok(front.model(protocol, name, owner)),
            None => Err(no_such_model(&model, &names)),
        }
    });
    match found {
        Ok(document) => Json(document).into_response(),
        Err(refused) => refused.respond(protocol),
    }
}

/// Returns the route that a model is, and the target to which it is narrowed.
///
/// # Errors
/// Returns an error if it is neither a route nor a target of one, or the caller may not use
/// it.
pub(super) fn resolve(
    config: &Config,
    caller: &Principal,
    model: &str,
) -> Result<(RouteName, Option<TargetId>), CallError> {
    let route = RouteName::from(model);
    if config.routes.contains_key(&route) {
        return if caller.may_use(&route) {
            Ok((route, None))
        } else {
            Err(CallError::new(ROUTE_NOT_ALLOWED).word("name", model))
        };
    }
    let target = TargetId::from(model);
    let mut routes = routes(config, caller).filter(|(_, route)| route.targets.contains(&target));
    let first = routes.next();
    let allowed = first
        .into_iter()
        .chain(routes)
        .find(|(_, route)| route.allow_overrides.targets);
    match allowed.or(first) {
        Some((name, _)) => Ok((name.clone(), Some(target))),
        None => Err(no_such_model(model, &names(config, caller))),
    }
}

// === impl Front ===

impl Front {
    fn model(&self, protocol: Protocol, name: &str, owner: &str) -> Value {
        match protocol {
            Protocol::Openai => {
                json!({"id": name, "object": "model", "created": self.started_unix, "owned_by": owner})
            }
            Protocol::Anthropic => {
                let created_at =
                    jiff::Timestamp::from_second(self.started_unix).unwrap_or_default();
                json!({"type": "model", "id": name, "display_name": name, "created_at": created_at.to_string()})
            }
        }
    }
}

/// Returns every name that the caller may use as a model, with its owner.
fn names<'a>(config: &'a Config, caller: &Principal) -> Vec<(String, &'a str)> {
    let allowed = config.routes.keys().filter(|route| caller.may_use(route));
    let mut names: Vec<(String, &str)> = allowed
        .map(|route| (route.to_string(), "relight"))
        .collect();
    for (_, route) in routes(config, caller).filter(|(_, route)| route.allow_overrides.targets) {
        for target in &route.targets {
            if !names.iter().any(|(name, _)| name == target.as_str()) {
                let owner = config
                    .targets
                    .get(target)
                    .map_or("relight", |target| target.provider.as_str());
                names.push((target.to_string(), owner));
            }
        }
    }
    names
}

/// Returns the routes that the caller may name, the default one first.
fn routes<'a>(
    config: &'a Config,
    caller: &Principal,
) -> impl Iterator<Item = (&'a RouteName, &'a RouteConfig)> {
    let default = default_route(config);
    let mut routes: Vec<_> = config
        .routes
        .iter()
        .filter(|(name, _)| caller.may_use(name))
        .collect();
    routes.sort_by_key(|(name, _)| Some(*name) != default.as_ref());
    routes.into_iter()
}

fn default_route(config: &Config) -> Option<RouteName> {
    let named = config
        .default_route
        .clone()
        .unwrap_or_else(|| RouteName::from("default"));
    let only = config
        .routes
        .keys()
        .next()
        .filter(|_| config.routes.len() == 1);
    config
        .routes
        .contains_key(&named)
        .then_some(named)
        .or_else(|| only.cloned())
}

fn no_such_model(model: &str, names: &[(String, &str)]) -> CallError {
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    CallError::not_found(MODEL_NOT_FOUND, model, nearest(model, &names))
}
