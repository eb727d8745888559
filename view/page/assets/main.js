// SPDX-License-Identifier: Apache-2.0
import { byId, clock, count, el } from './dom.js';
import { Cards } from './cards.js';
import { showSums } from './sums.js';
import { showGroups, showProblems, showQueues, showWaiting } from './lists.js';

const pageSize = 24; // nodes at once; with more than that, kinds of nodes are shown first
const kept = 3600; // seconds of the time line
const sampled = 5000; // ms between two samples of the time line
const quiet = 40000; // ms without a sign of life after which the connection is taken for lost
const fields = ['text', 'mode', 'condition'];

const cards = new Cards(byId('cards'));
const view = { group: '', offset: 0, waiting: 0, samples: [], overview: null, failing: false, following: false };
let heard = Date.now();

async function get(path, query = {}) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== 0));
  const answer = await fetch(`data/${path}?${q}`);
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

const filter = () => ({ group: view.group, ...Object.fromEntries(fields.map((f) => [f, byId(f).value])) });
const isFiltered = () => Object.values(filter()).some((v) => v !== '');

// once returns a function that runs another one, and once more if it was asked for meanwhile.
function once(run) {
  let running = false, again = false;
  return async () => {
    if (running) { again = true; return; }
    running = true;
    do {
      again = false;
      try {
        await run();
        view.failing = false;
      } catch (e) {
        view.failing = true;
        say(`The page cannot be read: ${e.message}; trying again.`, true);
        setTimeout(update, 2000);
      }
    } while (again);
    running = false;
  };
}

const update = once(async () => {
  const o = await get('overview');
  view.overview = o;
  addModes(o.modes);
  await showNodes();
  showGroups(byId('groups').tBodies[0], o.groups, view.group, (g) => { view.group = g; view.offset = 0; update(); });
  showSums(byId('sums'), o, view.samples);
  showProblems(byId('problems'), o.problems, o.moreProblems);
  showQueues(byId('queues'), o.queues);
  document.body.dataset.version = o.version;
  waiting();
  state();
  if (!view.following) {
    view.following = true;
    follow();
  }
});

// waiting is apart: to say why pods wait takes long in a large cluster.
const waiting = once(async () => {
  let w = await get('waiting', { offset: view.waiting });
  if (w.pods.length === 0 && view.waiting > 0) {
    view.waiting = 0;
    w = await get('waiting');
  }
  const now = view.overview.live || !w.taken ? Date.now() : w.taken * 1000;
  showWaiting(byId('waiting'), { ...w, offset: view.waiting, now }, (offset) => { view.waiting = offset; waiting(); });
});

async function showNodes() {
  const o = view.overview;
  const open = isFiltered() || o.nodes <= pageSize;
  let found = { nodes: [], total: o.nodes };
  if (open) {
    found = await get('nodes', { ...filter(), offset: view.offset, limit: pageSize });
    if (found.nodes.length === 0 && view.offset > 0) {
      view.offset = 0;
      found = await get('nodes', { ...filter(), limit: pageSize });
    }
  }
  cards.show(found.nodes);
  const last = view.offset + found.nodes.length;
  byId('found').textContent = !open ? `${count(o.nodes, 'node')}: choose a kind, or find some, to see their devices`
    : found.total === 0 ? 'no node is like that'
      : found.total > found.nodes.length ? `${(view.offset + 1).toLocaleString('en')} to ${last.toLocaleString('en')} of ${count(found.total, 'node')}` : count(found.total, 'node');
  byId('pager').hidden = !open || found.total <= pageSize;
  byId('back').disabled = view.offset === 0;
  byId('on').disabled = last >= found.total;
  remember();
}

function addModes(modes) {
  const select = byId('mode');
  const known = new Set([...select.options].map((o) => o.value));
  for (const m of modes) if (!known.has(m)) select.append(el('option', { value: m }, m));
  if (select.dataset.wanted) { // of the address, before the modes were known
    select.value = select.dataset.wanted;
    delete select.dataset.wanted;
  }
}

// remember puts what is shown into the address, so that it can be passed on; recall reads it.
function remember() {
  const q = new URLSearchParams(Object.entries({ ...filter(), offset: view.offset || '' }).filter(([, v]) => v !== ''));
  history.replaceState(null, '', q.size > 0 ? `#${q}` : location.pathname);
}

function recall() {
  const q = new URLSearchParams(location.hash.slice(1));
  view.group = q.get('group') ?? '';
  view.offset = Math.max(0, Number.parseInt(q.get('offset') ?? '0', 10) || 0);
  for (const f of fields) byId(f).value = q.get(f) ?? '';
  if (q.get('mode')) byId('mode').dataset.wanted = q.get('mode');
}

function say(text, bad) {
  byId('live').textContent = text;
  byId('live').className = bad ? 'trouble' : 'faint';
}

function state() {
  const o = view.overview;
  if (view.failing) return; // it is said already
  if (!o.live) say(o.taken ? `captured ${new Date(o.taken * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC` : 'captured');
  else if (Date.now() - heard > quiet) say('The connection is lost; trying again.', true);
  else if (o.stale) say(`Not current: ${o.stale}`, true);
  else say(`live, ${clock(o.taken)}`);
}

async function past() {
  const h = await get('history', { after: view.samples.at(-1)?.at ?? 0 });
  view.samples = view.samples.concat(h.samples).filter((s, _, all) => s.at > all.at(-1).at - kept);
  showSums(byId('sums'), view.overview, view.samples);
}

// follow asks for what the time line lacks every so often, and listens for changes.
function follow() {
  past().catch(() => {}); // the next time, then
  if (!view.overview.live) return;
  setInterval(() => { past().catch(() => {}); state(); }, sampled);
  let events;
  const connect = () => {
    events?.close();
    events = new EventSource('data/events');
    events.addEventListener('change', () => { heard = Date.now(); update(); });
    events.addEventListener('beat', () => { heard = Date.now(); update(); });
    events.addEventListener('error', () => { // the browser tries again, unless it was refused
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };
  connect();
}

function changed() {
  view.offset = 0;
  update();
}

function turn(by) {
  view.offset = Math.max(0, view.offset + by);
  update();
}

// theme follows the system until somebody chooses.
function theme(choice) {
  const root = document.documentElement;
  if (choice === 'system') delete root.dataset.theme; else root.dataset.theme = choice;
  byId('theme').textContent = `Theme: ${choice}`;
  byId('theme').dataset.choice = choice;
  try { localStorage.setItem('theme', choice); } catch { /* the browser keeps nothing */ }
}

function begin() {
  let chosen = 'system';
  try { chosen = localStorage.getItem('theme') ?? 'system'; } catch { /* the browser keeps nothing */ }
  theme(['light', 'dark'].includes(chosen) ? chosen : 'system');
  byId('theme').addEventListener('click', () => theme({ system: 'light', light: 'dark', dark: 'system' }[byId('theme').dataset.choice]));
  byId('find').addEventListener('submit', (e) => e.preventDefault());
  byId('text').addEventListener('input', changed);
  for (const f of ['mode', 'condition']) byId(f).addEventListener('change', changed);
  byId('clear').addEventListener('click', () => { view.group = ''; for (const f of fields) byId(f).value = ''; changed(); });
  byId('back').addEventListener('click', () => turn(-pageSize));
  byId('on').addEventListener('click', () => turn(pageSize));
  const finds = (e) => e.key === '/' && !['INPUT', 'SELECT'].includes(e.target.tagName) && !e.ctrlKey && !e.metaKey;
  document.addEventListener('keyup', (e) => { if (finds(e)) byId('text').focus(); });
  document.addEventListener('keydown', (e) => {
    if (finds(e)) e.preventDefault(); // some browsers have a search of their own on this key
    if (e.key === 'Escape' && e.target === byId('text')) { byId('text').value = ''; changed(); }
  });
  recall();
  window.addEventListener('hashchange', () => { recall(); update(); });
  update();
}

begin();
