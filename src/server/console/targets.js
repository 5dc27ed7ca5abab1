// Where each target stands and why, and what an operator may do about it.

import { PERMISSION_DENIED, call } from './calls.js';
import { byId, element, isSet, millis, span } from './elements.js';

const EVERY_MS = 1_000;
const OPEN = 1;
const CLOSED = 2;
const AUTO = 3;

let timer;

/** Looks again and again, as long as the view is shown. */
export function showTargets() {
  void look();
}

export function hideTargets() {
  clearTimeout(timer);
  timer = undefined;
}

async function look() {
  clearTimeout(timer);
  try {
    const [listed, status] = await Promise.all([call('ListTargets', {}), call('GetStatus', {})]);
    service(status);
    keep(byId('target-cards'), listed.targets);
  } catch (error) {
    const words = error.code === PERMISSION_DENIED ? 'Targets are shown to those who hold an admin key.' : error.message;
    byId('service').hidden = false;
    byId('service').replaceChildren(words);
  }
  if (!byId('targets').hidden) timer = setTimeout(look, EVERY_MS);
}

function service(status) {
  const about = `${status.state} · ${status.invocations_in_flight} in flight · ${status.invocations_parked} parked · version ${status.version} · ${status.replica}`;
  const reasons = status.reasons.map((reason) => element('li', {}, `${reason.component}: ${reason.message}`));
  byId('service').hidden = false;
  const others = status.others.map((other) => {
    const troubles = other.reasons.map((reason) => `${reason.component}: ${reason.message}`).join('; ');
    return element('li', {}, `${other.replica}: ${other.state} · ${other.invocations_in_flight} in flight · ${other.invocations_parked} parked${troubles && ` · ${troubles}`}`);
  });
  const silent = status.silent.map((one) => element('li', {}, `${one.replica} does not respond: ${one.reason}`));
  byId('service').replaceChildren(element('p', {}, about), element('ul', {}, ...reasons, ...others, ...silent));
}

/** Replaces the cards, but for one in which a button has the focus: nobody's button is taken from under their hand. */
function keep(cards, targets) {
  const earlier = new Map([...cards.children].map((card) => [card.dataset.target, card]));
  const made = targets.map((target) => {
    const before = earlier.get(target.id);
    const fresh = card(target);
    if (before?.contains(document.activeElement)) {
      before.querySelector('.facts').replaceWith(fresh.querySelector('.facts'));
      before.className = fresh.className;
      return before;
    }
    return fresh;
  });
  for (const [id, card] of earlier) if (!made.includes(card) && !targets.some((target) => target.id === id)) card.remove();
  made.forEach((card, index) => {
    if (cards.children[index] === card) return;
    const before = earlier.get(card.dataset.target);
    if (before && before !== card) before.replaceWith(card);
    else cards.insertBefore(card, cards.children[index] ?? null);
  });
}

function card(target) {
  const { circuit, latency, budget, concurrency } = target;
  const state = circuit.state;
  const isTrouble = state !== 'closed' || circuit.degraded || target.gates.some((gate) => gate.closed);
  const why = [
    circuit.opened_by,
    isSet(circuit.cause) && state !== 'closed' && `because of ${circuit.cause}`,
    circuit.retry_in_ms !== undefined && `tries again in ${span(circuit.retry_in_ms)}`,
    circuit.degraded && 'degraded: others are preferred',
  ].filter(Boolean);
  const since = circuit.since && `since ${span(Date.now() - millis(circuit.since))}`;
  const gates = target.gates.filter((gate) => gate.closed).map((gate) => {
    const opens = gate.reopens_in_ms === undefined ? 'until the configuration changes' : `for ${span(gate.reopens_in_ms)} more`;
    return element('p.why', {}, `${gate.kind} gate closed ${opens}${isSet(gate.cause) ? `: ${gate.cause}` : ''}`);
  });
  const speed = latency.p50_first_token_ms === undefined
    ? 'no answers yet'
    : `first token ${span(latency.p50_first_token_ms)} (p50), ${span(latency.p95_first_token_ms)} (p95)`;
  const facts = element(
    'div.facts',
    {},
    element('p', {}, element('strong.state', {}, state), ` ${since || ''}`),
    ...(why.length ? [element('p.why', {}, why.join('; '))] : []),
    ...gates,
    element('p.dim', {}, `${concurrency.in_flight} of ${concurrency.limit} slots · retry budget ${Math.round(budget.level)} of ${budget.capacity}`),
    element('p.dim', {}, speed),
  );
  return element(
    `article.card${isTrouble ? '.trouble' : ''}`,
    { 'data-target': target.id },
    element('h2', {}, target.id),
    element('p.dim', {}, `${target.provider} / ${target.model || target.tool} · ${target.routes.join(', ')}`),
    facts,
    element(
      'p.actions',
      {},
      button(target.id, 'Reset', () => call('ResetCircuit', { target: target.id })),
      button(target.id, 'Hold open', () => force(target.id, OPEN, 'Every call to it is refused until somebody changes that.')),
      button(target.id, 'Hold closed', () => force(target.id, CLOSED, 'Every call to it passes, whatever fails, until somebody changes that.')),
      button(target.id, 'Automatic', () => call('ForceCircuit', { target: target.id, force: AUTO })),
    ),
  );
}

function button(target, words, act) {
  const onclick = async (click) => {
    click.target.disabled = true;
    try {
      await act();
    } catch (error) {
      byId('status').textContent = `${words} of ${target}: ${error.message}`;
    }
    click.target.disabled = false;
    void look();
  };
  return element('button', { type: 'button', 'aria-label': `${words}: ${target}`, onclick }, words);
}

/** Asks for the reason first; nothing is done when the question is closed. */
function force(target, to, words) {
  const dialog = byId('force-dialog');
  byId('force-title').textContent = `Hold the circuit of ${target} ${to === OPEN ? 'open' : 'closed'}?`;
  byId('force-words').textContent = words;
  byId('force-reason').value = '';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve, reject) => {
    dialog.addEventListener('close', () => {
      if (dialog.returnValue !== 'do') return resolve();
      return call('ForceCircuit', { target, force: to, reason: byId('force-reason').value }).then(resolve, reject);
    }, { once: true });
  });
}
