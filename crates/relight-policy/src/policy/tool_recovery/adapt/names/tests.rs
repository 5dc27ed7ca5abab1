//! Names of one argument, and names that never are.

use proptest::prelude::*;

use super::*;

#[test]
fn names_of_one_argument_are_known() {
    for (left, right) in [
        ("perPage", "per_page"),
        ("user-id", "userId"),
        ("filepath", "file_path"),
        ("URL", "url"),
    ] {
        assert!(same_words(left, right) && same_words(right, left), "{left}");
    }
    assert!(same_but_number("id", "ids") && same_but_number("user_ids", "userId"));
    for (left, right) in [("limit", "max_results"), ("Q", "query"), ("url", "uri")] {
        assert!(are_synonyms(left, right) && are_synonyms(right, left));
    }
}

#[test]
fn a_word_more_or_less_or_in_another_place_makes_another_name() {
    for (left, right) in [
        ("id", "activity_id"),
        ("max_price", "price"),
        ("exclude_tags", "tags"),
        ("from", "to"),
        ("source_path", "target_path"),
        ("user_group", "group_user"),
        ("step_1_1", "step_11"),
        ("size>", "size<"),
        ("limit", "offset"),
        ("since", "start_date"),
        ("_", "-"),
    ] {
        let is_one =
            same_words(left, right) || same_but_number(left, right) || are_synonyms(left, right);
        assert!(!is_one, "{left} {right}");
    }
}

#[test]
fn what_means_something_else_is_never_the_same_argument() {
    for (left, right) in [
        ("include_archived", "exclude_archived"),
        ("includeArchived", "archived"),
        ("enable_cache", "disable_cache"),
        ("active", "inactive"),
        ("notify", "dont_notify"),
        ("notifyUsers", "suppressNotifyUsers"),
        ("keep_old_files", "delete_old_files"),
        ("archived", "unarchived"),
        ("recursive", "not_recursive"),
        ("recursive", "non_recursive"),
        ("archived", "archived_only"),
        ("allow_list", "deny_list"),
        ("with_deleted", "without_deleted"),
        ("min_price", "max_price"),
        ("start_date", "end_date"),
        ("since", "until"),
        ("from_account", "to_account"),
        ("source_path", "target_path"),
        ("timeout_seconds", "timeout_ms"),
        ("timeoutSeconds", "timeoutMs"),
        ("timeoutseconds", "timeoutms"),
        ("timeout", "timeout_ms"),
        ("timeout_s", "timeout_min"),
        ("size_bytes", "size_kb"),
        ("size", "size_mb"),
        ("amount_usd", "amount_eur"),
        ("amount", "amount_cents"),
        ("temperature_celsius", "temperature_fahrenheit"),
        ("distance_km", "distance_miles"),
        ("days", "hours"),
        ("user", "password"),
        ("user", "user_password"),
        ("name", "api_key"),
        ("id", "access_token"),
        ("api_key", "key"),
        ("secret", "name"),
        ("user_id", "account_id"),
        ("first_name", "last_name"),
        ("birth_date", "order_date"),
        ("user_id", "user_name"),
        ("max_price", "price"),
        ("old_name", "name"),
        ("start_date", "date"),
        ("from", "to"),
    ] {
        assert!(mean_otherwise(left, right), "{left} {right}");
        assert!(mean_otherwise(right, left), "{right} {left}");
    }
    for (left, right) in [
        ("filepath", "path"),
        ("colour", "hue"),
        ("since", "start_date"),
    ] {
        assert!(!mean_otherwise(left, right), "{left} {right}");
    }
}

#[test]
fn texts_that_state_two_units_differ() {
    assert!(units_differ(
        "Timeout in seconds",
        "The timeout, in milliseconds"
    ));
    assert!(!units_differ(
        "Timeout in seconds",
        "Seconds until it times out"
    ));
    assert!(!units_differ("Timeout", "Timeout in seconds"));
}

proptest! {
    #[test]
    fn a_mark_or_a_unit_on_one_side_alone_is_never_the_same(
        base in proptest::sample::select(vec!["archived", "cache", "report", "user_list", "retention"]),
        added in proptest::sample::select(
            MARKS.iter().chain(&UNITS).copied().filter(|word| word.len() > 1).collect::<Vec<_>>()
        ),
        is_before in any::<bool>(),
        is_camel in any::<bool>(),
    ) {
        let joined = if is_camel {
            let (first, second) = if is_before { (added, base) } else { (base, added) };
            let mut letters = second.chars();
            let head = letters.next().map(|letter| letter.to_ascii_uppercase()).unwrap();
            format!("{first}{head}{}", letters.as_str())
        } else if is_before {
            format!("{added}_{base}")
        } else {
            format!("{base}_{added}")
        };
        prop_assert!(mean_otherwise(base, &joined), "{} {}", base, joined);
        prop_assert!(mean_otherwise(&joined, base));
    }

    #[test]
    fn how_two_names_stand_depends_on_no_order(left in "[a-z_A-Z]{0,16}", right in "[a-z_A-Z]{0,16}") {
        prop_assert_eq!(same_words(&left, &right), same_words(&right, &left));
        prop_assert_eq!(mean_otherwise(&left, &right), mean_otherwise(&right, &left));
    }
}
