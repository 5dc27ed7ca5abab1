package dev.relight.client;

import java.time.Duration;

/**
 * How often a lost connection, or a replica that is going away, is tried again without any progress between.
 *
 * @param attempts how often
 * @param firstWait the first wait, doubled up to {@code maxWait}; each is spread by half of itself
 * @param maxWait the longest wait, unless Relight states a longer one
 */
public record Reconnect(int attempts, Duration firstWait, Duration maxWait) {
  /** Outlasts the takeover of a replica that was killed. */
  public static final Reconnect DEFAULT = new Reconnect(12, Duration.ofMillis(100), Duration.ofSeconds(2));
}
