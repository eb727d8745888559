// SPDX-License-Identifier: Apache-2.0
import { clock, count, drawn, el, percent } from './dom.js';

const hour = 3600;
const shortest = 60; // what the time line spans at least, in seconds

// tile is one figure with what it was over the last hour.
function tile(name, figure, more, line) {
  return el('div', { class: 'tile' }, el('h2', {}, name), el('p', { class: 'figure' }, figure), el('p', { class: 'faint' }, more), line);
}

// showSums draws the figures and their time lines.
export function showSums(root, o, samples) {
  const t = o.total;
  const last = samples.at(-1)?.at ?? 0;
  const from = Math.max(last - hour, Math.min(samples[0]?.at ?? last, last - shortest));
  const most = Math.max(4, ...samples.map((s) => s.waiting));
  const line = (name, of, top, text) => chart(name, samples.map((s) => [s.at, of(s)]), from, last, top, text);
  root.replaceChildren(
    el('div', { class: 'tile' }, el('h2', {}, 'Cluster'), el('p', { class: 'figure' }, count(o.nodes, 'node')),
      el('p', { class: 'faint' }, `${count(t.devices, 'device')}, ${count(t.shares, 'share')}`),
      el('p', { class: t.trouble > 0 ? 'trouble' : 'faint' }, t.trouble > 0 ? `${count(t.trouble, 'device')} in trouble` : 'no device in trouble')),
    tile('Memory promised', percent(t.memoryPart), t.memory, line('memory promised', (s) => s.memory, 1000, percent)),
    tile('Compute promised', percent(t.coresPart), t.cores, line('compute promised', (s) => s.cores, 1000, percent)),
    tile('Waiting', String(o.waiting), o.waiting === 1 ? 'pod waits' : 'pods wait', line('pods that wait', (s) => s.waiting, most, String)),
  );
}

// chart draws what a value was. A state that was captured has no past.
function chart(name, points, from, to, top, text) {
  if (points.length < 2) return null;
  const width = 300, height = 40;
  const x = (at) => ((at - from) / (to - from)) * width;
  const y = (v) => height - 1 - (Math.min(v, top) / top) * (height - 2);
  const shown = points.filter(([at]) => at >= from);
  let d = `M${x(shown[0][0]).toFixed(1)} ${y(shown[0][1]).toFixed(1)}`;
  for (const [at, v] of shown.slice(1)) d += `H${x(at).toFixed(1)}V${y(v).toFixed(1)}`;
  const values = shown.map(([, v]) => v);
  const label = `${name} from ${clock(from)} to ${clock(to)}: between ${text(Math.min(...values))} and ${text(Math.max(...values))}`;
  return el('figure', { title: label },
    drawn('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
      drawn('path', { class: 'area', d: `${d}V${height}H${x(shown[0][0]).toFixed(1)}Z` }), drawn('path', { class: 'curve', d })),
    el('figcaption', {}, el('span', {}, clock(from)), el('span', {}, `0 to ${text(top)}`), el('span', {}, clock(to))));
}
