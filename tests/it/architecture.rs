//! The rules of the house: modules import only downward, crates stay in their homes, files stay
//! small and explain themselves, one fact is not written in two places.

use std::{collections::BTreeMap, fs, path::Path};

use crate::support::sources::{code_lines, module_path, sources, sources_of_the_service};

/// Levels of the service from the bottom up; modules of one level are strangers to each other. The
/// first ones are crates of their own, whose levels Cargo keeps.
const LEVELS: &[&[&str]] = &[
    &["domain"],
    &["policy"],
    &["journal", "outbound"],
    &["provider", "tool"],
    &["call_error"],
    &["events"],
    &["config"],
    &["layers", "telemetry"],
    &["stack"],
    &["engine"],
    &["execution", "fleet"],
    &["grpc", "front", "scenarios"],
    &["server"],
    &["cli"],
    &["main", "internals"],
];

/// Outside crates that may be named in their homes only (a path prefix below `src/`).
const HOMES: &[(&str, &[&str])] = &[
    ("tonic", &["call_error", "grpc", "server", "cli"]),
    ("ring", &["grpc/auth"]),
    ("axum", &["front", "telemetry", "server"]),
    ("opentelemetry", &["telemetry", "layers/spans"]),
    ("opentelemetry_sdk", &["telemetry", "layers/spans"]),
    ("opentelemetry_otlp", &["telemetry"]),
    ("prometheus", &["telemetry"]),
    ("clap", &["cli", "main"]),
    ("notify", &["config"]),
];

const MAX_LINES: usize = 500;

fn top(module: &str) -> &str {
    module.split('/').next().unwrap_or(module)
}

fn level_of(module: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&module))
}

/// The modules of this crate that a text uses: `crate::x`, and `crate::{x::…, y}` over several
/// lines.
fn used_modules(text: &str) -> Vec<(usize, String)> {
    let mut used = Vec::new();
    let mut depth = 0_i32;
    for (number, line) in code_lines(text) {
        if depth > 0 {
            if depth == 1 {
                let name: String = line
                    .trim()
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if !name.is_empty() {
                    used.push((number, name));
                }
            }
            depth += braces(line);
            continue;
        }
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            if rest.starts_with('{') {
                depth = braces(&line[at..]);
                continue;
            }
            let name: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            used.push((number, name));
        }
    }
    used
}

fn braces(line: &str) -> i32 {
    line.chars()
        .fold(0, |sum, c| sum + i32::from(c == '{') - i32::from(c == '}'))
}

#[test]
fn every_module_has_a_level_and_imports_only_from_lower_ones() {
    let mut faults = Vec::new();
    for path in sources_of_the_service() {
        let module = module_path(&path);
        let own = top(&module);
        if own == "lib" {
            continue;
        }
        let Some(level) = level_of(own) else {
            faults.push(format!("{module} has no level in tests/it/architecture.rs"));
            continue;
        };
        let text = fs::read_to_string(&path).unwrap();
        for (line, used) in used_modules(&text) {
            if let Some(other) = level_of(&used)
                && used != own
                && other >= level
            {
                faults.push(format!(
                    "src/{module}.rs:{line} imports `{used}`, which is not below `{own}`"
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn outside_crates_stay_in_their_homes() {
    let mut faults = Vec::new();
    for path in sources_of_the_service() {
        let module = module_path(&path);
        let text = fs::read_to_string(&path).unwrap();
        for (krate, homes) in HOMES {
            if homes
                .iter()
                .any(|home| module == *home || module.starts_with(&format!("{home}/")))
            {
                continue;
            }
            for (number, line) in code_lines(&text) {
                let named = line.match_indices(&format!("{krate}::")).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| {
                        c.is_alphanumeric() || c == '_' || c == ':' || c == '"'
                    })
                });
                if named {
                    faults.push(format!(
                        "src/{module}.rs:{number} names `{krate}`, whose home is {homes:?}"
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_is_small_and_begins_with_its_purpose() {
    let mut faults = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().count();
            if lines > MAX_LINES {
                faults.push(format!(
                    "{} has {lines} lines; {MAX_LINES} are allowed",
                    path.display()
                ));
            }
            if !text.starts_with("//!") {
                faults.push(format!("{} does not begin with `//!`", path.display()));
            }
            if path.file_name().is_some_and(|name| name == "mod.rs") {
                faults.push(format!("{}: write foo.rs beside foo/", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_module_is_named_for_nothing() {
    let empty = [
        "util", "utils", "common", "helpers", "helper", "manager", "misc",
    ];
    let named: Vec<String> = sources("src")
        .iter()
        .map(|path| module_path(path))
        .filter(|module| module.split('/').any(|part| empty.contains(&part)))
        .collect();
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn the_map_in_lib_rs_names_every_module() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let mut faults = BTreeMap::new();
    for line in text
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
    {
        let module = line.trim_end_matches(';');
        if !text.contains(&format!("[`{module}`]")) {
            faults.insert(module.to_owned(), "is not in the map");
        }
    }
    assert!(faults.is_empty(), "{faults:?}");
}

/// The compiler reports unused code only where nothing outside could use it.
#[test]
fn nothing_is_public_but_the_command_line_and_what_tests_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let public: Vec<_> = map
        .lines()
        .filter(|line| line.starts_with("pub "))
        .collect();
    assert_eq!(public, ["pub mod cli;", "pub mod internals;"]);
    let users: Vec<String> = ["tests", "benches", "examples", "fuzz/fuzz_targets"]
        .iter()
        .flat_map(|folder| sources(folder))
        .map(|path| fs::read_to_string(path).unwrap())
        .filter(|text| text.contains("relight::internals"))
        .collect();
    let internals = fs::read_to_string(root.join("src/internals.rs")).unwrap();
    let code: String = code_lines(&internals)
        .map(|(_, line)| line)
        .collect::<Vec<_>>()
        .join(" ");
    let mut unused = Vec::new();
    for exported in code
        .split("pub use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
    {
        let names = exported
            .rsplit_once("::{")
            .or_else(|| exported.rsplit_once("::"))
            .unwrap()
            .1;
        for name in names
            .split([',', '}'])
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let is_word = |text: &str| {
                text.split(|c: char| !c.is_alphanumeric() && c != '_')
                    .any(|word| word == name)
            };
            if !users.iter().any(|text| is_word(text)) {
                unused.push(name.to_owned());
            }
        }
    }
    assert!(
        unused.is_empty(),
        "src/internals.rs exports what no test uses: {unused:?}"
    );
}

/// Names that a stranger had to look up, and that are not to come back; `docs/glossary.md` has the
/// words in use.
const RETIRED: &str = "Asked Requested Incoming Scope Try WireCall Progress Fold Delivery Outlet Tail Glance Whole ear Told \
    Course stand real Next Breaks in_vain Tether let_go Notebook Backlog Share Line Lines Spot Head Standing tenure adopt \
    Left left_of sit Seat lose is_lost Landed Flight Away Seam Channel Presence still_serving Door Shown Caller Place \
    Welcome Spoken Second Joint asking_for_the_rest Watched Dice throw Throws Ledger Fate Tally Counts Moves Moved By climb \
    Probes Ramp stay Remedies Pace Possibility PushBack WORDS_TO_ONE Vehicle Placed Dialog Flaw Facts Wording reword \
    LeaveOut unsigned Vault sealed_by Spent most least few AGAIN_AFTER TELL_AFTER COME_BACK_IN law Stand Crowd";

/// Names that variables, fields and parameters no longer have.
const RETIRED_VARIABLES: &str =
    "told said standing seat flight spot welcome fate tally spoken joint course landed";

/// The variables, fields and parameters that a line of code without texts introduces.
fn introduced(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let bound = line.split("let ").skip(1).map(move |rest| {
        let name = rest.trim_start_matches("mut ").trim_start_matches('(');
        &name[..name.find(|c| !is_part(c)).unwrap_or(name.len())]
    });
    let typed = line.match_indices(": ").map(move |(at, _)| {
        let name = &line[..at];
        &name[name.rfind(|c| !is_part(c)).map_or(0, |before| before + 1)..]
    });
    bound.chain(typed)
}

/// What a line defines: its keyword and its name.
fn defined(line: &str) -> Option<(&str, &str)> {
    let mut words = line
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let keyword = words
        .find(|word| !matches!(*word, "pub" | "crate" | "super" | "in" | "async" | "unsafe"))?;
    let name = words.find(|word| !(keyword == "const" && *word == "fn"))?;
    [
        "struct", "enum", "trait", "type", "fn", "const", "static", "mod",
    ]
    .contains(&keyword)
    .then_some((keyword, name))
}

#[test]
fn no_retired_name_comes_back() {
    let retired: Vec<&str> = RETIRED.split_whitespace().collect();
    let retired_variables: Vec<&str> = RETIRED_VARIABLES.split_whitespace().collect();
    let mut faults = Vec::new();
    for path in sources("src") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in code_lines(&text) {
            let defined = defined(line)
                .map(|(_, name)| name)
                .filter(|name| retired.contains(name));
            let code: String = line.split('"').step_by(2).collect();
            let introduced = introduced(&code).filter(|name| retired_variables.contains(name));
            for name in defined.into_iter().chain(introduced) {
                faults.push(format!("{}:{number} defines `{name}`", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_two_types_have_one_name() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources("src") {
        let module = module_path(&path);
        if module.ends_with("/tests") || module.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (_, line) in code_lines(&text).filter(|(_, line)| !line.starts_with(' ')) {
            if let Some((keyword, name)) = defined(line)
                && ["struct", "enum", "trait", "type"].contains(&keyword)
            {
                homes
                    .entry(name.to_owned())
                    .or_default()
                    .push(module.clone());
            }
        }
    }
    homes.retain(|_, homes| homes.len() > 1);
    assert!(homes.is_empty(), "{homes:#?}");
}

#[test]
fn tests_share_only_what_is_in_support() {
    for file in sources("tests/it") {
        let path = file.to_string_lossy().into_owned();
        for (line, module) in used_modules(&fs::read_to_string(&file).unwrap()) {
            // The tests of the sources write `crate::` in strings.
            if module.is_empty() {
                continue;
            }
            let is_own =
                path.contains(&format!("/{module}/")) || path.ends_with(&format!("/{module}.rs"));
            assert!(
                is_own || module == "support",
                "{path}:{line}: `{module}`; what two tests use belongs to `support`"
            );
        }
    }
}
