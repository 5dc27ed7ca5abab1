// One invocation as a waterfall: each attempt with the wait before it, its first token, its note, and what was taken back.

import { element, isSet, millis, span } from './elements.js';

/** The narrowest bar that can be seen, in percent. */
const LEAST = 0.4;

export function waterfall(record) {
  const begin = millis(record.created_at);
  const ends = record.attempts.map((attempt) => millis(attempt.started_at) + attempt.duration_ms);
  const end = Math.max(begin + 1, millis(record.finished_at) ?? Date.now(), ...ends);
  const percent = (from, to) => Math.max(LEAST, ((to - from) / (end - begin)) * 100);
  const rows = record.attempts.map((attempt) => {
    const from = millis(attempt.started_at);
    const until = attempt.state === 'running' ? end : from + attempt.duration_ms;
    const waited = Math.min(attempt.wait_before_ms, from - begin);
    const track = element('span.track', { role: 'img', 'aria-label': words(attempt).join(', ') });
    if (waited > 0) track.append(bar('wait', percent(begin, from - waited), percent(0, waited)));
    track.append(bar(attempt.state, percent(begin, from), percent(from, until)));
    if (attempt.first_token_ms !== undefined) track.append(bar('first', percent(begin, from + attempt.first_token_ms), LEAST));
    for (const rewind of record.rewinds.filter((one) => one.attempt === attempt.number)) {
      track.append(bar('rewind', percent(begin, millis(rewind.time)), LEAST));
    }
    return element('li', {}, element('span.name', {}, `${attempt.number} ${attempt.target}`), track, detail(record, attempt));
  });
  return element('ol.waterfall', {}, ...rows);
}

function bar(kind, left, width) {
  const made = element(`span.${kind}`);
  // Set by script, as the page's policy lets no markup bring styles.
  made.style.left = `${Math.min(left, 100 - LEAST)}%`;
  made.style.width = `${Math.min(width, 100 - Math.min(left, 100 - LEAST))}%`;
  return made;
}

function detail(record, attempt) {
  const lines = words(attempt);
  for (const rewind of record.rewinds.filter((one) => one.attempt === attempt.number)) {
    lines.push(`what it had sent was taken back (${rewind.failure_class})`);
  }
  for (const decision of record.decisions.filter((one) => one.attempt === attempt.number)) {
    if (decision.reason) lines.push(`then: ${decision.reason}`);
  }
  return element('ul.dim', {}, ...lines.map((line) => element('li', {}, line)));
}

function words(attempt) {
  return [
    `${attempt.cause}: ${attempt.state}${isSet(attempt.failure_class) ? `, ${attempt.failure_class}` : ''} after ${span(attempt.duration_ms)}`,
    attempt.wait_before_ms > 0 && `waited ${span(attempt.wait_before_ms)} before it (${attempt.wait_source})`,
    attempt.first_token_ms !== undefined && `first token after ${span(attempt.first_token_ms)}`,
    attempt.injected_note > 0 && `the model was given a note of ${attempt.injected_note} bytes about the failure`,
    attempt.adaptation && `changed for the next one: ${attempt.adaptation}`,
    attempt.message && `${attempt.http_status ? `HTTP ${attempt.http_status}: ` : ''}${attempt.message}`,
    attempt.trace_id && `trace ${attempt.trace_id}`,
  ].filter(Boolean);
}
