// SPDX-License-Identifier: Apache-2.0
import { el } from './dom.js';

const tints = 4; // neighbours differ in lightness

// Cards draws nodes and keeps those that have not changed, so that focus and pointer stay where
// they are.
export class Cards {
  constructor(root) {
    this.root = root;
    this.drawn = new Map();
    root.addEventListener('keydown', (e) => move(root, e));
  }

  show(nodes) {
    const held = focused(this.root);
    const now = new Map();
    for (const node of nodes) {
      const text = JSON.stringify(node);
      const before = this.drawn.get(node.node);
      now.set(node.node, before?.text === text ? before : { text, element: card(node) });
    }
    this.drawn = now;
    const wanted = [...now.values()].map((c) => c.element);
    if (wanted.length !== this.root.children.length || wanted.some((e, i) => e !== this.root.children[i])) {
      this.root.replaceChildren(...wanted);
    }
    if (held) restore(this.root, held);
  }
}

function card(node) {
  const who = el('p', { class: 'who' }, quiet(node));
  const e = el('article', { class: 'card', 'data-node': node.node, 'aria-label': `node ${node.node}` },
    el('h3', {}, el('span', {}, node.node), el('span', { class: 'faint' }, node.group)));
  if (node.unusable) e.append(el('p', { class: 'trouble' }, `Takes no pods with devices: ${node.unusable}`));
  for (const s of node.strips) e.append(strip(node, s));
  e.append(who);
  const say = (event) => { who.textContent = event.target.dataset?.who ?? quiet(node); };
  e.addEventListener('pointerover', say);
  e.addEventListener('focusin', say);
  e.addEventListener('pointerleave', () => { who.textContent = e.querySelector('.share:focus')?.dataset.who ?? quiet(node); });
  e.querySelector('.share')?.setAttribute('tabindex', '0');
  return e;
}

function quiet(node) {
  const shares = node.strips.reduce((sum, s) => sum + s.segments.length, 0);
  return shares === 0 ? 'No shares.' : `${shares} ${shares === 1 ? 'share' : 'shares'}.`;
}

function strip(node, s) {
  const bar = el('div', { class: s.trouble ? 'strip off' : 'strip' });
  for (let k = 1; k < s.slots; k++) {
    const slot = el('span', { class: 'slot' });
    slot.style.left = `${(100 * k) / s.slots}%`;
    bar.append(slot);
  }
  s.segments.forEach((g, i) => {
    const share = el('button', {
      type: 'button', class: `share tint${i % tints}`, tabindex: '-1', 'data-who': `${s.index} ${g.letter}  ${g.text}`,
      'aria-label': `device ${s.index}, ${g.text}`,
    }, g.letter);
    share.style.left = `${g.start / 10}%`;
    share.style.width = `${g.width / 10}%`;
    bar.append(share);
  });
  return el('div', { class: 'device', role: 'group', 'aria-label': `device ${s.index}, ${s.mode}, ${s.model}: ${s.text}` },
    el('p', { class: 'line', title: s.place }, el('span', { class: 'index' }, String(s.index)), el('span', { class: 'mode' }, s.mode), el('span', { class: 'n' }, s.text)),
    s.trouble ? el('p', { class: 'trouble' }, s.trouble) : null, bar);
}

// move takes the focus from share to share: left and right in a device, up and down between
// devices. A node is one stop of Tab.
function move(root, event) {
  const share = event.target.closest?.('.share');
  if (!share) return;
  const strips = [...root.querySelectorAll('.strip')].filter((s) => s.querySelector('.share'));
  const at = strips.indexOf(share.parentElement);
  const inStrip = [...share.parentElement.querySelectorAll('.share')];
  const i = inStrip.indexOf(share);
  const to = {
    ArrowRight: () => inStrip[i + 1], ArrowLeft: () => inStrip[i - 1], Home: () => inStrip[0], End: () => inStrip.at(-1),
    ArrowDown: () => strips[at + 1]?.querySelector('.share'), ArrowUp: () => strips[at - 1]?.querySelector('.share'),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  const next = to();
  if (!next) return;
  focus(next);
}

function focus(share) {
  for (const other of share.closest('.card').querySelectorAll('.share[tabindex="0"]')) other.setAttribute('tabindex', '-1');
  share.setAttribute('tabindex', '0');
  share.focus();
}

// focused is which share has the focus: of which node and device, and whose it is.
function focused(root) {
  const share = document.activeElement?.closest?.('.share');
  if (!share || !root.contains(share)) return null;
  return { node: share.closest('.card').dataset.node, who: share.dataset.who, element: share };
}

// restore gives the focus back to the same share, or to the first one of its node if it is gone.
function restore(root, held) {
  if (held.element.isConnected) return;
  const at = [...root.querySelectorAll('.card')].find((c) => c.dataset.node === held.node);
  const shares = [...(at?.querySelectorAll('.share') ?? [])];
  const next = shares.find((s) => s.dataset.who === held.who) ?? shares[0];
  if (next) focus(next);
}
