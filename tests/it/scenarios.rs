//! temp
#[test]
fn print_them() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut reports = Vec::new();
    for scenario in relight::scenarios::all().unwrap() {
        if !only.is_empty() && !only.split(',').any(|o| scenario.id == o) {
            continue;
        }
        let t = std::time::Instant::now();
        let r = relight::scenarios::run(
            &scenario,
            relight::scenarios::Options {
                seed: std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1),
                rate: std::env::var("RATE").ok().and_then(|s| s.parse().ok()),
                length: None,
            },
        )
        .unwrap();
        eprintln!("{} {:?}", r.id, t.elapsed());
        if std::env::var("V").is_ok() {
            for c in &r.circuits {
                eprintln!("{:?}", c);
            }
            eprintln!("{:#?}", r.ours);
        }
        reports.push(r);
    }
    println!("{}", relight::scenarios::table(&reports));
}
