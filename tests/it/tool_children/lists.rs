//! The list of tools that a child has: fetched once for all, bounded, and fetched anew when it
//! changed.

use std::{sync::Arc, time::Duration};

use relight::internals::{domain::failure::TransportFault, tool::ListFreshness};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{Child, PATIENCE};

#[tokio::test]
async fn a_list_is_fetched_once_for_all_and_again_when_it_changed_or_is_to_be_fresh() {
    let child = Child::usual();
    let list = || child.servers.list("child", ListFreshness::Cached);
    let lists = futures_util::future::join_all((0..10).map(|_| list())).await;
    assert!(
        lists
            .iter()
            .all(|list| Arc::ptr_eq(list.as_ref().unwrap(), lists[0].as_ref().unwrap()))
    );
    let first = list().await.unwrap();
    assert_eq!((first.generation, child.count("list")), (1, 1));
    let things = first.find("list_things").unwrap();
    assert_eq!(
        (things.description.as_str(), things.annotations.read_only),
        ("Lists things.", Some(true))
    );
    let fresh = child
        .servers
        .list("child", ListFreshness::Fresh)
        .await
        .unwrap();
    assert_eq!(
        (fresh.generation, child.count("list")),
        (1, 2),
        "an equal list is no new one"
    );
    child.call("rename", json!({})).await.unwrap();
    let started = Instant::now();
    let changed = loop {
        let list = list().await.unwrap();
        if list.generation == 2 {
            break list;
        }
        assert!(started.elapsed() < PATIENCE, "the change is not seen");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(
        changed.find("list_things").unwrap().input_schema["properties"]["max_results"].is_object()
    );
    assert_eq!(child.servers.known("child"), Some(changed));
    assert_eq!(child.count("list"), 3);
}

#[tokio::test]
async fn a_list_of_five_hundred_tools_comes_whole_and_one_beyond_its_bound_is_refused() {
    let many = Child::new("many", json!({}), json!({}));
    let list = many
        .servers
        .list("child", ListFreshness::Cached)
        .await
        .unwrap();
    assert_eq!(list.tools.len(), 500);
    assert!(list.find("tool_499").is_some());
    let few = Child::with("many", json!({}), json!({}), |spec| {
        spec.limits.max_tools = 499;
    });
    let error = few
        .servers
        .list("child", ListFreshness::Cached)
        .await
        .unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::TooLarge));
    let endless = Child::new("endless", json!({}), json!({}));
    let error = timeout(
        PATIENCE,
        endless.servers.list("child", ListFreshness::Cached),
    )
    .await
    .unwrap()
    .unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::Protocol));
}

#[tokio::test]
async fn a_tool_whose_schema_is_too_deep_is_left_out_and_the_others_stay() {
    let child = Child::new("deep", json!({}), json!({}));
    let list = child
        .servers
        .list("child", ListFreshness::Cached)
        .await
        .unwrap();
    assert_eq!(
        list.tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>(),
        ["plain"]
    );
}
