// Finds invocations in the journal, and shows one.

import { NOT_FOUND, call } from './calls.js';
import { byId, clock, element, isSet, millis, span } from './elements.js';
import { waterfall } from './waterfall.js';

const PAGE = 50;
const AGAIN_MS = 1_000;

let nextPage = '';
let shown = '';

export function startInvocations() {
  byId('search').addEventListener('submit', (submit) => {
    submit.preventDefault();
    void search('');
  });
  byId('more').addEventListener('click', () => search(nextPage));
}

/** The newest, when the view is shown for the first time. */
export function showInvocations() {
  if (!byId('found').children.length) void search('');
}

async function search(page) {
  const wanted = Object.fromEntries(new FormData(byId('search')));
  const id = wanted.id.trim();
  if (id) {
    location.hash = `#invocation/${encodeURIComponent(id)}`;
    return;
  }
  const request = { tenant: wanted.tenant.trim(), route: wanted.route.trim(), page_size: PAGE, page_token: page };
  if (wanted.state) request.states = [Number(wanted.state)];
  try {
    const { invocations, next_page_token: next } = await call('ListInvocations', request);
    if (!page) byId('found').replaceChildren();
    byId('found').append(...invocations.map(row));
    if (!byId('found').children.length) byId('found').append(element('li.dim', {}, 'The journal knows none.'));
    nextPage = next;
    byId('more').hidden = !next;
  } catch (error) {
    byId('found').replaceChildren(element('li.error', {}, error.message));
    byId('more').hidden = true;
  }
}

function row(found) {
  const about = [found.tenant, found.route, found.operation, found.final_target].filter(Boolean).join(' · ');
  const end = found.finished_at && span(millis(found.finished_at) - millis(found.created_at));
  const what = [
    isSet(found.failure_class) ? `${found.state}: ${found.failure_class}` : found.state,
    found.attempts > 1 && `${found.attempts} attempts`,
    found.recovery_applied.filter((one) => one !== 'none').join(', '),
    end,
  ].filter(Boolean).join(' · ');
  const level = found.state === 'failed' ? 'error' : found.attempts > 1 ? 'warning' : 'info';
  return element(
    `li.${level}`,
    {},
    element(
      'a',
      { href: `#invocation/${encodeURIComponent(found.invocation_id)}` },
      element('time', {}, clock(millis(found.created_at))),
      element('span.what', {}, what),
      element('span.dim', {}, about),
    ),
  );
}

/** One invocation, by its id or the caller's, looked at again until it has ended. */
export async function showInvocation(id) {
  shown = id;
  const place = byId('invocation');
  try {
    const record = await find(id);
    if (shown !== id) return;
    place.replaceChildren(...described(record));
    if (!record.finished_at) setTimeout(() => shown === id && !place.hidden && showInvocation(id), AGAIN_MS);
  } catch (error) {
    if (shown === id) place.replaceChildren(element('p.error', {}, error.message));
  }
}

export function hideInvocation() {
  shown = '';
}

async function find(id) {
  try {
    return (await call('GetInvocation', { invocation_id: id })).invocation;
  } catch (error) {
    if (error.code !== NOT_FOUND) throw error;
    return (await call('GetInvocation', { request_id: id })).invocation;
  }
}

function described(record) {
  const { failure } = record;
  const took = record.finished_at ? span(millis(record.finished_at) - millis(record.created_at)) : 'not ended';
  const facts = [
    ['state', failure ? `${record.state}: ${failure.failure_class}` : record.state],
    ['route', record.route],
    ['operation', record.operation],
    ['answered by', record.final_target && `${record.final_target} (${record.final_model})`],
    ['took', `${took}, from ${clock(millis(record.created_at))}`],
    ['recovered by', record.recovery_applied.filter((one) => one !== 'none').join(', ')],
    ['request id', record.request_id],
    ['thread', record.thread_id],
    ['tokens spent', record.usage && tokens(record.usage)],
    ['why', record.reasoning],
    ['for operators', failure?.recovery_hint],
  ].filter(([, fact]) => fact);
  return [
    element('p', {}, element('a', { href: '#invocations' }, '← invocations')),
    element('h2.id', {}, record.invocation_id),
    waterfall(record),
    element('dl', {}, ...facts.flatMap(([name, fact]) => [element('dt', {}, name), element('dd', {}, fact)])),
  ];
}

function tokens(usage) {
  if (usage.exactness === 'unknown') return 'unknown';
  return `${usage.input_tokens ?? '?'} in, ${usage.output_tokens ?? '?'} out (${usage.exactness})`;
}
