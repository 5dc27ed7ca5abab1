//! What bad input gets: a clear word, in bounded time and memory, from callers and providers alike.

use std::time::Duration;

use relight::internals::grpc::v1::{
    FailureClass, Invocation, InvokeWithRecoveryRequest, Overrides, invocation::Call,
    invoke_with_recovery_response::Outcome,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::{
    relight::{Relight, asking},
    targets::one_target,
    upstream::{Reply, Upstream},
};

#[tokio::test]
async fn an_invalid_request_gets_every_violation_at_once() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = asking("Hello");
    invocation.operation = "x".repeat(300);
    invocation.labels = [("k".repeat(500), "v".to_owned())].into();
    invocation.overrides = Some(Overrides {
        injection_mode: 99,
        ..Overrides::default()
    });
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = violations
        .iter()
        .map(|violation| violation.field.as_str())
        .collect();
    assert!(fields.contains(&"invocation.operation"), "{fields:?}");
    assert!(
        fields
            .iter()
            .any(|field| field.starts_with("invocation.labels")),
        "{fields:?}"
    );
    assert!(
        fields.contains(&"invocation.overrides.injection_mode"),
        "{fields:?}"
    );
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "-1"
    );
    let nothing = InvokeWithRecoveryRequest {
        invocation: Some(Invocation::default()),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(nothing)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn extra_parameters_cannot_choose_another_model_than_the_route_or_another_conversation() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let text = |text: &str| prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
    };
    for (name, code) in [
        ("model", Some(Code::InvalidArgument)),
        ("messages", Some(Code::InvalidArgument)),
        ("user", None),
    ] {
        let mut invocation = asking("Hello");
        let Some(Call::Model(call)) = &mut invocation.call else {
            panic!("{invocation:?}")
        };
        call.extra = Some(prost_types::Struct {
            fields: [(name.to_owned(), text("other"))].into(),
        });
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        let answered = relight.recovery().invoke_with_recovery(request).await;
        assert_eq!(
            answered.as_ref().err().map(tonic::Status::code),
            code,
            "{name}: {answered:?}"
        );
        if let Err(status) = answered {
            let violations = status.get_details_bad_request().unwrap().field_violations;
            assert_eq!(
                violations[0].field,
                format!("invocation.model.extra[\"{name}\"]")
            );
        }
    }
    let sent: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.body["user"].clone())
        .collect();
    assert_eq!(sent, ["other"]);
}

#[tokio::test]
async fn an_override_beyond_the_operators_bounds_is_refused_with_its_field() {
    let upstream = Upstream::start().await;
    let yaml = one_target(&upstream).replace(
        "deadline: 20s }",
        "deadline: 20s, allow_overrides: { max_retries: 2 } }",
    );
    let relight = Relight::start(&yaml).await;
    let mut invocation = asking("Hello");
    invocation.overrides = Some(Overrides {
        max_retries: Some(4),
        allowed_targets: vec!["mian".to_owned()],
        ..Overrides::default()
    });
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let text = format!("{:?}", status.get_details_bad_request().unwrap());
    assert!(text.contains("invocation.overrides.max_retries"), "{text}");
    assert!(text.contains("did you mean `main`"), "{text}");
}

#[tokio::test]
async fn an_unknown_route_is_not_found_and_the_nearest_is_named() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = asking("Hello");
    invocation.route = "defalt".to_owned();
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("default"), "{}", status.message());
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "ROUTE_NOT_FOUND"
    );
}

#[tokio::test]
async fn a_message_beyond_the_bound_is_refused_before_it_is_read_whole() {
    let upstream = Upstream::start().await;
    let yaml = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", max_message_bytes: 64KiB }}\n{}",
        one_target(&upstream)
    );
    let relight = Relight::start_whole(&yaml).await;
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking(&"x".repeat(1 << 20))),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert!(
        matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted),
        "{status:?}"
    );
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_provider_that_answers_badly_is_a_classified_failure_in_bounded_time() {
    let cases: Vec<(&str, Reply, &[FailureClass])> = vec![
        (
            "garbage",
            Reply::body(200, &[], b"\x00\xff\xfenothing"),
            &[FailureClass::MalformedResponse],
        ),
        ("html", Reply::html(), &[FailureClass::MalformedResponse]),
        (
            "nothing",
            Reply::empty(),
            &[
                FailureClass::MalformedResponse,
                FailureClass::StreamInterrupted,
            ],
        ),
        (
            "half",
            Reply::text("Half an answer").cut_after(200),
            &[FailureClass::StreamInterrupted, FailureClass::Network],
        ),
        (
            "endless line",
            Reply::endless_line(),
            &[FailureClass::MalformedResponse],
        ),
        (
            "endless body",
            Reply::endless_body(),
            &[FailureClass::MalformedResponse, FailureClass::Timeout],
        ),
        ("reset", Reply::reset(), &[FailureClass::Network]),
        ("silence", Reply::silence(), &[FailureClass::Timeout]),
    ];
    for (name, reply, classes) in cases {
        let upstream = Upstream::start().await;
        upstream.otherwise(reply);
        let relight = Relight::start(&one_target(&upstream)).await;
        let mut invocation = asking("Hello");
        invocation.overrides = Some(Overrides {
            max_retries: Some(0),
            ..Overrides::default()
        });
        let waited =
            tokio::time::timeout(Duration::from_secs(20), relight.invoke(invocation)).await;
        let Ok(response) = waited else {
            panic!("{name}: no end")
        };
        match response.outcome {
            Some(Outcome::Failure(failure)) => {
                assert!(
                    classes.contains(&failure.failure_class()),
                    "{name}: {failure:?}"
                );
                assert!(failure.message.len() <= 1024, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_health_check_answers_on_both_ports_and_reports_the_drain() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    for address in [relight.running.address, relight.running.admin_address] {
        let endpoint = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap();
        let mut health = HealthClient::new(endpoint.connect().await.unwrap());
        for service in ["", "relight.v1.RecoveryService", "liveness"] {
            let request = HealthCheckRequest {
                service: service.to_owned(),
            };
            let status = health.check(request).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving, "{service}");
        }
    }
}
