// What happens, as it happens. Keeps the last events, shows the last of those that are wanted, and draws at most once a frame,
// however many come.

import { Refused, UNAUTHENTICATED, stream } from './calls.js';
import { byId, clock, element, millis } from './elements.js';

const KEPT = 2_000;
const SHOWN = 200;
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

/** RecoveryEventType: the starts and successes of calls that nothing happened to. */
const ORDINARY = [1, 2, 5];
const LAST_TYPE = 25;

const events = [];
let received = 0;
let unshown = [];
let cursor = '';
let level = 'recoveries';
let wanted = '';
let isPaused = false;
let isDrawing = false;
let watch = new AbortController();
let report = () => {};

export function startLive(reportState) {
  report = reportState;
  byId('live-level').addEventListener('change', (change) => {
    level = change.target.value;
    restartLive();
  });
  byId('live-filter').addEventListener('input', (input) => {
    wanted = input.target.value.trim().toLowerCase();
    redraw();
  });
  byId('live-pause').addEventListener('click', (click) => {
    isPaused = !isPaused;
    click.target.setAttribute('aria-pressed', String(isPaused));
    click.target.textContent = isPaused ? 'Go on' : 'Pause';
    if (!isPaused) redraw();
  });
  byId('live').querySelector('form').addEventListener('submit', (submit) => submit.preventDefault());
  void follow(watch.signal);
}

/** Begins anew, with another key or another filter. */
export function restartLive() {
  watch.abort();
  watch = new AbortController();
  events.length = 0;
  received = 0;
  cursor = '';
  redraw();
  void follow(watch.signal);
}

async function follow(signal) {
  for (let failures = 0; !signal.aborted; ) {
    const request = { filter: filter(), ...(cursor ? { after: cursor } : { from_start: true }) };
    try {
      for await (const { event } of stream('WatchRecovery', request, signal)) {
        if (signal.aborted) return;
        failures = 0;
        report('live');
        take(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      report(error instanceof Refused ? error.message : 'broken', error.code);
      if (error.code === UNAUTHENTICATED) return;
    }
    const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function filter() {
  if (level === 'errors') return { min_severity: 3 };
  if (level === 'everything') return {};
  const types = [];
  for (let type = 1; type <= LAST_TYPE; type += 1) if (!ORDINARY.includes(type)) types.push(type);
  return { event_types: types };
}

function take(event) {
  cursor = event.cursor || cursor;
  if (event.bookmark) return;
  if (event.missed) event.display_text = `Missed ${event.missed.count || 'some'} events: this page was too slow, or the server began anew`;
  events.push(event);
  received += 1;
  if (events.length > KEPT) events.splice(0, events.length - KEPT);
  unshown.push(event);
  if (unshown.length > SHOWN) unshown = unshown.slice(-SHOWN);
  draw();
}

function isWanted(event) {
  if (!wanted) return true;
  const facts = [event.invocation_id, event.request_id, event.tenant, event.route, event.operation, event.target, event.thread_id, event.replica];
  return facts.some((fact) => fact.toLowerCase().includes(wanted));
}

/** Shows what is wanted now, at once: keys that follow find the rows. */
function redraw() {
  unshown = events.slice();
  byId('live-rows').replaceChildren();
  show();
}

function draw() {
  if (isDrawing || isPaused) return;
  isDrawing = true;
  // A page that is not seen gets no frames, and is drawn all the same.
  const next = document.hidden ? (then) => setTimeout(then, 250) : requestAnimationFrame;
  next(() => {
    isDrawing = false;
    if (!isPaused) show();
  });
}

function show() {
  const rows = byId('live-rows');
  const fresh = unshown.filter(isWanted).slice(-SHOWN);
  unshown = [];
  rows.prepend(...fresh.reverse().map(row));
  while (rows.children.length > SHOWN) rows.lastChild.remove();
  byId('live-count').textContent = received ? `${received} events` : 'nothing has happened yet';
}

function row(event) {
  const about = [event.tenant, event.route, event.operation, event.target, event.replica].filter(Boolean).join(' · ');
  const parts = [
    element('time', {}, clock(millis(event.time))),
    element('span.what', {}, event.display_text),
    element('span.dim', {}, about),
  ];
  const link = event.invocation_id
    ? element('a', { href: `#invocation/${encodeURIComponent(event.invocation_id)}` }, ...parts)
    : element('span', {}, ...parts);
  return element(`li.${event.severity}`, {}, link);
}
