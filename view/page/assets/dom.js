// SPDX-License-Identifier: Apache-2.0

// el makes an element. Texts become text nodes and never markup, whoever wrote them.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) e.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// drawn makes an element of a drawing.
export function drawn(tag, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

export const byId = (id) => document.getElementById(id);

// meter is a bar with a number: the number says what the bar shows.
export function meter(part, label) {
  const fill = el('span', { class: 'fill' });
  fill.style.width = `${Math.min(part, 1000) / 10}%`;
  return el('span', { class: 'meter', title: label },
    el('span', { class: 'bar', 'aria-hidden': 'true' }, fill), el('span', { class: 'n' }, percent(part)));
}

export const percent = (part) => `${Math.round(part / 10)}%`;

export const count = (n, what) => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });

// age is how long ago something was, in one unit.
export function age(since, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(since)) / 1000));
  for (const [unit, size] of [['d', 86400], ['h', 3600], ['min', 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}
