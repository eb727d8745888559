// SPDX-License-Identifier: Apache-2.0
import { age, count, el, meter } from './dom.js';

// showWaiting lists the pods that wait with the answers of `kubectl deviceshare why`.
export function showWaiting(root, w, turn) {
  const items = w.pods.map((p) => waits(p, w.now));
  if (items.length === 0) items.push(el('p', { class: 'faint' }, 'No pod that asks for devices waits.'));
  const first = w.offset, last = w.offset + w.pods.length;
  if (w.total > w.pods.length) {
    const back = el('button', { type: 'button', 'aria-label': 'Longer waiting pods', disabled: first === 0 }, '‹');
    const on = el('button', { type: 'button', 'aria-label': 'Pods that came later', disabled: last >= w.total }, '›');
    back.addEventListener('click', () => turn(Math.max(0, first - w.page)));
    on.addEventListener('click', () => turn(last));
    items.push(el('p', { class: 'pages' }, `${first + 1} to ${last} of ${w.total}, the longest first `, back, on));
  }
  root.replaceChildren(...items);
}

function waits(w, now) {
  const rest = w.answer.startsWith(w.pod) ? w.answer.slice(w.pod.length) : ` ${w.answer}`;
  return el('article', { class: 'waits', 'data-pod': w.pod },
    el('p', {}, w.since ? el('time', { datetime: w.since, title: w.since }, age(w.since, now)) : null, el('b', {}, w.pod), rest),
    ...(w.notes ?? []).map((note) => el('p', { class: 'faint' }, `Besides, ${note}.`)));
}

export function showProblems(root, problems, more) {
  if (problems.length === 0) {
    root.replaceChildren(el('p', { class: 'faint' }, 'None is known.'));
    return;
  }
  root.replaceChildren(...problems.map((p) => el('article', { class: 'problem' },
    el('p', {}, el('b', {}, p.on), `: ${p.what}`), el('p', { class: 'faint' }, `do: ${p.do}`))),
  more > 0 ? el('p', { class: 'faint' }, `and ${more} more`) : '');
}

export function showQueues(root, queues) {
  if (queues.length === 0) {
    root.replaceChildren(el('p', { class: 'faint' }, 'There are no queues.'));
    return;
  }
  const cell = (text, n) => el('td', { class: n ? 'n' : null }, text || '-');
  root.replaceChildren(el('table', {},
    el('thead', {}, el('tr', {}, ...['Queue', 'Resource', 'Used', 'Quota', 'Deserved'].map((h, i) => el('th', { scope: 'col', class: i > 1 ? 'n' : null }, h)))),
    el('tbody', {}, ...queues.map((q) => el('tr', {},
      el('td', {}, q.queue, q.state && q.state !== 'Open' ? ` (${q.state})` : ''), cell(q.resource), cell(q.shown.used, true), cell(q.shown.quota, true), cell(q.shown.deserved, true))))));
}

// showGroups lists the kinds of nodes; choosing one shows its nodes, choosing it again all.
export function showGroups(body, groups, chosen, choose) {
  const held = document.activeElement?.closest?.('#groups button')?.textContent;
  body.replaceChildren(...groups.map((g) => {
    const name = el('button', { type: 'button', class: 'kind', 'aria-pressed': String(g.name === chosen) }, g.name);
    name.addEventListener('click', () => choose(g.name === chosen ? '' : g.name));
    return el('tr', {}, el('td', {}, name), el('td', { class: 'n' }, g.nodes.toLocaleString('en')), el('td', { class: 'n' }, g.devices.toLocaleString('en')),
      el('td', { class: 'n' }, g.shares.toLocaleString('en')), el('td', {}, meter(g.memoryPart, g.memory)), el('td', {}, meter(g.coresPart, g.cores)),
      el('td', { class: g.trouble > 0 ? 'trouble' : 'faint' }, g.trouble > 0 ? count(g.trouble, 'device') : 'none'));
  }));
  if (held !== undefined) [...body.querySelectorAll('button')].find((b) => b.textContent === held)?.focus();
}
