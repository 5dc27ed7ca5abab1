//! Invocations are listed newest first, by what is known of them.

use relight::internals::journal::{Listing, NewInvocation};

use super::{
    Engine, answer, at, begin, end, id, invocation, on_every_engine, on_thread, requested, thread,
};

/// The names of the wanted invocations, in the order of the list.
async fn names(
    engine: &Engine,
    fill: &[NewInvocation],
    wanted: &[(Listing, usize)],
) -> Vec<Vec<String>> {
    let journal = engine.open().await;
    for new in fill {
        begin(&journal, new.clone()).await;
    }
    journal
        .finish(end("b", 1, "hello", answer("b", 1, "hello").0), at(1))
        .await
        .unwrap();
    let mut found = Vec::new();
    for (wanted, limit) in wanted {
        let records = journal.list(wanted, *limit).await.unwrap();
        assert!(
            records
                .iter()
                .all(|record| record.request.is_none() && record.snapshot.is_none())
        );
        let finished = records.iter().find(|record| record.id == id("b"));
        assert!(finished.is_none_or(|record| record.outcome.is_some() && record.is_finished()));
        found.push(
            records
                .into_iter()
                .map(|record| record.id.to_string())
                .collect(),
        );
    }
    found
}

async fn each_filter_leaves_those_out_that_it_does_not_name(engine: Engine) {
    let of = |tenant: &str, route: &str, operation: &str, new: NewInvocation| NewInvocation {
        tenant: tenant.into(),
        route: route.into(),
        operation: operation.into(),
        ..new
    };
    let fill = [
        of("acme", "default", "executor", invocation("a")),
        of("acme", "default", "planner", requested("b", "key")),
        of("other", "default", "executor", invocation("c")),
        of("acme", "second", "executor", on_thread("d", &thread("t"))),
    ];
    let with = |change: fn(&mut Listing)| {
        let mut wanted = Listing::default();
        change(&mut wanted);
        wanted
    };
    let wanted = [
        (Listing::default(), 9, "dcba"),
        (Listing::default(), 2, "dc"),
        (with(|wanted| wanted.before = Some(id("c"))), 9, "ba"),
        (with(|wanted| wanted.tenant = Some("acme".into())), 9, "dba"),
        (with(|wanted| wanted.routes = vec!["second".into()]), 9, "d"),
        (
            with(|wanted| wanted.routes = vec!["second".into(), "default".into()]),
            9,
            "dcba",
        ),
        (
            with(|wanted| wanted.operation = Some("planner".into())),
            9,
            "b",
        ),
        (with(|wanted| wanted.thread = Some("t".into())), 9, "d"),
        (with(|wanted| wanted.finished = Some(true)), 9, "b"),
        (
            with(|wanted| {
                wanted.finished = Some(false);
                wanted.tenant = Some("acme".into());
            }),
            9,
            "da",
        ),
        (with(|wanted| wanted.since = Some(at(0))), 9, "dcba"),
        (
            with(|wanted| wanted.tenant = Some("'; DROP TABLE invocations".into())),
            9,
            "",
        ),
    ];
    let asked: Vec<_> = wanted
        .iter()
        .map(|(listing, limit, _)| (listing.clone(), *limit))
        .collect();
    let found: Vec<String> = names(&engine, &fill, &asked)
        .await
        .into_iter()
        .map(|names| names.concat())
        .collect();
    assert_eq!(found, wanted.map(|(_, _, expected)| expected.to_owned()));
}

async fn what_began_before_is_left_out(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let future = Listing {
        since: Some("2200-01-01T00:00:00Z".parse().unwrap()),
        ..Listing::default()
    };
    assert_eq!(journal.list(&future, 9).await.unwrap(), []);
}

on_every_engine!(
    each_filter_leaves_those_out_that_it_does_not_name,
    what_began_before_is_left_out
);
