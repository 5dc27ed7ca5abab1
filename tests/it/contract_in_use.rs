//! What the contract and the metrics announce is really sent: a run full of faults over every front
//! is looked through for every instrument, every event and every value of every enum.
//!
//! `tests/fixtures/contract.tsv` names them all, and for each that is not sent in this run the test
//! that sees it.

mod faulty_run;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage as _, Value as Field};
use relight::internals::grpc::v1::{
    DESCRIPTORS, GetThreadRequest, WatchRecoveryRequest, watch_recovery_request,
};

use self::faulty_run::{faulty_run, settings, verdicts};
use crate::support::{http::metrics, reloaded::Reloaded};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/contract.tsv");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
const INSTRUMENTS: &str = include_str!("../../crates/relight-policy/src/domain/semconv.rs");

/// Longest time that the run may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was seen in messages of the server: enum values by name, members of a `body` as
/// `Message.body.member`.
struct Seen {
    pool: DescriptorPool,
    names: BTreeSet<String>,
}

// === impl Seen ===

impl Seen {
    fn new() -> Self {
        Self {
            pool: DescriptorPool::decode(DESCRIPTORS).unwrap(),
            names: BTreeSet::new(),
        }
    }

    /// Everything that a message could hold, by the contract.
    fn announced(&self) -> BTreeSet<String> {
        let values = self
            .pool
            .all_enums()
            .filter(|one| one.package_name() == "relight.v1")
            .flat_map(|one| {
                let named = |value: &String| !value.ends_with("_UNSPECIFIED");
                one.values()
                    .map(|value| value.name().to_owned())
                    .filter(named)
                    .collect::<Vec<_>>()
            });
        let bodies = ["RecoveryEvent", "StreamEvent"]
            .into_iter()
            .flat_map(|name| {
                let message = self
                    .pool
                    .get_message_by_name(&format!("relight.v1.{name}"))
                    .unwrap();
                let body = message
                    .oneofs()
                    .find(|oneof| oneof.name() == "body")
                    .unwrap();
                body.fields()
                    .map(|field| format!("{name}.{}", field.name()))
                    .collect::<Vec<_>>()
            });
        values.chain(bodies).collect()
    }

    fn add(&mut self, name: &str, message: &impl prost::Message) {
        let descriptor = self
            .pool
            .get_message_by_name(&format!("relight.v1.{name}"))
            .unwrap();
        self.walk(&DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()).unwrap());
    }

    fn walk(&mut self, message: &DynamicMessage) {
        for (field, value) in message.fields() {
            if field
                .containing_oneof()
                .is_some_and(|oneof| oneof.name() == "body")
            {
                self.names
                    .insert(format!("{}.{}", message.descriptor().name(), field.name()));
            }
            self.look(&field.kind(), value);
        }
    }

    fn look(&mut self, kind: &Kind, value: &Field) {
        match (kind, value) {
            (Kind::Enum(one), Field::EnumNumber(number)) => {
                self.names
                    .extend(one.get_value(*number).map(|value| value.name().to_owned()));
            }
            (_, Field::Message(message)) => self.walk(message),
            (_, Field::List(items)) => items.iter().for_each(|item| self.look(kind, item)),
            (_, Field::Map(members)) => members.values().for_each(|member| {
                if let Field::Message(message) = member {
                    self.walk(message);
                }
            }),
            _ => {}
        }
    }
}

/// Name of what is announced, and `sent`, or why it is not.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(TABLE).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once('\t').unwrap_or_else(|| panic!("{line}")))
        .map(|(a, b)| (a.into(), b.into()))
        .collect()
}

/// Why a row of the table proves nothing: it names no test, or one that does not mention the value.
fn unproven(pool: &DescriptorPool, name: &str, reason: &str) -> Option<String> {
    let known = ["sent", "reserved", "in requests"]
        .iter()
        .any(|start| reason.starts_with(start));
    let Some(test) = reason.strip_prefix("seen by ") else {
        return (!known)
            .then(|| format!("{name}: `{reason}` is neither `sent` nor `seen by <test>`"));
    };
    // What is not named by its own name there is named after the test.
    let (test, words) = match test.split_once(": ") {
        Some((test, words)) => (test, vec![words.to_owned()]),
        None => (test, in_rust(pool, name)),
    };
    let bodies = test_bodies(test);
    let mentioned = bodies
        .iter()
        .any(|body| words.iter().any(|words| body.contains(words.as_str())));
    (!mentioned).then(|| {
        format!(
            "{name}: of {} tests `{test}` none mentions one of {words:?}",
            bodies.len()
        )
    })
}

/// How tests spell a value of an enum or a member of a `body`.
fn in_rust(pool: &DescriptorPool, name: &str) -> Vec<String> {
    if let Some((_, member)) = name.split_once('.') {
        return vec![
            format!("Body::{}", camel_case(member)),
            format!("\"{member}\""),
        ];
    }
    let mut enums = pool
        .all_enums()
        .filter(|one| one.values().any(|value| value.name() == name));
    let Some(one) = enums.next() else {
        return vec![name.to_owned()];
    };
    let unset = one.values().next().unwrap();
    let prefix = unset.name().trim_end_matches("UNSPECIFIED");
    vec![format!(
        "{}::{}",
        one.name(),
        camel_case(name.trim_start_matches(prefix))
    )]
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| format!("{}{}", word[..1].to_uppercase(), word[1..].to_lowercase());
    name.split('_').map(capital).collect()
}

/// The text of the tests of that name in this binary.
fn test_bodies(name: &str) -> Vec<String> {
    let start = format!("fn {name}() {{\n");
    let body_in = |file: PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        let (before, after) = text.split_once(&start)?;
        let is_test = before
            .rsplit("\n\n")
            .next()
            .is_some_and(|above| above.contains("test]") || above.contains("test("));
        is_test.then(|| after.split("\n}\n").next().unwrap_or_default().to_owned())
    };
    files_below(Path::new(TESTS))
        .into_iter()
        .filter_map(body_in)
        .collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// The names of all instruments, as Prometheus spells them without units.
fn instruments() -> Vec<String> {
    let after = INSTRUMENTS.split_once("pub mod metric {").unwrap().1;
    let lines = after
        .split_once("\n}")
        .unwrap()
        .0
        .lines()
        .filter_map(|line| line.split_once("&str = \""));
    lines
        .map(|(_, name)| name.trim_end_matches("\";").replace('.', "_"))
        .collect()
}

#[tokio::test]
async fn a_faulty_run_gives_every_instrument_a_value_and_sends_what_the_contract_announces() {
    let mut server = Reloaded::start(settings()).await;
    let mut seen = Seen::new();
    let watch = WatchRecoveryRequest {
        filter: None,
        start: Some(watch_recovery_request::Start::Live(true)),
    };
    let mut watch = server
        .recovery()
        .watch_recovery(watch)
        .await
        .unwrap()
        .into_inner();
    faulty_run(&mut server, &mut seen).await;
    verdicts(&server, &mut seen).await;
    let thread = GetThreadRequest {
        thread_id: "talk".to_owned(),
    };
    seen.add(
        "GetThreadResponse",
        &server
            .recovery()
            .get_thread(thread)
            .await
            .unwrap()
            .into_inner(),
    );
    // What was published before the change of the configuration is read before what the change
    // leads to.
    let last = [
        "RecoveryEvent.configuration_reloaded",
        "RecoveryEvent.gate_opened",
    ];
    let reading = async {
        while !last.iter().all(|name| seen.names.contains(*name)) {
            seen.add(
                "WatchRecoveryResponse",
                &watch.message().await.unwrap().unwrap(),
            );
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the last events in time");
    let table = table();
    let mut faults = Vec::new();
    let announced = seen.announced();
    let instruments = instruments();
    let scraped = metrics(server.running.admin_address).await;
    let has_value = |name: &String| {
        scraped.lines().any(|line| {
            line.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.starts_with(['_', '{', ' ']))
        })
    };
    seen.names
        .extend(instruments.iter().filter(|name| has_value(name)).cloned());
    for name in announced.iter().chain(&instruments) {
        match table.get(name).map(String::as_str) {
            None => {
                let found = if seen.names.contains(name) {
                    "sent"
                } else {
                    "no row, not seen"
                };
                faults.push(format!("{name}\t{found}"));
            }
            Some("sent") if !seen.names.contains(name) => {
                faults.push(format!("{name} is not sent"));
            }
            Some(reason) if reason.starts_with("reserved") && seen.names.contains(name) => {
                faults.push(format!("{name} is sent, although the table says: {reason}"));
            }
            Some(_) => {}
        }
    }
    faults.extend(
        table
            .iter()
            .filter_map(|(name, reason)| unproven(&seen.pool, name, reason)),
    );
    let known = |name: &&String| !announced.contains(*name) && !instruments.contains(name);
    faults.extend(
        table
            .keys()
            .filter(known)
            .map(|name| format!("{name} is not announced any more")),
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
