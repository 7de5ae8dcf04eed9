// SPDX-License-Identifier: Apache-2.0
'use strict';
// Small helpers for the document. Whatever comes from outside is inserted as text, never as markup.

const byId = id => document.getElementById(id);

// An element with properties and children. `class`, `data-…`, `aria-…` and `role` are attributes, `on` holds
// listeners, and anything else is a property.
function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === 'class' || name === 'role' || name.includes('-')) {
      if (value !== undefined && value !== null) element.setAttribute(name, value);
    } else {
      element[name] = value;
    }
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

// One of the symbols at the top of the document.
function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(space, 'use');
  use.setAttribute('href', '#' + name);
  svg.append(use);
  return svg;
}

function iconButton(name, label, onClick, more = {}) {
  return h(
    'button',
    {type: 'button', class: 'quiet', title: label, 'aria-label': label, on: {click: onClick}, ...more},
    icon(name),
  );
}

// The clipboard of the browser is closed to pages without TLS, other than those of the machine itself.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', {value: text, class: 'offscreen'});
    (document.querySelector('dialog[open]') || document.body).append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

// A button that copies what `textOf` returns, and says so for a moment.
function copyButton(textOf, label = 'Copy') {
  const button = iconButton('i-copy', label, async () => {
    await copyText(textOf());
    button.replaceChildren(icon('i-check'));
    setTimeout(() => button.replaceChildren(icon('i-copy')), 1200);
  });
  return button;
}

// Grows a textarea with its text.
function fitHeight(area) {
  area.style.height = 'auto';
  area.style.height = Math.min(area.scrollHeight + 2, innerHeight * 0.4) + 'px';
}

const countText = number => (number >= 10000 ? (number / 1000).toFixed(0) + 'k' : String(Math.round(number)));
