//! Random numbers that can be replayed: drawn from a seed, the invocation and the attempt.
//!
//! The algorithm is defined here rather than by a crate's default generator, because a recorded run
//! must replay on every platform and after every upgrade: the state starts as the first eight bytes
//! (little endian) of SHA-256 over `seed` (8 bytes, little endian), `attempt` (4 bytes, little
//! endian) and the invocation's id, and each draw is one step of `SplitMix64` (Steele, Lea and
//! Flood, 2014). It must not be used for secrets.

use sha2::{Digest as _, Sha256};

use crate::domain::ids::InvocationId;

/// The random numbers of one attempt: the same seed, invocation and attempt always give the same
/// sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeededRng {
    state: u64,
}

// === impl SeededRng ===

impl SeededRng {
    /// The dice of an attempt (1 for the first) of an invocation.
    #[must_use]
    pub fn new(seed: u64, invocation: &InvocationId, attempt: u32) -> Self {
        let digest = Sha256::new()
            .chain_update(seed.to_le_bytes())
            .chain_update(attempt.to_le_bytes())
            .chain_update(invocation.as_str().as_bytes())
            .finalize();
        let state = digest
            .iter()
            .take(8)
            .rev()
            .fold(0_u64, |state, byte| (state << 8) | u64::from(*byte));
        Self { state }
    }

    /// Returns the next throw, evenly spread over 0 (included) to 1 (excluded).
    #[must_use = "an unused sample still changes all later ones"]
    pub fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in a double")]
        let numerator = (mixed >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }
}

/// Returns the place, one of `count`, that a throw of 0 (included) to 1 (excluded) means; 0 if
/// there is none.
#[must_use]
pub fn place(sample: f64, count: usize) -> usize {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of targets are small and the product is neither negative nor larger than the count"
    )]
    let place = (sample * count as f64) as usize;
    place.min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seed: u64, invocation: &str, attempt: u32) -> Vec<f64> {
        let mut rng = SeededRng::new(seed, &InvocationId::from(invocation), attempt);
        (0..8).map(|_| rng.unit()).collect()
    }

    #[test]
    fn the_same_seed_invocation_and_attempt_throw_the_same_and_any_other_differs() {
        let thrown = samples(7, "a", 1);
        assert_eq!(thrown, samples(7, "a", 1));
        for other in [samples(8, "a", 1), samples(7, "b", 1), samples(7, "a", 2)] {
            assert_ne!(thrown, other);
        }
    }

    #[test]
    fn throws_are_those_of_the_written_algorithm_on_every_platform() {
        // Computed independently of this code, from the definition at the head of this file.
        let expected = [
            0.661_247_619_003_935_6,
            0.327_730_583_835_783_6,
            0.752_071_659_284_011_8,
        ];
        for (thrown, expected) in samples(42, "0198f1a0-0000-7000-8000-000000000001", 2)
            .into_iter()
            .zip(expected)
        {
            assert!(
                (thrown - expected).abs() < 1e-15,
                "{thrown} is not {expected}"
            );
        }
    }

    #[test]
    fn throws_are_even_and_never_reach_one() {
        let mut rng = SeededRng::new(1, &InvocationId::from("even"), 1);
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            let thrown = rng.unit();
            assert!((0.0..1.0).contains(&thrown));
            tenths[place(thrown, 10)] += 1;
        }
        assert!(
            tenths.iter().all(|count| (850..1150).contains(count)),
            "{tenths:?}"
        );
    }

    #[test]
    fn a_place_is_always_one_of_those_there_are() {
        let mut rng = SeededRng::new(1, &InvocationId::from("place"), 1);
        let mut seen = [0_u32; 3];
        for _ in 0..300 {
            let sample = rng.unit();
            seen[place(sample, 3)] += 1;
            assert_eq!(place(sample, 1), 0);
            assert_eq!(place(sample, 0), 0);
        }
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
    }
}
