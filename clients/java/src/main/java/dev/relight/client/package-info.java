/** The client of Relight; {@link dev.relight.client.RelightClient} is where to begin. */
package dev.relight.client;
