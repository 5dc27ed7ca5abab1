//! The list of models: the routes that the caller may name, and the targets of the default one.

use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
};
use serde_json::{Value, json};

use super::{Caller, Front, Shown, error::Refused};
use crate::{
    config::{Config, fault::nearest},
    domain::ids::{RouteName, TargetId},
};

/// `GET /v1/models`.
pub(super) async fn list(State(front): State<Front>, shown: Shown, headers: HeaderMap) -> Result<Json<Value>, Refused> {
    let caller = front.identify(&headers, &shown)?;
    let config = front.engine.config();
    let data: Vec<Value> = names(&config, &caller).into_iter().map(|(name, owner)| front.model(&name, owner)).collect();
    Ok(Json(json!({"object": "list", "data": data})))
}

/// `GET /v1/models/{model}`.
pub(super) async fn one(
    State(front): State<Front>,
    shown: Shown,
    Path(model): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = front.identify(&headers, &shown)?;
    let config = front.engine.config();
    let names = names(&config, &caller);
    let found = names.iter().find(|(name, _)| *name == model);
    match found {
        Some((name, owner)) => Ok(Json(front.model(name, owner))),
        None => Err(no_such_model(&model, &names)),
    }
}

/// Which route a model is, and to which target it is narrowed.
///
/// # Errors
/// When it is neither a route nor a target of the default one, or the caller may not use it.
pub(super) fn resolve(config: &Config, caller: &Caller, model: &str) -> Result<(RouteName, Option<TargetId>), Refused> {
    let route = RouteName::from(model);
    if config.routes.contains_key(&route) {
        return if caller.may_use(&route) { Ok((route, None)) } else { Err(Refused::route_not_allowed(model)) };
    }
    let target = TargetId::from(model);
    match default_route(config).filter(|route| caller.may_use(route)) {
        Some(default) if config.routes[&default].targets.contains(&target) => Ok((default, Some(target))),
        Some(_) | None => Err(no_such_model(model, &names(config, caller))),
    }
}

// === impl Front ===

impl Front {
    fn model(&self, name: &str, owner: &str) -> Value {
        json!({"id": name, "object": "model", "created": self.started_unix, "owned_by": owner})
    }
}

/// Every name that the caller may use as a model, with its owner.
fn names<'a>(config: &'a Config, caller: &Caller) -> Vec<(String, &'a str)> {
    let routes = config.routes.keys().filter(|route| caller.may_use(route));
    let mut names: Vec<(String, &str)> = routes.map(|route| (route.to_string(), "relight")).collect();
    let default = default_route(config).filter(|route| caller.may_use(route));
    let targets = default.map(|route| &config.routes[&route]).filter(|route| route.allow_overrides.targets);
    for target in targets.into_iter().flat_map(|route| &route.targets) {
        if !config.routes.contains_key(&RouteName::from(target.as_str())) {
            let owner = config.targets.get(target).map_or("relight", |target| target.provider.as_str());
            names.push((target.to_string(), owner));
        }
    }
    names
}

fn default_route(config: &Config) -> Option<RouteName> {
    let named = config.default_route.clone().unwrap_or_else(|| RouteName::from("default"));
    let only = config.routes.keys().next().filter(|_| config.routes.len() == 1);
    config.routes.contains_key(&named).then_some(named).or_else(|| only.cloned())
}

fn no_such_model(model: &str, names: &[(String, &str)]) -> Refused {
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    Refused::no_such_model(model, nearest(model, &names))
}
