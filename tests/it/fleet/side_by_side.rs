//! Replicas of different configurations share what is the same, whatever it is named, and nothing
//! else.

use super::*;

/// A configuration of one account of the upstream: its key, and targets with their models.
fn configuration(upstream: &Upstream, provider: &str, key: &str, targets: &[[&str; 2]]) -> String {
    let of_target = |[name, model]: &[&str; 2]| {
        format!("  {name}: {{ provider: {provider}, model: {model} }}\n")
    };
    let of_route = |[name, _]: &[&str; 2]| format!("  for-{name}: {{ targets: [{name}] }}\n");
    let list = |of: &dyn Fn(&[&str; 2]) -> String| targets.iter().map(of).collect::<String>();
    format!(
        "providers: {{ {provider}: {{ dialect: openai_chat, base_url: \"{}\", api_key: {key} }} }}\n\
         targets:\n{}routes:\n  default: {{ targets: [{}], deadline: 20s }}\n{}\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }} }} }} }}\n\
         circuit: {{ open_base: 60s }}\n",
        upstream.base_url(),
        list(&of_target),
        targets[0][0],
        list(&of_route),
    )
}

async fn named(replica: &Process, id: &str) -> Target {
    let request = ListTargetsRequest::default();
    let listed = replica.admin().list_targets(request).await.unwrap();
    let mut targets = listed.into_inner().targets.into_iter();
    targets.find(|target| target.id == id).unwrap()
}

async fn force_named(replica: &Process, id: &str, force: CircuitForce) {
    let request = ForceCircuitRequest {
        target: id.to_owned(),
        force: force.into(),
        reason: "maintenance at noon".to_owned(),
    };
    replica.admin().force_circuit(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_configurations_share_what_is_the_same_target_and_nothing_of_what_differs() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let upstream = Upstream::start().await;
        let shared = format!(
            "fleet: {{ store: \"{}\" }}\njournal: {{ store: memory }}\n",
            server.url()
        );
        let start = async |provider: &str, key: &str, targets: &[[&str; 2]]| {
            let own = configuration(&upstream, provider, key, targets);
            Process::start(&format!("{own}{shared}")).await
        };
        let first = start("model", "k", &[["main", "m-1"], ["here", "m-2"]]).await;
        let second = start("vendor", "k", &[["renamed", "m-1"], ["there", "m-3"]]).await;
        let stranger = start("model", "another-key", &[["main", "m-1"], ["here", "m-2"]]).await;
        for replica in [&first, &second, &stranger] {
            known_to_live(replica, 3).await;
        }
        let state = async |replica: &Process, id: &str| state_of(&named(replica, id).await);

        upstream.otherwise(Reply::status(500));
        while state(&first, "main").await == CircuitState::Closed {
            failure(&first).await;
        }
        let what = format!("{engine}: an outage of the same target");
        until(&what, async || {
            state(&second, "renamed").await == CircuitState::Open
        })
        .await;

        force_named(&first, "here", CircuitForce::Open).await;
        force_named(&second, "renamed", CircuitForce::Closed).await;
        let what = format!("{engine}: a word about the same target");
        until(&what, async || {
            state(&first, "main").await == CircuitState::ForcedClosed
        })
        .await;

        upstream.otherwise(Reply::status(401));
        let is_refused = async |replica: &Process, id: &str| {
            is_closed_gate(&named(replica, id).await, GateKind::Credential)
        };
        until("a refused key", async || {
            failure(&first).await;
            is_refused(&first, "main").await
        })
        .await;
        let what = format!("{engine}: a refused key of the same account");
        until(&what, async || {
            is_refused(&second, "renamed").await && is_refused(&second, "there").await
        })
        .await;

        assert_eq!(state(&second, "there").await, CircuitState::Closed);
        assert_eq!(state(&first, "here").await, CircuitState::ForcedOpen);
        for id in ["main", "here"] {
            let target = named(&stranger, id).await;
            assert_eq!(state_of(&target), CircuitState::Closed, "{engine}: {id}");
            assert!(!is_closed_gate(&target, GateKind::Credential), "{engine}");
        }
    }
}
