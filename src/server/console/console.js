// The page: its views, its key, its keyboard.

import { UNAUTHENTICATED, key, loadSchema, setKey } from './calls.js';
import { byId } from './elements.js';
import { hideInvocation, showInvocation, showInvocations, startInvocations } from './invocations.js';
import { restartLive, startLive } from './live.js';
import { hideTargets, showTargets } from './targets.js';

const VIEWS = ['live', 'targets', 'invocations', 'invocation'];

function show() {
  const [name, id] = location.hash.slice(1).split('/', 2);
  const view = VIEWS.includes(name) ? name : 'live';
  for (const other of VIEWS) byId(other).hidden = other !== view;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  hideTargets();
  hideInvocation();
  if (view === 'targets') showTargets();
  if (view === 'invocations') showInvocations();
  if (view === 'invocation') void showInvocation(decodeURIComponent(id ?? ''));
}

function report(words, code) {
  byId('status').textContent = words;
  byId('status').classList.toggle('error', words !== 'live');
  if (code === UNAUTHENTICATED) askForKey();
}

function askForKey() {
  const dialog = byId('key-dialog');
  if (dialog.open) return;
  byId('key-input').value = key();
  dialog.returnValue = '';
  dialog.showModal();
}

function useKey() {
  if (byId('key-dialog').returnValue !== 'use') return;
  setKey(byId('key-input').value.trim());
  byId('key-input').value = '';
  byId('found').replaceChildren();
  restartLive();
  show();
}

function press(event) {
  const isTyping = event.target.matches?.('input, select');
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') {
    if (isTyping) event.target.blur();
    else if (!byId('invocation').hidden) history.back();
    return;
  }
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    if (isTyping && event.target.matches('select')) return;
    step(event.key === 'ArrowDown' ? 1 : -1);
    event.preventDefault();
    return;
  }
  if (isTyping) return;
  const view = { 1: 'live', 2: 'targets', 3: 'invocations' }[event.key];
  if (view) location.hash = `#${view}`;
  if (event.key === '/') {
    event.preventDefault();
    if (byId('live').hidden) {
      location.hash = '#invocations';
      show();
      byId('search').elements.id.focus();
    } else {
      byId('live-filter').focus();
    }
  }
}

/** Moves the focus to the next or the previous row. */
function step(by) {
  const rows = [...document.querySelectorAll('section:not([hidden]) .rows a')];
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
}

byId('key').addEventListener('click', askForKey);
byId('key-dialog').addEventListener('close', useKey);
window.addEventListener('hashchange', show);
document.addEventListener('keydown', press);
startInvocations();
loadSchema().then(() => {
  startLive(report);
  show();
}, () => report('the server cannot be reached'));
