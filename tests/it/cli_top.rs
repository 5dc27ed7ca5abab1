//! `relight top`: the rates that its tables print are those of the calls that were made.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use crate::support::{binary::run, relight::Relight};

#[tokio::test]
async fn every_table_of_top_has_the_rates_of_what_it_counted() {
    const INTERVAL: Duration = Duration::from_millis(500);
    let server = Relight::start(
        "providers: { p: { dialect: scripted, script: { models: { m: { otherwise: { answer: { text: Yes. } } } } } } }\n\
         targets: { t: { provider: p, model: m } }\nroutes: { r: { targets: [t] } }\n",
    )
    .await;
    let address = format!("http://{}", server.running.address);
    let (asked, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let top = [
        "top",
        "--tables",
        "2",
        "--interval",
        "500ms",
        "--address",
        &address,
    ];
    let watching = async {
        let ran = run(&top).await;
        is_over.store(true, Ordering::SeqCst);
        ran
    };
    let asking = async {
        while !is_over.load(Ordering::SeqCst) {
            server.ask("Are you there?").await;
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (ran, ()) = tokio::join!(watching, asking);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let rates: Vec<f64> = ran
        .out
        .lines()
        .filter_map(|line| {
            line.split_once(" calls/s")?
                .0
                .rsplit(' ')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(rates.len(), 2, "{}", ran.out);
    // One call may end behind the counted time.
    let most = f64::from(asked.load(Ordering::SeqCst) + 1) / INTERVAL.as_secs_f64();
    for rate in rates {
        assert!(
            rate > 0.0 && rate <= most,
            "{rate} of at most {most}: {}",
            ran.out
        );
    }
}
